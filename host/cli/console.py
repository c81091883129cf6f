"""All commands print with this module: results on stdout, prose, progress and logs on stderr.

Whatever is printed is taken as it is: no markup, no emoji codes, no highlighting, for names of files and models and
texts of errors may hold anything, brackets and colons included."""

import contextlib
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)  # by how often --verbose is given
MAX_WAITING: Final = 1000  # lines
LAST_WORDS_S: Final = 2.0  # that the end of a command waits for what is still to be written
LINE_EVERY_S: Final = 30.0  # of progress in a log, where no bar moves

_waiting: "queue.Queue[str | None] | None" = None  # the lines for the thread of `told_in_background`
_terminal = sys.stdout is not None and sys.stdout.isatty()
out = Console(width=None if _terminal else 120, markup=False, emoji=False, highlight=False)  # a pipe has no width
err = Console(stderr=True, markup=False, emoji=False, highlight=False)


def show(text: str) -> None:
    """A line of the result, however long."""
    out.print(text, soft_wrap=True)


def show_json(value: Any) -> None:
    """The result as JSON: all that a command prints on stdout."""
    print(json.dumps(value, indent=2))


def tell(text: str) -> None:
    """A line of prose, however long."""
    if _waiting is None:
        err.print(text, soft_wrap=True)
    else:
        with contextlib.suppress(queue.Full):
            _waiting.put_nowait(text)


@contextlib.contextmanager
def told_in_background() -> Iterator[None]:
    """Let a thread write the lines of `tell` meanwhile. A terminal or a pipe that accepts nothing then blocks nobody.

    At most MOST_WAITING lines wait for the thread. `tell` drops further lines."""
    global _waiting
    lines = _waiting = queue.Queue(MAX_WAITING)
    writer = threading.Thread(target=_write, args=(lines,), name="stderr", daemon=True)
    writer.start()
    try:
        yield
    finally:
        _waiting = None
        end = time.monotonic() + LAST_WORDS_S
        with contextlib.suppress(queue.Full):
            lines.put(None, timeout=LAST_WORDS_S)  # what waits is written before
            writer.join(max(0.0, end - time.monotonic()))


def _write(lines: "queue.Queue[str | None]") -> None:
    """Write the lines to descriptor 2. The lock of sys.stderr would block the end of the process."""
    while (text := lines.get()) is not None:
        rest = f"{text}\n".encode(errors="backslashreplace")
        with contextlib.suppress(OSError):  # nobody is there any more
            while rest:
                rest = rest[os.write(2, rest) :]


def warn(text: str) -> None:
    tell(f"headrace: warning: {text}")


class _Log(logging.Handler):
    """Prints above a progress bar, where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(f"headrace: {record.levelname.lower()}: {self.format(record)}")


def log(verbose: int) -> None:
    """Logs of Headrace go to stderr: warnings, with `verbose` 1 what is done, and with 2 every detail."""
    ours = logging.getLogger("headrace")
    ours.handlers = [_Log()]
    ours.propagate = False
    ours.setLevel(LEVELS[min(verbose, len(LEVELS) - 1)])


def working(text: str) -> contextlib.AbstractContextManager[Any]:
    """Shows that something of unknown length goes on."""
    return err.status(Text(text))


def _time_left(task: Task) -> str | None:
    """At the mean pace from the begin of the stage to its last step; not at that of the last half minute, as rich has
    it, for a step may take longer. What was done before the stage began took no time of it."""
    done = task.completed - task.fields.get("skipped", 0)
    if task.remaining is None or task.elapsed is None or not done:
        return None
    stepped_s = task.fields.get("stepped_s", task.elapsed)
    left_s = stepped_s / done * task.remaining - (task.elapsed - stepped_s)
    return f"{timedelta(seconds=max(0, round(left_s)))} left"


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else _time_left(task) or "-:--:-- left", style="progress.remaining")


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), _TimeLeft())
    with Progress(*columns, console=err, disable=not err.is_terminal) as shown:
        yield shown


class Stages:
    """Draws stages of work as progress bars; in a log, where nothing moves, a line for each, and one now and then with
    how far it is."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._bar: Any = None
        self._told_s = 0.0

    def stage(self, text: str, total: int | None = None) -> None:
        if self._bar is not None:
            task = self._shown.tasks[self._bar]
            self._shown.update(self._bar, total=task.total or 1, completed=task.total or 1)
        self._bar = self._shown.add_task(text, total=total)
        if not err.is_terminal:
            tell(text)
            self._told_s = self._shown.get_time()

    def skip(self, count: int) -> None:
        """So many steps of the stage were done before; it begins now."""
        self._shown.reset(self._bar, completed=count, skipped=count)

    def step(self) -> None:
        task = self._shown.tasks[self._bar]
        self._shown.update(self._bar, advance=1, stepped_s=task.elapsed)
        if err.is_terminal or task.finished or self._shown.get_time() < self._told_s + LINE_EVERY_S:
            return
        self._told_s = self._shown.get_time()
        of = "" if task.total is None else f" of {task.total:.0f}"
        told = (f"{task.completed:.0f}{of}", _time_left(task))
        tell(f"{task.description}: {', '.join(filter(None, told))}")
