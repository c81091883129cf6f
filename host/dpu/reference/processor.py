"""This module defines the results of a `ProcessorSpec` and computes them on the CPU."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.host.dpu.processors import Engine, Patches, ProcessorSpec, Size
from headrace.host.dpu.reference import resampler


def process(image: NDArray[np.uint8], spec: ProcessorSpec) -> dict[str, NDArray[Any]]:
    """Return the tensors of an RGB image, shape (rows, columns, 3), by the names that transformers gives them.

    `pixel_values` has shape (1, 3, rows, columns), or (patches, values) for a layout in patches. With patches,
    `image_grid_thw` has the number of frames, and of patches on the height and on the width.

    Raises:
        UsageError: The spec does not take an image of this size.
    """
    size = spec.resized(Size(image.shape[1], image.shape[0]))
    image = resampler.resize(image, size.width, size.height, spec.filter, spec.engine)
    if spec.crop is not None:
        image = cropped(image, spec.crop, spec.engine)
    table = spec.table()
    planes = np.stack([table[channel][image[..., channel]] for channel in range(3)])
    if spec.patches is None:
        return {"pixel_values": planes[None]}
    grid = [1, planes.shape[1] // spec.patches.side, planes.shape[2] // spec.patches.side]
    return {"pixel_values": patched(planes, spec.patches), "image_grid_thw": np.array([grid])}


def cropped(image: NDArray[np.uint8], crop: Size, engine: Engine) -> NDArray[np.uint8]:
    """Return the centre of an image. Zeros pad an image that is smaller.

    Where their number is odd, torchvision has one more behind the image, and Pillow's path has one more before it."""
    more = [max(0, side - there) for side, there in zip((crop.height, crop.width), image.shape[:2], strict=True)]
    before = [number // 2 if engine is Engine.TORCHVISION else number - number // 2 for number in more]
    around = [(first, number - first) for first, number in zip(before, more, strict=True)]
    image = np.pad(image, [*around, (0, 0)])
    top, left = (image.shape[0] - crop.height) // 2, (image.shape[1] - crop.width) // 2
    return image[top : top + crop.height, left : left + crop.width]


def patched(planes: NDArray[Any], by: Patches) -> NDArray[Any]:
    """Return planes (channels, rows, columns) as rows of patches."""
    channels, height, width = planes.shape
    down, across = height // by.side // by.merge, width // by.side // by.merge
    squares = planes.reshape(channels, down, by.merge, by.side, across, by.merge, by.side)
    rows = squares.transpose(1, 4, 2, 5, 0, 3, 6)  # down, across, the patch of a square, channel, row, column
    repeated = np.repeat(rows[:, :, :, :, :, None], by.frames, axis=5)
    return repeated.reshape(down * across * by.merge**2, channels * by.frames * by.side**2)
