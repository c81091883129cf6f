"""What the live page shows: the last minutes by the second, the last batches, and how things stand.

Latencies are counted in steps of a logarithmic scale, so that a second takes the same memory at any load; percentiles
are read off it and within 4 % (half a step). What waits and runs is looked at four times a second.
"""

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

SECONDS = 120  # that are kept
BATCHES = 40
LOOK_S = 0.25  # between looks at how things stand
LOAD_LOOKS = 17  # of which the load of workers and CUs is taken: the last four seconds
FASTEST_S = 1e-5
STEPS_PER_E = 13  # of the scale, each 8 % above the one before
STEPS = math.ceil(STEPS_PER_E * math.log(1e3 / FASTEST_S))  # up to 1000 s
PERCENTILES = (50, 95, 99)


@dataclass(slots=True)
class _Second:
    """Of one model. `latencies` counts good answers by step; `waiting` and the others are the most that was seen."""

    answered: int = 0
    failed: int = 0
    latencies: list[int] = field(default_factory=lambda: [0] * STEPS)
    preprocessing: int = 0
    waiting: int = 0
    running: int = 0
    sizes: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


_NONE = _Second()  # of a model that was not there yet


class _Batch(NamedTuple):
    at: float  # time.monotonic()
    worker: str
    execution: Execution


class Live:
    """A watcher. Use as an async context manager; `look` is asked while it is open."""

    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look
        self._outcomes: dict[str, Counter[str]] = {}  # by model; `add` them
        self._elsewhere = Counter[str]()  # outcomes of requests for no model
        self._seconds: deque[dict[str, _Second]] = deque(maxlen=SECONDS)
        self._batches: deque[_Batch] = deque(maxlen=BATCHES)
        self._busy: deque[tuple[float, dict[tuple[str, str], float]]] = deque(maxlen=LOAD_LOOKS)
        self._began = time.monotonic()
        self._number = -1  # of the second that is counted now, since the start
        self._turns = self._began  # when that second is over
        self._roll(self._began)

    async def __aenter__(self) -> "Live":
        self._looks()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._timer.cancel()

    def add(self, model: str) -> None:
        """Before anything is told of it. One that was here before goes on from where it was."""
        if model not in self._outcomes:
            self._outcomes[model] = Counter()
            for second in self._seconds:
                second[model] = _NONE
            self._now[model] = _Second()

    # ---- watching ----

    def answered(self, visit: RequestTrace) -> None:
        if visit.answered >= self._turns:
            self._roll(visit.answered)
        second = self._now.get(visit.model)
        if second is None:
            self._elsewhere[visit.outcome.name] += 1
            return
        self._outcomes[visit.model][visit.outcome.name] += 1
        if visit.outcome.http == 200:
            second.answered += 1
            ratio = visit.total_s / FASTEST_S
            step = int(math.log(ratio) * STEPS_PER_E) if ratio > 1 else 0
            second.latencies[step if step < STEPS else STEPS - 1] += 1
        else:
            second.failed += 1

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        at = origin + execution.finished
        if at >= self._turns:
            self._roll(at)
        task = execution.task
        second = self._now[task.model]
        second.sizes[task.batch_size] += 1
        second.reasons[task.reason] += 1
        self._batches.append(_Batch(at, worker, execution))

    def _roll(self, now: float) -> None:
        """Begin the second in which `now` is, and those before it that nobody was there for."""
        behind = int(now - self._turns) + 1
        self._number += behind
        self._turns += behind
        for _ in range(min(behind, SECONDS)):
            self._now = {model: _Second() for model in self._outcomes}
            self._seconds.append(self._now)

    def _looks(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._looks)
        now = time.monotonic()
        if now >= self._turns:
            self._roll(now)
        standing = self._look()
        for model, second in self._now.items():
            second.preprocessing = max(second.preprocessing, standing.preprocessing.get(model, 0))
            second.waiting = max(second.waiting, standing.waiting.get(model, 0))
            second.running = max(second.running, standing.running.get(model, 0))
        self._busy.append((now, _busy(standing)))

    # ---- reading ----

    def status(self, model: str | None = None, since: int = -1) -> dict[str, Any]:
        """As JSON has it: of `model`, or of all together, with the seconds behind number `since` that are over.
        Latencies are in milliseconds, times of batches in seconds before now."""
        now = time.monotonic()
        if now >= self._turns:
            self._roll(now)
        models = [model] if model is not None else list(self._outcomes)
        over = list(self._seconds)[:-1]
        fresh = max(0, min(len(over), self._number - 1 - since))
        standing = self._look()
        return {
            "began": self._began,
            "up_s": round(now - self._began, 1),
            "seconds": self._history(models, over[len(over) - fresh :]),
            "outcomes": dict(
                sum((self._outcomes[name] for name in models), self._elsewhere if model is None else Counter())
            ),
            "batches": [
                self._batch(each, now) for each in reversed(self._batches) if each.execution.task.model in models
            ],
            "sizes": sorted(_sum(second[name].sizes for second in over for name in models).items()),
            "reasons": dict(_sum(second[name].reasons for second in over for name in models)),
            **self._stands(models, standing, now),
        }

    def _history(self, models: Sequence[str], seconds: Sequence[dict[str, _Second]]) -> dict[str, Any]:
        """A list for each quantity, of the seconds up to the last one that is over."""
        found: dict[str, Any] = {"last": self._number - 1}
        for quantity in ("answered", "failed", "preprocessing", "waiting", "running"):
            found[quantity] = [sum(getattr(second[name], quantity) for name in models) for second in seconds]
        latencies = np.zeros((len(seconds), STEPS), np.int64)
        for row, second in zip(latencies, seconds, strict=True):
            for name in models:
                row += second[name].latencies
        for percentile in PERCENTILES:
            found[f"p{percentile}_ms"] = _percentile(latencies, percentile)
        return found

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

    def _stands(self, models: Sequence[str], standing: Snapshot, now: float) -> dict[str, Any]:
        then, before = self._busy[0] if self._busy else (now, {})
        passed = max(now - then, 1e-9)
        busy = _busy(standing)

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
                for worker in standing.workers
            ],
            "workers_lost": standing.workers_lost,
            "units": [
                {
                    "name": unit.name,
                    "busy": unit.busy,
                    "load": load("unit", unit.name),
                    "lost": unit.lost,
                    "returned": unit.returned,
                }
                for unit in standing.units
            ],
            "dpu_fallbacks": dict(standing.dpu_fallbacks),
            "now": {
                stage: sum(getattr(standing, stage).get(name, 0) for name in models)
                for stage in ("in_flight", "preprocessing", "waiting", "running")
            },
        }


def _busy(standing: Snapshot) -> dict[tuple[str, str], float]:
    """By name; a worker and a CU may have the same."""
    units = {("unit", unit.name): unit.busy_s for unit in standing.units}
    return {("worker", worker.name): worker.busy_s for worker in standing.workers} | units


def _sum(counters: Iterable[Counter[Any]]) -> Counter[Any]:
    total = Counter[Any]()
    for counter in counters:
        total.update(counter)
    return total


def _percentile(latencies: np.ndarray[Any, np.dtype[np.int64]], percentile: float) -> list[float | None]:
    """In ms, of each row; None for one without answers. The middle of the step in which it lies."""
    reached = latencies.cumsum(axis=1)
    totals = reached[:, -1]
    steps = (reached < np.ceil(totals[:, None] * percentile / 100)).sum(axis=1)
    values = FASTEST_S * 1e3 * np.exp((steps + 0.5) / STEPS_PER_E)
    return [round(float(value), 4) if total else None for value, total in zip(values, totals, strict=True)]
