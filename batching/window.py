"""Whole-graph batching with a size limit and a time window: the mechanism that several policies share.

Each model has a first-in-first-out queue. Its batch is ready when `max_batch` requests wait, or when the oldest has
waited `window_s`. An idle worker gets the ready batch whose oldest request has waited longest, and runs every node of
the graph. `serial`, `graph` and `preba` differ only in how they choose the two limits.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.batching.errors import UnknownModel, UsageError
from headrace.batching.model_graph import ModelGraph
from headrace.batching.request import Request, Task

_KEEP = 1024  # places of entries that have left, before they are given up


@dataclass(frozen=True)
class BatchLimits:
    """`max_batch` in requests; `window_s` is the longest that the oldest request waits for others to join it."""

    max_batch: int
    window_s: float

    def __post_init__(self) -> None:
        if self.max_batch < 1:
            raise UsageError(f"max_batch is {self.max_batch}: give a batch limit of 1 or more")
        if not self.window_s >= 0:  # also refuses NaN
            raise UsageError(f"window_s is {self.window_s}: give a batching window of 0 s or more")


class _Queue:
    """First in, first out: entries before `head` have left. `since` is when each request entered, as preprocessing lies
    between its arrival and then. (Lists with a head, because compiled code reads these much faster than a deque.)"""

    def __init__(self, graph: ModelGraph, limits: BatchLimits) -> None:
        self.model: str = graph.name
        self.nodes: int = len(graph.nodes)
        self.max_batch: int = limits.max_batch
        self.window_s: float = limits.window_s
        self.requests: list[Request] = []
        self.since: list[float] = []
        self.head: int = 0

    def due(self) -> float:
        """When the batch is ready by its window alone; inf if nothing waits."""
        return self.since[self.head] + self.window_s if self.head < len(self.since) else math.inf

    def take(self) -> tuple[Request, ...]:
        stop = min(self.head + self.max_batch, len(self.requests))
        if stop == self.head + 1:  # `serial` lives on this
            batch: tuple[Request, ...] = (self.requests[self.head],)
        else:
            batch = tuple(self.requests[self.head : stop])
        self.head = stop
        if stop >= _KEEP and 2 * stop >= len(self.requests):
            del self.requests[:stop]
            del self.since[:stop]
            self.head = 0
        return batch

    def put_back(self, requests: Iterable[Request]) -> None:
        """In front of what waits, in order of arrival, and due as if they had entered on arrival."""
        again = sorted(requests, key=lambda request: request.arrival)
        self.requests = again + self.requests[self.head :]
        self.since = [request.arrival for request in again] + self.since[self.head :]
        self.head = 0


class WindowBatching:
    """A `Policy` over one queue a model, each with its own limits."""

    def __init__(self, graphs: Iterable[ModelGraph], limits: Mapping[str, BatchLimits]) -> None:
        self._queues: dict[str, _Queue] = {graph.name: _Queue(graph, limits[graph.name]) for graph in graphs}
        self._queue_list: list[_Queue] = list(self._queues.values())
        self._tasks: int = 0

    def submit(self, request: Request, now: float) -> None:
        queue = self._queues.get(request.model)
        if queue is None:
            raise UnknownModel.asked_for(request.id, request.model, self._queues)
        queue.requests.append(request)
        queue.since.append(now)

    def next_task(self, worker: int, now: float) -> Task | None:
        ready: _Queue | None = None
        oldest = math.inf
        for queue in self._queue_list:
            size = len(queue.requests) - queue.head
            # `due` is also what `wakeup` names: at that time, to the last bit, the batch is ready.
            if size > 0 and (size >= queue.max_batch or queue.due() <= now) and queue.since[queue.head] < oldest:
                ready = queue
                oldest = queue.since[queue.head]
        if ready is None:
            return None
        task = Task(self._tasks, ready.model, ready.take(), 0, ready.nodes)
        self._tasks += 1
        return task

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop == task.start:  # the worker was lost
            self._queues[task.model].put_back(task.requests)
            return []
        return list(task.requests)

    def wakeup(self) -> float:
        first = math.inf
        for queue in self._queue_list:
            first = min(first, queue.due())
        return first
