"""`--access-log`: a JSON line for each request for an inference, and for each that came without the token.

A thread writes the lines, so a slow disk or reader delays no request. Lines beyond LINES are dropped, and a line tells
how many. No line is torn: when a full disk has taken a part of one, the thread writes the rest before all else.
"""

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
from headrace.host.server.observe.watch import RequestTrace, RowVisit

LINES = 65536  # that wait to be written
WRITE_S = 0.25
AT_A_TIME = 256  # lines

_log = logging.getLogger(__name__)


class AccessLog:
    """A watcher. Use as a context manager. Appends to the file at `path`; `-` is stdout."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: deque[dict[str, Any]] = deque()
        self._left_out = 0
        self._rest = b""  # of lines that the file has not taken
        self._closing = threading.Event()
        self._reopens = False
        self._writer = threading.Thread(target=self._run, name="access-log", daemon=True)

    def __enter__(self) -> "AccessLog":
        """Raises UsageError."""
        try:
            self._file = self._opened()
        except OSError as error:
            text = f"--access-log {self._path}: {error.strerror}; name a file that can be written"
            raise UsageError(text) from None
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Waits a few seconds for what is left."""
        self._closing.set()
        self._writer.join(5)

    def reopen(self) -> None:
        """Open the path anew before the next line. A program that rotates logs has moved the old file away."""
        self._reopens = True

    def answered(self, visit: RequestTrace) -> None:
        if len(self._lines) >= LINES:
            self._left_out += 1
        else:
            self._lines.append(_line(visit))

    def executed(self, worker: str, origin: float, execution: Execution) -> None:
        """A task has no line."""

    def _opened(self) -> int:
        """Return a descriptor of the log. It avoids sys.stdout, because networks may print there."""
        if self._path == "-":
            return os.dup(1)
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _run(self) -> None:
        ending = complained = False
        while not ending:
            ending = self._closing.wait(WRITE_S)
            try:
                self._write()
            except OSError as error:  # a full disk, or a closed pipe; it may have room again
                if not complained:
                    _log.warning("the access log cannot be written: %s", error)
                complained = True
        with contextlib.suppress(OSError):
            os.close(self._file)

    def _write(self) -> None:
        """Write all lines that wait. Raises OSError, and keeps the lines that it has not written."""
        if self._reopens and not self._rest:
            former, self._file = self._file, self._opened()
            self._reopens = False
            os.close(former)
        while self._rest or self._lines or self._left_out:
            if not self._rest:
                lines = [self._lines.popleft() for _ in range(min(AT_A_TIME, len(self._lines)))]
                for line in lines:
                    line["time"] = datetime.fromtimestamp(line["time"], UTC).isoformat(timespec="microseconds")
                if not lines:
                    left_out, self._left_out = self._left_out, 0
                    lines = [{"left_out": left_out}]
                self._rest = "".join(json.dumps(line) + "\n" for line in lines).encode()
            self._rest = self._rest[os.write(self._file, self._rest) :]


def _line(visit: RequestTrace) -> dict[str, Any]:
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
        if made.out_of_service:
            line["out_of_service"] = made.out_of_service
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
