"""A fork of `headrace` is to its test what a new process is."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import headrace, headrace_anew
from forked import Forked
from processes import handled, lives
from running import serving, until

from headrace.host.live.machine.children import children

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "--requests", "100", "--rate-rps", "50", "--seed", "1", "--json"),
        ("simulate", "--policy", "nobody"),
        ("--version",),
        ("plan", "--help"),
    ],
    ids=" ".join,
)
def test_a_command_says_the_same_and_ends_alike(words):
    forked, anew = headrace(*words), headrace_anew(*words)
    assert forked.returncode == anew.returncode
    assert without_durations(forked) == without_durations(anew)


def without_durations(done):
    if "--json" in done.args:
        result = json.loads(done.stdout)
        return {key: value for key, value in result.items() if key not in ("wall_s", "requests_per_s")}, done.stderr
    return done.stdout, done.stderr


def test_it_has_the_folder_and_the_environment_that_it_is_given(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "here.py").write_text(
        "import os, sys\nprint(os.getcwd(), dict(os.environ), file=sys.stderr)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "config"), "ONLY_HERE": "17"}
    with Forked(["simulate", "--policy", "here:Nobody"], cwd=tmp_path, env=environment, **PIPES) as process:
        out, said = process.communicate(timeout=60)
    assert process.returncode == 2 and out == ""
    assert said.startswith(str(tmp_path)) and "'ONLY_HERE': '17'" in said and "module here has no Nobody" in said


def test_a_server_has_a_fork_server_and_ends_with_its_workers():
    with serving(models=("scale",)) as server:
        (fork_server,) = children(server.process.pid)
        (worker,) = children(fork_server)
        assert os.getsid(server.process.pid) == server.process.pid
        assert server.end()[0] == 0
        until(lambda: not lives(fork_server) and not lives(worker))


def test_a_signal_ends_it_and_is_its_status():
    with serving(models=("scale",)) as server:
        (fork_server,) = children(server.process.pid)
        assert server.process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(0.01)
        server.process.kill()
        assert server.process.wait(30) == server.process.poll() == -signal.SIGKILL
        until(lambda: not lives(fork_server))


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_it_ignores_what_the_test_ignores(handler):
    with handled(signal.SIGHUP, handler), serving(models=("scale",)) as server:
        (line,) = [each for each in status(server.process.pid) if each.startswith("SigIgn:")]
        assert bool(int(line.split()[1], 16) & 1 << (signal.SIGHUP - 1)) == (handler is signal.SIG_IGN)


def status(pid):
    return Path(f"/proc/{pid}/status").read_text().splitlines()


def test_a_fork_does_not_outlive_the_process_that_asked_for_it(tmp_path):
    code = "import sys, time; from forked import Forked; "
    code += "print(Forked(['serve', *sys.argv[1:]]).pid, flush=True); time.sleep(60)"
    path = os.pathsep.join(path for path in sys.path if "tests" in path)
    (tmp_path / "small.py").write_text("import torch\nmodel = torch.nn.Identity\nmodel.input_shape = (4,)\n")
    words = ("--model", "small:model", "--policy", "serial", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, **PIPES
    ) as parent:
        pid = int(parent.stdout.readline())
        assert lives(pid)
        parent.kill()
        until(lambda: not lives(pid))
