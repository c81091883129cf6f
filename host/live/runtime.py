"""The live runtime: drives a `Policy` with the wall clock and runs its tasks on worker processes.

One asyncio loop owns all state, so nothing here needs a lock. A request's tensor lies in a slot of the shared arena
from `infer` until its one end; workers read and write the slots, and only slot numbers travel. What happens when:

- a request arrives, a task ends, the policy's `wakeup` comes or a worker is back: every idle worker is offered a task,
  and the others are told to end theirs at the next node boundary, where they have one;
- a worker dies or exceeds the task timeout: its requests go back to the policy (until `attempts` are used up, then
  they fail), and the worker is restarted while the others go on;
- the network raises: the requests of that task fail with its error and the worker lives on.

Every wait has a bound, and the accounting invariant is kept by the ledger at each step.
"""

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError, Ledger, Policy, Request, Served, Task
from headrace.host.memory.slots import ArenaFull, TensorArena
from headrace.host.workers.process import ModelError, RunTimes, WorkerLost


class Overloaded(HeadraceError):
    """More requests are in flight than the arena has slots for; send fewer at a time, or give it more slots."""


class RuntimeClosed(HeadraceError):
    """The runtime was closed, or has no worker left, while the request was in flight."""


class LiveWorker(Protocol):
    """What the runtime needs of a worker: a process that runs a network, or a simulated accelerator."""

    async def execute(self, task: Task, slots: Sequence[int], timeout_s: float) -> tuple[Task, RunTimes]:
        """Run a task on the tensors in `slots`; returns it as it ended. Raises ModelError or WorkerLost."""
        ...

    def interrupt(self) -> None:
        """Something has happened: end a preemptible task at its next node boundary."""
        ...

    async def restart(self) -> None:
        """After WorkerLost. Raises WorkerLost if it cannot be brought back."""
        ...


class Pool(Protocol):
    @property
    def workers(self) -> Sequence[LiveWorker]: ...


@dataclass(frozen=True, slots=True)
class Execution:
    """A task as it ran and ended: times in seconds from the runtime's origin; `error` is None if it ran well."""

    worker: int
    task: Task
    started: float
    finished: float
    gather_s: float
    execute_s: float
    error: str | None

    @property
    def nodes(self) -> int:
        """How many nodes were executed."""
        return self.task.stop - self.task.start


@dataclass(frozen=True, slots=True)
class Inference:
    """The network's output (a row, a copy) with the request's times and the last task that ran it. `execute_s` is the
    time of all its tasks in the network."""

    request_id: int
    output: NDArray[Any]
    served: Served
    execution: Execution
    execute_s: float


@dataclass(slots=True)
class _InFlight:
    request: Request
    slot: int
    queued: float
    done: asyncio.Future[Inference]
    attempts: int = 0
    started: float | None = None  # its first task
    execute_s: float = 0.0


