"""`headrace preprocess`: files through the DPU."""

import asyncio
import os
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.batching import UsageError
from headrace.bitstreams.xclbin import Mode
from headrace.host.cli.build import Target, TargetOption, cached_xclbin, read_container
from headrace.host.cli.console import err, progress, show, show_json
from headrace.host.cli.options import (
    Command,
    DamagedName,
    ImageCus,
    Json,
    LaunchName,
    LaunchOption,
    MaxMegapixels,
    MelCus,
    NormalizeOver,
    NormCus,
    OnDamaged,
    Orient,
    ResamplerName,
    ResamplerOption,
    XrtName,
    XrtOption,
    check_readable,
    make_folder,
    readable,
    why_unreadable,
    writable,
)

if TYPE_CHECKING:
    from headrace.host.dpu.preprocessor import Launch
    from headrace.host.dpu.specs import AudioSpec, AudioStage, ImageSpec, ImageStage

app = typer.Typer(help="Run files through the DPU.", add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def _help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        err.print(ctx.get_help())
        raise typer.Exit(2)


class ImageStage(StrEnum):
    DECODE = "decode"
    RESIZE = "resize"
    CROP = "crop"
    NORMALIZE = "normalize"


class AudioStage(StrEnum):
    RESAMPLE = "resample"
    MEL = "mel"
    NORMALIZE = "normalize"


class FallbackName(StrEnum):
    CPU = "cpu"
    RAISE = "raise"


class SoundType(StrEnum):
    FLOAT32 = "float32"
    FLOAT16 = "float16"


class TensorType(StrEnum):
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"


Xclbin = Annotated[Path | None, typer.Option(callback=readable, help="Use this container instead of building one.")]
OutFolder = Annotated[Path, typer.Option("--out", help="Folder for one .npy a file.")]
OnUnsupported = Annotated[FallbackName, typer.Option(help="What to do with inputs that the DPU cannot take.")]
Wave = Annotated[
    Path | None, typer.Option(callback=writable, help="hw_emu: write a VCD waveform of the one file's request.")
]


@app.command("image", cls=Command, short_help="JPEG files to tensors, one .npy a file.")
def preprocess_image(
    files: Annotated[list[Path], typer.Argument(help="JPEG files.")],
    out_folder: OutFolder,
    target: TargetOption = Target.SW_EMU,
    xclbin: Xclbin = None,
    image_cus: ImageCus = 4,
    stage: Annotated[ImageStage, typer.Option(help="The last stage to run.")] = ImageStage.NORMALIZE,
    resize_short: Annotated[int, typer.Option(help="Shorter side after resize, pixels.")] = 256,
    crop: Annotated[tuple[int, int], typer.Option(help="Width and height of the crop, pixels.")] = (224, 224),
    orient: Orient = False,
    dtype: Annotated[TensorType, typer.Option(help="Type of the normalized tensor.")] = TensorType.FLOAT32,
    fallback: OnUnsupported = FallbackName.CPU,
    launch: LaunchOption = LaunchName.SINGLE,
    xrt: XrtOption = None,
    max_megapixels: MaxMegapixels = 100,
    damaged: OnDamaged = DamagedName.STRICT,
    wave: Wave = None,
    as_json: Json = False,
) -> None:
    """Write each file's image as .npy: HWC uint8 RGB up to the crop, CHW after normalize.

    On hw_emu it tells the clocks that each took, with single starts. A file that fails is reported with its reason and
    the others still succeed (exit status 1)."""
    from headrace.host.dpu.preprocessor import Launch
    from headrace.host.dpu.specs import Damaged, ImageSpec, ImageStage

    spec = ImageSpec(
        resize_short=resize_short,
        crop_width=crop[0],
        crop_height=crop[1],
        dtype=dtype.value,
        orient=orient,
        max_megapixels=max_megapixels,
        damaged=Damaged(damaged.value),
    )
    outcomes = _preprocess(
        files,
        out_folder,
        xclbin,
        target,
        lambda: cached_xclbin(target, image_cus),
        spec,
        ImageStage[stage.name],
        fallback,
        wave,
        xrt,
        Launch(launch.value),
    )
    _tell(stage, outcomes, as_json, orient)


@app.command("audio", cls=Command, short_help="WAV and FLAC files to tensors, one .npy a file.")
def preprocess_audio(
    files: Annotated[list[Path], typer.Argument(help="WAV or FLAC files.")],
    out_folder: OutFolder,
    target: TargetOption = Target.SW_EMU,
    xclbin: Xclbin = None,
    mel_cus: MelCus = 1,
    norm_cus: NormCus = 1,
    stage: Annotated[AudioStage, typer.Option(help="The last stage to run.")] = AudioStage.NORMALIZE,
    mels: Annotated[int, typer.Option(help="Bands of the mel spectrogram.")] = 80,
    preemphasis: Annotated[float, typer.Option(help="Of the sample before; 0 for none.")] = 0.97,
    normalize_over: Annotated[
        NormalizeOver, typer.Option(help="Frames of mean and deviation: nemo leaves out the last one, which becomes 0.")
    ] = NormalizeOver.NEMO,
    dtype: Annotated[SoundType, typer.Option(help="Type of the normalized tensor.")] = SoundType.FLOAT32,
    resampler: ResamplerOption = None,
    fallback: OnUnsupported = FallbackName.CPU,
    xrt: XrtOption = None,
    wave: Wave = None,
    as_json: Json = False,
) -> None:
    """Write each file's sound as .npy: samples at 16 kHz after resample, then bands x frames.

    A mel spectrogram is in natural logarithms of power. On hw_emu it tells the clocks that each took. A file that fails
    is reported with its reason and the others still succeed (exit status 1)."""
    from headrace.host.dpu.specs import AudioSpec, AudioStage
    from headrace.host.dpu.units.audio_cu import check

    spec = AudioSpec(
        n_mels=mels,
        preemphasis=preemphasis,
        dtype=dtype.value,
        normalize_over=normalize_over.value,
        resampler=(resampler or ResamplerName.FIR).value,
    )
    check(spec)
    outcomes = _preprocess(
        files,
        out_folder,
        xclbin,
        target,
        lambda: cached_xclbin(target, mel_cus=mel_cus, norm_cus=norm_cus),
        spec,
        AudioStage[stage.name],
        fallback,
        wave,
        xrt,
    )
    _tell(stage, outcomes, as_json)


def _preprocess(
    files: Sequence[Path],
    out_folder: Path,
    xclbin: Path | None,
    target: Target,
    build: Callable[[], Path],
    spec: "ImageSpec | AudioSpec",
    stage: "ImageStage | AudioStage",
    fallback: FallbackName,
    wave: Path | None,
    xrt: XrtName | None,
    launch: "Launch | None" = None,
) -> list[dict[str, Any]]:
    """The outcomes, by the container `xclbin` or the one that `build` makes for `target`. Raises UsageError."""
    from headrace.host.dpu.files import preprocess_files
    from headrace.host.dpu.preprocessor import Fallback, Launch
    from headrace.host.xrt import Api

    mode = Mode[target.name] if xclbin is None else read_container("--xclbin", xclbin).mode
    if wave is not None and mode is not Mode.HW_EMU:
        raise UsageError(f"--wave: {mode.name.lower()} has no signals to show; use --target hw_emu")
    if wave is not None and xrt is XrtName.REAL:
        raise UsageError("--wave: the real XRT shows no signals; use --xrt emulation")
    if wave is not None and len(files) != 1:
        raise UsageError(f"--wave: a waveform is of one request; give one file, not {len(files)}")
    # A file that is missing is reported beside the good ones; a folder or a pipe was never meant.
    unreadable = [file for file in files if why_unreadable(file)]
    strange = [file for file in unreadable if os.path.exists(file) and not os.path.isfile(file)]
    if strange or len(unreadable) == len(files):
        check_readable("FILES", (strange or unreadable)[0])
    make_folder("--out", out_folder)
    container = xclbin or build()
    with progress() as shown:
        bar = shown.add_task("files", total=len(files))
        return asyncio.run(
            preprocess_files(
                files,
                out_folder,
                container,
                spec,
                stage,
                Fallback(fallback.value),
                on_done=lambda: shown.advance(bar),
                wave=wave,
                launch=launch or Launch.SINGLE,
                api=None if xrt is None else Api(xrt.value),
            )
        )


def _tell(stage: StrEnum, outcomes: Sequence[dict[str, Any]], as_json: bool, oriented: bool = False) -> None:
    """Raises typer.Exit if a file failed."""
    if as_json:
        show_json({"stage": stage.value, "files": outcomes})
    else:
        for outcome in outcomes:
            note = "" if outcome["dpu_status"] in (None, "OK") else f" (DPU: {outcome['dpu_status']})"
            if outcome["out_of_service"]:
                note += f" (DPU out of service: {outcome['out_of_service']})"
            if outcome["error"]:
                show(f"{outcome['file']}: FAILED: {outcome['error']}")
            else:
                shape = "x".join(map(str, outcome["shape"]))
                text = f"{outcome['file']}: {outcome['output']} {shape} {outcome['dtype']} by {outcome['unit']}{note}"
                if outcome.get("damage"):
                    text += f", damaged: {outcome['damage']}"
                if outcome.get("orientation", 1) != 1:
                    text += (
                        f", {'turned by' if oriented else 'not turned by'} Exif orientation {outcome['orientation']}"
                    )
                if "cycles" in outcome:
                    text += f", {outcome['cycles']} cycles"
                if "cycles_per_pixel" in outcome:
                    text += f", {outcome['cycles_per_pixel']:.3f} a pixel"
                show(text)
    if any(outcome["error"] for outcome in outcomes):
        raise typer.Exit(1)


preprocess = typer.main.get_command(app)
