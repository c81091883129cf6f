"""The distribution of latency under a policy by queue length: what a mean does not tell (Poisson arrivals).

First in, first out. Follow a request. At a decision it stands n-th, with j behind it. If the policy serves a >= n, it
has tau(a) to go. If it serves less, the request is at n - a when the server is next idle, tau(a) later (with m servers
tau(a) / m, see model.py), with k newcomers behind it. If the policy waits until the queue, now s, is q long, that takes
an Erlang(q - s) time. So with P(n, j, t) the probability that it has more than t to go, s = n + j and a = policy(s),

    P(n, j, t) = 1{tau(a) > t}                                     if a >= n
               = sum over k of p_k(a) P(n - a, j + k, t - tau(a))  if 0 < a < n
               = 1 - E[1 - P(n, q - n, t - Erlang(q - s))]         if a = 0,

and 1 where t < 0. With every service n falls, so this is solved by rising n, for all times of a grid at once. There is
no need of a j beyond which the policy serves the same whatever waits, nor of an n that cannot be served in time.

A request finds the server waiting in s, and makes it s + 1; or at work on a batch of a, for a further time r that is
uniform on (0, tau(a)), and a Poisson number of others came before it, and come after it, in that service (Poisson
arrivals see time averages).

Between times of the grid P is interpolated, so a jump of the distribution is smeared over one step: asked for exactly
the latency of a jump, the answer lies between the two sides.
"""

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.smdp.arrivals import poisson_counts, room_for
from headrace.batching.smdp.service import Floats
from headrace.batching.smdp.solution import Solution

STEPS = 256  # of the grid of times
RESIDUALS = 96  # of the grid of times that a service still takes when a request arrives


class LatencyTail:
    """P(latency > t) for 0 <= t <= `horizon`. Raises UsageError for bursty arrivals."""

    def __init__(self, solution: Solution, horizon: float) -> None:
        model = solution.model
        if model.sojourn.shape[1] > 1:
            raise UsageError("the latency distribution is computed for Poisson arrivals; simulate bursty ones")
        if not (np.isfinite(horizon) and horizon > 0):
            raise UsageError(f"the distribution of latency up to {horizon} is asked for: give a number above 0")
        self._model = model
        self._policy = solution.policy[:-1, 0]
        self._probability = solution.probability[:, 0]
        self._step = horizon / STEPS
        self.times = np.arange(STEPS + 1) * self._step
        changes = np.flatnonzero(np.diff(self._policy))
        steady = int(changes[-1]) + 1 if len(changes) else 0  # from here on the action is always the same
        self._followers = min(steady, room_for(model.rate * horizon))
        served = model.servers * model.service.capacity * horizon
        self._ahead = min(solution.s_max, int(served) + model.service.max_batch) + 1
        self.exceeds = self._arrival(self._after_arrival())

    def probability(self, latency: float) -> float:
        """P(latency of a request > `latency`), which is at most the horizon."""
        return float(np.interp(latency, self.times, self.exceeds))

    def quantile(self, share: float) -> float | None:
        """The least latency that `share` of the requests do not exceed; None if that is beyond the horizon."""
        within = np.flatnonzero(self.exceeds <= 1 - share)
        if len(within) == 0:
            return None
        first = int(within[0])
        low, high = self.exceeds[first - 1], self.exceeds[first]
        return float(self.times[first] - self._step * ((1 - share) - high) / (low - high) if low > high else 0.0)

    def _shifted(self, exceeds: Floats, by: float) -> Floats:
        """`exceeds` (last axis: the grid) at times `by` later; 1 before time 0."""
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
        """P(n, j, t): shape (ahead + 1, behind + 1, STEPS + 1)."""
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
        """Transition matrix of j in a service: [j, j'], the last column for all beyond."""
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
        """The distribution `within` after waiting for so many arrivals."""
        edges = np.maximum(self.times - 0.5 * self._step, 0.0)
        pmf, _, _ = poisson_counts(np.append(edges, self.times[-1] + 0.5 * self._step) * self._model.rate)
        passed = 1.0 - pmf[:, :arrivals].sum(axis=1)  # by the edges, P(Erlang <= edge)
        waited: Floats = np.convolve(np.diff(passed), within)[: STEPS + 1]
        return waited

    def _arrival(self, to_go: Floats) -> Floats:
        """P(latency > t) of a request that arrives at any time."""
        model, rate, last = self._model, self._model.rate, len(self._policy) - 1
        policy = np.append(self._policy, self._policy[last])  # S_o behaves as s_max, here too
        states = np.minimum(np.arange(last + 2), last)
        share = self._probability * model.sojourn[policy, 0]
        share /= share.sum()
        result = np.zeros(STEPS + 1)
        beyond = 0.0  # with too many ahead of it to be served in time
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
