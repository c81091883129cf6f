"""The command `headrace reproduce`, which repeats the evaluation of a paper or a study of this project."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace.host.cli.console import Stages, out, progress, tell, warn
from headrace.host.cli.options import Json, Ray, command, make_folder
from headrace.host.workers.inspection.parent import require_torch
from headrace.sim.experiments.experiment import NAMES, Experiment, named
from headrace.sim.experiments.report import counted
from headrace.sim.experiments.reproduce import Measure
from headrace.sim.experiments.reproduce import reproduce as run

Name = StrEnum("Name", [(name.upper(), name) for name in NAMES])  # typer reads the choices from it


@command
def reproduce(
    experiment: Annotated[Name, typer.Argument(help="The evaluation or the study.")],
    figure: Annotated[str, typer.Option(help="Figures by comma, or all.")] = "all",
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds: fewer runs.")] = False,
    out_folder: Annotated[Path | None, typer.Option("--out", help="Folder for plots, CSV files and the table.")] = None,
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Run a paper's evaluation, or a study of this project, again.

    It ends with a table: the paper's numbers with the measured ones, or the results of the study."""
    figures = None if figure == "all" else [each.strip() for each in figure.split(",")]
    folder = out_folder or Path("out/reproduce") / experiment.value
    make_folder("--out", folder)
    chosen = named(experiment.value)
    measure = _measure(chosen, figures)
    with progress() as shown:
        scale = "quick" if quick else "full"
        report = run(chosen, out=folder, scale=scale, figures=figures, ray=ray, progress=Stages(shown), measure=measure)
    if as_json:
        print((folder / "table.json").read_text(), end="")
    elif report.tables:
        print("\n".join(report.tables))
    else:
        table = Table(title=f"{experiment.value}{' (quick)' if quick else ''}", title_justify="left")
        for heading in ("figure", "what", "paper", "measured", "ratio", "kind", "note"):
            table.add_column(heading, justify="right" if heading in ("paper", "measured", "ratio") else "left")
        for claim in report.claims:
            table.add_row(claim.figure, claim.claim, claim.given, claim.shown, claim.compared, claim.kind, claim.noted)
        out.print(table)
        out.print(counted(report.claims), markup=False)
    tell(f"wrote {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")


def _measure(experiment: Experiment[Any, Any, Any], figures: Sequence[str] | None) -> Measure | None:
    """Return what measures the experiment's measured figures on workers.

    Without torch it is None, and a warning says so, unless a figure was named that needs it."""
    if not set(experiment.measured) & set(experiment.figures if figures is None else figures):
        return None
    try:
        require_torch()
    except ModuleNotFoundError as error:
        if figures is not None:
            raise
        left_out = ", ".join(experiment.measured)
        warn(f'figure {left_out} is left out: its workers need {error.name}; install "headrace[torch]"')
        return None
    from headrace.host.validation.figure_17 import measure_figure_17

    return measure_figure_17
