"""A run: the plan's requests dealt to processes, each with an event loop and connections of its own.

All processes begin at one moment of the clock that they share (CLOCK_MONOTONIC). A request's latency counts from when
it was planned: what a slow server, or a slow client, keeps waiting has waited. How late a request left is told beside
it, by which the two can be told apart."""

import asyncio
import contextlib
import gc
import math
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import uvloop
from numpy.typing import NDArray

from headrace.batching import HeadraceError
from headrace.host.bench.client import ASK_S, Client, Status, Target
from headrace.host.live.machine.clock import Clock, MonotonicClock

START_S = 60.0  # for the processes to be there
SOON_S = 0.2  # from when all are ready to the run's begin
AT_ONCE = 32  # requests that are sent before answers are looked at again
TOLD = 3  # texts of errors that are kept, by status


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Request n leaves at `planned[n]` (s from the begin, rising), however slow the answers are; they are waited for
    until `wait_s` after the last has left."""

    planned: NDArray[np.float64]
    wait_s: float

    @property
    def length_s(self) -> float:
        return float(self.planned[-1]) if len(self.planned) else 0.0

    def dealt(self, number: int, processes: int) -> "OpenLoop":
        return OpenLoop(self.planned[number::processes], self.wait_s)


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`concurrency` requests are on their way at any time of `length_s`: one leaves as another is answered, and counts
    as planned for then."""

    concurrency: int
    length_s: float
    wait_s: float

    def dealt(self, number: int, processes: int) -> "ClosedLoop":
        return ClosedLoop(len(range(number, self.concurrency, processes)), self.length_s, self.wait_s)


Plan = OpenLoop | ClosedLoop


@dataclass(frozen=True, slots=True)
class Answers:
    """This holds the requests of a run as arrays of shape (requests,), in the order of their planned times.

    `planned`, `sent` and `ended` are in seconds from the begin. `sent` and `ended` are nan where that never happened.
    `said` holds texts of the errors. `cpu_s` is the CPU time that the processes spent on the run."""

    planned: NDArray[np.float64]
    sent: NDArray[np.float64]
    ended: NDArray[np.float64]
    status: NDArray[np.int8]
    said: dict[Status, list[str]]
    cpu_s: float

    def of(self, status: Status) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.status == status
        return found


class ClientLost(HeadraceError):
    """A process of the load generator has died or does not answer."""


