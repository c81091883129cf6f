"""`headrace profile`: latency by batch size, measured."""

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from headrace.batching import ProfilePoint
from headrace.host.cli.console import err, out, progress, tell
from headrace.host.cli.options import Json, check_writable, command, readable


@command
def profile(
    model: Annotated[str, typer.Option(help="A torchvision network by name, or module:function.")] = (
        "mobilenet_v3_small"
    ),
    cell: Annotated[
        str | None,
        typer.Option(
            help="A cell in place of a network: lstm, encoder, decoder, leaf, inner, transformer-encoder or -decoder."
        ),
    ] = None,
    hidden: Annotated[int, typer.Option(min=1, max=8192, help="Hidden size of --cell.")] = 1024,
    weights: Annotated[
        Path | None, typer.Option(callback=readable, help="A state_dict file; fixed random weights without.")
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option(help="3x299x299 or ids=1..128:int64, say; what the network tells if not given.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=64, help="Workers; one per MIG device or core by default.")
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, max=1024, help="Largest batch to try.")] = 128,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The profile to write.")] = None,
    as_json: Json = False,
) -> None:
    """Measure a network's latency by batch size and find its knee.

    Batch 1, 2, 4 ... with all workers busy, until throughput grows by less than 5 %. The knee is the last batch size
    before that step. With --cell all batch sizes are measured. All is measured three times, and points whose rounds
    disagree are told of."""
    from headrace.host.workers.cell_profiling import measure_cell
    from headrace.host.workers.devices import worker_devices
    from headrace.host.workers.profiling import measure_curve

    count = len(worker_devices(workers))
    name = model if cell is None else f"{cell}-{hidden}"
    path = output or Path(f"{name.replace(':', '.')}-{count}w.profile.json")
    check_writable("-o", path)
    file = str(weights) if weights else None
    with progress() as shown, contextlib.redirect_stdout(sys.stderr):  # a user's network may print
        what = f"profiling {name} on {count} workers"
        bar = shown.add_task(what, total=None)  # it ends at the knee

        def on_point(point: ProfilePoint) -> None:
            text = f"batch {point.batch}: {point.latency_s * 1e3:.2f} ms, {point.throughput_rps:.1f} requests/s"
            shown.update(bar, advance=1, description=f"{what}; {text}")
            if not err.is_terminal:
                tell(text)

        if cell is None:
            measuring = measure_curve(
                model, file, input_shape=input_shape, workers=count, max_batch=max_batch, on_point=on_point
            )
        else:
            measuring = measure_cell(cell, hidden, weights=file, workers=count, max_batch=max_batch, on_point=on_point)
        measured = asyncio.run(measuring)
    path.write_text(measured.to_json())
    knee = measured.knee()
    if as_json:
        print(measured.to_json(), end="")
    else:
        table = Table(title=f"{name} on {count} workers, {measured.machine['cpu']}", title_justify="left")
        for heading in ("batch", "latency ms", "requests/s", ""):
            table.add_column(heading, justify="right")
        for point in measured.points:
            mark = "knee" if point == knee else ""
            table.add_row(str(point.batch), f"{point.latency_s * 1e3:.2f}", f"{point.throughput_rps:.1f}", mark)
        out.print(table)
    tell(f"wrote {path}")
