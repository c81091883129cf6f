"""What the runs give, and what the plots show."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TARGETS_MS = (20, 40, 60, 80, 100)


@dataclass(frozen=True, slots=True)
class Row:
    """One run. `violations` are the shares of requests later than each of TARGETS_MS (for lazy and oracle only that of
    `sla_ms` is meant, as the target steers them), `quantiles_ms` the latencies at 0, 1, ... 100 %."""

    experiment: str
    model: str
    rate_rps: float
    seed: int
    policy: str
    window_ms: int
    sla_ms: float
    max_batch: int
    dec_timesteps: int | None
    mean_ms: float
    p99_ms: float
    throughput_rps: float
    violation_rate: float
    batch_size_mean: float
    violations: tuple[float, ...]
    quantiles_ms: tuple[float, ...]


class Runs:
    """Rows with the same settings, averaged over seeds."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._groups: dict[tuple[object, ...], list[Row]] = {}
        for row in rows:
            key = (row.experiment, row.model, row.rate_rps, row.policy, row.window_ms, row.sla_ms, row.max_batch)
            self._groups.setdefault((*key, row.dec_timesteps), []).append(row)
        self.rows = [group[0] for group in self._groups.values()]

    def select(self, **settings: object) -> list[list[Row]]:
        """Groups of rows, one a setting, whose fields have these values."""
        return [
            group
            for group in self._groups.values()
            if all(getattr(group[0], name) == value for name, value in settings.items())
        ]

    def mean(self, field: str, **settings: object) -> float:
        """Mean of a field over the seeds of the one setting that matches."""
        groups = self.select(**settings)
        assert len(groups) == 1, f"{len(groups)} settings match {settings}"
        return float(np.mean([getattr(row, field) for row in groups[0]]))

    def values(self, field: str, **settings: object) -> list[float]:
        """The same for every setting that matches."""
        return [float(np.mean([getattr(row, field) for row in group])) for group in self.select(**settings)]

    def rates(self) -> list[float]:
        return sorted({row.rate_rps for row in self.rows})

    def models(self) -> list[str]:
        return list(dict.fromkeys(row.model for row in self.rows))
