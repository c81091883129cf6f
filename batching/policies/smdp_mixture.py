"""This rule of `smdp` is for a bound on the mean latency: it follows two tables in turns.

Whenever so many requests wait as `MixedTables.state` says, and a worker is idle, a coin chooses the table to follow up
to the next such moment. So the choice does not depend on what happens between, and the averages over time are those of
the mixture (batching/smdp/mixture.py). The coin is a generator of this rule with a seed of its own, so a run can be
repeated.

Example: table 0 serves 1 waiting request, and table 1 waits for 2. The coin is thrown when 1 request waits. If it shows
0, the request is served. If it shows 1, the policy waits for the second request and serves both.
"""

from random import Random

from headrace.batching.action_tables import MixedTables
from headrace.batching.policies.shared.queue_length import Rule
from headrace.batching.request import TABLE


class ByMixture(Rule):
    """The rule of one model, from two tables and a coin."""

    def __init__(self, tables: MixedTables, seed: int = 0) -> None:
        super().__init__(tables.max_batch)
        self._tables: MixedTables = tables
        self._coin: Random = Random(seed)
        self._table: int = 1 if self._coin.random() < tables.chance else 0
        self._arrivals: int = 0
        self._thrown: int = 0  # the arrivals up to the last throw: the state comes again only after another arrival

    def arrived(self, now: float) -> None:
        self._arrivals += 1

    def batch(self, waiting: int, now: float) -> int:
        tables = self._tables
        if waiting == tables.state and self._thrown != self._arrivals:
            self._thrown = self._arrivals
            self._table = 1 if self._coin.random() < tables.chance else 0
        actions = tables.actions[self._table]
        return actions[waiting] if waiting < len(actions) else min(tables.best_batch, waiting)

    def reason(self, batch: int) -> str:
        return TABLE
