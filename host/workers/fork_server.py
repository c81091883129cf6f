"""The fork server starts worker processes as forks, so that a worker starts in milliseconds and imports nothing anew.

The server imports torch and the executors once, then waits. It has one thread and never touches CUDA, so that a fork is
safe and each worker chooses its device itself. Linux only.

    parent                           server                         worker
      | -- request (file descriptors) -> |                              |
      |                                  | -- fork -------------------> |
      | <- number and pidfd (`life`) --- |                              |
      | <------------ messages (the channel of the worker) -----------> |
      | <- exit status (`life`) -------- | <- end --------------------- |

The server ends when its parent's end of the control socket closes, and kills its workers then. The kernel kills them if
the server itself is killed, so that nothing is left of either. The next request starts another server.
"""

import array
import asyncio
import atexit
import contextlib
import ctypes
import errno
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

ENVIRONMENT = {
    # glibc gives blocks above 128 KiB back to the kernel when they are freed and faults them in again, page by page, at
    # the next request. Kept, activations of a few MiB cost nothing: batches ran up to 1.6 times as fast.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
    # Threads of an operator that spin while they wait for each other take the core from the one that they wait for:
    # two of them beside a busy process were 70 times slower than passive ones.
    "OMP_WAIT_POLICY": "PASSIVE",
}
# A thread does not survive a fork, and what it held stays locked. Executors set their own number of threads.
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
PRELOADED = tuple(f"headrace.host.workers.executors.{name}" for name in ("whole", "nodes", "cells"))

FIRST_FD = 3  # of the file descriptors that a request hands to its worker
END_TIMEOUT_S = 3.0
ANSWER_S = 100.0  # for a fork; before the first one, the server imports torch, which takes long on a busy machine
FULL_PAUSE_S = 0.01  # between attempts while requests fill the socket of a server that still imports
_PID = struct.Struct("<i")
_STATUS = struct.Struct("<i")
_MAX_FDS = 16
_OWN_FDS = 3  # of a request: its life, its stderr, and what it says
PR_SET_PDEATHSIG = 1  # prctl(2)
_LAST_WORDS = 1 << 14
_CHUNK = 1 << 16


class _Pipe:
    """The reading end of a pipe, whose descriptor this owns. `stream` ends with the pipe, or when it is closed.

    uvloop's own transport closes such a descriptor twice. In between, another thread may have got its number, and loses
    what it opened."""

    def __init__(self, descriptor: int) -> None:
        self.stream = asyncio.StreamReader()
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._readable)

    def _readable(self) -> None:
        try:
            chunk = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return
        if chunk:
            self.stream.feed_data(chunk)
        else:
            self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            self.stream.feed_eof()


