"""The rows of the runs, which claims and plots read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.sim.experiments.lazybatching.conditions import TARGETS_MS


@dataclass(frozen=True, slots=True)
class Row:
    """One run.

    `violations` are the shares of requests later than each of TARGETS_MS. For lazy and oracle only that of `slo_ms` has
    a meaning, because the target steers them. `quantiles_ms` are the latencies at 0, 1, ... 100 %."""

    model: str
    reading: str
    rate_rps: float
    seed: int
    policy: str
    window_ms: int
    slo_ms: float
    max_batch: int
    dec_timesteps: int | None
    mean_ms: float
    p99_ms: float
    throughput_rps: float
    violation_rate: float
    batch_size_mean: float
    violations: tuple[float, ...]
    quantiles_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One run of a policy on a real worker (Fig. 17), with the simulator's numbers for the same arrivals.

    Attributes:
        device: The processor or GPU of the worker, in words.
        load: The arrival rate as a share of what padded batches sustain.
        window: The window of `graph`, in latencies of a request alone; 0 for `lazy`.
        slo_ms: The latency after which a request is late.
        slowdown: The time of all nodes that ran, divided by their time in the profile. It is 1 if the machine was as
            fast as while the profile was measured.
    """

    device: str
    load: float
    rate_rps: float
    seed: int
    policy: str
    window: float
    window_ms: float
    slo_ms: float
    requests: int
    mean_ms: float
    p95_ms: float
    violation_rate: float
    simulated_mean_ms: float
    simulated_violation_rate: float
    slowdown: float


class Runs:
    """Rows with the same settings, averaged over seeds."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._groups: dict[tuple[object, ...], list[Row]] = {}
        for row in rows:
            key = (row.model, row.reading, row.rate_rps, row.policy, row.window_ms, row.slo_ms, row.max_batch)
            self._groups.setdefault((*key, row.dec_timesteps), []).append(row)
        self.rows = [group[0] for group in self._groups.values()]

    def of(self, *models: str, reading: str | None = "", max_rps: float = float("inf"), least_rps: float = 0) -> "Runs":
        """Return the runs of these models at these loads, in one reading.

        Without a model they are those of all models; the reading None stands for all readings."""
        return Runs(
            [
                row
                for row in self.all_rows()
                if (not models or row.model in models)
                and reading in (None, row.reading)
                and least_rps <= row.rate_rps <= max_rps
            ]
        )

    def select(self, **settings: object) -> list[list[Row]]:
        """Return groups of rows, one for each setting, whose fields have these values."""
        return [
            group
            for group in self._groups.values()
            if all(getattr(group[0], name) == value for name, value in settings.items())
        ]

    def mean(self, field: str, **settings: object) -> float:
        """Return the mean of a field over the seeds of the one setting that matches."""
        groups = self.select(**settings)
        assert len(groups) == 1, f"{len(groups)} settings match {settings}"
        return float(np.mean([getattr(row, field) for row in groups[0]]))

    def by_window(self, field: str, **settings: object) -> dict[int, float]:
        """Return the same for GraphB with each window (ms)."""
        groups = self.select(policy="graph", **settings)
        return {group[0].window_ms: float(np.mean([getattr(row, field) for row in group])) for group in groups}

    def in_time(self, target_ms: int, **settings: object) -> float:
        """Return the share of requests within the target. Runs of lazy and oracle are those with this target."""
        if settings["policy"] in ("lazy", "oracle"):
            return 1 - self.mean("violation_rate", slo_ms=float(target_ms), **settings)
        groups = self.select(**settings)
        assert len(groups) == 1, f"{len(groups)} settings match {settings}"
        return 1 - float(np.mean([row.violations[TARGETS_MS.index(target_ms)] for row in groups[0]]))

    def rates(self) -> list[float]:
        return sorted({row.rate_rps for row in self.rows})

    def models(self) -> list[str]:
        return list(dict.fromkeys(row.model for row in self.rows))

    def windows(self) -> list[int]:
        return sorted({row.window_ms for row in self.rows if row.policy == "graph"})

    def all_rows(self) -> list[Row]:
        return [row for group in self._groups.values() for row in group]


class LiveRuns:
    """Rows of Fig. 17, averaged over seeds."""

    def __init__(self, rows: Sequence[LiveRow]) -> None:
        self._rows = rows

    def loads(self) -> list[float]:
        return sorted({row.load for row in self._rows})

    def windows(self) -> list[float]:
        return sorted({row.window for row in self._rows if row.policy == "graph"})

    def requests(self) -> str:
        """Return the least and the largest number of requests of a run, in words."""
        counts = sorted({row.requests for row in self._rows})
        return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"

    def mean(self, field: str, load: float, policy: str, window: float = 0.0) -> float:
        """Return the mean of a field over the seeds of one policy at one load."""
        return float(
            np.mean(
                [
                    getattr(row, field)
                    for row in self._rows
                    if (row.load, row.policy, row.window) == (load, policy, window)
                ]
            )
        )
