"""Tables of the optimal policy for `smdp`, over a grid of arrival rates or by phase of bursty arrivals."""

from functools import lru_cache

import numpy as np

from headrace.batching.action_tables import MixedTables, PhaseTables, RateTables
from headrace.batching.context import PolicyContext
from headrace.batching.errors import Unstable, UsageError
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.smdp.arrivals import Mmpp2
from headrace.batching.smdp.mixture import Mixture
from headrace.batching.smdp.model import build
from headrace.batching.smdp.service import BatchService, Weights
from headrace.batching.smdp.solution import RARE, Solution
from headrace.batching.smdp.solver import solve

# Loads of the grid: steps of 15 % up to 0.9, then half of the rest to 1 each time.
LOADS = (*(0.9 * 1.15**-step for step in range(27, 0, -1)), 0.9, 0.95, 0.975)


def rate_tables(service: BatchService, weights: Weights, servers: int) -> RateTables:
    """Return tables for a grid of arrival rates. `service` is in s and J."""
    rates = [load * servers * service.capacity for load in LOADS]
    return RateTables(
        rates,
        [_actions(solve(build(service, rate, weights, servers))) for rate in rates],
        service.best_batch,
        service.max_batch,
    )


def phase_tables(service: BatchService, arrivals: Mmpp2, weights: Weights, servers: int) -> PhaseTables:
    """Return the tables for bursty arrivals of a known kind. `service` and `arrivals` are in s and J."""
    solution = solve(build(service, arrivals, weights, servers))
    return PhaseTables(
        [_actions(solution, phase) for phase in (0, 1)],
        service.best_batch,
        service.max_batch,
        arrivals.rates.tolist(),
        arrivals.dwell.tolist(),
    )


def mixed_tables(mixture: Mixture) -> MixedTables:
    """Return the tables by which `smdp` serves a mixture."""
    service = mixture.fast.model.service
    return MixedTables(
        [_actions(solution) for solution in (mixture.fast, mixture.frugal)],
        service.best_batch,
        service.max_batch,
        mixture.state,
        mixture.chance,
    )


def _actions(solution: Solution, phase: int = 0) -> list[int]:
    """Return the actions of one phase by queue length, for the states that the policy visits.

    States near s_max are hardly ever visited, and their actions depend on the truncation. They are left out."""
    visited = int(np.flatnonzero(solution.probability[:-1, phase] >= RARE)[-1])
    length = max(visited, min(solution.model.service.max_batch, solution.s_max)) + 1
    return [int(action) for action in solution.policy[:length, phase]]


def tables_for(
    context: PolicyContext, max_batch: int, w2: float, by_phase: bool
) -> dict[str, RateTables | PhaseTables]:
    """Return a table for each model of a context.

    Args:
        context: The models, their latencies and the workers.
        max_batch: The largest batch, in requests.
        w2: Milliseconds of mean latency that one watt of mean power is worth.
        by_phase: Whether to solve a table for each phase of the context's bursts.

    Raises:
        UsageError: The power or the bursts are not known.
        Unstable: More requests arrive than the workers can serve.
    """
    if w2 > 0 and context.busy_w is None:
        raise UsageError("--w2 needs the power of a busy worker; give --busy-w")
    if by_phase and context.bursts is None:
        raise UsageError("--by-phase needs bursty arrivals; give --traffic mmpp")
    weights = Weights(latency=1e3, power=w2)  # 1000 for a second is 1 for a millisecond
    power = context.busy_w or 0.0
    tables: dict[str, RateTables | PhaseTables] = {}
    for model, times in context.slowest(max_batch).items():
        service = (times, max_batch, context.typical.get(model, (1.0, 1)), power)
        if not by_phase:
            tables[model] = _rate_tables(*service, weights, context.workers)
            continue
        assert context.bursts is not None
        rates, dwell = context.bursts.rates_rps[model], context.bursts.dwell_s
        solved = _phase_tables(*service, weights, context.workers, rates, dwell)
        if isinstance(solved, Unstable):
            raise Unstable(*solved.args)
        tables[model] = solved
    return tables


# A search asks for the same tables many times: for every rate, and for every way of preprocessing.
@lru_cache(maxsize=512)
def _phase_tables(
    times: NodeTimes,
    max_batch: int,
    typical: tuple[float, int],
    power: float,
    weights: Weights,
    servers: int,
    rates: tuple[float, float],
    dwell: tuple[float, float],
) -> PhaseTables | Unstable:
    """Return the tables, or the error that says why there are none. The error is cached too, because it takes longest
    to find."""
    bursts = Mmpp2(np.array(rates), np.array(dwell))
    try:
        return phase_tables(BatchService.of_times(times, max_batch, typical, power), bursts, weights, servers)
    except Unstable as error:
        return error


@lru_cache(maxsize=512)
def _rate_tables(
    times: NodeTimes, max_batch: int, typical: tuple[float, int], power: float, weights: Weights, servers: int
) -> RateTables:
    return rate_tables(BatchService.of_times(times, max_batch, typical, power), weights, servers)
