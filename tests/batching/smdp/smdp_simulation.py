"""A policy by table, on the simulator: what the analytic results of batching/smdp are compared with."""

import math
from bisect import bisect_right
from collections import deque

import numpy as np

from headrace.batching import ModelGraph, NodeTimes, Task
from headrace.sim.engine import Arrivals, run

NET = ModelGraph.opaque("net")


class TablePolicy:
    """Serves action(waiting, now) of what waits; `wake(now)` is when to ask again though nothing happens."""

    def __init__(self, action, wake=lambda now: math.inf):
        self.action, self.wake = action, wake
        self.waiting, self.now, self.tasks = deque(), 0.0, 0
        self.busy_until = {}

    def submit(self, request, now):
        self.waiting.append(request)
        self.now = now

    def next_task(self, worker, now):
        self.now = now
        count = self.action(len(self.waiting), now) if self.waiting else 0
        if count == 0:
            return None
        self.tasks += 1
        return Task(self.tasks, "net", tuple(self.waiting.popleft() for _ in range(count)), 0, 1)

    def complete(self, task, now):
        return list(task.requests)

    def wakeup(self):
        return self.wake(self.now) if self.waiting else math.inf

    ahead = 1

    def withdraw(self, request, now):
        return False

    def latest_start(self, request):
        return request.deadline

    def largest_batch(self, model):
        return 1 << 30  # as large as the table says


def by_table(actions):
    """The policy that looks up the number of waiting requests; beyond the table, its last entry."""
    actions = [int(action) for action in actions]
    return TablePolicy(lambda waiting, now: actions[min(waiting, len(actions) - 1)])


class Service:
    def __init__(self, latency):
        self._latency = [float(seconds) for seconds in latency]

    def latency(self, node, batch, length):
        return self._latency[batch - 1]


def serve(policy, service, times, servers=1):
    """Latencies of the requests that arrive at `times`, and the energy by time; the last requests, which may wait for
    ever for company that does not come, are seen off by a stream of late ones that do not count."""
    extra = 4 * service.max_batch
    step = service.latency[-1] / 16
    tail = np.ceil(times[-1]) + np.ceil(max(step, 1.0) if servers > 1 else step) * np.arange(1, extra + 1)
    arrival = [*times.tolist(), *tail.tolist()]
    count = len(arrival)
    arrivals = Arrivals(["net"] * count, arrival, [math.inf] * count, [1.0] * count, [1] * count)
    model = {"net": NodeTimes(NET, Service(service.latency))}
    actions = policy.action

    def seen_off(waiting, now):
        return actions(waiting, now) or (min(waiting, service.max_batch) if now >= arrival[-1] else 0)

    policy.action = seen_off
    outcome = run(policy, arrivals, model, servers, True)
    latencies = np.array(outcome.finished[: len(times)]) - times
    energy = sum(service.energy[ran.task.batch_size - 1] for ran in outcome.ran if ran.started <= times[-1])
    return latencies, energy / times[-1]


def confidence(values):
    """Mean of independent runs, and half the width of its interval of 99.9 % by Student's t."""
    from scipy.stats import t

    values = np.asarray(values)
    half = t.ppf(0.9995, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean()), float(half)


def mmpp2_path(rates, dwell, requests, seed):
    """Arrival times of a two-phase MMPP, and a function that tells the phase, and the next change, at a time."""
    rng = np.random.default_rng(seed)
    phase = int(rng.random() >= dwell[0] / sum(dwell))
    begin, first = 0.0, phase
    changes, chunks, count = [], [], 0
    while count < requests:
        end = begin + rng.exponential(dwell[phase])
        chunk = np.sort(rng.uniform(begin, end, rng.poisson(rates[phase] * (end - begin))))
        chunks.append(chunk)
        count += len(chunk)
        changes.append(end)
        begin, phase = end, 1 - phase
    times = np.concatenate(chunks)[:requests]

    def at(now):
        place = bisect_right(changes, now)
        return (first + place) % 2, changes[place] if place < len(changes) else math.inf

    return times, at
