"""`headrace demo`: photos, DPU, batcher and network, live."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.batching import POLICIES, UsageError
from headrace.batching.catalog import CELL_POLICIES
from headrace.bitstreams.xclbin import Mode
from headrace.host.cli.build import Target, TargetOption, cached_xclbin, read_container
from headrace.host.cli.console import Stages, out, progress, show_json, tell
from headrace.host.cli.options import Json, command, make_folder, readable, readable_folder
from headrace.sim.hardware.profiles import read_profile

PHOTO_POLICIES = tuple(name for name in POLICIES if name not in CELL_POLICIES)


@command
def demo(
    requests: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Requests of each run; 300, or 24 on hw_emu, if not given.")
    ] = None,
    rate_rps: Annotated[float | None, typer.Option(help="Arrival rate; 60 % of this machine's capacity if none.")] = (
        None
    ),
    model: Annotated[str, typer.Option(help="A torchvision network by name, or module:function.")] = (
        "mobilenet_v3_small"
    ),
    weights: Annotated[
        Path | None, typer.Option(callback=readable, help="A state_dict file; fixed random weights without.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(callback=readable_folder, help="A folder of JPEG files instead of bundled photos."),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(help="A number of workers (one per MIG device or core by default), or npu:N simulated NPUs."),
    ] = None,
    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            "--policy",
            autocompletion=lambda: list(PHOTO_POLICIES),
            help=f"Comma-separated, of {', '.join(PHOTO_POLICIES)}.",
        ),
    ] = "serial,graph,preba",
    preprocessors: Annotated[str, typer.Option(help="Comma-separated, of cpu and dpu.")] = "cpu,dpu",
    window_ms: Annotated[float, typer.Option(min=0, help="Window of the graph policy.")] = 5.0,
    max_batch: Annotated[int, typer.Option(min=1, max=1024, help="Batch limit of the graph policy.")] = 32,
    sla_ms: Annotated[float, typer.Option(min=0, help="Latency beyond which a request counts as late.")] = 500.0,
    target: TargetOption = Target.SW_EMU,
    xclbin: Annotated[
        Path | None, typer.Option(callback=readable, help="Use this container instead of building one.")
    ] = None,
    image_cus: Annotated[int, typer.Option(min=1, max=16)] = 4,
    profile_file: Annotated[
        Path | None, typer.Option("--profile", callback=readable, help="From `headrace profile`.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
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
    from headrace.host.workers.models import load_model

    if rate_rps is not None and rate_rps <= 0:
        raise UsageError(f"--rate-rps {rate_rps}: give a rate above 0, or nothing for 60 % of this machine's capacity")
    worker_count, npus = _workers(workers)
    policy_names = _names("--policies", policies, PHOTO_POLICIES)
    preprocessor_names = _names("--preprocessors", preprocessors, ("cpu", "dpu"))
    photos = folder_photos(images) if images else demo_photos()
    profile = read_profile(profile_file) if profile_file else None
    mode = Mode[target.name] if xclbin is None else read_container("--xclbin", xclbin).mode
    state = str(weights) if weights else None
    make_folder("--out", out_folder)
    with contextlib.redirect_stdout(sys.stderr):  # a user's network may print
        load_model(model, state)  # what cannot be loaded is refused here, before the minute that a container may take
        options = DemoOptions(
            photos=photos,
            xclbin=xclbin or cached_xclbin(target, image_cus),
            model=model,
            weights=state,
            requests=requests or (HW_EMU_REQUESTS if mode is Mode.HW_EMU else REQUESTS),
            rate_rps=rate_rps,
            workers=worker_count,
            npus=npus,
            policies=policy_names,
            preprocessors=preprocessor_names,
            window_s=window_ms / 1e3,
            max_batch=max_batch,
            sla_s=sla_ms / 1e3,
            seed=seed,
            profile=profile,
        )
        with progress() as shown:
            report = run(options, Stages(shown))
    paths = write_report(report, out_folder)
    if as_json:
        show_json(report_json(report))
    else:
        print_report(report, out)
    tell("wrote " + ", ".join(map(str, paths)))
    unequal = report.equality.on_dpu - report.equality.equal
    lost = sum(int(str(run.result["failed"])) + int(str(run.result["shed"])) for run in report.runs)
    if unequal or lost:
        tell(f"{unequal} DPU tensors differ from OpenCV's; {lost} requests failed or were shed")
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
