"""`--otlp`: OpenTelemetry spans of requests, sent to a collector by OTLP over gRPC (extra `otel`).

A request is a span, in the trace that its W3C `traceparent` names, if it has one; preprocess, queue and execute of each
row are spans in it. They are made when the request has been answered, from the times that were noted, and a thread
sends them; where it cannot keep up or nobody listens, spans are lost and requests are not held up.
"""

import os
import time
from collections.abc import Callable

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headrace.host.live.results import Execution
from headrace.host.server.observe.watch import RequestTrace, RowVisit

ROWS = 16  # of a request that have spans of their own
EXPORT_S = 2.0  # for a batch of spans; and so at the end


class Spans:
    """A watcher. Use as a context manager."""

    def __init__(self, exporter: SpanExporter) -> None:
        os.environ.setdefault("OTEL_SERVICE_NAME", "headrace")
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, export_timeout_millis=EXPORT_S * 1e3))
        self._tracer = self._provider.get_tracer("headrace")
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def to(cls, endpoint: str) -> "Spans":
        """`endpoint` is http://HOST:PORT, or https:// with TLS."""
        return cls(OTLPSpanExporter(endpoint, insecure=not endpoint.startswith("https:"), timeout=EXPORT_S))

    def __enter__(self) -> "Spans":
        return self

    def __exit__(self, *_: object) -> None:
        self._provider.shutdown()

    def answered(self, visit: RequestTrace) -> None:
        since_1970 = time.time() - time.monotonic()

        def ns(at: float) -> int:
            return int((since_1970 + at) * 1e9)

        parent = self._propagator.extract({"traceparent": visit.traceparent}) if visit.traceparent else None
        span = self._tracer.start_span(
            f"infer {visit.model}",
            parent,
            SpanKind.SERVER,
            start_time=ns(visit.arrived),
            attributes={
                "headrace.model": visit.model,
                "headrace.transport": visit.transport,
                "headrace.rows": len(visit.rows),
                "headrace.outcome": visit.outcome.name,
                "client.address": visit.peer,
            },
        )
        if visit.error:
            span.set_status(Status(StatusCode.ERROR, visit.error))
        if span.is_recording():
            for row in visit.rows[:ROWS]:
                self._row(span, visit.arrived, row, ns)
        span.end(ns(visit.answered))

    def _row(self, parent: Span, arrived: float, row: RowVisit, ns: Callable[[float], int]) -> None:
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
        if (found := row.inference) is not None:
            served, task = found.served, found.execution.task
            child("queue", row.origin + served.queued, row.origin + served.started, {})
            child(
                "execute",
                row.origin + served.started,
                row.origin + served.finished,
                {
                    "headrace.worker": row.worker,
                    "headrace.batch_size": task.batch_size,
                    "headrace.reason": task.reason,
                    "headrace.network_s": found.execute_s,
                },
            )

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        """A task belongs to many requests: their spans say which."""
