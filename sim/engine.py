"""The discrete-event engine: drives any `Policy` in virtual time. A run is a function of the workload alone.

At each time at which something happens, first all arrivals of that time are submitted, then all tasks that end then are
completed, then what is too late is dropped (by option), then every idle worker is offered a task. A preemptible task is
ended at the first node boundary after something happened (an arrival, the end of another worker's task, a drop, a
wake-up), which the node times tell without visiting the nodes in between. Policies whose answer does not change between
events thus see the same as if they were asked at every node.

This file is compiled (setup.py); the requests' times are kept in plain lists for that reason.
"""

import heapq
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from headrace.batching.accounting import Ledger
from headrace.batching.errors import HeadraceError
from headrace.batching.graphs.execution import Decoding, NodeTimes
from headrace.batching.policy import Policy
from headrace.batching.request import Request, Task
from headrace.sim.interrupt import look_for_signals

TURNS_BETWEEN_LOOKS = 1 << 14  # some milliseconds


class Arrivals:
    """What is to be served, in order of arrival: one entry a request in each list (see `Request`)."""

    def __init__(
        self,
        models: list[str],
        arrival: list[float],
        deadline: list[float],
        input_len: list[float],
        output_len: list[int],
    ) -> None:
        self.models: list[str] = models
        self.arrival: list[float] = arrival
        self.deadline: list[float] = deadline
        self.input_len: list[float] = input_len
        self.output_len: list[int] = output_len
        self._arrays: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`arrival` and `deadline` as arrays, made once: a sweep serves the same arrivals many times."""
        if self._arrays is None:
            self._arrays = np.array(self.arrival), np.array(self.deadline)
        return self._arrays


class Ran:
    """A task as it ran on a worker from `started` to `ended` (s)."""

    def __init__(self, worker: int, task: Task, started: float, ended: float) -> None:
        self.worker: int = worker
        self.task: Task = task
        self.started: float = started
        self.ended: float = ended


class Outcome:
    """When each request (by number in the arrivals) first ran and ended, -1 if it did not; and what the workers did.

    `node_runs` counts node executions and `request_node_runs` those times the batch they were executed for."""

    def __init__(self, requests: int) -> None:
        self.started: list[float] = [-1.0] * requests
        self.finished: list[float] = [-1.0] * requests
        self.ledger: Ledger = Ledger()
        self.busy_s: float = 0.0
        self.tasks: int = 0
        self.node_runs: int = 0
        self.request_node_runs: int = 0
        self.ran: list[Ran] = []
        self.in_system_s: float = 0.0  # integral over time of the number of requests in the system


class _Deadlines:
    """Of the requests that have come and, as far as `started` tells, not begun."""

    def __init__(self, started: list[float]) -> None:
        self._started: list[float] = started
        self._heap: list[tuple[float, int, Request]] = []  # may hold some that have begun

    def add(self, request: Request) -> None:
        if request.deadline < math.inf:
            heapq.heappush(self._heap, (request.deadline, request.id, request))

    def next(self) -> float:
        """The first of them; inf if there is none."""
        while self._heap and self._started[self._heap[0][1]] >= 0.0:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def pop(self) -> Request:
        """The request whose deadline `next` named."""
        return heapq.heappop(self._heap)[2]


class _Worker:
    def __init__(self, number: int) -> None:
        self.number: int = number
        self.task: Task | None = None
        self.times: NodeTimes | None = None
        self.length: float = 1.0
        self.started: float = 0.0
        self.stop: int = 0  # where the task will end, and when
        self.end: float = math.inf
        self.cut: bool = True  # it ends at the next boundary already, or has none, or is idle


def run(
    policy: Policy,
    arrivals: Arrivals,
    times: dict[str, NodeTimes],
    workers: int,
    record: bool = False,
    open_from: Callable[[Request], int] | None = None,
    drop_late: bool = False,
) -> Outcome:
    """Serve all arrivals to the end. With `record`, `Outcome.ran` lists every task as it ran.

    For a policy with tasks of cells, `open_from` tells the number of the first cell of a request's open chain, -1 if it
    has none; the chain ends with as many cells as the request's output is long.

    With `drop_late`, a request that has not begun when its deadline comes is withdrawn from the policy then, and counts
    as dropped.

    Raises HeadraceError if the policy leaves requests waiting with nothing to wait for."""
    arrival, deadline = arrivals.arrival, arrivals.deadline
    models, input_len, output_len = arrivals.models, arrivals.input_len, arrivals.output_len
    requests = len(arrival)
    outcome = Outcome(requests)
    ledger = outcome.ledger
    decoding = Decoding()
    pool = [_Worker(number) for number in range(workers)]
    idle = workers
    following = 0  # the next arrival
    left = 0  # requests that have left the system
    running = 0  # requests in running tasks
    deadlines = _Deadlines(outcome.started) if drop_late else None
    cellular = open_from is not None  # then a request that runs may wait as well
    opens = [-1] * requests if cellular else []
    now = 0.0
    turns = 0
    while left < requests:
        turns += 1
        if turns % TURNS_BETWEEN_LOOKS == 0:
            look_for_signals()
        next_arrival = arrival[following] if following < requests else math.inf
        next_end = math.inf
        for worker in pool:
            if worker.end < next_end:
                next_end = worker.end
        upcoming = min(next_arrival, next_end)
        if deadlines is not None:
            upcoming = min(upcoming, deadlines.next())
        if idle > 0 and (cellular or running < following - left):  # else nobody waits
            wakeup = policy.wakeup()
            if wakeup < upcoming:
                upcoming = wakeup
        if upcoming == math.inf:
            raise HeadraceError(
                f"the policy left {requests - left} requests waiting at {now} s though all workers are idle"
            )
        if upcoming > now:
            outcome.in_system_s += (following - left) * (upcoming - now)
            now = upcoming
        while following < requests and arrival[following] <= now:
            request = Request(
                following,
                models[following],
                arrival[following],
                deadline[following],
                input_len[following],
                output_len[following],
            )
            ledger.submit(request)
            policy.submit(request, now)
            if deadlines is not None:
                deadlines.add(request)
            if open_from is not None:
                opens[following] = open_from(request)
            following += 1
        ends = next_end <= now
        for worker in pool:
            if not worker.cut and worker.end > now:
                _end_at_next_boundary(worker, now)
                ends = ends or worker.end <= now  # it stands at a boundary right now
        if ends:
            for worker in pool:
                if worker.end > now:
                    continue
                task = worker.task
                assert task is not None and worker.times is not None
                ended = task
                if task.preemptible:
                    ended = decoding.end(task, worker.stop, worker.times.sections)
                elif task.cells:
                    ended = _ended_chains(task, opens)
                if record:
                    outcome.ran.append(Ran(worker.number, ended, worker.started, now))
                nodes = ended.stop - ended.start
                outcome.busy_s += now - worker.started
                outcome.tasks += 1
                outcome.node_runs += nodes
                outcome.request_node_runs += nodes * len(ended.requests)
                worker.task = None
                worker.end = math.inf
                worker.cut = True
                idle += 1
                running -= len(ended.requests)
                for request in policy.complete(ended, now):
                    ledger.finish(request)
                    outcome.finished[request.id] = now
                    left += 1
        if deadlines is not None:
            while deadlines.next() <= now:
                request = deadlines.pop()
                if policy.withdraw(request, now):
                    ledger.drop_late(request)
                    left += 1
        if idle > 0 and (cellular or running < following - left):
            for worker in pool:
                if worker.task is None:
                    task = policy.next_task(worker.number, now)
                    if task is not None:
                        _start(worker, task, times[task.model], decoding, now)
                        idle -= 1
                        running += len(task.requests)
                        if task.start == 0 or cellular:
                            for request in task.requests:
                                if outcome.started[request.id] < 0.0:  # node 0 may be in a section that goes round
                                    outcome.started[request.id] = now
    return outcome


def _start(worker: _Worker, task: Task, times: NodeTimes, decoding: Decoding, now: float) -> None:
    worker.task = task
    worker.times = times
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


def _ended_chains(task: Task, opens: list[int]) -> Task:
    """The task with the requests whose open chain is complete with it."""
    ended: list[Request] = []
    for request, cell in zip(task.requests, task.cells, strict=True):
        first = opens[request.id]
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
        worker.end = worker.started + times.duration(batch, worker.length, task.start, stop)
