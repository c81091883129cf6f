"""The live runtime drives any `Policy` by a clock and runs its tasks on workers.

Rules:

- One asyncio loop owns all state, so nothing here needs a lock.
- An event (a request, a worker's answer, a worker's loss, a timer) only informs the policy. The policy is asked for
  tasks once in each turn, in `Runtime._turn`. So it knows everything that happened at one instant before it is asked,
  as in the simulator.
- A worker's answer makes the turn come at once, because the worker is idle. All other events wait for the end of the
  loop's present round of callbacks.
- Work that can wait comes last in a turn, when the workers are busy again: callers get their results then.
- Every wait has a bound, and the ledger is checked in each turn.
- Every answer of a policy is checked (`CheckedPolicy`). A policy that breaks a rule stops the runtime, because it
  schedules all models. Every request in flight then gets the policy's error.

The parts, and the module of each:

    requests      each request from its admission to its one answer; the ledger
    tasks/        the kinds of task: memory of requests, messages to workers, meaning of answers
    dispatch      which worker is offered a task, and which task is interrupted
    isolation     requests that may have caused a fault run again without others
    supervision   workers are started, watched, killed, and started again

Timeline of a request that waits for one batch:

    infer -> admit -> policy.submit -> turn: policy.next_task -> worker
                                       turn: policy.complete, policy.next_task -> worker; then the caller is answered
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, SupportsFloat, TypeAlias, cast

from numpy.typing import NDArray

from headrace.batching import BadInput, CheckedPolicy, HeadraceError, Policy, PolicyError, UsageError
from headrace.batching.graphs.execution import Sections
from headrace.host.live.dispatch import Dispatch
from headrace.host.live.isolation import Isolation
from headrace.host.live.machine.clock import Clock, MonotonicClock
from headrace.host.live.machine.process_tuning import awake_cores, without_long_collections
from headrace.host.live.requests import InFlight, Requests
from headrace.host.live.results import Execution, Inference, NoWorker, RuntimeClosed, Statistics, TaskSums, WorkerState
from headrace.host.live.settings import RuntimeSettings
from headrace.host.live.supervision import Supervision, WorkerSlot
from headrace.host.live.tasks.interface import Read, Tasks
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.pool import WorkerPool

_log = logging.getLogger(__name__)
DEFAULTS = RuntimeSettings()
_Arrays: TypeAlias = Mapping[str, NDArray[Any]]  # outputs, none of which the caller of `infer` can place in a file


class Runtime:
    """A policy in service on a pool of workers. Use it as an async context manager around a started pool.

    Args:
        policy: The policy that schedules all requests.
        pool: The workers. Their owner closes them; one runtime at a time may use them.
        tasks: The kind of task. Its owner closes it.
        settings: Time limits and options.
        origin: The clock's value from which all times count. None stands for the time at which the runtime opens.
        on_execution: Called with every task that ended. The runtime keeps none of them.
        clock: The clock of the event loop and of the workers. None stands for a `MonotonicClock`.

    Raises:
        PolicyError: The policy lacks a method.
    """

    def __init__(
        self,
        policy: Policy,
        pool: WorkerPool,
        tasks: Tasks,
        settings: RuntimeSettings = DEFAULTS,
        *,
        origin: float | None = None,
        on_execution: Callable[[Execution], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._clock: Clock = MonotonicClock() if clock is None else clock
        self.origin = self._clock.now() if origin is None else origin
        self._origin_is_given = origin is not None
        self._pool = pool
        self._tasks = tasks
        self._on_execution = on_execution
        self._requests = Requests(tasks, pool.request_ids)
        self.ledger = self._requests.ledger
        self._sections = {model: None if graph is None else Sections(graph) for model, graph in tasks.graphs.items()}
        self._policy = self._checked(policy)
        self._worker_slots = [WorkerSlot(index, worker) for index, worker in enumerate(pool.workers)]
        self._isolation = Isolation(self._policy, tasks, self._requests, settings.attempts, self._checked)
        self._dispatch = Dispatch(
            self._policy, self._worker_slots, tasks, self._requests, self._isolation, settings.drop_late
        )
        self._supervision = Supervision(
            self._worker_slots,
            settings,
            self.now,
            on_readable=self._readable,
            on_lost=self._worker_lost,
            on_change=self._something_happened,
            on_outage=self._outage,
            on_error=self._break,
        )
        self._tuning = contextlib.ExitStack()
        self._turn_is_due = False
        self._happened = False  # since the last turn; the reason to interrupt running tasks
        self._wakeup = math.inf  # the policy's, while a worker is idle
        self._closed: HeadraceError | None = None  # the error for new requests, once the runtime takes none
        self._is_closed = False
        self._sums = TaskSums()

    def _checked(self, policy: Policy) -> CheckedPolicy:
        return CheckedPolicy(policy, self._sections, self._tasks.cells, self._requests.ledger)

    async def __aenter__(self) -> "Runtime":
        if self._pool.in_use:
            raise UsageError("this pool of workers already serves another runtime; close that runtime first")
        self._pool.in_use = True
        self._tuning.enter_context(without_long_collections())
        if self._settings.keep_awake:
            self._tuning.enter_context(awake_cores())
        if not self._origin_is_given:  # the lines above take a tenth of a second
            self.origin = self._clock.now()
        self._loop = asyncio.get_running_loop()
        self._timer = self._clock.timer(self._turn_soon)
        self._supervision.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- what callers see ----

    @property
    def workers(self) -> int:
        """The number of workers of the pool, in service or not."""
        return len(self._worker_slots)

    @property
    def broken(self) -> bool:
        """Tell whether an internal error has stopped this runtime. It answers no more; its owner replaces it."""
        return self._closed is not None and not self._is_closed

    def now(self) -> float:
        """Return the seconds since `origin`."""
        return self._clock.now() - self.origin

    def statistics(self) -> Statistics:
        """Return sums over all tasks so far, and the numbers of requests in flight."""
        sums = self._sums
        return Statistics(
            tasks=sums.reasons.total(),
            failed_tasks=sums.failed_tasks,
            busy_s=sums.busy_s,
            node_runs=sums.node_runs,
            request_node_runs=sums.request_node_runs,
            reasons=dict(sums.reasons),
            workers_lost=self._supervision.workers_lost,
            workers_up=sum(slot.up for slot in self._worker_slots),
            nan_outputs=self._tasks.nan_outputs,
            waiting=dict(self._requests.waiting),
            running=dict(self._requests.running),
        )

    def workers_hanging(self) -> int:
        """Return how many workers in service take much longer for a task than any has taken before."""
        return self._supervision.hanging(self.now())

    def worker_states(self) -> list[WorkerState]:
        """Return the state of every worker, in the pool's order."""
        return self._supervision.states(self.now())

    async def infer(
        self,
        model: str,
        value: Any,
        *,
        arrival: SupportsFloat | None = None,
        deadline: SupportsFloat | None = None,
        read: Callable[[Mapping[str, NDArray[Any]]], Any] | None = None,
        **options: Any,
    ) -> Inference:
        """Run one request and return its result.

        A caller that is cancelled before the request has begun takes the request out again. A request that has begun
        runs on, and is counted.

        Args:
            model: The name of the model.
            value: The inputs, in the form that the kind of task takes (`Tasks.admit`).
            arrival: When the request came in, if it was preprocessed since (s from the origin).
            deadline: When the result is due (s from the origin). None stands for no deadline.
            read: Makes the result of the outputs while they lie in the shared memory. None copies them. It runs in the
                event loop and must be short. A HeadraceError that it raises is the caller's.
            options: Other options of `Tasks.admit`.

        Raises:
            UnknownModel, BadInput: The request is wrong.
            Overloaded, NoWorker: The request was turned away.
            TooLate: The request was dropped.
            ModelError, WorkerLost: The request failed; WorkerLost comes with its last attempt.
            RuntimeClosed: The runtime is closed, or stopped on an error.
        """
        arrived = None if arrival is None else float(arrival)
        due = math.inf if deadline is None else float(deadline)
        keeps_nothing: Read | None = None if read is None else lambda outputs, _: read(cast(_Arrays, outputs))
        return await self.answer(model, value, arrived, due, keeps_nothing, options)

    async def answer(
        self,
        model: str,
        value: Any,
        arrival: float | None,
        deadline: float,
        read: Read | None,
        options: Mapping[str, Any],
    ) -> Inference:
        """Run one request, as `infer` does. `read` may keep outputs. `options` are other options of `Tasks.admit`."""
        if self._closed is not None:
            raise self._closed
        now = self.now()
        arrived = now if arrival is None else arrival
        if not math.isfinite(arrived) or math.isnan(deadline):
            raise BadInput(f"arrival is {arrival} and deadline {deadline}; give times in seconds")
        if (outage := self._supervision.outage(now)) is not None:
            self._requests.shed(model, arrived, deadline)
            raise outage
        request = self._requests.admit(model, value, arrived, deadline, options)
        try:
            self._policy.submit(request, now)
            begin_by = self._policy.latest_start(request) if self._settings.drop_late else math.inf
        except BaseException as error:
            self._requests.refuse(request)
            if isinstance(error, PolicyError):
                raise self._break(error) from error
            raise
        in_flight = self._requests.add(request, self._policy, now, begin_by, read)
        self._something_happened()
        try:
            return await in_flight.answer
        except asyncio.CancelledError:
            if in_flight.answer.cancelled() and request.id in self._requests.by_id:
                self._cancel(in_flight)
            raise

    def _cancel(self, in_flight: InFlight) -> None:
        """Cancel a request whose caller has gone, unless it has begun."""
        try:
            if self._requests.cancel(in_flight, self.now()):
                self._something_happened()
        except PolicyError as error:
            self._break(error)

    # ---- events: inform the policy ----

    def _something_happened(self) -> None:
        """Ask the policy soon, after all events of the loop's present round are known to it."""
        self._happened = True
        self._turn_soon()

    def _turn_soon(self) -> None:
        if not self._turn_is_due and self._closed is None:
            self._turn_is_due = True
            self._loop.call_soon(self._turn_if_due)

    def _turn_if_due(self) -> None:
        if self._turn_is_due:  # a worker's answer may have brought the turn forward
            self._turn()

    def _readable(self, slot: WorkerSlot) -> None:
        """Take a worker's answer and those of the other workers. The turn comes at once, because the worker is idle."""
        self._receive(slot)
        for other in self._worker_slots:
            if other.dispatched and other is not slot and other.up:
                self._receive(other)
        self._turn()

    def _receive(self, slot: WorkerSlot) -> None:
        try:
            message = slot.worker.receive()
            if message is not None and self._dispatch.answered(slot, message, self.now(), self.origin):
                self._happened = True
        except WorkerLost as lost:
            self._supervision.lose(slot, lost)
        except Exception as error:
            self._break(error)

    def _worker_lost(self, slot: WorkerSlot, error: WorkerLost) -> None:
        self._dispatch.worker_lost(slot, error, self.now())

    def _outage(self, error: NoWorker, now: float) -> None:
        if self._requests.answer_all(error, now):
            self._happened = True

    # ---- the turn: ask the policy ----

    def _turn(self) -> None:
        self._turn_is_due = False
        if self._closed is not None:
            return
        try:
            now = self.now()
            if self._requests.drop_late(now) or self._wakeup <= now:
                self._happened = True
            if self._happened:
                self._happened = False
                self._dispatch.interrupt_running()
            self._dispatch.offer(now)
            self._set_timer(now)
            self._count_tasks()
            self._answer_finished()
            self.ledger.check()
        except Exception as error:
            self._break(error)

    def _set_timer(self, now: float) -> None:
        """Set the timer to the policy's wake-up or the next request to drop, whichever comes first."""
        self._wakeup = self._policy.wakeup(now) if self._dispatch.any_idle else math.inf
        at = min(self._wakeup, self._requests.next_drop)
        ring = at + self.origin
        if ring - self.origin < at:  # by rounding: `now` would not have reached `at` when the timer calls back
            ring = math.nextafter(ring, math.inf)
        self._timer.set(ring)

    def _count_tasks(self) -> None:
        for execution in self._dispatch.ended:
            self._sums.add(execution)
            self._supervision.note_execution(execution)
            self._requests.note_execution(execution)
            if self._on_execution is not None:
                self._on_execution(execution)
        self._dispatch.ended.clear()

    def _answer_finished(self) -> None:
        for in_flight, execution in self._dispatch.finished:
            self._requests.finish(in_flight, execution)
        self._dispatch.finished.clear()

    # ---- ends ----

    def _break(self, error: Exception) -> HeadraceError:
        """Stop on an error of the policy or of the runtime itself. Return the error that requests get.

        Without this, callers could wait for ever.
        """
        if isinstance(error, PolicyError):
            reason = RuntimeClosed(str(error))
            _log.error("the runtime stops: %s", error, exc_info=error.__cause__)
        else:
            reason = RuntimeClosed(f"the runtime stopped on an error of its own: {error!r}")
            _log.error("the runtime stops on an error of its own", exc_info=error)
        if self._closed is None:
            reason.__cause__ = error
            self._stop(reason)
        return reason

    def _stop(self, reason: HeadraceError) -> None:
        """Answer all requests in flight with an error, and take no more. Tasks at workers run on until `close`."""
        self._closed = reason
        self._timer.close()
        self._supervision.stop()
        self._requests.fail_all(reason)
        self._dispatch.finished.clear()
        self._dispatch.ended.clear()

    async def close(self) -> None:
        """Fail the requests in flight, and free the pool for another runtime. Takes a few seconds at most.

        A worker that is at a task is killed, because its requests have gone. The next runtime on the pool starts it.
        """
        if not self._pool.in_use or self._is_closed:
            return
        self._is_closed = True
        if self._closed is None:
            self._stop(RuntimeClosed("the runtime was closed while the request was in flight"))
        await self._supervision.close()
        self._dispatch.close()
        self._requests.release_memory()
        self._pool.in_use = False
        self._tuning.close()
        self.ledger.check()
