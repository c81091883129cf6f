"""Hypotheses about a front end for images, in the order of the stages."""

import importlib
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from headrace.batching import HeadraceError
from headrace.host.compare.candidates.images import (
    BUILT_IN,
    JPEG,
    nearest_chroma,
    opencv_decode,
    opencv_place,
    pillow_place,
    torch_float_resize,
)
from headrace.host.compare.difference import gap
from headrace.host.compare.hypotheses.search import Arrangement, Hypothesis
from headrace.host.compare.reference import PIXEL_VALUES
from headrace.host.compare.stages import (
    IMAGE_NAMES,
    IMAGE_STAGES,
    KEYED,
    NO_STAGE,
    PLAIN,
    ImageRun,
    ImageStages,
    Pixels,
    by_formula,
    decode,
    engine_of_pillow,
    own_results,
    place,
    results_of,
    run_image,
)
from headrace.host.compare.values import numbers
from headrace.host.dpu.processors import (
    OF_TORCHVISION,
    Crop,
    Engine,
    Filter,
    FixedSize,
    Images,
    Layout,
    MergedPatches,
    Pad,
    PaddedPatches,
    PatchImages,
    Placement,
    ProcessorSpec,
    Size,
    Square,
)
from headrace.host.dpu.reference.processor import laid_out
from headrace.host.dpu.specs import IMAGENET_MEAN, IMAGENET_STD, Orientation

CLIP_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Final = (0.26862954, 0.26130258, 0.27577711)
HALF: Final = (0.5, 0.5, 0.5)
NONE: Final = (0.0, 0.0, 0.0)
ONE: Final = (1.0, 1.0, 1.0)
WHOLE: Final = ("opencv", "torchvision", "torch-float", "pillow")  # candidates that stand for all their stages
INTERPOLATIONS: Final = ("INTER_LINEAR", "INTER_CUBIC", "INTER_LANCZOS4", "INTER_AREA", "INTER_NEAREST")


def hypotheses(data: bytes, spec: ProcessorSpec, run: ImageRun) -> Iterator[Hypothesis]:
    """Yield what another front end may do with a file. `run` is that of the reference."""

    def by(stage: str, text: str, stages: ImageStages, other: ProcessorSpec = spec) -> Hypothesis:
        """Return a hypothesis that runs no stage before the one that differs."""
        return Hypothesis(stage, text, lambda: run_image(data, stages, other, run).tensors[PIXEL_VALUES])

    yield from (by("decode", text, ImageStages(decode=made)) for text, made in _decodes(data))
    yield from (by("convert", text, stages) for text, stages in _converts(spec, run))
    yield from (by("resize", text, ImageStages(resize=made)) for text, made in _resizes(spec))
    for text, other in _other_sizes(spec):  # the plan is another one, so nothing of the run is of use
        yield Hypothesis("resize", text, partial(_with_another_spec, data, other))
    yield from (by("crop", text, ImageStages(place=made)) for text, made in _places(spec))
    for text, other in _other_places(spec):
        yield Hypothesis("crop", text, partial(_with_another_spec, data, other))
    yield from (by("normalize", text, ImageStages(normalize=made)) for text, made in _normalizations(spec))
    for name in WHOLE:
        yield from _whole(name, data, spec, run)


def _with_another_spec(data: bytes, spec: ProcessorSpec) -> NDArray[Any]:
    return run_image(data, IMAGE_STAGES, spec).tensors[PIXEL_VALUES]


# ---- Decode and convert ----


def _decodes(data: bytes) -> Iterator[tuple[str, Callable[[bytes, ProcessorSpec], Pixels]]]:
    if data.startswith(JPEG):
        yield "chroma by the nearest sample, in place of an interpolated one", nearest_chroma
        yield "the fast DCT, in place of the exact one", _by_fast_dct
        yield "the fast DCT, and chroma by the nearest sample", partial(_by_fast_dct, nearest=True)


def _by_fast_dct(data: bytes, spec: ProcessorSpec, nearest: bool = False) -> Pixels:
    return np.asarray(simplejpeg.decode_jpeg(data, colorspace="RGB", fastdct=True, fastupsample=nearest))


