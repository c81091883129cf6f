"""The live runtime drives any `Policy` by a clock and runs its tasks on workers.

One asyncio loop owns all state, so nothing here needs a lock. Events (a request, a worker's answer, a worker's end, an
alarm) only tell the policy and note that something happened; then, once a turn of the loop, `_turn` asks the policy.
So it knows all that happened at one instant before it is asked, as in the simulator. (A worker's answer brings the turn
forward, as every microsecond until its next task is lost; what else has happened by then was told.) In a turn

- if something happened, running preemptible tasks that were not told yet are told to end at their next node boundary,
- every worker that may have another task is offered one: one at a time, or as many ahead as the policy allows,
- the alarm is set to the policy's `wakeup`,
- and only then are finished requests answered, while the workers are at work again.

An interrupted task that ended early is nothing that happened to the other workers, if its batch goes on as it was. If
anything else follows on its worker, or on one that was idle, the others' tasks are told to end after all. The engine of
the simulator has the same rule (sim/engine.py), so both run the same tasks.

What differs between kinds of task (whole networks, nodes, cells) is in a `Tasks`; its class knows a request's memory,
what a task is in a message, and what an answer means.

When a worker dies or exceeds the task timeout, its tasks are lost: the requests of the one that it was at are
suspects, all others go back to the policy. When a network raises, all requests of that task are suspects. Suspects run
again apart from others: one by one after a worker's death, in halves after an exception, so that a request that kills
or raises takes nobody along. It fails with its own error when it raises alone, or with its `attempts`-th kill. A worker
that was lost is started again, with growing pauses, for as long as the runtime lives; once no worker at all has been in
service for `outage_s`, requests are answered with NoWorker.

Every wait has a bound, and the accounting invariant is kept by the ledger at each step. What a policy answers is
checked (`CheckedPolicy`). A policy that breaks a rule stops the runtime, as it serves all its models: every request is
answered with the policy's error.
"""

import asyncio
import contextlib
import heapq
import itertools
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from headrace.batching import (
    BadInput,
    CheckedPolicy,
    HeadraceError,
    Ledger,
    Policy,
    PolicyError,
    Request,
    Served,
    Task,
    UsageError,
)
from headrace.batching.graphs.execution import Sections
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.host.live.clock import Clock, MonotonicClock
from headrace.host.live.process_tuning import awake_cores, without_long_collections
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.messages import ANSWER, DONE
from headrace.host.workers.pool import Worker, WorkerPool
from headrace.host.workers.process import STOP_TIMEOUT_S, ModelError

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 6.0  # between starts of a worker; doubling
WATCH_S = 0.1  # how often time-outs are looked for
PULSE_S = 1.0  # a worker hangs that takes so much longer than twice the longest task so far

_log = logging.getLogger(__name__)


class Overloaded(HeadraceError):
    """More requests are in flight than there is memory for; send fewer at a time, or give the runtime more."""


class RuntimeClosed(HeadraceError):
    """The runtime was closed while the request was in flight, or before."""


class NoWorker(HeadraceError):
    """No worker has been in service for longer than requests wait for one."""


class TooLate(HeadraceError):
    """The request had not begun in time for its deadline, and was dropped (`drop_late`)."""


class Tasks(Protocol):
    """One kind of task: what the runtime leaves to it. Requests are told apart by their ids."""

    nan_outputs: int  # requests that ended with NaN in an output
    graphs: Mapping[str, ModelGraph | None]  # of each model; None if workers run it as one piece
    cells: bool  # whether tasks are of cells

    def admit(self, id: int, model: str, value: Any, **options: Any) -> tuple[float, int]:
        """Take memory for a request and put its inputs there. Returns its input and output length (see `Request`).
        Raises UnknownModel, BadInput or Overloaded, and then keeps nothing."""
        ...

    def message(self, task: Task) -> bytes:
        """What the worker is told of the task."""
        ...

    def ended(self, task: Task, answer: bytes) -> Task:
        """The task as it ended, as the worker's answer says."""
        ...

    def lost(self, task: Task) -> Sequence[Request]:
        """The task did not end. Returns the requests that it was at work on."""
        ...

    def restart(self, request: Request) -> None:
        """The request begins anew: whatever was computed for it counts no more."""
        ...

    def result(self, request: Request) -> Any:
        """The outputs of a finished request, copied out of the shared memory."""
        ...

    def release(self, request: Request) -> None:
        """The request has left: its memory is free."""
        ...

    def arena_use(self) -> Mapping[str, tuple[int, int]]:
        """How many places of the shared memory requests hold, and how many there are: slots by model, or the states."""
        ...

    def apart(self) -> Policy:
        """A new policy, for one worker, that serves a few requests at once and without waiting for more."""
        ...

    def close(self) -> None:
        """Give the shared memory back."""
        ...


