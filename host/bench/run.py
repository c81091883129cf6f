"""A run of the load generator: several processes send the requests of a plan, each with its own event loop and
connections.

All processes begin at one instant of the clock that they share (CLOCK_MONOTONIC). The latency of a request counts from
its planned time. So it includes time in which a slow server or a slow client delays the request. The delay of each send
is reported too, which shows how much of the latency the client caused."""

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

START_S = 60.0  # time limit for the processes to start or to answer
BEGIN_AFTER_S = 0.2  # from the time when all processes are ready to the begin of the run
MAX_SENDS = 32  # requests that are sent before answers are read again
MAX_ERROR_TEXTS = 3  # error texts that are kept for each status


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Send request n at `planned[n]`, however slow the answers are.

    `planned` has seconds from the begin in rising order. The run waits for answers until `wait_s` after the last
    planned time."""

    planned: NDArray[np.float64]
    wait_s: float

    @property
    def length_s(self) -> float:
        return float(self.planned[-1]) if len(self.planned) else 0.0

    def dealt(self, number: int, processes: int) -> "OpenLoop":
        """Return the part of the plan for process `number` of `processes`."""
        return OpenLoop(self.planned[number::processes], self.wait_s)


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Keep `concurrency` requests in flight for `length_s` seconds.

    A new request is sent when one is answered, and its planned time is that instant. The run then waits up to `wait_s`
    for the remaining answers."""

    concurrency: int
    length_s: float
    wait_s: float

    def dealt(self, number: int, processes: int) -> "ClosedLoop":
        """Return the part of the plan for process `number` of `processes`."""
        return ClosedLoop(len(range(number, self.concurrency, processes)), self.length_s, self.wait_s)


Plan = OpenLoop | ClosedLoop


@dataclass(frozen=True, slots=True)
class Answers:
    """Hold the outcome of a run as arrays of shape (requests,), in the order of the planned times.

    `planned`, `sent` and `ended` are seconds from the begin. `sent` and `ended` are nan for a request that was never
    sent or did not end. `error_texts` has the servers' error texts by status. `cpu_s` is the CPU time that the
    processes spent on the run."""

    planned: NDArray[np.float64]
    sent: NDArray[np.float64]
    ended: NDArray[np.float64]
    status: NDArray[np.int8]
    error_texts: dict[Status, list[str]]
    cpu_s: float

    def of(self, status: Status) -> NDArray[np.bool_]:
        """Return a mask of the requests that ended with `status`."""
        mask: NDArray[np.bool_] = self.status == status
        return mask


class ClientLost(HeadraceError):
    """A process of the load generator died or does not answer."""


def run(target: Target, plan: Plan, messages: Sequence[bytes], *, processes: int, connections: int) -> Answers:
    """Execute a plan and return its outcome.

    Args:
        messages: prepared requests, which are sent in turn.
        processes: number of processes to share the plan.
        connections: limit on all connections together. Each process has at least one.

    Every process has ended when this function returns or raises. Raises ClientLost."""
    jobs = []
    for number in range(processes):
        turn = [messages[(number + n * processes) % len(messages)] for n in range(len(messages))]
        jobs.append((target, plan.dealt(number, processes), turn, max(1, connections // processes)))
    with _processes(jobs) as pipes:
        for pipe in pipes:
            _receive(pipe, START_S)
        begin = time.monotonic() + BEGIN_AFTER_S
        for pipe in pipes:
            pipe.send(begin)
        end = begin + plan.length_s + plan.wait_s + START_S
        return _joined([_receive(pipe, max(0.0, end - time.monotonic())) for pipe in pipes])


def check(target: Target, message: bytes) -> None:
    """Send one request before a run. Raises HeadraceError if the server refuses it."""

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

    # A timeout is no error here, because the run may be meant to measure a slow server.
    with contextlib.suppress(TimeoutError), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask())


def _joined(parts: Sequence[Answers]) -> Answers:
    error_texts: dict[Status, list[str]] = {}
    for part in parts:
        for status, texts in part.error_texts.items():
            error_texts[status] = list(dict.fromkeys([*error_texts.get(status, []), *texts]))[:MAX_ERROR_TEXTS]
    order = np.argsort(np.concatenate([part.planned for part in parts]), kind="stable")

    def joined(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])[order]

    cpu_s = sum(part.cpu_s for part in parts)
    return Answers(joined("planned"), joined("sent"), joined("ended"), joined("status"), error_texts, cpu_s)


@contextlib.contextmanager
def _processes(jobs: Sequence[tuple[Any, ...]]) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    running, pipes = list[Any](), list[Connection]()
    # Ctrl-C signals every process of the terminal. The children ignore it, because this process ends them.
    resource_tracker.ensure_running()  # started now, because its start would unblock the signal
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


def _receive(pipe: Connection, timeout_s: float) -> Any:
    if not pipe.poll(timeout_s):
        raise ClientLost(f"a process of the load generator did not answer for {timeout_s:.0f} s")
    try:
        return pipe.recv()
    except (EOFError, OSError):
        raise ClientLost("a process of the load generator has died") from None


# ---- code of the processes ----


def _process(pipe: Connection, target: Target, plan: Plan, messages: Sequence[bytes], connections: int) -> None:
    _, max_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))  # each connection takes a file descriptor
    # The parent process may have ended, which closes the pipe.
    with contextlib.suppress(EOFError, ConnectionError), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        pipe.send(runner.run(_generate(pipe, target, LoadGenerator(plan, messages, MonotonicClock()), connections)))


