"""Whole-graph batching with a size limit and a time window: the mechanism of `serial`, `graph` and `preba`.

Each model has a first-in-first-out queue; `preba` has several for a model. The rules:

1. A batch is ready when `max_batch` requests or `max_tokens` tokens wait, or when the oldest has waited `window_s`.
2. An idle worker gets the ready batch whose oldest request has waited longest, and runs every node of the graph.

The policies differ in how they choose the two limits.

Workers may have different limits, as `preba` has on slices of several sizes. Then a batch is ready for a worker when as
many requests wait as this worker's limit. It is ready for all workers when the window is over. It leaves with at most
as many requests as the limit of the worker that takes it.
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
    """The two limits of a batching window.

    Args:
        max_batch: The largest batch, in requests. Where workers differ, this is the largest of all.
        window_s: The longest time (s) that the oldest request waits for others.
        by_worker: The largest batch of each worker; empty if they are equal.
        max_tokens: The most tokens of a batch, the sum of its input lengths.

    Raises:
        UsageError: A limit is out of range.
    """

    max_batch: int
    window_s: float
    by_worker: tuple[int, ...] = ()
    max_tokens: float = math.inf

    def __post_init__(self) -> None:
        for max_batch in (self.max_batch, *self.by_worker):
            check_max_batch(max_batch)
        if not self.window_s >= 0:  # also true for NaN
            raise UsageError(f"window_s is {self.window_s}: give a batching window of 0 s or more")


class WindowQueue(Fifo):
    """A queue with a size limit and a time window."""

    def __init__(self, graph: ModelGraph, limits: BatchLimits) -> None:
        super().__init__(graph, limits.max_tokens)
        self.max_batch: int = limits.max_batch
        self.window_s: float = limits.window_s
        self._by_worker: list[int] = list(limits.by_worker)

    def max_batch_for(self, worker: int) -> int:
        """Return the largest batch for this worker."""
        return self._by_worker[worker] if self._by_worker else self.max_batch

    def due(self) -> float:
        """Return the time (s) at which the window makes the batch ready; inf if no request waits."""
        return self.oldest() + self.window_s


class WindowBatching:
    """A `Policy` over queues, each with its own limits.

    A model may have several queues. Then a subclass chooses among them in `queue_of`, and `queues` has the first of
    each model.

    Args:
        queues: All queues.
        at_limit: The reason (`Task.reason`) of a batch that leaves at its size limit.
        ahead: The number of tasks that a worker may have.
    """

    def __init__(self, queues: Iterable[WindowQueue], at_limit: str = FULL, ahead: int = 1) -> None:
        self.ahead: Final[int] = ahead
        self._at_limit: str = at_limit
        self.all_queues: Final[list[WindowQueue]] = list(queues)
        self.queues: Final[dict[str, WindowQueue]] = {queue.model: queue for queue in reversed(self.all_queues)}
        self._tasks: int = 0

    def queue_of(self, request: Request) -> WindowQueue | None:
        """Return the queue in which the request waits, or must wait; None if its model is not served here."""
        return self.queues.get(request.model)

    def submit(self, request: Request, now: float) -> None:
        queue = self.queue_of(request)
        if queue is None:
            raise UnknownModel.asked_for(request.id, request.model, self.queues)
        queue.append(request, now)

    def ready(self, worker: int, now: float) -> WindowQueue | None:
        """Return the queue whose batch may leave for this worker; None if there is none.

        Of several, it is the queue whose first request has waited longest."""
        longest: WindowQueue | None = None
        oldest = math.inf
        for queue in self.all_queues:
            since = queue.oldest()
            # `wakeup` returns the value of `due`. At that time, to the last bit, the batch is ready.
            if since < oldest and (since + queue.window_s <= now or queue.full(queue.max_batch_for(worker))):
                longest = queue
                oldest = since
        return longest

    def next_task(self, worker: int, now: float) -> Task | None:
        ready = self.ready(worker, now)
        if ready is None:
            return None
        max_batch = ready.max_batch_for(worker)
        full = ready.full(max_batch)
        batch = ready.take(max_batch) if full else self.short_batch(ready, worker)
        task = Task(self._tasks, ready.model, batch, 0, ready.nodes, reason=self._at_limit if full else WINDOW)
        self._tasks += 1
        return task

    def short_batch(self, queue: WindowQueue, worker: int) -> tuple[Request, ...]:
        """Remove and return the batch of a queue whose window is over, and which has fewer requests than its limit."""
        return queue.take(queue.max_batch_for(worker))

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop == task.start:  # the worker was lost
            self.put_back(task.requests)
            return []
        return list(task.requests)

    def put_back(self, lost: Iterable[Request]) -> None:
        """Put requests of a lost worker back, each into its queue."""
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
