"""This module has the built-in candidates for images: other libraries, each with its usual pipeline.

| name | what is its own |
| --- | --- |
| headrace | Headrace's CPU path, which has the functions of the reference |
| pillow | resize by the installed Pillow, crop as the classes of transformers for Pillow, the formula in float32 |
| torchvision | no Exif orientation; resize (antialiased, uint8), crop and normalize by torchvision |
| opencv | decode and resize (not antialiased) by OpenCV, a crop that rounds down, the formula in float32 |
| torch-float | resize by torch, antialiased, in float32 without rounding; the formula in float32 |
| dali-like | chroma of JPEG files by the nearest sample, as libjpeg-turbo does without fancy upsampling |
| nvimagecodec | decode by nvImageCodec, on a GPU |

All else is as in the reference. All take the sizes of the reference's plan, and its layout.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from headrace.batching import CorruptInput, UsageError
from headrace.batching.errors import one_line
from headrace.host.compare.stages import (
    IMAGE_STAGES,
    ImageStages,
    Pixels,
    by_formula,
    decode,
    engine_of_pillow,
    installed,
    place,
)
from headrace.host.dpu.processors import Crop, Filter, Placement, ProcessorSpec, Size
from headrace.host.dpu.specs import Orientation

FOUR_COMPONENTS: Final = ("CMYK", "YCCK")  # as simplejpeg names them
JPEG: Final = b"\xff\xd8\xff"
OF_PILLOW: Final = {
    Filter.BOX: Image.Resampling.BOX,
    Filter.BILINEAR: Image.Resampling.BILINEAR,
    Filter.HAMMING: Image.Resampling.HAMMING,
    Filter.BICUBIC: Image.Resampling.BICUBIC,
    Filter.LANCZOS: Image.Resampling.LANCZOS,
}
OF_OPENCV: Final = {
    Filter.BOX: cv2.INTER_AREA,
    Filter.BILINEAR: cv2.INTER_LINEAR,
    Filter.HAMMING: cv2.INTER_AREA,
    Filter.BICUBIC: cv2.INTER_CUBIC,
    Filter.LANCZOS: cv2.INTER_LANCZOS4,
}
OF_TORCH: Final = {Filter.BILINEAR: "bilinear", Filter.BICUBIC: "bicubic"}
NVIMGCODEC: Final = "nvidia.nvimgcodec"


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in candidate: its stages, and the versions of its libraries."""

    make: Callable[[ProcessorSpec], ImageStages]
    packages: tuple[str, ...]

    @property
    def versions(self) -> dict[str, str]:
        return {name: installed(name) for name in self.packages}


# ---- Pillow ----


def pillow_resize(pixels: Pixels, size: Size, spec: ProcessorSpec) -> Pixels:
    """Return an image in another size, by the installed Pillow."""
    return np.asarray(Image.fromarray(pixels).resize((size.width, size.height), OF_PILLOW[spec.filter]))


def pillow_place(pixels: Pixels, by: Placement, spec: ProcessorSpec) -> list[Pixels]:
    """Place an image as the classes of transformers for Pillow do: an odd row of zeros is before it."""
    return place(pixels, _placement(pixels, by, spec), spec)


def _placement(pixels: Pixels, by: Placement, spec: ProcessorSpec) -> Placement:
    if not isinstance(spec.place, Crop):
        return by
    return spec.place.of(Size(pixels.shape[1], pixels.shape[0]), engine_of_pillow())


def _pillow(spec: ProcessorSpec) -> ImageStages:
    return ImageStages(resize=pillow_resize, place=pillow_place, normalize=_formula_of(spec))


def _formula_of(spec: ProcessorSpec) -> Callable[[Pixels, ProcessorSpec], NDArray[Any]]:
    """Return the formula in float32, or the reference's table where the values are no plain float32."""
    plain = spec.table().dtype == np.float32 and not spec.bfloat16
    return by_formula if plain else IMAGE_STAGES.normalize


# ---- torch and torchvision ----


