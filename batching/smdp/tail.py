"""This module computes the distribution of latency under a policy by queue length, for Poisson arrivals.

Requests are served first in, first out. Follow one request. At a decision it is the n-th of the queue, with j requests
after it. So the queue length is s = n + j. The policy serves a = policy(s):

- If a >= n, the request has tau(a) to go.
- If 0 < a < n, the request is at place n - a when a server is idle next, tau(a) later, with k newcomers after it. With
  m servers this time is tau(a) / m (see model.py).
- If a = 0, the policy waits until the queue has length q. That takes an Erlang(q - s) time.

Let P(n, j, t) be the probability that the request has more than t to go. It is 1 for t < 0, and otherwise

    P(n, j, t) = 1{tau(a) > t}                                     if a >= n
               = sum over k of p_k(a) P(n - a, j + k, t - tau(a))  if 0 < a < n
               = 1 - E[1 - P(n, q - n, t - Erlang(q - s))]         if a = 0

Each service lowers n. So the equation is solved by rising n, for all times of a grid at once. Two limits keep it
finite. j stops where the policy serves the same for every longer queue. n stops where a request cannot be served within
the horizon.

A request arrives in one of two situations. A server may be idle and waiting in state s; then the state becomes s + 1.
Or a server is busy with a batch of a, for a further time r. r is uniform on (0, tau(a)), because Poisson arrivals see
time averages. The numbers of other arrivals before and after it in that service are Poisson.

P is interpolated between times of the grid, so a jump of the distribution is spread over one step. At the exact latency
of a jump, the result lies between the values on its two sides.
"""

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.smdp.arrivals import poisson_counts, room_for
from headrace.batching.smdp.service import Floats
from headrace.batching.smdp.solution import Solution

STEPS = 256  # steps of the grid of times
RESIDUALS = 96  # steps of the grid of remaining service times at an arrival


