"""The command `headrace demo`, which runs images, audio or sentences through the DPU, a batcher and a network."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headrace.batching import UsageError
from headrace.batching.registry import usable_policies
from headrace.host.cli.build import Target, TargetOption, cached_xclbin, read_container
from headrace.host.cli.console import Stages, out, progress, show_json, tell
from headrace.host.cli.model_options import AllowNonfinite, MaxBatch, ReadMemory, Whole, Workers
from headrace.host.cli.options import (
    HelpAll,
    ImageCus,
    Json,
    MelCus,
    NormCus,
    ProfileFiles,
    XrtOption,
    check_readable,
    command,
    make_folder,
    readable,
    readable_folder,
)
from headrace.host.cli.setting_options import (
    add_policy_settings,
    given,
    group_options,
    with_assignments,
)
from headrace.host.workers.devices import parsed_workers
from headrace.host.workers.networks.foreign.rules import MEMORY_MIB, FileRules
from headrace.sim.hardware.profiles import read_profile

DEMO_POLICIES = tuple(entry.name for entry in usable_policies() if entry.tasks != "cells")


@command
def demo(
    ctx: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(
            callback=readable_folder,
            help="With --audio, a folder of WAV and FLAC files [bundled and synthesised speech].",
        ),
    ] = None,
    audio: Annotated[bool, typer.Option("--audio", help="Run speech instead of images.")] = False,
    requests: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Number of requests of each run [the arrivals of 6 s]."),
    ] = None,
    rate_rps: Annotated[
        float | None,
        typer.Option(help="Arrival rate (requests/s) of all runs [chosen from measurements on this machine]."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Networks by comma: torchvision's by name, efficientnet_lite0, or module:function [mobilenet_v3_small "
            "compares the policies, and efficientnet_lite0, which has published weights, names what photos show]. Or "
            "one step model over sentences: transformer, seq2seq, lstm, or module:function. With --audio, networks "
            "over speech: conformer, citrinet, or module:function [conformer]."
        ),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(help="A state_dict file, once for each model [fixed random weights]."),
    ] = None,
    allow_nonfinite_weights: AllowNonfinite = False,
    read_memory_mib: ReadMemory = MEMORY_MIB,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(help="3xHEIGHTxWIDTH, once for each model [the shape that the network states]."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(callback=readable_folder, help="A folder of JPEG files [bundled photos]."),
    ] = None,
    workers: Workers = None,
    whole: Whole = False,
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies",
            "--policy",
            autocompletion=lambda: list(DEMO_POLICIES),
            help=f"Policies to compare, by comma: {', '.join(DEMO_POLICIES)}, or module:Class [serial,graph,preba; "
            "with --audio serial,preba].",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of all policies that have it, as in coverage=0.95. `headrace policies NAME` lists them.",
        ),
    ] = None,
    preprocessors: Annotated[
        str,
        typer.Option(
            help="Preprocessors, by comma: cpu, dpu, and beforehand, whose tensors are made before the run. With "
            "beforehand, those runs compare the policies, and the others have the last policy alone."
        ),
    ] = "beforehand,dpu",
    max_batch: MaxBatch = 32,
    slo_ms: Annotated[
        float | None,
        typer.Option(
            "--slo-ms",
            "--sla-ms",
            min=0,
            help="Target latency (ms). A request above it counts as late [4 batches of the knee].",
        ),
    ] = None,
    target: TargetOption = Target.SW_EMU,
    xclbin: Annotated[Path | None, typer.Option(callback=readable, help="Container to use [one is built].")] = None,
    xrt: XrtOption = None,
    image_cus: ImageCus = 4,
    mel_cus: MelCus = 1,
    norm_cus: NormCus = 1,
    profile_files: ProfileFiles = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the arrivals and of the choice of inputs.")] = 0,
    out_folder: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path("out/demo"),
    as_json: Json = False,
    help_all: HelpAll = False,
) -> None:
    """Run images, speech or sentences through the emulated DPU, a batcher and a network, and compare policies.

    The runs that compare policies use tensors made beforehand, at a load where batching pays off. A lighter run takes
    files through the emulated DPU and into a network that names what photos show.

    The same inputs then go through a simulated server of the size of PREBA's. It has an A100 in seven slices, and a DPU
    at its clock or 32 cores. Speech on these slices compares the policies again.

    The command prints tables of throughput, latency and the parts of the latency. It writes report.html, report.json,
    demo.png and a trace for https://ui.perfetto.dev to the folder --out."""
    from headrace.host.workers.inspection.parent import require_torch

    require_torch()
    from headrace.host.demo.inputs.audio import demo_audio, folder_audio
    from headrace.host.demo.inputs.images import demo_images, folder_images
    from headrace.host.demo.networks import load_audio_networks, load_image_networks, step_network
    from headrace.host.demo.options import DemoOptions
    from headrace.host.demo.report import audio as audio_report
    from headrace.host.demo.report import images as image_report
    from headrace.host.demo.report import sentences as sentence_report
    from headrace.host.demo.runs import audio as audio_demo
    from headrace.host.demo.runs import images as image_demo
    from headrace.host.demo.runs import sentences as sentence_demo
    from headrace.host.xrt import Api, api_for

    for option, paths in (("--weights", map(Path, filter(None, weights or ()))), ("--profile", profile_files or ())):
        for path in paths:
            check_readable(option, path)
    worker_count, npus = parsed_workers(workers)
    file_models = () if audio or model is not None else ("efficientnet_lite0",)
    if model is None:
        model = "conformer" if audio else "mobilenet_v3_small"
    if policies is None:
        policies = "serial,preba" if audio else "serial,graph,preba"
    names = _names(model)
    if folder is not None and not audio:
        raise UsageError(f"{folder}: give --audio too for a folder of audio files, or --images {folder} for images")
    if audio and images is not None:
        raise UsageError("--audio and --images: give one of them")
    image_files = [] if audio else folder_images(images) if images else demo_images()
    clips = [] if not audio else folder_audio(folder) if folder else demo_audio(tell)
    options = DemoOptions(
        images=image_files,
        models=names,
        file_models=file_models,
        weights=[name or None for name in weights or ()],
        rules=FileRules(allow_nonfinite=allow_nonfinite_weights, memory_mib=read_memory_mib),
        input_shapes=[shape if shape or len(names) == 1 else None for shape in input_shape or ()],
        profiles=[read_profile(path) for path in profile_files or ()],
        requests=requests,
        rate_rps=rate_rps,
        workers=worker_count,
        npus=npus,
        whole=whole,
        policies=_names(policies),
        settings=with_assignments(given(ctx), assignments),
        preprocessors=_names(preprocessors),
        max_batch=max_batch,
        slo_s=None if slo_ms is None else slo_ms / 1e3,
        seed=seed,
        api=None if xrt is None else Api(xrt.value),
    )
    if audio and options.api is not None and "dpu" not in options.preprocessors:
        raise UsageError("--xrt: no audio goes through a DPU; name dpu in --preprocessors, or leave out --xrt")
    if xclbin is not None:
        read_container("--xclbin", xclbin)
        api_for(xclbin, options.api)  # it may refuse the container before networks are loaded and the folder is made
    make_folder("--out", out_folder)
    if audio:
        with contextlib.redirect_stdout(sys.stderr):  # a user's network may print
            audio_networks = load_audio_networks(options)
            container = xclbin
            if container is None and "dpu" in options.preprocessors:
                container = cached_xclbin(target, mel_cus=mel_cus, norm_cus=norm_cus)
            with progress() as shown:
                audio_results = audio_demo.demo(options, clips, audio_networks, container, Stages(shown))
        paths = audio_report.write_report(audio_results, out_folder)
        if as_json:
            show_json(audio_report.as_json(audio_results))
        else:
            audio_report.print_report(audio_results, out)
        wrong = (
            f"{audio_results.inaccurate} DPU tensors are outside the error bound; "
            f"{audio_results.unserved} requests failed or were shed"
        )
        _end(paths, audio_results.inaccurate + audio_results.unserved, wrong)
        return
    with contextlib.redirect_stdout(sys.stderr):
        if (network := step_network(options)) is not None:
            with progress() as shown:
                sentence_results = sentence_demo.demo(options, network, Stages(shown))
            paths = sentence_report.write_report(sentence_results, out_folder)
    if network is not None:
        if as_json:
            show_json(sentence_report.as_json(sentence_results))
        else:
            sentence_report.print_report(sentence_results, out)
        _end(paths, sentence_results.unserved, f"{sentence_results.unserved} requests failed or were shed")
        return
    with contextlib.redirect_stdout(sys.stderr):
        networks = load_image_networks(options)
        container = xclbin or cached_xclbin(target, image_cus)  # after all checks, because a build takes a minute
        with progress() as shown:
            image_results = image_demo.demo(options, networks, container, Stages(shown))
    paths = image_report.write_report(image_results, out_folder)
    if as_json:
        show_json(image_report.as_json(image_results))
    else:
        image_report.print_report(image_results, out)
    wrong = (
        f"{image_results.unequal} DPU tensors differ from OpenCV's; "
        f"{image_results.unserved} requests failed or were shed"
    )
    _end(paths, image_results.unequal + image_results.unserved, wrong)


