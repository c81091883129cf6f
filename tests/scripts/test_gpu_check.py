"""scripts/gpu_check runs all of its parts, here on the CPU at small size."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import part_process
import pytest

from headrace.host.validation import run
from headrace.host.validation.plan import LIMITS_S

ROOT = Path(__file__).parents[2]


def start(*options, limit_s=280):
    command = [sys.executable, ROOT / "scripts" / "gpu_check", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, cwd=ROOT)


def test_two_parts_give_rows_a_page_and_progress(tmp_path, monkeypatch, capfd):
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "")  # the check may set them, and the test's end undoes that
    forks = {**vars(subprocess), "run": part_process.run, "Popen": part_process.ForkedPart}
    monkeypatch.setattr(run, "subprocess", SimpleNamespace(**forks))
    assert run.check(tmp_path, device="cpu", parts=("decode", "copies"), folder=ROOT)
    found = json.loads((tmp_path / "gpu_check.json").read_text())
    assert list(found["parts"]) == ["copies", "decode"] and found["device"]["kind"] == "cpu" and found["small"]
    copies = found["parts"]["copies"]["rows"]
    assert all(row["measured"] > 0 for row in copies if row["details"]["memory"] == "pageable")
    assert all(row["measured"] is None and "GPU" in row["note"] for row in copies if "pinned" in row["quantity"])
    opencv, nvjpeg = found["parts"]["decode"]["rows"]
    assert opencv["measured"] > 1 and nvjpeg["measured"] is None
    page = (tmp_path / "gpu_check.md").read_text()
    assert "## copies" in page and "## decode" in page and "on the CPU at small size" in capfd.readouterr().err


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "speed"], "there is no part 'speed'"),
        (["--device", "tpu"], "invalid choice"),
        (["--device", "cuda"], "finds no GPU"),
    ],
)
def test_bad_usage_has_status_2_and_writes_nothing(options, words, tmp_path):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, ROOT / "scripts" / "gpu_check", "--out", tmp_path / "out", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_all_parts_run_and_their_numbers_hold_together(tmp_path):
    done = start("--device", "cpu", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu_check.json").read_text())
    parts = found["parts"]
    assert list(parts) == list(LIMITS_S)
    assert all(part["error"] == "" and part["rows"] for part in parts.values())
    for row in (row for part in parts.values() for row in part["rows"]):
        assert row["error"] == "", row
        assert row["measured"] is None or row["measured"] >= 0

    profiles = parts["profiles"]["rows"]
    assert all(row["expected"] > 0 and row["measured"] > 0 for row in profiles)
    for row in profiles:  # the copy takes time, but for noise
        assert row["details"]["without_copy_ms"] < 3 * row["measured"]
    whole = [row for row in parts["nodes"]["rows"] if row["quantity"] == "node by node"]
    assert whole and all(row["details"]["difference"] < 1e-5 and row["details"]["nodes"] > 1 for row in whole)

    live = [row for row in parts["live"]["rows"] if row["quantity"] == "mean latency"]
    assert {(row["details"]["load"], row["details"]["policy"]) for row in live} == {
        (load, policy) for load in (0.3, 0.6, 0.9) for policy in ("lazy", "graph", "preba")
    }
    for row in live:
        for side in (row["details"]["counts"], row["details"]["simulated"]):
            ends = sum(side[key] for key in ("finished", "failed", "shed", "dropped", "cancelled"))
            assert side["requests"] == ends == side["finished"] > 0
    (throughput, latency) = parts["server"]["rows"]
    assert throughput["measured"] > 0 and latency["measured"] > 0
    counts = throughput["details"]["counts"]
    assert counts["requests"] == sum(counts[key] for key in ("finished", "failed", "shed", "dropped"))
    assert counts["failed"] == 0
    page = (tmp_path / "gpu_check.md").read_text()
    assert all(f"## {name}" in page for name in LIMITS_S)
