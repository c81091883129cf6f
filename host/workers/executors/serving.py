"""The worker's end of the channel: it takes tasks one after the other, runs them and answers.

It runs in a worker process (`work`), or in a thread of the parent for a simulated accelerator. It ends when the
parent's end of the channel closes. That is also how a process notices that its parent is gone.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from headrace.batching import HeadraceError
from headrace.host.memory.files import MappedFiles
from headrace.host.workers.channel import interrupted_word
from headrace.host.workers.messages import (
    ANSWER,
    CLOSED,
    DONE,
    FAILED,
    FILES,
    HEADER,
    MAX_FILES,
    MAX_MESSAGE,
    READY,
    STARTING,
    TASK,
    read_closed,
    read_files,
)
from headrace.host.workers.timerfd import TimerFd

# A process that blocks comes back to cold caches, and the host of a virtual machine has to wake it: a task then began
# 100 us after it was sent and took 150 us longer. So if a task came within this time after the last answer, the worker
# polls for the next one for as long. It never polls if the parent needs the same core to send the task. The time covers
# the turn-round of a busy worker. A longer one only takes the core from a client and a server that are at work.
SPIN_S = 100e-6


class TaskRecord(NamedTuple):
    """The answer to a task. `gathered` is when its inputs were together (`time.monotonic()` seconds)."""

    gathered: float
    answer: bytes = b""


class Executor(Protocol):
    """Runs tasks of one kind. It reads the messages that this kind's class in live/tasks writes, and writes its
    answers."""

    def run(self, message: memoryview, interrupts: "Interrupts") -> TaskRecord: ...


def check_batch(size: int, max_batch: int) -> None:
    """Raise ValueError unless the batch has 1 to `max_batch` requests."""
    if not 1 <= size <= max_batch:
        raise ValueError(f"a batch of {size} was sent to a worker that takes 1 to {max_batch}")


class ChannelClosed(Exception):
    """The parent has closed its end of the channel, or has died."""


class Interrupts:
    """The worker's end of the channel: the waiting tasks, the files of clients that they use, and whether the running
    one has to end."""

    def __init__(self, channel: socket.socket, interrupted: memoryview, spins: bool) -> None:
        self._channel = channel
        self._interrupted = interrupted
        self.files = MappedFiles()
        self._waiting: deque[bytes] = deque()  # tasks that came while another one ran
        self._running = 0  # number of the running task, plus 1
        self._spins = spins
        self._soon = False
        self._timer = TimerFd()
        self._poll, self._both = select.poll(), select.poll()
        self._poll.register(channel, select.POLLIN)
        self._both.register(channel, select.POLLIN)
        self._both.register(self._timer, select.POLLIN)

    def close(self) -> None:
        self._timer.close()

    def next_task(self) -> tuple[int, memoryview]:
        """Wait for the next task, and return its number and message. Raises ChannelClosed."""
        since = time.monotonic()
        if self._soon and not self._waiting:
            while time.monotonic() < since + SPIN_S and not self._poll.poll(0):
                pass
        while not self._waiting:
            self._receive()
        self._soon = self._spins and time.monotonic() - since < SPIN_S
        message = self._waiting.popleft()
        number = HEADER.unpack_from(message)[1]
        self._running = number + 1
        return number, memoryview(message)[HEADER.size :]

    def _receive(self) -> None:
        try:
            message = self._channel.recv(MAX_MESSAGE)
        except ConnectionError:
            message = b""
        if not message:
            raise ChannelClosed
        kind = HEADER.unpack_from(message)[0]
        if kind == TASK:
            self._waiting.append(message)
        elif kind == FILES:
            self.files.in_use = True  # even if no descriptor comes
            described, descriptors, _, _ = socket.recv_fds(
                self._channel, MAX_MESSAGE, MAX_FILES, socket.MSG_CMSG_CLOEXEC
            )
            if not described:
                raise ChannelClosed
            for (number, size), descriptor in zip(read_files(described), descriptors, strict=False):
                self.files.add(number, descriptor, size)
        elif kind == CLOSED:
            self.files.remove(read_closed(message))

    def wait(self, until: float) -> bool:
        """Sleep until `until` (`time.monotonic()` seconds). Returns True at once if the running task has to end
        before."""
        self._timer.set(until)
        while not self.interrupt_sent():
            if time.monotonic() >= until:
                return False
            if any(fd == self._channel.fileno() for fd, _ in self._both.poll()):
                self._receive()
        return True

    def sleep(self, until: float) -> None:
        """Sleep until `until`, even if the task is interrupted. Raises ChannelClosed."""
        self._timer.set(until)
        while time.monotonic() < until:
            if any(fd == self._channel.fileno() for fd, _ in self._both.poll()):
                self._receive()

    def interrupt_sent(self) -> bool:
        """Return whether the running task has to end. The executor asks at node boundaries."""
        return bool(self._interrupted[0] == self._running)


def serve(channel: socket.socket, interrupted: memoryview, executor: Executor, *, spins: bool = False) -> None:
    """Answer tasks until the channel closes. An exception of the network becomes an answer, and the worker goes on.

    `spins` is for a process that has a core to itself."""
    interrupts = Interrupts(channel, interrupted, spins)
    try:
        channel.send(ANSWER.pack(READY, 0, 0.0, 0.0, 0.0))
        while True:
            number, message = interrupts.next_task()
            began = time.monotonic()
            try:
                ran = executor.run(message, interrupts)
                answer = ANSWER.pack(DONE, number, began, ran.gathered, time.monotonic()) + ran.answer
            except ChannelClosed:
                raise
            except Exception as error:
                text = f"{type(error).__name__}: {error}".encode()[: MAX_MESSAGE - ANSWER.size]
                answer = ANSWER.pack(FAILED, number, began, began, time.monotonic()) + text
            channel.send(answer)
    except (ChannelClosed, ConnectionError):
        return
    finally:
        interrupts.close()


def work(arguments: Sequence[str], executor: Callable[[dict[str, Any], Callable[[str], None]], Executor]) -> None:
    """Run a worker process: make its executor from the settings, and answer tasks until the parent is gone.

    It reports the slow parts of its start. It ignores SIGINT, which the parent handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=int(arguments[0]))

    def at(what: str) -> None:
        channel.send(ANSWER.pack(STARTING, 0, 0.0, 0.0, 0.0) + what.encode())

    try:
        made = executor(json.loads(arguments[2]), at)
    except ConnectionError:
        return
    except HeadraceError as error:  # the parent shows the text; a traceback would not help its user
        print(error, file=sys.stderr)
        sys.exit(1)
    # The loaded objects stay until the end. A search for garbage among them took 0.1 s, in the middle of a task.
    gc.collect()
    gc.freeze()
    serve(channel, interrupted_word(int(arguments[1])), made, spins=len(os.sched_getaffinity(0)) > 1)
