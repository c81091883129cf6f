"""Test MLPerf LoadGen against a real server, through benchmarks/loadgen.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running import IMAGE_FILE, serving

ROOT = Path(__file__).parents[2]


def loadgen(url, out, *options):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.loadgen", url, "--out", str(out), "--duration-s", "3", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.timed
@pytest.mark.parametrize("transport", ["http", pytest.param("grpc", marks=pytest.mark.slow)])
def test_the_server_scenario_is_valid(transport, tmp_path):
    with serving(models=("scale",)) as server:
        url = f"{transport}://{server.url(transport)}"
        # Early stopping wants some hundreds of queries for a 99th percentile. The latency is longer than the run, so
        # that a busy machine does not decide the result.
        done = loadgen(url, tmp_path, "--model", "scale", "--rate-rps", "250", "--latency-ms", "10000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Scenario : Server" in done.stdout and "Result is : VALID" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["ends"]["ok"] > 500
    assert (tmp_path / "mlperf_log_detail.txt").is_file()


@pytest.mark.timed
@pytest.mark.slow
def test_the_offline_scenario_sends_images(tmp_path):
    image = tmp_path / "photo.jpg"
    image.write_bytes(IMAGE_FILE)
    with serving(models=("means",)) as server:
        done = loadgen(
            f"http://{server.url()}",
            tmp_path,
            "--model",
            "means",
            "--scenario",
            "offline",
            "--input",
            str(image),
            "--at-once",
            "8",
            "--rate-rps",
            "100",
        )
    assert "Scenario : Offline" in done.stdout and "Samples per second" in done.stdout
    assert set(json.loads(done.stdout.splitlines()[-1])["ends"]) == {"ok"}


@pytest.mark.slow
def test_a_run_with_requests_that_got_no_result_fails(tmp_path):
    with serving("--max-queue", "1", models=("scale",)) as server:
        done = loadgen(f"http://{server.url()}", tmp_path, "--model", "scale", "--rate-rps", "1000")
    assert done.returncode == 1 and json.loads(done.stdout.splitlines()[-1])["ends"]["shed"] > 0


@pytest.mark.slow
def test_a_model_that_is_not_there_is_told(tmp_path):
    with serving(models=("scale",)) as server:
        done = loadgen(f"http://{server.url()}", tmp_path, "--model", "other")
    assert done.returncode == 2 and done.stderr.startswith("loadgen: ") and len(done.stderr.splitlines()) == 1
