"""What is told of a running server, and to whom: counters, the live page, access log, trace and spans are all watchers.

Rule: a watcher is told in the server's loop, so it takes microseconds, keeps a bounded amount and waits for nothing.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.host.dpu.fair_pool import UnitState
from headrace.host.dpu.preprocessor import Preprocessed
from headrace.host.live.results import Execution, Inference, WorkerState
from headrace.host.server.protocol.messages import CANCELLED, Outcome

MAX_TEXT = 200  # characters


@dataclass(slots=True)
class RowVisit:
    """A row of a request, as far as it got. Times in `inference` count from `origin`, a `time.monotonic()` value;
    `worker` ran the last of its tasks."""

    preprocessed: Preprocessed | None = None
    inference: Inference | None = None
    origin: float = 0.0
    worker: str = ""


@dataclass(slots=True)
class RequestTrace:
    """A request from its arrival to its answer, in `time.monotonic()` seconds. `peer` is the client's address,
    `traceparent` its W3C trace context; `error` is what it was answered with, if that was no result."""

    model: str
    transport: str
    peer: str = ""
    traceparent: str = ""
    id: str = ""
    arrived: float = field(default_factory=time.monotonic)
    rows: list[RowVisit] = field(default_factory=list)
    outcome: Outcome = CANCELLED
    error: str = ""
    answered: float = 0.0

    @property
    def marks(self) -> dict[str, str]:
        """Parameters of the answer: `damaged_rows`, "0,3" say, whose photos are damaged and were taken nonetheless."""
        made = [row.preprocessed for row in self.rows]
        rows = [str(number) for number, each in enumerate(made) if each is not None and each.damage]
        return {"damaged_rows": ",".join(rows)} if rows else {}

    def cut(self) -> None:
        """Keep at most MAX_TEXT characters of each text that a client chose: records of it wait in queues."""
        for name in ("model", "peer", "traceparent", "id", "error"):
            text = getattr(self, name)
            if len(text) > MAX_TEXT:
                setattr(self, name, text[: MAX_TEXT - 1] + "\u2026")

    @property
    def total_s(self) -> float:
        return self.answered - self.arrived


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How things stand now. By model, in rows: those `in_flight`, admitted and not answered; of them those
    `preprocessing`, those `waiting` in the policy, and those `running`, begun and not finished. `arena` is what they
    hold of the shared memory and what there is; `dpu_fallbacks` counts by reason what the DPU could not take, `damaged`
    the photos that were taken although they are."""

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
    def answered(self, visit: RequestTrace) -> None:
        """A request has its answer, or nobody waits for it any more."""
        ...

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        """A task has ended. The times in it count from `origin`, a `time.monotonic()` value."""
        ...
