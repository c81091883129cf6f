"""The client of the fork server, in the parent: it starts the server and asks it for workers."""

import array
import asyncio
import atexit
import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from headrace.host.workers.fork_server.protocol import PID, STATUS

ENVIRONMENT = {
    # glibc returns freed blocks above 128 KiB to the kernel, and the next request faults them in again page by page.
    # With these settings it keeps activations of a few MiB: batches ran up to 1.6 times as fast.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
    # Threads of an operator that spin while they wait for each other take the core from the thread that they wait for.
    # Two of them with a busy process were 70 times slower than passive ones.
    "OMP_WAIT_POLICY": "PASSIVE",
}
# A thread does not survive a fork, and its locks stay locked. Executors set their own number of threads.
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}

END_TIMEOUT_S = 3.0
ANSWER_S = 100.0  # longest wait for a fork; before the first one the server imports torch, which takes long
FULL_PAUSE_S = 0.01  # pause between attempts while requests fill the socket of a server that still imports
_LAST_WORDS = 1 << 14
_CHUNK = 1 << 16


class _Pipe:
    """The reading end of a pipe. It owns the descriptor. `stream` ends with the pipe, or when this object is closed.

    uvloop's own transport closes such a descriptor twice. In between, another thread may open a file under that number,
    and the second close would close that file."""

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
        self.returncode: int | None = None  # negative: number of the signal; stays None if the server died first
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
            status = await asyncio.get_running_loop().sock_recv(self._life, STATUS.size)
        if status:
            (self.returncode,) = STATUS.unpack(status)
        else:
            await _readable(self._pidfd)  # the server was killed, and the kernel kills the worker with it
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
    """The owner of one server process. It starts the server at the first request, and again after the server has died.

    A server that does not answer is set aside: its workers go on, and another server takes the next requests. At most
    one server is set aside at a time. The one set aside before it is ended with its workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # event loops of several threads may share a server
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._aside: tuple[subprocess.Popen[bytes] | None, socket.socket | None] = (None, None)
        self._errors = -1  # descriptor of a file in memory that holds the server's stderr

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

        The worker has the working directory, the cores and the module search path that the caller has now.

        Args:
            fds: File descriptors of the worker, from FIRST_FD on. It has no others except its standard streams.
            env: The environment of the worker. Variables that libraries read at the start of a process or at their
                import keep the values that they had when the server started.
            preload: Modules that the server imports first, so that no later worker has to.

        Raises:
            ConnectionError: The server cannot be started. The text holds the last lines of its stderr.
        """
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
            for _ in range(2):  # a second time if the server has died meanwhile
                process = await self._fork([body, *fds])
                if process is not None:
                    return process
        finally:
            os.close(body)
        raise ConnectionError(f"the fork server does not start: {self._last_words()}")

    async def _fork(self, fds: list[int]) -> ForkedProcess | None:
        """Ask the server for a worker. Returns None if the server dies before it has forked."""
        with contextlib.ExitStack() as ours:  # if this fails, a worker that was forked finds its channel closed
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
                closing.pop_all()  # the pipe owns the descriptor now
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
                message, received, _, _ = socket.recv_fds(life, PID.size, 1)
            if not message:
                return None
            if not received:  # the system had no descriptor left for the pidfd
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            ours.pop_all()
            return ForkedProcess(*PID.unpack(message), received[0], life, pipe)

    def _send(self, fds: list[int]) -> bool:
        """Send a request, to a new server if there is none. Returns False while the socket is full."""
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
                [sys.executable, "-m", "headrace.host.workers.fork_server.server", str(theirs.fileno())],
                env={**os.environ, **ENVIRONMENT, **ONE_THREAD},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
            )
        self._control = ours

    def _last_words(self) -> str:
        stderr = os.pread(self._errors, _LAST_WORDS, max(0, os.fstat(self._errors).st_size - _LAST_WORDS))
        return last_lines(stderr.decode(errors="replace")) or "it said nothing"

    def _set_aside(self, server: "subprocess.Popen[bytes] | None") -> None:
        with self._lock:
            if server is None or self._process is not server:
                return  # another caller has set it aside
            before, self._aside = self._aside, (self._process, self._control)
            self._process = self._control = None
        _ended(*before)

    def close(self) -> int | None:
        """End the server and its workers, in bounded time. Returns the exit status of the server, or None if none
        ran."""
        with self._lock:
            ours, aside = (self._process, self._control), self._aside
            self._process = self._control = None
            self._aside = (None, None)
        _ended(*aside)
        return _ended(*ours)

    def forget(self) -> None:
        """Close the descriptors in a fork of the owner, which must not end the server."""
        self._lock = threading.Lock()
        for control in (self._control, self._aside[1]):
            if control is not None:
                control.close()
        self._process = self._control = None
        self._aside = (None, None)


def last_lines(text: str, keep: int = 5) -> str:
    """Return the last lines joined into one. Lines that only mark a place in the line above, as in tracebacks, are left
    out."""
    return " | ".join([line for line in text.splitlines() if line.strip(" ^~")][-keep:])


def _ended(process: "subprocess.Popen[bytes] | None", control: socket.socket | None) -> int | None:
    """Close the socket of a server and wait for its end. Returns its exit status, or None if there was none.

    A busy machine may take longer than END_TIMEOUT_S even for the end of a killed process, which is none of the
    caller's errors."""
    if control is not None:
        control.close()
    if process is None:
        return None
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(END_TIMEOUT_S)
    if child_signals_caught():
        return None
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(END_TIMEOUT_S)
    return None


def child_signals_caught() -> bool:
    """Return whether code other than Python's handles SIGCHLD, as XRT's emulation does.

    XRT's handler takes any child that a signal ends for its device, and then ends this whole process group."""
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
