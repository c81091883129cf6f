"""Test the supervisor of a replica without Ray.

Most tests use a stand-in for `headrace serve`: a module with the name of Headrace's own, in the folder where the server
is started. It executes its first argument as Python code, and starts in a tenth of a second."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
import tritonclient.http
from processes import lives

from headrace.host.fleet.supervisor import (
    DELAY_S,
    HEALTHY_S,
    MAX_DELAY_S,
    MAX_LAST_LINE,
    USAGE,
    Phase,
    Restarts,
    Supervisor,
)

PATIENCE_S = 120.0
STAND_IN = """
import json, os, signal, sys, time

def say(text):
    with open("said", "a") as file:
        print(text, file=file)

def ready():
    "As `headrace serve --json` does, with the ports that it was given and its own number behind them."
    given = dict(argument[2:].split("=") for argument in sys.argv if argument.startswith("--") and "=" in argument)
    ports = {name: f"{given[name]}{os.getpid()}" for name in ("http", "grpc", "metrics")}
    print(json.dumps({**ports, "more": 1}), flush=True)

def nth():
    "Return the number of this life, from 1 on."
    say("begins")
    return open("said").read().count("begins")

def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)

def main():
    say(f"starts {time.monotonic()}")
    try:
        exec(sys.argv[2])
    finally:
        say(f"ends {time.monotonic()}")
