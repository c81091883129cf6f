"""The policy with the least power within a latency target, on the mean or on a quantile.

Mean latency. A policy that minimises w1 * latency + w2 * power has the least power of all policies with its mean
latency. Otherwise a policy with less power and no more latency would cost less. As w2 grows, the power falls and the
mean latency rises. So bisection on w2, with w1 = 1, finds the least power under `mean latency <= L`. The result lies on
the lower convex hull of the policies. Between two corners of the hull, a mixture of both saves more (mixture.py).

Quantile. The same policies are searched under `P(latency > L) <= p`. Their violation usually rises with w2, but not
always. So the search scans the whole range, and refines it around the answer. The tail is computed exactly (tail.py),
not bounded.

Source: the weighted objective is that of the SMDP paper (smdp/model.py). The paper names targets on quantiles as its
limitation.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headrace.batching.errors import HeadraceError, UsageError
from headrace.batching.smdp.model import build
from headrace.batching.smdp.service import BatchService, Weights
from headrace.batching.smdp.solution import Solution
from headrace.batching.smdp.solver import solve
from headrace.batching.smdp.tail import LatencyTail

SCANNED = 24  # weights of the scan, on a logarithmic scale
BISECTIONS = 24


class Infeasible(HeadraceError):
    """No policy meets the target."""


@dataclass(frozen=True, slots=True)
class Target:
    """A latency target: `mean latency <= latency`, or `P(latency > latency) <= 1 - quantile` with a quantile.

    Raises:
        UsageError: A value is out of range.
    """

    latency: float
    quantile: float | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.latency) and self.latency > 0):
            raise UsageError(f"a latency target of {self.latency}: give a number above 0")
        if self.quantile is not None and not 0 < self.quantile < 1:
            raise UsageError(f"a quantile of {self.quantile}: give a number between 0 and 1, for example 0.95")

    def excess(self, solution: Solution) -> float:
        """Return the amount by which a policy misses the target. It is at most 0 if the target is met.

        The unit is that of latency for the mean, and a share of requests for a quantile."""
        if self.quantile is None:
            return solution.latency - self.latency
        return LatencyTail(solution, 1.01 * self.latency).probability(self.latency) - (1 - self.quantile)


def least_power(
    service: BatchService,
    rate: float,
    target: Target,
    servers: int = 1,
    step: Callable[[], None] = lambda: None,
) -> Solution:
    """Return the policy with the least power that meets a target.

    Args:
        service: Service times and energies by batch size.
        rate: The rate of Poisson arrivals.
        target: The latency target.
        servers: The number of servers.
        step: A function that is called after each policy that was solved, at most 1 + SCANNED + BISECTIONS times.

    Raises:
        UsageError: An argument is out of range, or no energies are given.
        Infeasible: No policy meets the target. The message says by how much the best one misses it.
    """

    def optimal(weight: float) -> Solution:
        solution = solve(build(service, rate, Weights(1.0, weight), servers))
        step()
        return solution

    fastest = optimal(0.0)
    if not service.energy.any():
        raise UsageError("no energies are given; the least power needs the energy of each batch size")
    # The range goes from weights at which energy hardly counts to weights at which little else counts.
    scale = fastest.latency / fastest.power
    weights = scale * np.geomspace(1e-4, 1e5, SCANNED)
    low, high = 0.0, float(weights[0])
    best: Solution | None = None
    least = np.inf
    for weight in (0.0, *weights):
        solution = optimal(float(weight)) if weight > 0.0 else fastest
        excess = target.excess(solution)
        least = min(least, excess)
        if excess <= 0 and (best is None or solution.power <= best.power):
            best, low, high = solution, float(weight), np.inf
        elif best is not None and high == np.inf:
            high = float(weight)
        if target.quantile is None and excess > 0:
            break
    if best is None:
        raise Infeasible(_missing(target, fastest, least))
    if high == np.inf:  # every weight meets the target
        return best
    for _ in range(BISECTIONS):
        weight = 0.5 * (low + high) if low == 0.0 else float(np.sqrt(low * high))
        solution = optimal(weight)
        if target.excess(solution) <= 0:
            low = weight
            if solution.power < best.power:
                best = solution
        else:
            high = weight
        if high <= low * 1.0001:
            break
    return best


def _missing(target: Target, fastest: Solution, least: float) -> str:
    if target.quantile is None:
        return (
            f"no policy has a mean latency of {target.latency:g} at this rate: the least is {fastest.latency:.6g}, "
            f"{least:.3g} too much"
        )
    horizon = 2 * target.latency
    reached = None
    while reached is None:
        reached = LatencyTail(fastest, horizon).quantile(target.quantile)
        horizon *= 2
    return (
        f"no policy found has at most {1 - target.quantile:.3g} of the requests later than {target.latency:g} at this "
        f"rate: the least is {1 - target.quantile + least:.4g}, {least:.3g} too much; the fastest policy's quantile "
        f"{target.quantile:g} is {reached:.6g}"
    )
