"""Solvers: policy iteration, relative value iteration, and a solver that chooses the truncation.

Policy iteration is exact and fast. Relative value iteration is the algorithm of the paper (Section IV-C).
"""

from collections.abc import Callable

import numpy as np

from headrace.batching.errors import HeadraceError, Unstable, UsageError
from headrace.batching.smdp import kernel
from headrace.batching.smdp.model import Indices, Smdp
from headrace.batching.smdp.service import Floats
from headrace.batching.smdp.solution import RARE, Solution, solution_of

MAX_EVALUATIONS = 200
LARGEST_S_MAX = 1 << 17
AUTOMATIC_DELTA = 1e-7  # largest share of the average cost that S_o may have
EXACT_DELTA = 1e-10  # the same for exact results; the states beyond S_o have several times the share of S_o


class NotConverged(HeadraceError):
    """An iteration did not end within its limit."""


def check_truncation(s_max: int, overflow_cost: float) -> None:
    """Raise UsageError unless s_max and the overflow cost are in range."""
    if not 1 <= s_max <= LARGEST_S_MAX:
        raise UsageError(f"s_max is {s_max}: give 1 to {LARGEST_S_MAX}")
    if not (np.isfinite(overflow_cost) and overflow_cost >= 0):
        raise UsageError(f"the overflow cost is {overflow_cost}: give a number of 0 or more")


def policy_iteration(model: Smdp, s_max: int, overflow_cost: float, start: Indices | None = None) -> Solution:
    """Return the optimal policy by Howard's algorithm.

    The action to wait in S_o is left out, because a policy with it never serves again.

    Args:
        model: The process.
        s_max: The largest queue length of the truncation.
        overflow_cost: The abstract cost per unit of time in S_o.
        start: The actions of all states to start from, for example from a similar problem. None starts from a policy
            that never waits.

    Raises:
        UsageError: The truncation is out of range.
        NotConverged: The iteration did not end.
    """
    check_truncation(s_max, overflow_cost)
    policy = _serve_all(model, s_max) if start is None else start.ravel().copy()
    return _run(model, s_max, overflow_cost, policy, improve=True)


def evaluate(model: Smdp, policy: Callable[[Indices], Indices] | Indices, overflow_cost: float = 0.0) -> Solution:
    """Return the exact long-run cost of a given policy.

    Args:
        model: The process.
        policy: The actions up to S_o, or a function of queue lengths. A function is evaluated on so many states that
            S_o does not matter.
        overflow_cost: The abstract cost per unit of time in S_o.

    Raises:
        UsageError: The policy cannot serve all arrivals, or serves more requests than wait.
    """
    if not callable(policy):
        return _run(model, len(policy) - 2, overflow_cost, _checked(model, policy), improve=False)
    s_max = 4 * model.service.max_batch + 16
    while True:
        states = np.minimum(np.arange(s_max + 2), s_max)
        solution = _run(model, s_max, overflow_cost, _checked(model, policy(states)), improve=False)
        if solution.delta <= EXACT_DELTA * solution.g:
            return solution
        if s_max >= 1 << 14:
            raise UsageError("unstable: this policy does not serve all arrivals; lower the rate or use larger batches")
        s_max *= 2


