"""What is counted and timed, for Prometheus and for ModelStatistics."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.host.dpu.preprocessor import Preprocessed
from headrace.host.live.runtime import Execution, Inference
from headrace.host.server.protocol import Outcome

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Gauges:
    """How things stand. `in_flight` is by model, in rows; `dpu_fallbacks` counts by reason what the DPU could not
    take."""

    workers_up: int
    workers_lost: int
    in_flight: dict[str, int]
    dpu_fallbacks: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class ModelSums:
    """Of one model since the server's start; times in nanoseconds. A request may have several rows, each of which is an
    inference."""

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


class _ByModel(dict[str, Histogram]):
    """The part of a histogram that is a model's, looked up once."""

    def __init__(self, histogram: Histogram) -> None:
        super().__init__()
        self._histogram = histogram

    def __missing__(self, model: str) -> Histogram:
        self[model] = self._histogram.labels(model)
        return self[model]


class Metrics:
    """`gauges` is asked whenever somebody looks."""

    def __init__(self, gauges: Callable[[], Gauges]) -> None:
        self.sums: dict[str, ModelSums] = {}  # by model; `add` them
        self._gauges = gauges
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "headrace_requests", "Requests answered, by model, transport and outcome.",
            ("model", "transport", "outcome"), registry=registry,
        )  # fmt: skip

        def seconds(name: str, what: str) -> _ByModel:
            return _ByModel(Histogram(f"headrace_{name}_seconds", what, ("model",), buckets=SECONDS, registry=registry))

        self._total = seconds("request", "A request, from its arrival to its answer, if that was good.")
        self._preprocess = seconds("preprocess", "From a photo's arrival to its tensor, waiting included.")
        self._queue = seconds("queue", "A row in the batcher.")
        self._execute = seconds("execute", "A row's tasks in the network.")
        self._batch = _ByModel(
            Histogram(
                "headrace_batch_size", "Requests in a task, by model.", ("model",), buckets=BATCHES, registry=registry
            )
        )
        self._tasks = Counter(
            "headrace_tasks", "Tasks ended, by model and why they left.", ("model", "reason"), registry=registry
        )
        registry.register(self)

    def add(self, model: str) -> None:
        """Before anything is told of it. One that was here before goes on from where it was."""
        self.sums.setdefault(model, ModelSums())

    def answered(self, model: str, transport: str, outcome: Outcome, seconds: float) -> None:
        """A request that has ended; one for a model that is not here counts under no name."""
        self._requests.labels(model if model in self.sums else "", transport, outcome.name).inc()
        if (sums := self.sums.get(model)) is None:
            return
        if outcome.http == 200:
            self._total[model].observe(seconds)
            sums.success += 1
            sums.success_ns += int(seconds * 1e9)
        else:
            sums.fail += 1
            sums.fail_ns += int(seconds * 1e9)

    def preprocessed(self, model: str, arrived: float, done: Preprocessed) -> None:
        """`arrived` is in `time.monotonic()` seconds."""
        took = done.finished - arrived
        self._preprocess[model].observe(took)
        self.sums[model].preprocess_ns += int(took * 1e9)

    def inferred(self, model: str, inference: Inference, now_ms: int) -> None:
        queue_s = inference.served.started - inference.served.queued
        self._queue[model].observe(queue_s)
        self._execute[model].observe(inference.execute_s)
        sums = self.sums[model]
        sums.inferences += 1
        sums.queue_ns += int(queue_s * 1e9)
        sums.execute_ns += int(inference.execute_s * 1e9)
        sums.last_inference_ms = now_ms

    def executed(self, execution: Execution) -> None:
        task = execution.task
        self._tasks.labels(task.model, task.reason).inc()
        if execution.error is None:
            self._batch[task.model].observe(task.batch_size)
            sums = self.sums[task.model]
            sums.executions += 1
            count, time_ns = sums.by_batch.get(task.batch_size, (0, 0))
            sums.by_batch[task.batch_size] = (count + 1, time_ns + int(execution.execute_s * 1e9))

    def collect(self) -> Iterable[Metric]:
        """prometheus_client's, for what is asked and not told."""
        gauges = self._gauges()
        yield GaugeMetricFamily("headrace_workers_up", "Workers in service.", gauges.workers_up)
        yield CounterMetricFamily("headrace_workers_lost", "Workers that died or hung.", gauges.workers_lost)
        in_flight = GaugeMetricFamily("headrace_in_flight", "Rows admitted and not answered.", labels=("model",))
        for model, rows in gauges.in_flight.items():
            in_flight.add_metric((model,), rows)
        yield in_flight
        fallbacks = CounterMetricFamily(
            "headrace_dpu_fallbacks", "Photos that the DPU could not take, by reason.", labels=("reason",)
        )
        for reason, count in gauges.dpu_fallbacks.items():
            fallbacks.add_metric((reason,), count)
        yield fallbacks

    def text(self) -> bytes:
        return generate_latest(self._registry)
