"""This rule of `smdp` is for bursty arrivals: it has one table for each phase of the arrival process.

Arrivals follow a two-phase Markov-modulated Poisson process. The phase is not visible, so a filter computes its
probability from the arrivals. Let v be the unnormalised probabilities of the two phases, given the arrivals so far.
Between arrivals, dv/dt = v M with M = Q - diag(rates), where Q is the generator of the phases. An arrival multiplies v
by the rates. The exponential of a 2 x 2 matrix has a closed form:

    exp(M t) is proportional to I + tanh(d t) / d (M - m I)
    m = trace / 2,  d = sqrt(((M00 - M11) / 2)^2 + M01 M10)

The time at which the other phase becomes the likelier one, without arrivals, has a closed form too.

The rule uses the table of the likelier phase. This is a usual simplification: the optimal policy under uncertain phases
is a different, larger problem. The file smdp/model.py has the source of the tables.
"""

import math

from headrace.batching.action_tables import PhaseTables
from headrace.batching.policies.shared.queue_length import Rule
from headrace.batching.request import TABLE


class PhaseFilter:
    """Computes the likelier phase from times of arrival."""

    def __init__(self, tables: PhaseTables) -> None:
        self._rate0: float = tables.rates[0]
        self._rate1: float = tables.rates[1]
        self._leave0: float = tables.leave[0]
        self._leave1: float = tables.leave[1]
        self._half: float = 0.5 * (self._leave1 + self._rate1 - self._leave0 - self._rate0)
        self._d: float = math.sqrt(self._half * self._half + self._leave0 * self._leave1)
        self._since: float = 0.0
        self._p1: float = tables.share  # probability of phase 1 at `since`
        self.switch: float = math.inf  # the time (s) at which the other phase becomes likelier without arrivals
        self._set_switch()

    def _probability(self, now: float) -> float:
        """Return the probability of phase 1 at `now` (s)."""
        elapsed = now - self._since
        if elapsed <= 0.0:
            return self._p1
        p0, p1 = 1.0 - self._p1, self._p1
        t = math.tanh(self._d * elapsed) / self._d
        v0 = p0 * (1.0 + t * self._half) + p1 * t * self._leave1
        v1 = p0 * t * self._leave0 + p1 * (1.0 - t * self._half)
        return v1 / (v0 + v1)

    def arrived(self, now: float) -> None:
        """Record an arrival at `now` (s)."""
        p1 = self._probability(now)
        weight0, weight1 = (1.0 - p1) * self._rate0, p1 * self._rate1
        self._p1 = weight1 / (weight0 + weight1) if weight0 + weight1 > 0.0 else 0.5
        self._since = now
        self._set_switch()

    def _set_switch(self) -> None:
        p0, p1 = 1.0 - self._p1, self._p1
        slope = p0 * (self._leave0 - self._half) - p1 * (self._leave1 + self._half)
        self.switch = math.inf
        if p0 == p1 and slope > 0.0:
            self.switch = self._since
        elif slope != 0.0:
            t = (p0 - p1) / slope
            if 0.0 < t * self._d < 1.0:
                self.switch = self._since + math.atanh(t * self._d) / self._d

    def phase(self, now: float) -> int:
        """Return the likelier phase. From `switch` on, to the last bit, it is the other one."""
        before = 1 if self._p1 > 0.5 else 0
        return before if now < self.switch else 1 - before


class ByPhase(Rule):
    """The rule of one model, from tables by phase."""

    def __init__(self, tables: PhaseTables) -> None:
        super().__init__(tables.max_batch)
        self._tables: PhaseTables = tables
        self._filter: PhaseFilter = PhaseFilter(tables)

    def arrived(self, now: float) -> None:
        self._filter.arrived(now)

    def batch(self, waiting: int, now: float) -> int:
        actions = self._tables.actions[self._filter.phase(now)]
        return actions[waiting] if waiting < len(actions) else min(self._tables.best_batch, waiting)

    def changes(self, waiting: int, now: float) -> float:
        if self.batch(waiting, now) > 0:
            return now
        switch = self._filter.switch
        return switch if now < switch and self.batch(waiting, switch) > 0 else math.inf

    def reason(self, batch: int) -> str:
        return TABLE
