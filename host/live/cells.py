"""The live runtime of cellular batching: drives the policy `cellular` with the wall clock and runs its tasks of cells
on worker processes (BatchMaker, EuroSys 2018, Section 5).

One asyncio loop owns all state, so nothing here needs a lock. Of a request only rows of the shared state arena travel:

- a chain keeps one row, which each of its cells reads and writes; a tree has one for each subtree that is done, and an
  inner node writes the row of its left child. So a request never needs more rows than its plan says, and it is let in
  only if there are as many;
- a worker has up to `ahead` tasks, which it runs in the order in which they were sent. A cell may follow the one
  that it depends on at once: the state, and a decoder's token, is in the row when its turn comes;
- a row goes back when its request has left and no task that was sent with it is still to be answered.

What may go wrong, and what happens then:

- a worker dies or exceeds the task timeout: all its tasks go back to the policy, which unfolds their requests anew.
  Those in the task that it was at have used up one of their `attempts`, and fail when it was the last;
- a cell raises: the requests of that task fail with its error, and the worker lives on;
- a task ends whose request was unfolded anew, or has left, meanwhile: that entry has run for nothing.

Every wait has a bound, and the accounting invariant is kept by the ledger at each step.
"""

import asyncio
import contextlib
import itertools
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError, Ledger, Request, Served, Task, UnknownModel, UsageError
from headrace.batching.graphs.cell_graph import CellGraph, CellModel
from headrace.batching.policies.cellular import MAX_TASKS, CellularBatching
from headrace.host.live.runtime import Execution, Overloaded, RuntimeClosed
from headrace.host.memory.states import ZERO, CellSettings, StateArena
from headrace.host.workers.networks import EOS, Network, Plan, plan
from headrace.host.workers.process import ModelError, WorkerDevice, WorkerLost, WorkerProcess, start_all, stop_all


@dataclass(frozen=True, slots=True)
class CellInference:
    """`output` is the final h or the root's h, (hidden,) float32, a copy; or the decoded tokens, with <eos> if it came.

    `execution` is the last task that ran it; `execute_s` the time of all its tasks in the network."""

    request_id: int
    output: NDArray[np.float32] | list[int]
    served: Served
    execution: Execution
    execute_s: float


@dataclass(slots=True, eq=False)
class _Unfolded:
    """A request's progress since the policy last unfolded it: the row of each state that a cell will still read."""

    rows: dict[int, int] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _InFlight:
    request: Request
    network: Network
    plan: Plan
    queued: float
    done: asyncio.Future[CellInference]
    unfolded: _Unfolded = field(default_factory=_Unfolded)
    attempts: int = 0
    started: float | None = None  # its first task
    execute_s: float = 0.0


@dataclass(slots=True)
class _Sent:
    """A task at a worker: of each entry what it was when it was sent, and all rows that it reads or writes."""

    task: Task
    entries: list[tuple[_InFlight, _Unfolded]]
    rows: list[int]
    handed: float


