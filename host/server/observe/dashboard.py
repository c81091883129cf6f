"""The data of the live page: the last minutes second by second, the last batches, and the current state.

Latencies are counted in the steps of a logarithmic scale. So a second takes the same memory at any load, and
percentiles are exact to 4 % (half a step). Snapshots of waiting and running rows are taken four times a second."""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from headrace.host.live.results import Execution
from headrace.host.server.observe.watch import RequestTrace, Snapshot

SECONDS = 120  # seconds that are kept
BATCHES = 40  # batches that are kept
SNAPSHOT_S = 0.25  # time between two snapshots
LOAD_SNAPSHOTS = 17  # snapshots that the load of workers and CUs is computed from: the last four seconds
FASTEST_S = 1e-5  # lower end of the scale of latencies
STEPS_PER_E = 13  # steps for each factor e; a step is 8 % above the one before it
STEPS = math.ceil(STEPS_PER_E * math.log(1e3 / FASTEST_S))  # the scale ends at 1000 s
PERCENTILES = (50, 95, 99)


@dataclass(slots=True)
class _Second:
    """Hold the counts of one model in one second.

    `latencies` counts successful answers by step. `preprocessing`, `waiting` and `running` are the maxima of the
    second's snapshots."""

    answered: int = 0
    failed: int = 0
    latencies: list[int] = field(default_factory=lambda: [0] * STEPS)
    preprocessing: int = 0
    waiting: int = 0
    running: int = 0
    sizes: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


_NONE = _Second()  # the counts of a model in seconds before it was loaded


class _Batch(NamedTuple):
    at: float  # time.monotonic()
    worker: str
    execution: Execution