def _converts(spec: ProcessorSpec, run: ImageRun) -> Iterator[tuple[str, ImageStages]]:
    if run.turn is not Orientation.NONE:
        yield "the Exif orientation is ignored", ImageStages(convert=lambda pixels, _: pixels)
        yield "the image is turned the wrong way", ImageStages(convert=_turned_back)
    yield "red and blue are exchanged before normalize (BGR)", ImageStages(convert=_exchanged)
    if run.mode not in PLAIN:
        if run.mode.endswith(KEYED) and spec.on_white:
            yield "transparency is dropped, and the colour below it stays", ImageStages(decode=_without_transparency)
        if "A" in run.mode.upper() or run.mode.endswith(KEYED):
            for name, colour in (("white", 255), ("black", 0)):
                yield (
                    f"{name} behind transparency, in place of the colour below it",
                    ImageStages(decode=partial(_on_colour, colour=colour)),
                )
        if run.mode.startswith("I"):
            yield "16 bits become 8 by a division by 256", ImageStages(decode=_by_division)
        yield "as OpenCV converts this mode", ImageStages(decode=opencv_decode)
    yield "gray in place of colour", ImageStages(convert=_gray)


def _exchanged(pixels: Pixels, turn: Orientation) -> Pixels:
    return np.ascontiguousarray(IMAGE_STAGES.convert(pixels, turn)[..., ::-1])


def _turned_back(pixels: Pixels, turn: Orientation) -> Pixels:
    back = {
        Orientation.QUARTER_TURN: Orientation.BACK_QUARTER_TURN,
        Orientation.BACK_QUARTER_TURN: Orientation.QUARTER_TURN,
    }
    return IMAGE_STAGES.convert(pixels, back.get(turn, turn))


def _gray(pixels: Pixels, turn: Orientation) -> Pixels:
    upright = IMAGE_STAGES.convert(pixels, turn)
    return np.asarray(Image.fromarray(upright).convert("L").convert("RGB"))


def _without_transparency(data: bytes, spec: ProcessorSpec) -> Pixels:
    return decode(data, replace(spec, on_white=False))


def _on_colour(data: bytes, spec: ProcessorSpec, colour: int) -> Pixels:
    with Image.open(io.BytesIO(data)) as file:
        image = file.convert("RGBA")
    under = Image.new("RGBA", image.size, (colour, colour, colour, 255))
    return np.asarray(Image.alpha_composite(under, image).convert("RGB"))


def _by_division(data: bytes, spec: ProcessorSpec) -> Pixels:
    with Image.open(io.BytesIO(data)) as file:
        gray = (np.asarray(file).astype(np.int64) >> 8).astype(np.uint8)
    return np.repeat(gray[..., None], 3, axis=2)


# ---- Resize ----

Resize = Callable[[Pixels, Size, ProcessorSpec], Pixels]


def _resizes(spec: ProcessorSpec) -> Iterator[tuple[str, Resize]]:
    if not spec.sizes and spec.tiles is None:
        return
    for name in INTERPOLATIONS:
        yield f"OpenCV's {name}, without antialiasing", partial(_by_opencv, by=getattr(cv2, name))
    other = Engine.TORCHVISION if spec.engine is not Engine.TORCHVISION else engine_of_pillow()
    if _has(other, spec.filter):
        yield f"{spec.filter.value} by the engine {other.value}", partial(_by_engine, engine=other, by=spec.filter)
    yield f"{spec.filter.value} in float32, antialiased, without rounding to 8 bits", torch_float_resize
    yield f"{spec.filter.value} in float32, antialiased, rounded to 8 bits", _rounded
    for engine in (spec.engine, other):
        of_other = "" if engine is spec.engine else f" by the engine {engine.value}"
        for each in Filter:
            if each is not spec.filter and _has(engine, each):
                text = f"{each.value}{of_other} in place of {spec.filter.value}"
                yield text, partial(_by_engine, engine=engine, by=each)
    for mode in ("bilinear", "bicubic"):
        yield f"torch's {mode} in float32 without antialiasing", partial(_interpolated, mode=mode)
        yield f"torch's {mode} with align_corners", partial(_interpolated, mode=mode, align_corners=True)
    yield "torch's nearest", partial(_interpolated, mode="nearest")


def _has(engine: Engine, by: Filter) -> bool:
    return engine is not Engine.TORCHVISION or by in OF_TORCHVISION


def _by_opencv(pixels: Pixels, size: Size, spec: ProcessorSpec, by: int) -> Pixels:
    return np.asarray(cv2.resize(pixels, tuple(size), interpolation=by))


def _by_engine(pixels: Pixels, size: Size, spec: ProcessorSpec, engine: Engine, by: Filter) -> Pixels:
    return IMAGE_STAGES.resize(pixels, size, replace(spec, engine=engine, filter=by))


