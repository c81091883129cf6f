"""Whole-graph batching by queue length: the mechanism of `static`, `work-conserving` and `smdp`.

Each model has a first-in-first-out queue and a rule. From the number of waiting requests, the rule gives the number to
serve; 0 means to wait for more. The policy asks the rule when a worker is idle: after an arrival, after the end of a
batch, and at the time that the rule gave for a change of its answer.

In theory requests arrive for ever. In practice they may stop while some requests wait for others. So no request waits
longer than `max_wait_s` while a worker is idle. After that time the policy serves all waiting requests, up to the
rule's largest batch. It also serves as soon as the waiting requests have the most tokens that a batch may have.
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
    """Gives the number of requests to serve, by the number of waiting requests.

    Args:
        largest: The largest batch. A request that has waited too long is served in a batch of up to this size.

    Raises:
        UsageError: `largest` is below 1.
    """

    def __init__(self, largest: int) -> None:
        if largest < 1:
            raise UsageError(f"the batch size is {largest}: give 1 or more")
        self.largest: int = largest

    def arrived(self, now: float) -> None:  # noqa: B027 (most rules do not look at arrivals)
        """Record an arrival at `now` (s). Arrivals come in order of time."""

    @abstractmethod
    def batch(self, waiting: int, now: float) -> int:
        """Return the number of requests to serve, at least 0 and at most `waiting`."""

    def changes(self, waiting: int, now: float) -> float:
        """Return the time (s) from which `batch(waiting, ...)`, which is 0 now, is above 0 although nothing arrives.

        The result is inf if there is no such time."""
        return math.inf

    def reason(self, batch: int) -> str:
        """Return the reason why `batch`, the rule's last answer, leaves."""
        return FULL if batch == self.largest else IDLE


class _RuleQueue(Fifo):
    def __init__(self, graph: ModelGraph, rule: Rule, max_tokens: float) -> None:
        super().__init__(graph, max_tokens)
        self.rule: Rule = rule


class QueueLengthBatching:
    """A `Policy` with one queue for each model, each with its own rule.

    Args:
        graphs: The graphs of the models.
        rules: The rule of each model.
        max_wait_s: The longest time (s) that a request waits while a worker is idle.
        max_tokens: The most tokens of a batch, the sum of its input lengths.

    Raises:
        UsageError: `max_wait_s` is below 0.
    """

    def __init__(
        self,
        graphs: Iterable[ModelGraph],
        rules: Mapping[str, Rule],
        max_wait_s: float = MAX_WAIT_S,
        max_tokens: float = math.inf,
    ) -> None:
        if not max_wait_s >= 0:
            raise UsageError(f"max_wait_s is {max_wait_s}: give a longest wait of 0 s or more")
        self._queues: dict[str, _RuleQueue] = {
            graph.name: _RuleQueue(graph, rules[graph.name], max_tokens) for graph in graphs
        }
        self._queue_list: list[_RuleQueue] = list(self._queues.values())
        self.ahead: Final[int] = 1
        self._max_wait_s: float = max_wait_s
        self._now: float = 0.0
        self._tasks: int = 0

    def submit(self, request: Request, now: float) -> None:
        queue = self._queues.get(request.model)
        if queue is None:
            raise UnknownModel.asked_for(request.id, request.model, self._queues)
        queue.append(request, now)
        queue.rule.arrived(now)
        self._now = now

    def next_task(self, worker: int, now: float) -> Task | None:
        self._now = now
        ready: _RuleQueue | None = None
        count = 0
        reason = IDLE
        oldest = math.inf
        for queue in self._queue_list:
            waiting = queue.size()
            if waiting == 0 or queue.oldest() >= oldest:
                continue
            batch = queue.rule.batch(waiting, now)
            filled = batch == 0 and queue.full_of_tokens()
            if filled:  # so it may not grow to the size that the rule waits for
                batch = min(waiting, queue.rule.largest)
            waited = batch == 0 and queue.oldest() + self._max_wait_s <= now
            if waited:
                batch = min(waiting, queue.rule.largest)
            if batch > 0:
                ready = queue
                count = batch
                reason = WINDOW if waited else FULL if filled else queue.rule.reason(batch)
                oldest = queue.oldest()
        if ready is None:
            return None
        task = Task(self._tasks, ready.model, ready.take(count), 0, ready.nodes, reason=reason)
        self._tasks += 1
        return task

    def complete(self, task: Task, now: float) -> list[Request]:
        if task.stop == task.start:  # the worker was lost
            self._queues[task.model].put_back(task.requests)
            return []
        return list(task.requests)

    def withdraw(self, request: Request, now: float) -> bool:
        """Remove a request. The rule keeps its record of the arrival, because the arrival took place."""
        queue = self._queues.get(request.model)
        return queue is not None and queue.remove(request)

    def latest_start(self, request: Request) -> float:
        return request.deadline

    def largest_batch(self, model: str) -> int:
        queue = self._queues.get(model)
        if queue is None:
            raise UnknownModel.among(model, self._queues)
        return queue.rule.largest

    def wakeup(self) -> float:
        first = math.inf
        for queue in self._queue_list:
            waiting = queue.size()
            if waiting > 0:
                first = min(first, queue.oldest() + self._max_wait_s, queue.rule.changes(waiting, self._now))
        return first