"""


@contextlib.contextmanager
def supervised(folder, *arguments, host="127.0.0.1"):
    supervisor = Supervisor(arguments, str(folder), 5.0, host)
    try:
        yield supervisor
    finally:
        supervisor.stop()


@pytest.fixture
def stand_in(tmp_path):
    """Return the folder of the stand-in."""
    module = tmp_path / "headrace" / "host" / "cli" / "main.py"
    module.parent.mkdir(parents=True)
    for package in list(module.parents)[:3]:
        (package / "__init__.py").touch()
    module.write_text(STAND_IN)
    return tmp_path


def until(supervisor, *phases, ended=0, state=None):
    """Return a state in one of the phases in which at least `ended` lives have ended early. Short states may be
    missed."""
    end = time.monotonic() + PATIENCE_S
    run, number = ("", 0) if state is None else (state.run, state.number)
    while True:
        state = supervisor.watch(run, number)
        if (state.run, state.number) != (run, number) and state.phase in phases and state.early_ends >= ended:
            return state
        run, number = state.run, state.number
        assert time.monotonic() < end, state


def gone(*pids):
    end = time.monotonic() + PATIENCE_S
    while any(lives(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.05)


def said(folder, *words):
    """Return the lines of the stand-in that begin with one of the words."""
    return [line for line in (folder / "said").read_text().splitlines() if line.startswith(words)]


# ---- when it starts a server again ----


def test_a_server_that_ends_again_and_again_is_started_ever_later():
    restarts = Restarts()
    pauses = [restarts.pause_s(7, None) for _ in range(3000)]
    assert pauses[:8] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] and set(pauses[8:]) == {30.0}
    assert restarts.early == 3000


def test_a_server_that_was_ready_for_long_is_started_again_as_if_it_were_the_first_time():
    restarts = Restarts()
    assert [restarts.pause_s(7, ready_s) for ready_s in (None, 0.0, HEALTHY_S)] == [0.5, 1.0, 2.0]
    assert restarts.pause_s(-9, HEALTHY_S + 0.001) == DELAY_S and restarts.early == 0
    assert [restarts.pause_s(-9, 1.0) for _ in range(3)] == [0.5, 1.0, 2.0] and restarts.early == 3
    assert restarts.pause_s(7, 3600.0) == DELAY_S and restarts.early == 0


def test_a_command_line_that_was_served_once_is_not_refused_later():
    assert Restarts().pause_s(USAGE, None) is None
    restarts = Restarts()
    assert restarts.pause_s(1, None) == 0.5  # that was not the command line's fault
    assert restarts.pause_s(USAGE, None) is None and restarts.early == 2
    assert [restarts.pause_s(USAGE, ready_s) for ready_s in (1.0, None, None)] == [2.0, 4.0, 8.0]
    assert MAX_DELAY_S == 30.0


# ---- how it starts a server ----


def test_each_pause_is_kept(stand_in):
    script = "print('\\n headrace: seven ' + 3000 * 'x', '\\n', file=sys.stderr); sys.exit(7)"
    with supervised(stand_in, script) as supervisor:
        state = until(supervisor, Phase.ENDED, ended=3)
        assert state.status == 7 and state.last_line == ("seven " + 3000 * "x")[:MAX_LAST_LINE]
    times = [float(line.split()[1]) for line in said(stand_in, "starts", "ends")]
    assert times[2] - times[1] >= 0.5 and times[4] - times[3] >= 1.0


def test_a_server_that_is_killed_is_started_again_and_one_that_is_stopped_is_not(stand_in):
    script = "nth() > 1 and wait_for('go'); ready(); time.sleep(600)"
    with supervised(stand_in, script, host="::1") as supervisor:
        first = until(supervisor, Phase.READY)
        assert first.ports == {name: f"[::1]:0{first.pid}" for name in ("http", "grpc", "metrics")}
        os.kill(first.pid, signal.SIGKILL)
        ended = until(supervisor, Phase.STARTING, state=first)
        assert (ended.status, ended.last_line, ended.early_ends) == (
            -9,
            "it was ended by SIGKILL",
            1,
        ) and not ended.ports
        (stand_in / "go").touch()
        second = until(supervisor, Phase.READY, state=ended)
        assert second.pid != first.pid and second.ports["http"].endswith(str(second.pid))
    gone(first.pid, second.pid)
    stopped = until(supervisor, Phase.STOPPED)
    assert stopped.status == -9 and not stopped.ports
    assert len(said(stand_in, "starts")) == 2


def test_a_server_that_is_stopped_may_end_what_it_does(stand_in):
    script = "signal.signal(signal.SIGTERM, lambda *_: (say('drains'), sys.exit(0))); ready(); time.sleep(600)"
    with supervised(stand_in, script) as supervisor:
        until(supervisor, Phase.READY)
    assert said(stand_in, "drains") and len(said(stand_in, "ends")) == 1
    assert until(supervisor, Phase.STOPPED).early_ends == 0


def test_a_command_line_that_is_refused_is_not_tried_again(stand_in, tmp_path):
    with supervised(stand_in, "sys.exit(1 if nth() == 1 else 2)") as supervisor:
        refused = until(supervisor, Phase.REFUSED)
        assert (refused.status, refused.last_line, refused.early_ends) == (2, "it wrote no message", 2)
    assert until(supervisor, Phase.REFUSED) == refused and len(said(stand_in, "starts")) == 2
    with supervised(tmp_path / "missing") as supervisor:
        assert "start the fleet in a folder that every node has" in until(supervisor, Phase.REFUSED).last_line


def test_a_server_that_was_ready_once_is_started_again_whatever_its_status(stand_in):
    with supervised(stand_in, "nth() == 1 and ready(); sys.exit(2)") as supervisor:
        assert until(supervisor, Phase.ENDED, ended=2).status == 2


ALONE = """
import sys, time
from headrace.host.fleet.supervisor import Phase, Supervisor
supervisor = Supervisor(sys.argv[2:], sys.argv[1], 5.0, "127.0.0.1")
while (state := supervisor.watch("", -1)).phase is not Phase.READY:
    time.sleep(0.1)
print(state.pid, flush=True)
time.sleep(600)
"""


def test_a_server_is_gone_when_its_supervisor_is_killed(stand_in):
    process = subprocess.Popen(
        [sys.executable, "-c", ALONE, str(stand_in), "ready(); time.sleep(600)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    server = int(process.stdout.readline())
    assert lives(server)
    process.kill()
    process.communicate()
    gone(server)


# ---- with Headrace's own server ----


@pytest.mark.slow
def test_a_real_server_is_ready_and_ends(tmp_path):
    with supervised(tmp_path, "--workers=npu:1", "--model=resnet50", "--policy=serial") as supervisor:
        state = until(supervisor, Phase.READY)
        assert tritonclient.http.InferenceServerClient(state.ports["http"]).is_server_ready()
        assert lives(state.pid)
    gone(state.pid)
    assert until(supervisor, Phase.STOPPED).early_ends == 0


def test_a_real_command_line_that_is_refused_tells_why(tmp_path):
    with supervised(tmp_path, "--workers=npu:x", "--model=resnet50") as supervisor:
        state = until(supervisor, Phase.REFUSED)
    assert state.status == 2 and state.last_line.startswith("--workers 'npu:x': give")