class Dashboard:
    """Collect the data of the live page. A watcher, used as an async context manager.

    It calls `take_snapshot` regularly while it is open. `clock` returns the seconds of `time.monotonic()`."""

    def __init__(self, take_snapshot: Callable[[], Snapshot], clock: Callable[[], float] = time.monotonic) -> None:
        self._take_snapshot = take_snapshot
        self._clock = clock
        self._outcomes: dict[str, Counter[str]] = {}  # by model; `add` creates an entry
        self._unknown_model = Counter[str]()  # outcomes of requests for models that are not served
        self._seconds: deque[dict[str, _Second]] = deque(maxlen=SECONDS)
        self._batches: deque[_Batch] = deque(maxlen=BATCHES)
        self._busy: deque[tuple[float, dict[tuple[str, str], float]]] = deque(maxlen=LOAD_SNAPSHOTS)
        self._began = clock()
        self._number = -1  # number of the current second since the start
        self._turns = self._began  # end of the current second
        self._roll(self._began)

    async def __aenter__(self) -> "Dashboard":
        self._on_timer()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._timer.cancel()

    def add(self, model: str) -> None:
        """Create the entries of a model before its first request. A model that was loaded before keeps its counts."""
        if model not in self._outcomes:
            self._outcomes[model] = Counter()
            for second in self._seconds:
                second[model] = _NONE
            self._now[model] = _Second()

    # ---- watching ----

    def answered(self, trace: RequestTrace) -> None:
        """Count a request."""
        if trace.answered >= self._turns:
            self._roll(trace.answered)
        second = self._now.get(trace.model)
        if second is None:
            self._unknown_model[trace.outcome.name] += 1
            return
        self._outcomes[trace.model][trace.outcome.name] += 1
        if trace.outcome.http == 200:
            second.answered += 1
            ratio = trace.total_s / FASTEST_S
            step = int(math.log(ratio) * STEPS_PER_E) if ratio > 1 else 0
            second.latencies[step if step < STEPS else STEPS - 1] += 1
        else:
            second.failed += 1

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        """Count a task, and keep it among the last batches."""
        at = origin + execution.finished
        if at >= self._turns:
            self._roll(at)
        task = execution.task
        second = self._now[task.model]
        second.sizes[task.batch_size] += 1
        second.reasons[task.reason] += 1
        self._batches.append(_Batch(at, worker, execution))

    def _roll(self, now: float) -> None:
        """Begin the second that contains `now`, and the empty seconds before it."""
        seconds = int(now - self._turns) + 1
        self._number += seconds
        self._turns += seconds
        for _ in range(min(seconds, SECONDS)):
            self._now = {model: _Second() for model in self._outcomes}
            self._seconds.append(self._now)

    def _on_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SNAPSHOT_S, self._on_timer)
        now = self._clock()
        if now >= self._turns:
            self._roll(now)
        snapshot = self._take_snapshot()
        for model, second in self._now.items():
            second.preprocessing = max(second.preprocessing, snapshot.preprocessing.get(model, 0))
            second.waiting = max(second.waiting, snapshot.waiting.get(model, 0))
            second.running = max(second.running, snapshot.running.get(model, 0))
        self._busy.append((now, _busy(snapshot)))

    # ---- reading ----

    def status(self, model: str | None = None, since: int = -1) -> dict[str, Any]:
        """Return the status as JSON, for `model` or for all models together.

        It has the complete seconds with a number above `since`. Latencies are in milliseconds; times of batches are
        seconds before now."""
        now = self._clock()
        if now >= self._turns:
            self._roll(now)
        models = [model] if model is not None else list(self._outcomes)
        over = list(self._seconds)[:-1]
        fresh = max(0, min(len(over), self._number - 1 - since))
        snapshot = self._take_snapshot()
        return {
            "began": self._began,
            "up_s": round(now - self._began, 1),
            "seconds": self._history(models, over[len(over) - fresh :]),
            "outcomes": dict(
                sum((self._outcomes[name] for name in models), self._unknown_model if model is None else Counter())
            ),
            "batches": [
                self._batch(each, now) for each in reversed(self._batches) if each.execution.task.model in models
            ],
            "sizes": sorted(_sum(second[name].sizes for second in over for name in models).items()),
            "reasons": dict(_sum(second[name].reasons for second in over for name in models)),
            **self._current(models, snapshot, now),
        }

    def _history(self, models: Sequence[str], seconds: Sequence[dict[str, _Second]]) -> dict[str, Any]:
        """Return a list for each quantity, with one value for each of the `seconds`."""
        history: dict[str, Any] = {"last": self._number - 1}
        for quantity in ("answered", "failed", "preprocessing", "waiting", "running"):
            history[quantity] = [sum(getattr(second[name], quantity) for name in models) for second in seconds]
        latencies = np.zeros((len(seconds), STEPS), np.int64)
        for row, second in zip(latencies, seconds, strict=True):
            for name in models:
                row += second[name].latencies
        for percentile in PERCENTILES:
            history[f"p{percentile}_ms"] = _percentile(latencies, percentile)
        return history

    def _batch(self, batch: _Batch, now: float) -> dict[str, Any]:
        execution, task = batch.execution, batch.execution.task
        return {
            "ago_s": round(now - batch.at, 3),
            "model": task.model,
            "worker": batch.worker,
            "size": task.batch_size,
            "reason": task.reason,
            "waited_ms": round((execution.handed - min(request.arrival for request in task.requests)) * 1e3, 3),
            "took_ms": round((execution.ended - execution.started) * 1e3, 3),
            "error": execution.error,
        }

    def _current(self, models: Sequence[str], snapshot: Snapshot, now: float) -> dict[str, Any]:
        """Return the current state of workers, units and queues, and the load of the last seconds."""
        then, before = self._busy[0] if self._busy else (now, {})
        passed = max(now - then, 1e-9)
        busy = _busy(snapshot)

        def load(kind: str, name: str) -> float:
            at = (kind, name)
            return round(min(1.0, max(0.0, (busy[at] - before.get(at, busy[at])) / passed)), 3)

        return {
            "workers": [
                {
                    "name": worker.name,
                    "up": worker.up,
                    "load": load("worker", worker.name),
                    "at": None if worker.at is None else {"model": worker.at.model, "size": worker.at.batch_size},
                }
                for worker in snapshot.workers
            ],
            "workers_lost": snapshot.workers_lost,
            "units": [
                {
                    "name": unit.name,
                    "busy": unit.busy,
                    "load": load("unit", unit.name),
                    "lost": unit.lost,
                    "returned": unit.returned,
                }
                for unit in snapshot.units
            ],
            "dpu_fallbacks": dict(snapshot.dpu_fallbacks),
            "now": {
                stage: sum(getattr(snapshot, stage).get(name, 0) for name in models)
                for stage in ("in_flight", "preprocessing", "waiting", "running")
            },
        }


def _busy(snapshot: Snapshot) -> dict[tuple[str, str], float]:
    """Return the busy seconds by kind and name, because a worker and a CU may have the same name."""
    units = {("unit", unit.name): unit.busy_s for unit in snapshot.units}
    return {("worker", worker.name): worker.busy_s for worker in snapshot.workers} | units


def _sum(counters: Iterable[Counter[Any]]) -> Counter[Any]:
    total = Counter[Any]()
    for counter in counters:
        total.update(counter)
    return total


def _percentile(latencies: np.ndarray[Any, np.dtype[np.int64]], percentile: float) -> list[float | None]:
    """Return the percentile of each row in milliseconds: the middle of its step. A row without answers has None."""
    reached = latencies.cumsum(axis=1)
    totals = reached[:, -1]
    steps = (reached < np.ceil(totals[:, None] * percentile / 100)).sum(axis=1)
    values = FASTEST_S * 1e3 * np.exp((steps + 0.5) / STEPS_PER_E)
    return [round(float(value), 4) if total else None for value, total in zip(values, totals, strict=True)]
