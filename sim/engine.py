"""The discrete-event engine: it drives any `Policy` in virtual time. A run is a function of the workload alone.

At each time at which something happens, the engine takes these steps in order:

1. It submits all requests that are ready.
2. It completes all tasks that end.
3. It drops requests that are too late, if that option is on.
4. It offers a task to every idle worker.

A preemptible task ends at the first node boundary after an event. Events are an arrival, a drop, a wake-up, the end of
another worker's task, and its start at the same instant. The engine computes that boundary from the node times and does
not visit the nodes in between. If a task ends in this way and then continues unchanged, that is no event for the other
workers. So a policy whose answer does not change between events behaves as if the engine asked it at every node.

This file is compiled (setup.py). The requests' times are plain lists for that reason.
"""

import heapq
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from headrace.batching.accounting import Ledger
from headrace.batching.checked_policy import CheckedPolicy
from headrace.batching.errors import PolicyError, UsageError
from headrace.batching.graphs.execution import Decoding, NodeTimes
from headrace.batching.policy import Policy
from headrace.batching.request import Request, Task
from headrace.batching.results import Totals, percentiles_ms
from headrace.sim.cell_memory import CellMemory
from headrace.sim.interrupt import look_for_signals

STEPS = 256  # a tally distinguishes so many latencies between one and its double: 0.3 %
TURNS_BETWEEN_LOOKS = 1 << 14  # at most some milliseconds

Times = dict[str, NodeTimes] | list[dict[str, NodeTimes]]


