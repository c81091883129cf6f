"""The least power within a bound on the mean latency, by a mixture of two policies.

Under a bound, the best policy is in general randomised. The policies that minimise latency + w2 * power are the corners
of a convex hull, in the plane of mean latency and power. A bound between two corners is met exactly, and at least
power, by a mixture of these two (Beutler and Ross, "Optimal Policies for Controlled Markov Chains with a Constraint",
Journal of Mathematical Analysis and Applications 112, 1985).

The two corners. Both cost the same at the weight w2 = (difference of latencies) / (difference of powers). If a third
policy costs less at this weight, it is a corner between them and replaces the one on its side of the bound. If none
does, they are neighbours.

The mixture. Both policies visit some state, so many waiting requests when a decision is due. A visit to this state is a
regeneration point, because the future depends on the state alone. At each visit a coin chooses the policy to follow up
to the next visit. Let T1 and T2 be the mean times between two visits under each policy. If the coin shows the second
policy with probability p, the share of time under it is p T2 / ((1 - p) T1 + p T2). Mean latency and power are then the
means of both policies, weighted by their shares of time. So p follows from the share that meets the bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.smdp.model import build
from headrace.batching.smdp.service import BatchService, Weights
from headrace.batching.smdp.slo import Infeasible
from headrace.batching.smdp.solution import Solution
from headrace.batching.smdp.solver import solve

MAX_SOLVES = 100
SAME_COST = 1e-6  # policies whose costs differ by a smaller share cost the same; the solver's truncation costs 1e-7
GREATEST_WEIGHT = 1e6  # in units of the weight at which the fastest policy's power costs as much as its latency


@dataclass(frozen=True, slots=True)
class Mixture:
    """Two policies that are followed in turns.

    Args:
        fast: The policy with the lower latency.
        frugal: The policy with the lower power. It is `fast` itself where no mixture is needed.
        share: The share of time under `frugal`.
    """

    fast: Solution
    frugal: Solution
    share: float

    @property
    def latency(self) -> float:
        """Return the mean latency."""
        return (1 - self.share) * self.fast.latency + self.share * self.frugal.latency

    @property
    def power(self) -> float:
        """Return the mean power."""
        return (1 - self.share) * self.fast.power + self.share * self.frugal.power

    @property
    def state(self) -> int:
        """Return the regeneration state: the number of waiting requests, at least 1, that both policies meet most
        often."""
        states = min(len(self.fast.probability), len(self.frugal.probability)) - 1  # the last one is S_o
        both = np.minimum(self.fast.probability[1:states, 0], self.frugal.probability[1:states, 0])
        return 1 + int(both.argmax())

    @property
    def chance(self) -> float:
        """Return the probability with which a visit to `state` chooses `frugal`."""
        fast_s, frugal_s = (_between_visits(solution, self.state) for solution in (self.fast, self.frugal))
        return self.share * fast_s / (self.share * fast_s + (1 - self.share) * frugal_s)


def _between_visits(solution: Solution, state: int) -> float:
    """Return the mean time between two visits to a state."""
    sojourn = solution.model.sojourn[solution.policy[:, 0], 0]
    return float(solution.probability[:, 0] @ sojourn) / float(solution.probability[state, 0])


def least_power_mixture(
    service: BatchService,
    rate: float,
    latency: float,
    servers: int = 1,
    step: Callable[[], None] = lambda: None,
) -> Mixture:
    """Return the mixture with the least power of all policies, randomised ones included, whose mean latency is bounded.

    Args:
        service: Service times and energies by batch size.
        rate: The rate of Poisson arrivals.
        latency: The largest mean latency.
        servers: The number of servers.
        step: A function that is called after each policy that was solved, at most MAX_SOLVES times.

    Raises:
        UsageError: An argument is out of range, or no energies are given.
        Infeasible: No policy has so low a mean latency.
    """
    if not (isfinite(latency) and latency > 0):
        raise UsageError(f"a mean latency of {latency}: give a number above 0")
    if not service.energy.any():
        raise UsageError("no energies are given; the least power needs the energy of each batch size")
    solved = 0

    def optimal(weight: float) -> Solution:
        nonlocal solved
        solved += 1
        solution = solve(build(service, rate, Weights(1.0, weight), servers))
        step()
        return solution

    fast = optimal(0.0)
    if fast.latency > latency:
        raise Infeasible(f"no policy has a mean latency of {latency:g} at this rate: the least is {fast.latency:.6g}")
    scale = fast.latency / fast.power
    weight = 1e-4 * scale
    frugal = optimal(weight)
    while frugal.latency <= latency and weight < GREATEST_WEIGHT * scale:
        fast, weight = frugal, 10 * weight
        frugal = optimal(weight)
    if frugal.latency <= latency:  # no power is saved by more latency
        return Mixture(frugal, frugal, 0.0)
    while solved < MAX_SOLVES and frugal.power < fast.power:
        weight = (frugal.latency - fast.latency) / (fast.power - frugal.power)
        between = optimal(weight)
        cost = fast.latency + weight * fast.power
        if between.latency + weight * between.power >= cost * (1 - SAME_COST):
            break
        if between.latency <= latency:
            fast = between
        else:
            frugal = between
    return Mixture(fast, frugal, (latency - fast.latency) / (frugal.latency - fast.latency))
