"""What image preprocessing is asked to do, and the same on the CPU with OpenCV: the reference and the fallback path.

Four stages, each on the result of the one before: decode (JPEG to RGB), resize (shorter side), crop, normalize.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.dpu.reference import image_file
from headrace.host.dpu.reference.image_file import Damaged
from headrace.host.dpu.reference.orientation import Orientation, orientation

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # RGB, of pixel values in 0..1; torchvision's training transform
IMAGENET_STD = (0.229, 0.224, 0.225)
MAX_MEGAPIXELS = 100  # what cameras of medium format have; OpenCV holds 3 bytes a pixel


class Stage(IntEnum):
    """The last stage that runs. The values are those of the image CU's `stage` register."""

    DECODE = 0
    RESIZE = 1
    CROP = 2
    NORMALIZE = 3


FORMATS = ("float32", "float16", "int8")  # index = value of the image CU's `format` register


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """Sizes in pixels; a crop offset of None centres the window. `int8_step` is the value of one int8 step; None
    chooses the smallest step that holds every value of the three tables. `max_megapixels` and `damaged` say what the
    CPU takes; the DPU has limits of its own, and never takes a file that it finds damaged.

    With `orient`, a JPEG file's result is turned upright as its Exif orientation says, after the other stages, whose
    crop has its sides exchanged where that exchanges them. Resizing and cropping the upright photo instead differs by
    no more than rounding: by a level, and by a pixel where an odd number of pixels is cropped away. It needs a centred
    crop."""

    resize_short: int = 256
    crop_width: int = 224
    crop_height: int = 224
    crop_x: int | None = None
    crop_y: int | None = None
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    dtype: str = "float32"
    int8_step: float | None = None
    max_megapixels: int = MAX_MEGAPIXELS
    damaged: Damaged = Damaged.STRICT
    orient: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in FORMATS:
            raise UsageError(f"tensor type {self.dtype!r} is not one of {', '.join(FORMATS)}")
        for name in ("resize_short", "crop_width", "crop_height"):
            if not 1 <= getattr(self, name) <= 65535:
                raise UsageError(f"{name} is {getattr(self, name)}; give 1 to 65535 pixels")
        for name in ("crop_x", "crop_y"):
            offset = getattr(self, name)
            if offset is not None and not 0 <= offset <= 65535:
                raise UsageError(f"{name} is {offset}; give 0 to 65535 pixels, or nothing to centre the crop")
        if self.orient and (self.crop_x is not None or self.crop_y is not None):
            raise UsageError("a photo that is turned is cropped in its middle: give no crop offsets with orient")
        if not all(s > 0 for s in self.std):
            raise UsageError(f"std is {self.std}; each channel's must be above 0")
        if self.int8_step is not None and not self.int8_step > 0:
            raise UsageError(f"int8_step is {self.int8_step}; it must be above 0")

    @property
    def tensor_shape(self) -> tuple[int, int, int]:
        return (3, self.crop_height, self.crop_width)

    def turn(self, found: Orientation) -> Orientation:
        """By which a photo of that orientation is turned."""
        return found if self.orient else Orientation.NONE

    def as_stored(self, found: Orientation) -> "ImageSpec":
        """What is asked of a photo of that orientation before it is turned."""
        width, height = self.crop_width, self.crop_height
        if self.turn(found).exchanges_sides:
            width, height = height, width
        return replace(self, orient=False, crop_width=width, crop_height=height)

    def tables(self) -> NDArray[Any]:
        """The normalized value of every pixel value, shape (3, 256), in `dtype`: what the CU and the CPU look up.

        `(x / 255 - mean) / std` in float32, then rounded to `dtype`."""
        mean, std = (np.asarray(value, np.float32)[:, None] for value in (self.mean, self.std))
        values = (np.arange(256, dtype=np.float32) / np.float32(255) - mean) / std
        if self.dtype != "int8":
            return values.astype(self.dtype, copy=False)
        step = self.int8_step
        if step is None:
            step = float(np.abs(values).max()) / 127
        return np.clip(np.rint(values / np.float32(step)), -127, 127).astype(np.int8)


def pixels(tensor: NDArray[Any], spec: ImageSpec) -> NDArray[np.uint8]:
    """HWC RGB: the pixels that `tensor` was looked up for, as far as its type tells them apart."""
    planes = [np.searchsorted(table, plane) for table, plane in zip(spec.tables(), tensor, strict=True)]
    return np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8)


def upright(output: NDArray[Any], turn: Orientation, stage: Stage) -> NDArray[Any]:
    """The output of `stage`, turned."""
    return turn.turned(output, rows=1 if stage == Stage.NORMALIZE else 0)


def resized_size(width: int, height: int, short: int) -> tuple[int, int]:
    """(width, height) after the shorter side becomes `short`; the longer rounds down, as torchvision's Resize does."""
    if width <= height:
        return short, short * height // width
    return short * width // height, short


def preprocess(jpeg: bytes, spec: ImageSpec, stage: Stage = Stage.NORMALIZE) -> NDArray[Any]:
    """Run the stages up to `stage` on the CPU.

    Returns HWC uint8 RGB up to the crop, CHW `spec.dtype` after normalize. Raises CorruptInput when the bytes are
    nothing that `photo_file.decode` takes and UsageError when the crop does not lie inside the resized image."""
    return process(jpeg, spec, stage)[0]


def process(
    jpeg: bytes, spec: ImageSpec, stage: Stage = Stage.NORMALIZE
) -> tuple[NDArray[Any], str | None, Orientation]:
    """What `preprocess` returns, what is wrong with the file, if `spec.damaged` lets it pass, and how it is to be
    turned, or has been."""
    photo = image_file.decode(jpeg, spec.max_megapixels, spec.damaged)
    found = orientation(jpeg)
    pixels = _through(photo.pixels, spec.as_stored(found), stage)
    return upright(pixels, spec.turn(found), stage), photo.damage, found


def _through(image: NDArray[np.uint8], spec: ImageSpec, stage: Stage) -> NDArray[Any]:
    if stage >= Stage.RESIZE:
        size = resized_size(image.shape[1], image.shape[0], spec.resize_short)
        if max(size) > 65535:
            raise UsageError(
                f"resizing {image.shape[1]}x{image.shape[0]} to a shorter side of {spec.resize_short} "
                f"gives {size[0]}x{size[1]}; at most 65535 pixels on a side"
            )
        image = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR_EXACT)
    if stage >= Stage.CROP:
        image = _cropped(image, spec)
    if stage < Stage.NORMALIZE:
        return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    tensor = np.empty(spec.tensor_shape, spec.dtype)
    for plane, table, normalized in zip(reversed(cv2.split(image)), spec.tables(), tensor, strict=True):
        cv2.LUT(plane, table, dst=normalized)
    return tensor


def _cropped(image: NDArray[np.uint8], spec: ImageSpec) -> NDArray[np.uint8]:
    height, width = image.shape[:2]
    # Python's round is half to even, as in torchvision's CenterCrop.
    x = round((width - spec.crop_width) / 2) if spec.crop_x is None else spec.crop_x
    y = round((height - spec.crop_height) / 2) if spec.crop_y is None else spec.crop_y
    if x < 0 or y < 0 or x + spec.crop_width > width or y + spec.crop_height > height:
        raise UsageError(
            f"a crop of {spec.crop_width}x{spec.crop_height} at ({x}, {y}) is not inside the {width}x{height} image; "
            "make the crop smaller or resize_short larger"
        )
    return image[y : y + spec.crop_height, x : x + spec.crop_width]
