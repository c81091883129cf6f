"""The command `headrace reproduce`, which repeats the evaluation of a paper or a study of this project."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from headrace.host.cli.console import Stages, out, progress, tell
from headrace.host.cli.options import Json, Ray, command, make_folder
from headrace.sim.experiments.experiment import NAMES
from headrace.sim.experiments.report import counted
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
    with progress() as shown:
        scale = "quick" if quick else "full"
        report = run(experiment.value, out=folder, scale=scale, figures=figures, ray=ray, progress=Stages(shown))
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
