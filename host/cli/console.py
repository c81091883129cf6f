"""What all commands print with: results on stdout, prose, progress and logs on stderr.

Whatever is printed is taken as it is: no markup, no emoji codes, no highlighting, for names of files and models and
texts of errors may hold anything, brackets and colons included."""

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)  # by how often --verbose is given

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
    err.print(text, soft_wrap=True)


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


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as shown:
        yield shown


class Stages:
    """Draws stages of work as progress bars; in a log, where nothing moves, a line for each."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._bar: Any = None

    def stage(self, text: str, total: int | None = None) -> None:
        if self._bar is not None:
            task = self._shown.tasks[self._bar]
            self._shown.update(self._bar, total=task.total or 1, completed=task.total or 1)
        self._bar = self._shown.add_task(text, total=total)
        if not err.is_terminal:
            tell(text)

    def step(self) -> None:
        self._shown.advance(self._bar)
