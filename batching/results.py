"""What a run reports, in the same keys whether it was simulated or live."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float | None]:
    """mean, p50, p90, p95, p99 and max in milliseconds; None where nothing was measured."""
    if not seconds:
        return dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"))
    values = np.asarray(seconds) * 1e3
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
    served: Sequence[Served],
    ledger: Ledger,
    *,
    busy_s: float,
    workers: int,
    wall_s: float,
    seed: int | None,
    energy_j: float | None = None,
) -> dict[str, object]:
    """The result of a run.

    Throughput counts from the first arrival to the last end. A request that failed or was shed missed its SLA.
    `batch_size_mean` is over tasks, not over requests; `queue_ms` is the mean wait in the batcher; `utilization` is
    the busy share of all workers; `energy_j` is None where nothing measured or modelled it."""
    ended = ledger.finished + ledger.failed + ledger.shed
    late = sum(s.finished > s.deadline for s in served) + ledger.failed + ledger.shed
    span = max(s.finished for s in served) - min(s.arrival for s in served) if served else 0.0
    tasks = sum(1.0 / s.batch for s in served)
    return {
        "requests": ledger.submitted,
        "finished": ledger.finished,
        "failed": ledger.failed,
        "shed": ledger.shed,
        "throughput_rps": len(served) / span if span > 0 else None,
        "latency_ms": percentiles_ms([s.finished - s.arrival for s in served]),
        "queue_ms": percentiles_ms([s.started - s.queued for s in served])["mean"],
        "sla_violation_rate": late / ended if ended else None,
        "batch_size_mean": len(served) / tasks if tasks else None,
        "utilization": busy_s / (workers * span) if span > 0 else None,
        "energy_j": energy_j,
        "wall_s": wall_s,
        "seed": seed,
    }
