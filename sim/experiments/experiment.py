"""Define an experiment once, and run any of them with one function.

An experiment is a published evaluation that is run again, or a study of this project. It has figures. Each figure needs
jobs, and each job gives rows. A report turns the rows of one figure into CSV files, plots and claims. `reproduce` does
everything else: it runs every job once, even if several figures share it, keeps the rows on disk, and writes the
findings of the reports.

A folder under sim/experiments holds one experiment. Its runs.py defines EXPERIMENT.
"""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from headrace.batching.errors import UsageError
from headrace.sim.experiments.report import Claim, write_claims, write_rows
from headrace.sim.sweeps.journal import RowJournal
from headrace.sim.sweeps.sweep import Progress, worker_pool

Scale = TypeVar("Scale")
Job = TypeVar("Job")
Row = TypeVar("Row")

NAMES: Final = ("batchmaker", "goodput", "lazybatching", "parvagpu", "preba", "slices", "smdp")
JOURNAL: Final = "runs.parquet"  # in the folder of a reproduction


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


def named(name: str) -> Experiment[Any, Any, Any]:
    """Return the experiment of this name, which is one of NAMES.

    Only its own modules are loaded, because each experiment loads many."""
    experiment: Experiment[Any, Any, Any] = importlib.import_module(f"headrace.sim.experiments.{name}.runs").EXPERIMENT
    return experiment


def reproduce(
    experiment: Experiment[Scale, Job, Row],
    scale: Scale,
    folder: Path,
    progress: Progress,
    figures: Sequence[str] | None = None,
    ray: str | None = None,
) -> Report:
    """Run the jobs of an experiment's figures and write all findings into `folder`.

    A job that several figures share runs once. Its rows are kept in the file JOURNAL in `folder`. A later call of the
    same code does not run it again.

    Args:
        experiment: The experiment.
        scale: How much is run: `experiment.full`, `experiment.quick`, or another value of the same class.
        folder: The folder for files. It is made if it is missing.
        progress: Receives the number of jobs, and each one that ends.
        figures: The figures to draw; None for all.
        ray: The address of a Ray cluster, as `sim.sweeps.cluster.cluster` takes it; None for this machine's cores.

    Returns:
        The reports of all figures in one.

    Raises:
        UsageError: The experiment has no figure of this name.
    """
    wanted = experiment.figures if figures is None else figures
    for figure in wanted:
        if figure not in experiment.figures:
            raise UsageError(f"--figure {figure}: choose from {', '.join(experiment.figures)}, all")
    folder.mkdir(parents=True, exist_ok=True)
    jobs = {figure: experiment.jobs(figure, scale) for figure in wanted}
    rows = _run(experiment, [job for figure in wanted for job in jobs[figure]], folder / JOURNAL, progress, ray)
    reports = []
    for figure in wanted:
        report = experiment.report(figure, [row for job in jobs[figure] for row in rows[job]], folder)
        for name, written in report.rows.items():
            if written:
                write_rows(folder / f"{name}.csv", written)
        reports.append(report)
    whole = Report(
        {name: written for report in reports for name, written in report.rows.items()},
        [claim for report in reports for claim in report.claims],
        [note for report in reports for note in report.notes],
        [line for report in reports for line in report.tables],
    )
    _write(whole, folder)
    return whole


def _run(
    experiment: Experiment[Any, Job, Row], jobs: Sequence[Job], journal: Path, progress: Progress, ray: str | None
) -> dict[Job, list[Row]]:
    """Run every distinct job and return the rows of each."""
    distinct = sorted(dict.fromkeys(jobs), key=experiment.order)
    keeper: RowJournal[Row] = RowJournal(journal, experiment.row_types)
    # The journal is closed first: a cluster takes longer to end than a command may after Ctrl-C.
    with worker_pool(len(distinct), ray) as workers, keeper as kept:
        progress.stage(experiment.describe(distinct), len(distinct))
        rows = workers.sweep(experiment.run, distinct, progress.step, kept, progress.skip)
    return dict(zip(distinct, rows, strict=True))


def _write(report: Report, folder: Path) -> None:
    """Write claims, notes and tables. A study without a paper has its rows in table.json in place of claims."""
    if report.tables:
        (folder / "tables.md").write_text("\n".join(report.tables).rstrip() + "\n")
        rows = {name: [asdict(row) for row in written] for name, written in report.rows.items()}
        (folder / "table.json").write_text(json.dumps(rows, indent=2) + "\n")
    else:
        write_claims(folder, report.claims)
    if report.notes:
        (folder / "notes.md").write_text("".join(f"- {note}\n" for note in report.notes))
