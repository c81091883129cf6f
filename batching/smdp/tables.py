"""Tables of the optimal policy for `smdp`: over a grid of arrival rates, or by phase of bursty arrivals."""

import numpy as np

from headrace.batching.policies.smdp import RateTables
from headrace.batching.policies.smdp_phases import PhaseTables
from headrace.batching.smdp.arrivals import Mmpp2
from headrace.batching.smdp.model import build
from headrace.batching.smdp.service import BatchService, Weights
from headrace.batching.smdp.solution import RARE, Solution
from headrace.batching.smdp.solver import solve

# Loads of the grid: steps of 15 % up to 0.9, and from there the rest to 1 in halves.
LOADS = (*(0.9 * 1.15**-step for step in range(27, 0, -1)), 0.9, 0.95, 0.975)


def rate_tables(service: BatchService, weights: Weights, servers: int) -> RateTables:
    """`service` in s and J. Takes about 30 ms for batches up to 32, on one core."""
    rates = [load * servers * service.capacity for load in LOADS]
    return RateTables(
        rates,
        [_actions(solve(build(service, rate, weights, servers))) for rate in rates],
        service.best_batch,
        service.max_batch,
    )


def phase_tables(service: BatchService, arrivals: Mmpp2, weights: Weights, servers: int) -> PhaseTables:
    """For bursty arrivals of a known kind; `service` and `arrivals` in s and J."""
    solution = solve(build(service, arrivals, weights, servers))
    return PhaseTables(
        [_actions(solution, phase) for phase in (0, 1)],
        service.best_batch,
        service.max_batch,
        arrivals.rates.tolist(),
        arrivals.dwell.tolist(),
    )


def _actions(solution: Solution, phase: int = 0) -> list[int]:
    """By queue length, up to where the policy means something: states near s_max are hardly ever visited, and what is
    best there has to do with the truncation."""
    visited = int(np.flatnonzero(solution.probability[:-1, phase] >= RARE)[-1])
    length = max(visited, min(solution.model.service.max_batch, solution.s_max)) + 1
    return [int(action) for action in solution.policy[:length, phase]]