class LatencyTail:
    """The probabilities P(latency > t) for 0 <= t <= `horizon`.

    Args:
        solution: The policy.
        horizon: The largest time.

    Raises:
        UsageError: Arrivals are bursty, or the horizon is out of range.
    """

    def __init__(self, solution: Solution, horizon: float) -> None:
        model = solution.model
        if model.sojourn.shape[1] > 1:
            raise UsageError("the latency distribution is computed for Poisson arrivals; simulate bursty ones")
        if not (np.isfinite(horizon) and horizon > 0):
            raise UsageError(f"the horizon of the latency distribution is {horizon}: give a number above 0")
        self._model = model
        self._policy = solution.policy[:-1, 0]
        self._probability = solution.probability[:, 0]
        self._step = horizon / STEPS
        self.times = np.arange(STEPS + 1) * self._step
        changes = np.flatnonzero(np.diff(self._policy))
        steady = int(changes[-1]) + 1 if len(changes) else 0  # from this queue length on the action is always the same
        self._followers = min(steady, room_for(model.rate * horizon))
        served = model.servers * model.service.capacity * horizon
        self._ahead = min(solution.s_max, int(served) + model.service.max_batch) + 1
        self.exceeds = self._arrival(self._after_arrival())

    def probability(self, latency: float) -> float:
        """Return P(latency > `latency`). `latency` is at most the horizon."""
        return float(np.interp(latency, self.times, self.exceeds))

    def quantile(self, share: float) -> float | None:
        """Return the smallest latency that `share` of the requests do not exceed; None if it is beyond the horizon."""
        within = np.flatnonzero(self.exceeds <= 1 - share)
        if len(within) == 0:
            return None
        first = int(within[0])
        low, high = self.exceeds[first - 1], self.exceeds[first]
        return float(self.times[first] - self._step * ((1 - share) - high) / (low - high) if low > high else 0.0)

    def _shifted(self, exceeds: Floats, by: float) -> Floats:
        """Return `exceeds` for times that are `by` later. Before time 0 it is 1. The last axis is the grid of times."""
        cells, part = divmod(by / self._step, 1.0)
        whole = int(cells)
        shifted = np.ones_like(exceeds)
        if whole <= STEPS:
            kept = STEPS + 1 - whole
            shifted[..., whole:] = exceeds[..., :kept] * (1.0 - part)
            shifted[..., whole + 1 :] += exceeds[..., : kept - 1] * part
            shifted[..., whole] += part
        return shifted

    def _after_arrival(self) -> Floats:
        """Return P(n, j, t), of shape (ahead + 1, followers + 1, STEPS + 1)."""
        model, policy, last = self._model, self._policy, len(self._policy) - 1
        to_go = np.ones((self._ahead + 1, self._followers + 1, STEPS + 1))
        newcomers: dict[int, Floats] = {}
        for n in range(1, self._ahead + 1):
            actions = policy[np.minimum(n + np.arange(self._followers + 1), last)]
            for action in np.unique(actions[actions > 0]):
                rows = np.flatnonzero(actions == action)
                if action >= n:
                    ramp = (model.service.latency[action - 1] - self.times) / self._step + 0.5
                    to_go[n, rows] = np.clip(ramp, 0.0, 1.0)
                    continue
                if action not in newcomers:
                    newcomers[action] = self._newcomers(action)
                later = newcomers[action][rows] @ to_go[n - action]
                to_go[n, rows] = self._shifted(later, float(model.sojourn[action, 0]))
            serving = np.flatnonzero(actions > 0)
            for j in np.flatnonzero(actions == 0):
                following = serving[serving > j]
                if len(following):
                    until = int(following[0])
                    to_go[n, j] = 1.0 - self._waited(until - int(j), 1.0 - to_go[n, until])
        return to_go

    def _newcomers(self, action: int) -> Floats:
        """Return the transition matrix of j during a service: [j, j']. The last column holds all larger j'."""
        size = self._followers + 1
        counts = np.zeros(size)
        known = self._model.counts[action, 0, 0, :size]
        counts[: len(known)] = known
        matrix = np.zeros((size, size))
        for j in range(size):
            matrix[j, j:] = counts[: size - j]
        matrix[:, -1] = 1.0 - matrix[:, :-1].sum(axis=1)
        return matrix

    def _waited(self, arrivals: int, within: Floats) -> Floats:
        """Return the distribution `within` after a wait for this many arrivals."""
        edges = np.maximum(self.times - 0.5 * self._step, 0.0)
        pmf, _, _ = poisson_counts(np.append(edges, self.times[-1] + 0.5 * self._step) * self._model.rate)
        passed = 1.0 - pmf[:, :arrivals].sum(axis=1)  # P(Erlang <= edge) at each edge
        waited: Floats = np.convolve(np.diff(passed), within)[: STEPS + 1]
        return waited

    def _arrival(self, to_go: Floats) -> Floats:
        """Return P(latency > t) of a request that arrives at any time."""
        model, rate, last = self._model, self._model.rate, len(self._policy) - 1
        policy = np.append(self._policy, self._policy[last])  # S_o behaves like s_max
        states = np.minimum(np.arange(last + 2), last)
        share = self._probability * model.sojourn[policy, 0]
        share /= share.sum()
        result = np.zeros(STEPS + 1)
        beyond = 0.0  # share of requests with too many others before them to be served in time
        for state in np.flatnonzero(policy == 0):
            if state + 1 <= self._ahead:
                result += share[state] * to_go[state + 1, 0]
            else:
                beyond += float(share[state])
        busy = [action for action in np.unique(policy[policy > 0]) if share[policy == action].sum() > 1e-12]
        width = max((float(model.sojourn[action, 0]) for action in busy), default=0.0) / RESIDUALS
        leftovers = {
            action: np.bincount(states[policy == action] - action, weights=share[policy == action]) for action in busy
        }
        for cell in range(RESIDUALS):
            rest = (cell + 0.5) * width
            ahead = np.zeros(self._ahead)  # [n - 1]
            for action in busy:
                gap = float(model.sojourn[action, 0])
                part = min(max(gap - cell * width, 0.0), width) / gap
                if part == 0.0:
                    continue
                before, _, _ = poisson_counts(np.array([rate * max(gap - rest, 0.0)]))
                spread = part * np.convolve(leftovers[action], before[0])
                ahead[: len(spread)] += spread[: self._ahead]
                beyond += float(spread[self._ahead :].sum())
            followers = np.zeros(self._followers + 1)
            after, _, _ = poisson_counts(np.array([rate * rest]))
            kept = min(len(followers), after.shape[1])
            followers[:kept] = after[0, :kept]
            followers[-1] += after[0, kept:].sum()
            mean = np.tensordot(ahead @ to_go[1:].reshape(self._ahead, -1), [1.0], 0).reshape(self._followers + 1, -1)
            reached = followers @ mean
            result += ahead.sum() * self._shifted(reached / ahead.sum(), rest) if ahead.sum() > 0 else 0.0
        return result + beyond