class CellRuntime:
    """Serves `networks` on one worker process a device. Use as an async context manager: it starts and ends them.

    `rows` is how many states the requests in flight may need; memory is taken as they are used. `ahead` is how many
    tasks a worker may have, `max_tasks` how many the policy forms in one decision. Raises UsageError, and WorkerLost if
    a worker cannot be started."""

    def __init__(
        self,
        networks: Sequence[Network],
        devices: Sequence[WorkerDevice],
        *,
        rows: int = 1 << 16,
        ahead: int = MAX_TASKS,
        max_tasks: int = MAX_TASKS,
        origin: float | None = None,
        task_timeout_s: float = 30.0,
        attempts: int = 2,
    ) -> None:
        """`origin` is the `time.monotonic()` value that all times count from (now, if None)."""
        self._networks = {network.name: network for network in networks}
        self._numbers = {network.name: number for number, network in enumerate(networks)}
        if not networks or len(self._networks) < len(networks):
            raise UsageError("give the runtime one or more networks, each under its own name")
        if ahead < 1 or attempts < 1 or rows < 1:
            raise UsageError(f"ahead is {ahead}, attempts {attempts}, rows {rows}; give 1 or more of each")
        self.ledger = Ledger()
        self.executions: list[Execution] = []
        self.workers_lost = 0
        self.origin = time.monotonic() if origin is None else origin
        self._rows = rows
        self._reserved = 0
        # A request that is unfolded anew takes rows while tasks that were sent before still hold the former ones.
        sent = max(
            shape.reads * kind.max_batch + kind.max_batch
            for network in networks
            for shape, kind in zip(network.shapes, network.types, strict=True)
        )
        self.arena = StateArena(rows + len(devices) * ahead * sent, max(network.hidden for network in networks))
        self.workers = tuple(
            WorkerProcess(
                device,
                "headrace.host.workers.cells",
                CellSettings(tuple(networks), device.device, device.threads, self.arena.fd, self.arena.layout),
                self.arena.fd,
            )
            for device in devices
        )
        models = [CellModel(network.name, network.types, self._unfold) for network in networks]
        self._policy = CellularBatching(models, len(devices), max_tasks)
        self._ahead = ahead
        self._task_timeout_s = task_timeout_s
        self._attempts = attempts
        self._ids = itertools.count()
        self._in_flight: dict[int, _InFlight] = {}
        self._sent: list[deque[_Sent]] = [deque() for _ in devices]
        self._attended: set[int] = set()  # workers whose answers are awaited
        self._up: set[int] = set()
        self._alive: set[int] = set(range(len(devices)))
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    async def __aenter__(self) -> "CellRuntime":
        try:
            await start_all(self.workers)
        except BaseException:
            await self.close()
            raise
        self._up = set(self._alive)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def now(self) -> float:
        """Seconds since `origin`."""
        return time.monotonic() - self.origin

    async def infer(
        self,
        model: str,
        value: Any,
        *,
        max_steps: int = 50,
        arrival: float | None = None,
        deadline: float = math.inf,
    ) -> CellInference:
        """Run one input through a network: a list of token ids, or a tree of them as nested pairs (see plans.Tree).

        `max_steps` is the most tokens that a seq2seq decodes; `arrival` is when the request came in, if it was not now
        (s from the origin). Raises BadInput, UnknownModel, Overloaded, ModelError, WorkerLost (after `attempts` tries)
        or RuntimeClosed."""
        if self._closed or not self._alive:
            raise RuntimeClosed("the runtime takes no requests: it was closed or has no worker left")
        id = next(self._ids)
        if model not in self._networks:
            raise UnknownModel.asked_for(id, model, self._networks)
        network = self._networks[model]
        unfolded = plan(network, value, max_steps)
        now = self.now()
        request = Request(
            id, model, now if arrival is None else arrival, deadline, unfolded.graph.cells, max(1, unfolded.limit)
        )
        self.ledger.submit(request)
        if self._reserved + unfolded.rows > self._rows:
            self.ledger.turn_away(request)
            raise Overloaded(
                f"the request needs {unfolded.rows} state rows and those in flight {self._reserved} of {self._rows}; "
                "send fewer at a time"
            )
        self._reserved += unfolded.rows
        flight = _InFlight(request, network, unfolded, now, asyncio.get_running_loop().create_future())
        self._in_flight[request.id] = flight
        self._policy.submit(request, now)
        self._dispatch()
        # A caller that gives up must not take the request out of the policy's hands: it runs, and is counted.
        return await asyncio.shield(flight.done)

    def _unfold(self, request: Request) -> CellGraph:
        """Called by the policy when a request begins, and when it must begin anew."""
        flight = self._in_flight[request.id]
        self._forget(flight)
        flight.unfolded = _Unfolded()
        return flight.plan.graph

    def _forget(self, flight: _InFlight) -> None:
        for row in flight.unfolded.rows.values():
            self.arena.release(row)
        flight.unfolded.rows.clear()

    def _dispatch(self) -> None:
        """Offer every worker that may have another task one, in turn, until there are none."""
        if self._closed:
            return
        workers = sorted(self._up)
        while workers:
            workers = [worker for worker in workers if self._offer(worker)]

    def _offer(self, worker: int) -> bool:
        """Send the worker one task; False if it has enough or there is none for it."""
        sent = self._sent[worker]
        if len(sent) >= self._ahead:
            return False
        now = self.now()
        task = self._policy.next_task(worker, now)
        if task is None:
            return False
        self._send(worker, task, now)
        if worker not in self._attended:
            self._attended.add(worker)
            self._spawn(self._attend(worker))
        return True

    def _send(self, worker: int, task: Task, now: float) -> None:
        reads_each = self._networks[task.model].shapes[task.start].reads
        entries: list[tuple[_InFlight, _Unfolded]] = []
        tokens: list[int] = []
        reads: list[int] = []
        writes: list[int] = []
        held: list[int] = []
        for request, cell in zip(task.requests, task.cells, strict=True):
            flight = self._in_flight[request.id]
            unfolded = flight.unfolded
            own = [unfolded.rows.pop(source) for source in flight.plan.sources(cell)]
            row = own[0] if own else self.arena.take()
            unfolded.rows[cell] = row
            self.arena.hold(row)
            held += own or [row]  # the other children's rows are no longer the request's, and only held by this task
            entries.append((flight, unfolded))
            tokens.append(flight.plan.token(cell))
            reads += own or [ZERO] * reads_each
            writes.append(row)
            if flight.started is None:
                flight.started = now
        message = {"task": task.id, "network": self._numbers[task.model], "cell": task.start}
        self.workers[worker].send({**message, "tokens": tokens, "reads": reads, "writes": writes})
        self._sent[worker].append(_Sent(task, entries, held, now))

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """What raises in the background is a bug, in a policy or here. Nobody shall wait for ever because of it."""
        self._background.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        self._alive.clear()
        self._up.clear()
        for flight in list(self._in_flight.values()):
            self._fail(flight, RuntimeClosed(f"the runtime stopped on an error of its own: {task.exception()!r}"))

    async def _attend(self, worker: int) -> None:
        """Take the worker's answers in order for as long as it has tasks."""
        sent = self._sent[worker]
        before = 0.0  # the end of the task before
        while sent and not self._closed:
            answer: dict[str, Any] = {}
            error: HeadraceError | None = None
            try:
                answer = await self.workers[worker].receive(self._task_timeout_s)
            except (ModelError, WorkerLost) as raised:
                error = raised
            if self._closed:
                return
            now = self.now()
            task = sent[0].task
            self.executions.append(
                Execution(
                    worker, task, max(before, sent[0].handed), now,
                    answer.get("gather_s", 0.0), answer.get("execute_s", 0.0), str(error) if error else None,
                )
            )  # fmt: skip
            before = now
            if isinstance(error, WorkerLost):
                self._lose(worker, error)
            elif error is not None:
                self._raised(sent.popleft(), error)
            else:
                self._end(sent.popleft(), answer.get("tokens"), self.executions[-1])
            self.ledger.check()
            self._dispatch()
        self._attended.discard(worker)

    def _is_current(self, flight: _InFlight, unfolded: _Unfolded) -> bool:
        """Whether the request is in flight and has not been unfolded anew since."""
        return flight.unfolded is unfolded and flight.request.id in self._in_flight

    def _end(self, sent: _Sent, chosen: list[int] | None, execution: Execution) -> None:
        current = [self._is_current(*entry) for entry in sent.entries]
        ended: list[Request] = []
        for flight in {flight for (flight, _), counts in zip(sent.entries, current, strict=True) if counts}:
            flight.execute_s += execution.execute_s
        if chosen is not None:
            for (flight, unfolded), counts, token in zip(sent.entries, current, chosen, strict=True):
                if counts:
                    unfolded.tokens.append(token)
                    if token == EOS or len(unfolded.tokens) == flight.plan.limit:
                        ended.append(flight.request)
        task = sent.task.ended_at(sent.task.stop, ended=tuple(ended))
        for request in self._policy.complete(task, execution.finished):
            self._finish(request, execution)
        self._release(sent)

    def _release(self, sent: _Sent) -> None:
        for row in sent.rows:
            self.arena.release(row)

    def _raised(self, sent: _Sent, error: HeadraceError) -> None:
        """What has begun anew since the task was sent does not fail with it."""
        failed = {flight.request.id: flight for flight, unfolded in sent.entries if self._is_current(flight, unfolded)}
        self._put_back(sent, failed, error)

    def _put_back(self, sent: _Sent, failed: dict[int, _InFlight], error: HeadraceError) -> None:
        keep = {request.id: request for request in sent.task.requests if request.id not in failed}
        self._policy.complete(sent.task.lost(keep.values()), self.now())
        self._release(sent)
        for flight in failed.values():
            self._fail(flight, error)

    def _lose(self, worker: int, error: HeadraceError) -> None:
        self.workers_lost += 1
        self._up.discard(worker)
        sent = self._sent[worker]
        failed: dict[int, _InFlight] = {}
        at = {flight.request.id: flight for flight, unfolded in sent[0].entries if self._is_current(flight, unfolded)}
        for id, flight in at.items():
            flight.attempts += 1
            if flight.attempts >= self._attempts:
                failed[id] = flight
        self._put_back(sent.popleft(), failed, error)
        while sent:
            self._put_back(sent.popleft(), {}, error)
        self._spawn(self._revive(worker))

    async def _revive(self, worker: int) -> None:
        try:
            await self.workers[worker].restart()
        except WorkerLost as error:
            self._alive.discard(worker)
            if not self._alive:
                for flight in list(self._in_flight.values()):
                    self._fail(flight, RuntimeClosed(f"no worker is left: {error}"))
            return
        if not self._closed:
            self._up.add(worker)
            self._dispatch()

    def _finish(self, request: Request, execution: Execution) -> None:
        flight = self._in_flight.pop(request.id)
        assert flight.started is not None
        served = Served(
            arrival=request.arrival,
            queued=flight.queued,
            started=flight.started,
            finished=execution.finished,
            deadline=request.deadline,
            batch=execution.task.batch_size,
        )
        output: NDArray[np.float32] | list[int] = flight.unfolded.tokens
        if flight.plan.limit == 0:
            (row,) = flight.unfolded.rows.values()
            output = self.arena.states[row, 0, : flight.network.hidden].copy()
        self._leave(flight)
        self.ledger.finish(request)
        if not flight.done.done():
            flight.done.set_result(CellInference(request.id, output, served, execution, flight.execute_s))

    def _fail(self, flight: _InFlight, error: HeadraceError) -> None:
        del self._in_flight[flight.request.id]
        self._leave(flight)
        self.ledger.fail(flight.request)
        if not flight.done.done():
            flight.done.set_exception(error)
            flight.done.exception()  # a caller that gave up never looks; that is no error of the loop's

    def _leave(self, flight: _InFlight) -> None:
        self._forget(flight)
        self._reserved -= flight.plan.rows

    async def close(self) -> None:
        """Fail what is in flight and end the workers."""
        if self._closed:
            return
        self._closed = True
        for task in list(self._background):
            task.cancel()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*self._background, return_exceptions=True), timeout=5.0)
        await stop_all(self.workers)
        for flight in list(self._in_flight.values()):
            self._fail(flight, RuntimeClosed("the runtime was closed while the request was in flight"))
        for sent in itertools.chain(*self._sent):
            self._release(sent)
        for tasks in self._sent:
            tasks.clear()
        self.arena.close()
        self.ledger.check()
