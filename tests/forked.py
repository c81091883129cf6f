"""`headrace` as a fork of a process that has imported what it needs.

A server starts in a fraction of the time of a new process, because torch and gRPC take long to import. The product's
fork server gives the processes. Each of them forks a fork server of its own before it begins, as a server has one for
its workers. Tests of signals and of imports start new processes, as do the whole pages in `make test-all`.
"""

import array
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.host.workers.fork_server import client, server
from headrace.host.workers.fork_server.protocol import FIRST_FD, PID, STATUS

COMMANDS = ("bench", "build", "plan", "preprocess", "profile", "reproduce", "serve", "simulate", "smdp")
PRELOAD = (
    *(f"headrace.host.cli.{name}" for name in COMMANDS),
    "headrace.host.cli.serve.command",
    "headrace.host.cli.simulate.command",
    "headrace.host.cli.simulate.grid",
    "headrace.host.server.serve",
    "headrace.host.workers.networks.models",
    "headrace.sim.decoding.run",
    "headrace.sim.run",
    "headrace.sim.simulation",
    "headrace.sim.trace",
    # What commands import when they need it.
    "pyarrow.dataset",
    "pyarrow.parquet",
    "rich.status",
    "scipy.interpolate",
    "typer._adapters",
)
STARTED_S = 100.0  # the first process waits for the imports
HERE = str(Path(__file__).parent)


class Forked(subprocess.Popen):  # type: ignore[type-arg]
    """A process that runs `headrace` with the arguments, in place of a program. It takes the streams, `cwd`, `env` and
    `start_new_session` of Popen. `MODULE` is the module whose `main` it calls, from one of `FOLDERS`."""

    MODULE, FOLDERS = "forked", (HERE,)

    def _execute_child(self, args: Sequence[str], *given: Any) -> None:
        names = subprocess.Popen._execute_child.__code__.co_varnames[2:]
        options = dict(zip(names, given, strict=False))
        theirs = [options["p2cread"], options["c2pwrite"], options["errwrite"]]
        ours = [options["p2cwrite"], options["c2pread"], options["errread"]]
        devnull = getattr(self, "_devnull", None)
        env = dict(os.environ if options["env"] is None else options["env"])
        named = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
        request = {
            "main": self.MODULE,
            "arguments": [str(options["start_new_session"]), ",".join(_ignored()), *map(str, args)],
            "env": env,
            "directory": os.path.abspath(options["cwd"] or os.getcwd()),
            "path": [*self.FOLDERS, *named, *(path for path in sys.path if path and not path.startswith(HERE))],
            "cores": sorted(os.sched_getaffinity(0)),
            "preload": list(PRELOAD),
        }
        self._life, life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._life.settimeout(STARTED_S)
        nothing = os.open(os.devnull, os.O_RDWR)
        body = os.memfd_create("request", os.MFD_CLOEXEC)
        try:
            os.write(body, json.dumps(request).encode())
            streams = [stream if stream >= 0 else nothing for stream in theirs]
            fds = array.array("i", [life.fileno(), nothing, body, *streams])
            _control().sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        finally:
            pipes = [stream for stream, end in zip(theirs, ours, strict=True) if end >= 0]
            for fd in (nothing, body, *pipes, *([] if devnull is None else [devnull])):
                os.close(fd)
            life.close()
        message, (pidfd,), _, _ = socket.recv_fds(self._life, PID.size, 1)
        os.close(pidfd)
        (self.pid,) = PID.unpack(message)
        self._child_created = True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._life], [], [], 0)[0]:
            return 0, 0
        self._life.settimeout(None)
        status = self._life.recv(STATUS.size)
        self._life.close()
        return self.pid, STATUS.unpack(status)[0] if status else -signal.SIGKILL

    def _handle_exitstatus(self, status: int) -> None:  # type: ignore[override]
        self.returncode = status

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self.returncode is None and self._child_created:
            with self._waitpid_lock:
                pid, status = self._try_wait(os.WNOHANG) if self.returncode is None else (0, 0)
                if pid:
                    self._handle_exitstatus(status)
        return self.returncode


SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def _ignored() -> list[str]:
    """Return the signals that a new process would ignore, because this one does, as under nohup."""
    return [str(int(number)) for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN]


_CONTROL: list[socket.socket] = []


def _control() -> socket.socket:
    """Return the control socket of this process's fork server."""
    if not _CONTROL:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            subprocess.Popen(
                [sys.executable, "-m", server.__name__, str(theirs.fileno())],
                env={**os.environ, **client.ENVIRONMENT, **client.ONE_THREAD, "GRPC_VERBOSITY": "NONE"},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        atexit.register(ours.close)  # it ends then, with all that it forked
        _CONTROL.append(ours)
    return _CONTROL[0]


def _own_fork_server() -> None:
    """Fork the process from which the workers of this one will be forked."""
    pid, control, errors = fork_server()
    control.setblocking(False)
    client.SHARED._process, client.SHARED._control, client.SHARED._errors = _Child(pid), control, errors


def fork_server() -> tuple[int, socket.socket, int]:
    """Fork a fork server that has all modules of this process. It is a child of this one, and ends when the control
    socket is closed. Return its process id, the socket, and a descriptor of what it writes to stderr."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    errors = os.memfd_create("headrace-fork-server", os.MFD_CLOEXEC)
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours, errors
    ours.close()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for place, fd in enumerate((nothing, nothing, errors)):
        os.dup2(fd, place)
    os.environ.update(client.ENVIRONMENT | client.ONE_THREAD)
    os.chdir("/")
    server._run(server._Server(theirs).serve() or (lambda: None))
    raise AssertionError("a fork does not return")


class _Child(subprocess.Popen):  # type: ignore[type-arg]
    """A child that was forked already."""

    def __init__(self, pid: int) -> None:
        super().__init__([], executable=str(pid))

    def _execute_child(self, _: Any, executable: str, *given: Any) -> None:
        self.pid, self._child_created = int(executable), True


def main(arguments: Sequence[str]) -> None:
    """Run `headrace` in a process that was forked."""
    words = begin(arguments)
    _own_fork_server()
    sys.argv, sys.path[0] = ["headrace", *words], ""  # the folder in which it runs, as for python -c
    from headrace.host.cli.main import main as command

    try:
        command()
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()


def begin(arguments: Sequence[str]) -> list[str]:
    """Let a process that was forked be as a new one, and return its own arguments. The first two of `arguments` tell
    whether it begins a session, and the signals that it ignores."""
    session, ignored, *words = arguments
    for place in range(3):
        os.dup2(FIRST_FD + place, place)
    os.closerange(FIRST_FD, FIRST_FD + 3)
    if session == "True":
        os.setsid()
    for number in SIGNALS:
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if str(int(number)) in ignored.split(",") else usual)
    # Without `closefd`, the streams of a fork of this process would close its descriptors as they replace these.
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    return words
