"""The command `headrace reproduce`, which repeats the evaluation of a paper."""

import importlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from headrace.host.cli.console import Stages, out, progress, tell
from headrace.host.cli.options import Json, Ray, command, make_folder


class Paper(StrEnum):
    """The papers whose evaluation can be repeated. Each has a folder of its name in sim/experiments."""

    LAZYBATCHING = "lazybatching"
    SMDP = "smdp"
    BATCHMAKER = "batchmaker"
    PREBA = "preba"
    PARVAGPU = "parvagpu"


@command
def reproduce(
    paper: Annotated[Paper, typer.Argument(help="The paper whose evaluation is repeated.")],
    figure: Annotated[str, typer.Option(help="Figures of the paper by comma, or all.")] = "all",
    quick: Annotated[
        bool, typer.Option("--quick", help="Make fewer and shorter runs. This takes a few seconds.")
    ] = False,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for plots, CSV files and the table [out/reproduce/PAPER]."),
    ] = None,
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Repeat the evaluation of a paper. The table at the end compares the paper's numbers with the measured ones."""
    # Only the module of this paper is imported, because each one imports much.
    experiments = importlib.import_module(f"headrace.sim.experiments.{paper.value}.runs")
    figures = experiments.FIGURES if figure == "all" else tuple(name.strip() for name in figure.split(","))
    folder = out_folder or Path("out/reproduce") / paper.value
    make_folder("--out", folder)
    scale = experiments.QUICK if quick else experiments.FULL
    with progress() as shown:
        claims = experiments.reproduce(figures, folder, scale, Stages(shown), ray)
    if as_json:
        print((folder / "table.json").read_text(), end="")
    else:
        table = Table(title=f"{paper.value}{' (quick)' if quick else ''}", title_justify="left")
        for heading in ("figure", "what", "paper", "measured", "ratio", "note"):
            table.add_column(heading, justify="right" if heading in ("paper", "measured", "ratio") else "left")
        for claim in claims:
            table.add_row(claim.figure, claim.claim, claim.given, claim.shown, claim.compared, claim.note)
        out.print(table)
    tell(f"wrote {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
