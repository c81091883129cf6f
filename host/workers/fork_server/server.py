"""The process of the fork server. It imports torch and the executors once, and forks workers on request."""

import contextlib
import ctypes
import errno
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from headrace.host.workers.fork_server.protocol import FIRST_FD, MAX_FDS, OWN_FDS, PID, STATUS

PR_SET_PDEATHSIG = 1  # prctl(2)


class _Server:
    """The server's end of the control socket, and the workers that it has forked."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._workers: dict[int, tuple[int, socket.socket]] = {}  # process id and life socket, by pidfd

    def serve(self) -> Callable[[], object] | None:
        """Fork on request until the parent is gone, and return None. In a worker, return the function that it has to
        run."""
        while True:
            for fd, _ in self._poll.poll():
                if fd != self._control.fileno():
                    self._reap(fd)
                    continue
                message, fds, _, _ = socket.recv_fds(self._control, 1, MAX_FDS)
                if not message:
                    self._end()
                    return None
                run = self._fork(fds)
                if run is not None:
                    return run

    def _fork(self, fds: list[int]) -> Callable[[], object] | None:
        """Fork. Returns None in the server, and in the worker the function that it has to run."""
        server = os.getpid()
        try:
            pid, pidfd = self._forked(fds)
        except OSError as error:  # no process, memory or descriptor left; the parent sees its end of `life` closed
            print(f"no worker can be forked: {error}", file=sys.stderr, flush=True)
            for fd in fds:
                os.close(fd)
            return None
        if pid == 0:
            return lambda: _work(server, fds)
        life = socket.socket(fileno=fds[0])
        for fd in fds[1:]:
            os.close(fd)
        with contextlib.suppress(OSError):  # the parent has given up, and the worker finds its channel closed
            socket.send_fds(life, [PID.pack(pid)], [pidfd], socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        self._workers[pidfd] = (pid, life)
        self._poll.register(pidfd, select.POLLIN)
        return None

    def _forked(self, fds: list[int]) -> tuple[int, int]:
        """Return the process id of a new worker and its pidfd, or (0, -1) in the worker. Raises OSError."""
        if len(fds) < OWN_FDS:  # the kernel drops descriptors that the server has no room for
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._preload(fds[2])
        pid = os.fork()
        if pid == 0:
            return 0, -1
        try:
            return pid, os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

    @staticmethod
    def _preload(body: int) -> None:
        """Import the modules that the request names. An import that fails here fails again in the worker, which reports
        it."""
        for name in _request(body)["preload"]:
            if name not in sys.modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
                _freeze()

    def _reap(self, pidfd: int) -> None:
        pid, life = self._workers.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with life, contextlib.suppress(OSError):
            life.send(STATUS.pack(status), socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)

    def _end(self) -> None:
        for pidfd in self._workers:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        for pidfd in list(self._workers):
            self._reap(pidfd)


def _work(server: int, fds: list[int]) -> None:
    """Become the worker that the request describes. `fds` are its life, its stderr, the request, and its own
    descriptors."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        return  # the server has died meanwhile
    Path("/proc/self/comm").write_text("headrace-worker")  # the command line stays that of the server
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    _, errors, body, *own = _above(fds)
    request = _request(body)
    nothing = os.open(os.devnull, os.O_RDWR)
    for place, fd in enumerate([nothing, nothing, errors, *own]):
        os.dup2(fd, place, inheritable=place < FIRST_FD)
    os.closerange(FIRST_FD + len(own), os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["directory"])
    os.sched_setaffinity(0, request["cores"])
    sys.path[:] = request["path"]
    sys.argv = [request["main"], *request["arguments"]]
    importlib.invalidate_caches()
    import numpy as np

    np.random.seed()  # so that workers draw different random numbers
    importlib.import_module(request["main"]).main(request["arguments"])


def _request(body: int) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(os.pread(body, os.fstat(body).st_size, 0))
    return request


def _freeze() -> None:
    """Keep the garbage collector away from objects that all workers share. It would write to each page and so copy
    it."""
    import gc

    gc.collect()
    gc.freeze()


def _above(fds: list[int]) -> list[int]:
    """Move the file descriptors to numbers above those that the worker's descriptors will have."""
    import fcntl

    return [fcntl.fcntl(fd, fcntl.F_DUPFD, FIRST_FD + MAX_FDS) for fd in fds]


def _run(work: Callable[[], object]) -> NoReturn:
    """Run a worker and end its process, without the clean-up that the server does at its end."""
    status = 1
    try:
        work()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def main(arguments: Sequence[str]) -> None:
    """Serve on the control socket whose file descriptor is the argument."""
    for number in (signal.SIGINT, signal.SIGTERM):  # no child may end by a signal, see `child_signals_caught`
        signal.signal(number, lambda *_: os._exit(0))
    from headrace.host.workers.networks.program import EXECUTORS  # imports numpy, so after the handlers

    for name in EXECUTORS:
        importlib.import_module(name)
    _freeze()
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent handles them, and the server ends with the parent
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    work = _Server(socket.socket(fileno=int(arguments[0]))).serve()
    if work is not None:
        _run(work)


if __name__ == "__main__":
    main(sys.argv[1:])
