"""Files of results on a disk that is full: one line tells of it, what was there stays, and the next start goes on."""

import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
import pytest
from command import headrace

pytestmark = pytest.mark.slow
SHORT = runpy.run_path(str(Path(__file__).parents[3] / "scripts/shortages.py"))
SIMULATE = ("simulate", "--model", "resnet50", "--policy", "lazy", "--requests", "300")
GRID = 'model = "resnet50"\npolicy = ["lazy", "serial"]\nrequests = 200\nrate-rps = [100, 200, 300]\n'


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    with SHORT["small_disk"](tmp_path_factory.mktemp("full") / "disk") as found:
        if found is None:
            pytest.skip("this process may mount no file system")
        yield found


def told(done) -> str:
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_a_trace_that_does_not_fit_leaves_the_one_before(disk):
    trace = disk / "trace.json"
    trace.write_text("the one before")
    with SHORT["no_space"](disk)(0):
        assert "No space left on device" in told(headrace(*SIMULATE, "--trace", trace))
        assert [file.name for file in disk.iterdir() if file.name != "filling"] == ["trace.json"]
    assert trace.read_text() == "the one before"
    assert headrace(*SIMULATE, "--trace", trace).returncode == 0 and trace.stat().st_size > 10_000
    trace.unlink()


def test_a_container_that_does_not_fit_leaves_the_one_before(disk):
    container = disk / "dpu.xclbin"
    container.write_text("the one before")
    with SHORT["no_space"](disk)(0):
        assert "No space left on device" in told(headrace("build", "--target", "sw_emu", "-o", container))
    assert container.read_text() == "the one before" and list(disk.iterdir()) == [container]
    container.unlink()


def test_a_sweep_that_fills_the_disk_goes_on_when_there_is_room(disk, tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID)
    with SHORT["no_space"](disk)(0):
        assert "No space left on device" in told(headrace("simulate", "--grid", grid, "--out", disk / "runs"))
    assert headrace("simulate", "--grid", grid, "--out", disk / "runs").returncode == 0
    assert pyarrow.parquet.read_table(disk / "runs" / "runs.parquet").num_rows == 6


def test_a_build_that_is_killed_leaves_nothing_half(tmp_path):
    container = tmp_path / "dpu.xclbin"
    code = "from headrace.host.cli.main import main; main()"
    line = [sys.executable, "-c", code, "build", "--target", "sw_emu", "-o", str(container)]
    for after_s in (0.2, 0.6, 1.5):
        process = subprocess.Popen(line, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not container.exists() or headrace("build", "--info", container).returncode == 0
    assert headrace("build", "--target", "sw_emu", "-o", container).returncode == 0