@cache
def _torchvision() -> Any:
    """Return torchvision's functional transforms. Raises UsageError if torchvision does not load."""
    try:
        # A torchvision that was built for CUDA loads with a torch without it only after this module.
        importlib.import_module("headrace.host.workers.networks.zoo.torchvision_operators")
        return importlib.import_module("torchvision.transforms.v2.functional")
    except ModuleNotFoundError:
        raise
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            f"torchvision does not load here ({one_line(error)}); pip install 'headrace[torch]'"
        ) from error


def _without_turn(pixels: Pixels, turn: Orientation) -> Pixels:
    """Leave an image as it is stored. `PIL.Image.open(file).convert("RGB")` does so, as torchvision's datasets do."""
    return pixels


def torchvision_resize(pixels: Pixels, size: Size, spec: ProcessorSpec) -> Pixels:
    """Return an image in another size, by torchvision's antialiased resize of uint8."""
    modes = importlib.import_module("torchvision.transforms").InterpolationMode
    if spec.filter is Filter.LANCZOS:
        made = _torchvision().resize(Image.fromarray(pixels), [size.height, size.width], modes.LANCZOS)
        return np.asarray(made)
    by = {Filter.BILINEAR: modes.BILINEAR, Filter.BICUBIC: modes.BICUBIC}.get(spec.filter)
    if by is None:
        raise UsageError(f"torchvision has no filter {spec.filter.value}; choose the candidate pillow")
    made = _torchvision().resize(_tensor(pixels), [size.height, size.width], by, antialias=True)
    return _array(made)


def torchvision_place(pixels: Pixels, by: Placement, spec: ProcessorSpec) -> list[Pixels]:
    """Crop as torchvision's center_crop does. It has no pad of an image processor, so the reference pads."""
    if not isinstance(spec.place, Crop):
        return place(pixels, by, spec)
    made = _torchvision().center_crop(_tensor(pixels), [spec.place.size.height, spec.place.size.width])
    return [_array(made)]


def torchvision_normalize(pixels: Pixels, spec: ProcessorSpec) -> NDArray[np.float32]:
    """Return the values of an image by torchvision's `to_dtype(scale=True)` and `normalize`."""
    functional, torch = _torchvision(), importlib.import_module("torch")
    values = _tensor(pixels)
    if spec.rescale is not None:
        values = functional.to_dtype(values, torch.float32, scale=True)
        if abs(spec.rescale * 255 - 1) > 1e-6:
            values = values * (spec.rescale * 255)
    if spec.mean is not None and spec.std is not None:
        values = functional.normalize(values.to(torch.float32), list(spec.mean), list(spec.std))
    made: NDArray[np.float32] = values.to(torch.float32).numpy()
    return made


def torch_float_resize(pixels: Pixels, size: Size, spec: ProcessorSpec) -> Pixels:
    """Return an image in another size by torch, antialiased, in float32 and without rounding, as on many GPUs."""
    torch = importlib.import_module("torch")
    by = OF_TORCH.get(spec.filter)
    if by is None:
        raise UsageError(f"torch has no filter {spec.filter.value}; choose the candidate pillow")
    values = _tensor(pixels).to(torch.float32)[None]
    made = torch.nn.functional.interpolate(
        values, size=(size.height, size.width), mode=by, antialias=True, align_corners=False
    )
    return _array(made[0].clamp(0, 255))


def _tensor(pixels: Pixels) -> Any:
    """Return an image as a tensor (3, rows, columns)."""
    torch = importlib.import_module("torch")
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def _array(tensor: Any) -> Pixels:
    return np.ascontiguousarray(tensor.numpy().transpose(1, 2, 0))


def _of_torchvision(spec: ProcessorSpec) -> ImageStages:
    _torchvision()
    plain = _formula_of(spec) is by_formula
    return ImageStages(
        convert=_without_turn,
        resize=torchvision_resize,
        place=torchvision_place,
        normalize=torchvision_normalize if plain else IMAGE_STAGES.normalize,
    )


def _of_torch(spec: ProcessorSpec) -> ImageStages:
    importlib.import_module("torch")
    return ImageStages(resize=torch_float_resize, normalize=by_formula)


# ---- OpenCV ----


