"""The rows of the runs, which plots and claims read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Row:
    """One run, with times in ms. `wait` is from arrival to the first cell, and `run` from there to the end.

    `gathered` is the share of the tasks that gather, where the hardware counts that. `copied` is the number of states a
    request that go from one GPU to another."""

    experiment: str
    network: str
    lengths: str
    workers: int
    rate_rps: float
    seed: int
    policy: str
    setting: int
    throughput_rps: float
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    wait_p99_ms: float
    run_p99_ms: float
    batch_size_mean: float
    gathered: float
    copied: float


class Runs:
    """Rows, which its methods average over seeds."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)

    def select(self, **settings: object) -> "Runs":
        return Runs([row for row in self.rows if all(getattr(row, name) == value for name, value in settings.items())])

    def rates(self) -> list[float]:
        return sorted({row.rate_rps for row in self.rows})

    def mean(self, field: str, **settings: object) -> float:
        return float(np.mean([getattr(row, field) for row in self.select(**settings).rows]))

    def curve(self, field: str, **settings: object) -> list[float]:
        """Return the mean over seeds at each rate."""
        return [self.mean(field, rate_rps=rate, **settings) for rate in self.rates()]

    def between(self, min_rps: float, max_rps: float) -> "Runs":
        """Return the runs at loads between these, both included."""
        return Runs([row for row in self.rows if min_rps <= row.rate_rps <= max_rps])

    @property
    def averaged(self) -> str:
        seeds = len({row.seed for row in self.rows})
        return "one seed" if seeds == 1 else f"mean of {seeds} seeds"

    def peak(self, **settings: object) -> float:
        """Return the greatest rate that is served of any load offered."""
        chosen = self.select(**settings)
        return max(chosen.curve("throughput_rps"))

    def gathered(self, rate: float) -> float:
        """Return the mean share of the tasks that gather at a rate."""
        return self.mean("gathered", rate_rps=rate)

    def near(self, rate: float) -> float:
        """Return the rate of a run that is nearest to this one."""
        return min(self.rates(), key=lambda other: abs(other - rate))
