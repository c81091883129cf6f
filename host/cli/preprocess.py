"""The command `headrace preprocess`, which turns files into tensors."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from headrace.batching import UsageError
from headrace.bitstreams.xclbin import Mode
from headrace.host.cli.build import Target, TargetOption, cached_xclbin, read_container
from headrace.host.cli.console import err, out, progress, show, show_json
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
    on_command_line,
    readable,
    why_unreadable,
    writable,
)

if TYPE_CHECKING:
    from headrace.host.dpu.preprocessor import Launch
    from headrace.host.dpu.processors import ProcessorSpec
    from headrace.host.dpu.specs import AudioSpec, AudioStage, ImageSpec, ImageStage

# Parameters that --processor stands for.
OF_IMAGE_SPEC = ("stage", "resize_short", "crop", "orient")
OF_AUDIO_SPEC = ("stage", "mels", "preemphasis", "normalize_over")
SHOWN = (2048, 1536)  # width and height of the image in the list of processors
SHOWN_S = 10  # length of the audio there

app = typer.Typer(
    help="Turn image or audio files into tensors on the DPU.", add_completion=False, rich_markup_mode=None
)


@app.callback(invoke_without_command=True)
def _help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        err.print(ctx.get_help())
        raise typer.Exit(2)


class ImageStage(StrEnum):
    """The stages of the image CU, in their order."""

    DECODE = "decode"
    RESIZE = "resize"
    CROP = "crop"
    NORMALIZE = "normalize"


class AudioStage(StrEnum):
    """The stages of the audio CUs, in their order."""

    RESAMPLE = "resample"
    MEL = "mel"
    NORMALIZE = "normalize"


class FallbackName(StrEnum):
    """The treatments of inputs that the DPU does not take."""

    CPU = "cpu"
    RAISE = "raise"


class AudioTensorType(StrEnum):
    """The types of audio tensors."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