def opencv_decode(data: bytes, spec: ProcessorSpec) -> Pixels:
    """Return the RGB pixels of a file by OpenCV, as they are stored. Raises CorruptInput for a file it cannot read."""
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None:
        raise CorruptInput("OpenCV decodes no image from these bytes")
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def opencv_resize(pixels: Pixels, size: Size, spec: ProcessorSpec) -> Pixels:
    """Return an image in another size by OpenCV, whose filters do not widen for an image that shrinks."""
    return np.asarray(cv2.resize(pixels, tuple(size), interpolation=OF_OPENCV[spec.filter]))


def opencv_place(pixels: Pixels, by: Placement, spec: ProcessorSpec) -> list[Pixels]:
    """Crop from (rows - height) // 2 on, as is usual with arrays. A pad is the reference's."""
    if not isinstance(spec.place, Crop):
        return place(pixels, by, spec)
    left, top = (
        (wanted - there) // 2 if there < wanted else -((there - wanted) // 2)
        for there, wanted in zip((pixels.shape[1], pixels.shape[0]), spec.place.size, strict=True)
    )
    return place(pixels, replace(by, left=left, top=top), spec)


def _opencv(spec: ProcessorSpec) -> ImageStages:
    return ImageStages(decode=opencv_decode, resize=opencv_resize, place=opencv_place, normalize=_formula_of(spec))


# ---- Decoders of GPUs ----


def nearest_chroma(data: bytes, spec: ProcessorSpec) -> Pixels:
    """Return the RGB pixels of a JPEG file with each chroma sample repeated, in place of interpolated ones.

    Other files, and JPEG files in CMYK, are as the reference decodes them."""
    if not data.startswith(JPEG) or simplejpeg.decode_jpeg_header(data)[2] in FOUR_COMPONENTS:
        return decode(data, spec)
    return np.asarray(simplejpeg.decode_jpeg(data, colorspace="RGB", fastdct=False, fastupsample=True))


def _dali_like(spec: ProcessorSpec) -> ImageStages:
    return ImageStages(decode=nearest_chroma)


@cache
def _nvimgcodec() -> tuple[Any, Any]:
    """Return the module and a decoder. Raises UsageError where the package or a GPU is missing."""
    try:
        module = importlib.import_module(NVIMGCODEC)
    except ImportError as error:
        raise UsageError(
            f"--candidate nvimagecodec: its package does not load ({one_line(error)}); pip install "
            "nvidia-nvimgcodec-cu12 on a machine with a GPU, or choose dali-like"
        ) from error
    try:
        return module, module.Decoder()
    except Exception as error:
        raise UsageError(
            f"--candidate nvimagecodec: it finds no GPU ({one_line(error)}); run it on a machine with one, or choose "
            "dali-like"
        ) from error


def _nvimgcodec_decode(data: bytes, spec: ProcessorSpec) -> Pixels:
    module, decoder = _nvimgcodec()
    params = module.DecodeParams(apply_exif_orientation=False, color_spec=module.ColorSpec.RGB)
    image = decoder.decode(data, params=params)
    if image is None:
        raise CorruptInput("nvImageCodec decodes no image from these bytes")
    return np.asarray(image.cpu())


def _of_nvimgcodec(spec: ProcessorSpec) -> ImageStages:
    _nvimgcodec()
    return ImageStages(decode=_nvimgcodec_decode)


BUILT_IN: Final[Mapping[str, BuiltIn]] = {
    "headrace": BuiltIn(lambda _: IMAGE_STAGES, ("headrace", "pillow", "numpy")),
    "pillow": BuiltIn(_pillow, ("pillow", "numpy")),
    "torchvision": BuiltIn(_of_torchvision, ("torchvision", "torch", "pillow")),
    "opencv": BuiltIn(_opencv, ("opencv-python-headless", "numpy")),
    "torch-float": BuiltIn(_of_torch, ("torch", "pillow")),
    "dali-like": BuiltIn(_dali_like, ("simplejpeg", "headrace")),
    "nvimagecodec": BuiltIn(_of_nvimgcodec, ("nvidia-nvimgcodec-cu12", "headrace")),
}
