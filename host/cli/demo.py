"""`headrace demo`: photos, DPU, batcher and network, live."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from headrace.batching import POLICIES, UsageError
from headrace.bitstreams.xclbin import Mode, read_xclbin
from headrace.host.cli.build import Target, TargetOption, cached_xclbin
from headrace.host.cli.console import Json, Stages, err, make_folder, out, progress
from headrace.sim.hardware.profiles import read_profile


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
    container = xclbin or cached_xclbin(target, image_cus)
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
