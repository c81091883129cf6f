"""Connect the runtime and a worker: a socket carries messages, and a word of shared memory carries interrupts."""

import contextlib
import mmap
import os
import socket
from typing import Any

from headrace.batching import HeadraceError
from headrace.host.workers.messages import HEADER, MAX_MESSAGE, TASK, WAKE


class WorkerLost(HeadraceError):
    """The worker died, could not be started, or did not answer in time and was killed."""


class Channel:
    """The runtime's end of the channel, which never blocks. `theirs` and `interrupted` are for the worker. Raises
    OSError.

    `interrupted` holds the number, plus 1, of the task that has to end at its next node boundary. A worker reads this
    word of memory at every boundary. To ask a socket would take as long as a small node."""

    def __init__(self) -> None:
        self.interrupted_fd = -1
        self.interrupted: memoryview | None = None
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.ours.setblocking(False)
            self.interrupted_fd = os.memfd_create("headrace-interrupted", os.MFD_CLOEXEC)
            os.ftruncate(self.interrupted_fd, mmap.PAGESIZE)
            self.interrupted = interrupted_word(self.interrupted_fd)
        except BaseException:
            self.theirs.close()
            self.close()
            raise

    def send(self, number: int, message: bytes) -> None:
        """Send a task. A dead worker does not get it; `receive` then raises WorkerLost."""
        self._send(HEADER.pack(TASK, number) + message)

    def interrupt(self, number: int) -> None:
        """Ask the worker to end that task at its next node boundary."""
        assert self.interrupted is not None
        self.interrupted[0] = number + 1

    def wake(self) -> None:
        """Wake a worker that waits for its socket, so that it reads the word."""
        self._send(HEADER.pack(WAKE, 0))

    def _send(self, message: bytes) -> None:
        try:
            self.ours.send(message)
        except ConnectionError:
            return

    def receive(self, worker: str) -> bytes | None:
        """Return the next message, at least as long as ANSWER, or None if there is none yet.

        Raises WorkerLost, which names `worker`, if the worker died."""
        try:
            message = self.ours.recv(MAX_MESSAGE)
        except BlockingIOError:
            return None
        except ConnectionError:
            message = b""
        if not message:
            raise WorkerLost(f"worker {worker} died")
        return message

    def close(self) -> None:
        self.ours.close()
        if self.interrupted_fd >= 0:
            os.close(self.interrupted_fd)
            self.interrupted_fd = -1
        if self.interrupted is not None:
            memory: Any = self.interrupted.obj  # the mapping
            self.interrupted = None
            with contextlib.suppress(BufferError):  # the thread of a simulated worker may still read it
                memory.close()


def interrupted_word(fd: int) -> memoryview:
    """Return the word in the file as memory that both sides share."""
    return memoryview(mmap.mmap(fd, mmap.PAGESIZE)).cast("Q")
