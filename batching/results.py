"""The results of a run. A simulated run and a live run report the same keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.batching.accounting import Ledger


class Served(NamedTuple):
    """The times of one finished request, in seconds from the run's origin.

    They are ordered: `arrival` <= `queued` <= `started` <= `finished`.

    Args:
        arrival: When the request arrived.
        queued: When it entered the batcher, after any preprocessing.
        started: When its first task began.
        finished: When its last task ended.
        deadline: When it had to be finished.
        batch: The size of the batch that it ran in.
    """

    arrival: float
    queued: float
    started: float
    finished: float
    deadline: float
    batch: int


@dataclass(frozen=True, slots=True)
class ServedTimes:
    """The times of all finished requests (s), as arrays of shape (requests,). The names are those of `Served`."""

    arrival: NDArray[np.float64]
    queued: NDArray[np.float64]
    started: NDArray[np.float64]
    finished: NDArray[np.float64]
    deadline: NDArray[np.float64]

    @classmethod
    def of(cls, served: Sequence[Served]) -> "ServedTimes":
        """Return the times of these requests as arrays."""
        rows = [(s.arrival, s.queued, s.started, s.finished, s.deadline) for s in served]
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, 5).T)

    def totals(self) -> "Totals":
        """Return the figures that a report needs."""
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
    """Figures of all finished requests.

    Args:
        finished: The number of finished requests.
        late: The number of those that finished after their deadline.
        span_s: The time (s) from the first arrival to the last end.
        latency_ms: The latencies' mean and percentiles, as `percentiles_ms` returns them.
        queue_s: The mean wait (s) in the batcher.
    """

    finished: int
    late: int
    span_s: float
    latency_ms: dict[str, float | None]
    queue_s: float


@dataclass(frozen=True, slots=True)
class PreprocessTotals:
    """Figures of all requests that were preprocessed.

    Args:
        latency_ms: Mean and percentiles of the time for preprocessing, including waiting, as `percentiles_ms` returns
            them.
        utilization: The busy share of the servers of each preprocessing step, by the step's name.
    """

    latency_ms: dict[str, float | None]
    utilization: dict[str, float | None]


def percentiles_ms(seconds: ArrayLike) -> dict[str, float | None]:
    """Return mean, p50, p90, p95, p99 and max in milliseconds. Each is None if there are no values.

    Args:
        seconds: The values (s), in any shape.
    """
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
    """Return the results of a run by their fixed keys.

    Throughput is the number of finished requests by the time from the first arrival to the last end. A request that
    failed, was shed or was dropped counts as a violation of its slo. A request that its caller cancelled does not
    count.

    Args:
        served: The times of the finished requests, or their totals.
        ledger: The count of requests by how they ended.
        batch_size_mean: The mean batch size over node executions; for whole-graph policies this is the mean over tasks.
        busy_s: The sum of the workers' busy times (s).
        workers: The number of workers.
        wall_s: The duration (s) of the run on the clock of the machine that ran it.
        seed: The seed of the run, or None.
        energy_j: The energy (J), or None if it was neither measured nor modelled.
        preprocess: Figures of preprocessing. They add the keys `preprocess_ms` and `preprocess_utilization`. Latency
            then includes preprocessing.

    Returns:
        The values by key. `queue_ms` is the mean wait in the batcher; `utilization` is the busy share of all workers.
    """
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
