"""What keeps a replica running on its node, without Ray."""

import os
import signal
import subprocess
import sys
import time

import pytest
import tritonclient.http
from running_fleet import lives

from headrace.host.fleet.supervisor import Phase, Supervisor

pytestmark = pytest.mark.timed  # waits for servers to start

PATIENCE_S = 120.0
LIGHT = ("--workers=npu:1", "--model=resnet50", "--policy=serial")


def until(supervisor, *phases, state=None):
    end = time.monotonic() + PATIENCE_S
    run, number = ("", 0) if state is None else (state.run, state.number)
    while True:
        state = supervisor.watch(run, number)
        if (state.run, state.number) != (run, number) and state.phase in phases:
            return state
        run, number = state.run, state.number
        assert time.monotonic() < end, state


def gone(*pids):
    end = time.monotonic() + PATIENCE_S
    while any(lives(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_server_that_is_killed_is_started_again_and_one_that_is_stopped_is_not(tmp_path):
    supervisor = Supervisor(LIGHT, str(tmp_path), 5.0, "127.0.0.1")
    try:
        first = until(supervisor, Phase.READY)
        assert tritonclient.http.InferenceServerClient(first.ports["http"]).is_server_ready()
        os.kill(first.pid, signal.SIGKILL)
        ended = until(supervisor, Phase.ENDED, state=first)
        assert (ended.status, ended.said, ended.ended) == (-9, "it was ended by SIGKILL", 1) and not ended.ports
        second = until(supervisor, Phase.READY, state=ended)
        assert second.pid != first.pid
        assert tritonclient.http.InferenceServerClient(second.ports["http"]).is_server_ready()
    finally:
        supervisor.stop()
    gone(first.pid, second.pid)
    assert until(supervisor, Phase.STOPPED).status == -9


def test_a_command_line_that_is_refused_is_not_tried_again(tmp_path):
    supervisor = Supervisor(("--model=no_such_network",), str(tmp_path), 5.0, "127.0.0.1")
    state = until(supervisor, Phase.REFUSED)
    assert state.status == 2 and "no_such_network" in state.said and not state.said.startswith("headrace:")
    missing = Supervisor(LIGHT, str(tmp_path / "missing"), 5.0, "127.0.0.1")
    assert "start the fleet in a folder that every node has" in until(missing, Phase.REFUSED).said


def test_a_server_that_ends_again_and_again_is_started_ever_later(tmp_path):
    (tmp_path / "ends.py").write_text("import os\nos._exit(7)\n")
    supervisor = Supervisor(("--model=ends:network", "--workers=1"), str(tmp_path), 5.0, "127.0.0.1")
    state = until(supervisor, Phase.ENDED)
    times = [time.monotonic()]
    for _ in range(2):
        state = until(supervisor, Phase.STARTING, state=state)
        times.append(time.monotonic())
        state = until(supervisor, Phase.ENDED, state=state)
        assert state.status == 7
        times.append(time.monotonic())
    assert state.ended == 3 and times[1] - times[0] > 0.4 and times[3] - times[2] > 0.9
    supervisor.stop()


ALONE = """
import sys, time
from headrace.host.fleet.supervisor import Phase, Supervisor
supervisor = Supervisor(sys.argv[2:], sys.argv[1], 5.0, "127.0.0.1")
while (state := supervisor.watch("", -1)).phase is not Phase.READY:
    time.sleep(0.1)
print(state.pid, flush=True)
time.sleep(600)
"""


def test_a_server_is_gone_when_its_supervisor_is_killed(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", ALONE, str(tmp_path), *LIGHT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    server = int(process.stdout.readline())
    assert lives(server)
    process.kill()
    process.communicate()
    gone(server)
