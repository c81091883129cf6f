"""`headrace profile`: latency by batch size, measured."""

import asyncio
import contextlib
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace.batching import NodeLatencies, Profile, ProfilePoint, UsageError
from headrace.host.cli.console import err, out, progress, tell
from headrace.host.cli.options import Json, check_writable, command, readable


@command
def profile(
    model: Annotated[
        str, typer.Option(help="A torchvision network by name, or module:function; with --nodes a step model too.")
    ] = ("mobilenet_v3_small"),
    cell: Annotated[
        str | None,
        typer.Option(
            help="A cell in place of a network: lstm, encoder, decoder, leaf, inner, transformer-encoder or -decoder."
        ),
    ] = None,
    hidden: Annotated[
        int, typer.Option(min=1, max=8192, help="Hidden size of --cell, and of transformer, seq2seq and lstm.")
    ] = 1024,
    weights: Annotated[
        Path | None, typer.Option(callback=readable, help="A state_dict file; fixed random weights without.")
    ] = None,
    input_shape: Annotated[
        str | None, typer.Option(help="3x299x299 or ids=1..128:int64, say; what the network tells if not given.")
    ] = None,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="Measure every node of the network too, for policies that schedule nodes.")
    ] = False,
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
    disagree are told of. With --nodes the network is cut into nodes, and what a batch changes in a request's results is
    told."""
    if nodes and cell is not None:
        raise UsageError("--nodes is for networks, which --cell is not: leave one of them out")
    from headrace.host.workers.cell_profiling import measure_cell
    from headrace.host.workers.devices import worker_devices
    from headrace.host.workers.networks import Network
    from headrace.host.workers.node_profiling import measure_nodes, measure_steps
    from headrace.host.workers.profiling import measure_curve
    from headrace.host.workers.split import node_model
    from headrace.host.workers.step_models import is_step_model, step_nodes

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

        measuring: Coroutine[Any, Any, Profile]
        if nodes and is_step_model(model):
            steps, graph = step_nodes(Network(model, model, hidden, weights=file), max_batch)
            measuring = measure_steps(steps, graph, workers=count, on_point=on_point)
        elif nodes:
            split, graph = node_model(model, max_batch, file, input_shape)
            measuring = measure_nodes(split, graph, workers=count, on_point=on_point)
        elif cell is None:
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
        if measured.nodes is not None:
            out.print(_nodes_table(measured.nodes))
            if found := measured.machine.get("batch_difference"):
                out.print(_difference(found))
    tell(f"wrote {path}")


def _nodes_table(nodes: NodeLatencies) -> Table:
    table = Table(title="latency of each node, ms, by batch", title_justify="left")
    for heading in ("node", "length", *map(str, nodes.batches)):
        table.add_column(heading, justify="left" if heading == "node" else "right")
    for name, rows in zip(nodes.names, nodes.latency_s, strict=True):
        for length, latencies in zip(nodes.lengths, rows, strict=True):
            table.add_row(name, f"{length:g}", *(f"{latency * 1e3:.3f}" for latency in latencies))
    return table


def _difference(found: Mapping[str, Any]) -> str:
    if found["first_node"] is None:
        return "A request's results are the same bits alone and in a batch."
    return (
        f"A request's results in a batch differ from those alone by at most {found['largest']:.1e} of the largest, "
        f"from {found['first_node']} on."
    )
