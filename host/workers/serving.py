"""The worker's end: take tasks one after the other, run them, answer. In a process of its own (`work`), or in a thread
of the parent for an accelerator that is simulated. It ends when the parent's end of the channel closes, which is also
how a process notices that its parent is gone."""

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
from headrace.host.workers.channel import interrupted_word
from headrace.host.workers.messages import (
    ANSWER,
    DONE,
    FAILED,
    HEADER,
    MAX_MESSAGE,
    READY,
    STARTING,
    TASK,
)
from headrace.host.workers.timerfd import TimerFd

# A process that blocks comes back to cold caches, and on a virtual machine is woken through its host: measured, a task
# began 100 us after it was sent and took 150 us longer. So where a task came this soon after the last answer, as many
# were waiting, the next one is looked for as long. Never where the parent needs this very core to send it.
SPIN_S = 300e-6


class TaskRecord(NamedTuple):
    """`gathered` is when the inputs were together (`time.monotonic()`)."""

    gathered: float
    answer: bytes = b""


class Executor(Protocol):
    """Runs tasks of one kind; reads the messages that this kind's class in live/ writes, and writes what it reads."""

    def run(self, message: memoryview, interrupts: "Interrupts") -> TaskRecord: ...


def check_batch(size: int, most: int) -> None:
    """Raises ValueError."""
    if not 1 <= size <= most:
        raise ValueError(f"a batch of {size} was sent to a worker that takes 1 to {most}")


class ChannelClosed(Exception):
    """The parent is gone, or wants no more."""


class Interrupts:
    """The worker's end of the channel: the tasks that wait in it, and whether the one that runs is to end."""

    def __init__(self, channel: socket.socket, interrupted: memoryview, spins: bool) -> None:
        self._channel = channel
        self._interrupted = interrupted
        self._waiting: deque[bytes] = deque()  # tasks that came while one ran
        self._running = 0  # number of the task, plus 1
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
        """Number and message of the next task. Raises ChannelClosed."""
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
        if HEADER.unpack_from(message)[0] == TASK:
            self._waiting.append(message)

    def wait(self, until: float) -> bool:
        """Sleep until `until` (`time.monotonic()`); True at once if the task that runs is told to end before."""
        self._timer.set(until)
        while not self.told():
            if time.monotonic() >= until:
                return False
            if any(fd == self._channel.fileno() for fd, _ in self._both.poll()):
                self._receive()
        return True

    def sleep(self, until: float) -> None:
        """Sleep until `until`, interrupted or not. Raises ChannelClosed."""
        self._timer.set(until)
        while time.monotonic() < until:
            if any(fd == self._channel.fileno() for fd, _ in self._both.poll()):
                self._receive()

    def told(self) -> bool:
        """Whether the task that runs is told to end: asked at node boundaries."""
        return bool(self._interrupted[0] == self._running)


def serve(channel: socket.socket, interrupted: memoryview, executor: Executor, *, spins: bool = False) -> None:
    """Answer tasks until the channel closes. An exception of the network is answered, and the worker lives on. `spins`
    is for a process with a core to itself."""
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
    """The life of a worker process: make its executor from the settings, telling what takes time, and answer tasks
    until the parent is gone. SIGINT is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=int(arguments[0]))

    def at(what: str) -> None:
        channel.send(ANSWER.pack(STARTING, 0, 0.0, 0.0, 0.0) + what.encode())

    try:
        made = executor(json.loads(arguments[2]), at)
    except ConnectionError:
        return
    except HeadraceError as error:  # the parent tells it: where in the code it was raised is of no use to its user
        print(error, file=sys.stderr)
        sys.exit(1)
    # What was loaded stays until the end: looking through it again for garbage took 0.1 s, in the middle of a task.
    gc.collect()
    gc.freeze()
    serve(channel, interrupted_word(int(arguments[1])), made, spins=len(os.sched_getaffinity(0)) > 1)
