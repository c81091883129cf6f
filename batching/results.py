"""What a run reports, in the same keys whether it was simulated or live."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.batching.accounting import Ledger


@dataclass(frozen=True, slots=True)
class Served:
    """The times of one finished request (s from the run's origin) and the size of the batch it ran in.

    `queued` is when it entered the batcher; `arrival` <= `queued` <= `started` <= `finished`."""

    arrival: float
    queued: float
    started: float
    finished: float
    deadline: float
    batch: int


@dataclass(frozen=True, slots=True)
class ServedTimes:
    """The times of all finished requests as arrays of shape (requests,), named as in `Served`."""

    arrival: NDArray[np.float64]
    queued: NDArray[np.float64]
    started: NDArray[np.float64]
    finished: NDArray[np.float64]
    deadline: NDArray[np.float64]

    @classmethod
    def of(cls, served: Sequence[Served]) -> "ServedTimes":
        rows = [(s.arrival, s.queued, s.started, s.finished, s.deadline) for s in served]
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, 5).T)

    def totals(self) -> "Totals":
        finished = len(self.finished)
        return Totals(
            finished,
            int((self.finished > self.deadline).sum()),
            float(self.finished.max() - self.arrival.min()) if finished else 0.0,
            percentiles_ms(self.finished - self.arrival),
            float((self.started - self.queued).mean()) if finished else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all finished requests: how many, how many after their deadline, from the first arrival to the last end (s),
    `percentiles_ms` of their latencies, and their mean wait in the batcher (s)."""

    finished: int
    late: int
    span_s: float
    latency_ms: dict[str, float | None]
    queue_s: float


@dataclass(frozen=True, slots=True)
class PreprocessTotals:
    """Of all requests that were preprocessed: `percentiles_ms` of the time that it took, waiting included; and by step
    the busy share of its servers."""

    latency_ms: dict[str, float | None]
    utilization: dict[str, float | None]


def percentiles_ms(seconds: ArrayLike) -> dict[str, float | None]:
    """mean, p50, p90, p95, p99 and max in milliseconds; None where nothing was measured."""
    values = np.asarray(seconds, dtype=np.float64) * 1e3
    if values.size == 0:
        return dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"))
    p50, p90, p95, p99 = np.percentile(values, (50, 90, 95, 99))
    return {
        "mean": float(values.mean()),
        "p50": float(p50),
        "p90": float(p90),
        "p95": float(p95),
        "p99": float(p99),
        "max": float(values.max()),
    }


def summarize(
    served: ServedTimes | Totals,
    ledger: Ledger,
    *,
    batch_size_mean: float | None,
    busy_s: float,
    workers: int,
    wall_s: float,
    seed: int | None,
    energy_j: float | None = None,
    preprocess: PreprocessTotals | None = None,
) -> dict[str, object]:
    """The result of a run.

    Throughput counts from the first arrival to the last end. A request that failed, was shed or was dropped missed its
    SLA; one that its caller cancelled has none.
    `batch_size_mean` is over node executions, which for whole-graph policies is over tasks; `queue_ms` is the mean wait
    in the batcher; `utilization` is the busy share of all workers; `energy_j` is None where nothing measured or
    modelled it; `wall_s` is how long the run took on the clock of the machine that ran it. With `preprocess`,
    `preprocess_ms` {mean, p50, p90, p95, p99, max} stands before `queue_ms` and `preprocess_utilization` {step: share}
    before `utilization`; latency then counts from the arrival, before it."""
    unserved = ledger.failed + ledger.shed + ledger.dropped
    totals = served if isinstance(served, Totals) else served.totals()
    late = totals.late + unserved
    ended = ledger.finished + unserved
    span = totals.span_s
    return {
        "requests": ledger.submitted,
        "finished": ledger.finished,
        "failed": ledger.failed,
        "shed": ledger.shed,
        "dropped": ledger.dropped,
        "cancelled": ledger.cancelled,
        "throughput_rps": totals.finished / span if span > 0 else None,
        "latency_ms": totals.latency_ms,
        **({} if preprocess is None else {"preprocess_ms": preprocess.latency_ms}),
        "queue_ms": totals.queue_s * 1e3 if totals.finished else None,
        "sla_violation_rate": late / ended if ended else None,
        "batch_size_mean": batch_size_mean,
        **({} if preprocess is None else {"preprocess_utilization": preprocess.utilization}),
        "utilization": busy_s / (workers * span) if span > 0 else None,
        "energy_j": energy_j,
        "wall_s": wall_s,
        "seed": seed,
    }
