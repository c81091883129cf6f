"""The `headrace` command: prose and progress on stderr, results on stdout; exit 0, 1 (ran and failed), 2 (usage)."""

import asyncio
import json
import math
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace.batching import POLICIES, HeadraceError, UsageError
from headrace.bitstreams.xclbin import Mode, Xclbin, read_xclbin
from headrace.host.cli.console import Json, Stages, err, make_folder, out, progress
from headrace.host.cli.simulate import reproduce, simulate
from headrace.host.cli.smdp import smdp
from headrace.sim.hardware.profiles import read_profile

app = typer.Typer(
    name="headrace",
    help="FPGA preprocessing units, slice-aware batching and simulation for inference servers.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
preprocess_app = typer.Typer(help="Run files through the DPU.", no_args_is_help=True)
app.add_typer(preprocess_app, name="preprocess")
app.command()(simulate)
app.command()(reproduce)
app.command()(smdp)


class Target(StrEnum):
    SW_EMU = "sw_emu"
    HW_EMU = "hw_emu"


class StageName(StrEnum):
    DECODE = "decode"
    RESIZE = "resize"
    CROP = "crop"
    NORMALIZE = "normalize"


class FallbackName(StrEnum):
    CPU = "cpu"
    RAISE = "raise"


class TensorType(StrEnum):
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"


TARGET_HELP = "sw_emu: the C++ compiled by g++ behind the XRT API; hw_emu: the RTL, Verilated, clock by clock."
TargetOption = Annotated[Target, typer.Option(help=TARGET_HELP)]


def _cached_xclbin(target: Target, image_cus: int) -> Path:
    """The container for these options, built if the sources have changed since it last was."""
    path = _cache_folder() / f"{target.value}-{image_cus}cu.xclbin"
    _build(target, path, image_cus)
    return path


def _build(target: Target, path: Path, image_cus: int) -> Xclbin:
    from headrace.bitstreams.build import build_hw_emu, build_sw_emu

    tool, build = ("g++", build_sw_emu) if target is Target.SW_EMU else ("Verilator and g++", build_hw_emu)
    with err.status(f"building {target.value} with {image_cus} image CUs ({tool}; about a minute the first time)"):
        return build(path, image_cus=image_cus)


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"


@app.command()
def build(
    target: TargetOption = Target.SW_EMU,
    image_cus: Annotated[int, typer.Option(min=1, max=16, help="Number of image compute units.")] = 4,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The .xclbin to write.")] = None,
    info: Annotated[Path | None, typer.Option(help="List what is in this .xclbin instead of building one.")] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Resources and logic depth of the RTL units by Yosys, beside the card's.")
    ] = False,
    cycles_per_image: Annotated[
        int | None, typer.Option(min=1, help="--report: clocks of an image; those of a 500x375 photo without.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Build an .xclbin container, list what is in one, or report what the RTL takes of a card."""
    from headrace.bitstreams.build import describe

    if (info is not None) + (output is not None) + report != 1:
        raise UsageError(
            "give -o FILE to build a container, --info FILE to list one, or --report for the resources of the RTL"
        )
    if report:
        _report(cycles_per_image, as_json)
        return
    if info is not None:
        description = describe(read_xclbin(info))
    else:
        assert output is not None
        description = describe(_build(target, output, image_cus))
        err.print(f"wrote {output} ({output.stat().st_size / 1024:.0f} KiB)")
    if as_json:
        print(json.dumps(description, indent=2))
    elif info is not None:
        _print_container(description)


def _report(cycles_per_image: int | None, as_json: bool) -> None:
    from headrace.bitstreams.resources.report import CYCLES_PER_IMAGE
    from headrace.host.cli.resource_report import print_report, run_report

    resources = run_report(_cache_folder(), cycles_per_image or CYCLES_PER_IMAGE)
    if as_json:
        print(json.dumps(resources, indent=2))
    else:
        print_report(resources)
    if any(row["error"] for row in resources["units"]):
        raise typer.Exit(1)


def _print_container(description: dict[str, Any]) -> None:
    out.print(f"mode {description['mode']}, platform {description['platform']}, uuid {description['uuid']}")
    for kernel in description["kernels"]:
        table = Table(title=f"kernel {kernel['name']} ({kernel['control_protocol']})", title_justify="left")
        for heading in ("#", "argument", "type", "offset", "bytes", "port"):
            table.add_column(heading)
        for arg in kernel["args"]:
            row = (arg["index"], arg["name"], arg["type"], f"0x{arg['offset']:03x}", arg["size"], arg["port"])
            table.add_row(*map(str, row))
        out.print(table)
        table = Table(title="compute units", title_justify="left")
        for heading in ("instance", "base address", "memory banks by argument"):
            table.add_column(heading)
        for instance in kernel["instances"]:
            banks = ", ".join(f"{name} {bank}" for name, bank in instance["banks"].items())
            table.add_row(instance["name"], f"0x{instance['base_address']:x}", banks)
        out.print(table)


@preprocess_app.command("image")
def preprocess_image(
    files: Annotated[list[Path], typer.Argument(help="JPEG files.")],
    out_folder: Annotated[Path, typer.Option("--out", help="Folder for one .npy a file.")],
    target: TargetOption = Target.SW_EMU,
    xclbin: Annotated[Path | None, typer.Option(help="Use this container instead of building one.")] = None,
    image_cus: Annotated[int, typer.Option(min=1, max=16)] = 4,
    stage: Annotated[StageName, typer.Option(help="The last stage to run.")] = StageName.NORMALIZE,
    resize_short: Annotated[int, typer.Option(help="Shorter side after resize, pixels.")] = 256,
    crop: Annotated[tuple[int, int], typer.Option(help="Width and height of the crop, pixels.")] = (224, 224),
    dtype: Annotated[TensorType, typer.Option(help="Type of the normalized tensor.")] = TensorType.FLOAT32,
    fallback: Annotated[FallbackName, typer.Option(help="What to do with inputs that the DPU cannot take.")] = (
        FallbackName.CPU
    ),
    wave: Annotated[Path | None, typer.Option(help="hw_emu: write a VCD waveform of the one file's request.")] = None,
    as_json: Json = False,
) -> None:
    """Write each file's image as .npy: HWC uint8 RGB up to the crop, CHW after normalize.

    On hw_emu it tells the clocks that each took. A file that fails is reported with its reason and the others still
    succeed (exit status 1)."""
    from headrace.host.dpu.driver import Fallback
    from headrace.host.dpu.files import preprocess_files
    from headrace.host.dpu.image import ImageSpec, Stage

    spec = ImageSpec(resize_short=resize_short, crop_width=crop[0], crop_height=crop[1], dtype=dtype.value)
    if wave is not None:
        _check_wave(wave, files, target, xclbin)
    make_folder(out_folder)
    container = xclbin or _cached_xclbin(target, image_cus)
    with progress() as shown:
        bar = shown.add_task("files", total=len(files))
        outcomes = asyncio.run(
            preprocess_files(
                files, out_folder, container, spec, Stage[stage.name], Fallback(fallback.value),
                on_done=lambda: shown.advance(bar), wave=wave,
            )
        )  # fmt: skip
    if as_json:
        print(json.dumps({"stage": stage.value, "files": outcomes}, indent=2))
    else:
        for outcome in outcomes:
            note = "" if outcome["dpu_status"] in (None, "OK") else f" (DPU: {outcome['dpu_status']})"
            if outcome["error"]:
                out.print(f"{outcome['file']}: FAILED: {outcome['error']}", soft_wrap=True, highlight=False)
            else:
                shape = "x".join(map(str, outcome["shape"]))
                text = f"{outcome['file']}: {outcome['output']} {shape} {outcome['dtype']} by {outcome['unit']}{note}"
                if "cycles" in outcome:
                    text += f", {outcome['cycles']} cycles, {outcome['cycles_per_pixel']:.3f} a pixel"
                out.print(text, soft_wrap=True, highlight=False)
    if any(outcome["error"] for outcome in outcomes):
        raise typer.Exit(1)


def _check_wave(wave: Path, files: list[Path], target: Target, xclbin: Path | None) -> None:
    mode = read_xclbin(xclbin).mode if xclbin is not None else Mode[target.name]
    if mode is not Mode.HW_EMU:
        raise UsageError(f"--wave: {mode.name.lower()} has no signals to show; use --target hw_emu")
    if len(files) != 1:
        raise UsageError(f"--wave: a waveform is of one request; give one file, not {len(files)}")
    try:
        wave.open("wb").close()
    except OSError as error:
        raise UsageError(f"--wave {wave}: {error.strerror}; name a file that can be written") from error


@app.command()
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


@app.command()
def demo(
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests of each run; 300, or 24 on hw_emu, if not given.")
    ] = None,
    rate_rps: Annotated[float | None, typer.Option(help="Arrival rate; 60 % of this machine's capacity if none.")] = (
        None
    ),
    model: Annotated[str, typer.Option(help="A torchvision network by name, or module:function.")] = (
        "mobilenet_v3_small"
    ),
    weights: Annotated[str | None, typer.Option(help="A state_dict file; fixed random weights without.")] = None,
    images: Annotated[Path | None, typer.Option(help="A folder of JPEG files instead of the bundled photos.")] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="A number of workers (one per MIG device or core by default), or npu:N simulated NPUs."),
    ] = None,
    policies: Annotated[str, typer.Option("--policies", "--policy", help="Comma-separated.")] = "serial,graph,preba",
    preprocessors: Annotated[str, typer.Option(help="Comma-separated, of cpu and dpu.")] = "cpu,dpu",
    window_ms: Annotated[float, typer.Option(min=0, help="Window of the graph policy.")] = 5.0,
    max_batch: Annotated[int, typer.Option(min=1, help="Batch limit of the graph policy.")] = 32,
    sla_ms: Annotated[float, typer.Option(min=0, help="Latency beyond which a request counts as late.")] = 500.0,
    target: TargetOption = Target.SW_EMU,
    xclbin: Annotated[Path | None, typer.Option(help="Use this container instead of building one.")] = None,
    image_cus: Annotated[int, typer.Option(min=1, max=16)] = 4,
    profile_file: Annotated[Path | None, typer.Option("--profile", help="From `headrace profile`.")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path("out/demo"),
    as_json: Json = False,
) -> None:
    """Real photos through the emulated DPU, a batcher and a real network, with CPU and DPU and the policies compared.

    Prints a table of throughput and latency and where the time went, and writes report.json, demo.png and a trace
    for https://ui.perfetto.dev into --out."""
    from headrace.host.demo.photos import demo_photos, folder_photos
    from headrace.host.demo.report import as_json as report_json
    from headrace.host.demo.report import print_report, write_report
    from headrace.host.demo.stages import HW_EMU_REQUESTS, REQUESTS, DemoOptions
    from headrace.host.demo.stages import demo as run

    if rate_rps is not None and not 0 < rate_rps < math.inf:
        raise UsageError(f"--rate-rps {rate_rps}: give a rate above 0, or nothing for 60 % of this machine's capacity")
    worker_count, npus = _workers(workers)
    photos = folder_photos(images) if images else demo_photos()
    policy_names = _names("--policies", policies, POLICIES)
    preprocessor_names = _names("--preprocessors", preprocessors, ("cpu", "dpu"))
    container = xclbin or _cached_xclbin(target, image_cus)
    if requests is None:
        requests = HW_EMU_REQUESTS if read_xclbin(container).mode is Mode.HW_EMU else REQUESTS
    options = DemoOptions(
        photos=photos,
        xclbin=container,
        model=model,
        weights=weights,
        requests=requests,
        rate_rps=rate_rps,
        workers=worker_count,
        npus=npus,
        policies=policy_names,
        preprocessors=preprocessor_names,
        window_s=window_ms / 1e3,
        max_batch=max_batch,
        sla_s=sla_ms / 1e3,
        seed=seed,
        profile=read_profile(profile_file) if profile_file else None,
    )
    make_folder(out_folder)
    with progress() as shown:
        report = run(options, Stages(shown))
    paths = write_report(report, out_folder)
    if as_json:
        print(json.dumps(report_json(report), indent=2))
    else:
        print_report(report, out)
    err.print("wrote " + ", ".join(map(str, paths)), soft_wrap=True)
    unequal = report.equality.on_dpu - report.equality.equal
    lost = sum(int(str(run.result["failed"])) + int(str(run.result["shed"])) for run in report.runs)
    if unequal or lost:
        err.print(f"{unequal} DPU tensors differ from OpenCV's; {lost} requests failed or were shed")
        raise typer.Exit(1)


def _workers(text: str | None) -> tuple[int | None, int]:
    """Worker processes asked for (None: as many as there are devices), and simulated NPUs."""
    kind, colon, count = (text or "").partition(":")
    number = count if colon else kind
    if text is None:
        return None, 0
    if (colon and kind != "npu") or not number.isdecimal() or not 1 <= int(number) <= 64:
        raise UsageError(f"--workers {text!r}: give a number of 1 to 64, or npu:N for N simulated NPUs")
    return (None, int(number)) if colon else (int(number), 0)


def _names(option: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(f"{option} {text!r}: choose from {', '.join(known)}, separated by commas")
    return names


def main() -> None:
    """Entry point: turns Headrace's errors into a message and an exit status."""
    try:
        app(standalone_mode=True)
    except UsageError as error:
        err.print(f"headrace: {error}", soft_wrap=True, highlight=False, markup=False)
        sys.exit(2)
    except HeadraceError as error:
        err.print(f"headrace: {error}", soft_wrap=True, highlight=False, markup=False)
        sys.exit(1)
    except KeyboardInterrupt:  # while no command runs
        err.print("headrace: interrupted")
        sys.exit(130)
    except SystemExit as end:
        if end.code == 130:  # typer's answer to Ctrl-C; it says nothing
            err.print("headrace: interrupted")
        raise
