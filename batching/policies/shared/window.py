"""Whole-graph batching with a size limit and a time window: the mechanism that several policies share.

Each model has a first-in-first-out queue. Its batch is ready when `max_batch` requests wait, or when the oldest has
waited `window_s`. An idle worker gets the ready batch whose oldest request has waited longest, and runs every node of
the graph. `serial` and `graph` differ only in how they choose the two limits; `preba` has several queues a model.

Workers may differ in how large a batch suits them (`preba` on slices of several sizes). A batch is then ready for one
of them when as many wait as its own limit, for all of them when the window is over, and it leaves with as many as the
limit of the worker that takes it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headrace.batching.errors import UnknownModel, UsageError, check_max_batch
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.fifo import Fifo
from headrace.batching.request import FULL, WINDOW, Request, Task


@dataclass(frozen=True)
class BatchLimits:
    """`max_batch` in requests; `window_s` is the longest that the oldest request waits for others to join it. Where
    workers differ, `by_worker` has the limit of each, and `max_batch` is the largest."""

    max_batch: int
    window_s: float
    by_worker: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for max_batch in (self.max_batch, *self.by_worker):
            check_max_batch(max_batch)
        if not self.window_s >= 0:  # also refuses NaN
            raise UsageError(f"window_s is {self.window_s}: give a batching window of 0 s or more")


class WindowQueue(Fifo):
    def __init__(self, graph: ModelGraph, limits: BatchLimits) -> None:
        super().__init__(graph)
        self.max_batch: int = limits.max_batch
        self.window_s: float = limits.window_s
        self._by_worker: list[int] = list(limits.by_worker)

    def max_batch_for(self, worker: int) -> int:
        """The largest batch for that worker."""
        return self._by_worker[worker] if self._by_worker else self.max_batch

    def due(self) -> float:
        """When the batch is ready by its window alone; inf if nothing waits."""
        return self.oldest() + self.window_s


class WindowBatching:
    """A `Policy` over queues, each with its own limits. `at_limit` is why a batch of `max_batch` leaves.

    Requests wait in `lines`, by model; of a model with several, in which one is `line_of`'s to say, and this is the
    first of them."""

    def __init__(self, queues: Iterable[WindowQueue], at_limit: str = FULL) -> None:
        self.ahead: Final[int] = 1
        self._at_limit: str = at_limit
        self.all_queues: Final[list[WindowQueue]] = list(queues)
        self.queues: Final[dict[str, WindowQueue]] = {queue.model: queue for queue in reversed(self.all_queues)}
        self._tasks: int = 0

    def queue_of(self, request: Request) -> WindowQueue | None:
        """Where it waits, or is to; None if its model is not served here."""
        return self.queues.get(request.model)

    def submit(self, request: Request, now: float) -> None:
        queue = self.queue_of(request)
        if queue is None:
            raise UnknownModel.asked_for(request.id, request.model, self.queues)
        queue.append(request, now)

    def ready(self, worker: int, now: float) -> WindowQueue | None:
        """The line whose batch may leave for that worker; of several, that whose first request has waited longest."""
        longest: WindowQueue | None = None
        oldest = math.inf
        for queue in self.all_queues:
            size = queue.size()
            # `due` is also what `wakeup` names: at that time, to the last bit, the batch is ready.
            if size > 0 and (size >= queue.max_batch_for(worker) or queue.due() <= now) and queue.oldest() < oldest:
                longest = queue
                oldest = queue.oldest()
        return longest

    def next_task(self, worker: int, now: float) -> Task | None:
        ready = self.ready(worker, now)
        if ready is None:
            return None
        max_batch = ready.max_batch_for(worker)
        full = ready.size() >= max_batch
        batch = ready.take(max_batch) if full else self.short_batch(ready, worker)
        task = Task(self._tasks, ready.model, batch, 0, ready.nodes, reason=self._at_limit if full else WINDOW)
        self._tasks += 1
        return task

    def short_batch(self, queue: WindowQueue, worker: int) -> tuple[Request, ...]:
        """What leaves with the requests of `line`, which are due and fewer than that worker may take."""
        return queue.take(queue.max_batch_for(worker))

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop == task.start:  # the worker was lost
            self.put_back(task.requests)
            return []
        return list(task.requests)

    def put_back(self, lost: Iterable[Request]) -> None:
        """They wait again, each in its line."""
        by_queue: dict[WindowQueue, list[Request]] = {}
        for request in lost:
            queue = self.queue_of(request)
            assert queue is not None
            by_queue.setdefault(queue, []).append(request)
        for queue, requests in by_queue.items():
            queue.put_back(requests)

    def withdraw(self, request: Request, now: float) -> bool:
        queue = self.queue_of(request)
        return queue is not None and queue.remove(request)

    def latest_start(self, request: Request) -> float:
        return request.deadline

    def largest_batch(self, model: str) -> int:
        queue = self.queues.get(model)
        if queue is None:
            raise UnknownModel.among(model, self.queues)
        return queue.max_batch

    def wakeup(self) -> float:
        first = math.inf
        for queue in self.all_queues:
            first = min(first, queue.due())
        return first
