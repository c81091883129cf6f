"""Whole-graph batching with a size limit and a time window: the mechanism that several policies share.

Each model has a first-in-first-out queue. Its batch is ready when `max_batch` requests wait, or when the oldest has
waited `window_s`. An idle worker gets the ready batch whose oldest request has waited longest, and runs every node of
the graph. `serial`, `graph` and `preba` differ only in how they choose the two limits.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headrace.batching.errors import UnknownModel, UsageError, check_max_batch
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.fifo import Fifo
from headrace.batching.request import FULL, WINDOW, Request, Task


@dataclass(frozen=True)
class BatchLimits:
    """`max_batch` in requests; `window_s` is the longest that the oldest request waits for others to join it."""

    max_batch: int
    window_s: float

    def __post_init__(self) -> None:
        check_max_batch(self.max_batch)
        if not self.window_s >= 0:  # also refuses NaN
            raise UsageError(f"window_s is {self.window_s}: give a batching window of 0 s or more")


class WindowLine(Fifo):
    def __init__(self, graph: ModelGraph, limits: BatchLimits) -> None:
        super().__init__(graph)
        self.max_batch: int = limits.max_batch
        self.window_s: float = limits.window_s

    def due(self) -> float:
        """When the batch is ready by its window alone; inf if nothing waits."""
        return self.oldest() + self.window_s


class WindowBatching:
    """A `Policy` over one queue a model, each with its own limits. `at_limit` is why a batch of `max_batch` leaves.

    Requests wait in `lines`, by model."""

    def __init__(self, graphs: Iterable[ModelGraph], limits: Mapping[str, BatchLimits], at_limit: str = FULL) -> None:
        self.ahead: Final[int] = 1
        self._at_limit: str = at_limit
        self.lines: Final[dict[str, WindowLine]] = {
            graph.name: WindowLine(graph, limits[graph.name]) for graph in graphs
        }
        self._line_list: list[WindowLine] = list(self.lines.values())
        self._tasks: int = 0

    def submit(self, request: Request, now: float) -> None:
        line = self.lines.get(request.model)
        if line is None:
            raise UnknownModel.asked_for(request.id, request.model, self.lines)
        line.append(request, now)

    def ready(self, now: float) -> WindowLine | None:
        """The line whose batch may leave; of several, that whose first request has waited longest."""
        found: WindowLine | None = None
        oldest = math.inf
        for line in self._line_list:
            size = line.size()
            # `due` is also what `wakeup` names: at that time, to the last bit, the batch is ready.
            if size > 0 and (size >= line.max_batch or line.due() <= now) and line.oldest() < oldest:
                found = line
                oldest = line.oldest()
        return found

    def next_task(self, worker: int, now: float) -> Task | None:
        ready = self.ready(now)
        if ready is None:
            return None
        reason = self._at_limit if ready.size() >= ready.max_batch else WINDOW
        task = Task(self._tasks, ready.model, ready.take(ready.max_batch), 0, ready.nodes, reason=reason)
        self._tasks += 1
        return task

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop == task.start:  # the worker was lost
            self.lines[task.model].put_back(task.requests)
            return []
        return list(task.requests)

    def withdraw(self, request: Request, now: float) -> bool:
        line = self.lines.get(request.model)
        return line is not None and line.remove(request)

    def largest_batch(self, model: str) -> int:
        line = self.lines.get(model)
        if line is None:
            raise UnknownModel.among(model, self.lines)
        return line.max_batch

    def wakeup(self) -> float:
        first = math.inf
        for line in self._line_list:
            first = min(first, line.due())
        return first
