"""Tables that give the batch size to serve for each queue length.

The solvers in smdp/ make these tables, and the policy `smdp` reads them.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from headrace.batching.errors import UsageError


def check_tables(tables: Sequence[Sequence[int]], best_batch: int, max_batch: int) -> None:
    """Check that no table serves more requests than wait, or than a batch may have.

    Args:
        tables: Batch sizes, indexed by the number of waiting requests.
        best_batch: The batch size that is served when more requests wait than a table has entries.
        max_batch: The largest batch size.

    Raises:
        UsageError: A table has an entry outside 0 to min(waiting, max_batch), or best_batch is outside 1 to max_batch.
    """
    if not 1 <= best_batch <= max_batch or any(
        not 0 <= batch <= min(waiting, max_batch) for table in tables for waiting, batch in enumerate(table)
    ):
        raise UsageError(
            "a table must serve at least 0, at most the waiting requests, and at most the largest batch; solve it again"
        )


class RateTables:
    """One table for each arrival rate of a grid.

    Args:
        rates: Arrival rates (1/s), rising.
        actions: `actions[i][s]` is the batch size to serve at `rates[i]` when s requests wait; 0 means to wait.
        best_batch: The batch size to serve when more requests wait than a table has entries.
        max_batch: The largest batch size.

    Raises:
        UsageError: The rates do not rise, or a table does not fit them.
    """

    def __init__(
        self, rates: Sequence[float], actions: Sequence[Sequence[int]], best_batch: int, max_batch: int
    ) -> None:
        if not rates or len(rates) != len(actions) or any(low >= high for low, high in pairwise(rates)):
            raise UsageError("rate tables need rising rates; give at least one rate, and one table for each")
        if not all(math.isfinite(rate) and rate > 0 for rate in rates):
            raise UsageError("rate tables need rates that are finite and above 0")
        check_tables(actions, best_batch, max_batch)
        self.max_batch: int = max_batch
        self.best_batch: int = best_batch
        # Table 0 is for rates below the grid. It never waits, because too few requests come to be worth waiting for.
        length = max([len(table) for table in actions])
        # All tables get the same length, so that a lower table never waits where a higher one serves.
        self.actions: list[list[int]] = [[min(state, max_batch) for state in range(length)]]
        for table in actions:
            self.actions.append([*table, *[min(best_batch, state) for state in range(len(table), length)]])
        # Table i + 1 is used for rates from bounds[i] on. The bounds are the geometric means of neighbouring rates.
        ratio = rates[1] / rates[0] if len(rates) > 1 else 2.0
        lowest = rates[0] / math.sqrt(ratio)
        self.bounds: list[float] = [lowest] + [math.sqrt(a * b) for a, b in pairwise(rates)]
        # serving[i][s] is the highest table, up to table i, that serves when s requests wait.
        self.serving: list[list[int]] = [[0] * length]
        for number in range(1, len(self.actions)):
            below = self.serving[-1]
            row = [number if action > 0 else below[state] for state, action in enumerate(self.actions[number])]
            self.serving.append(row)


class MixedTables:
    """Two tables for one known arrival rate, and a state at which a coin chooses between them.

    Args:
        actions: `actions[i][s]` is the batch size to serve by table i when s requests wait; 0 means to wait.
        best_batch: The batch size to serve when more requests wait than a table has entries.
        max_batch: The largest batch size.
        state: The number of waiting requests at which the coin is thrown, when a decision is due.
        chance: The probability of table 1.

    Raises:
        UsageError: There are not two tables, or a number is out of range.
    """

    def __init__(
        self, actions: Sequence[Sequence[int]], best_batch: int, max_batch: int, state: int, chance: float
    ) -> None:
        if len(actions) != 2 or state < 1 or not 0.0 <= chance <= 1.0:
            raise UsageError("mixed tables need two tables, a state of 1 or more, and a chance of 0 to 1")
        check_tables(actions, best_batch, max_batch)
        self.actions: list[list[int]] = [list(table) for table in actions]
        self.best_batch: int = best_batch
        self.max_batch: int = max_batch
        self.state: int = state
        self.chance: float = chance


class PhaseTables:
    """Two tables for bursty arrivals, one for each phase.

    Args:
        actions: `actions[phase][s]` is the batch size to serve when s requests wait; 0 means to wait.
        best_batch: The batch size to serve when more requests wait than a table has entries.
        max_batch: The largest batch size.
        rates: Arrival rate (1/s) in each phase.
        dwell: Mean duration (s) of each phase.

    Raises:
        UsageError: There are not two phases, or a rate or a duration is out of range.
    """

    def __init__(
        self,
        actions: Sequence[Sequence[int]],
        best_batch: int,
        max_batch: int,
        rates: Sequence[float],
        dwell: Sequence[float],
    ) -> None:
        if len(actions) != 2 or len(rates) != 2 or len(dwell) != 2:
            raise UsageError("phase tables need two phases; give two tables, two rates and two mean times")
        if not all(math.isfinite(rate) and rate >= 0 for rate in rates) or not any(rates):
            raise UsageError("phase tables need two finite rates of 0 or more, not both 0")
        if not all(math.isfinite(time) and time > 0 for time in dwell):
            raise UsageError("phase tables need two finite mean times above 0")
        check_tables(actions, best_batch, max_batch)
        self.actions: list[list[int]] = [list(table) for table in actions]
        self.best_batch: int = best_batch
        self.max_batch: int = max_batch
        self.rates: list[float] = list(rates)
        self.leave: list[float] = [1.0 / time for time in dwell]
        self.share: float = dwell[1] / (dwell[0] + dwell[1])  # share of time that is spent in phase 1