class Arrivals:
    """The requests of a run: one entry for each request in each list (see `Request`), in the order in which they come
    to the policy.

    A request comes to the policy when it is `ready`. Without preprocessing it is ready on arrival."""

    def __init__(
        self,
        models: list[str],
        arrival: list[float],
        deadline: list[float],
        input_len: list[float],
        output_len: list[int],
        ready: list[float] | None = None,
    ) -> None:
        self.models: list[str] = models
        self.arrival: list[float] = arrival
        self.deadline: list[float] = deadline
        self.input_len: list[float] = input_len
        self.output_len: list[int] = output_len
        self.preprocessed: bool = ready is not None
        self.ready: list[float] = arrival if ready is None else ready
        self._arrays: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None = None

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return `arrival`, `ready` and `deadline` as arrays. They are made once, because a sweep serves the same
        arrivals many times."""
        if self._arrays is None:
            arrival = np.array(self.arrival)
            ready = np.array(self.ready) if self.preprocessed else arrival
            self._arrays = arrival, ready, np.array(self.deadline)
        return self._arrays


class TaskRecord:
    """A task that ran on a worker from `started` to `ended` (s)."""

    def __init__(self, worker: int, task: Task, started: float, ended: float) -> None:
        self.worker: int = worker
        self.task: Task = task
        self.started: float = started
        self.ended: float = ended


class Outcome:
    """When each request first ran and ended (s, by its number in the arrivals, -1 for never), and the work of the
    workers.

    `worker_busy_s` has one entry for each worker. `node_runs` counts executions of nodes. `request_node_runs` counts
    them once for each request of the batch. `in_system_s` is the integral over time of the number of requests that wait
    in the policy or run. `cell_memory` tells how often tasks of cells gathered states."""

    def __init__(self, requests: int) -> None:
        self.started: list[float] = [-1.0] * requests
        self.finished: list[float] = [-1.0] * requests
        self.ledger: Ledger = Ledger()
        self.worker_busy_s: list[float] = []
        self.tasks: int = 0
        self.node_runs: int = 0
        self.request_node_runs: int = 0
        self.ran: list[TaskRecord] = []
        self.in_system_s: float = 0.0
        self.cell_memory: CellMemory = CellMemory()

    @property
    def busy_s(self) -> float:
        """Return the busy seconds of all workers together."""
        return sum(self.worker_busy_s)

    def comes(self, request: Request, now: float) -> None:
        """Note that a request comes to the policy after its preprocessing."""

    def begins(self, request: Request, now: float) -> None:
        """Note that a request runs. It may have run before, because node 0 may be in a section that repeats."""
        if self.started[request.id] < 0.0:
            self.started[request.id] = now

    def ends(self, request: Request, now: float) -> None:
        self.finished[request.id] = now

    def drops(self, request: Request) -> None:
        """Note that a request is dropped before it ran."""


class Durations:
    """A histogram of seconds in steps of a factor 2 ** (1 / STEPS), from one nanosecond on.

    Mean and maximum are exact."""

    def __init__(self) -> None:
        self._counts: list[int] = [0] * (64 * STEPS)
        self._number: int = 0
        self._sum_s: float = 0.0
        self._longest_s: float = 0.0

    def add(self, seconds: float) -> None:
        self._number += 1
        self._sum_s += seconds
        self._longest_s = max(self._longest_s, seconds)
        step = int(STEPS * (math.log(max(seconds, 1e-9)) - math.log(1e-9)) / math.log(2.0))
        self._counts[min(step, len(self._counts) - 1)] += 1

    def add_all(self, seconds: list[float]) -> None:
        for each in seconds:
            self.add(each)

    def percentiles_ms(self) -> dict[str, float | None]:
        """Return the same keys as `results.percentiles_ms`, in milliseconds."""
        if self._number == 0:
            return percentiles_ms(())
        below = np.cumsum(self._counts)
        percentiles: dict[str, float | None] = {"mean": 1e3 * self._sum_s / self._number}
        for percent in (50, 90, 95, 99):
            step = int(np.searchsorted(below, percent / 100 * self._number))
            percentiles[f"p{percent}"] = min(1e-6 * 2.0 ** ((step + 0.5) / STEPS), 1e3 * self._longest_s)
        percentiles["max"] = 1e3 * self._longest_s
        return percentiles


class Tally(Outcome):
    """An outcome that keeps nothing of a request after its end, for runs of any length."""

    def __init__(self) -> None:
        super().__init__(0)
        self._ready: dict[int, float] = {}  # when each preprocessed request that has not begun was ready
        self._waited: dict[int, float] = {}  # seconds in the queue, of requests in flight
        self._latencies: Durations = Durations()
        self._late: int = 0
        self._queue_s: float = 0.0  # the sum over requests
        self._last: float = 0.0
        self.first: float = math.inf  # the time of the first arrival

    def comes(self, request: Request, now: float) -> None:
        self._ready[request.id] = now

    def begins(self, request: Request, now: float) -> None:
        if request.id not in self._waited:
            self._waited[request.id] = now - self._ready.pop(request.id, request.arrival)

    def ends(self, request: Request, now: float) -> None:
        self._latencies.add(now - request.arrival)
        self._queue_s += self._waited.pop(request.id)
        self._late += 1 if now > request.deadline else 0
        self._last = now
        self.first = min(self.first, request.arrival)

    def drops(self, request: Request) -> None:
        self._ready.pop(request.id, 0.0)

    def forgets(self, request: Request) -> None:
        """Forget a request that was lost with its server, whether it had begun or not. If it comes again, its wait
        starts again."""
        self._ready.pop(request.id, 0.0)
        self._waited.pop(request.id, 0.0)
        self.cell_memory.forget(request)

    def totals(self) -> Totals:
        finished = self.ledger.finished
        return Totals(
            finished,
            self._late,
            self._last - self.first if finished else 0.0,
            self._latencies.percentiles_ms(),
            self._queue_s / finished if finished else 0.0,
        )


class _Deadlines:
    """The latest start of each request that waits in the policy."""

    def __init__(self) -> None:
        self._waiting: set[int] = set()
        self._heap: list[tuple[float, int, Request]] = []  # it may hold requests that have begun

    def add(self, request: Request, at: float) -> None:
        if at < math.inf:
            self._waiting.add(request.id)
            heapq.heappush(self._heap, (at, request.id, request))

    def begins(self, request: Request) -> None:
        self._waiting.discard(request.id)

    def next(self) -> float:
        """Return the earliest latest start (s); inf if no request waits."""
        while self._heap and self._heap[0][1] not in self._waiting:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def pop(self) -> Request:
        """Remove and return the request whose time `next` returned."""
        request = heapq.heappop(self._heap)[2]
        self._waiting.discard(request.id)
        return request


class _Worker:
    def __init__(self, number: int, known: dict[str, NodeTimes]) -> None:
        self.number: int = number
        self.known: dict[str, NodeTimes] = known  # by model
        self.busy_s: float = 0.0
        self.task: Task | None = None
        self.times: NodeTimes | None = None  # those of the model of its last task
        self.model: str = ""
        self.length: float = 1.0
        self.started: float = 0.0
        self.stop: int = 0  # the node at which the task will end; `end` is the time
        self.end: float = math.inf
        self.cut: bool = True  # the task ends at the next boundary already, or has none, or the worker is idle
        self.short: bool = False  # the task was shortened in this way
        self.left: Task | None = None  # the task that was shortened, until the next one is known


def run(
    policy: Policy,
    arrivals: Arrivals,
    times: Times,
    workers: int,
    record: bool = False,
    open_from: Callable[[Request], int] | None = None,
    drop_late: bool = False,
) -> Outcome:
    """Serve all arrivals to the end.

    Args:
        policy: The policy that is driven.
        arrivals: The requests.
        times: Node latencies by model, one mapping for all workers or one for each.
        workers: The number of workers.
        record: List every task as it ran in `Outcome.ran`.
        open_from: Returns the number of the first cell of a request's open chain, or -1 if it has none. It is given for
            a policy with tasks of cells. The chain ends with as many cells as the request's output is long.
        drop_late: Withdraw a request from the policy that has not begun by `Policy.latest_start`, and count it as
            dropped.

    Raises:
        UsageError: `times` are of another number of workers.
        PolicyError: The policy breaks a rule, or leaves requests waiting though nothing more will happen.
    """
    outcome = Outcome(len(arrivals.arrival))
    _serve(Server(policy, outcome, times, workers, record, open_from, drop_late), iter([arrivals]), outcome)
    return outcome


def run_until(
    policy: Policy,
    blocks: Callable[[Outcome], Iterator[Arrivals]],
    requests: int,
    times: Times,
    workers: int,
    open_from: Callable[[Request], int] | None = None,
    drop_late: bool = False,
) -> Outcome:
    """Do the same for at most `requests` arrivals, in blocks that may end early.

    `blocks` receives the outcome. Whenever it is asked for the next block, it sees what has become of the requests
    before, up to just before the last one came."""
    outcome = Outcome(requests)
    _serve(Server(policy, outcome, times, workers, False, open_from, drop_late), blocks(outcome), outcome)
    return outcome


def run_stream(
    policy: Policy,
    blocks: Iterator[Arrivals],
    times: Times,
    workers: int,
    open_from: Callable[[Request], int] | None = None,
    drop_late: bool = False,
) -> Tally:
    """Do the same for arrivals in blocks, in order, and forget them. Memory is bounded by one block and the requests in
    flight."""
    tally = Tally()
    _serve(Server(policy, tally, times, workers, False, open_from, drop_late), blocks, tally)
    return tally


def _pool(times: Times, workers: int) -> list[_Worker]:
    if isinstance(times, dict):
        return [_Worker(number, times) for number in range(workers)]
    if len(times) != workers:
        raise UsageError(f"node times of {len(times)} workers for {workers}; give one mapping for each, or one for all")
    return [_Worker(number, known) for number, known in enumerate(times)]


def next_block(blocks: Iterator[Arrivals]) -> Arrivals | None:
    """Return the next block that is not empty, or None."""
    for block in blocks:
        if block.arrival:
            return block
    return None


class Server:
    """One policy with its workers.

    The driver submits the requests of one instant and then calls `turn`, at every such instant and at each time that
    `upcoming` returns."""

    def __init__(
        self,
        policy: Policy,
        outcome: Outcome,
        times: Times,
        workers: int,
        record: bool = False,
        open_from: Callable[[Request], int] | None = None,
        drop_late: bool = False,
    ) -> None:
        self.in_flight: int = 0  # requests that were submitted and have not ended
        self._outcome: Outcome = outcome
        self._pool: list[_Worker] = _pool(times, workers)
        sections = {model: known.sections for worker in self._pool[:1] for model, known in worker.known.items()}
        self._policy: CheckedPolicy = CheckedPolicy(policy, sections, open_from is not None, outcome.ledger)
        self._record: bool = record
        self._open_from: Callable[[Request], int] | None = open_from
        self._cellular: bool = open_from is not None  # a running request may then wait as well
        self._opens: dict[int, int] = {}  # the first cell of the open chain, of requests in flight
        self._decoding: Decoding = Decoding()
        self._deadlines: _Deadlines | None = _Deadlines() if drop_late else None
        self._idle: int = workers
        self._running: int = 0  # requests in running tasks
        self._now: float = 0.0
        self._came: bool = False
        self._next_end: float = math.inf
        self._wakeup: float = math.inf

    def upcoming(self) -> float:
        """Return when the next turn is due if no request comes; inf if none is."""
        next_end = math.inf
        for worker in self._pool:
            if worker.end < next_end:
                next_end = worker.end
        self._next_end = next_end
        self._wakeup = math.inf
        if self._idle > 0 and (self._cellular or self._running < self.in_flight):  # otherwise no request waits
            self._wakeup = self._policy.wakeup(self._now)
        upcoming = min(next_end, self._wakeup)
        if self._deadlines is not None:
            upcoming = min(upcoming, self._deadlines.next())
        return upcoming

    def submit(self, request: Request, now: float, preprocessed: bool) -> None:
        self._goes_to(now)
        self._outcome.ledger.submit(request)
        if preprocessed:
            self._outcome.comes(request, now)
        self._policy.submit(request, now)
        if self._deadlines is not None:
            self._deadlines.add(request, self._policy.latest_start(request))
        if self._open_from is not None:
            self._opens[request.id] = self._open_from(request)
        self.in_flight += 1
        self._came = True

    def turn(self, now: float) -> None:
        """Handle everything that happens at this instant, after its requests were submitted.

        `upcoming` must have been called since the last turn."""
        self._goes_to(now)
        outcome, pool, deadlines, opens = self._outcome, self._pool, self._deadlines, self._opens
        ends = self._next_end <= now
        happened = self._came or self._wakeup <= now or (deadlines is not None and deadlines.next() <= now)
        self._came = False
        if ends and not happened:
            for worker in pool:
                happened = happened or (worker.end <= now and not worker.short)
        if happened:
            for worker in pool:
                if not worker.cut and worker.end > now:
                    _end_at_next_boundary(worker, now)
                    ends = ends or worker.end <= now  # the worker may stand at a boundary right now
        if ends:
            for worker in pool:
                if worker.end <= now:
                    self._ends(worker, now)
        if deadlines is not None:
            while deadlines.next() <= now:
                request = deadlines.pop()
                if self._policy.withdraw(request, now):
                    outcome.ledger.drop_late(request)
                    outcome.drops(request)
                    opens.pop(request.id, -1)
                    self.in_flight -= 1
        if self._idle > 0 and (self._cellular or self._running < self.in_flight):
            for worker in pool:
                if worker.task is None:
                    self._offers(worker, now)

    def left_waiting(self) -> PolicyError:
        """Return the error for requests that wait though nothing more will happen."""
        return self._policy.left_waiting(self.in_flight, self._now)

    def worker_busy_s(self) -> list[float]:
        return [worker.busy_s for worker in self._pool]

    def _goes_to(self, now: float) -> None:
        if now > self._now:
            self._outcome.in_system_s += self.in_flight * (now - self._now)
            self._now = now

    def _ends(self, worker: _Worker, now: float) -> None:
        """Complete the task of a worker."""
        outcome, task = self._outcome, worker.task
        assert task is not None and worker.times is not None
        ended = task
        if task.preemptible:
            ended = self._decoding.end(task, worker.stop, worker.times.sections)
        elif task.cells:
            ended = _ended_chains(task, self._opens)
        if self._record:
            outcome.ran.append(TaskRecord(worker.number, ended, worker.started, now))
        nodes = ended.stop - ended.start
        worker.busy_s += now - worker.started
        outcome.tasks += 1
        outcome.node_runs += nodes
        outcome.request_node_runs += nodes * len(ended.requests)
        worker.task = None
        worker.end = math.inf
        worker.cut = True
        worker.left = ended if worker.short else None
        worker.short = False
        self._idle += 1
        self._running -= len(ended.requests)
        for request in self._policy.complete(ended, now):
            outcome.ledger.finish(request)
            outcome.ends(request, now)
            if self._cellular:
                del self._opens[request.id]
                outcome.cell_memory.forget(request)
            self.in_flight -= 1

    def _offers(self, worker: _Worker, now: float) -> None:
        """Offer a task to an idle worker."""
        task = self._policy.next_task(worker.number, now)
        before = worker.left
        worker.left = None
        if task is None and before is None:
            return
        if before is None or task is None or not _goes_on(before, task):
            for other in self._pool:
                if not other.cut:
                    _end_at_next_boundary(other, now)
        if task is not None:
            if worker.times is None or task.model != worker.model:
                worker.model = task.model
                worker.times = worker.known[task.model]
            _start(worker, task, worker.times, self._decoding, now)
            if task.cells and worker.times.copying is not None:
                worker.end += self._outcome.cell_memory.moves(worker.number, task, worker.times.copying)
            self._idle -= 1
            self._running += len(task.requests)
            if task.start == 0 or self._cellular:
                for request in task.requests:
                    self._outcome.begins(request, now)
                    if self._deadlines is not None:
                        self._deadlines.begins(request)


def _serve(server: Server, blocks: Iterator[Arrivals], outcome: Outcome) -> None:
    block = next_block(blocks)
    place = 0  # the place of the next arrival in its block
    following = 0  # the number of the next arrival
    comes = math.inf if block is None else block.ready[0]  # the time at which the next arrival is ready
    now = 0.0
    turns = 0
    while server.in_flight > 0 or block is not None:
        turns += 1
        if turns % TURNS_BETWEEN_LOOKS == 0:
            look_for_signals()
        upcoming = min(server.upcoming(), comes)
        if upcoming == math.inf:
            raise server.left_waiting()
        now = max(now, upcoming)
        while block is not None and comes <= now:
            server.submit(nth(block, place, following), now, block.preprocessed)
            following += 1
            place += 1
            if place == len(block.arrival):
                block = next_block(blocks)
                place = 0
            comes = math.inf if block is None else block.ready[place]
        server.turn(now)
    outcome.worker_busy_s = server.worker_busy_s()


def nth(block: Arrivals, place: int, number: int) -> Request:
    """Return the request at a place of a block, under this number."""
    return Request(
        number,
        block.models[place],
        block.arrival[place],
        block.deadline[place],
        block.input_len[place],
        block.output_len[place],
    )


def _goes_on(before: Task, task: Task) -> bool:
    """Return whether the task is the same batch, from where it was ended."""
    return task.requests is before.requests and task.start == before.stop


def _start(worker: _Worker, task: Task, times: NodeTimes, decoding: Decoding, now: float) -> None:
    worker.task = task
    worker.started = now
    if task.preemptible:
        worker.length = times.task_length(task)
        worker.stop = decoding.stop(task, times.sections)
        worker.end = now + times.duration(len(task.requests), worker.length, task.start, worker.stop)
        worker.cut = False
    elif task.cells:
        worker.stop = task.stop
        worker.end = now + times.duration(len(task.cells), 1.0, task.start, task.stop)
    else:
        worker.stop = task.stop
        worker.end = now + times.whole_task(task)


def _ended_chains(task: Task, opens: dict[int, int]) -> Task:
    """Return the task with the requests whose open chain it completes."""
    ended: list[Request] = []
    for request, cell in zip(task.requests, task.cells, strict=True):
        first = opens.get(request.id, -1)
        if 0 <= first <= cell and cell - first + 1 >= request.output_len:
            ended.append(request)
    return task.ended_at(task.stop, tuple(ended)) if ended else task


def _end_at_next_boundary(worker: _Worker, now: float) -> None:
    task, times = worker.task, worker.times
    assert task is not None and times is not None
    worker.cut = True
    batch = len(task.requests)
    stop = times.boundary(batch, worker.length, task.start, worker.stop, now - worker.started)
    if stop < worker.stop:
        worker.stop = stop
        worker.short = True
        worker.end = worker.started + times.duration(batch, worker.length, task.start, stop)