def _rounded(pixels: Pixels, size: Size, spec: ProcessorSpec) -> Pixels:
    return np.rint(torch_float_resize(pixels, size, spec)).astype(np.uint8)


def _interpolated(
    pixels: Pixels, size: Size, spec: ProcessorSpec, mode: str, align_corners: bool | None = None
) -> Pixels:
    torch = importlib.import_module("torch")
    values = torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.float32))[None]
    corners = {} if mode == "nearest" else {"align_corners": bool(align_corners)}
    made = torch.nn.functional.interpolate(values, size=(size.height, size.width), mode=mode, **corners)
    return np.ascontiguousarray(made[0].clamp(0, 255).numpy().transpose(1, 2, 0))


def _other_sizes(spec: ProcessorSpec) -> Iterator[tuple[str, ProcessorSpec]]:
    if isinstance(spec.place, Crop) and spec.sizes:
        squeezed = replace(spec, sizes=(FixedSize(*spec.place.size),), place=None)
        yield "the image is squeezed to the size of the crop, whatever its sides", squeezed
        yield "the centre of the image is cropped without a resize", replace(spec, sizes=())


# ---- Crop and pad ----

Place = Callable[[Pixels, Placement, ProcessorSpec], list[Pixels]]


def _places(spec: ProcessorSpec) -> Iterator[tuple[str, Place]]:
    if isinstance(spec.place, Crop):
        yield "the crop begins at the half rounded down", opencv_place
        yield "the crop begins as in transformers' classes for Pillow", pillow_place
        yield "the crop is the upper left corner", _corner


def _corner(pixels: Pixels, by: Placement, spec: ProcessorSpec) -> list[Pixels]:
    return place(pixels, replace(by, left=0, top=0), spec)


def _other_places(spec: ProcessorSpec) -> Iterator[tuple[str, ProcessorSpec]]:
    if isinstance(spec.place, Pad):
        there = "in the upper left corner" if spec.place.middle else "in the middle"
        yield (
            f"the image lies {there} of its padding",
            replace(spec, place=replace(spec.place, middle=not spec.place.middle)),
        )
    if isinstance(spec.place, Square):
        for name, level in (("black", 0), ("white", 255), ("gray", 127)):
            if spec.place.colour != (level,) * 3:
                yield f"{name} padding", replace(spec, place=Square((level, level, level)))


# ---- Normalize ----


def _normalizations(spec: ProcessorSpec) -> Iterator[tuple[str, Callable[[Pixels, ProcessorSpec], NDArray[Any]]]]:
    def constants(
        mean: tuple[float, float, float], std: tuple[float, float, float], rescale: float | None = 1 / 255
    ) -> Callable[[Pixels, ProcessorSpec], NDArray[Any]]:
        other = replace(
            spec, mean=mean, std=std, rescale=rescale, bfloat16=False, dtype=None, engine=engine_of_pillow()
        )
        return lambda pixels, _: by_formula(pixels, other)

    yield "the same formula in float32, in another order of its steps", by_formula
    yield "none: values of 0 to 255", lambda pixels, _: np.ascontiguousarray(pixels.transpose(2, 0, 1))
    yield "none: values of 0 to 1", constants(NONE, ONE)
    yield "values of -1 to 1 (mean and deviation of 0.5)", constants(HALF, HALF)
    yield "mean and deviation of ImageNet", constants(IMAGENET_MEAN, IMAGENET_STD)
    yield "mean and deviation of CLIP", constants(CLIP_MEAN, CLIP_STD)
    if spec.mean is not None and spec.std is not None:
        yield "mean and deviation of values that are not rescaled", constants(spec.mean, spec.std, None)
        yield "the mean is not subtracted", constants(NONE, spec.std)
        yield "there is no division by the deviation", constants(spec.mean, ONE)
        yield (
            "mean and deviation in the order blue, green, red",
            constants(spec.mean[::-1], spec.std[::-1]),
        )
    for dtype in ("float16", "bfloat16"):
        if spec.dtype is None and not spec.bfloat16 and (spec.mean is not None or spec.rescale is not None):
            yield f"values rounded to {dtype}", partial(_cast, dtype=dtype)


def _cast(pixels: Pixels, spec: ProcessorSpec, dtype: str) -> NDArray[Any]:
    made: NDArray[Any] = numbers(IMAGE_STAGES.normalize(pixels, spec.cast(dtype)))
    return made


# ---- Whole front ends ----


