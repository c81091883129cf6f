"""Printing for all commands: results go to stdout; prose, progress and logs go to stderr.

Texts are printed unchanged, without markup, emoji codes or highlighting. Names of files and models, and texts of
errors, may contain brackets and colons."""

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
MAX_WAITING: Final = 1000  # lines that wait for the thread of `told_in_background`
LAST_WORDS_S: Final = 2.0  # longest wait of a command's end for these lines
LINE_EVERY_S: Final = 30.0  # from one line of progress to the next, if stderr is no terminal

_waiting: "queue.Queue[str | None] | None" = None  # the lines for the thread of `told_in_background`
_terminal = sys.stdout is not None and sys.stdout.isatty()
out = Console(width=None if _terminal else 120, markup=False, emoji=False, highlight=False)  # a pipe has no width
err = Console(stderr=True, markup=False, emoji=False, highlight=False)


def numbers_of(result: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each number of a result with its name. In nested dicts the name has all keys, as in "latency_ms mean"."""
    if not isinstance(result, dict):
        yield name, result
        return
    for key, value in result.items():
        yield from numbers_of(value, f"{name} {key}".strip())


def show(text: str) -> None:
    """Print one line of the result, without wrapping it."""
    out.print(text, soft_wrap=True)


def show_json(value: Any) -> None:
    """Print the result as JSON. A command prints nothing else on stdout then."""
    print(json.dumps(value, indent=2))


def tell(text: str) -> None:
    """Print one line of prose on stderr, without wrapping it."""
    if _waiting is None:
        err.print(text, soft_wrap=True)
    else:
        with contextlib.suppress(queue.Full):
            _waiting.put_nowait(text)


@contextlib.contextmanager
def told_in_background() -> Iterator[None]:
    """Let a thread write the lines of `tell` while the block runs.

    A terminal or a pipe that accepts nothing then blocks only the thread. At most MAX_WAITING lines wait for it; `tell`
    drops further lines."""
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
            lines.put(None, timeout=LAST_WORDS_S)  # the thread writes all waiting lines first
            writer.join(max(0.0, end - time.monotonic()))


def _write(lines: "queue.Queue[str | None]") -> None:
    """Write the lines to descriptor 2. The lock of sys.stderr would block the end of the process."""
    while (text := lines.get()) is not None:
        rest = f"{text}\n".encode(errors="backslashreplace")
        with contextlib.suppress(OSError):  # nobody is there any more
            while rest:
                rest = rest[os.write(2, rest) :]


def warn(text: str) -> None:
    """Print a warning on stderr."""
    tell(f"headrace: warning: {text}")


class _Log(logging.Handler):
    """A log handler that prints above the progress bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(f"headrace: {record.levelname.lower()}: {self.format(record)}")


def log(verbose: int) -> None:
    """Print Headrace's logs on stderr: only warnings if `verbose` is 0, each action if 1, and details if 2 or more."""
    ours = logging.getLogger("headrace")
    ours.handlers = [_Log()]
    ours.propagate = False
    ours.setLevel(LEVELS[min(verbose, len(LEVELS) - 1)])


def working(text: str) -> contextlib.AbstractContextManager[Any]:
    """Show a text while the block runs, for work of unknown length."""
    return err.status(Text(text))


def _time_left(task: Task) -> str | None:
    """Return the time that a stage still takes, in words, or None if it cannot be estimated.

    The estimate uses the mean pace from the beginning of the stage to its last step. rich uses the pace of the last
    half minute, but a step may take longer than that. Steps that were skipped took no time."""
    done = task.completed - task.fields.get("skipped", 0)
    if task.remaining is None or task.elapsed is None or not done:
        return None
    stepped_s = task.fields.get("stepped_s", task.elapsed)
    left_s = stepped_s / done * task.remaining - (task.elapsed - stepped_s)
    return f"{timedelta(seconds=max(0, round(left_s)))} left"


class _TimeLeft(ProgressColumn):
    """A column of a progress bar with the time that is left."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else _time_left(task) or "-:--:-- left", style="progress.remaining")


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """Show progress bars on stderr while the block runs, if stderr is a terminal."""
    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), _TimeLeft())
    with Progress(*columns, console=err, disable=not err.is_terminal) as shown:
        yield shown


class Stages:
    """Stages of work, each drawn as a progress bar.

    If stderr is no terminal, a line is printed for each stage, and every LINE_EVERY_S a line with its progress."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._bar: Any = None
        self._told_s = 0.0

    def stage(self, text: str, total: int | None = None) -> None:
        """End the present stage, and begin the next one, with `total` steps if their number is known."""
        if self._bar is not None:
            task = self._shown.tasks[self._bar]
            self._shown.update(self._bar, total=task.total or 1, completed=task.total or 1)
        self._bar = self._shown.add_task(text, total=total)
        if not err.is_terminal:
            tell(text)
            self._told_s = self._shown.get_time()

    def skip(self, count: int) -> None:
        """Count `count` steps of the stage as done before, and begin its time now."""
        self._shown.reset(self._bar, completed=count, skipped=count)

    def step(self) -> None:
        """Count one step of the stage as done."""
        task = self._shown.tasks[self._bar]
        self._shown.update(self._bar, advance=1, stepped_s=task.elapsed)
        if err.is_terminal or task.finished or self._shown.get_time() < self._told_s + LINE_EVERY_S:
            return
        self._told_s = self._shown.get_time()
        of = "" if task.total is None else f" of {task.total:.0f}"
        told = (f"{task.completed:.0f}{of}", _time_left(task))
        tell(f"{task.description}: {', '.join(filter(None, told))}")
