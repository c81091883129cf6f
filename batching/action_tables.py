"""Tables of batches by queue length, as the solvers make them and the policy `smdp` looks them up."""

import math
from collections.abc import Sequence
from itertools import pairwise

from headrace.batching.errors import UsageError


def check_tables(tables: Sequence[Sequence[int]], best_batch: int, max_batch: int) -> None:
    """Check tables of batches by the number of waiting requests, and the batch beyond them. Raises UsageError."""
    if not 1 <= best_batch <= max_batch or any(
        not 0 <= batch <= min(waiting, max_batch) for table in tables for waiting, batch in enumerate(table)
    ):
        raise UsageError("a table serves at least 0 and at most what waits, and no more than the largest batch")


class RateTables:
    """Tables for a grid of arrival rates.

    `actions[i][s]` is the batch to serve with s waiting at arrival rate `rates[i]` (1/s, rising). With more waiting
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


class PhaseTables:
    """Tables for the two phases of bursty arrivals.

    `actions[phase][s]` is the batch to serve with s waiting; with more waiting than a table has, it is `best_batch`.
    Arrivals come at `rates[phase]` (1/s), and a phase lasts `dwell[phase]` (s) on average. Raises UsageError."""

    def __init__(
        self,
        actions: Sequence[Sequence[int]],
        best_batch: int,
        max_batch: int,
        rates: Sequence[float],
        dwell: Sequence[float],
    ) -> None:
        if len(actions) != 2 or len(rates) != 2 or len(dwell) != 2:
            raise UsageError("two phases have two tables, two rates and two mean times")
        if not all(math.isfinite(rate) and rate >= 0 for rate in rates) or not any(rates):
            raise UsageError("the rates of the phases are finite and at least 0, and not both 0")
        if not all(math.isfinite(time) and time > 0 for time in dwell):
            raise UsageError("the mean times of the phases are finite and above 0")
        check_tables(actions, best_batch, max_batch)
        self.actions: list[list[int]] = [list(table) for table in actions]
        self.best_batch: int = best_batch
        self.max_batch: int = max_batch
        self.rates: list[float] = list(rates)
        self.leave: list[float] = [1.0 / time for time in dwell]
        self.share: float = dwell[1] / (dwell[0] + dwell[1])  # of time in phase 1
