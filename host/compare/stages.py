"""The stages of a front end, as functions, and the results of each stage for one file.

The reference, the built-in candidates and the hypotheses about unknown candidates all have this form. So a hypothesis
is the reference with another function for one stage:

    replace(IMAGE_STAGES, resize=by_opencv)

A run keeps the result of each stage. `own_results` gives each stage of a candidate the reference's input, so a
difference of one stage does not hide or enlarge that of another.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching import CorruptInput, UsageError
from headrace.host.dpu.processors import Engine, Placement, Plan, ProcessorSpec, Size, tensor
from headrace.host.dpu.reference import audio, pillow_file, processor, resampler
from headrace.host.dpu.specs import MAX_MEGAPIXELS, AudioSpec, Orientation

Pixels = NDArray[Any]  # (rows, columns, 3): uint8, or float32 in levels of 0 to 255
Samples = NDArray[np.float32]
Tensors = Mapping[str, NDArray[Any]]

IMAGE_NAMES: Final = ("decode", "convert", "resize", "crop", "normalize", "layout")
AUDIO_NAMES: Final = ("decode", "convert", "resample", "features", "layout")
IN_LEVELS: Final = ("decode", "convert", "resize", "crop")  # stages of images whose results are pixels
OF_TENSORS: Final = ("normalize", "layout", "features")  # stages whose results are values of the tensors
PLAIN: Final = ("1", "L", "RGB", "YCbCr")  # modes of Pillow whose pixels a decoder gives as they are
KEYED: Final = " with a transparent colour"
NO_STAGE: Final = "unknown"


# ---- Images ----


def decode(data: bytes, spec: ProcessorSpec) -> Pixels:
    """Return the RGB pixels of a file as they are stored, not turned upright."""
    with pillow_file.opened(data, MAX_MEGAPIXELS) as image:
        rgb = image if image.mode == "RGB" else image.convert("RGB")
        return np.asarray(pillow_file.in_rgb(rgb, spec.on_white))


def about(data: bytes) -> tuple[str, Orientation]:
    """Return the mode that Pillow gives the image of a file, such as "RGB" or "CMYK", and its orientation.

    The mode ends with KEYED if the file names a colour as transparent."""
    with pillow_file.opened(data, MAX_MEGAPIXELS) as image:
        image.load()  # some files name their orientation after the pixels
        kind = f"{image.mode}{KEYED if image.info.get('transparency') is not None else ''}"
        return kind, pillow_file.orientation_of(image)


def convert(pixels: Pixels, turn: Orientation) -> Pixels:
    """Return an image upright."""
    return turn.turned(pixels, 0)


def resize(pixels: Pixels, size: Size, spec: ProcessorSpec) -> Pixels:
    """Return an image in another size, with the filter and the engine of the spec."""
    return resampler.resize(pixels, *size, spec.filter, spec.engine)


def place(pixels: Pixels, by: Placement, spec: ProcessorSpec) -> list[Pixels]:
    """Return the tiles of a canvas with the image at its place."""
    return processor.tiled(pixels, by)


def normalize(pixels: Pixels, spec: ProcessorSpec) -> NDArray[Any]:
    """Return the values of an image, shape (3, rows, columns), by the table of the spec.

    Pixels that a resize did not round have no place in the table, so the formula gives their values."""
    if pixels.dtype != np.uint8:
        return by_formula(pixels, spec)
    table = spec.table()
    return np.stack([table[channel][pixels[..., channel]] for channel in range(3)])


def by_formula(pixels: Pixels, spec: ProcessorSpec) -> NDArray[np.float32]:
    """Return (pixel * rescale - mean) / std in float32, shape (3, rows, columns), as most pipelines write it."""
    values = pixels.astype(np.float32).transpose(2, 0, 1)
    if spec.rescale is not None:
        values = values * np.float32(spec.rescale)
    if spec.mean is not None:
        mean, std = (np.array(each, np.float32).reshape(3, 1, 1) for each in (spec.mean, spec.std))
        values = (values - mean) / std
    return np.ascontiguousarray(values)


def layout(planes: NDArray[Any], spec: ProcessorSpec) -> NDArray[Any]:
    """Return images (number, 3, rows, columns) in the layout of the spec."""
    return processor.laid_out(planes, spec.layout)


@dataclass(frozen=True, slots=True)
class ImageStages:
    """A front end for images, one function for each stage."""

    decode: Callable[[bytes, ProcessorSpec], Pixels] = decode
    convert: Callable[[Pixels, Orientation], Pixels] = convert
    resize: Callable[[Pixels, Size, ProcessorSpec], Pixels] = resize
    place: Callable[[Pixels, Placement, ProcessorSpec], list[Pixels]] = place
    normalize: Callable[[Pixels, ProcessorSpec], NDArray[Any]] = normalize
    layout: Callable[[NDArray[Any], ProcessorSpec], NDArray[Any]] = layout


IMAGE_STAGES: Final = ImageStages()


@dataclass(frozen=True, slots=True)
class ImageRun:
    """The result of each stage for one image.

    Attributes:
        mode: Mode of the file's pixels, as Pillow names it.
        turn: Orientation of the file.
        decoded, upright: Pixels of the source.
        resized: The image of each pass.
        placed: The images that the tensor has.
        planes: Their values, shape (number, 3, rows, columns).
        tensors: The tensors by name.
    """

    mode: str
    turn: Orientation
    decoded: Pixels
    upright: Pixels
    plan: Plan
    resized: list[Pixels]
    placed: list[Pixels]
    planes: NDArray[Any]
    tensors: Tensors


def run_image(data: bytes, stages: ImageStages, spec: ProcessorSpec, after: ImageRun | None = None) -> ImageRun:
    """Return the result of each stage for a file, each made of the stage before it.

    `after` is a run of the reference. Functions of `stages` that are the reference's own do not run again for it, as
    long as no stage before them is another.

    Raises:
        CorruptInput: The file cannot be decoded.
        UsageError: The processor does not take an image of this size.
    """
    same = after is not None and stages.decode is IMAGE_STAGES.decode
    decoded = after.decoded if after is not None and same else stages.decode(data, spec)
    kind, turn = (after.mode, after.turn) if after is not None else about(data)
    same = same and stages.convert is IMAGE_STAGES.convert
    upright = after.upright if after is not None and same else stages.convert(decoded, turn)
    plan = spec.plan(Size(upright.shape[1], upright.shape[0]))
    same = same and stages.resize is IMAGE_STAGES.resize
    resized = after.resized if after is not None and same else _resized(upright, plan, stages, spec)
    same = same and stages.place is IMAGE_STAGES.place
    placed = after.placed if after is not None and same else _placed(resized, plan, stages, spec)
    same = same and stages.normalize is IMAGE_STAGES.normalize
    planes = after.planes if after is not None and same else np.stack([stages.normalize(each, spec) for each in placed])
    values = {"pixel_values": stages.layout(planes, spec)}
    tensors = values | {name: tensor(what, plan, spec.layout) for name, what in spec.extras}
    return ImageRun(kind, turn, decoded, upright, plan, resized, placed, planes, tensors)


def _resized(source: Pixels, plan: Plan, stages: ImageStages, spec: ProcessorSpec) -> list[Pixels]:
    resized: list[Pixels] = []
    for step in plan.passes:
        image = source if step.of is None else resized[step.of]
        unchanged = (image.shape[1], image.shape[0]) == tuple(step.size)
        resized.append(image if unchanged else stages.resize(image, step.size, spec))
    return resized


def _placed(resized: list[Pixels], plan: Plan, stages: ImageStages, spec: ProcessorSpec) -> list[Pixels]:
    images: list[Pixels] = []
    for image, step in zip(resized, plan.passes, strict=True):
        if step.placement is not None:
            images += stages.place(image, step.placement, spec)
    return images


def own_results(data: bytes, stages: ImageStages, spec: ProcessorSpec, of: ImageRun) -> dict[str, list[NDArray[Any]]]:
    """Return what each stage of a candidate makes of the reference's input of this stage.

    The arrays stand for those of `results_of`, in the same order."""
    sources = [of.upright if step.of is None else of.resized[step.of] for step in of.plan.passes]
    sizes = [step.size for step in of.plan.passes]
    decoded = stages.decode(data, spec)
    own = {"decode": [decoded], "convert": [stages.convert(of.decoded, of.turn)]}
    own["resize"] = [
        source if (source.shape[1], source.shape[0]) == tuple(size) else stages.resize(source, size, spec)
        for source, size in zip(sources, sizes, strict=True)
    ]
    own["crop"] = _placed(of.resized, of.plan, stages, spec)
    own["normalize"] = [np.stack([stages.normalize(each, spec) for each in of.placed])]
    own["layout"] = [stages.layout(of.planes, spec)]
    if of.mode not in PLAIN:  # the decoder converts it, so both are one stage: how transparency or CMYK becomes RGB
        own["convert"] = [stages.convert(decoded, of.turn)]
        own["decode"] = [of.decoded]
    return own


def results_of(run: ImageRun) -> dict[str, list[NDArray[Any]]]:
    """Return the results of the stages of images by their names."""
    return {
        "decode": [run.decoded],
        "convert": [run.upright],
        "resize": run.resized,
        "crop": run.placed,
        "normalize": [run.planes],
        "layout": [run.tensors["pixel_values"]],
    }


def installed(package: str) -> str:
    """Return the version of an installed package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def engine_of_pillow() -> Engine:
    """Return the engine whose bits the installed Pillow gives."""
    from PIL import __version__

    return Engine.PILLOW13 if int(__version__.partition(".")[0]) >= 13 else Engine.PILLOW12


