"""This module keeps the requests in flight. Each admitted request gets exactly one answer and one ledger entry.

Rule: `Requests` changes the ledger, the caller's future and the shared memory of a request together. So this equation
holds after each of its methods.

    submitted = finished + failed + shed + dropped + cancelled + in flight

A request leaves in one of these ways:

    finish          All its nodes have run.
    fail            An error ends it.
    cancel          Its caller has gone, and it had not begun.
    drop_late       Its deadline cannot be met any more, and it had not begun.
    fail_all        The runtime ends.

A request that has begun cannot be taken out of a batch. If its caller gets an error before it ends, the request runs on
with `failed` set, and counts as failed at its end.
"""

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace.batching import BadInput, CheckedPolicy, HeadraceError, Ledger, Request, Served
from headrace.host.live.results import Execution, Inference, Overloaded, TooLate
from headrace.host.live.tasks.interface import Read, Tasks

SPARE_DEADLINES = 64  # entries of requests that have left, beyond one for each request in flight


class InFlight:
    """A request in flight.

    Attributes:
        queued: When the policy got the request.
        answer: The future that the caller awaits.
        policy: The policy that schedules the request: the runtime's own, or that of its group of suspects. It is None
            while the group waits for a worker.
        read: What the caller wants of the outputs (`Tasks.result`).
        started: When the first task of the request was the first at its worker; None before that.
        execute_s: The network's time, summed over the tasks of the request so far.
        kills: How many workers were lost while they ran the request.
        failed: The caller already has an error, and the request runs on.
    """

    __slots__ = ("answer", "execute_s", "failed", "kills", "policy", "queued", "read", "request", "started")

    def __init__(
        self,
        request: Request,
        queued: float,
        answer: asyncio.Future[Inference],
        policy: CheckedPolicy | None,
        read: Read | None = None,
    ) -> None:
        self.request = request
        self.queued = queued
        self.answer = answer
        self.policy = policy
        self.read = read
        self.started: float | None = None
        self.execute_s = 0.0
        self.kills = 0
        self.failed = False

    def answer_error(self, error: HeadraceError) -> None:
        """Give the caller `error`, unless it has its answer or has gone."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # marks the error as seen: the caller may have given up without a look at it


class Requests:
    """All requests in flight, by id, with the ledger and the numbers of waiting and running requests by model.

    `ids` gives each request its id."""

    def __init__(self, tasks: Tasks, ids: Iterator[int]) -> None:
        self.ledger = Ledger()
        self.by_id: dict[int, InFlight] = {}
        self.waiting: Counter[str] = Counter()
        self.running: Counter[str] = Counter()
        self._tasks = tasks
        self._ids = ids
        self._deadlines: list[tuple[float, int]] = []  # heap of (latest start, id); entries outlive their requests
        self._unreleased: list[Request] = []  # answered by `fail_all`; a worker may still write to their memory

    def shed(self, model: str, arrival: float, deadline: float) -> None:
        """Count a request that is turned away before it takes any memory."""
        self._shed(Request(next(self._ids), model, arrival, deadline))

    def admit(self, model: str, value: Any, arrival: float, deadline: float, options: Mapping[str, Any]) -> Request:
        """Make a request, and take memory for it. The caller must then call `add` or `refuse`.

        Raises:
            UnknownModel, BadInput, Overloaded: The request holds no memory. An overload is counted as shed.
        """
        id = next(self._ids)
        try:
            input_len, output_len = self._tasks.admit(id, model, value, **options)
        except Overloaded:
            self._shed(Request(id, model, arrival, deadline))
            raise
        if not 0 < input_len < math.inf:
            self.refuse(Request(id, model, arrival, deadline))
            raise BadInput(f"input_len is {input_len}; give a length above 0")
        return Request(id, model, arrival, deadline, input_len, output_len)

    def refuse(self, request: Request) -> None:
        """Free the memory of a request that was admitted and that the policy did not accept."""
        self._tasks.release(request)

    def add(
        self, request: Request, policy: CheckedPolicy, now: float, begin_by: float, read: Read | None = None
    ) -> InFlight:
        """Take a request that the policy has accepted. `drop_late` drops it if it has not begun by `begin_by`."""
        in_flight = InFlight(request, now, asyncio.get_running_loop().create_future(), policy, read)
        self.ledger.submit(request)
        self.by_id[request.id] = in_flight
        self.waiting[request.model] += 1
        if begin_by < math.inf:
            if len(self._deadlines) > 2 * len(self.by_id) + SPARE_DEADLINES:
                self._deadlines = [entry for entry in self._deadlines if entry[1] in self.by_id]
                heapq.heapify(self._deadlines)
            heapq.heappush(self._deadlines, (begin_by, request.id))
        return in_flight

    def begin(self, requests: Iterable[Request], now: float) -> None:
        """Note that a task with these requests begins. Requests that had begun before keep their start.

        Requests that have left meanwhile do not count. A task of cells may outlive them at its worker.
        """
        for request in requests:
            in_flight = self.by_id.get(request.id)
            if in_flight is not None and in_flight.started is None:
                in_flight.started = now
                self.waiting[request.model] -= 1
                self.running[request.model] += 1

    def note_execution(self, execution: Execution) -> None:
        """Add the network's time of a task to its requests. A task of cells may have a request several times."""
        for id in {request.id for request in execution.task.requests}:
            in_flight = self.by_id.get(id)
            if in_flight is not None:
                in_flight.execute_s += execution.execute_s

    def finish(self, in_flight: InFlight, execution: Execution) -> None:
        """Answer the caller with the result. `execution` is the last task of the request."""
        request = in_flight.request
        if not in_flight.answer.done():
            served = Served(
                arrival=request.arrival,
                queued=in_flight.queued,
                started=execution.handed if in_flight.started is None else in_flight.started,
                finished=execution.finished,
                deadline=request.deadline,
                batch=execution.task.batch_size,
            )
            try:
                outputs = self._tasks.result(request, in_flight.read)
            except HeadraceError as error:  # of `read`: the caller has no place for the outputs
                in_flight.answer_error(error)
            else:
                in_flight.answer.set_result(Inference(request.id, outputs, served, execution, in_flight.execute_s))
        self._remove(in_flight)
        if in_flight.failed:
            self.ledger.fail(request)
        else:
            self.ledger.finish(request)

    def fail(self, in_flight: InFlight, error: HeadraceError) -> None:
        """End a request with an error. No policy may have it any more."""
        self._remove(in_flight)
        self.ledger.fail(in_flight.request)
        in_flight.answer_error(error)

    def cancel(self, in_flight: InFlight, now: float) -> bool:
        """Take out a request whose caller has gone. Return False if it has begun. It then runs on for nobody."""
        if not self._withdraw(in_flight, now):
            self._tasks.abandon(in_flight.request)
            return False
        self.ledger.cancel(in_flight.request)
        return True

    @property
    def next_drop(self) -> float:
        """The time of the next call of `drop_late` that may drop something (s); inf if there is none."""
        return self._deadlines[0][0] if self._deadlines else math.inf

    def drop_late(self, now: float) -> bool:
        """Drop the requests that should have begun by `now` and have not. Return whether there were any."""
        dropped = False
        while self._deadlines and self._deadlines[0][0] <= now:
            _, id = heapq.heappop(self._deadlines)
            in_flight = self.by_id.get(id)
            if in_flight is not None and self._withdraw(in_flight, now):
                dropped = True
                self.ledger.drop_late(in_flight.request)
                in_flight.answer_error(_too_late(in_flight.request.deadline - now))
        return dropped

    def answer_all(self, error: HeadraceError, now: float) -> bool:
        """Give `error` to every caller, while the runtime goes on. Return whether a policy gave a request back.

        Requests that have not begun leave. Requests that have begun run on when they can, and then count as failed.
        """
        withdrawn = False
        for in_flight in list(self.by_id.values()):
            if in_flight.policy is None:
                self.fail(in_flight, error)
            elif self._withdraw(in_flight, now):
                withdrawn = True
                self.ledger.fail(in_flight.request)
                in_flight.answer_error(error)
            elif not in_flight.answer.done():
                in_flight.failed = True
                in_flight.answer_error(error)
                self._tasks.abandon(in_flight.request)
        return withdrawn

    def fail_all(self, error: HeadraceError) -> None:
        """Fail every request because the runtime ends. `release_memory` frees their memory when no worker writes it."""
        for in_flight in self.by_id.values():
            self.ledger.fail(in_flight.request)
            in_flight.answer_error(error)
            self._tasks.abandon(in_flight.request)
            self._unreleased.append(in_flight.request)
        self.by_id.clear()
        self.waiting.clear()
        self.running.clear()

    def release_memory(self) -> None:
        """Free the memory of the requests that `fail_all` failed."""
        for request in self._unreleased:
            self._tasks.release(request)
        self._unreleased.clear()

    def _shed(self, request: Request) -> None:
        self.ledger.submit(request)
        self.ledger.turn_away(request)

    def _withdraw(self, in_flight: InFlight, now: float) -> bool:
        """Take a request back from its policy. Return False, and change nothing, if it has begun."""
        if in_flight.policy is None or not in_flight.policy.withdraw(in_flight.request, now):
            return False
        self._remove(in_flight)
        return True

    def _remove(self, in_flight: InFlight) -> None:
        request = in_flight.request
        del self.by_id[request.id]
        (self.waiting if in_flight.started is None else self.running)[request.model] -= 1
        self._tasks.release(request)


def _too_late(left_s: float) -> TooLate:
    """Return the error of a request that has `left_s` until its deadline (negative after it)."""
    if left_s <= 0:
        return TooLate(f"the request had not begun by its deadline, {-left_s * 1e3:.1f} ms ago")
    return TooLate(f"the request had not begun by its deadline, in {left_s * 1e3:.1f} ms, and takes longer than that")
