"""The policy `smdp` looks up the optimal batch size for each queue length and arrival rate in solved tables.

A solver computes for each queue length whether to wait or how many requests to serve, so that mean latency and power
cost least. The policy estimates the arrival rate and looks the answer up.

Source: Xu, Sun, Zhou, Niu, "SMDP-Based Dynamic Batching for Efficient Inference on GPU-Based Platforms", ICC 2023. The
solvers are in smdp/.

Rules
-----
1. There is one table for each arrival rate of a grid. The table nearest to the estimated rate is used.
2. The estimated rate is the smaller of two values: the mean rate over the last `WINDOW` gaps between arrivals, up to
   now, and `SILENCE` divided by the time since the last arrival.
3. If the table says to wait, the policy looks again at the next arrival and at the end of a batch. It also looks when
   the estimate has fallen to a table that serves.
4. If more requests wait than the tables have entries, the batch has the size of the highest throughput.
5. Below the lowest rate of the grid, and before tables are installed, the policy serves all waiting requests at once.

Example
-------
One worker. A batch of 1 takes 5 ms, of 2 takes 6 ms. The tables for 100/s and 400/s both say: wait with 1 request,
serve 2. Below 50/s the policy does not wait. R1 to R4 arrive at 0, 4, 8 and 10 ms.

    time (ms)     worker   requests        reason
    0 - 5         0        R1              table
    8 - 14        0        R2 R3           table
    60 - 65       0        R4              table

- At 0 ms there is no estimate yet, so R1 is served at once.
- At 5 ms the rate is 1 gap / 5 ms = 200/s. So R2 waits, and R3 joins it at 8 ms.
- At 14 ms R4 waits alone. At 60 ms the rate has fallen to 3 gaps / 60 ms = 50/s, and R4 is served.

Beyond the paper
----------------
- A bound on the mean latency. `MixedTables` follow two tables in turns, which meets the bound at the least power
  (smdp_mixture.py).
- The paper's policy is for one known arrival rate. Here tables for a grid of rates are solved beforehand, or in the
  background while the policy serves all waiting requests at once.
- Estimate. It follows a rise of the load within WINDOW arrivals. It follows a fall to below a rate r within SILENCE / r
  seconds, with or without arrivals. Over WINDOW gaps its relative standard deviation is 1 / sqrt(WINDOW) = 11 %, about
  the spacing of the grid.
- Stability. The policy is stable for every load that the workers can serve, however the load changes. Rule 4 ensures
  it: in a long queue each idle worker serves at the highest throughput, so the queue falls, whichever table is in use.
  Before tables are installed, batches are as large as allowed, because the size of the highest throughput is unknown.
"""

import math
from collections.abc import Iterable, Mapping

from headrace.batching.action_tables import MixedTables, PhaseTables, RateTables
from headrace.batching.context import PolicyContext
from headrace.batching.errors import UnknownModel
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.queue_length import MAX_WAIT_S, QueueLengthBatching, Rule
from headrace.batching.policies.shared.settings import BatchLimit
from headrace.batching.policies.smdp_mixture import ByMixture
from headrace.batching.policies.smdp_phases import ByPhase
from headrace.batching.policy import Policy
from headrace.batching.request import TABLE
from headrace.batching.settings import setting, settings

WINDOW = 80  # gaps between arrivals
SILENCE = 5.0  # arrivals


