"""The command `headrace compare`, which says where a front end differs from transformers."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from headrace.batching import UsageError
from headrace.host.cli.console import Stages, out, progress, show, show_json, tell
from headrace.host.cli.options import command, make_folder, writable

if TYPE_CHECKING:
    from headrace.host.compare.comparison import Comparison

STDOUT = Path("-")


def _json_file(param: typer.CallbackParam, path: Path | None) -> Path | None:
    return path if path == STDOUT else writable(param, path)


@command
def compare(
    reference: Annotated[
        str | None,
        typer.Option(
            help="The reference: a name of `headrace preprocess processors`, or the folder of a model.",
            metavar="transformers:NAME|FOLDER",
        ),
    ] = None,
    candidate: Annotated[
        str | None,
        typer.Option(
            help="The front end to compare: headrace, headrace:sw_emu, headrace:hw_emu, pillow, torchvision, opencv, "
            "torch-float, dali-like, nvimagecodec, a function of the bytes of a file (module:function), a URL, or a "
            "model of a server (http://HOST:PORT/v2/models/NAME/infer or grpc://HOST:PORT/NAME).",
            metavar="CANDIDATE",
        ),
    ] = None,
    inputs: Annotated[
        str,
        typer.Option(help="Folder with images or sounds, or curated: 60 images and 20 sounds that Headrace makes."),
    ] = "curated",
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest difference of a value that counts as equal. 0 compares types, too.")
    ] = 0.0,
    model: Annotated[
        str | None,
        typer.Option(
            help="Network of PyTorch whose logits are compared, too: module:name of a module, or of what makes one.",
            metavar="MODULE:NAME",
        ),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Longest time (s) that a function or a URL takes for a file.")
    ] = 60.0,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", callback=_json_file, help="Write the results to this file as JSON. - is stdout."),
    ] = None,
    html_file: Annotated[
        Path | None,
        typer.Option("--html", callback=writable, help="Write the report, with heat maps, to this file as HTML."),
    ] = None,
    write_inputs: Annotated[
        Path | None,
        typer.Option(help="Write the curated inputs to the folders images and sounds of this folder, and end."),
    ] = None,
) -> None:
    """Compare the tensors of a front end with those of transformers, and say at which stage they first differ.

    The stages of images are decode, convert, resize, crop, normalize and layout. Those of audio are decode, convert,
    resample and features. A built-in candidate runs each stage with the reference's input. Of a function, a URL or the
    emulated DPU, the tensors alone are known: the stage is the one of which another way to compute it explains them.

    The exit status is 0 if all tensors are equal within --tolerance, and 1 if one differs or failed."""
    if write_inputs is not None:
        _write(write_inputs)
        return
    if reference is None or candidate is None:
        missing = "--reference" if reference is None else "--candidate"
        raise UsageError(f"{missing} is missing; give --reference and --candidate, or --write-inputs FOLDER")
    from headrace.host.compare.comparison import compare as compared

    with progress() as shown:
        stages = Stages(shown)
        found = compared(
            reference,
            candidate,
            inputs,
            tolerance=tolerance,
            timeout_s=timeout_s,
            model=model,
            on_start=lambda total: stages.stage("comparing", total),
            on_done=stages.step,
        )
    if html_file is not None:
        found.write_html(html_file)
    if json_file is not None and json_file != STDOUT:
        json_file.write_text(json.dumps(found.as_json, indent=2) + "\n", "utf-8")
    show_json(found.as_json) if json_file == STDOUT else _show(found)
    if html_file is not None:
        tell(f"the report is in {html_file}")
    if not found.equal:
        raise typer.Exit(1)


def _write(folder: Path) -> None:
    from headrace.host.compare import curated

    make_folder("--write-inputs", folder)
    paths = curated.write(folder)
    images = sum(path.parent.name == "images" for path in paths)
    show(f"{folder}: {images} images in images, {len(paths) - images} sounds in sounds")


def _show(found: "Comparison") -> None:
    from headrace.host.compare.comparison import DIFFERS, EQUAL, FAILED, REFUSED
    from headrace.host.compare.report import TITLES, verdict

    show(verdict(found))
    counts = ", ".join(f"{found.count(each)} {each}" for each in (EQUAL, DIFFERS, FAILED, REFUSED))
    show(f"{len(found.files)} inputs: {counts}")
    if found.note:
        tell(found.note)
    if found.first:
        table = Table("first difference", "inputs", "for example", "why", box=None, pad_edge=False)
        for name, count in found.first.items():
            example = next(each for each in found.files if each.first == name)
            table.add_row(TITLES[name], str(count), example.file, example.why or "")
        out.print(table)
    if found.stages:
        table = Table("stage by itself", "inputs that differ", "largest", "share", box=None, pad_edge=False)
        for name, stage in found.stages.items():
            largest = f"{stage['max']:.3g} {stage['unit']}" if stage["differ"] else ""
            share = f"{stage['share']:.2%}" if stage["differ"] else ""
            table.add_row(TITLES[name], str(stage["differ"]), largest, share)
        out.print(table)
    if (effect := found.effect) is not None:
        show(f"network: the first class changes for {effect['flips']} of {effect['files']} inputs")
        show(f"network: logits differ by at most {effect['max']:.3g}; mean Euclidean distance {effect['distance']:.3g}")
    for note, count in Counter(each.note for each in found.files if each.note).items():
        tell(f"{count} inputs: {note}")
    for each in found.files:
        if each.result in (FAILED, REFUSED):
            tell(f"{each.file}: {each.result}: {each.why}")
