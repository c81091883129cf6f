"""`--access-log`: a JSON line for each inference request, and for each request without the token.

A thread writes the lines, so a slow disk or reader delays no request. Beyond LINES waiting lines the log drops new ones
and writes a line with their number. Lines stay whole: if a full disk has taken a part of a line, the thread first
writes the rest of it."""

import contextlib
import json
import logging
import os
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any

from headrace.batching import UsageError
from headrace.host.live.results import Execution
from headrace.host.server.observe.watch import RequestTrace, RowTrace

LINES = 65536  # limit on the lines that wait to be written
WRITE_S = 0.25  # time between two writes
LINES_PER_WRITE = 256

_log = logging.getLogger(__name__)


class AccessLog:
    """Append a line for each request to the file at `path`; `-` is stdout. A watcher, used as a context manager."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: deque[dict[str, Any]] = deque()
        self._left_out = 0
        self._rest = b""  # bytes of lines that the file has not accepted yet
        self._closing = threading.Event()
        self._reopens = False
        self._writer = threading.Thread(target=self._run, name="access-log", daemon=True)

    def __enter__(self) -> "AccessLog":
        """Open the file and start the thread. Raises UsageError."""
        try:
            self._file = self._opened()
        except OSError as error:
            text = f"--access-log {self._path}: {error.strerror}; give a file that can be written"
            raise UsageError(text) from None
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Write the remaining lines, for at most 5 s."""
        self._closing.set()
        self._writer.join(5)

    def reopen(self) -> None:
        """Open the path again before the next line. A program that rotates logs has moved the old file away."""
        self._reopens = True

    def answered(self, trace: RequestTrace) -> None:
        """Add the line of a request."""
        if len(self._lines) >= LINES:
            self._left_out += 1
        else:
            self._lines.append(_line(trace))

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        """Do nothing, because a task has no line."""

    def _opened(self) -> int:
        """Return a descriptor of the log. It is not sys.stdout, because networks may print there."""
        if self._path == "-":
            return os.dup(1)
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _run(self) -> None:
        ending = complained = False
        while not ending:
            ending = self._closing.wait(WRITE_S)
            try:
                self._write()
            except OSError as error:  # a full disk or a closed pipe; a disk may have room again later
                if not complained:
                    _log.warning("the access log cannot be written: %s", error)
                complained = True
        with contextlib.suppress(OSError):
            os.close(self._file)

    def _write(self) -> None:
        """Write all waiting lines. Raises OSError, and then keeps the lines that it has not written."""
        if self._reopens and not self._rest:
            former, self._file = self._file, self._opened()
            self._reopens = False
            os.close(former)
        while self._rest or self._lines or self._left_out:
            if not self._rest:
                lines = [self._lines.popleft() for _ in range(min(LINES_PER_WRITE, len(self._lines)))]
                for line in lines:
                    line["time"] = datetime.fromtimestamp(line["time"], UTC).isoformat(timespec="microseconds")
                if not lines:
                    left_out, self._left_out = self._left_out, 0
                    lines = [{"left_out": left_out}]
                self._rest = "".join(json.dumps(line) + "\n" for line in lines).encode()
            self._rest = self._rest[os.write(self._file, self._rest) :]


def _line(trace: RequestTrace) -> dict[str, Any]:
    """Return the line of a request, without the fields that the request did not reach.

    A request of several rows has the times of the row that finished last."""
    line: dict[str, Any] = {
        "time": time.time() - trace.total_s,
        "model": trace.model,
        "transport": trace.transport,
        "peer": trace.peer,
        "outcome": trace.outcome.name,
        "status": trace.outcome.http if trace.transport == "http" else trace.outcome.grpc,
        "rows": len(trace.rows),
        "total_ms": _ms(trace.total_s),
    }
    for key in ("id", "traceparent", "error"):
        if text := getattr(trace, key):
            line[key] = text
    row = max(trace.rows, key=_done) if trace.rows else RowTrace()
    if (made := row.preprocessed) is not None:
        line |= {"preprocess_ms": _ms(made.finished - trace.arrived), "unit": made.unit}
        if made.damage:
            line["damage"] = made.damage
        if made.out_of_service:
            line["out_of_service"] = made.out_of_service
    if (inference := row.inference) is not None:
        task = inference.execution.task
        line |= {
            "queue_ms": _ms(inference.served.started - inference.served.queued),
            "execute_ms": _ms(inference.execute_s),
            "batch": task.batch_size,
            "reason": task.reason,
            "worker": row.worker,
        }
    return line


def _done(row: RowTrace) -> float:
    return row.inference.served.finished if row.inference is not None else 0.0


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