def _whole(name: str, data: bytes, spec: ProcessorSpec, run: ImageRun) -> Iterator[Hypothesis]:
    """Yield the hypothesis that a candidate is a built-in one. Its stage is the first at which that one differs."""
    try:
        stages = BUILT_IN[name].make(spec)
        yield Hypothesis(
            first_stage(own_results(data, stages, spec, run), results_of(run)),
            f"as the built-in candidate {name}",
            lambda: run_image(data, stages, spec, run).tensors[PIXEL_VALUES],
        )
    except (HeadraceError, ImportError, ValueError, RuntimeError, cv2.error):
        return


def first_stage(own: dict[str, list[NDArray[Any]]], expected: dict[str, list[NDArray[Any]]]) -> str:
    """Return the first stage whose results differ from the reference's, or "unknown"."""
    for name in IMAGE_NAMES:
        pairs = list(zip(own[name], expected[name], strict=True))
        if any(ours.shape != theirs.shape or gap(ours, theirs).any() for ours, theirs in pairs):
            return name
    return NO_STAGE


# ---- Layout ----


def arrangements(spec: ProcessorSpec, run: ImageRun) -> list[Arrangement]:
    """Return other layouts of `pixel_values`."""
    found = [Arrangement("red and blue are exchanged in the tensor", _rearranged(spec, run, bgr=True))]
    match spec.layout:
        case Images(channels_last=last):
            rows = -3 if last else -2
            found.append(
                Arrangement(
                    "the channels come first" if last else "the channels come last",
                    lambda values: np.moveaxis(values, -1, -3) if last else np.moveaxis(values, -3, -1),
                )
            )
            found.append(
                Arrangement("rows and columns are exchanged", lambda values: np.swapaxes(values, rows, rows + 1))
            )
            found.append(Arrangement("the batch axis is missing", lambda values: values[0]))
            found.append(
                Arrangement(
                    "the batch axis is missing, and the channels come last",
                    lambda values: np.moveaxis(values[0], -3, -1),
                )
            )
            found.append(Arrangement("there is one axis of length 1 more", lambda values: values[None]))
        case MergedPatches(side, _, frames) | PatchImages(side, frames):
            merged = isinstance(spec.layout, MergedPatches)
            if merged:
                plain = MergedPatches(side, 1, frames)
                found.append(Arrangement("patches row by row, not in merged squares", _rearranged(spec, run, plain)))
                found.append(
                    Arrangement(
                        "a patch has its channels last",
                        lambda values: (
                            values.reshape(-1, 3, frames, side, side).transpose(0, 2, 3, 4, 1).reshape(values.shape)
                        ),
                    )
                )
            found.append(Arrangement("there is one axis of length 1 more", lambda values: values[None]))
            if frames > 1 and merged:
                found.append(
                    Arrangement(
                        "a patch has one frame, not several",
                        lambda values: values.reshape(-1, 3, frames, side, side)[:, :, 0].reshape(len(values), -1),
                    )
                )
        case PaddedPatches(side):
            found.append(
                Arrangement(
                    "a patch has its channels first",
                    lambda values: np.moveaxis(values.reshape(*values.shape[:-1], side, side, 3), -1, -3).reshape(
                        values.shape
                    ),
                )
            )
            found.append(Arrangement("the batch axis is missing", lambda values: values[0]))
    return found


def _rearranged(
    spec: ProcessorSpec, run: ImageRun, other: Layout | None = None, bgr: bool = False
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return the function that puts the values of a tensor in another layout, or exchanges red and blue.

    It numbers the values to find their places."""

    def made(values: NDArray[Any]) -> NDArray[Any]:
        numbered = np.arange(1, run.planes.size + 1).reshape(run.planes.shape)
        there = laid_out(numbered, spec.layout)
        if there.shape != values.shape:
            raise ValueError("the tensor has another shape")
        return _moved(values, there, laid_out(numbered[:, ::-1] if bgr else numbered, other or spec.layout))

    return made


def _moved(values: NDArray[Any], there: NDArray[Any], wanted: NDArray[Any]) -> NDArray[Any]:
    """Return values whose numbers are `there`, in the order of the numbers `wanted`. 0 is a filled place."""
    place_of = np.zeros(int(there.max()) + 1, np.int64)
    place_of[there.ravel()] = np.arange(there.size)
    made: NDArray[Any] = np.where(wanted == 0, values.ravel()[0] * 0, values.ravel()[place_of[wanted]])
    return made
