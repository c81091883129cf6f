"""Whole-graph batching with a size limit and a time window: the mechanism that several policies share.

Each model has a first-in-first-out queue. Its batch is ready when `max_batch` requests wait, or when the oldest has
waited `window_s`. An idle worker gets the ready batch whose oldest request has waited longest, and runs every node of
the graph. `serial`, `graph` and `preba` differ only in how they choose the two limits.
"""

import itertools
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.batching.errors import UnknownModel, UsageError
from headrace.batching.model_graph import ModelGraph
from headrace.batching.request import Request, Task


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """`max_batch` in requests; `window_s` is the longest that the oldest request waits for others to join it."""

    max_batch: int
    window_s: float

    def __post_init__(self) -> None:
        if self.max_batch < 1:
            raise UsageError(f"max_batch is {self.max_batch}: give a batch limit of 1 or more")
        if not self.window_s >= 0:  # also refuses NaN
            raise UsageError(f"window_s is {self.window_s}: give a batching window of 0 s or more")


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Request
    since: float  # the window counts from here, not from the arrival: preprocessing lies between the two


class _Queue:
    __slots__ = ("graph", "limits", "waiting")

    def __init__(self, graph: ModelGraph, limits: BatchLimits) -> None:
        self.graph = graph
        self.limits = limits
        self.waiting: deque[_Waiting] = deque()

    def due(self) -> float:
        """When the batch is ready by its window alone; inf if nothing waits."""
        return self.waiting[0].since + self.limits.window_s if self.waiting else math.inf

    def ready(self, now: float) -> bool:
        return len(self.waiting) >= self.limits.max_batch or self.due() <= now


class WindowBatching:
    """A `Policy` over one queue a model, each with its own limits."""

    def __init__(self, graphs: Iterable[ModelGraph], limits: Mapping[str, BatchLimits]) -> None:
        self._queues = {graph.name: _Queue(graph, limits[graph.name]) for graph in graphs}
        self._running: dict[int, tuple[Task, dict[int, _Waiting]]] = {}
        self._task_ids = itertools.count()

    def submit(self, request: Request, now: float) -> None:
        queue = self._queues.get(request.model)
        if queue is None:
            known = ", ".join(sorted(self._queues))
            raise UnknownModel(f"request {request.id} asks for model {request.model!r}; this server has {known}")
        queue.waiting.append(_Waiting(request, now))

    def next_task(self, worker: int, now: float) -> Task | None:
        ready = [queue for queue in self._queues.values() if queue.ready(now)]
        if not ready:
            return None
        queue = min(ready, key=lambda q: q.waiting[0].since)
        size = min(len(queue.waiting), queue.limits.max_batch)
        batch = [queue.waiting.popleft() for _ in range(size)]
        task = Task(
            id=next(self._task_ids),
            model=queue.graph.name,
            requests=tuple(waiting.request for waiting in batch),
            start=0,
            stop=len(queue.graph.nodes),
        )
        self._running[task.id] = task, {waiting.request.id: waiting for waiting in batch}
        return task

    def complete(self, task: Task, now: float) -> list[Request]:
        issued, batch = self._running.pop(task.id)
        if task.stop == issued.stop:
            return list(task.requests)
        # The worker was lost. The requests go back to where they stood, and are due at once if they were before.
        queue = self._queues[task.model]
        again = [batch[request.id] for request in task.requests]
        queue.waiting = deque(sorted([*again, *queue.waiting], key=lambda waiting: waiting.since))
        return []

    def wakeup(self) -> float:
        return min((queue.due() for queue in self._queues.values()), default=math.inf)
