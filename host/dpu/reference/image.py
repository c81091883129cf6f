"""This module defines image preprocessing and computes it on the CPU with OpenCV: the units' reference and the
fallback.

Each of the four stages takes the result of the one before: decode (JPEG to RGB), resize (shorter side), crop,
normalize.
"""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.dpu.reference import image_file
from headrace.host.dpu.reference.orientation import orientation
from headrace.host.dpu.specs import ImageSpec, ImageStage, Orientation


def pixels(tensor: NDArray[Any], tables: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the pixels (HWC RGB) from which `tensor` (CHW) was made, as far as the tensor's type distinguishes them.

    `tables` are the values of all pixel values, shape (3, 256), which must rise."""
    planes = [np.searchsorted(table, plane) for table, plane in zip(tables, tensor, strict=True)]
    return np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8)


def upright(output: NDArray[Any], turn: Orientation, stage: ImageStage) -> NDArray[Any]:
    """Return the output of `stage`, turned by `turn`."""
    return turn.turned(output, rows=1 if stage == ImageStage.NORMALIZE else 0)


def resized_size(width: int, height: int, short: int) -> tuple[int, int]:
    """Return (width, height) after the shorter side becomes `short`. The longer side rounds down, as in torchvision's
    Resize."""
    if width <= height:
        return short, short * height // width
    return short * width // height, short


def preprocess(jpeg: bytes, spec: ImageSpec, stage: ImageStage = ImageStage.NORMALIZE) -> NDArray[Any]:
    """Run the stages up to `stage` on the CPU.

    Returns:
        HWC uint8 RGB up to the crop, CHW `spec.dtype` after normalize.

    Raises:
        CorruptInput: `image_file.decode` refuses the bytes.
        UsageError: The crop does not lie inside the resized image, or that image is too large.
    """
    return process(jpeg, spec, stage)[0]


def process(
    jpeg: bytes, spec: ImageSpec, stage: ImageStage = ImageStage.NORMALIZE
) -> tuple[NDArray[Any], str | None, Orientation]:
    """Run the stages up to `stage` on the CPU, and report on the file.

    Returns:
        The result of `preprocess`; the fault of the file, if `spec.damaged` lets it pass, else None; and the file's
            orientation, whether or not the result is turned by it.
    """
    decoded = image_file.decode(jpeg, spec.max_megapixels, spec.damaged)
    exif = orientation(jpeg)
    pixels = _through(decoded.pixels, spec.as_stored(exif), stage)
    return upright(pixels, spec.turn(exif), stage), decoded.damage, exif


def _through(image: NDArray[np.uint8], spec: ImageSpec, stage: ImageStage) -> NDArray[Any]:
    if stage >= ImageStage.RESIZE:
        size = resized_size(image.shape[1], image.shape[0], spec.resize_short)
        if max(size) > 65535:
            raise UsageError(
                f"resizing {image.shape[1]}x{image.shape[0]} to a shorter side of {spec.resize_short} "
                f"gives {size[0]}x{size[1]}; at most 65535 pixels on a side"
            )
        image = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR_EXACT)
    if stage >= ImageStage.CROP:
        image = _cropped(image, spec)
    if stage < ImageStage.NORMALIZE:
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
