"""This module defines the results of a `ProcessorSpec` and computes them on the CPU."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.host.dpu.processors import (
    Images,
    Layout,
    MergedPatches,
    PaddedPatches,
    PatchImages,
    Placement,
    Plan,
    ProcessorSpec,
    Size,
    tensor,
)
from headrace.host.dpu.reference import resampler


class Form(NamedTuple):
    """The shape and the type of a tensor."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def process(image: NDArray[np.uint8], spec: ProcessorSpec) -> dict[str, NDArray[Any]]:
    """Return the tensors of an RGB image, shape (rows, columns, 3), by the names that transformers gives them.

    Values in bfloat16 come in the dtype BFLOAT16, as their bits.

    Raises:
        UsageError: The spec does not take an image of this size.
    """
    plan = spec.plan(Size(image.shape[1], image.shape[0]))
    resized: list[NDArray[np.uint8]] = []
    images: list[NDArray[np.uint8]] = []
    for step in plan.passes:
        source = image if step.of is None else resized[step.of]
        resized.append(resampler.resize(source, *step.size, spec.filter, spec.engine))
        if step.placement is not None:
            images += tiled(resized[-1], step.placement)
    table = spec.table()
    planes = [np.stack([table[channel][each[..., channel]] for channel in range(3)]) for each in images]
    values = {"pixel_values": laid_out(np.stack(planes), spec.layout)}
    return values | {name: tensor(what, plan, spec.layout) for name, what in spec.extras}


def forms(spec: ProcessorSpec, source: Size) -> dict[str, Form]:
    """Return the forms of the tensors that `process` makes of an image of this size. No pixel is needed.

    Raises:
        UsageError: The spec does not take an image of this size.
    """
    plan = spec.plan(source)
    made = {"pixel_values": Form(shape(plan, spec.layout), spec.table().dtype)}
    for name, what in spec.extras:
        values = tensor(what, plan, spec.layout)
        made[name] = Form(values.shape, values.dtype)
    return made


def shape(plan: Plan, by: Layout) -> tuple[int, ...]:
    """Return the shape of `pixel_values` for a plan, which `laid_out` gives its images."""
    width, height = plan.image
    match by:
        case Images(axes, slots, channels_last):
            sides = (height, width, 3) if channels_last else (3, height, width)
            return (*(1,) * axes, slots or plan.images, *sides)
        case MergedPatches(side, _, frames):
            return (height // side * (width // side), 3 * frames * side**2)
        case PatchImages(side, frames):
            return (height // side * (width // side), 3 * frames, side, side)
        case PaddedPatches(side, number):
            return (1, number, 3 * side**2)


def tiled(image: NDArray[Any], by: Placement) -> list[NDArray[Any]]:
    """Return the tiles of a canvas, row by row, with an image at its place. They have the type of the image."""
    canvas = np.full((by.canvas.height, by.canvas.width, 3), by.colour, image.dtype)
    there = image[max(0, -by.top) :, max(0, -by.left) :]
    part = canvas[max(0, by.top) :, max(0, by.left) :]
    rows, columns = min(there.shape[0], part.shape[0]), min(there.shape[1], part.shape[1])
    part[:rows, :columns] = there[:rows, :columns]
    width, height = by.tile
    places = ((y, x) for y in range(0, by.canvas.height, height) for x in range(0, by.canvas.width, width))
    return [canvas[y : y + height, x : x + width] for y, x in places]


def laid_out(images: NDArray[Any], by: Layout) -> NDArray[Any]:
    """Return images (number, channels, rows, columns) in a layout. A layout in patches takes one image."""
    planes = images[0]
    match by:
        case Images(axes, slots, channels_last):
            filled = images if slots is None else _filled(images, slots)
            ordered = np.ascontiguousarray(np.moveaxis(filled, 1, -1)) if channels_last else filled
            return ordered.reshape((1,) * axes + ordered.shape)
        case MergedPatches(side, merge, frames):
            squares = _split(planes, side, merge)  # down, across, the patch of a square, channel, row, column
            rows = np.repeat(squares[..., None, :, :], frames, axis=-3)
            return rows.reshape(-1, 3 * frames * side**2)
        case PatchImages(side, frames):
            patches = np.repeat(_split(planes, side, 1)[..., None, :, :], frames, axis=-3)
            return patches.reshape(-1, 3 * frames, side, side)
        case PaddedPatches(side, number):
            patches = np.moveaxis(_split(planes, side, 1), 4, -1).reshape(-1, side * side * 3)
            return _filled(patches, number)[None]


def _filled(values: NDArray[Any], number: int) -> NDArray[Any]:
    """Return values with zeros after them, so that the first axis has a length."""
    filled = np.zeros((number, *values.shape[1:]), values.dtype)
    filled[: len(values)] = values
    return filled


def _split(planes: NDArray[Any], side: int, merge: int) -> NDArray[Any]:
    """Return patches, shape (down, across, merge, merge, channels, side, side), in squares of merged ones."""
    channels, height, width = planes.shape
    down, across = height // side // merge, width // side // merge
    return planes.reshape(channels, down, merge, side, across, merge, side).transpose(1, 4, 2, 5, 0, 3, 6)