class Runtime:
    """Use as an async context manager around a started pool of workers."""

    def __init__(
        self,
        policy: Policy,
        pool: Pool,
        arena: TensorArena,
        *,
        origin: float | None = None,
        task_timeout_s: float = 30.0,
        attempts: int = 2,
    ) -> None:
        """`origin` is the `time.monotonic()` value that all times count from (now, if None)."""
        self.ledger = Ledger()
        self.executions: list[Execution] = []
        self.workers_lost = 0
        self._policy = policy
        self._workers = list(pool.workers)
        self._arena = arena
        self.origin = time.monotonic() if origin is None else origin
        self._task_timeout_s = task_timeout_s
        self._attempts = attempts
        self._ids = itertools.count()
        self._in_flight: dict[int, _InFlight] = {}
        self._idle: set[int] = set(range(len(self._workers)))
        self._alive: set[int] = set(self._idle)
        self._timer: asyncio.TimerHandle | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    async def __aenter__(self) -> "Runtime":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def workers(self) -> int:
        """How many workers the pool has, in service or not."""
        return len(self._workers)

    def now(self) -> float:
        """Seconds since `origin`."""
        return time.monotonic() - self.origin

    async def infer(
        self,
        model: str,
        tensor: NDArray[Any],
        *,
        arrival: float | None = None,
        deadline: float = math.inf,
        input_len: float = 1.0,
        output_len: int = 1,
    ) -> Inference:
        """Run one preprocessed input through the network. `input_len` and `output_len` are those of a `Request`; only a
        simulated worker, which computes no outputs, needs to be told the second.

        `arrival` is when the request came in, if preprocessing lies between (s from the origin). Raises Overloaded,
        UnknownModel, ValueError (shape or type), ModelError, WorkerLost (after
        `attempts` tries) or RuntimeClosed."""
        if self._closed or not self._alive:
            raise RuntimeClosed("the runtime takes no requests: it was closed or has no worker left")
        layout = self._arena.layout
        if tensor.shape != layout.input_shape or tensor.dtype != layout.input_dtype:
            raise ValueError(
                f"a tensor of {tensor.dtype}{tensor.shape} was given; "
                f"the network takes {layout.input_dtype}{layout.input_shape}"
            )
        now = self.now()
        arrived = now if arrival is None else arrival
        request = Request(next(self._ids), model, arrived, deadline, input_len, output_len)
        self.ledger.submit(request)
        try:
            slot = self._arena.acquire()
        except ArenaFull as error:
            self.ledger.turn_away(request)
            raise Overloaded(str(error)) from error
        try:
            np.copyto(self._arena.input(slot), tensor)
            self._policy.submit(request, now)
        except BaseException:
            self._arena.release(slot)
            self.ledger.fail(request)
            raise
        flight = _InFlight(request, slot, now, asyncio.get_running_loop().create_future())
        self._in_flight[request.id] = flight
        self._dispatch()
        # A caller that gives up must not take the request out of the policy's hands: it runs, and is counted.
        return await asyncio.shield(flight.done)

    def _dispatch(self) -> None:
        """Offer every idle worker a task, then set the timer for the policy's own wish."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed:
            return
        for worker in self._alive - self._idle:
            self._workers[worker].interrupt()
        for worker in sorted(self._idle):
            task = self._policy.next_task(worker, self.now())
            if task is None:
                continue
            self._idle.remove(worker)
            self._spawn(self._execute(worker, task))
        if self._idle:
            wakeup = self._policy.wakeup()
            if wakeup < math.inf:
                loop = asyncio.get_running_loop()
                # A little late rather than early: asked too soon, the policy would only send us back to sleep.
                self._timer = loop.call_later(max(0.0, wakeup - self.now()) + 50e-6, self._dispatch)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _execute(self, index: int, task: Task) -> None:
        worker = self._workers[index]
        flights = [self._in_flight[request.id] for request in task.requests]
        started = self.now()
        for flight in flights:
            if flight.started is None:
                flight.started = started
        gather_s = execute_s = 0.0
        error: HeadraceError | None = None
        try:
            task, times = await worker.execute(task, [flight.slot for flight in flights], self._task_timeout_s)
            gather_s, execute_s = times.gather_s, times.execute_s
        except (ModelError, WorkerLost) as raised:
            error = raised
        finished = self.now()
        execution = Execution(index, task, started, finished, gather_s, execute_s, str(error) if error else None)
        self.executions.append(execution)
        if self._closed:
            return
        if error is None:
            for flight in flights:
                flight.execute_s += execute_s
            for request in self._policy.complete(task, finished):
                self._finish(request, execution)
            self._idle.add(index)
        else:
            lost = isinstance(error, WorkerLost)
            for flight in flights:
                flight.attempts += 1
            keep = [f.request for f in flights if lost and f.attempts < self._attempts]
            self._policy.complete(task.lost(keep), finished)
            for request in set(task.requests) - set(keep):
                self._fail(request, error)
            if lost:
                self.workers_lost += 1
                self._spawn(self._revive(index))
            else:
                self._idle.add(index)
        self.ledger.check()
        self._dispatch()

    async def _revive(self, index: int) -> None:
        try:
            await self._workers[index].restart()
        except WorkerLost as error:
            self._alive.discard(index)
            if not self._alive:
                for flight in list(self._in_flight.values()):
                    self._fail(flight.request, RuntimeClosed(f"no worker is left: {error}"))
            return
        if not self._closed:
            self._idle.add(index)
            self._dispatch()

    def _finish(self, request: Request, execution: Execution) -> None:
        flight = self._in_flight.pop(request.id)
        served = Served(
            arrival=request.arrival,
            queued=flight.queued,
            started=execution.started if flight.started is None else flight.started,
            finished=execution.finished,
            deadline=request.deadline,
            batch=execution.task.batch_size,
        )
        output = self._arena.output(flight.slot).copy()
        self._arena.release(flight.slot)
        self.ledger.finish(request)
        if not flight.done.done():
            flight.done.set_result(Inference(request.id, output, served, execution, flight.execute_s))

    def _fail(self, request: Request, error: HeadraceError) -> None:
        flight = self._in_flight.pop(request.id)
        self._arena.release(flight.slot)
        self.ledger.fail(request)
        if not flight.done.done():
            flight.done.set_exception(error)
            flight.done.exception()  # a caller that gave up never looks; that is no error of the loop's

    async def close(self) -> None:
        """Fail what is in flight and end the background tasks. The worker pool is its owner's to close."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._background):
            task.cancel()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*self._background, return_exceptions=True), timeout=5.0)
        for flight in list(self._in_flight.values()):
            self._fail(flight.request, RuntimeClosed("the runtime was closed while the request was in flight"))
        self.ledger.check()
