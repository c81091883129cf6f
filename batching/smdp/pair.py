"""Two servers exactly: the yardstick for the model of several servers in model.py, for small cases.

Time goes in slots: a service takes a whole number of them, Poisson arrivals count from the end of their slot, and
decisions are due at the ends of slots. Then the state is the queue q and the slots r that the other server still works,
when a server is idle: q = 0 ... q_max (arrivals beyond are lost), r = 0 ... the longest service. To serve a batch of a
with tau(a) slots

- beside an idle server leads to (q - a, tau(a)) at once: the other one is asked next;
- beside one that works r more leads, min(r, tau(a)) slots later, to (q - a + arrivals, |r - tau(a)|);

and to wait leads to (q + arrivals, max(0, r - 1)) after one slot. Costs are as in model.py. It is solved by policy
iteration on dense matrices, of some hundred states.
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
    """`policy[q, r]` is the batch to serve on an idle server with q waiting and r slots to go on the other one."""

    policy: Indices
    g: float
    latency: float
    power: float
    lost: float  # share of the arrivals that found the queue full


class Pair:
    """`service` has whole slots as latencies; `rate` is the arrivals a slot. Raises UsageError."""

    def __init__(self, service: BatchService, rate: float, weights: Weights, q_max: int) -> None:
        slots = np.rint(service.latency).astype(np.intp)
        if (slots < 1).any() or (slots != service.latency).any():
            raise UsageError("two servers are solved in slots: give latencies of whole numbers")
        if not 0 < rate < 2 * service.capacity:
            raise UsageError(f"unstable: {rate:g} requests arrive a slot and {2 * service.capacity:g} can be served")
        longest = int(slots.max())
        states = (q_max + 1) * (longest + 1)
        if states > MAX_STATES or q_max < service.max_batch:
            raise UsageError(f"q_max {q_max} makes {states} states: at most {MAX_STATES}, and hold the largest batch")
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
        self._requests[a, state] = a * service  # their own service, whenever it ends
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
        # Those in the queue wait; of `span` slots an arrival in the i-th one has waited span - i at the end.
        self._requests[a, state] += (q - a) * span + self._rate * span * (span - 1) / 2

    def solve(self) -> PairSolution:
        """The optimal policy. Raises NotConverged."""
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
        """The cost of a given policy[q, r]."""
        flat = np.asarray(policy, np.intp).ravel()
        if flat.shape != (self._next.shape[1],) or not self._allowed[flat, np.arange(len(flat))].all():
            raise UsageError(
                f"a policy for two servers has an action of at most q for each (q, r), shape {self._shape}"
            )
        cost = self._weights.latency / self._rate * self._requests + self._weights.power * self._energy
        return self._solution(flat, self._evaluate(flat, cost)[0])

    def _evaluate(self, policy: Indices, cost: Floats) -> tuple[float, Floats]:
        """Average cost, and relative values: values - next @ values + g * sojourn = cost, values[0] = 0."""
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
