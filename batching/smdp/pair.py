"""Two servers, solved exactly. This checks the approximation for several servers in model.py, on small cases.

Time is divided into slots. A service takes a whole number of slots. Poisson arrivals count from the end of their slot,
and decisions are due at the ends of slots. When a server is idle, the state has two parts: the queue length q and the
slots r that the other server still needs. q goes from 0 to q_max, and arrivals beyond are lost. r goes from 0 to the
longest service.

Let tau(a) be the slots of a batch of a. The actions are:

- Serve a while the other server is idle. The state becomes (q - a, tau(a)) at once, and the other server is asked next.
- Serve a while the other server needs r more slots. After min(r, tau(a)) slots the state is (q - a + arrivals, |r -
  tau(a)|).
- Wait. After one slot the state is (q + arrivals, max(0, r - 1)).

Costs are those of model.py. The solver is policy iteration on dense matrices of some hundred states.
"""

from dataclasses import dataclass

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.smdp.arrivals import poisson_counts
from headrace.batching.smdp.model import Indices
from headrace.batching.smdp.service import BatchService, Floats, Weights
from headrace.batching.smdp.solver import MAX_EVALUATIONS, NotConverged

MAX_STATES = 2000


@dataclass(frozen=True, slots=True)
class PairSolution:
    """A solution for two servers.

    Args:
        policy: policy[q, r] is the batch to serve on an idle server, with q requests waiting and r slots left on the
            other server.
        g: The average cost.
        latency: The mean latency, in slots.
        power: The mean power.
        lost: The share of the arrivals that find the queue full.
    """

    policy: Indices
    g: float
    latency: float
    power: float
    lost: float


class Pair:
    """The process of two servers.

    Args:
        service: Service times in whole slots, and energies, by batch size.
        rate: The arrivals per slot.
        weights: The weights of latency and power.
        q_max: The largest queue length.

    Raises:
        UsageError: Times are no whole numbers, the load is too high, or there are too many states.
    """

    def __init__(self, service: BatchService, rate: float, weights: Weights, q_max: int) -> None:
        slots = np.rint(service.latency).astype(np.intp)
        if (slots < 1).any() or (slots != service.latency).any():
            raise UsageError("two servers are solved in slots; give whole numbers as latencies")
        if not 0 < rate < 2 * service.capacity:
            raise UsageError(f"unstable: {rate:g} requests arrive per slot, {2 * service.capacity:g} can be served")
        longest = int(slots.max())
        states = (q_max + 1) * (longest + 1)
        if states > MAX_STATES or q_max < service.max_batch:
            raise UsageError(
                f"q_max {q_max} makes {states} states: give at most {MAX_STATES} states, and at least the largest batch"
            )
        self._shape = (q_max + 1, longest + 1)
        self._weights, self._rate = weights, rate
        actions = service.max_batch + 1
        self._next = np.zeros((actions, states, states))
        self._allowed = np.zeros((actions, states), bool)
        self._sojourn, self._energy, self._requests, self._lost = (np.zeros((actions, states)) for _ in range(4))
        pmf, _, _ = poisson_counts(rate * np.arange(1, longest + 1, dtype=np.float64))
        for a in range(actions):
            for q in range(a, q_max + 1):
                for r in range(longest + 1):
                    self._fill(a, q, r, int(slots[a - 1]) if a else 0, pmf)
                    if a:
                        self._energy[a, q * (longest + 1) + r] = service.energy[a - 1]

    def _fill(self, a: int, q: int, r: int, service: int, pmf: Floats) -> None:
        q_max, width = self._shape[0] - 1, self._shape[1]
        state = q * width + r
        self._allowed[a, state] = True
        self._requests[a, state] = a * service  # the service counts in full, even if it ends after the sojourn
        if a and r == 0:
            self._next[a, state, (q - a) * width + service] = 1.0
            return
        span = min(r, service) if a else 1
        after = abs(r - service) if a else max(0, r - 1)
        counts = pmf[span - 1]
        for k, probability in enumerate(counts):
            self._next[a, state, min(q - a + k, q_max) * width + after] += probability
        room = q_max - (q - a)
        self._lost[a, state] = float((np.arange(len(counts)) - room).clip(0) @ counts)
        self._sojourn[a, state] = span
        # The requests in the queue wait. An arrival in the i-th of `span` slots has waited span - i at the end.
        self._requests[a, state] += (q - a) * span + self._rate * span * (span - 1) / 2

    def solve(self) -> PairSolution:
        """Return the optimal policy. Raises NotConverged."""
        states = np.arange(self._next.shape[1])
        policy = np.minimum(states // self._shape[1], self._next.shape[0] - 1)
        cost = self._weights.latency / self._rate * self._requests + self._weights.power * self._energy
        for _ in range(MAX_EVALUATIONS):
            g, values = self._evaluate(policy, cost)
            quality = cost - g * self._sojourn + self._next @ values
            quality[~self._allowed] = np.inf
            quality[policy, states] -= 1e-9 * (1.0 + np.abs(values).max())
            better = quality.argmin(axis=0)
            if (better == policy).all():
                return self._solution(policy, g)
            policy = better
        raise NotConverged(f"policy iteration did not end after {MAX_EVALUATIONS} evaluations")

    def evaluate(self, policy: Indices) -> PairSolution:
        """Return the cost of a given policy[q, r]. Raises UsageError."""
        flat = np.asarray(policy, np.intp).ravel()
        if flat.shape != (self._next.shape[1],) or not self._allowed[flat, np.arange(len(flat))].all():
            raise UsageError(
                f"a policy for two servers needs one action of at most q for each (q, r); give shape {self._shape}"
            )
        cost = self._weights.latency / self._rate * self._requests + self._weights.power * self._energy
        return self._solution(flat, self._evaluate(flat, cost)[0])

    def _evaluate(self, policy: Indices, cost: Floats) -> tuple[float, Floats]:
        """Return the average cost and the relative values.

        They solve values - next @ values + g * sojourn = cost with values[0] = 0."""
        states = np.arange(len(policy))
        system = np.eye(len(policy)) - self._next[policy, states]
        system[:, 0] = self._sojourn[policy, states]
        solved = np.linalg.solve(system, cost[policy, states])
        return float(solved[0]), np.concatenate(([0.0], solved[1:]))

    def _solution(self, policy: Indices, g: float) -> PairSolution:
        states = np.arange(len(policy))
        system = np.eye(len(policy)) - self._next[policy, states].T
        system[0] = 1.0
        probability = np.linalg.solve(system, np.eye(len(policy))[0])
        cycle = probability @ self._sojourn[policy, states]
        return PairSolution(
            policy=policy.reshape(self._shape),
            g=g,
            latency=float(probability @ self._requests[policy, states] / cycle / self._rate),
            power=float(probability @ self._energy[policy, states] / cycle),
            lost=float(probability @ self._lost[policy, states] / cycle / self._rate),
        )