async def _generate(pipe: Connection, target: Target, generator: "LoadGenerator", connections: int) -> Answers:
    """Report that this process is ready, receive the begin of the run, and execute the plan."""
    loop = asyncio.get_running_loop()
    async with target.client(generator.on_answer, connections) as client:
        pipe.send(None)
        begin = pipe.recv()
        # The parent sends nothing more. The pipe becomes readable only when the parent has ended.
        loop.add_reader(pipe.fileno(), os._exit, 1)
        gc.collect()
        gc.freeze()
        cpu_s = time.process_time()
        await generator.run(client, begin)
        loop.remove_reader(pipe.fileno())
        os.set_blocking(pipe.fileno(), True)  # the event loop made it non-blocking
        return generator.answers(time.process_time() - cpu_s)


class LoadGenerator:
    """Send the requests of a plan through a client and record how each ended.

    The client uses the same clock, and calls `on_answer` at the end of each request."""

    def __init__(self, plan: Plan, messages: Sequence[bytes], clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._messages = messages
        self._planned = plan.planned.tolist() if isinstance(plan, OpenLoop) else list[float]()
        self._sent = [math.nan] * len(self._planned)
        self._ended = [math.nan] * len(self._planned)
        self._status = bytearray([Status.UNANSWERED]) * len(self._planned)
        self._error_texts: dict[Status, list[str]] = {}
        self._next = 0  # number of the next request to send
        self._answered = 0
        self._all = asyncio.Event()

    async def run(self, client: Client, begin: float) -> None:
        """Execute the plan. Returns when every request is answered, or at the time limit of the plan.

        `begin` is in seconds of the clock."""
        plan = self._plan
        self._client, self._begin = client, begin
        self._timer = self._clock.timer(self._send_due if isinstance(plan, OpenLoop) else self._send_first)
        self._timer.set(begin + (self._planned[0] if self._planned else 0.0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(begin + plan.length_s + plan.wait_s - self._clock.now()):
                await self._all.wait()
        self._timer.close()

    def answers(self, cpu_s: float) -> Answers:
        """Return the outcome of the requests so far. `cpu_s` is the CPU time that they cost."""
        sent, ended = np.array(self._sent) - self._begin, np.array(self._ended) - self._begin
        return Answers(np.array(self._planned), sent, ended, np.array(self._status, np.int8), self._error_texts, cpu_s)

    def _send_due(self) -> None:
        now = self._clock.now()
        for number in range(self._next, min(self._next + MAX_SENDS, len(self._planned))):
            if self._begin + self._planned[number] > now:
                break
            self._send()
        if self._next < len(self._planned):
            self._timer.set(self._begin + self._planned[self._next])
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
        """Record the end of a request (see OnAnswer)."""
        self._ended[number] = now = self._clock.now()
        self._status[number] = status
        if sent is not None:
            self._sent[number] = sent
        if status:
            texts = self._error_texts.setdefault(status, [])
            if len(texts) < MAX_ERROR_TEXTS and text not in texts:
                texts.append(text)
        self._answered += 1
        if isinstance(self._plan, ClosedLoop) and now < self._begin + self._plan.length_s:
            self._send_another()
        elif self._answered == len(self._planned):
            self._all.set()