class ForkedProcess:
    """The parent's handle of a worker. `stderr` ends when the worker and all processes that it started have ended."""

    def __init__(self, pid: int, pidfd: int, life: socket.socket, pipe: _Pipe) -> None:
        self.pid = pid
        self.returncode: int | None = None  # negative: the number of the signal; None too if the server died first
        self.stderr = pipe.stream
        self._pidfd = pidfd
        self._life = life
        self._pipe = pipe

    def kill(self) -> None:
        """Kill the worker. Does nothing if it has ended."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def wait(self) -> None:
        """Wait until the worker has ended and nothing of it is left."""
        if self._pidfd < 0:
            return
        status = b""
        with contextlib.suppress(ConnectionError):
            status = await asyncio.get_running_loop().sock_recv(self._life, _STATUS.size)
        if status:
            (self.returncode,) = _STATUS.unpack(status)
        else:
            await _readable(self._pidfd)  # the server was killed, and the worker with it
        self.close()

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        self._life.close()

    def close_stderr(self) -> None:
        """Close our end of `stderr`, even if a process that the worker started keeps the other end open."""
        self._pipe.close()


class ForkServer:
    """The owner of one server process, which it starts at the first request and again after the server has died.

    A server that does not answer is set aside: its workers go on, and another server does what comes next. At most one
    is set aside at a time; the one before it is ended with its workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # event loops of several threads may share a server
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._aside: tuple[subprocess.Popen[bytes] | None, socket.socket | None] = (None, None)
        self._errors = -1  # a file in memory that holds the server's stderr

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def fork(
        self,
        main: str,
        arguments: Sequence[str],
        fds: Sequence[int],
        env: dict[str, str],
        preload: Sequence[str] = (),
    ) -> ForkedProcess:
        """Start a worker that calls `main(arguments)` of the module `main`.

        Args:
            fds: the worker has these from FIRST_FD on, and no others beside its standard streams.
            preload: the server imports these modules of Headrace's own first, so that no later worker has to.
            env: the environment of the worker. Variables that libraries read at the start of a process or at their
                import keep the values that they had when the server started.

        The worker has the working directory, the cores and the module search path that the caller has now.
        Raises ConnectionError, with the last lines of the server's stderr, if the server cannot be started."""
        directory = os.getcwd()
        search = [directory, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep)), *filter(None, sys.path)]
        request = {
            "main": main,
            "arguments": list(arguments),
            "env": env,
            "directory": directory,
            "path": list(dict.fromkeys(search)),
            "cores": sorted(os.sched_getaffinity(0)),
            "preload": list(preload),
        }
        body = os.memfd_create("headrace-request", os.MFD_CLOEXEC)
        try:
            with open(body, "wb", closefd=False) as file:
                file.write(json.dumps(request).encode())
            for _ in range(2):  # the second time for a server that has died since
                made = await self._fork([body, *fds])
                if made is not None:
                    return made
        finally:
            os.close(body)
        raise ConnectionError(f"the fork server does not start: {self._last_words()}")

    async def _fork(self, fds: list[int]) -> ForkedProcess | None:
        """Return None if the server dies before it has forked."""
        with contextlib.ExitStack() as ours:  # a worker that is forked when this fails finds its channel closed
            life, its_life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.enter_context(life)
            with contextlib.ExitStack() as theirs:
                theirs.enter_context(its_life)
                life.setblocking(False)
                read, write = os.pipe2(os.O_CLOEXEC)
                theirs.callback(os.close, write)
                closing = ours.enter_context(contextlib.ExitStack())
                closing.callback(os.close, read)
                pipe = _Pipe(read)
                closing.pop_all()  # the pipe has it now
                ours.callback(pipe.close)
                server = self._process
                try:
                    async with asyncio.timeout(ANSWER_S):
                        while not self._send([its_life.fileno(), write, *fds]):
                            await asyncio.sleep(FULL_PAUSE_S)
                        server = self._process
                        theirs.close()
                        await _readable(life.fileno())
                except TimeoutError:
                    await asyncio.to_thread(self._set_aside, server)
                    raise ConnectionError(
                        f"the fork server has not answered for {ANSWER_S:g} s; another one takes its place"
                    ) from None
            message, received = b"", []
            with contextlib.suppress(ConnectionError):
                message, received, _, _ = socket.recv_fds(life, _PID.size, 1)
            if not message:
                return None
            if not received:  # the system had no descriptor left for it
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            ours.pop_all()
            return ForkedProcess(*_PID.unpack(message), received[0], life, pipe)

    def _send(self, fds: list[int]) -> bool:
        """Send a request, to a new server if there is none. Return False while the socket is full."""
        with self._lock:
            for _ in range(2):
                if self._control is None:
                    self._start()
                assert self._control is not None
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                try:
                    self._control.sendmsg([b"f"], rights, socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    return False
                except ConnectionError:
                    _ended(self._process, self._control)
                    self._process = self._control = None
                else:
                    return True
        raise ConnectionError(f"the fork server does not start: {self._last_words()}")

    def _start(self) -> None:
        if self._errors >= 0:
            os.close(self._errors)
        self._errors = os.memfd_create("headrace-fork-server", os.MFD_CLOEXEC)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace.host.workers.fork_server", str(theirs.fileno())],
                env={**os.environ, **ENVIRONMENT, **ONE_THREAD},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
            )
        self._control = ours

    def _last_words(self) -> str:
        said = os.pread(self._errors, _LAST_WORDS, max(0, os.fstat(self._errors).st_size - _LAST_WORDS))
        return last_lines(said.decode(errors="replace")) or "it said nothing"

    def _set_aside(self, server: "subprocess.Popen[bytes] | None") -> None:
        with self._lock:
            if server is None or self._process is not server:
                return  # another caller has done it
            before, self._aside = self._aside, (self._process, self._control)
            self._process = self._control = None
        _ended(*before)

    def close(self) -> int | None:
        """End the server and its workers, in bounded time. Returns the server's exit status, None if none ran."""
        with self._lock:
            ours, aside = (self._process, self._control), self._aside
            self._process = self._control = None
            self._aside = (None, None)
        _ended(*aside)
        return _ended(*ours)

    def forget(self) -> None:
        """Let go of the server in a fork of its owner, which has not started it."""
        self._lock = threading.Lock()
        for control in (self._control, self._aside[1]):
            if control is not None:
                control.close()
        self._process = self._control = None
        self._aside = (None, None)


