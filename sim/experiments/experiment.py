"""The definition of an experiment, and the experiments by name.

An experiment is a published evaluation that is run again, or a study of this project. It has figures. Each figure needs
jobs, and each job gives rows. A report turns the rows of one figure into CSV files, plots and claims. reproduce.py does
everything else, for all experiments.

A folder under sim/experiments holds one experiment. Its runs.py defines EXPERIMENT.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from headrace.batching.errors import UsageError
from headrace.sim.experiments.report import Claim

Scale = TypeVar("Scale")
Job = TypeVar("Job")
Row = TypeVar("Row")

NAMES: Final = ("aiconfigurator", "batchmaker", "goodput", "gpu", "lazybatching", "parvagpu", "preba", "slices", "smdp")


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of a figure, or of all figures.

    Attributes:
        rows: Rows that are written as CSV files, by their names without suffix. A name without rows has no file.
        claims: Comparisons with the paper's numbers (table.md, table.json).
        notes: Findings for which the paper has no number (notes.md).
        tables: Lines of Markdown (tables.md).
    """

    rows: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    notes: Sequence[str] = ()
    tables: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Experiment(Generic[Scale, Job, Row]):
    """An evaluation that can be run again.

    Args:
        name: Its folder under sim/experiments.
        source: The paper, or the question of a study.
        figures: The names of its figures and tables, in the order of the report.
        full: How much is run for the numbers that are published.
        quick: How much is run for a look of some seconds.
        jobs: Returns the jobs of a figure at a scale. A job is a frozen dataclass of plain values.
        run: Returns the rows of a job. It is a function of a module, so that another process can call it.
        row_types: The classes of the rows: frozen dataclasses of plain values and tuples of them.
        report: Draws a figure into a folder, from the figure's rows, and returns what they show.
        describe: Returns the words that the progress display shows for all jobs.
        order: The key by which jobs are started, the longest first, so that no core ends with a long job.
        measured: Those of the figures that have no jobs, because a real machine measures their rows (`Measure`).
    """

    name: str
    source: str
    figures: Sequence[str]
    full: Scale
    quick: Scale
    jobs: Callable[[str, Scale], Sequence[Job]]
    run: Callable[[Job], list[Row]]
    row_types: Sequence[type[Any]]
    report: Callable[[str, Sequence[Row], Path], Report]
    describe: Callable[[Sequence[Job]], str]
    order: Callable[[Job], Any] = lambda job: 0
    measured: Sequence[str] = ()


def named(name: str) -> Experiment[Any, Any, Any]:
    """Return the experiment of this name.

    Only its own modules are loaded, because each experiment loads many. Raises UsageError for a name that is not in
    NAMES."""
    if name not in NAMES:
        raise UsageError(f"there is no experiment {name!r}; choose from {', '.join(NAMES)}")
    experiment: Experiment[Any, Any, Any] = importlib.import_module(f"headrace.sim.experiments.{name}.runs").EXPERIMENT
    return experiment
