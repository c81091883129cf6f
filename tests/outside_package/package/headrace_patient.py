"""A policy for Headrace: a batch leaves when it is full, or when nobody has joined it for a while."""

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
        for model, queue in self.waiting.items():
            full = len(queue) >= self.max_batch
            if full or (queue and self.newest[model] + self.patience_s <= now):
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