class Execution(NamedTuple):
    """A task as it ended. Times are seconds from the runtime's origin: `handed` to the worker, which `started` and
    `ended` it (its inputs were together at `gathered`), and when the answer was here, `finished`. `error` is None if it
    ran well; a task that was lost with its worker has no times of the worker's, and `started` is `handed`."""

    worker: int
    task: Task
    handed: float
    started: float
    gathered: float
    ended: float
    finished: float
    error: str | None

    @property
    def execute_s(self) -> float:
        return self.ended - self.gathered

    @property
    def nodes(self) -> int:
        """How many nodes were executed."""
        return self.task.stop - self.task.start


@dataclass(frozen=True, slots=True)
class Inference:
    """A request's outputs by name (arrays, or what its kind of task gives) with its times and the last task that ran
    it. `execute_s` is the time of all its tasks in the network."""

    request_id: int
    outputs: Any
    served: Served
    execution: Execution
    execute_s: float

    @property
    def output(self) -> Any:
        """The output of a network that has one."""
        if isinstance(self.outputs, Mapping):
            (output,) = self.outputs.values()
            return output
        return self.outputs


@dataclass(frozen=True, slots=True)
class Statistics:
    """Sums since the runtime was made. `node_runs` counts node executions, `request_node_runs` those times the batch
    they were executed for; `reasons` why tasks left, by task; `workers_up` how many are in service now. `waiting`
    and `running` are the requests in flight now, by model: those that have not begun, and those that have."""

    tasks: int
    failed_tasks: int
    busy_s: float
    node_runs: int
    request_node_runs: int
    reasons: Mapping[str, int]
    workers_lost: int
    workers_up: int
    nan_outputs: int
    waiting: Mapping[str, int]
    running: Mapping[str, int]


class WorkerState(NamedTuple):
    """`busy_s` is how long it has been at tasks since the runtime was made, up to now; `at` the task that it is at."""

    name: str
    up: bool
    busy_s: float
    at: Task | None


@dataclass(slots=True, eq=False)
class _InFlight:
    """A request in flight. `policy` is who has it: the runtime's, or that of a group of suspects; None between them."""

    request: Request
    queued: float
    done: asyncio.Future[Inference]
    policy: CheckedPolicy | None
    started: float | None = None  # its first task was handed over
    execute_s: float = 0.0
    kills: int = 0
    failed: bool = False  # its caller was answered with an error though it goes on


@dataclass(slots=True, eq=False)
class _DispatchedTask:
    number: int
    task: Task
    policy: CheckedPolicy
    handed: float


@dataclass(slots=True, eq=False)
class _WorkerSlot:
    """A worker's place. `sent` are its tasks that have not ended, in order. `told` is whether the first of them has
    been told to end. `left` is the task that ended early for that; the turn that follows takes it. `apart` is the
    policy of the suspects that it has, who are `suspects`."""

    index: int
    worker: Worker
    up: bool = False
    sent: deque[_DispatchedTask] = field(default_factory=deque)
    told: bool = False
    left: Task | None = None
    free_since: float = 0.0  # when it ended its last task
    busy_s: float = 0.0
    apart: CheckedPolicy | None = None
    suspects: dict[int, _InFlight] = field(default_factory=dict)
    suspects_next: bool = True  # suspects and others take turns


def _goes_on(left: Task, task: Task) -> bool:
    """Return whether the task is the batch that left, from the boundary at which it was ended."""
    return task.requests is left.requests and task.start == left.stop


