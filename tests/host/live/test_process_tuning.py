"""Tests of the process settings against pauses, with real files and the real garbage collector."""

import gc
import logging
import os
import struct
import subprocess
import sys

import pytest
from serving import serve
from small_nets import NET, graphs, small, tasks, tensor  # noqa: F401 - a fixture

from headrace.batching import GraphBatching
from headrace.host.live.machine import process_tuning

pytestmark = pytest.mark.usefixtures("small")


def holds_awake() -> bool:
    """Tell whether this process has the file open. Only then does the system keep cores awake."""
    opened = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return any(os.path.islink(path) and os.readlink(path) == process_tuning.LATENCY_FILE for path in opened)


@pytest.fixture
def thawed(monkeypatch):
    """Unfreeze all objects for the test, and freeze them again after it."""
    monkeypatch.setattr(process_tuning, "_thaws", True)  # as in a process that has frozen none
    gc.unfreeze()
    yield
    gc.freeze()


def test_what_a_program_has_frozen_itself_stays_frozen(thawed):
    held = [[] for _ in range(1000)]
    gc.freeze()
    for _ in range(2):
        with process_tuning.without_long_collections():
            pass
        assert gc.get_freeze_count() > len(held)
    gc.unfreeze()
    with process_tuning.without_long_collections():  # the program is known to freeze objects
        pass
    assert gc.get_freeze_count() > len(held)


def test_what_lived_before_is_not_looked_through_while_a_runtime_is_open(thawed):
    before = gc.get_freeze_count()

    async def body(runtime, _):
        assert gc.get_freeze_count() > before + 10_000
        with process_tuning.without_long_collections():  # another runtime that opens and closes meanwhile
            pass
        assert gc.get_freeze_count() > before + 10_000
        await runtime.infer(NET, tensor())

    serve(GraphBatching(graphs(), 0.0, 4), tasks(), body)
    assert gc.get_freeze_count() == before


@pytest.mark.parametrize("keep_awake", (False, True))
def test_cores_are_kept_awake_while_the_runtime_is_open_if_it_was_asked_for(tmp_path, monkeypatch, keep_awake):
    latency_file = tmp_path / "cpu_dma_latency"
    latency_file.touch()
    monkeypatch.setattr(process_tuning, "LATENCY_FILE", str(latency_file))

    async def body(runtime, _):
        assert holds_awake() == keep_awake
        assert latency_file.read_bytes() == (struct.pack("i", 0) if keep_awake else b"")
        await runtime.infer(NET, tensor())

    serve(GraphBatching(graphs(), 0.0, 4), tasks(), body, keep_awake=keep_awake)
    assert not holds_awake()


def test_a_system_that_does_not_allow_it_is_told_of_and_served_all_the_same(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(process_tuning, "LATENCY_FILE", str(tmp_path / "absent" / "file"))

    async def body(runtime, _):
        await runtime.infer(NET, tensor())

    with caplog.at_level(logging.WARNING):
        serve(GraphBatching(graphs(), 0.0, 4), tasks(), body, keep_awake=True)
    assert "cores are not kept awake" in caplog.text


@pytest.mark.parametrize("keeps", [False, True])
def test_memory_that_is_kept_is_not_taken_from_the_system_anew(keeps):
    """In a process of its own: by itself it takes pages for every tensor, and none where what is freed is kept."""
    code = f"""
import resource
from headrace.host.live.machine.process_tuning import keep_freed_memory

def turn():
    held = [bytearray(600_000) for _ in range(4)]

assert not {keeps} or keep_freed_memory()
turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (int(done.stdout) < 100) == keeps
