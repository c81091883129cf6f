"""Times to solve for SMDP batching policies, with building the model, on one core.

    .venv/bin/python -m benchmarks.smdp [--rounds 5] [--json [FILE]]

A run that takes less than 0.1 s is repeated for that long in each round.
"""

import argparse
import os
from collections.abc import Callable

# OpenBLAS reads this once, when numpy loads it. Its threads would only wait for each other on matrices as small as
# these, and a server has other work for its other cores. So the benchmark measures one core.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from benchmarks.harness import Report, arguments, main, measure, seconds, spread, summary, table
from headrace.batching.smdp import BatchService, Weights, build, policy_iteration, relative_value_iteration, solve
from headrace.batching.smdp.tables import rate_tables
from headrace.batching.smdp.tail import LatencyTail

# GoogLeNet on a Tesla P4 (Xu, Sun, Zhou, Niu, ICC 2023): alpha, tau_0 in ms and beta, zeta_0 in mJ.
TAU, ZETA = (0.3051, 1.052), (19.90, 19.60)
OVERFLOW_COST = 100.0
TARGETS_S = {"paper, policy iteration": 0.25e-3, "B_max 512, s_max 4000, policy iteration": 1.0}
LEAST_S = 0.1  # that a measurement takes


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


def run(options: argparse.Namespace) -> Report:
    cases = {name: lambda _, work=work: 1e3 * seconds(work, LEAST_S) for name, work in solving().items()}
    ms = measure(cases, options.rounds)
    targets = {name: f"{1e3 * target:g}" for name, target in TARGETS_S.items()}
    rows = [f"{name} | {spread(each, ',.3f')} | {targets.get(name, '')}" for name, each in ms.items()]
    return Report({"solve_ms": summary(ms), "target_s": TARGETS_S}, table("one core | ms | target", rows))


if __name__ == "__main__":
    main(arguments(__doc__, rounds=5), run)
