"""`--access-log`: a JSON line for each request for an inference, and for each that came without the token.

A thread writes, so that a disk or a reader that is slow holds up no request. What it cannot keep up with is left out,
and a line says how many.
"""

import contextlib
import json
import logging
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any

from headrace.batching import UsageError
from headrace.host.live.runtime import Execution
from headrace.host.server.watch import RowVisit, Visit

LINES = 65536  # that wait to be written
WRITE_S = 0.25

_log = logging.getLogger(__name__)


class AccessLog:
    """A watcher. Use as a context manager. Appends to the file at `path`; `-` is stdout."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stack = contextlib.ExitStack()
        self._lines: deque[dict[str, Any]] = deque()
        self._left_out = 0
        self._closing = threading.Event()
        self._writer = threading.Thread(target=self._run, name="access-log", daemon=True)

    def __enter__(self) -> "AccessLog":
        """Raises UsageError."""
        stdout = self._path == "-"  # the file, as sys.stdout is where networks may print to
        try:
            file = open(1 if stdout else self._path, "a", encoding="utf-8", closefd=not stdout)
        except OSError as error:
            text = f"--access-log {self._path}: {error.strerror}; name a file that can be written"
            raise UsageError(text) from None
        self._file = self._stack.enter_context(file)
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Waits a few seconds for what is left."""
        self._closing.set()
        self._writer.join(5)

    def answered(self, visit: Visit) -> None:
        if len(self._lines) >= LINES:
            self._left_out += 1
        else:
            self._lines.append(_line(visit))

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        """A task has no line."""

    def _run(self) -> None:
        ending = complained = False
        told = 0
        while not ending:
            ending = self._closing.wait(WRITE_S)
            try:
                while self._lines:
                    line = self._lines.popleft()
                    line["time"] = datetime.fromtimestamp(line["time"], UTC).isoformat(timespec="microseconds")
                    self._file.write(json.dumps(line) + "\n")
                if (left_out := self._left_out) > told:
                    self._file.write(json.dumps({"left_out": left_out - told}) + "\n")
                    told = left_out
                self._file.flush()
            except (OSError, ValueError) as error:  # a full disk, or a closed pipe; it may have room again
                if not complained:
                    _log.warning("the access log cannot be written: %s", error)
                complained = True
        with contextlib.suppress(OSError):
            self._stack.close()


def _line(visit: Visit) -> dict[str, Any]:
    """Without what the request did not come to; of several rows, those of the one that was done last."""
    line: dict[str, Any] = {
        "time": time.time() - visit.total_s,
        "model": visit.model,
        "transport": visit.transport,
        "peer": visit.peer,
        "outcome": visit.outcome.name,
        "status": visit.outcome.http if visit.transport == "http" else visit.outcome.grpc,
        "rows": len(visit.rows),
        "total_ms": _ms(visit.total_s),
    }
    for key in ("id", "traceparent", "error"):
        if text := getattr(visit, key):
            line[key] = text
    row = max(visit.rows, key=_done) if visit.rows else RowVisit()
    if (made := row.preprocessed) is not None:
        line |= {"preprocess_ms": _ms(made.finished - visit.arrived), "unit": made.unit}
        if made.damage:
            line["damage"] = made.damage
    if (found := row.inference) is not None:
        task = found.execution.task
        line |= {
            "queue_ms": _ms(found.served.started - found.served.queued),
            "execute_ms": _ms(found.execute_s),
            "batch": task.batch_size,
            "reason": task.reason,
            "worker": row.worker,
        }
    return line


def _done(row: RowVisit) -> float:
    return row.inference.served.finished if row.inference is not None else 0.0


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
