"""This module defines the results of a `ProcessorSpec` and computes them on the CPU."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.host.dpu.processors import (
    Engine,
    Layout,
    MergedPatches,
    PaddedPatches,
    PatchImages,
    Planes,
    ProcessorSpec,
    Size,
    StackedTiles,
    TileRows,
    Tiles,
)
from headrace.host.dpu.reference import resampler


def process(image: NDArray[np.uint8], spec: ProcessorSpec) -> dict[str, NDArray[Any]]:
    """Return the tensors of an RGB image, shape (rows, columns, 3), by the names that transformers gives them.

    The layout of the spec says which shape `pixel_values` has, and which other tensors there are (`laid_out`).

    Raises:
        UsageError: The spec does not take an image of this size.
    """
    source = Size(image.shape[1], image.shape[0])
    size = spec.resized(source)
    resized = resampler.resize(image, size.width, size.height, spec.filter, spec.engine)
    if spec.tiles is not None:
        images = tiled(resized, spec.tiles.canvas.of(source, spec.tiles.tile), spec.tiles)
        if spec.tiles.thumbnail_first or len(images) > 1:
            thumbnail = resampler.resize(image, *spec.tiles.tile, spec.filter, spec.engine)
            images.insert(0 if spec.tiles.thumbnail_first else len(images), thumbnail)
    else:
        if spec.crop is not None:
            resized = cropped(resized, spec.crop, spec.engine)
        images = [resized if spec.square is None else squared(resized, spec.square)]
    table = spec.table()
    planes = [np.stack([table[channel][each[..., channel]] for channel in range(3)]) for each in images]
    return laid_out(np.stack(planes), spec.layout, source)


def laid_out(images: NDArray[Any], by: Layout, source: Size) -> dict[str, NDArray[Any]]:
    """Return images (number, channels, rows, columns) as `pixel_values` in a layout, with what else the model needs.

    There are several images with a layout of tiles only. The tensors beside `pixel_values`:

    image_grid_thw          numbers of frames, and of patches on the height and on the width
    spatial_shapes          the latter two
    pixel_attention_mask    1 for each patch that is none of the zeros
    image_sizes             rows and columns: of the result for `Planes`, of the source for `StackedTiles`
    batch_num_images        the number of images, 1
    num_patches             the number of tiles
    """
    planes = images[0]
    match by:
        case Planes(sizes=False):
            return {"pixel_values": images}
        case Planes():
            return {"pixel_values": images, "image_sizes": np.array([planes.shape[1:]])}
        case StackedTiles(number):
            tensors = {"pixel_values": images[None], "image_sizes": np.array([[source.height, source.width]])}
            return {**tensors, "batch_num_images": np.array([1])} if number else tensors
        case TileRows():
            return {"pixel_values": images, "num_patches": np.array([len(images)])}
        case MergedPatches(side, merge, frames):
            squares = _split(planes, side, merge)  # down, across, the patch of a square, channel, row, column
            rows = np.repeat(squares[..., None, :, :], frames, axis=-3)
            grid = [1, planes.shape[1] // side, planes.shape[2] // side]
            values = 3 * frames * side**2
            return {"pixel_values": rows.reshape(-1, values), "image_grid_thw": np.array([grid])}
        case PatchImages(side, frames):
            patches = np.repeat(_split(planes, side, 1)[..., None, :, :], frames, axis=-3)
            grid = [1, planes.shape[1] // side, planes.shape[2] // side]
            return {"pixel_values": patches.reshape(-1, 3 * frames, side, side), "image_grid_thw": np.array([grid])}
        case PaddedPatches(side, rows):
            patches = np.moveaxis(_split(planes, side, 1), 4, -1).reshape(-1, side * side * 3)
            padded = np.zeros((rows, patches.shape[1]), planes.dtype)
            padded[: len(patches)] = patches
            return {
                "pixel_values": padded[None],
                "pixel_attention_mask": (np.arange(rows) < len(patches)).astype(np.int32)[None],
                "spatial_shapes": np.array([[planes.shape[1] // side, planes.shape[2] // side]]),
            }


def cropped(image: NDArray[np.uint8], crop: Size, engine: Engine) -> NDArray[np.uint8]:
    """Return the centre of an image. Zeros pad an image that is smaller.

    Where their number is odd, torchvision has one more behind the image, and Pillow's path has one more before it."""
    more = [max(0, side - there) for side, there in zip((crop.height, crop.width), image.shape[:2], strict=True)]
    before = [number // 2 if engine is Engine.TORCHVISION else number - number // 2 for number in more]
    around = [(first, number - first) for first, number in zip(before, more, strict=True)]
    image = np.pad(image, [*around, (0, 0)])
    top, left = (image.shape[0] - crop.height) // 2, (image.shape[1] - crop.width) // 2
    return image[top : top + crop.height, left : left + crop.width]


def tiled(image: NDArray[np.uint8], canvas: Size, by: Tiles) -> list[NDArray[np.uint8]]:
    """Return the tiles of a canvas, row by row, with an image in its middle. An odd row of zeros is behind it."""
    whole = np.zeros((canvas.height, canvas.width, 3), np.uint8)
    top, left = (canvas.height - image.shape[0]) // 2, (canvas.width - image.shape[1]) // 2
    whole[top : top + image.shape[0], left : left + image.shape[1]] = image
    width, height = by.tile
    places = ((y, x) for y in range(0, canvas.height, height) for x in range(0, canvas.width, width))
    return [whole[y : y + height, x : x + width] for y, x in places]


def squared(image: NDArray[np.uint8], colour: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Return an image in the middle of a square of its longer side, which has the colour elsewhere."""
    side = max(image.shape[:2])
    padded = np.full((side, side, 3), colour, np.uint8)
    top, left = ((side - there) // 2 for there in image.shape[:2])
    padded[top : top + image.shape[0], left : left + image.shape[1]] = image
    return padded


def _split(planes: NDArray[Any], side: int, merge: int) -> NDArray[Any]:
    """Return patches, shape (down, across, merge, merge, channels, side, side), in squares of merged ones."""
    channels, height, width = planes.shape
    down, across = height // side // merge, width // side // merge
    return planes.reshape(channels, down, merge, side, across, merge, side).transpose(1, 4, 2, 5, 0, 3, 6)
