"""A batching policy by queue length, with its long-run costs."""

from dataclasses import dataclass

import numpy as np

from headrace.batching.smdp.model import Indices, Smdp
from headrace.batching.smdp.service import Floats

RARE = 1e-9  # states with a lower stationary probability do not count for a policy's structure


@dataclass(frozen=True, slots=True)
class Solution:
    """A policy and its costs.

    Args:
        model: The process.
        method: The solver: "pi" for policy iteration, "rvi" for relative value iteration.
        s_max: The largest queue length of the truncation.
        overflow_cost: The abstract cost c_o per unit of time in S_o.
        policy: policy[s, f] is the batch to serve with s requests waiting in phase f, 0 to wait. The last row is S_o.
        iterations: The sweeps of relative value iteration, or the evaluations of policy iteration.
        g: The average cost, including the abstract cost.
        delta: The part of g that S_o contributes (Eq. 15). It shows how much the truncation matters.
        latency: The mean latency.
        power: The mean power.
        probability: The stationary distribution at decisions, of the shape of `policy`.
        values: The relative values. Relative value iteration gives those of the process in steps of eta.
        converged: Whether relative value iteration converged.
    """

    model: Smdp
    method: str
    s_max: int
    overflow_cost: float
    policy: Indices
    iterations: int
    g: float
    delta: float
    latency: float
    power: float
    probability: Floats
    values: Floats
    converged: bool = True

    @property
    def waits_for_ever(self) -> bool:
        """Return whether the policy stays in S_o and never serves. Then s_max or the overflow cost is too low."""
        return bool((self.policy[-1] == 0).any())

    @property
    def control_limit(self) -> int | None:
        """Return the control limit Q of the policy; None if it has no such structure, or depends on the phase.

        With a control limit Q, the policy waits below Q and serves min(s, max_batch) from Q on, in every state that it
        visits."""
        if self.policy.shape[1] > 1:
            return None
        actions, visited = self.policy[:-1, 0], self.probability[:-1, 0] >= RARE
        serving = np.flatnonzero((actions > 0) & visited)
        if len(serving) == 0:
            return None
        limit = int(serving[0])
        states = np.arange(len(actions))
        expected = np.where(states < limit, 0, np.minimum(states, self.model.service.max_batch))
        return limit if (actions == expected)[visited].all() else None

    @property
    def batch_shares(self) -> Floats:
        """Return the share of each batch size, from 1, among the batches."""
        counts = np.bincount(
            self.policy.ravel(), weights=self.probability.ravel(), minlength=self.model.service.max_batch + 1
        )
        shares: Floats = counts[1:] / counts[1:].sum()
        return shares


def solution_of(
    model: Smdp,
    method: str,
    s_max: int,
    overflow_cost: float,
    policy: Indices,
    values: Floats,
    visits: Floats,
    iterations: int,
    converged: bool = True,
) -> Solution:
    """Return the solution with the costs of a policy.

    `policy`, `values` and `visits` are by state and then by phase, with S_o last. `visits` are expected visits or a
    distribution, on any scale."""
    phases = model.sojourn.shape[1]
    policy, visits = policy.reshape(-1, phases), visits.reshape(-1, phases)
    states = np.minimum(np.arange(s_max + 2), s_max)[:, None]
    phase = np.arange(phases)
    sojourn = model.sojourn[policy, phase]
    requests = model.requests_base[policy, phase] + model.requests_slope[policy, phase] * states
    cycle = float((visits * sojourn).sum())
    latency = float((visits * requests).sum()) / cycle / model.rate
    power = float((visits * model.energy[policy, phase]).sum()) / cycle
    overflow = float((visits[-1] * sojourn[-1]).sum()) / cycle
    cost = (
        model.weights.latency / model.rate * requests[-1] + model.weights.power * model.energy[policy[-1], phase]
    ) @ visits[-1]
    g = model.weights.latency * latency + model.weights.power * power + overflow_cost * overflow
    return Solution(
        model=model,
        method=method,
        s_max=s_max,
        overflow_cost=overflow_cost,
        policy=policy,
        iterations=iterations,
        g=g,
        delta=float(cost) / cycle + overflow_cost * overflow,
        latency=latency,
        power=power,
        probability=visits / visits.sum(),
        values=values.reshape(-1, phases),
        converged=converged,
    )
