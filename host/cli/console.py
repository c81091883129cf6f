"""What all commands share: results on stdout, prose and progress on stderr, folders for output."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from headrace.batching import UsageError

out = Console(width=None if sys.stdout.isatty() else 120)  # a pipe has no width of its own
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]


def warn(text: str) -> None:
    err.print(f"headrace: warning: {text}", soft_wrap=True, highlight=False, markup=False)


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror}; name a folder that can be written") from error


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=err, disable=not err.is_terminal) as shown:
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
            err.print(text)

    def step(self) -> None:
        self._shown.advance(self._bar)