# ---- Audio ----


@dataclass(frozen=True, slots=True)
class Waveform:
    """The samples of a file, shape (frames, channels), float32, and their rate in Hz."""

    samples: NDArray[np.float32]
    rate: int


def decode_audio(data: bytes) -> Waveform:
    """Return the samples of a file, by libsndfile.

    Raises CorruptInput for a file that it cannot decode."""
    import soundfile

    try:
        samples, rate = soundfile.read(BytesIO(data), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise CorruptInput(f"libsndfile cannot decode it: {error.error_string}") from error
    return Waveform(samples, int(rate))


def mono(waveform: Waveform) -> Waveform:
    """Return the mean of the channels, as librosa takes it."""
    samples = waveform.samples if waveform.samples.shape[1] == 1 else waveform.samples.T.mean(axis=0)[:, np.newaxis]
    return Waveform(samples, waveform.rate)


def resample(waveform: Waveform, rate: int) -> Samples:
    """Return mono samples, shape (n,), at a rate, by soxr in its quality HQ, as librosa does."""
    import soxr

    samples: Samples = waveform.samples[:, 0]
    if waveform.rate == rate:
        return samples
    made: Samples = soxr.resample(samples, waveform.rate, rate, "HQ")
    wanted = math.ceil(len(samples) * rate / waveform.rate)
    return np.pad(made[:wanted], (0, max(0, wanted - len(made))))


@dataclass(frozen=True, slots=True)
class AudioStages:
    """A front end for audio. `features` makes the tensors of samples at the model's rate."""

    features: Callable[[Samples], Tensors]
    decode: Callable[[bytes], Waveform] = decode_audio
    convert: Callable[[Waveform], Waveform] = mono
    resample: Callable[[Waveform, int], Samples] = resample


@dataclass(frozen=True, slots=True)
class AudioRun:
    """The result of each stage for one audio file."""

    decoded: Waveform
    mono: Waveform
    samples: Samples
    tensors: Tensors


def run_audio(data: bytes, stages: AudioStages, rate: int) -> AudioRun:
    """Return the result of each stage for a file, each made of the stage before it. Raises the errors of its stages."""
    decoded = stages.decode(data)
    one = stages.convert(decoded)
    samples = stages.resample(one, rate)
    return AudioRun(decoded, one, samples, stages.features(samples))


def own_audio_results(data: bytes, stages: AudioStages, rate: int, of: AudioRun, main: str) -> dict[str, NDArray[Any]]:
    """Return what each stage of a candidate makes of the reference's input of this stage."""
    return {
        "decode": stages.decode(data).samples,
        "convert": stages.convert(of.decoded).samples,
        "resample": stages.resample(of.mono, rate),
        "features": stages.features(of.samples)[main],
    }


def audio_results_of(run: AudioRun, main: str) -> dict[str, NDArray[Any]]:
    """Return the results of the stages of audio by their names. `main` names the tensor of the features."""
    return {
        "decode": run.decoded.samples,
        "convert": run.mono.samples,
        "resample": run.samples,
        "features": run.tensors[main],
    }


def headrace_features(spec: AudioSpec) -> Callable[[Samples], Tensors]:
    """Return the function that makes the tensors of samples by Headrace's CPU path."""
    if spec.tensors is None:
        raise UsageError("the spec has no names for its tensors; give one of a feature extractor")

    def made(samples: Samples) -> Tensors:
        return audio.named(audio.features(samples, spec), spec.valid(len(samples)), spec)

    return made
