"""`smdp`: the best batch for every queue length and arrival rate, looked up (Xu, Sun, Zhou, Niu, ICC 2023; smdp/).

The paper's policy is for one, known arrival rate. Here tables for a grid of rates are solved beforehand, or beside the
serving while the policy is work-conserving; the one nearest to the estimated rate is used.

The estimate is the least of two: the mean rate over the last `WINDOW` gaps between arrivals, up to now, and `SILENCE`
arrivals in the time since the last one. So it follows a rise of the load within WINDOW arrivals, and a fall from any
rate to below r within SILENCE / r seconds, arrivals or none. Over WINDOW gaps it has a relative standard deviation of
1 / sqrt(WINDOW) = 11 %, about the spacing of the grid.

No load that the workers can serve, however it changes, makes this unstable. A table ends at a finite length of the
queue; beyond the longest of all tables an idle worker serves the batch size of the highest throughput. So above that
length the queue falls whenever arrivals are fewer than what the workers can serve at most, whichever table is in use.
(Before there are tables, the batch size of the highest throughput is not known: batches are then as large as may be.)
"""

import math
from collections.abc import Iterable, Mapping

from headrace.batching.action_tables import PhaseTables, RateTables
from headrace.batching.context import PolicyContext
from headrace.batching.errors import UnknownModel
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.queue_length import MAX_WAIT_S, QueueLengthBatching, Rule
from headrace.batching.policies.shared.settings import BatchLimit
from headrace.batching.policies.smdp_phases import ByPhase
from headrace.batching.policy import Policy
from headrace.batching.request import TABLE
from headrace.batching.settings import setting, settings

WINDOW = 80
SILENCE = 5.0


class RateEstimator:
    """The arrival rate, from times of arrival, by the rule at the head of this file."""

    def __init__(self) -> None:
        self._times: list[float] = [0.0] * (WINDOW + 1)  # a ring
        self._arrivals: int = 0

    def arrived(self, now: float) -> None:
        self._times[self._arrivals % (WINDOW + 1)] = now
        self._arrivals += 1

    def falls_below(self, rate: float) -> float:
        """When the estimate falls to `rate` if nothing more arrives (s); -inf if there is no estimate yet."""
        gaps = min(self._arrivals - 1, WINDOW)
        if gaps < 1:
            return -math.inf
        first = self._times[(self._arrivals - 1 - gaps) % (WINDOW + 1)]
        last = self._times[(self._arrivals - 1) % (WINDOW + 1)]
        return min(first + gaps / rate, last + SILENCE / rate)

    def rate(self, now: float) -> float:
        """The estimate (1/s); 0 before the second arrival."""
        gaps = min(self._arrivals - 1, WINDOW)
        if gaps < 1:
            return 0.0
        first = self._times[(self._arrivals - 1 - gaps) % (WINDOW + 1)]
        last = self._times[(self._arrivals - 1) % (WINDOW + 1)]
        mean = gaps / (now - first) if now > first else math.inf
        return min(mean, SILENCE / (now - last)) if now > last else mean


class ByRate(Rule):
    """`tables` may come later (`install`): until then it serves all that waits, at most `max_batch`."""

    def __init__(self, max_batch: int, tables: RateTables | None = None) -> None:
        super().__init__(max_batch)
        self._estimator: RateEstimator = RateEstimator()
        self._tables: RateTables | None = None
        if tables is not None:
            self.install(tables)

    def install(self, tables: RateTables) -> None:
        self._tables = tables
        self.largest = tables.max_batch

    def arrived(self, now: float) -> None:
        self._estimator.arrived(now)

    def _table(self, tables: RateTables, now: float) -> int:
        """The number of the table in use. It is found by comparing with the very times that `changes` gives, so that at
        such a time, to the last bit, the table has changed."""
        low = 0
        high = len(tables.bounds)
        while low < high:
            middle = (low + high) // 2
            if now < self._estimator.falls_below(tables.bounds[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    def batch(self, waiting: int, now: float) -> int:
        tables = self._tables
        if tables is None:
            return min(waiting, self.largest)
        actions = tables.actions[self._table(tables, now)]
        return actions[waiting] if waiting < len(actions) else min(tables.best_batch, waiting)

    def changes(self, waiting: int, now: float) -> float:
        tables = self._tables
        if tables is None or waiting >= len(tables.actions[0]):
            return now
        table = self._table(tables, now)
        serving = tables.serving[table][waiting]
        if serving == table:
            return now
        return self._estimator.falls_below(tables.bounds[serving])

    def reason(self, batch: int) -> str:
        return super().reason(batch) if self._tables is None else TABLE


class SmdpBatching(QueueLengthBatching):
    """`tables` for each model, by rate or by phase; a missing one is to come by `install`, and until then the model is
    served as by `work-conserving` with `max_batch`. Raises UsageError."""

    def __init__(
        self,
        graphs: Iterable[ModelGraph],
        tables: Mapping[str, RateTables | PhaseTables],
        max_batch: int,
        max_wait_s: float = MAX_WAIT_S,
    ) -> None:
        graphs = tuple(graphs)
        self._by_rate: dict[str, ByRate] = {}
        rules: dict[str, Rule] = {}
        for graph in graphs:
            found = tables.get(graph.name)
            if isinstance(found, PhaseTables):
                rules[graph.name] = ByPhase(found)
            else:
                rule = ByRate(max_batch, found)
                rules[graph.name] = rule
                self._by_rate[graph.name] = rule
        for model in tables:
            if model not in rules:
                raise UnknownModel(f"there are tables of {model!r}; this server has {', '.join(sorted(rules))}")
        super().__init__(graphs, rules, max_wait_s)

    @property
    def models(self) -> list[str]:
        """Those that are served by rate."""
        return list(self._by_rate)

    def install(self, model: str, tables: RateTables) -> None:
        """Serve `model` by these tables from now on. Their largest batch is then the largest of the model."""
        rule = self._by_rate.get(model)
        if rule is None:
            raise UnknownModel(f"there are tables of {model!r}; by rate this server has {', '.join(self.models)}")
        rule.install(tables)


@settings()
class Smdp(BatchLimit):
    """Look up the best batch for the queue length and the arrival rate (SMDP batching)."""

    w2: float = setting(default=0.0, help="Milliseconds of mean latency that one watt of mean power is worth.", ge=0)
    by_phase: bool = setting(
        default=False, help="Solve a table for each phase of bursty arrivals, instead of one for each rate."
    )

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run. Raises UsageError, and Unstable where the arrivals are too many."""
        tables = context.tables
        if tables is None:
            from headrace.batching.smdp.tables import tables_for  # the solvers take long to import

            tables = tables_for(context, self.max_batch, self.w2, self.by_phase)
        return SmdpBatching(context.graphs, tables, self.max_batch)