def _end(paths: Sequence[Path], faults: int, text: str) -> None:
    """Tell which files were written, the one to look at last. If there are faults, say so and raise typer.Exit."""
    tell("wrote " + ", ".join(map(str, paths[:-1])))
    tell(f"look at {paths[-1]}")
    if faults:
        tell(text)
        raise typer.Exit(1)


def _names(text: str) -> tuple[str, ...]:
    """Return the names of a text that separates them by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


add_policy_settings(demo)
group_options(
    demo,
    {
        "Inputs and load": ["audio", "images", "requests", "rate_rps", "seed"],
        "Networks": [
            "model",
            "weights",
            "allow_nonfinite_weights",
            "read_memory_mib",
            "input_shape",
            "workers",
            "whole",
            "max_batch",
            "profile_files",
        ],
        "Policies": ["policies", "assignments", "slo_ms"],
        "Preprocessing": ["preprocessors", "target", "xclbin", "xrt", "image_cus", "mel_cus", "norm_cus"],
    },
    first=(
        "folder",
        "audio",
        "images",
        "requests",
        "rate_rps",
        "seed",
        "model",
        "weights",
        "workers",
        "max_batch",
        "profile_files",
        "policies",
        "assignments",
        "slo_ms",
        "preprocessors",
        "target",
        "xclbin",
        "image_cus",
        "out_folder",
        "as_json",
        "help_all",
        "help",
    ),
)
