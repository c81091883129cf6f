"""`--otlp`: OpenTelemetry spans of requests, sent to a collector by OTLP over gRPC (extra `otel`).

Each request is a span. If it has a W3C `traceparent`, the span belongs to that trace. Preprocessing, queue and
execution of each row are child spans. The spans are made from the recorded times after the request is answered,
and a thread sends them. If the thread cannot keep up, or no collector listens, spans are lost and requests are
not delayed."""

import os
import time
from collections.abc import Callable

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headrace.host.live.results import Execution
from headrace.host.server.observe.watch import RequestTrace, RowTrace

ROWS = 16  # rows of a request that have their own spans
EXPORT_S = 2.0  # time limit for sending one batch of spans, also at the end


class Spans:
    """Send spans through `exporter`. A watcher, used as a context manager."""

    def __init__(self, exporter: SpanExporter) -> None:
        os.environ.setdefault("OTEL_SERVICE_NAME", "headrace")
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, export_timeout_millis=EXPORT_S * 1e3))
        self._tracer = self._provider.get_tracer("headrace")
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def to(cls, endpoint: str) -> "Spans":
        """Return spans that go to the collector at `endpoint`: http://HOST:PORT, or https:// with TLS."""
        return cls(OTLPSpanExporter(endpoint, insecure=not endpoint.startswith("https:"), timeout=EXPORT_S))

    def __enter__(self) -> "Spans":
        return self

    def __exit__(self, *_: object) -> None:
        self._provider.shutdown()

    def answered(self, trace: RequestTrace) -> None:
        """Make the spans of a request."""
        since_1970 = time.time() - time.monotonic()

        def ns(at: float) -> int:
            return int((since_1970 + at) * 1e9)

        parent = self._propagator.extract({"traceparent": trace.traceparent}) if trace.traceparent else None
        span = self._tracer.start_span(
            f"infer {trace.model}",
            parent,
            SpanKind.SERVER,
            start_time=ns(trace.arrived),
            attributes={
                "headrace.model": trace.model,
                "headrace.transport": trace.transport,
                "headrace.rows": len(trace.rows),
                "headrace.outcome": trace.outcome.name,
                "client.address": trace.peer,
            },
        )
        if trace.error:
            span.set_status(Status(StatusCode.ERROR, trace.error))
        if span.is_recording():
            for row in trace.rows[:ROWS]:
                self._row(span, trace.arrived, row, ns)
        span.end(ns(trace.answered))

    def _row(self, parent: Span, arrived: float, row: RowTrace, ns: Callable[[float], int]) -> None:
        context = set_span_in_context(parent)

        def child(name: str, start: float, end: float, attributes: dict[str, str | int | float]) -> None:
            self._tracer.start_span(name, context, start_time=ns(start), attributes=attributes).end(ns(end))

        if (made := row.preprocessed) is not None:
            child(
                "preprocess",
                arrived,
                made.finished,
                {"headrace.unit": made.unit, "headrace.started_s": made.started - arrived},
            )
        if (inference := row.inference) is not None:
            served, task = inference.served, inference.execution.task
            child("queue", row.origin + served.queued, row.origin + served.started, {})
            child(
                "execute",
                row.origin + served.started,
                row.origin + served.finished,
                {
                    "headrace.worker": row.worker,
                    "headrace.batch_size": task.batch_size,
                    "headrace.reason": task.reason,
                    "headrace.network_s": inference.execute_s,
                },
            )

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        """Do nothing, because a task belongs to many requests, and their spans name it."""
