#!/usr/bin/env python3
"""Times to solve for SMDP batching policies, with building the model, on one core; and requests per second that the
simulator serves by `smdp`, beside `work-conserving`.

    .venv/bin/python scripts/bench_smdp.py [--requests 100000] [--rounds 5] [--json]

Each round runs everything once, so that a slow moment of the machine meets all alike; the medians are printed. What is
over in less than 0.1 s is repeated for that long in each round.
"""

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

# Before numpy is imported, as OpenBLAS reads it once, on loading. Its threads would do nothing for matrices as small as
# these but wait for each other, and a server has its other cores for other work: so one core is what is measured.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from headrace.batching import ModelGraph, NodeTimes, Policy, SmdpBatching, WorkConservingBatching
from headrace.batching.policies import lazy
from headrace.batching.smdp import BatchService, Weights, build, policy_iteration, relative_value_iteration, solve
from headrace.batching.smdp.tables import rate_tables
from headrace.batching.smdp.tail import LatencyTail
from headrace.sim.engine import Arrivals
from headrace.sim.simulation import simulate
from headrace.sim.workload.traffic import poisson

# GoogLeNet on a Tesla P4 (Xu, Sun, Zhou, Niu, ICC 2023): alpha, tau_0 in ms and beta, zeta_0 in mJ.
TAU, ZETA = (0.3051, 1.052), (19.90, 19.60)
OVERFLOW_COST = 100.0
TARGETS_S = {"paper, policy iteration": 0.25e-3, "B_max 512, s_max 4000, policy iteration": 1.0}
LEAST_S = 0.1  # that a measurement takes
SERVING_LOAD = 0.7

NET = ModelGraph.opaque("net")


class Constant:
    """The latencies of a service, as the simulator wants them."""

    def __init__(self, service: BatchService) -> None:
        self._latency = service.latency.tolist()

    def latency(self, node: int, batch: int, length: float) -> float:
        return self._latency[batch - 1]


class Counted:
    """Counts how often a policy is asked for a task."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def next_task(self, worker: int, now: float):
        self.asked += 1
        return self._policy.next_task(worker, now)


def solving() -> dict[str, Callable[[], object]]:
    weights = Weights(1.0, 1.0)
    paper, large = (BatchService.linear(TAU, ZETA, size) for size in (32, 512))
    rate, large_rate = paper.arrival_rate(0.9), large.arrival_rate(0.9)
    solution = solve(build(paper, rate, weights))
    # A slice is taken to be as fast as the P4. In s and J, as a server has them.
    seconds = BatchService(paper.latency / 1e3, paper.energy / 1e3)
    runs: dict[str, Callable[[], object]] = {
        "paper, policy iteration": lambda: policy_iteration(build(paper, rate, weights), 70, OVERFLOW_COST),
        "paper, relative value iteration": lambda: relative_value_iteration(
            build(paper, rate, weights), 70, OVERFLOW_COST, epsilon=0.01
        ),
        "B_max 512, s_max 4000, policy iteration": lambda: policy_iteration(
            build(large, large_rate, weights), 4000, OVERFLOW_COST
        ),
    }
    for load in (0.5, 0.9, 0.99):
        runs[f"solve(), rho {load}"] = lambda load=load: solve(build(paper, paper.arrival_rate(load), weights))
    runs["rate_tables(), 7 servers"] = lambda: rate_tables(seconds, Weights(1.0, 1e-3), 7)
    runs["LatencyTail, rho 0.9, to 5 x the mean"] = lambda: LatencyTail(solution, 5 * solution.latency)
    return runs


def serving(requests: int) -> tuple[dict[str, Callable[[], object]], dict[str, float]]:
    """What to run, and how many decisions a request takes."""
    service = BatchService.linear((TAU[0] / 1e3, TAU[1] / 1e3), (ZETA[0] / 1e3, ZETA[1] / 1e3), 32)
    times = poisson(service.arrival_rate(SERVING_LOAD), requests, 0).tolist()
    queue = Arrivals(["net"] * requests, times, [math.inf] * requests, [1.0] * requests, [1] * requests)
    node_times = {"net": NodeTimes(NET, Constant(service))}
    tables = {power: rate_tables(service, Weights(1.0, power), 1) for power in (0.0, 1e-3)}
    policies: dict[str, Callable[[], Policy]] = {
        "work-conserving": lambda: WorkConservingBatching([NET], 32),
        "smdp, for latency": lambda: SmdpBatching([NET], {"net": tables[0.0]}, 32),
        "smdp, also for power": lambda: SmdpBatching([NET], {"net": tables[1e-3]}, 32),
    }
    asked = {}
    for name, make in policies.items():
        counted = Counted(make())
        simulate(counted, queue, node_times, 1)
        asked[name] = counted.asked / requests
    return {name: lambda make=make: simulate(make(), queue, node_times, 1) for name, make in policies.items()}, asked


def timed(work: Callable[[], object]) -> float:
    """Seconds a run, over as many as take LEAST_S."""
    runs, began = 0, time.perf_counter()
    while True:
        work()
        runs += 1
        passed = time.perf_counter() - began
        if passed >= LEAST_S:
            return passed / runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    solvers = solving()
    servers, asked = serving(options.requests)
    seconds: dict[str, list[float]] = {name: [] for name in [*solvers, *servers]}
    for _ in range(options.rounds):
        for name, work in [*solvers.items(), *servers.items()]:
            seconds[name].append(timed(work))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    compiled = not lazy.__file__.endswith(".py")
    if options.json:
        report = {
            "requests": options.requests,
            "compiled": compiled,
            "solve_s": {name: seconds[name] for name in solvers},
            "solve_median_s": {name: medians[name] for name in solvers},
            "target_s": TARGETS_S,
            "requests_per_s": {name: [options.requests / value for value in seconds[name]] for name in servers},
            "requests_per_s_median": {name: options.requests / medians[name] for name in servers},
            "decisions_per_s_median": {name: asked[name] * options.requests / medians[name] for name in servers},
        }
        print(json.dumps(report, indent=2))
        return
    print(f"{options.rounds} rounds, one core; the policies are {'' if compiled else 'NOT '}compiled")
    for name in solvers:
        spread = f"({1e3 * min(seconds[name]):,.3f} to {1e3 * max(seconds[name]):,.3f})"
        target = f"  target {1e3 * TARGETS_S[name]:g} ms" if name in TARGETS_S else ""
        print(f"{name:40} {1e3 * medians[name]:10,.3f} ms  {spread:24}{target}")
    print(f"\n{options.requests} requests simulated, Poisson at load {SERVING_LOAD}, one worker")
    for name in servers:
        rates = [options.requests / value for value in seconds[name]]
        decisions = asked[name] * options.requests / medians[name]
        print(
            f"{name:40} {statistics.median(rates):10,.0f} requests/s  ({min(rates):,.0f} to {max(rates):,.0f})"
            f"  {decisions:10,.0f} decisions/s"
        )


if __name__ == "__main__":
    main()