def _checked(model: Smdp, actions: Indices) -> Indices:
    """Return a policy in the form that the kernel takes: one action for each state and phase."""
    phases = model.sojourn.shape[1]
    actions = np.asarray(actions, np.intp)
    actions = np.repeat(actions, phases) if actions.ndim == 1 else actions.ravel()
    states = np.minimum(np.arange(len(actions)) // phases, len(actions) // phases - 2)
    if (actions < 0).any() or (actions > states).any() or actions.max() > model.service.max_batch:
        raise UsageError("a policy must serve at least 0, at most the waiting requests, and at most the largest batch")
    if not actions[-phases:].all():
        raise UsageError("a policy must serve in the last state, S_o: otherwise it never serves again")
    return actions.copy()


def _run(model: Smdp, s_max: int, overflow_cost: float, policy: Indices, *, improve: bool) -> Solution:
    values, visits = np.empty(len(policy)), np.empty(len(policy))
    g, evaluations, _ = kernel.iterate(
        model.base,
        model.slope,
        model.sojourn,
        model.counts,
        model.first,
        model.last,
        s_max,
        overflow_cost,
        policy,
        values,
        visits,
        _usual_state(model, s_max),
        improve,
        MAX_EVALUATIONS,
    )
    if evaluations < 0 or not np.isfinite(g):
        raise NotConverged(
            f"policy iteration did not end after {MAX_EVALUATIONS} evaluations; a larger overflow cost may help"
        )
    return solution_of(model, "pi", s_max, overflow_cost, policy, values, visits, evaluations)


def static(batch: int) -> Callable[[Indices], Indices]:
    """Return the static policy for `evaluate`: wait for `batch` requests and serve them. Source: Section V-B of the
    paper."""
    return lambda states: np.where(states >= batch, batch, 0)


def _serve_all(model: Smdp, s_max: int) -> Indices:
    """Return the actions, for all states up to S_o, of the policy that never waits while a server is idle."""
    states = np.minimum(np.arange(s_max + 2), s_max)
    return np.repeat(np.minimum(states, model.service.max_batch), model.sojourn.shape[1])


def _usual_state(model: Smdp, s_max: int) -> int:
    """Return a state near the usual queue length under the policy that never waits.

    It is the queue length that reproduces itself: as many requests arrive during its service."""
    arrivals = model.rate * model.sojourn[1:, 0]
    sizes = np.arange(1, len(arrivals) + 1)
    steady = np.flatnonzero(arrivals <= sizes)
    usual = int(arrivals[steady[0]]) if len(steady) else len(arrivals)
    return min(usual, s_max) * int(model.sojourn.shape[1])


def work_conserving(max_batch: int) -> Callable[[Indices], Indices]:
    """Return the work-conserving policy for `evaluate`: serve all waiting requests, at most `max_batch`, and never
    wait."""
    return lambda states: np.minimum(states, max_batch)


def relative_value_iteration(
    model: Smdp, s_max: int, overflow_cost: float, epsilon: float = 0.01, max_iterations: int = 10_000
) -> Solution:
    """Return the policy of relative value iteration, the algorithm of the paper (Section IV-B and C).

    The process is turned into one of equal steps of length eta ("discretization", Eq. 17). eta is 0.99 of the largest
    value that leaves each state a probability of staying (Eq. 19). In Table I of the paper that is 0.99 / rate.
    Arrivals must be Poisson.

    Args:
        model: The process.
        s_max: The largest queue length of the truncation.
        overflow_cost: The abstract cost per unit of time in S_o.
        epsilon: The iteration ends when the changes of the values span less than this (Eq. 22).
        max_iterations: The largest number of iterations.

    Raises:
        UsageError: An argument is out of range, or arrivals are bursty.
    """
    check_truncation(s_max, overflow_cost)
    if model.sojourn.shape[1] > 1:
        raise UsageError("relative value iteration takes Poisson arrivals; use policy iteration for bursty ones")
    if not epsilon > 0 or max_iterations < 1:
        raise UsageError(f"epsilon {epsilon} and {max_iterations} iterations: give numbers above 0")
    actions = min(model.service.max_batch, s_max) + 1
    sojourn, base, slope = model.sojourn[:actions, 0], model.base[:actions, 0], model.slope[:actions, 0]
    pmf = model.counts[:actions, 0, 0]
    stay = np.diagonal(np.pad(pmf, ((0, 0), (0, max(0, actions - pmf.shape[1])))))[:actions]
    eta = 0.99 * float((sojourn / (1.0 - stay)).min())
    states = np.minimum(np.arange(s_max + 2), s_max)
    left = states[:, None] - np.arange(actions)
    allowed = left >= 0
    cost = (base + slope * states[:, None]) / sojourn
    cost[-1] += overflow_cost
    cost[~allowed] = np.inf
    share = eta / sojourn
    entry = np.maximum(left, 0) * actions + np.arange(actions)  # index of (left, action) in the expected values
    padded = np.empty(s_max + 1 + pmf.shape[1])
    windows = np.lib.stride_tricks.sliding_window_view(padded, pmf.shape[1])[: s_max + 1]
    values = np.zeros(s_max + 2)
    iteration, converged = 0, False
    while iteration < max_iterations and not converged:
        iteration += 1
        padded[: s_max + 2] = values
        padded[s_max + 2 :] = values[-1]
        expected = (windows @ pmf.T).ravel()[entry]
        quality = cost + share * (expected - values[:, None])
        new = quality.min(axis=1) + values
        change = new - values
        values = new - new[0]
        converged = bool(change.max() - change.min() < epsilon)
    policy = quality.argmin(axis=1)
    visits = _stationary(model, policy, s_max)
    return solution_of(model, "rvi", s_max, overflow_cost, policy, values, visits, iteration, converged)


def _stationary(model: Smdp, policy: Indices, s_max: int) -> Floats:
    """Return the stationary distribution of a policy. A policy that waits in S_o ends there."""
    values, visits = np.empty(s_max + 2), np.zeros(s_max + 2)
    if policy[-1] == 0:
        visits[-1] = 1.0
        return visits
    kernel.iterate(
        model.base,
        model.slope,
        model.sojourn,
        model.counts,
        model.first,
        model.last,
        s_max,
        0.0,
        policy.copy(),
        values,
        visits,
        _usual_state(model, s_max),
        False,
        MAX_EVALUATIONS,
    )
    return visits


def solve(model: Smdp, delta: float = AUTOMATIC_DELTA) -> Solution:
    """Return the optimal policy with an automatic truncation.

    s_max grows until S_o has less than `delta` of the average cost and the policy no longer changes in the states that
    it visits.

    The overflow cost follows from the loss in S_o. A stay of length y loses the arrival that led there and rate * y
    more. To serve each of these would cost g / rate. The overflow cost is twice the amount that makes up for this loss
    in the shortest stay. g is that of the policy that never waits. With less it can be best to stay in S_o, for a large
    w2."""
    phases = model.sojourn.shape[1]
    s_max = 2 * model.service.max_batch + 8
    try:
        served = evaluate(model, work_conserving(model.service.best_batch)).g
    except UsageError as error:
        raise _too_close(model) from error
    overflow_cost = 2 * served * (1 + 1 / (model.rate * float(model.sojourn[1:].min())))
    before: Solution | None = None
    while True:
        start = None
        if before is not None:
            start = _serve_all(model, s_max).reshape(-1, phases)
            start[: before.s_max + 1] = before.policy[:-1]
        solution = policy_iteration(model, s_max, overflow_cost, start)
        if before is not None and solution.delta <= delta * solution.g:
            visited = solution.probability[: before.s_max + 1] >= RARE
            if (solution.policy[: before.s_max + 1] == before.policy[:-1])[visited].all():
                return solution
        if s_max * 2 > LARGEST_S_MAX:
            raise _too_close(model)
        before = solution
        s_max = s_max * 3 // 2


def _too_close(model: Smdp) -> Unstable:
    return Unstable(f"rho = {model.load:.7g} is so close to 1 that the queue is too long to compute; lower the rate")
