"""A naive virtual-time driver for policy tests: it checks the seam's rules at every step and can lose workers."""

import heapq
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.batching import Ledger, Policy, Request, Task


@dataclass
class Trace:
    ledger: Ledger = field(default_factory=Ledger)
    started: list[tuple[float, int, Task]] = field(default_factory=list)  # time, worker, task
    finished: dict[int, float] = field(default_factory=dict)  # request id -> time


def drive(
    policy: Policy,
    requests: Sequence[Request],
    workers: int,
    latency: Callable[[int], float],
    *,
    loss: float = 0.0,
    seed: int = 0,
) -> Trace:
    """Serve `requests` to the end; with probability `loss` a task is lost with its worker (then retried for ever)."""
    rng = random.Random(seed)
    trace = Trace()
    events: list[tuple[float, int, str, object]] = []
    order = itertools.count()
    for request in requests:
        heapq.heappush(events, (request.arrival, next(order), "arrival", request))
    idle = set(range(workers))
    running: set[int] = set()
    steps = 0
    while True:
        wakeup = policy.wakeup() if idle else math.inf
        if events and events[0][0] <= wakeup:
            now, _, kind, payload = heapq.heappop(events)
            if kind == "arrival":
                assert isinstance(payload, Request)
                trace.ledger.submit(payload)
                policy.submit(payload, now)
            else:
                assert isinstance(payload, tuple)
                worker, task = payload
                idle.add(worker)
                running -= {request.id for request in task.requests}
                if rng.random() < loss:
                    assert policy.complete(task.lost(task.requests), now) == []
                else:
                    for request in policy.complete(task, now):
                        trace.ledger.finish(request)
                        trace.finished[request.id] = now
        elif wakeup < math.inf:
            now = wakeup
        else:
            return trace
        for worker in sorted(idle):
            issued = policy.next_task(worker, now)
            if issued is None:
                continue
            ids = {request.id for request in issued.requests}
            assert len(ids) == issued.batch_size > 0, "a request stands twice in one batch"
            assert not ids & running, "a request runs twice at once"
            assert not ids & trace.finished.keys(), "a finished request runs again"
            assert {request.model for request in issued.requests} == {issued.model}
            running |= ids
            idle.remove(worker)
            trace.started.append((now, worker, issued))
            heapq.heappush(events, (now + latency(issued.batch_size), next(order), "end", (worker, issued)))
        trace.ledger.check()
        assert trace.ledger.in_flight >= len(running)
        steps += 1
        assert steps < 100_000, "the policy keeps asking to be woken up and starts nothing"
