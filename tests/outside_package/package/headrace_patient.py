"""A policy for Headrace: a batch leaves when it is full, or when nobody has joined it for a while.

With it come a model graph, traffic and a router.
"""

import math
from collections import deque
from dataclasses import dataclass, field

import headrace


class PatientBatching:
    """Whoever joins a batch makes it wait anew, so that a burst of requests ends up in one batch."""

    ahead = 1

    def __init__(self, graphs, patience_s, max_batch):
        self.nodes = {graph.name: len(graph.nodes) for graph in graphs}
        self.waiting = {graph.name: deque() for graph in graphs}
        self.newest = dict.fromkeys(self.nodes, -math.inf)  # when the last request came, by model
        self.patience_s = patience_s
        self.max_batch = max_batch
        self.tasks = 0

    def submit(self, request: headrace.Request, now: float) -> None:
        if request.model not in self.waiting:
            raise headrace.UnknownModel(f"there is no model {request.model!r}")
        self.waiting[request.model].append(request)
        self.newest[request.model] = now

    def next_task(self, worker: int, now: float) -> headrace.Task | None:
        waiting = [(queue[0].arrival, model) for model, queue in self.waiting.items() if queue]
        for _, model in sorted(waiting):  # of several models, the one whose first request has waited longest
            queue = self.waiting[model]
            full = len(queue) >= self.max_batch
            if full or self.newest[model] + self.patience_s <= now:
                batch = tuple(queue.popleft() for _ in range(min(len(queue), self.max_batch)))
                self.tasks += 1
                reason = "full" if full else "window"
                return headrace.Task(self.tasks, model, batch, 0, self.nodes[model], reason=reason)
        return None

    def wakeup(self) -> float:
        return min(
            (self.newest[model] + self.patience_s for model, queue in self.waiting.items() if queue), default=math.inf
        )

    def complete(self, task: headrace.Task, now: float) -> list[headrace.Request]:
        if task.stop == task.start:  # lost with its worker
            self.waiting[task.model].extendleft(reversed(task.requests))
            return []
        return list(task.requests)

    def withdraw(self, request: headrace.Request, now: float) -> bool:
        queue = self.waiting.get(request.model, ())
        if request not in queue:
            return False
        queue.remove(request)
        return True

    def latest_start(self, request: headrace.Request) -> float:
        return request.deadline

    def largest_batch(self, model: str) -> int:
        if model not in self.waiting:
            raise headrace.UnknownModel(f"there is no model {model!r}")
        return self.max_batch


@dataclass(frozen=True)
class Patient:
    """Let a batch wait until nobody has joined it for a while."""

    patience_ms: float = field(default=2.0, metadata={"help": "How long nobody must have joined.", "ge": 0})
    max_batch: int = field(default=16, metadata={"help": "Largest batch, in requests.", "ge": 1, "le": 1024})

    def build(self, context: headrace.PolicyContext) -> headrace.Policy:
        """Return the policy for one run."""
        return PatientBatching(context.graphs, self.patience_ms / 1e3, self.max_batch)


def one_product() -> headrace.ModelGraph:
    """Return a graph of one matrix product."""
    node = headrace.Node("product", headrace.NodeKind.STATIC, (headrace.MatMul(1, 1024, 1000),))
    return headrace.ModelGraph("one-product", (node,))


@dataclass(frozen=True)
class Pulses:
    """Let several requests come at the same moment, again and again."""

    every_ms: float = field(default=10.0, metadata={"help": "Time between two pulses.", "gt": 0})
    size: int = field(default=5, metadata={"help": "Requests of a pulse.", "ge": 1})

    def times(self, seed: int) -> list[float]:
        """Return when requests come (s)."""
        return [number * self.every_ms / 1e3 for number in range(10) for _ in range(self.size)]


class AlwaysFirst:
    """Send all requests to the first server that is up."""

    def __init__(self, servers: int, seed: int) -> None:
        pass

    def pick(self, up: list[int], outstanding: list[int]) -> int:
        """Return the server of the next request."""
        return min(up)
