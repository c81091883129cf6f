"""Test the workers of a sweep: their results, and that they never outlive it."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Pipe
from pathlib import Path

import pytest

from headrace.batching import HeadraceError
from headrace.sim.sweeps.sweep import sweep

SLEEPER = """
import time
from headrace.sim.sweeps.sweep import sweep
print("begins", flush=True)
sweep(time.sleep, [600] * 4, lambda: None)
"""
PATIENCE_S = 20.0  # a loaded machine; the jobs take half an hour


def nothing():
    pass


def workers_of(parent):
    """Return the process ids of the sweep's workers, by the command that started them."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"headrace.sim.sweeps.processes" in command and command[-2] == b"%d" % parent:
            found.append(folder.name)
    return found


def until(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def sleeper():
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell's background job ignores interrupts, and what it starts inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout.readline() == "begins\n"
    return process


def test_a_sweep_keeps_the_order_of_its_jobs_and_leaves_no_worker():
    done = []
    assert sweep(abs, [-3, 1, -2, 0, -7], lambda: done.append(len(workers_of(os.getpid())))) == [3, 1, 2, 0, 7]
    assert done == [len(os.sched_getaffinity(0))] * 5
    assert workers_of(os.getpid()) == []
    assert sweep(abs, [], nothing) == []


@pytest.mark.parametrize(
    ("work", "job", "error"),
    [(abs, "x", TypeError), (open, "/dev/null", TypeError), (int, "many", ValueError)],  # a file cannot be sent back
)
def test_what_a_job_raises_is_raised_with_where(work, job, error):
    with pytest.raises(error) as raised:
        sweep(work, [job], nothing)
    assert "Traceback" in raised.value.__notes__[0]
    assert workers_of(os.getpid()) == []


def test_a_job_that_always_takes_its_process_along_ends_the_sweep():
    with pytest.raises(HeadraceError, match="the process at job 0 died 3 times"):
        sweep(os._exit, [1], nothing)
    assert workers_of(os.getpid()) == []


# The first time it ends its process.
ONCE = """
import os, signal
with open({mark!r}, "a") as file:
    file.write("x")
if os.path.getsize({mark!r}) == 1:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_job_whose_process_is_killed_is_done_again(tmp_path):
    marks = [tmp_path / str(number) for number in range(7)]
    done = []
    sweep(exec, [ONCE.format(mark=str(mark)) for mark in marks], lambda: done.append(1))
    assert [mark.read_text() for mark in marks] == ["xx"] * 7 and len(done) == 7
    assert workers_of(os.getpid()) == []


@pytest.mark.quick(4)
@pytest.mark.parametrize("to_all", [True, False])
@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0])
def test_an_interrupt_ends_the_sweep_and_its_workers_at_any_moment(after_s, to_all):
    """The signal goes to all of its process group, as a terminal sends it, or to the process alone."""
    process = sleeper()
    time.sleep(after_s)
    if to_all:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1, "the workers say nothing"
    until(lambda: workers_of(process.pid) == [])


@pytest.mark.parametrize("begun", [False, True])
def test_workers_die_with_the_sweep(begun):
    process = sleeper()
    if begun:
        until(lambda: len(workers_of(process.pid)) > 0)
        time.sleep(0.5)  # they are at work
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    until(lambda: workers_of(process.pid) == [])


def test_a_worker_whose_sweep_is_gone_takes_no_job():
    ours, theirs = Pipe()
    ours.send((abs, -1))
    process = subprocess.run(
        [sys.executable, "-m", "headrace.sim.sweeps.processes", str(theirs.fileno()), "0"],  # nobody's child is of 0
        pass_fds=[theirs.fileno()],
        timeout=PATIENCE_S,
        check=True,
        capture_output=True,
    )
    theirs.close()
    assert process.stderr == b""
    with pytest.raises((EOFError, ConnectionError)):
        ours.recv()
