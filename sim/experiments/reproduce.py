"""Run an experiment again and write its CSV files, plots and tables."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

from headrace.batching.errors import UsageError
from headrace.sim.experiments.experiment import Experiment, Report, named
from headrace.sim.experiments.report import write_claims, write_rows
from headrace.sim.sweeps.journal import RowJournal
from headrace.sim.sweeps.sweep import Progress, worker_pool

Job = TypeVar("Job")
Row = TypeVar("Row")

# Measures the rows of a figure at a scale, on real workers. The simulator knows no such thing; a command gives it.
Measure = Callable[[str, Any, Progress], Sequence[Any]]
JOURNAL: Final = "runs.parquet"  # in the folder of a reproduction


class _NoProgress:
    def stage(self, text: str, total: int | None = None) -> None: ...

    def skip(self, count: int) -> None: ...

    def step(self) -> None: ...


def reproduce(
    experiment: str | Experiment[Any, Any, Any],
    *,
    out: str | Path,
    scale: Any = "full",
    figures: Sequence[str] | None = None,
    ray: str | None = None,
    progress: Progress | None = None,
    measure: Measure | None = None,
) -> Report:
    """Run the jobs of an experiment's figures and write all findings into a folder.

    A job that several figures share runs once. Its rows are kept in the file JOURNAL in the folder. A later call of the
    same code does not run it again.

    Args:
        experiment: The name of an experiment, one of `experiment.NAMES`, or an experiment.
        out: The folder for files. It is made if it is missing.
        scale: How much is run: "full", "quick" (some seconds), or a value of the experiment's own class of scales.
        figures: The figures to draw; None for all, less those that a machine measures if there is no `measure`.
        ray: The address of a Ray cluster, as `sim.sweeps.cluster.cluster` takes it; None for this machine's cores.
        progress: Receives the number of jobs, and each one that ends.
        measure: Measures the rows of the experiment's measured figures. They are measured anew at each call.

    Returns:
        The reports of all figures in one.

    Raises:
        UsageError: There is no experiment, scale or figure of this name, or no `measure` for a measured figure.
    """
    chosen = named(experiment) if isinstance(experiment, str) else experiment
    if isinstance(scale, str) and scale not in ("full", "quick"):
        raise UsageError(f"there is no scale {scale!r}; choose full or quick")
    amount = {"full": chosen.full, "quick": chosen.quick}[scale] if isinstance(scale, str) else scale
    wanted = figures
    if wanted is None:
        wanted = [figure for figure in chosen.figures if measure is not None or figure not in chosen.measured]
    for figure in wanted:
        if figure not in chosen.figures:
            raise UsageError(f"--figure {figure}: choose from {', '.join(chosen.figures)}, all")
        if figure in chosen.measured and measure is None:
            raise UsageError(
                f"figure {figure} is measured on real workers: run `headrace reproduce {chosen.name} --figure {figure}`"
            )
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    jobs = {figure: chosen.jobs(figure, amount) for figure in wanted}
    every = [job for figure in wanted for job in jobs[figure]]
    shown = progress or _NoProgress()
    rows = _run(chosen, every, folder / JOURNAL, shown, ray)
    reports = []
    for figure in wanted:
        found = [row for job in jobs[figure] for row in rows[job]]
        if measure is not None and figure in chosen.measured:
            found += measure(figure, amount, shown)
        report = chosen.report(figure, found, folder)
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
    if report.claims or not report.tables:
        write_claims(folder, report.claims)
    else:
        rows = {name: [asdict(row) for row in written] for name, written in report.rows.items()}
        (folder / "table.json").write_text(json.dumps(rows, indent=2) + "\n")
    if report.notes:
        (folder / "notes.md").write_text("".join(f"- {note}\n" for note in report.notes))
