"""Whole-graph batching by queue length: the mechanism that several policies share.

Each model has a first-in-first-out queue and a rule, which says by the number of waiting requests how many to serve, or
0 to wait for more. The rule is asked when a worker is idle: after an arrival, the end of a batch, or when the rule
itself said that its answer might change. `static`, `work-conserving` and `smdp` differ only in their rules.

In theory requests arrive for ever; in practice they may stop while some wait for company. So no request waits longer
than `max_wait_s` beside an idle worker: then all that waits is served, up to the rule's largest batch.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.batching.errors import UnknownModel, UsageError
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.fifo import Fifo
from headrace.batching.request import FULL, IDLE, WINDOW, Request, Task

MAX_WAIT_S = 1.0


class Rule(ABC):
    """How many to serve, by how many wait. `largest` is the batch that is served when a request has waited too long."""

    def __init__(self, largest: int) -> None:
        if largest < 1:
            raise UsageError(f"the batch size is {largest}: give 1 or more")
        self.largest: int = largest

    def arrived(self, now: float) -> None:  # noqa: B027 (most rules do not look at arrivals)
        """Told of every arrival, in order of time."""

    @abstractmethod
    def batch(self, waiting: int, now: float) -> int:
        """At least 0 and at most `waiting`."""

    def changes(self, waiting: int, now: float) -> float:
        """When `batch(waiting, ...)`, now 0, will not be 0 any more though nothing arrives; inf if never."""
        return math.inf

    def reason(self, batch: int) -> str:
        """Why `batch`, its answer just now, leaves."""
        return FULL if batch == self.largest else IDLE


class _Line(Fifo):
    def __init__(self, graph: ModelGraph, rule: Rule) -> None:
        super().__init__(graph)
        self.rule: Rule = rule


class QueueLengthBatching:
    """A `Policy` over one queue a model, each with its rule. Raises UsageError."""

    def __init__(self, graphs: Iterable[ModelGraph], rules: Mapping[str, Rule], max_wait_s: float = MAX_WAIT_S) -> None:
        if not max_wait_s >= 0:
            raise UsageError(f"max_wait_s is {max_wait_s}: give a longest wait of 0 s or more")
        self._lines: dict[str, _Line] = {graph.name: _Line(graph, rules[graph.name]) for graph in graphs}
        self._line_list: list[_Line] = list(self._lines.values())
        self.ahead: Final[int] = 1
        self._max_wait_s: float = max_wait_s
        self._now: float = 0.0
        self._tasks: int = 0

    def submit(self, request: Request, now: float) -> None:
        line = self._lines.get(request.model)
        if line is None:
            raise UnknownModel.asked_for(request.id, request.model, self._lines)
        line.append(request, now)
        line.rule.arrived(now)
        self._now = now

    def next_task(self, worker: int, now: float) -> Task | None:
        self._now = now
        ready: _Line | None = None
        count = 0
        reason = IDLE
        oldest = math.inf
        for line in self._line_list:
            waiting = line.size()
            if waiting == 0 or line.oldest() >= oldest:
                continue
            batch = line.rule.batch(waiting, now)
            waited = batch == 0 and line.oldest() + self._max_wait_s <= now
            if waited:
                batch = min(waiting, line.rule.largest)
            if batch > 0:
                ready = line
                count = batch
                reason = WINDOW if waited else line.rule.reason(batch)
                oldest = line.oldest()
        if ready is None:
            return None
        task = Task(self._tasks, ready.model, ready.take(count), 0, ready.nodes, reason=reason)
        self._tasks += 1
        return task

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop == task.start:  # the worker was lost
            self._lines[task.model].put_back(task.requests)
            return []
        return list(task.requests)

    def withdraw(self, request: Request, now: float) -> bool:
        """What the rule knows of arrivals stays: that it arrived is true whatever became of it."""
        line = self._lines.get(request.model)
        return line is not None and line.remove(request)

    def latest_start(self, request: Request) -> float:
        return request.deadline

    def largest_batch(self, model: str) -> int:
        line = self._lines.get(model)
        if line is None:
            raise UnknownModel.among(model, self._lines)
        return line.rule.largest

    def wakeup(self) -> float:
        first = math.inf
        for line in self._line_list:
            waiting = line.size()
            if waiting > 0:
                first = min(first, line.oldest() + self._max_wait_s, line.rule.changes(waiting, self._now))
        return first