class RateEstimator:
    """Estimates the arrival rate from times of arrival, by rule 2 at the head of this file."""

    def __init__(self) -> None:
        self._times: list[float] = [0.0] * (WINDOW + 1)  # a ring buffer of arrival times (s)
        self._arrivals: int = 0

    def arrived(self, now: float) -> None:
        """Record an arrival at `now` (s)."""
        self._times[self._arrivals % (WINDOW + 1)] = now
        self._arrivals += 1

    def falls_below(self, rate: float) -> float:
        """Return the time (s) at which the estimate falls to `rate` (1/s) if no more requests arrive.

        The result is -inf if there is no estimate yet."""
        gaps = min(self._arrivals - 1, WINDOW)
        if gaps < 1:
            return -math.inf
        first = self._times[(self._arrivals - 1 - gaps) % (WINDOW + 1)]
        last = self._times[(self._arrivals - 1) % (WINDOW + 1)]
        return min(first + gaps / rate, last + SILENCE / rate)

    def rate(self, now: float) -> float:
        """Return the estimated rate (1/s). It is 0 before the second arrival."""
        gaps = min(self._arrivals - 1, WINDOW)
        if gaps < 1:
            return 0.0
        first = self._times[(self._arrivals - 1 - gaps) % (WINDOW + 1)]
        last = self._times[(self._arrivals - 1) % (WINDOW + 1)]
        mean = gaps / (now - first) if now > first else math.inf
        return min(mean, SILENCE / (now - last)) if now > last else mean


class ByRate(Rule):
    """The rule of one model, from tables by arrival rate.

    Tables can be installed later. Until then the rule serves all waiting requests, at most `max_batch`."""

    def __init__(self, max_batch: int, tables: RateTables | None = None) -> None:
        super().__init__(max_batch)
        self._estimator: RateEstimator = RateEstimator()
        self._tables: RateTables | None = None
        if tables is not None:
            self.install(tables)

    def install(self, tables: RateTables) -> None:
        """Use these tables from now on."""
        self._tables = tables
        self.largest = tables.max_batch

    def arrived(self, now: float) -> None:
        self._estimator.arrived(now)

    def _table(self, tables: RateTables, now: float) -> int:
        """Return the number of the table in use.

        It compares `now` with the very times that `changes` returns. So at such a time, to the last bit, the table has
        changed."""
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
    """A `Policy` that looks batch sizes up in tables.

    Args:
        graphs: The graphs of the models.
        tables: Tables by model. A missing table is installed later with `install`. Until then the model is served as by
            `work-conserving`.
        max_batch: The largest batch of a model without tables.
        max_wait_s: The longest time (s) that a request waits while a worker is idle.
        max_tokens: The most tokens of a batch, the sum of its input lengths.

    Raises:
        UsageError: `max_wait_s` is below 0.
        UnknownModel: There are tables of a model that is not served.
    """

    def __init__(
        self,
        graphs: Iterable[ModelGraph],
        tables: Mapping[str, RateTables | PhaseTables | MixedTables],
        max_batch: int,
        max_wait_s: float = MAX_WAIT_S,
        max_tokens: float = math.inf,
    ) -> None:
        graphs = tuple(graphs)
        self._by_rate: dict[str, ByRate] = {}
        rules: dict[str, Rule] = {}
        for graph in graphs:
            known = tables.get(graph.name)
            if isinstance(known, PhaseTables):
                rules[graph.name] = ByPhase(known)
            elif isinstance(known, MixedTables):
                rules[graph.name] = ByMixture(known)
            else:
                rule = ByRate(max_batch, known)
                rules[graph.name] = rule
                self._by_rate[graph.name] = rule
        for model in tables:
            if model not in rules:
                raise UnknownModel(f"there are tables for {model!r}; this server has {', '.join(sorted(rules))}")
        super().__init__(graphs, rules, max_wait_s, max_tokens)

    @property
    def models(self) -> list[str]:
        """Return the names of the models that are served by tables of rates."""
        return list(self._by_rate)

    def install(self, model: str, tables: RateTables) -> None:
        """Serve `model` by these tables from now on. Their largest batch becomes the largest batch of the model."""
        rule = self._by_rate.get(model)
        if rule is None:
            raise UnknownModel(
                f"there are tables for {model!r}; the models with tables by rate are {', '.join(self.models)}"
            )
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
            from headrace.batching.smdp.tables import tables_for  # imported here, because the solvers load slowly

            tables = tables_for(context, self.max_batch, self.w2, self.by_phase)
        return SmdpBatching(context.graphs, tables, self.max_batch, max_tokens=self.token_limit)
