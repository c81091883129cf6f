"""Counters and times of a running server, for Prometheus and for ModelStatistics."""

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from headrace.host.live.results import Execution
from headrace.host.server.observe.watch import RequestTrace, RowTrace, Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
LAGS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(slots=True)
class ModelSums:
    """Hold the sums of one model since the server's start. Times are in nanoseconds.

    A request may have several rows. Each row is one inference."""

    success: int = 0
    success_ns: int = 0
    fail: int = 0
    fail_ns: int = 0
    inferences: int = 0
    executions: int = 0
    last_inference_ms: int = 0  # since 1970
    preprocess_ns: int = 0
    queue_ns: int = 0
    execute_ns: int = 0
    by_batch: dict[int, tuple[int, int]] = field(default_factory=dict)  # batch size -> executions, their time


class _Histogram:
    """Count observations by bucket. Only the event loop uses it, so it needs no lock."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one is beyond all bounds
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value in the first bucket whose bound it does not exceed."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class _Histograms(dict[str, _Histogram]):
    """One histogram for each model, and their metric for Prometheus."""

    def __init__(self, name: str, what: str, bounds: Sequence[float]) -> None:
        super().__init__()
        self._name = name
        self._what = what
        self._bounds = bounds

    def __missing__(self, model: str) -> _Histogram:
        self[model] = made = _Histogram(self._bounds)
        return made

    def metric(self) -> Metric:
        """Return the counts so far. A bucket of Prometheus also counts all values below it."""
        family = HistogramMetricFamily(self._name, self._what, labels=("model",))
        bounds = [floatToGoString(bound) for bound in (*self._bounds, math.inf)]
        for model, own in self.items():
            buckets = list(zip(bounds, accumulate(own.counts), strict=True))
            family.add_metric((model,), buckets, own.sum)
        return family


def _counted(name: str, what: str, labels: Sequence[str], counts: Mapping[Any, int]) -> Metric:
    """Return the metric of counts by the values of the labels."""
    family = CounterMetricFamily(name, what, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family


class Metrics:
    """Count requests and tasks. A watcher.

    `take_snapshot` is called whenever a client reads the metrics."""

    def __init__(self, take_snapshot: Callable[[], Snapshot]) -> None:
        self.sums: dict[str, ModelSums] = {}  # by model; `add` creates an entry
        self._take_snapshot = take_snapshot
        self._registry = registry = CollectorRegistry()
        self._requests = Counter[tuple[str, str, str]]()  # by model, transport and outcome
        self._tasks = Counter[tuple[str, str]]()  # by model and reason

        def seconds(name: str, what: str) -> _Histograms:
            return _Histograms(f"headrace_{name}_seconds", what, SECONDS)

        self._total = seconds("request", "Time of a successful request, from its arrival to its answer.")
        self._preprocess = seconds("preprocess", "Time from an input's arrival to its tensor, waiting included.")
        self._queue = seconds("queue", "Time of a row in the policy's queue.")
        self._batch_s = seconds(
            "batch", "Time of a task from the policy to its end: waiting at its worker, and execution."
        )
        self._execute = seconds("execute", "Time of a row's tasks in the network.")
        self._batch = _Histograms("headrace_batch_size", "Requests in a task, by model.", BATCHES)
        lag = "Delay of the event loop: the time from when a timer was due until the loop ran it."
        self.loop_lag = Histogram("headrace_loop_lag_seconds", lag, buckets=LAGS, registry=registry)
        registry.register(self)

    def add(self, model: str) -> None:
        """Create the counters of a model before its first request. A model that was loaded before keeps its counts."""
        self.sums.setdefault(model, ModelSums())

    def answered(self, trace: RequestTrace) -> None:
        """Count a request. A request for a model that is not served counts without a model name."""
        sums = self.sums.get(trace.model)
        self._requests[trace.model if sums is not None else "", trace.transport, trace.outcome.name] += 1
        if sums is None:
            return
        seconds = trace.total_s
        if trace.outcome.http == 200:
            self._total[trace.model].observe(seconds)
            sums.success += 1
            sums.success_ns += int(seconds * 1e9)
        else:
            sums.fail += 1
            sums.fail_ns += int(seconds * 1e9)
        for row in trace.rows:
            self._row(trace.model, sums, trace.arrived, row)

    def _row(self, model: str, sums: ModelSums, arrived: float, row: RowTrace) -> None:
        if row.preprocessed is not None:
            took_s = row.preprocessed.finished - arrived
            self._preprocess[model].observe(took_s)
            sums.preprocess_ns += int(took_s * 1e9)
        if row.inference is not None:
            queue_s = row.inference.served.started - row.inference.served.queued
            self._queue[model].observe(queue_s)
            self._execute[model].observe(row.inference.execute_s)
            sums.inferences += 1
            sums.queue_ns += int(queue_s * 1e9)
            sums.execute_ns += int(row.inference.execute_s * 1e9)
            sums.last_inference_ms = time.time_ns() // 10**6

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        """Count a task that has ended."""
        task = execution.task
        self._tasks[task.model, task.reason] += 1
        if execution.error is None:
            self._batch[task.model].observe(task.batch_size)
            self._batch_s[task.model].observe(execution.finished - execution.handed)
            sums = self.sums[task.model]
            sums.executions += 1
            count, time_ns = sums.by_batch.get(task.batch_size, (0, 0))
            sums.by_batch[task.batch_size] = (count + 1, time_ns + int(execution.execute_s * 1e9))

    def collect(self) -> Iterable[Metric]:
        """Yield the counts, and the metrics that come from a snapshot. prometheus_client calls this."""
        answers = ("model", "transport", "outcome")
        yield _counted(
            "headrace_requests", "Requests answered, by model, transport and outcome.", answers, self._requests
        )
        for histograms in (self._total, self._preprocess, self._queue, self._batch_s, self._execute, self._batch):
            yield histograms.metric()
        ended = "Tasks ended, by model and the reason of their dispatch."
        yield _counted("headrace_tasks", ended, ("model", "reason"), self._tasks)
        now = self._take_snapshot()
        up = sum(worker.up for worker in now.workers)
        yield GaugeMetricFamily("headrace_workers_up", "Workers in service.", up)
        yield CounterMetricFamily("headrace_workers_lost", "Workers that died or hung.", now.workers_lost)
        cus = sum(not unit.lost for unit in now.units)
        yield GaugeMetricFamily("headrace_cus_up", "CUs of the DPU, or preprocessing threads, in service.", cus)
        for kind, what, all_busy in (
            ("worker", "the worker was busy with tasks", {worker.name: worker.busy_s for worker in now.workers}),
            ("cu", "the CU was busy with inputs", {unit.name: unit.busy_s for unit in now.units}),
        ):
            busy = CounterMetricFamily(f"headrace_{kind}_busy_seconds", f"Time for which {what}.", labels=(kind,))
            for name, busy_s in all_busy.items():
                busy.add_metric((name,), busy_s)
            yield busy
        in_flight = GaugeMetricFamily("headrace_in_flight", "Rows admitted and not answered.", labels=("model",))
        depth = GaugeMetricFamily(
            "headrace_queue_depth",
            "Rows in flight, by where they are: preprocess, queue or execute.",
            labels=("model", "stage"),
        )
        for model in self.sums:
            stages = {
                "preprocess": now.preprocessing.get(model, 0),
                "queue": now.waiting.get(model, 0),
                "execute": now.running.get(model, 0),
            }
            in_flight.add_metric((model,), now.in_flight.get(model, 0))
            for stage, rows in stages.items():
                depth.add_metric((model, stage), rows)
        yield in_flight
        yield depth
        used = GaugeMetricFamily("headrace_arena_used", "Slots of the shared memory in use.", labels=("arena",))
        size = GaugeMetricFamily("headrace_arena_size", "All slots of the shared memory.", labels=("arena",))
        for arena, (held, places) in now.arena.items():
            used.add_metric((arena,), held)
            size.add_metric((arena,), places)
        yield used
        yield size
        fallbacks = CounterMetricFamily(
            "headrace_dpu_fallbacks", "Photos and sounds that the DPU could not take, by reason.", labels=("reason",)
        )
        for reason, count in now.dpu_fallbacks.items():
            fallbacks.add_metric((reason,), count)
        yield fallbacks
        damaged = CounterMetricFamily(
            "headrace_damaged_photos", "Photos that were taken although they are damaged: some pixels are made up."
        )
        damaged.add_metric((), now.damaged)
        yield damaged

    def text(self) -> bytes:
        return generate_latest(self._registry)