def run(target: Target, plan: Plan, messages: Sequence[bytes], *, processes: int, connections: int) -> Answers:
    """The `messages` are sent in turn, over at most `connections` connections in all, but one a process. Raises
    ClientLost. However it ends, no process is left behind."""
    jobs = []
    for number in range(processes):
        turn = [messages[(number + n * processes) % len(messages)] for n in range(len(messages))]
        jobs.append((target, plan.dealt(number, processes), turn, max(1, connections // processes)))
    with _processes(jobs) as pipes:
        for pipe in pipes:
            _told(pipe, START_S)
        begin = time.monotonic() + SOON_S
        for pipe in pipes:
            pipe.send(begin)
        end = begin + plan.length_s + plan.wait_s + START_S
        return _joined([_told(pipe, max(0.0, end - time.monotonic())) for pipe in pipes])


def check(target: Target, message: bytes) -> None:
    """Send one request, before all others. Raises HeadraceError if the server cannot take it."""

    async def ask() -> None:
        answer: asyncio.Future[tuple[Status, str]] = asyncio.get_running_loop().create_future()

        def on_answer(number: int, sent: float | None, status: Status, text: str) -> None:
            if not answer.done():
                answer.set_result((status, text))

        async with target.client(on_answer, 1) as client:
            client.send(0, message)
            status, text = await asyncio.wait_for(answer, ASK_S)
        if status == Status.ERROR:
            raise HeadraceError(f"{target} refuses the first request: {text}")

    # A slow server may be what is looked for.
    with contextlib.suppress(TimeoutError), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask())


def _joined(parts: Sequence[Answers]) -> Answers:
    said: dict[Status, list[str]] = {}
    for part in parts:
        for status, texts in part.said.items():
            said[status] = list(dict.fromkeys([*said.get(status, []), *texts]))[:TOLD]
    order = np.argsort(np.concatenate([part.planned for part in parts]), kind="stable")

    def joined(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])[order]

    return Answers(
        joined("planned"), joined("sent"), joined("ended"), joined("status"), said, sum(part.cpu_s for part in parts)
    )


@contextlib.contextmanager
def _processes(jobs: Sequence[tuple[Any, ...]]) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    running, pipes = list[Any](), list[Connection]()
    # Ctrl-C goes to a terminal's whole group: it is for this process, which ends the others.
    resource_tracker.ensure_running()  # of multiprocessing: it would let the signal through as it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        try:
            for job in jobs:
                ours, theirs = context.Pipe()
                process = context.Process(target=_process, args=(theirs, *job), daemon=True)
                process.start()
                theirs.close()
                running.append(process)
                pipes.append(ours)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield pipes
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.join(START_S)
        for pipe in pipes:
            pipe.close()


def _told(pipe: Connection, bound_s: float) -> Any:
    if not pipe.poll(bound_s):
        raise ClientLost(f"a process of the load generator said nothing for {bound_s:.0f} s")
    try:
        return pipe.recv()
    except (EOFError, OSError):
        raise ClientLost("a process of the load generator has died") from None


# ---- in a process of its own ----


def _process(pipe: Connection, target: Target, plan: Plan, messages: Sequence[bytes], connections: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is a file
    # Who waits for this may have gone.
    with contextlib.suppress(EOFError, ConnectionError), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        pipe.send(runner.run(_begun_by(pipe, target, LoadGenerator(plan, messages, MonotonicClock()), connections)))


async def _begun_by(pipe: Connection, target: Target, generator: "LoadGenerator", connections: int) -> Answers:
    """Say that all is ready, and run from the instant that comes back."""
    loop = asyncio.get_running_loop()
    async with target.client(generator.on_answer, connections) as client:
        pipe.send(None)
        begin = pipe.recv()
        # Nothing else comes: it is readable when who waits for this has gone.
        loop.add_reader(pipe.fileno(), os._exit, 1)
        gc.collect()
        gc.freeze()
        cpu_s = time.process_time()
        await generator.run(client, begin)
        loop.remove_reader(pipe.fileno())
        os.set_blocking(pipe.fileno(), True)  # the loop has made it not so
        return generator.answers(time.process_time() - cpu_s)


class LoadGenerator:
    """It sends the requests of a plan by a client that has the same clock, and records how each ended. The client
    calls `on_answer`."""

    def __init__(self, plan: Plan, messages: Sequence[bytes], clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._messages = messages
        self._planned = plan.planned.tolist() if isinstance(plan, OpenLoop) else list[float]()
        self._sent = [math.nan] * len(self._planned)
        self._ended = [math.nan] * len(self._planned)
        self._status = bytearray([Status.UNANSWERED]) * len(self._planned)
        self._said: dict[Status, list[str]] = {}
        self._next = 0  # number of the request that leaves next
        self._answered = 0
        self._all = asyncio.Event()

    async def run(self, client: Client, begin: float) -> None:
        """Return when all are answered, or the plan's bound has passed. `begin` is in seconds of the clock."""
        plan = self._plan
        self._client, self._begin = client, begin
        self._alarm = self._clock.timer(self._send_due if isinstance(plan, OpenLoop) else self._send_first)
        self._alarm.set(begin + (self._planned[0] if self._planned else 0.0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(begin + plan.length_s + plan.wait_s - self._clock.now()):
                await self._all.wait()
        self._alarm.close()

    def answers(self, cpu_s: float) -> Answers:
        """Return what came of the requests so far; `cpu_s` is what they cost."""
        sent, ended = np.array(self._sent) - self._begin, np.array(self._ended) - self._begin
        return Answers(np.array(self._planned), sent, ended, np.array(self._status, np.int8), self._said, cpu_s)

    def _send_due(self) -> None:
        now = self._clock.now()
        for number in range(self._next, min(self._next + AT_ONCE, len(self._planned))):
            if self._begin + self._planned[number] > now:
                break
            self._send()
        if self._next < len(self._planned):
            self._alarm.set(self._begin + self._planned[self._next])
        elif not self._planned:
            self._all.set()

    def _send_first(self) -> None:
        assert isinstance(self._plan, ClosedLoop)
        for _ in range(self._plan.concurrency):
            self._send_another()
        if not self._plan.concurrency:
            self._all.set()

    def _send_another(self) -> None:
        self._planned.append(self._clock.now() - self._begin)
        self._sent.append(math.nan)
        self._ended.append(math.nan)
        self._status.append(Status.UNANSWERED)
        self._send()

    def _send(self) -> None:
        number = self._next
        self._next += 1
        self._client.send(number, self._messages[number % len(self._messages)])

    def on_answer(self, number: int, sent: float | None, status: Status, text: str) -> None:
        self._ended[number] = now = self._clock.now()
        self._status[number] = status
        if sent is not None:
            self._sent[number] = sent
        if status and len(known := self._said.setdefault(status, [])) < TOLD and text not in known:
            known.append(text)
        self._answered += 1
        if isinstance(self._plan, ClosedLoop) and now < self._begin + self._plan.length_s:
            self._send_another()
        elif self._answered == len(self._planned):
            self._all.set()