class Runtime:
    """Use as an async context manager around a started pool of workers; the pool is its owner's to close, `tasks` too.

    `drop_late` drops requests that have not begun by `Policy.latest_start`. `on_execution` is called with every task
    that ended; nothing here keeps them. Raises UsageError, and PolicyError if the policy lacks a method."""

    def __init__(
        self,
        policy: Policy,
        pool: WorkerPool,
        tasks: Tasks,
        *,
        origin: float | None = None,
        task_timeout_s: float = 30.0,
        outage_s: float = 30.0,
        attempts: int = 2,
        drop_late: bool = False,
        keep_awake: bool = False,
        on_execution: Callable[[Execution], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`origin` is the clock's value that all times count from (when it opens, if None). A task that takes longer
        than `task_timeout_s` costs its worker; requests wait for a worker to come into service for `outage_s`.
        `keep_awake` keeps the machine's cores from sleeping while the runtime is open, where the system allows it.
        `clock` is a `MonotonicClock` if None; another one must be that of the event loop and of the workers too."""
        if attempts < 1 or not 0 < task_timeout_s < math.inf or not 0 < outage_s < math.inf:
            raise UsageError(
                f"attempts is {attempts}, task_timeout_s {task_timeout_s}, outage_s {outage_s}; "
                "give 1 or more attempts and times above 0"
            )
        self.ledger = Ledger()
        self._clock: Clock = MonotonicClock() if clock is None else clock
        self.origin = self._clock.now() if origin is None else origin
        self._origin_is_given = origin is not None
        self._pool = pool
        self._tasks = tasks
        self._sections = {model: None if graph is None else Sections(graph) for model, graph in tasks.graphs.items()}
        self._policy = self._checked(policy)
        self._task_timeout_s = task_timeout_s
        self._outage_s = outage_s
        self._attempts = attempts
        self._drop_late = drop_late
        self._on_execution = on_execution
        self._keep_awake = keep_awake
        self._quick = contextlib.ExitStack()
        self._ids = itertools.count()
        self._numbers = itertools.count()
        self._seats = [_WorkerSlot(index, worker) for index, worker in enumerate(pool.workers)]
        self._flights: dict[int, _InFlight] = {}
        self._suspects: deque[list[_InFlight]] = deque()  # groups that are to run apart
        self._ended: list[Execution] = []  # to be noted in this turn
        self._finished: list[tuple[_InFlight, Execution]] = []  # to be answered in this turn
        self._deadlines: list[tuple[float, int]] = []  # heap, with ids; of those that may be dropped
        self._longest_task_s = 0.0
        self._turn_is_due = False
        self._happened = False  # since the last turn: what running tasks are interrupted for
        self._wakeup = math.inf  # the policy's, if a worker is idle
        self._background: set[asyncio.Task[None]] = set()
        self._none_up_since = math.inf
        self._why_none = "it was never started"
        self._closed: HeadraceError | None = None  # why no request is taken any more
        self._is_closed = False
        self._left: list[Request] = []  # requests answered by `_end`, whose memory a worker may still write
        self._failed_tasks = self._node_runs = self._request_node_runs = self._workers_lost = 0
        self._busy_s = 0.0
        self._reasons: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._running: Counter[str] = Counter()

    def _checked(self, policy: Policy) -> CheckedPolicy:
        return CheckedPolicy(policy, self._sections, self._tasks.cells, self.ledger)

    async def __aenter__(self) -> "Runtime":
        if self._pool.in_use:
            raise UsageError("this pool of workers already serves another runtime; close that first")
        self._pool.in_use = True
        self._quick.enter_context(without_long_collections())
        if self._keep_awake:
            self._quick.enter_context(awake_cores())
        if not self._origin_is_given:  # to be ready takes a tenth of a second
            self.origin = self._clock.now()
        self._loop = asyncio.get_running_loop()
        self._alarm = self._clock.alarm(self._turn_soon)
        for seat in self._seats:
            if seat.worker.fileno() >= 0:
                self._up(seat)
            else:  # a runtime before this one has lost it
                self._spawn(self._revive(seat))
        self._watched()
        self._watcher = self._loop.call_later(WATCH_S, self._watch)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def workers(self) -> int:
        """How many workers the pool has, in service or not."""
        return len(self._seats)

    @property
    def broken(self) -> bool:
        """Tell whether an internal error has stopped this runtime. It answers no more; its owner replaces it."""
        return self._closed is not None and not self._is_closed

    def now(self) -> float:
        """Seconds since `origin`."""
        return self._clock.now() - self.origin

    def statistics(self) -> Statistics:
        return Statistics(
            self._reasons.total(),
            self._failed_tasks,
            self._busy_s,
            self._node_runs,
            self._request_node_runs,
            dict(self._reasons),
            self._workers_lost,
            sum(seat.up for seat in self._seats),
            self._tasks.nan_outputs,
            dict(self._waiting),
            dict(self._running),
        )

    def workers_hanging(self) -> int:
        """Return how many workers in service take much longer for a task than any has taken before."""
        return sum(map(self._hangs, self._seats))

    def _hangs(self, seat: _WorkerSlot) -> bool:
        """Return whether the worker takes much longer for its task than any worker has taken before."""
        if not seat.up or not seat.sent:
            return False
        since = max(seat.sent[0].handed, seat.free_since)
        return self.now() - since > PULSE_S + 2 * self._longest_task_s

    def worker_states(self) -> list[WorkerState]:
        """Of every worker, in the pool's order."""
        now, found = self.now(), []
        for seat in self._seats:
            sent = seat.sent[0] if seat.sent else None
            busy_s = seat.busy_s + (now - max(sent.handed, seat.free_since) if sent is not None else 0.0)
            found.append(WorkerState(seat.worker.name, seat.up, busy_s, None if sent is None else sent.task))
        return found

    async def infer(
        self,
        model: str,
        value: Any,
        *,
        arrival: float | None = None,
        deadline: float = math.inf,
        **options: Any,
    ) -> Inference:
        """Run one request; `value` and `options` are what its kind of task takes (`Tasks.admit`).

        `arrival` is when the request came in, if preprocessing lies between (s from the origin). A caller that is
        cancelled before the request has begun takes it out again; one that has begun runs on, and is counted.
        Raises Overloaded, UnknownModel, BadInput, ModelError, WorkerLost (with its `attempts`-th kill), TooLate,
        NoWorker or RuntimeClosed."""
        if self._closed is not None:
            raise self._closed
        now = self.now()
        arrived = now if arrival is None else arrival
        if not math.isfinite(arrived) or math.isnan(deadline):
            raise BadInput(f"arrival is {arrival} and deadline {deadline}; give times in seconds")
        id = next(self._ids)
        if now - self._none_up_since > self._outage_s:
            self._shed(Request(id, model, arrived, deadline))
            raise self._no_worker(now)
        try:
            input_len, output_len = self._tasks.admit(id, model, value, **options)
        except Overloaded:
            self._shed(Request(id, model, arrived, deadline))
            raise
        if not 0 < input_len < math.inf:
            self._tasks.release(Request(id, model, arrived))
            raise BadInput(f"input_len is {input_len}; give a length above 0")
        request = Request(id, model, arrived, deadline, input_len, output_len)
        try:
            self._policy.submit(request, now)
            begin_by = self._policy.latest_start(request) if self._drop_late else math.inf
        except BaseException as error:
            self._tasks.release(request)
            if isinstance(error, PolicyError):
                raise self._break(error) from error
            raise
        self.ledger.submit(request)
        flight = _InFlight(request, now, self._loop.create_future(), self._policy)
        self._flights[id] = flight
        self._waiting[model] += 1
        if begin_by < math.inf:
            if len(self._deadlines) > 2 * len(self._flights) + 64:  # mostly of requests that have left
                self._deadlines = [entry for entry in self._deadlines if entry[1] in self._flights]
                heapq.heapify(self._deadlines)
            heapq.heappush(self._deadlines, (begin_by, id))
        self._soon()
        try:
            return await flight.done
        except asyncio.CancelledError:
            if flight.done.cancelled() and id in self._flights:
                self._cancel(flight)
            raise

    def _cancel(self, flight: _InFlight) -> None:
        """Cancel a request whose caller has gone, unless it has begun."""
        try:
            if self._forget(flight):
                self.ledger.cancel(flight.request)
                self._soon()
        except PolicyError as error:
            self._break(error)

    def _shed(self, request: Request) -> None:
        self.ledger.submit(request)
        self.ledger.turn_away(request)

    # ---- events: tell the policy ----

    def _soon(self) -> None:
        """Something happened: ask the policy when all that happens in this turn of the loop has been told."""
        self._happened = True
        self._turn_soon()

    def _turn_soon(self) -> None:
        if not self._turn_is_due and self._closed is None:
            self._turn_is_due = True
            self._loop.call_soon(self._due)

    def _due(self) -> None:
        if self._turn_is_due:  # else a worker's answer has brought the turn forward
            self._turn()

    def _readable(self, seat: _WorkerSlot) -> None:
        """A worker has answered. It is idle now, so the turn is at once, when the others' answers have been heard."""
        self._receive(seat)
        for other in self._seats:
            if other.sent and other is not seat and other.up:
                self._receive(other)
        self._turn()

    def _receive(self, seat: _WorkerSlot) -> None:
        try:
            message = seat.worker.receive()
            if message is not None:
                self._answered(seat, message)
        except WorkerLost as error:
            self._down(seat, error)
        except Exception as error:
            self._break(error)

    def _answered(self, seat: _WorkerSlot, message: bytes) -> None:
        """A worker's answer to the first of its tasks. What can wait until the worker is at work again, does."""
        now = self.now()
        kind, _, began, gathered, ended = ANSWER.unpack_from(message)
        answer = message[ANSWER.size :]
        sent = seat.sent.popleft()
        was_told, seat.told = seat.told, False
        seat.free_since = now
        times = (began - self.origin, gathered - self.origin, ended - self.origin, now)
        if kind != DONE:
            error = ModelError(f"the network failed on worker {seat.worker.name}: {answer.decode()}")
            self._ended.append(Execution(seat.index, sent.task, sent.handed, *times, str(error)))
            self._happened = True
            self._raised(seat, sent, error)
            return
        task = self._tasks.ended(sent.task, answer)
        if was_told and task.stop < sent.task.stop and not task.ended:
            seat.left = task
        else:
            self._happened = True
        execution = Execution(seat.index, task, sent.handed, *times, None)
        self._ended.append(execution)
        if sent.policy is not self._policy and sent.policy is not seat.apart:
            return  # of suspects that have begun anew: it ran for nothing
        for request in sent.policy.complete(task, now):
            self._finished.append((self._flights[request.id], execution))
        if sent.policy is seat.apart:
            for flight, _ in self._finished:
                seat.suspects.pop(flight.request.id, None)
            if not seat.suspects:
                seat.apart = None

    # ---- faults ----

    def _raised(self, seat: _WorkerSlot, sent: _DispatchedTask, error: HeadraceError) -> None:
        culprits = self._put_back(seat, sent, True)
        if len(culprits) == 1:
            self._fail(culprits[0], error)
        elif culprits:
            half = len(culprits) // 2
            self._suspect(culprits[:half])
            self._suspect(culprits[half:])

    def _suspect(self, group: list[_InFlight]) -> None:
        """They are to run again, apart from others."""
        for flight in group:
            flight.policy = None
        self._suspects.append(group)

    def _put_back(self, seat: _WorkerSlot, sent: _DispatchedTask, at_work: bool) -> list[_InFlight]:
        """A task did not end. If the worker was `at_work` on it, returns the requests that may be the cause, taken from
        their policy; all others are their policy's again."""
        task = sent.task
        requests = self._tasks.lost(task)
        if sent.policy is not self._policy:  # suspects: their policy is given up, with all of them
            if sent.policy is not seat.apart:
                return []
            group = list(seat.suspects.values())
            seat.apart = None
            seat.suspects.clear()
            for flight in group:
                self._tasks.restart(flight.request)
            if not at_work:
                self._suspect(group)
                return []
            return group
        found = {request.id: self._flights[request.id] for request in requests if request.id in self._flights}
        for flight in found.values():
            self._tasks.restart(flight.request)
        taken = found if at_work else {}
        keep = {request.id: request for request in task.requests if request.id not in taken}
        sent.policy.lost(task, keep.values(), self.now())
        return list(taken.values())

    def _down(self, seat: _WorkerSlot, error: WorkerLost) -> None:
        """The worker has died, or is given up: nothing more is heard of it."""
        if not seat.up:
            return
        seat.up = False
        self._loop.remove_reader(seat.worker.fileno())
        self._workers_lost += 1
        self._watched()
        self._spawn(self._recover(seat, error))

    async def _recover(self, seat: _WorkerSlot, error: WorkerLost) -> None:
        try:
            said = await seat.worker.stop()
        except Exception as wrong:  # the next start ends what is left
            said = repr(wrong)
        self._lose(seat, WorkerLost(f"{error}: {said}"))
        self._soon()
        await self._revive(seat)

    def _lose(self, seat: _WorkerSlot, error: WorkerLost) -> None:
        self._why_none = str(error)
        at_work = True
        while seat.sent:
            sent = seat.sent.popleft()
            if at_work:
                now, task = self.now(), sent.task.lost(sent.task.requests)
                self._ended.append(
                    Execution(seat.index, task, sent.handed, sent.handed, sent.handed, now, now, str(error))
                )
            for flight in self._put_back(seat, sent, at_work):
                flight.kills += 1
                if flight.kills >= self._attempts or flight.failed:
                    self._fail(flight, error)
                else:
                    self._suspect([flight])
            at_work = False
        seat.told = False
        if seat.apart is not None:  # none of their tasks was at the worker
            self._suspect(list(seat.suspects.values()))
            seat.apart = None
            seat.suspects.clear()

    async def _revive(self, seat: _WorkerSlot) -> None:
        """Start the worker again and again, until it is in service."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                await seat.worker.start()
                break
            except Exception as error:  # whatever it is, the next start may find the machine well
                self._why_none = str(error) if isinstance(error, WorkerLost) else repr(error)
                _log.warning("%s; it is started again in %g s", self._why_none, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        self._up(seat)
        self._soon()

    def _up(self, seat: _WorkerSlot) -> None:
        seat.up = True
        seat.free_since = self.now()
        self._loop.add_reader(seat.worker.fileno(), self._readable, seat)
        self._watched()

    def _watched(self) -> None:
        """Notes since when no worker has been in service."""
        none = not any(seat.up for seat in self._seats)
        self._none_up_since = min(self._none_up_since, self.now()) if none else math.inf

    def _watch(self) -> None:
        """Looks for time-outs, WATCH_S after WATCH_S."""
        if self._closed is not None:
            return
        self._watcher = self._loop.call_later(WATCH_S, self._watch)
        try:
            self._look_for_time_outs(self.now())
        except PolicyError as error:
            self._break(error)

    def _look_for_time_outs(self, now: float) -> None:
        limit = self._task_timeout_s
        for seat in self._seats:
            if seat.up and seat.sent and now - max(seat.sent[0].handed, seat.free_since) > limit:
                text = f"worker {seat.worker.name} did not answer within {limit} s and was killed"
                self._down(seat, WorkerLost(text))
        if now - self._none_up_since > self._outage_s:
            error = self._no_worker(now)
            for flight in list(self._flights.values()):
                if flight.policy is None:
                    self._fail(flight, error)
                elif self._forget(flight):
                    self.ledger.fail(flight.request)
                    self._answer(flight, error)
                elif not flight.done.done():  # it has begun, so it goes on when it can, and ends as failed
                    flight.failed = True
                    self._answer(flight, error)

    def _no_worker(self, now: float) -> NoWorker:
        return NoWorker(f"no worker has been in service for {now - self._none_up_since:.1f} s: {self._why_none}")

    def _break(self, error: Exception) -> HeadraceError:
        """Stop on a bug, in a policy or in the runtime. Nobody shall wait for ever because of it. Returns what requests
        are answered with."""
        if isinstance(error, PolicyError):
            why = RuntimeClosed(str(error))
            _log.error("the runtime stops: %s", error, exc_info=error.__cause__)
        else:
            why = RuntimeClosed(f"the runtime stopped on an error of its own: {error!r}")
            _log.error("the runtime stops on an error of its own", exc_info=error)
        if self._closed is None:
            why.__cause__ = error
            self._end(why)
        return why

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._spawned_ended)

    def _spawned_ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and self._closed is None:
            self._break(error)

    # ---- the turn: ask the policy ----

    def _turn(self) -> None:
        self._turn_is_due = False
        if self._closed is not None:
            return
        try:
            now = self.now()
            if self._deadlines:
                self._drop(now)
            happened = self._happened or self._wakeup <= now
            self._happened = False
            if happened:
                self._interrupt()
            self._offer(now)
            self._set_alarm(now)
            self._settle()
            self.ledger.check()
        except Exception as error:
            self._break(error)

    def _interrupt(self) -> None:
        for seat in self._seats:
            if seat.sent and not seat.told and seat.sent[0].task.preemptible and seat.up:
                seat.worker.interrupt(seat.sent[0].number)
                seat.told = True

    def _offer(self, now: float) -> None:
        """Offer every worker that may have another task one, in turn, until there are none."""
        ahead = self._policy.ahead
        seats = [seat for seat in self._seats if seat.up and len(seat.sent) < ahead]
        while seats:
            again = []
            for seat in seats:
                found = self._next_task(seat, now)
                left, seat.left = seat.left, None
                if (found or left) and not (found and left and _goes_on(left, found[0])):
                    self._interrupt()
                if found is not None:
                    self._send(seat, *found, now)
                    if len(seat.sent) < ahead:
                        again.append(seat)
            seats = again

    def _next_task(self, seat: _WorkerSlot, now: float) -> tuple[Task, CheckedPolicy] | None:
        """Suspects and all others take turns."""
        for _ in range(2):
            policy: CheckedPolicy | None = self._policy
            worker = seat.index
            if seat.suspects_next and (self._suspects or seat.apart is not None):
                policy, worker = self._isolated(seat, now), 0
            seat.suspects_next = not seat.suspects_next
            task = policy.next_task(worker, now) if policy is not None else None
            if policy is not None and task is not None:
                return task, policy
            if not self._suspects and seat.apart is None:
                return None
        return None

    def _isolated(self, seat: _WorkerSlot, now: float) -> CheckedPolicy | None:
        """The policy of the suspects that this worker has; a new one for the next group, if it has none."""
        while seat.apart is None and self._suspects:
            group = [flight for flight in self._suspects.popleft() if flight.request.id in self._flights]
            if group:  # the others were answered meanwhile
                seat.apart = self._checked(self._tasks.apart())
                seat.suspects = {flight.request.id: flight for flight in group}
                for flight in group:
                    flight.policy = seat.apart
                    seat.apart.submit(flight.request, now)
        return seat.apart

    def _send(self, seat: _WorkerSlot, task: Task, policy: CheckedPolicy, now: float) -> None:
        number = next(self._numbers)
        for request in task.requests:
            flight = self._flights[request.id]
            if flight.started is None:
                flight.started = now
                self._waiting[task.model] -= 1
                self._running[task.model] += 1
        seat.worker.send(number, self._tasks.message(task))
        seat.sent.append(_DispatchedTask(number, task, policy, now))

    def _set_alarm(self, now: float) -> None:
        idle = any(seat.up and not seat.sent for seat in self._seats)
        at = self._wakeup = self._policy.wakeup(now) if idle else math.inf
        if self._deadlines:
            at = min(at, self._deadlines[0][0])
        ring = at + self.origin
        if ring - self.origin < at:  # rounded: it would ring before `now` has reached that time
            ring = math.nextafter(ring, math.inf)
        self._alarm.set(ring)

    def _drop(self, now: float) -> None:
        """Requests that have not begun, and cannot meet their deadline any more as far as the policy can tell."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, id = heapq.heappop(self._deadlines)
            flight = self._flights.get(id)
            if flight is not None and self._forget(flight):
                self.ledger.drop_late(flight.request)
                left_ms = (flight.request.deadline - now) * 1e3
                why = f"{-left_ms:.1f} ms ago" if left_ms <= 0 else f"in {left_ms:.1f} ms, and takes longer than that"
                self._answer(flight, TooLate(f"the request had not begun by its deadline, {why}"))

    def _settle(self) -> None:
        """Note the tasks that ended, and answer the requests that finished."""
        for execution in self._ended:
            task = execution.task
            self._reasons[task.reason] += 1
            self._busy_s += execution.ended - execution.started
            if execution.error is None:
                self._longest_task_s = max(self._longest_task_s, execution.ended - execution.started)
            self._seats[execution.worker].busy_s += execution.ended - execution.started
            self._node_runs += execution.nodes
            self._request_node_runs += execution.nodes * task.batch_size
            self._failed_tasks += execution.error is not None
            for id in {request.id for request in task.requests}:
                if id in self._flights:
                    self._flights[id].execute_s += execution.execute_s
            if self._on_execution is not None:
                self._on_execution(execution)
        self._ended.clear()
        for flight, execution in self._finished:
            request = flight.request
            if not flight.done.done():
                served = Served(
                    arrival=request.arrival,
                    queued=flight.queued,
                    started=execution.handed if flight.started is None else flight.started,
                    finished=execution.finished,
                    deadline=request.deadline,
                    batch=execution.task.batch_size,
                )
                result = self._tasks.result(request)
                flight.done.set_result(Inference(request.id, result, served, execution, flight.execute_s))
            self._remove(flight)
            if flight.failed:
                self.ledger.fail(request)
            else:
                self.ledger.finish(request)
        self._finished.clear()

    # ---- ends ----

    def _forget(self, flight: _InFlight) -> bool:
        """Take a request that has not begun out again; False if it has begun."""
        if flight.policy is None or not flight.policy.withdraw(flight.request, self.now()):
            return False
        self._remove(flight)
        self._happened = True
        return True

    def _remove(self, flight: _InFlight) -> None:
        del self._flights[flight.request.id]
        (self._waiting if flight.started is None else self._running)[flight.request.model] -= 1
        self._tasks.release(flight.request)

    def _fail(self, flight: _InFlight, error: HeadraceError) -> None:
        """Of a request that no policy has."""
        self._remove(flight)
        self.ledger.fail(flight.request)
        self._answer(flight, error)

    def _answer(self, flight: _InFlight, error: HeadraceError) -> None:
        if not flight.done.done():
            flight.done.set_exception(error)
            flight.done.exception()  # a caller that gave up never looks; that is no error of the loop's

    def _end(self, why: HeadraceError) -> None:
        """Answer all that is in flight, and take nothing more. What the workers are at goes on until `close`."""
        self._closed = why
        self._alarm.close()
        self._watcher.cancel()
        for task in self._background:
            task.cancel()
        for seat in self._seats:
            if seat.up:
                self._loop.remove_reader(seat.worker.fileno())
        for flight in self._flights.values():
            self.ledger.fail(flight.request)
            self._answer(flight, why)
            self._left.append(flight.request)
        self._flights.clear()
        self._waiting.clear()
        self._running.clear()
        self._finished.clear()
        self._ended.clear()

    async def close(self) -> None:
        """Fail what is in flight. A worker that is at work is killed, as what it would write belongs to nobody; the
        next runtime on its pool starts it again. Takes a few seconds at most."""
        if not self._pool.in_use or self._is_closed:
            return
        self._is_closed = True
        if self._closed is None:
            self._end(RuntimeClosed("the runtime was closed while the request was in flight"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.gather(*(seat.worker.stop() for seat in self._seats if seat.sent or not seat.up))
        for seat in self._seats:
            for sent in seat.sent:
                self._tasks.lost(sent.task)
            seat.sent.clear()
        for request in self._left:
            self._tasks.release(request)
        self._left.clear()
        self._pool.in_use = False
        self._quick.close()
        self.ledger.check()
