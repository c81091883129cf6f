"""Connect the runtime and a worker: a socket carries messages, and a word of shared memory carries interrupts."""

import asyncio
import contextlib
import fcntl
import mmap
import os
import socket
import struct
import termios
from collections.abc import Sequence
from typing import Any

from headrace.batching import HeadraceError
from headrace.host.memory.files import SharedFile
from headrace.host.workers.messages import (
    HEADER,
    MAX_FILES,
    MAX_MESSAGE,
    TASK,
    WAKE,
    write_closed,
    write_files,
)

FULL = 1 << 16  # bytes that a busy worker has not read; closed files are told later, so that its tasks have room
TELL_AGAIN_S = 0.1


class WorkerLost(HeadraceError):
    """The worker died, could not be started, or did not answer in time and was killed."""


class Channel:
    """The runtime's end of the channel, which never blocks. `theirs` and `interrupted` are for the worker. Raises
    OSError.

    `interrupted` holds the number, plus 1, of the task that has to end at its next node boundary. A worker reads this
    word of memory at every boundary. To ask a socket would take as long as a small node.

    The channel knows which files of clients the worker has, and tells it when they are closed."""

    def __init__(self) -> None:
        self._files: dict[int, SharedFile] = {}  # that the worker has, by number
        self._closed: list[int] = []  # files of which the worker has not been told
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

    def send(self, number: int, message: bytes, files: Sequence[SharedFile] = ()) -> None:
        """Send a task that uses these files. A dead worker does not get it; `receive` then raises WorkerLost."""
        if files:
            self._send_files([file for file in dict.fromkeys(files) if file.number not in self._files])
        self._send(HEADER.pack(TASK, number) + message)

    def _send_files(self, files: Sequence[SharedFile]) -> None:
        """Send the descriptors of files that the worker does not have.

        Where the system lets none pass, the worker does without: it fails to read inputs, and leaves outputs in their
        slots."""
        for first in range(0, len(files), MAX_FILES):
            part = files[first : first + MAX_FILES]
            self._send(write_files([]))  # the worker takes the next message with its descriptors
            try:
                message = write_files([(file.number, file.size) for file in part])
                socket.send_fds(self.ours, [message], [file.descriptor for file in part])
            except OSError:
                self._send(write_files([]))
                continue
            for file in part:
                self._files[file.number] = file
                file.when_closed(self._file_closed)

    def _file_closed(self, number: int) -> None:
        del self._files[number]
        if not self._closed:
            asyncio.get_running_loop().call_soon(self._tell_closed)
        self._closed.append(number)

    def _tell_closed(self) -> None:
        """Tell the worker of closed files, unless it has not read many messages yet."""
        if not self._closed:  # this channel was closed meanwhile
            return
        if struct.unpack("i", fcntl.ioctl(self.ours, termios.TIOCOUTQ, bytes(4)))[0] > FULL:
            asyncio.get_running_loop().call_later(TELL_AGAIN_S, self._tell_closed)
            return
        self._send(write_closed(self._closed))
        self._closed.clear()

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
        for file in self._files.values():
            file.forget(self._file_closed)
        self._files.clear()
        self._closed.clear()
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
