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
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from headrace.batching.errors import UnknownModel, UsageError
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.queue_length import MAX_WAIT_S, QueueLengthBatching, Rule, check_tables
from headrace.batching.policies.smdp_phases import ByPhase, PhaseTables
from headrace.batching.request import TABLE

WINDOW = 80
SILENCE = 5.0


class RateTables:
    """`actions[i][s]` is the batch to serve with s waiting at arrival rate `rates[i]` (1/s, rising); with more waiting
    than a table has, it is `best_batch`. Raises UsageError."""

    def __init__(
        self, rates: Sequence[float], actions: Sequence[Sequence[int]], best_batch: int, max_batch: int
    ) -> None:
        if not rates or len(rates) != len(actions) or any(low >= high for low, high in pairwise(rates)):
            raise UsageError("rate tables need one table for each of some rising rates")
        if not all(math.isfinite(rate) and rate > 0 for rate in rates):
            raise UsageError("the rates of rate tables are finite and above 0")
        check_tables(actions, best_batch, max_batch)
        self.max_batch: int = max_batch
        self.best_batch: int = best_batch
        # Table 0, for rates below all others, is work-conserving: nobody is worth waiting for who does not come.
        length = max([len(table) for table in actions])
        # All tables are of the same length, so that lower ones never wait where a higher one serves.
        self.actions: list[list[int]] = [[min(state, max_batch) for state in range(length)]]
        for table in actions:
            self.actions.append([*table, *[min(best_batch, state) for state in range(len(table), length)]])
        # Table i + 1 is for rates from bounds[i]: the geometric means between the rates.
        ratio = rates[1] / rates[0] if len(rates) > 1 else 2.0
        lowest = rates[0] / math.sqrt(ratio)
        self.bounds: list[float] = [lowest] + [math.sqrt(a * b) for a, b in pairwise(rates)]
        # serving[i][s]: the highest table up to i that serves s waiting requests.
        self.serving: list[list[int]] = [[0] * length]
        for number in range(1, len(self.actions)):
            below = self.serving[-1]
            row = [number if action > 0 else below[state] for state, action in enumerate(self.actions[number])]
            self.serving.append(row)


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