def last_lines(text: str, keep: int = 5) -> str:
    """Return the last lines in one, without those that only mark a place in the line above, as tracebacks do."""
    return " | ".join([line for line in text.splitlines() if line.strip(" ^~")][-keep:])


def _ended(process: "subprocess.Popen[bytes] | None", control: socket.socket | None) -> int | None:
    """Close a server's socket and wait for its end. Returns its exit status, None if there was none."""
    if control is not None:
        control.close()
    if process is None:
        return None
    try:
        return process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        if not child_signals_caught():
            process.kill()
            return process.wait(END_TIMEOUT_S)
        return None


def child_signals_caught() -> bool:
    """Return whether code beside Python's handles SIGCHLD. XRT's emulation does: it takes any child that a signal ends
    for its device, and ends this whole process group with it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGCHLD - 1) & 1)
    return False


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


SHARED = ForkServer()
atexit.register(SHARED.close)
os.register_at_fork(after_in_child=SHARED.forget)


class _Server:
    """The server's end."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._workers: dict[int, tuple[int, socket.socket]] = {}  # process id and life, by pidfd

    def serve(self) -> Callable[[], object] | None:
        """Fork on request until the parent is gone, and return None. In a worker, return what it is to run."""
        while True:
            for fd, _ in self._poll.poll():
                if fd != self._control.fileno():
                    self._reap(fd)
                    continue
                message, fds, _, _ = socket.recv_fds(self._control, 1, _MAX_FDS)
                if not message:
                    self._end()
                    return None
                run = self._fork(fds)
                if run is not None:
                    return run

    def _fork(self, fds: list[int]) -> Callable[[], object] | None:
        """Fork, and return in the worker what it is to run; None in the server."""
        server = os.getpid()
        try:
            pid, pidfd = self._forked(fds)
        except OSError as error:  # out of processes, memory or descriptors: the parent sees its end of `life` closed
            print(f"no worker can be forked: {error}", file=sys.stderr, flush=True)
            for fd in fds:
                os.close(fd)
            return None
        if pid == 0:
            return lambda: _work(server, fds)
        life = socket.socket(fileno=fds[0])
        for fd in fds[1:]:
            os.close(fd)
        with contextlib.suppress(OSError):  # the parent wants it no more: the worker finds its channel closed
            socket.send_fds(life, [_PID.pack(pid)], [pidfd], socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        self._workers[pidfd] = (pid, life)
        self._poll.register(pidfd, select.POLLIN)
        return None

    def _forked(self, fds: list[int]) -> tuple[int, int]:
        """The process id of a new worker and its pidfd, as `os.fork`: (0, -1) in the worker. Raises OSError."""
        if len(fds) < _OWN_FDS:  # others were lost on their way
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
        """Import what the request asks for. What fails here fails again in the worker, which tells of it."""
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
            life.send(_STATUS.pack(status), socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)

    def _end(self) -> None:
        for pidfd in self._workers:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        for pidfd in list(self._workers):
            self._reap(pidfd)


def _work(server: int, fds: list[int]) -> None:
    """Become the worker that the request asks for. `fds` are its life, its stderr, the request, and its own."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        return  # the server died before
    Path("/proc/self/comm").write_text("headrace-worker")  # its command line is still the server's
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

    np.random.seed()  # workers that draw numbers draw different ones, as processes of their own would
    importlib.import_module(request["main"]).main(request["arguments"])


def _request(body: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.pread(body, os.fstat(body).st_size, 0))
    return found


def _freeze() -> None:
    """Keep the garbage collector away from what all workers share: it would write to each page, and so copy it."""
    import gc

    gc.collect()
    gc.freeze()


def _above(fds: list[int]) -> list[int]:
    """Move the file descriptors out of the way of the numbers that the worker's will have."""
    import fcntl

    return [fcntl.fcntl(fd, fcntl.F_DUPFD, FIRST_FD + _MAX_FDS) for fd in fds]


def _run(work: Callable[[], object]) -> NoReturn:
    """Run a worker and end its process, without what the server would do at its end."""
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
    for number in (signal.SIGINT, signal.SIGTERM):  # while it imports, it ends without a signal: see XRT's emulation
        signal.signal(number, lambda *_: os._exit(0))
    for name in PRELOADED:
        importlib.import_module(name)
    _freeze()
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent's business; its end is the server's
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    work = _Server(socket.socket(fileno=int(arguments[0]))).serve()
    if work is not None:
        _run(work)


if __name__ == "__main__":
    main(sys.argv[1:])
