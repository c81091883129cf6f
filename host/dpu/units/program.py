"""The program with which an image CU computes a `ProcessorSpec` for images of one size.

hls/image_cu/image_cu.hpp defines the program. It has the sizes, the canvas, the layout, and the scaler's lists.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UnsupportedInput
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
)
from headrace.host.dpu.units import scaler

STAGE: Final = 4  # of the image CU's `stage` register
PATCH_WORDS: Final = 16384  # words of eight pixels of a row of squares
WORDS: Final = struct.Struct("<16I")
PATCHES, CHANNELS_LAST = 1 << 24, 1 << 25  # flags
FORMATS: Final = {4: 0, 2: 1, 1: 2}  # the `format` register by the bytes of a value


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A program and what it makes.

    Attributes:
        data: The bytes of the program.
        shape, dtype: Of `pixel_values`.
        plan: The passes, from which the other tensors follow.
    """

    data: NDArray[np.uint8]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    plan: Plan

    @property
    def tensor_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def format(self) -> int:
        """The value of the `format` register."""
        return FORMATS[self.dtype.itemsize]


@lru_cache(maxsize=64)
def program(spec: ProcessorSpec, source: Size) -> Program:
    """Return the program for images of a size.

    Raises:
        UnsupportedInput: The compute unit does not do what the spec wants for this size.
        UsageError: The spec does not take this size.
    """
    plan = spec.plan(source)
    if plan.images != 1 or len(plan.passes) != 1:
        raise UnsupportedInput(
            f"{spec.name} makes {plan.images} images in {len(plan.passes)} passes here; the CU makes 1 in 1"
        )
    step = plan.passes[0]
    assert step.placement is not None
    table, left, top = _placed(spec, source, step.size, step.placement)
    dtype = spec.table().dtype
    flags, (side_width, side_height, merge, frames), fill, shape = _layout(spec.layout, step.placement.canvas, dtype)
    rows, columns = table.rows, table.columns
    flags |= rows.bits | rows.gather << 5 | columns.bits << 8 | columns.gather << 13
    flags |= table.wide << 16 | table.columns_first << 17
    red, green, blue = step.placement.colour
    words = [
        _pair(*table.out),
        table.row_entries,
        table.column_entries,
        flags,
        _pair(*step.placement.canvas),
        _pair(left, top),
        red << 16 | green << 8 | blue,
        _pair(side_width, side_height),
        merge | frames << 8,
        fill,
    ]
    head = np.frombuffer(WORDS.pack(*words, *[0] * (16 - len(words))), np.uint8)
    return Program(np.concatenate([head, table.packed()]), shape, dtype, plan)


def _placed(spec: ProcessorSpec, source: Size, size: Size, by: Placement) -> tuple[scaler.ScalerTable, int, int]:
    """Return the table of the part that lies on the canvas, and its place there."""
    starts = [max(0, -at) for at in (by.left, by.top)]
    places = [max(0, at) for at in (by.left, by.top)]
    sides = [
        min(side - start, room - place)
        for side, start, room, place in zip(size, starts, by.canvas, places, strict=True)
    ]
    table = scaler.table(source, size, spec.filter, spec.engine, (starts[0], starts[1], sides[0], sides[1]))
    return table, places[0], places[1]


def _layout(
    layout: Layout, image: Size, dtype: np.dtype[Any]
) -> tuple[int, tuple[int, int, int, int], int, tuple[int, ...]]:
    """Return flags, sides of a patch with `merge` and `frames`, bytes of zeros, and the shape of `pixel_values`."""
    match layout:
        case Images(axes, slots):
            if slots not in (None, 1):
                raise UnsupportedInput(f"a tensor of {slots} images has images of zeros, which the CU does not write")
            return 0, (0, 0, 0, 0), 0, (*[1] * axes, 1, 3, image.height, image.width)
        case MergedPatches(side, merge, frames):
            number = _patches(image, side, merge)
            return PATCHES, (side, side, merge, frames), 0, (number, 3 * frames * side * side)
        case PatchImages(side, frames):
            return PATCHES, (side, side, 1, frames), 0, (_patches(image, side, 1), 3 * frames, side, side)
        case PaddedPatches(side, rows):
            values = 3 * side * side
            fill = (rows - _patches(image, side, 1)) * values * dtype.itemsize
            return PATCHES | CHANNELS_LAST, (side, side, 1, 1), fill, (1, rows, values)


def _patches(image: Size, side: int, merge: int) -> int:
    """Return the number of patches, if the unit has room for a row of squares of them."""
    across, down = image.width // side, image.height // side
    if side % 2 or side * merge * across * -(-side // 8) > PATCH_WORDS:
        raise UnsupportedInput(f"patches of {side} pixels of an image {image.width} pixels wide do not fit into the CU")
    return across * down


def _pair(low: int, high: int) -> int:
    return low | high << 16
