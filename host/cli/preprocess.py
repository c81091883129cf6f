"""`headrace preprocess`: files through the DPU."""

import asyncio
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.batching import UsageError
from headrace.bitstreams.xclbin import Mode
from headrace.host.cli.build import Target, TargetOption, cached_xclbin, read_container
from headrace.host.cli.console import err, progress, show, show_json
from headrace.host.cli.options import Command, Json, check_readable, make_folder, readable, why_unreadable, writable

app = typer.Typer(help="Run files through the DPU.", add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def _help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        err.print(ctx.get_help())
        raise typer.Exit(2)


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


@app.command("image", cls=Command, short_help="JPEG files to tensors, one .npy a file.")
def preprocess_image(
    files: Annotated[list[Path], typer.Argument(help="JPEG files.")],
    out_folder: Annotated[Path, typer.Option("--out", help="Folder for one .npy a file.")],
    target: TargetOption = Target.SW_EMU,
    xclbin: Annotated[
        Path | None, typer.Option(callback=readable, help="Use this container instead of building one.")
    ] = None,
    image_cus: Annotated[int, typer.Option(min=1, max=16)] = 4,
    stage: Annotated[StageName, typer.Option(help="The last stage to run.")] = StageName.NORMALIZE,
    resize_short: Annotated[int, typer.Option(help="Shorter side after resize, pixels.")] = 256,
    crop: Annotated[tuple[int, int], typer.Option(help="Width and height of the crop, pixels.")] = (224, 224),
    dtype: Annotated[TensorType, typer.Option(help="Type of the normalized tensor.")] = TensorType.FLOAT32,
    fallback: Annotated[FallbackName, typer.Option(help="What to do with inputs that the DPU cannot take.")] = (
        FallbackName.CPU
    ),
    wave: Annotated[
        Path | None, typer.Option(callback=writable, help="hw_emu: write a VCD waveform of the one file's request.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write each file's image as .npy: HWC uint8 RGB up to the crop, CHW after normalize.

    On hw_emu it tells the clocks that each took. A file that fails is reported with its reason and the others still
    succeed (exit status 1)."""
    from headrace.host.dpu.driver import Fallback
    from headrace.host.dpu.files import preprocess_files
    from headrace.host.dpu.image import ImageSpec, Stage

    spec = ImageSpec(resize_short=resize_short, crop_width=crop[0], crop_height=crop[1], dtype=dtype.value)
    mode = Mode[target.name] if xclbin is None else read_container("--xclbin", xclbin).mode
    if wave is not None and mode is not Mode.HW_EMU:
        raise UsageError(f"--wave: {mode.name.lower()} has no signals to show; use --target hw_emu")
    if wave is not None and len(files) != 1:
        raise UsageError(f"--wave: a waveform is of one request; give one file, not {len(files)}")
    # A file that is missing is reported beside the good ones; a folder or a pipe was never meant.
    unreadable = [file for file in files if why_unreadable(file)]
    strange = [file for file in unreadable if os.path.exists(file) and not os.path.isfile(file)]
    if strange or len(unreadable) == len(files):
        check_readable("FILES", (strange or unreadable)[0])
    make_folder("--out", out_folder)
    container = xclbin or cached_xclbin(target, image_cus)
    with progress() as shown:
        bar = shown.add_task("files", total=len(files))
        outcomes = asyncio.run(
            preprocess_files(
                files, out_folder, container, spec, Stage[stage.name], Fallback(fallback.value),
                on_done=lambda: shown.advance(bar), wave=wave,
            )
        )  # fmt: skip
    if as_json:
        show_json({"stage": stage.value, "files": outcomes})
    else:
        for outcome in outcomes:
            note = "" if outcome["dpu_status"] in (None, "OK") else f" (DPU: {outcome['dpu_status']})"
            if outcome["error"]:
                show(f"{outcome['file']}: FAILED: {outcome['error']}")
            else:
                shape = "x".join(map(str, outcome["shape"]))
                text = f"{outcome['file']}: {outcome['output']} {shape} {outcome['dtype']} by {outcome['unit']}{note}"
                if "cycles" in outcome:
                    text += f", {outcome['cycles']} cycles, {outcome['cycles_per_pixel']:.3f} a pixel"
                show(text)
    if any(outcome["error"] for outcome in outcomes):
        raise typer.Exit(1)


preprocess = typer.main.get_command(app)
