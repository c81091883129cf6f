"""Many runs that are stopped midway, by Ctrl-C or a kill: what is done is on disk, and a second start runs the rest."""

import contextlib
import os
import signal
import subprocess
import time

import pytest
from command import COMMAND, headrace_here

from headrace.host.cli.console import Stages
from headrace.sim.sweeps.grid import Found
from headrace.sim.sweeps.journal import Journal, RowJournal

GRID = 'model = "gnmt"\nrequests = 2000\npolicy = ["lazy", "graph"]\nseeds = 12\n'
REPRODUCE = ("reproduce", "lazybatching", "--quick", "--figure", "pairs", "--json", "--out")
PATIENCE_S = 60.0  # a loaded machine


@pytest.fixture(scope="module")
def simulate(tmp_path_factory):
    path = tmp_path_factory.mktemp("grid") / "grid.toml"
    path.write_text(GRID)
    return ("simulate", "--grid", path, "--json", "--out")


def written(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def whole(command, folder):
    """What an uninterrupted run prints, and the files that it writes."""
    done = headrace_here(*command, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout, written(folder)


@pytest.fixture(scope="module")
def simulated(simulate, tmp_path_factory):
    return whole(simulate, tmp_path_factory.mktemp("simulated"))


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    return whole(REPRODUCE, tmp_path_factory.mktemp("reproduced"))


def stopped(command, folder, by, after=3):
    """The command in a process of its own, which is sent the signal, as all of its group are, once so many runs are
    done."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background job ignores interrupts, and what it starts inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    log = folder / "runs.jsonl"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if log.exists() and log.read_bytes().count(b"\n") >= after:
            break
        time.sleep(0.005)
    (process.send_signal if by == signal.SIGKILL else lambda number: os.killpg(process.pid, number))(by)
    try:
        out, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == (130 if by == signal.SIGINT else -by), errors
    assert out == ""


@pytest.fixture
def resumed(monkeypatch):
    """A second start in this process: what it prints and writes, and how many runs it did and how many not again, as
    the progress display and as the journal have it."""

    def run(command, folder):
        skipped, steps, kept = [], [], []
        with monkeypatch.context() as patch:
            patch.setattr(Stages, "skip", counting(Stages.skip, lambda count: skipped.append(count)))
            patch.setattr(Stages, "step", counting(Stages.step, lambda: steps.append(1)))
            patch.setattr(Journal, "keep", counting(Journal.keep, lambda job, result: kept.append(job)))
            found = whole(command, folder)
        assert len(steps) == len(kept)
        return found, len(steps), sum(skipped)

    return run


def counting(method, count):
    def counted(self, *arguments):
        count(*arguments)
        method(self, *arguments)

    return counted


@pytest.mark.parametrize("by", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_grid_goes_on(by, simulate, simulated, resumed, tmp_path):
    stopped((*simulate, tmp_path), tmp_path, by)
    kept = len(Journal(tmp_path / "runs.parquet", Found))
    assert 3 <= kept < 24
    assert resumed(simulate, tmp_path) == (simulated, 24 - kept, kept)


@pytest.mark.parametrize("by", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_an_evaluation_goes_on(by, reproduced, resumed, tmp_path):
    stopped((*REPRODUCE, tmp_path), tmp_path, by)
    kept = len(RowJournal(tmp_path / "runs.parquet", []))
    assert 3 <= kept < 24
    assert resumed(REPRODUCE, tmp_path) == (reproduced, 24 - kept, kept)


@pytest.mark.slow
def test_a_grid_on_a_cluster_goes_on_wherever(simulate, simulated, resumed, tmp_path):
    """A cluster takes longer to end than a command may after Ctrl-C; what it did is in one file before."""
    stopped((*simulate, tmp_path, "--ray", "local"), tmp_path, signal.SIGINT)
    assert [path.name for path in tmp_path.iterdir()] == ["runs.parquet"]
    kept = len(Journal(tmp_path / "runs.parquet", Found))
    assert 3 <= kept < 24
    assert resumed(simulate, tmp_path) == (simulated, 24 - kept, kept)
