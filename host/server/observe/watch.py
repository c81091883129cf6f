"""The records that a running server passes to its watchers: metrics, live page, access log, trace and spans.

Rule: the server calls a watcher in its event loop. So a watcher takes microseconds, keeps a limited amount of data and
never waits."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.host.dpu.fair_pool import UnitState
from headrace.host.dpu.preprocessor import Preprocessed
from headrace.host.live.results import Execution, Inference, WorkerState
from headrace.host.server.protocol.messages import CANCELLED, Outcome

MAX_TEXT = 200  # characters of a text that a client chose


class RowTrace:
    """Record one row of a request, as far as it got.

    The times in `inference` count from `origin`, a `time.monotonic()` value. `worker` ran the last of its tasks."""

    __slots__ = ("inference", "origin", "preprocessed", "worker")

    def __init__(
        self,
        preprocessed: Preprocessed | None = None,
        inference: Inference | None = None,
        origin: float = 0.0,
        worker: str = "",
    ) -> None:
        self.preprocessed = preprocessed
        self.inference = inference
        self.origin = origin
        self.worker = worker


class RequestTrace:
    """Record a request from its arrival to its answer. Times are seconds of `time.monotonic()`.

    Args:
        peer: the address of the client.
        traceparent: the W3C trace context of the request.
        arrived: None stands for now.
        error: the error text, if the answer is an error."""

    __slots__ = (
        "answered",
        "arrived",
        "error",
        "id",
        "model",
        "outcome",
        "peer",
        "rows",
        "traceparent",
        "transport",
    )

    def __init__(
        self,
        model: str,
        transport: str,
        peer: str = "",
        traceparent: str = "",
        id: str = "",
        arrived: float | None = None,
        rows: Sequence[RowTrace] = (),
        outcome: Outcome = CANCELLED,
        error: str = "",
        answered: float = 0.0,
    ) -> None:
        self.model = model
        self.transport = transport
        self.peer = peer
        self.traceparent = traceparent
        self.id = id
        self.arrived = time.monotonic() if arrived is None else arrived
        self.rows = rows
        self.outcome = outcome
        self.error = error
        self.answered = answered

    @property
    def marks(self) -> dict[str, str]:
        """Return the parameters of the answer. `damaged_rows`, such as "0,3", names the rows whose damaged images were
        accepted."""
        if all(row.preprocessed is None for row in self.rows):
            return {}
        made = [row.preprocessed for row in self.rows]
        rows = [str(number) for number, each in enumerate(made) if each is not None and each.damage]
        return {"damaged_rows": ",".join(rows)} if rows else {}

    def cut(self) -> None:
        """Shorten each text that a client chose to MAX_TEXT characters, because records wait in queues."""
        if len(self.model) + len(self.peer) + len(self.traceparent) + len(self.id) + len(self.error) <= MAX_TEXT:
            return
        for name in ("model", "peer", "traceparent", "id", "error"):
            text = getattr(self, name)
            if len(text) > MAX_TEXT:
                setattr(self, name, text[: MAX_TEXT - 1] + "\u2026")

    @property
    def total_s(self) -> float:
        """Return the seconds from the arrival to the answer."""
        return self.answered - self.arrived


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold the state of the server at one instant.

    Args:
        in_flight: rows that are admitted and not answered, by model. The next three are parts of them.
        preprocessing: rows at the preprocessor.
        waiting: rows in the policy's queue.
        running: rows that have begun and are not finished.
        arena: slots of the shared memory, in use and in all.
        dpu_fallbacks: inputs that the DPU did not support, by reason.
        damaged: damaged images that were accepted."""

    workers: Sequence[WorkerState]
    workers_lost: int
    units: Sequence[UnitState]
    in_flight: Mapping[str, int]
    preprocessing: Mapping[str, int]
    waiting: Mapping[str, int]
    running: Mapping[str, int]
    arena: Mapping[str, tuple[int, int]]
    dpu_fallbacks: Mapping[str, int]
    damaged: int


class Watcher(Protocol):
    """Receive the records of a server."""

    def answered(self, trace: RequestTrace) -> None:
        """Record a request that has its answer, or whose client is gone."""
        ...

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        """Record a task that has ended. Its times count from `origin`, a `time.monotonic()` value."""
        ...


class Watchers:
    """Pass each record to several watchers, in their order. A watcher itself."""

    __slots__ = ("_watchers",)

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def answered(self, trace: RequestTrace) -> None:
        for watcher in self._watchers:
            watcher.answered(trace)

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        for watcher in self._watchers:
            watcher.executed(worker, origin, execution)
