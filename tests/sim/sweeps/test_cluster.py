"""Test sweeps on a Ray cluster, all on this machine: the results are those of its own processes."""

import contextlib
import os
import socket
import time
from pathlib import Path

import pytest
from progress_counter import Counter

from headrace.batching import HeadraceError, UsageError
from headrace.host.live.machine.children import children
from headrace.sim.experiments.lazybatching import runs as lazybatching
from headrace.sim.sweeps import cluster as module
from headrace.sim.sweeps.grid import run
from headrace.sim.sweeps.sweep import sweep, worker_pool

PATIENCE_S = 60.0


def nothing():
    pass


@pytest.fixture(scope="module", autouse=True)
def same_priority():
    """Let Ray's workers have the priority of other processes. By default they would wait while any of these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        yield


@contextlib.contextmanager
def cluster(cores, *others):
    """Start a cluster of a head and other nodes, with this number of cores each."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": cores, "include_dashboard": False})
    try:
        nodes.workers = [nodes.add_node(num_cpus=each) for each in others]
        yield nodes
    finally:
        nodes.shutdown()


@pytest.fixture(scope="module")
def head():
    with cluster(2) as nodes:
        yield nodes


@pytest.fixture
def three():
    with cluster(1, 1, 1) as nodes:
        yield nodes


def written(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_the_evaluation_is_the_same_to_the_byte_though_a_node_is_killed_in_the_middle(three, tmp_path, capfd):
    scale = lazybatching.Scale(2, 300, (16, 500, 2000), (5, 95))
    lost = []

    class Killing(Counter):
        def step(self):
            super().step()
            if self.steps == 3:
                three.remove_node(three.workers.pop(), allow_graceful=False)
                lost.append(self.steps)

    figures = ["12", "15"]
    here = lazybatching.reproduce(figures, tmp_path / "here", scale, Counter())
    there = lazybatching.reproduce(figures, tmp_path / "there", scale, Killing(), three.address)
    assert lost == [3] and there == here
    assert written(tmp_path / "there") == written(tmp_path / "here")
    assert capfd.readouterr().out == "", "Ray's word of it is not amidst the results"


# Of the interpreter's own, as a node has no tests: it ends its process the first times.
KILLED = """
import os, signal
with open({mark!r}, "a") as file:
    file.write("x")
if os.path.getsize({mark!r}) <= {times}:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_job_whose_process_is_killed_is_done_again(head, tmp_path):
    marks = [tmp_path / str(number) for number in range(3)]
    sweep(exec, [KILLED.format(mark=str(mark), times=1) for mark in marks], nothing, head.address)
    assert [mark.read_text() for mark in marks] == ["xx"] * 3


@pytest.mark.parametrize("attempts", [2, pytest.param(module.ATTEMPTS, marks=pytest.mark.slow)])
def test_a_job_that_always_takes_its_process_along_ends_the_sweep(head, tmp_path, monkeypatch, attempts):
    monkeypatch.setattr(module, "ATTEMPTS", attempts)
    mark = tmp_path / "mark"
    with pytest.raises(HeadraceError, match=f"job 0 was lost with its node or its process {attempts} times"):
        sweep(exec, [KILLED.format(mark=str(mark), times=100)], nothing, head.address)
    assert mark.read_text() == "x" * attempts


@pytest.mark.quick(1)
@pytest.mark.parametrize(("work", "job", "error"), [(abs, "x", TypeError), (run, "no scenario", AttributeError)])
def test_what_a_job_raises_is_raised_with_where(head, work, job, error):
    with pytest.raises(error) as raised:
        sweep(work, [job], nothing, head.address)
    assert "Traceback" in raised.value.__notes__[0]


STAYING = """
import os, time
with open({mark!r}, "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""
FAILING = """
import os, time
deadline = time.monotonic() + 60
while not (os.path.exists({mark!r}) and os.path.getsize({mark!r})) and time.monotonic() < deadline:
    time.sleep(0.01)
raise ValueError("enough")
"""


def test_what_else_runs_when_a_job_raises_is_ended(head, tmp_path):
    mark = str(tmp_path / "pid")
    began = time.monotonic()
    with pytest.raises(ValueError, match="enough"):
        sweep(exec, [STAYING.format(mark=mark), FAILING.format(mark=mark)], nothing, head.address)
    running = Path("/proc", Path(mark).read_text())
    while running.exists():
        assert time.monotonic() - began < PATIENCE_S
        time.sleep(0.1)


def test_order_is_that_of_the_jobs(head):
    with worker_pool(ray=head.address) as workers:
        assert workers.sweep(abs, [-number for number in range(20)], nothing) == list(range(20))
        assert workers.sweep(abs, [], nothing) == []


def test_a_node_with_other_code_is_refused(head):
    with module.cluster(head.address) as nodes:
        nodes.version = "another"
        with pytest.raises(UsageError, match=r"has other code of Headrace \(.*\) than this machine \(another\)"):
            list(nodes.run(abs, [(0, 1)]))


def test_a_cluster_of_another_ray_is_refused(head, monkeypatch):
    monkeypatch.setattr("ray.__version__", "2.0.0")
    with pytest.raises(UsageError, match=r"--ray .*[Vv]ersion mismatch.*2\.0\.0"):
        sweep(abs, [1], nothing, head.address)


def test_a_node_that_does_not_start_is_told(monkeypatch):
    starts = []

    def late(**_):
        starts.append("local")
        raise Exception("The current node timed out\nduring startup.")  # as ray._private.node does

    monkeypatch.setattr(module.ray, "init", late)
    with pytest.raises(UsageError, match=r"--ray local: The current node timed out during startup"):
        sweep(abs, [1], nothing, "local")
    assert len(starts) == module.LOCAL_STARTS


def test_a_node_that_starts_late_is_started_again(monkeypatch):
    starts = []

    def late_once(**_):
        starts.append("local")
        if len(starts) == 1:
            raise Exception("Timed out waiting for file /tmp/ray/gcs_server_port")

    monkeypatch.setattr(module.ray, "init", late_once)
    with module.cluster("local"):
        assert len(starts) == 2


def test_who_listens_and_never_answers_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_S", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(UsageError, match="no answer in 4 s"):
            sweep(abs, [1], nothing, f"127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - began < PATIENCE_S


def test_where_nobody_listens_is_told_at_once():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(UsageError, match=f"--ray 127.0.0.1:{port}: .*refused"):
        sweep(abs, [1], nothing, f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["", "x", "ray://h:1", "h:0", "h:65536", ":1", "h:", "h:1/x"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UsageError, match="give local, auto, or HOST:PORT"):
        sweep(abs, [1], nothing, address)


def test_a_cluster_of_its_own_is_gone_behind_the_sweep():
    before = set(children(os.getpid()))
    with worker_pool(ray="local") as workers:
        assert workers.sweep(abs, [-1, 2], nothing) == [1, 2]
        assert set(children(os.getpid())) > before
    deadline = time.monotonic() + PATIENCE_S
    while set(children(os.getpid())) - before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
