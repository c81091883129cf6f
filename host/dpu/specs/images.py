"""This module has the settings of Headrace's own image preprocessing."""

from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # RGB, of pixel values in 0..1; torchvision's training transform
IMAGENET_STD = (0.229, 0.224, 0.225)
MAX_MEGAPIXELS = 100  # medium format cameras make images of this size; OpenCV holds 3 bytes a pixel
IMAGE_FORMATS = ("float32", "float16", "int8")  # index = value of the image CU's `format` register


class ImageStage(IntEnum):
    """The last stage that runs. The values are those of the image CU's `stage` register."""

    DECODE = 0
    RESIZE = 1
    CROP = 2
    NORMALIZE = 3


class Damaged(Enum):
    """The rule for a damaged file from which OpenCV still makes an image: STRICT refuses it, LENIENT takes it."""

    STRICT = "strict"
    LENIENT = "lenient"


class Orientation(IntEnum):
    """The step that turns a stored image upright. The values are those of the Exif tag (CIPA DC-008, tag 0x0112).

    From 5 on, the step exchanges rows and columns first and then mirrors the image."""

    NONE = 1
    MIRROR = 2
    HALF_TURN = 3
    FLIP = 4
    TRANSPOSE = 5
    QUARTER_TURN = 6  # clockwise
    TRANSVERSE = 7
    BACK_QUARTER_TURN = 8

    @property
    def exchanges_sides(self) -> bool:
        return self >= Orientation.TRANSPOSE

    @property
    def mirrors(self) -> tuple[bool, bool]:
        """Whether the step mirrors the columns, and whether it mirrors the rows, of the upright image."""
        return (
            self in (self.MIRROR, self.HALF_TURN, self.QUARTER_TURN, self.TRANSVERSE),
            self in (self.HALF_TURN, self.FLIP, self.TRANSVERSE, self.BACK_QUARTER_TURN),
        )

    def view(self, image: NDArray[Any], rows: int) -> NDArray[Any]:
        """Return a view of the image upright. Axis `rows` of `image` holds its rows, and the next axis its columns."""
        columns = rows + 1
        if self.exchanges_sides:
            image = image.swapaxes(rows, columns)
        for axis, mirrored in zip((columns, rows), self.mirrors, strict=True):
            if mirrored:
                image = np.flip(image, axis)
        return image

    def turned(self, image: NDArray[Any], rows: int) -> NDArray[Any]:
        """Return the same as a copy."""
        return np.ascontiguousarray(self.view(image, rows))


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """The settings of image preprocessing: decode (JPEG to RGB), resize (shorter side), crop and normalize.

    Args:
        resize_short: Length of the shorter side after the resize, in pixels.
        crop_width, crop_height: Size of the crop window, in pixels.
        crop_x, crop_y: Offset of the window, in pixels. None centres the window.
        mean, std: One value per RGB channel, for pixel values in 0..1.
        dtype: Type of the tensor, one of IMAGE_FORMATS.
        int8_step: Value of one int8 step. None chooses the smallest step that holds every value of the three tables.
        max_megapixels: Largest image that the CPU takes. The DPU has limits of its own.
        damaged: Rule of the CPU for damaged files. The DPU never takes a file that it finds damaged.
        orient: Turn the result upright, as the file's Exif orientation says. It needs a centred crop.

    `orient` turns the image after the other stages. Where the turn exchanges the sides, the crop window has its sides
    exchanged too. To turn the image before the resize would give the same result up to rounding: one level, and one
    pixel where the crop cuts off an odd number of pixels.

    Raises:
        UsageError: A value is outside its range.
    """

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
        if self.dtype not in IMAGE_FORMATS:
            raise UsageError(f"tensor type {self.dtype!r} is not one of {', '.join(IMAGE_FORMATS)}")
        for name in ("resize_short", "crop_width", "crop_height"):
            if not 1 <= getattr(self, name) <= 65535:
                raise UsageError(f"{name} is {getattr(self, name)}; give 1 to 65535 pixels")
        for name in ("crop_x", "crop_y"):
            offset = getattr(self, name)
            if offset is not None and not 0 <= offset <= 65535:
                raise UsageError(f"{name} is {offset}; give 0 to 65535 pixels, or nothing to centre the crop")
        if self.orient and (self.crop_x is not None or self.crop_y is not None):
            raise UsageError("orient needs a centred crop; give no crop offsets with it")
        if not all(s > 0 for s in self.std):
            raise UsageError(f"std is {self.std}; each channel's must be above 0")
        if self.int8_step is not None and not self.int8_step > 0:
            raise UsageError(f"int8_step is {self.int8_step}; it must be above 0")

    @property
    def tensor_shape(self) -> tuple[int, int, int]:
        return (3, self.crop_height, self.crop_width)

    def turn(self, orientation: Orientation) -> Orientation:
        """Return the turn that this spec applies to an image with that orientation: NONE without `orient`."""
        return orientation if self.orient else Orientation.NONE

    def as_stored(self, orientation: Orientation) -> "ImageSpec":
        """Return the spec for the stages before the turn, for an image with that orientation."""
        width, height = self.crop_width, self.crop_height
        if self.turn(orientation).exchanges_sides:
            width, height = height, width
        return replace(self, orient=False, crop_width=width, crop_height=height)

    def tables(self) -> NDArray[Any]:
        """Return the normalized value of every pixel value, shape (3, 256), in `dtype`.

        A value is `(x / 255 - mean) / std` in float32, then rounded to `dtype`. The CU and the CPU both look up their
        results in these tables."""
        mean, std = (np.asarray(value, np.float32)[:, None] for value in (self.mean, self.std))
        values = (np.arange(256, dtype=np.float32) / np.float32(255) - mean) / std
        if self.dtype != "int8":
            return values.astype(self.dtype, copy=False)
        step = self.int8_step
        if step is None:
            step = float(np.abs(values).max()) / 127
        quantized: np.ndarray[Any, Any] = np.clip(np.rint(values / np.float32(step)), -127, 127).astype(np.int8)
        return quantized