class ImageTensorType(StrEnum):
    """The types of image tensors."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"


class EngineName(StrEnum):
    """The libraries whose bits an image processor can give."""

    TORCHVISION = "torchvision"
    PILLOW12 = "pillow12"
    PILLOW13 = "pillow13"
    OPENCV = "opencv"


Xclbin = Annotated[Path | None, typer.Option(callback=readable, help="Use this container instead of building one.")]
OutFolder = Annotated[Path, typer.Option("--out", help="Folder for the results, one file for each input file.")]
OnUnsupported = Annotated[
    FallbackName,
    typer.Option(help="Inputs that the DPU cannot take go to the CPU (cpu), or fail (raise)."),
]
Wave = Annotated[
    Path | None,
    typer.Option(callback=writable, help="With hw_emu and one file, write a VCD waveform of its request to this file."),
]


@app.command("image", cls=Command, short_help="Turn image files into tensors, one file each.")
def preprocess_image(
    ctx: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(help="JPEG files. With --processor also PNG, WebP, GIF, TIFF and BMP files.")
    ],
    out_folder: OutFolder,
    processor: Annotated[
        str | None,
        typer.Option(
            help="Make the tensors of this model of Hugging Face. Give a name of `headrace preprocess processors`, a "
            "preprocessor_config.json, or the folder of a model.",
            metavar="NAME|PATH",
        ),
    ] = None,
    engine: Annotated[
        EngineName | None,
        typer.Option(
            help="The library whose bits the tensors of --processor have. pillow12 is Pillow up to 12.1 [torchvision].",
            show_default=False,
        ),
    ] = None,
    target: TargetOption = Target.SW_EMU,
    xclbin: Xclbin = None,
    image_cus: ImageCus = 4,
    stage: Annotated[ImageStage, typer.Option(help="The last stage to run.")] = ImageStage.NORMALIZE,
    resize_short: Annotated[int, typer.Option(help="Length of the shorter side after resize (pixels).")] = 256,
    crop: Annotated[tuple[int, int], typer.Option(help="Width and height of the crop (pixels).")] = (224, 224),
    orient: Orient = False,
    dtype: Annotated[
        ImageTensorType | None,
        typer.Option(
            help="Type of the normalized tensor. bfloat16 is for --processor, and int8 is not "
            "[float32, or that of the processor].",
            show_default=False,
        ),
    ] = None,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="With --processor: images have the axes height, width, channel.")
    ] = False,
    fallback: OnUnsupported = FallbackName.CPU,
    launch: LaunchOption = LaunchName.SINGLE,
    xrt: XrtOption = None,
    max_megapixels: MaxMegapixels = 100,
    damaged: OnDamaged = DamagedName.STRICT,
    wave: Wave = None,
    as_json: Json = False,
) -> None:
    """Turn image files into tensors, one file each.

    With --processor, a .npz file has the tensors that transformers makes for this model, by their names. The DPU takes
    JPEG files that give one image. The CPU takes the others, with the same result.

    Without it, the DPU turns JPEG files into .npy files. Up to the stage crop, an array is uint8 RGB with the axes
    height, width, channel. After normalize it has the axes channel, height, width. With hw_emu and --launch single, the
    output also tells the clocks of each file.

    If a file fails, the output gives the reason, and the other files are still written. The exit status is then 1."""
    from headrace.host.dpu.preprocessor import Launch
    from headrace.host.dpu.specs import Damaged, ImageSpec, ImageStage

    def container() -> Path:
        return cached_xclbin(target, image_cus)

    if processor is not None:
        from headrace.host.dpu.hugging_face.names import image_processor
        from headrace.host.dpu.reference import pillow_file  # noqa: F401  (says that Pillow is missing before all else)

        _check_options_of_processor(ctx, OF_IMAGE_SPEC)
        how = (engine or EngineName.TORCHVISION).value
        of_model = image_processor(processor, how, dtype=dtype and dtype.value, channels_last=channels_last)
        outcomes = _preprocess(
            files,
            out_folder,
            xclbin,
            target,
            container,
            of_model,
            None,
            fallback,
            wave,
            xrt,
            Launch(launch.value),
            max_megapixels=max_megapixels,
            damaged=Damaged(damaged.value),
        )
        _tell({"processor": processor, "class": of_model.name, "engine": how}, outcomes, as_json, oriented=True)
        return
    if engine is not None:
        raise UsageError("--engine: it says how an image processor computes; give --processor too")
    if channels_last:
        raise UsageError("--channels-last: it is for an image processor; give --processor too")
    spec = ImageSpec(
        resize_short=resize_short,
        crop_width=crop[0],
        crop_height=crop[1],
        dtype=(dtype or ImageTensorType.FLOAT32).value,
        orient=orient,
        max_megapixels=max_megapixels,
        damaged=Damaged(damaged.value),
    )
    outcomes = _preprocess(
        files,
        out_folder,
        xclbin,
        target,
        container,
        spec,
        ImageStage[stage.name],
        fallback,
        wave,
        xrt,
        Launch(launch.value),
    )
    _tell({"stage": stage.value}, outcomes, as_json, orient)


def _check_options_of_processor(ctx: typer.Context, names: Sequence[str]) -> None:
    """Raise UsageError for an option, of those names, that says what --processor says."""
    options = {param.name: param.opts[0] for param in ctx.command.params}
    for name in names:
        if on_command_line(ctx, name):
            raise UsageError(f"{options[name]}: --processor says what is computed; leave out one of the two")


def _tensors(tensors: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_tensor(each)}" for name, each in tensors.items())


def _tensor(of: dict[str, Any]) -> str:
    return f"{_shape(of['shape'])} {of['dtype']}"


def _shape(sides: Sequence[int]) -> str:
    return "x".join(map(str, sides))


@app.command("processors", cls=Command, short_help="List the models that --processor knows by name.")
def list_processors(as_json: Json = False) -> None:
    """List the models that `--processor` of `headrace preprocess image` and `headrace preprocess audio` knows by name.

    For a model of images, the list has the class of its image processor in transformers and the rule of the resize in
    pixels. It also has `pixel_values` of an image of 2048x1536 pixels. For a model of audio, it has the class of its
    feature extractor, and the tensors of 10 s of audio."""
    from headrace.host.dpu.hugging_face.description import known, known_audio
    from headrace.host.dpu.processors import Size

    rows, of_audio = known(Size(*SHOWN)), known_audio(SHOWN_S)
    if as_json:
        image = dict(zip(("width", "height"), SHOWN, strict=True))
        show_json({"image": image, "processors": rows, "audio": {"seconds": SHOWN_S}, "feature_extractors": of_audio})
        return
    table = Table("name", "class", "size", f"pixel_values of {_shape(SHOWN)}", box=None, pad_edge=False)
    for row in rows:
        pixels = row["tensors"]["pixel_values"]
        table.add_row(
            row["name"],
            row["class"].removesuffix("ImageProcessor"),
            row["size"],
            f"{_shape(pixels['shape'])} {pixels['dtype']}",
        )
    out.print(table)
    table = Table("name", "class", f"tensors of {SHOWN_S} s of audio", box=None, pad_edge=False)
    for row in of_audio:
        table.add_row(row["name"], row["class"].removesuffix("FeatureExtractor"), _tensors(row["tensors"]))
    out.print()
    out.print(table)


@app.command("audio", cls=Command, short_help="Turn WAV and FLAC files into tensors, one file each.")
def preprocess_audio(
    ctx: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="WAV or FLAC files.")],
    out_folder: OutFolder,
    processor: Annotated[
        str | None,
        typer.Option(
            help="Make the tensors of this speech model of Hugging Face. Give a name of `headrace preprocess "
            "processors`, a preprocessor_config.json, or the folder of a model.",
            metavar="NAME|PATH",
        ),
    ] = None,
    target: TargetOption = Target.SW_EMU,
    xclbin: Xclbin = None,
    mel_cus: MelCus = 1,
    norm_cus: NormCus = 1,
    stage: Annotated[AudioStage, typer.Option(help="The last stage to run.")] = AudioStage.NORMALIZE,
    mels: Annotated[int, typer.Option(help="Number of bands of the mel spectrogram.")] = 80,
    preemphasis: Annotated[
        float, typer.Option(help="Pre-emphasis: the share of the sample before that is subtracted. 0 leaves it out.")
    ] = 0.97,
    normalize_over: Annotated[
        NormalizeOver,
        typer.Option(help="Frames that give mean and deviation. nemo leaves out the last frame, and sets it to 0."),
    ] = NormalizeOver.NEMO,
    dtype: Annotated[AudioTensorType, typer.Option(help="Type of the normalized tensor.")] = AudioTensorType.FLOAT32,
    resampler: ResamplerOption = None,
    fallback: OnUnsupported = FallbackName.CPU,
    xrt: XrtOption = None,
    wave: Wave = None,
    as_json: Json = False,
) -> None:
    """Turn WAV and FLAC files into tensors, one file each.

    With --processor, a .npz file has the tensors that the feature extractor of transformers makes for this model, by
    their names. The DPU takes the plan of NeMo's models. The CPU takes all others.

    Without it, the files are .npy files. After resample, an array has the samples at 16 kHz. After mel and normalize it
    has the axes band, frame. The mel spectrogram is the natural logarithm of power. With hw_emu, the output also tells
    the clocks of each file.

    If a file fails, the output gives the reason, and the other files are still written. The exit status is then 1."""
    from headrace.host.dpu.specs import AudioSpec, AudioStage
    from headrace.host.dpu.units.audio_cu import check

    def container() -> Path:
        return cached_xclbin(target, mel_cus=mel_cus, norm_cus=norm_cus)

    if processor is not None:
        from headrace.host.dpu.hugging_face.names import audio_processor

        _check_options_of_processor(ctx, OF_AUDIO_SPEC)
        of_model = audio_processor(processor, dtype=dtype.value)
        of_model = replace(of_model, resampler=(resampler or ResamplerName.FIR).value)
        outcomes = _preprocess(files, out_folder, xclbin, target, container, of_model, None, fallback, wave, xrt)
        _tell({"processor": processor, "class": of_model.name}, outcomes, as_json)
        return
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
        container,
        spec,
        AudioStage[stage.name],
        fallback,
        wave,
        xrt,
    )
    _tell({"stage": stage.value}, outcomes, as_json)


def _preprocess(
    files: Sequence[Path],
    out_folder: Path,
    xclbin: Path | None,
    target: Target,
    build: Callable[[], Path],
    spec: "ImageSpec | AudioSpec | ProcessorSpec",
    stage: "ImageStage | AudioStage | None",
    fallback: FallbackName,
    wave: Path | None,
    xrt: XrtName | None,
    launch: "Launch | None" = None,
    **rules: Any,
) -> list[dict[str, Any]]:
    """Preprocess files with the container `xclbin`, or with the one that `build` makes for `target`.

    `rules` are those of `preprocess_files` for the files of a ProcessorSpec.

    Returns the outcome of each file, in the order of the files. Raises UsageError."""
    from headrace.host.dpu.files import preprocess_files
    from headrace.host.dpu.preprocessor import Fallback, Launch
    from headrace.host.xrt import Api

    mode = Mode[target.name] if xclbin is None else read_container("--xclbin", xclbin).mode
    if wave is not None and mode is not Mode.HW_EMU:
        raise UsageError(f"--wave: {mode.name.lower()} has no signals to show; use --target hw_emu")
    if wave is not None and xrt is XrtName.REAL:
        raise UsageError("--wave: the real XRT shows no signals; use --xrt emulation")
    if wave is not None and len(files) != 1:
        raise UsageError(f"--wave: a waveform shows one request; give one file, not {len(files)}")
    _check_files(files, out_folder)
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
                **rules,
            )
        )


def _check_files(files: Sequence[Path], out_folder: Path) -> None:
    """Make the folder of the results. Raises UsageError if it cannot be written, or if no file can be read.

    A missing file is reported with the results of the good ones. A folder or a pipe is bad usage."""
    unreadable = [file for file in files if why_unreadable(file)]
    strange = [file for file in unreadable if os.path.exists(file) and not os.path.isfile(file)]
    if strange or len(unreadable) == len(files):
        check_readable("FILES", (strange or unreadable)[0])
    make_folder("--out", out_folder)


def _tell(what: dict[str, str], outcomes: Sequence[dict[str, Any]], as_json: bool, oriented: bool = False) -> None:
    """Print the outcome of each file. Raises typer.Exit if a file failed."""
    if as_json:
        show_json({**what, "files": outcomes})
    else:
        for outcome in outcomes:
            note = "" if outcome["dpu_status"] in (None, "OK") else f" (DPU: {outcome['dpu_status']})"
            if outcome["out_of_service"]:
                note += f" (DPU out of service: {outcome['out_of_service']})"
            if outcome.get("refused"):
                note += f" (not for the DPU: {outcome['refused']})"
            if outcome["error"]:
                show(f"{outcome['file']}: FAILED: {outcome['error']}")
            else:
                tensors = _tensors(outcome["tensors"]) if "tensors" in outcome else _tensor(outcome)
                text = f"{outcome['file']}: {outcome['output']} {tensors} by {outcome['unit']}{note}"
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
