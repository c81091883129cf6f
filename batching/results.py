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
    served: ServedTimes,
    ledger: Ledger,
    *,
    batch_size_mean: float | None,
    busy_s: float,
    workers: int,
    wall_s: float,
    seed: int | None,
    energy_j: float | None = None,
) -> dict[str, object]:
    """The result of a run.

    Throughput counts from the first arrival to the last end. A request that failed, was shed or was dropped missed its
    SLA; one that its caller cancelled has none.
    `batch_size_mean` is over node executions, which for whole-graph policies is over tasks; `queue_ms` is the mean wait
    in the batcher; `utilization` is the busy share of all workers; `energy_j` is None where nothing measured or
    modelled it; `wall_s` is how long the run took on the clock of the machine that ran it."""
    unserved = ledger.failed + ledger.shed + ledger.dropped
    late = int((served.finished > served.deadline).sum()) + unserved
    ended = ledger.finished + unserved
    finished = len(served.finished)
    span = float(served.finished.max() - served.arrival.min()) if finished else 0.0
    return {
        "requests": ledger.submitted,
        "finished": ledger.finished,
        "failed": ledger.failed,
        "shed": ledger.shed,
        "dropped": ledger.dropped,
        "cancelled": ledger.cancelled,
        "throughput_rps": finished / span if span > 0 else None,
        "latency_ms": percentiles_ms(served.finished - served.arrival),
        "queue_ms": float((served.started - served.queued).mean()) * 1e3 if finished else None,
        "sla_violation_rate": late / ended if ended else None,
        "batch_size_mean": batch_size_mean,
        "utilization": busy_s / (workers * span) if span > 0 else None,
        "energy_j": energy_j,
        "wall_s": wall_s,
        "seed": seed,
    }
