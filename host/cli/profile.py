"""The command `headrace profile`, which measures a network's latency by batch size."""

import asyncio
import contextlib
import math
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import asdict
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace.batching import NodeLatencies, Profile, ProfilePoint, UsageError
from headrace.bitstreams.whole_file import replacing
from headrace.host.cli.console import err, out, progress, tell
from headrace.host.cli.model_options import AllowNonfinite, ReadMemory
from headrace.host.cli.options import (
    HelpAll,
    Json,
    check_writable,
    command,
    on_command_line,
    readable,
)
from headrace.host.cli.setting_options import group_options
from headrace.host.workers.networks.foreign.rules import MEMORY_MIB, FileRules
from headrace.sim.hardware.cpu import LIBRARY_COSTS

CPU_FILE = "cpu-preprocessing.json"
# typer reads the choices from it
Library = StrEnum("Library", [(costs.label.upper(), costs.label) for costs in LIBRARY_COSTS])


@command
def profile(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Option(
            help="A torchvision network by name, efficientnet_lite0 (with published weights), or module:function. With "
            "--nodes also a step model."
        ),
    ] = ("mobilenet_v3_small"),
    cell: Annotated[
        str | None,
        typer.Option(
            help="A cell in place of a network: lstm, encoder, decoder, leaf, inner, transformer-encoder or "
            "transformer-decoder."
        ),
    ] = None,
    hidden: Annotated[
        int,
        typer.Option(
            min=1, max=8192, help="Hidden size of --cell and of the step models transformer, seq2seq and lstm."
        ),
    ] = 1024,
    weights: Annotated[
        Path | None, typer.Option(callback=readable, help="A state_dict file [fixed random weights].")
    ] = None,
    allow_nonfinite_weights: AllowNonfinite = False,
    read_memory_mib: ReadMemory = MEMORY_MIB,
    input_shape: Annotated[
        str | None,
        typer.Option(
            help="Shape of the input, as in 3x299x299, ids=1..128:int64 or patches=1..4096+x1176 [the shape that the "
            "network states]."
        ),
    ] = None,
    nodes: Annotated[
        bool,
        typer.Option("--nodes", help="Also measure each node of the network, for policies that schedule nodes."),
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, max=64, help="Number of workers [one for each MIG device or core].")
    ] = None,
    max_batch: Annotated[int, typer.Option(min=1, max=1024, help="Largest batch to measure.")] = 128,
    max_batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Largest sum of the input lengths of a batch to measure, for a network that joins its inputs, such as "
            "patches of images [no limit].",
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            help="Input lengths to measure, by comma, as in 2.5,5,15. They are seconds for audio, and elements of the "
            "input otherwise [some lengths up to the longest]."
        ),
    ] = None,
    limit_s: Annotated[
        float,
        typer.Option(
            min=1, max=86400, help="Time limit (s) for measuring several lengths. Batch 1 is measured at every length."
        ),
    ] = 300.0,
    cpu_preprocessing: Annotated[
        Library | None,
        typer.Option(
            help="Measure preprocessing on this CPU by one library, in place of a network. librosa and "
            "librosa-kaiser_best prepare images by OpenCV; opencv, pillow and torchvision prepare audio as ours does."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The profile to write.")] = None,
    as_json: Json = False,
    help_all: HelpAll = False,
) -> None:
    """Measure a network's latency by batch size, and find the knee of its throughput.

    Batches of 1, 2, 4 ... run with all workers busy, until throughput grows by less than 5 %. The knee is the last
    batch size before that step. If inputs vary in length, several lengths are measured. With --cell, all batch sizes
    are measured. Everything is measured three times; the command warns if the rounds of a point disagree.

    With --nodes the network is cut into nodes. The output then also tells whether a request's results differ alone and
    in a batch.

    With --cpu-preprocessing the command measures the processor time of images (by pixels and bytes) and audio (by
    seconds, resampled from 22,050 Hz), on one core and with all cores busy. `headrace simulate --preprocess cpu:32
    --cpu-costs FILE` uses these costs."""
    if cpu_preprocessing is not None:
        for param in ctx.command.params:
            name = str(param.name)
            if on_command_line(ctx, name) and name not in ("cpu_preprocessing", "output", "as_json"):
                raise UsageError(
                    f"--cpu-preprocessing measures no network: leave out {param.opts[0]}, or leave out "
                    "--cpu-preprocessing"
                )
        _profile_cpu(cpu_preprocessing.value, output or Path(CPU_FILE), as_json)
        return
    if lengths is not None and (nodes or cell is not None):
        raise UsageError("--lengths is for networks as a whole: leave out --nodes and --cell, or leave out --lengths")
    wanted = None if lengths is None else _numbers(lengths)
    if nodes and cell is not None:
        raise UsageError("--nodes is for networks, and --cell gives a cell: leave one of them out")
    from headrace.host.workers.devices import worker_devices
    from headrace.host.workers.inspection.parent import is_step_model, node_model, step_nodes
    from headrace.host.workers.networks.sequence_networks import Network
    from headrace.host.workers.profiling.batches import measure_curve
    from headrace.host.workers.profiling.cells import measure_cell
    from headrace.host.workers.profiling.nodes import measure_nodes, measure_steps

    count = len(worker_devices(workers))
    name = model if cell is None else f"{cell}-{hidden}"
    path = output or Path(f"{name.replace(':', '.')}-{count}w.profile.json")
    check_writable("-o", path)
    file = str(weights) if weights else None
    rules = FileRules(allow_nonfinite=allow_nonfinite_weights, memory_mib=read_memory_mib)
    with progress() as shown, contextlib.redirect_stdout(sys.stderr):  # a user's network may print
        what = f"profiling {name} on {count} workers"
        bar = shown.add_task(what, total=None)  # the number of points is unknown: the measurement ends at the knee

        def on_point(point: ProfilePoint) -> None:
            at = f"length {point.length:g}, " if point.length > 1 else ""
            text = f"{at}batch {point.batch}: {point.latency_s * 1e3:.2f} ms, {point.throughput_rps:.1f} requests/s"
            shown.update(bar, advance=1, description=f"{what}; {text}")
            if not err.is_terminal:
                tell(text)

        measuring: Coroutine[Any, Any, Profile]
        if nodes and is_step_model(model):
            steps, graph = step_nodes(Network(model, model, hidden, weights=file, rules=rules), max_batch)
            measuring = measure_steps(steps, graph, workers=count, on_point=on_point)
        elif nodes:
            split, graph = node_model(model, max_batch, file, input_shape, rules=rules)
            measuring = measure_nodes(split, graph, workers=count, on_point=on_point)
        elif cell is None:
            measuring = measure_curve(
                model,
                file,
                input_shape=input_shape,
                workers=count,
                max_batch=max_batch,
                lengths=wanted,
                limit_s=limit_s,
                on_point=on_point,
                rules=rules,
                max_batch_tokens=max_batch_tokens,
            )
        else:
            measuring = measure_cell(
                cell, hidden, weights=file, workers=count, max_batch=max_batch, on_point=on_point, rules=rules
            )
        measured = asyncio.run(measuring)
    with replacing(path) as partial:
        partial.write_text(measured.to_json())
    if as_json:
        print(measured.to_json(), end="")
    else:
        table = Table(title=f"{name} on {count} workers, {measured.machine['cpu']}", title_justify="left")
        headings = ("batch", "latency ms", "requests/s", "")
        for heading in headings if len(measured.lengths) == 1 else (_unit(measured), *headings):
            table.add_column(heading, justify="right")
        knees = [measured.knee(length) for length in measured.lengths]
        for point in measured.points:
            row = [f"{point.length * (measured.step_s or 1.0):g}"] if len(knees) > 1 else []
            row += [str(point.batch), f"{point.latency_s * 1e3:.2f}", f"{point.throughput_rps:.1f}"]
            table.add_row(*row, "knee" if point in knees else "")
        out.print(table)
        if measured.nodes is not None:
            out.print(_nodes_table(measured.nodes))
            if found := measured.machine.get("batch_difference"):
                out.print(_difference(found))
    tell(f"wrote {path}")


def _profile_cpu(library: str, path: Path, as_json: bool) -> None:
    """Measure preprocessing by a library on this CPU, and write and print its costs. Raises UsageError."""
    from headrace.host.demo.inputs.audio import demo_audio
    from headrace.host.demo.inputs.images import demo_images
    from headrace.host.dpu.cpu_profiling import measure_cpu
    from headrace.host.workers.profiling.batches import machine

    check_writable("-o", path)
    where = machine()
    source = f"headrace profile --cpu-preprocessing {library}, {where['cpu']}, {where['cores']} cores, {date.today()}"
    images, clips = demo_images(), demo_audio(tell)
    with progress() as shown:
        bar = shown.add_task("profiling preprocessing on the CPU", total=None)

        def on_part(part: str) -> None:
            shown.update(bar, description=f"profiling preprocessing on the CPU: {part}")

        jpegs, recordings = [image.jpeg for image in images], [clip.data for clip in clips]
        measured = measure_cpu(jpegs, recordings, source, on_part, library)
    fits = {"image": measured.image, "audio": measured.audio}
    text = measured.costs.to_json(
        machine=where, rounds=measured.rounds, fits={kind: asdict(fit) for kind, fit in fits.items()}
    )
    with replacing(path) as partial:
        partial.write_text(text)
    if as_json:
        print(text, end="")
    else:
        table = Table(
            title=f"preprocessing by {library} on {where['cpu']}, {where['cores']} cores", title_justify="left"
        )
        for heading in ("", "files", "one core, ms", "all cores, ms", "ratio", "rounds differ by", "costs err by"):
            table.add_column(heading, justify="right" if heading else "left")
        contention = {"image": measured.costs.image.contention, "audio": measured.costs.audio.contention}
        for kind, fit in fits.items():
            table.add_row(
                kind,
                str(fit.files),
                f"{fit.alone_s * 1e3:.3f}",
                f"{fit.all_cores_s * 1e3:.3f}",
                f"{contention[kind]:.3f}",
                f"{fit.spread:.1%}",
                f"{fit.error:.1%}",
            )
        out.print(table)
        of_image, of_audio = measured.costs.image, measured.costs.audio
        out.print(
            f"An image costs {of_image.image_s * 1e6:.0f} us, {of_image.pixel_s * 1e9:.2f} ns for each pixel, and "
            f"{of_image.byte_s * 1e9:.2f} ns for each byte of its file. "
            f"An audio file costs {of_audio.clip_s * 1e6:.0f} us, and {of_audio.second_s * 1e6:.0f} us for each "
            "second.\n"
            "All figures are medians of processor time over the files. Those in the table are for whole files."
        )
    tell(f"wrote {path}")


def _numbers(text: str) -> list[float]:
    """Return the lengths of --lengths. Raises UsageError."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [math.nan]
    if not all(0 < number < math.inf for number in found):
        raise UsageError(f"--lengths {text!r}: give numbers above 0, separated by commas")
    return found


def _unit(measured: Profile) -> str:
    return "length" if measured.step_s is None else "seconds"


def _nodes_table(nodes: NodeLatencies) -> Table:
    table = Table(title="latency of each node, ms, by batch", title_justify="left")
    for heading in ("node", "length", *map(str, nodes.batches)):
        table.add_column(heading, justify="left" if heading == "node" else "right")
    for name, rows in zip(nodes.names, nodes.latency_s, strict=True):
        for length, latencies in zip(nodes.lengths, rows, strict=True):
            table.add_row(name, f"{length:g}", *(f"{latency * 1e3:.3f}" for latency in latencies))
    return table


def _difference(found: Mapping[str, Any]) -> str:
    """Say whether a request's results differ alone and in a batch."""
    if found["first_node"] is None:
        return "A request's results are the same bits alone and in a batch."
    return (
        f"A request's results in a batch differ from those alone by at most {found['largest']:.1e} of the largest "
        f"value, from node {found['first_node']} on."
    )


group_options(
    profile,
    {
        "Network": [
            "model",
            "cell",
            "hidden",
            "weights",
            "input_shape",
            "allow_nonfinite_weights",
            "read_memory_mib",
        ],
        "Measurement": ["nodes", "workers", "max_batch", "max_batch_tokens", "lengths", "limit_s", "cpu_preprocessing"],
    },
    first=(
        "model",
        "cell",
        "hidden",
        "weights",
        "input_shape",
        "nodes",
        "workers",
        "max_batch",
        "lengths",
        "cpu_preprocessing",
        "output",
        "as_json",
        "help_all",
        "help",
    ),
)
