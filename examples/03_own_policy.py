"""Write a batching policy, and compare it with a built-in one.

Usage: python 03_own_policy.py [REQUESTS]

A policy is a state machine. It is told what happens (`submit`, `complete`, `withdraw`) and asked what to run
(`next_task`) and when to ask again (`wakeup`). It reads no clock: it is told the time (s) as `now`. So the same object
runs in the simulator and in a server; in this folder, `headrace serve --policy 03_own_policy:Patient` starts one.
"""

import math
import sys
from collections import deque

import headrace


class PatientBatching:
    """Let a batch leave when it is full, or when its oldest request has waited for `patience_s`."""

    ahead = 1  # give a worker one task at a time

    def __init__(self, graphs, patience_s, max_batch):
        self.nodes = {graph.name: len(graph.nodes) for graph in graphs}
        self.waiting = {graph.name: deque() for graph in graphs}  # by model, the oldest first
        self.patience_s, self.max_batch, self.tasks = patience_s, max_batch, 0

    def submit(self, request, now):
        if request.model not in self.waiting:
            raise headrace.UnknownModel(f"there is no model {request.model!r}")
        self.waiting[request.model].append(request)

    def next_task(self, worker, now):
        for model, queue in self.waiting.items():
            full = len(queue) >= self.max_batch
            if full or (queue and queue[0].arrival + self.patience_s <= now):
                batch = tuple(queue.popleft() for _ in range(min(len(queue), self.max_batch)))
                self.tasks += 1
                reason = "full" if full else "window"  # one of headrace.REASONS
                return headrace.Task(self.tasks, model, batch, 0, self.nodes[model], reason=reason)
        return None  # leave the worker idle

    def wakeup(self):
        return min((queue[0].arrival + self.patience_s for queue in self.waiting.values() if queue), default=math.inf)

    def complete(self, task, now):
        if task.stop == task.start:  # the worker died, and nothing ran: the requests wait again
            self.waiting[task.model].extendleft(reversed(task.requests))
            return []
        return list(task.requests)  # these are answered

    def withdraw(self, request, now):  # a client has gone; True if its request had not begun
        queue = self.waiting.get(request.model, ())
        return request in queue and (queue.remove(request) or True)

    def latest_start(self, request):
        return request.deadline  # this policy does not predict how long a request takes

    def largest_batch(self, model):
        return self.max_batch


@headrace.settings()  # a plain `@dataclass(frozen=True)` does, too; this one also checks the ranges
class Patient:
    """Let a batch leave when it is full, or when its oldest request has waited for so long."""

    patience_ms: float = headrace.setting(default=2.0, help="Longest wait of the oldest request.", ge=0)
    max_batch: int = headrace.setting(default=16, help="Largest batch, in requests.", ge=1, le=1024)

    def build(self, context: headrace.PolicyContext) -> headrace.Policy:
        """Return the policy for one run. The context knows the models, their latencies and the workers."""
        return PatientBatching(context.graphs, self.patience_ms / 1e3, self.max_batch)


if __name__ == "__main__":
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    for policy in (Patient(), Patient(patience_ms=10), "serial"):
        result = headrace.simulate("resnet50", rate_rps=2200, requests=requests, policy=policy)
        print(f"{policy!s:42} p99 {result.latency_ms['p99']:8.2f} ms, mean batch {result.batch_size_mean:5.2f}")
