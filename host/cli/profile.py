"""`headrace profile`: latency by batch size, measured."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from headrace.host.cli.console import Json, err, make_folder, out


def profile(
    model: Annotated[str, typer.Option(help="A torchvision network by name, or module:function.")] = (
        "mobilenet_v3_small"
    ),
    cell: Annotated[
        str | None, typer.Option(help="A recurrent cell in place of a network: lstm, encoder, decoder, leaf, inner.")
    ] = None,
    hidden: Annotated[int, typer.Option(min=1, help="Hidden size of --cell.")] = 1024,
    weights: Annotated[str | None, typer.Option(help="A state_dict file; fixed random weights without.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Workers; one per MIG device or core by default.")] = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Largest batch to try.")] = 128,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The profile to write.")] = None,
    as_json: Json = False,
) -> None:
    """Measure a network's latency by batch size and find its knee.

    Batch 1, 2, 4 ... with all workers busy, until throughput grows by less than 5 %. The knee is the last batch size
    before that step. With --cell all batch sizes are measured."""
    from headrace.host.workers.process import worker_devices
    from headrace.host.workers.profiling import measure_curve

    count = len(worker_devices(workers))
    if cell is None:
        measuring = measure_curve(model, weights, workers=count, max_batch=max_batch)
    else:
        from headrace.host.workers.cell_profiling import measure_cell

        model = f"{cell}-{hidden}"
        measuring = measure_cell(cell, hidden, weights=weights, workers=count, max_batch=max_batch)
    with err.status(f"profiling {model} on {count} workers"):
        measured = asyncio.run(measuring)
    knee = measured.knee()
    if as_json:
        print(measured.to_json(), end="")
    else:
        table = Table(title=f"{model} on {count} workers, {measured.machine['cpu']}", title_justify="left")
        for heading in ("batch", "latency ms", "requests/s", ""):
            table.add_column(heading, justify="right")
        for point in measured.points:
            mark = "knee" if point == knee else ""
            table.add_row(str(point.batch), f"{point.latency_s * 1e3:.2f}", f"{point.throughput_rps:.1f}", mark)
        out.print(table)
    path = output or Path(f"{model.replace(':', '.')}-{count}w.profile.json")
    make_folder(path.parent)
    path.write_text(measured.to_json())
    err.print(f"wrote {path}")
