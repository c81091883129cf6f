"""The program with which an image CU computes a `ProcessorSpec` for images of one size.

hls/image_cu/image_cu.hpp defines the program. It is a list of passes. The first pass reads the decoded image, and the
others read images that earlier passes kept in the workspace.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UnsupportedInput
from headrace.host.dpu.processors import (
    Engine,
    Filter,
    Images,
    Layout,
    MergedPatches,
    PaddedPatches,
    Pass,
    PatchImages,
    Placement,
    Plan,
    ProcessorSpec,
    Size,
)
from headrace.host.dpu.units import scaler
from headrace.host.dpu.units.scaler import Box, ScalerTable, Span

STAGE: Final = 4  # of the image CU's `stage` register
PATCH_WORDS: Final = 16384  # words of eight pixels of a row of squares
WORD_BYTES: Final = 16
KEPT_PIXELS: Final = 4  # of an image in the workspace, in a word
WORDS: Final = struct.Struct("<16I")
PATCHES, CHANNELS_LAST, KEEPS, MORE = 1 << 24, 1 << 25, 1 << 26, 1 << 27  # flags
FORMATS: Final = {4: 0, 2: 1, 1: 2}  # the `format` register by the bytes of a value
COPY: Final = (Filter.BOX, Engine.PILLOW13)  # a resize with them to the same size changes nothing, two pixels a clock


@dataclass(frozen=True, slots=True)
class Kept:
    """An image in the workspace.

    Attributes:
        place: Where it begins, in bytes.
    """

    place: int
    size: Size

    @property
    def pitch(self) -> int:
        """The words of a row."""
        return -(-self.size.width // KEPT_PIXELS)

    @property
    def end(self) -> int:
        return self.place + self.pitch * self.size.height * WORD_BYTES

    def start(self, part: Box) -> int:
        """Return where a part begins, in bytes. Its first column is a multiple of KEPT_PIXELS."""
        return self.place + (part.rows.first * self.pitch + part.columns.first // KEPT_PIXELS) * WORD_BYTES


@dataclass(frozen=True, slots=True)
class CuPass:
    """A pass of the CU.

    Attributes:
        source: The image that it reads. None is the decoded image.
        given: The part of the source that it reads.
        table: The scaler's lists.
        canvas: Size of the result.
        left, top: Place of the resized part on the canvas.
        colour: RGB values of the canvas elsewhere.
        keeps: Whether the result goes to the workspace. Otherwise it goes to the tensor.
        place: Where it goes there, in bytes.
    """

    source: Kept | None
    given: Box
    table: ScalerTable
    canvas: Size
    left: int = 0
    top: int = 0
    colour: tuple[int, int, int] = (0, 0, 0)
    keeps: bool = False
    place: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A program and what it makes.

    Attributes:
        data: The bytes of the program.
        passes: Its passes.
        shape, dtype: Of what the CU writes of `pixel_values`. Images of zeros that fill it up are not in it.
        plan: The passes of the processor, from which the other tensors follow.
        workspace_bytes: Bytes of the workspace that it needs.
    """

    data: NDArray[np.uint8]
    passes: tuple[CuPass, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    plan: Plan
    workspace_bytes: int

    @property
    def tensor_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def format(self) -> int:
        """The value of the `format` register."""
        return FORMATS[self.dtype.itemsize]


@lru_cache(maxsize=64)
def program(spec: ProcessorSpec, source: Size, workspace_used: int = 0) -> Program:
    """Return the program for images of a size.

    Args:
        workspace_used: Bytes at the beginning of the workspace that the decoder needs.

    Raises:
        UnsupportedInput: The compute unit does not do what the spec wants for this size.
        UsageError: The spec does not take this size.
    """
    plan = spec.plan(source)
    dtype = spec.table().dtype
    flags, layout, shape = _layout(spec.layout, plan, dtype)
    image_bytes = 3 * plan.image.width * plan.image.height * dtype.itemsize
    if plan.images > 1 and image_bytes % WORD_BYTES:
        raise UnsupportedInput(
            f"images of {plan.image.width}x{plan.image.height} in {dtype} do not begin with a word of the CU's memory"
        )
    passes = _Passes(spec, plan, image_bytes, -(-workspace_used // WORD_BYTES) * WORD_BYTES)
    done = tuple(passes.all())
    parts: list[NDArray[np.uint8]] = []
    for number, each in enumerate(done):
        more = MORE if number + 1 < len(done) else 0
        parts += [_header(each, more | (KEEPS if each.keeps else flags), layout), each.table.packed()]
    return Program(np.concatenate(parts), done, shape, dtype, plan, passes.workspace_bytes)


class _Passes:
    """The passes of the CU for a plan.

    An image that several passes read lies in the workspace. A tile is a pass of its own, which reads the part of the
    image that the tile needs."""

    def __init__(self, spec: ProcessorSpec, plan: Plan, image_bytes: int, workspace_used: int) -> None:
        self._spec, self._plan, self._image_bytes = spec, plan, image_bytes
        self._kept: dict[int | None, Kept] = {}  # by the number of the plan's pass that made the image
        self.workspace_bytes = workspace_used

    def all(self) -> Iterator[CuPass]:
        plan = self._plan
        tiles = [1 if each.placement is None else _area(each.placement.grid) for each in plan.passes]
        read_later = {each.of for each in plan.passes if each.of is not None}
        of_source = [
            1 if number in read_later else tiles[number] for number, each in enumerate(plan.passes) if each.of is None
        ]
        if sum(of_source) > 1:
            yield self._copy(plan.source)
        place = 0
        for number, step in enumerate(plan.passes):
            if number in read_later:
                yield self._keep(number, step)
            if step.placement is not None:
                for part in _tiles(step.placement):
                    yield self._tile(number, step, part, place)
                    place += self._image_bytes

    def _copy(self, source: Size) -> CuPass:
        box = scaler.whole(source)
        kept = self._room(None, source)
        return CuPass(None, box, scaler.table(source, source, *COPY, box, box), source, keeps=True, place=kept.place)

    def _keep(self, number: int, step: Pass) -> CuPass:
        given, table = self._resize(step, scaler.whole(step.size))
        source = self._kept.get(step.of)
        kept = self._room(number, step.size)
        return CuPass(source, given, table, step.size, keeps=True, place=kept.place)

    def _tile(self, number: int, step: Pass, tile: Box, place: int) -> CuPass:
        """Return the pass that makes a tile of a canvas."""
        assert step.placement is not None
        by = step.placement
        part, left, top = _part_on_tile(step.size, by, tile)
        where = dict(canvas=tile.size, left=left, top=top, colour=by.colour, place=place)
        if 0 in part.size:  # a tile without a pixel of the image
            if by.colour != (0, 0, 0):
                raise UnsupportedInput(f"{self._spec.name}: a tile without the image has a colour of its own")
            one = Span(0, 1)
            return CuPass(next(iter(self._kept.values())), Box(one, one), scaler.BLACK, **where | {"left": 0, "top": 0})
        if number in self._kept:
            kept = self._kept[number]
            given = _aligned(part)
            return CuPass(kept, given, scaler.table(kept.size, kept.size, *COPY, part, given), **where)
        given, table = self._resize(step, part)
        return CuPass(self._kept.get(step.of), given, table, **where)

    def _resize(self, step: Pass, part: Box) -> tuple[Box, ScalerTable]:
        """Return the part of the source that makes a part of a result, and the table."""
        spec = self._spec
        source = self._plan.source if step.of is None else self._plan.passes[step.of].size
        given = scaler.whole(source)
        if step.of in self._kept:
            given = _aligned(scaler.needed(source, step.size, spec.filter, spec.engine, part))
        return given, scaler.table(source, step.size, spec.filter, spec.engine, part, given)

    def _room(self, number: int | None, size: Size) -> Kept:
        kept = Kept(self.workspace_bytes, size)
        self._kept[number] = kept
        self.workspace_bytes = kept.end
        return kept


def _tiles(by: Placement) -> Iterator[Box]:
    width, height = by.tile
    for top in range(0, by.canvas.height, height):
        for left in range(0, by.canvas.width, width):
            yield Box(Span(left, width), Span(top, height))


def _part_on_tile(image: Size, by: Placement, tile: Box) -> tuple[Box, int, int]:
    """Return the part of an image that lies on a tile of its canvas, and where on the tile that part begins."""
    spans, places = [], []
    for side, at, span in zip(image, (by.left, by.top), tile, strict=True):
        first = max(0, span.first - at)
        last = min(side, span.first + span.count - at)
        spans.append(Span(first, max(0, last - first)))
        places.append(at + first - span.first)
    return Box(*spans), places[0], places[1]


def _aligned(part: Box) -> Box:
    """Return the part with the columns before it that are in the same word of the workspace."""
    extra = part.columns.first % KEPT_PIXELS
    return Box(Span(part.columns.first - extra, part.columns.count + extra), part.rows)


def _area(size: Size) -> int:
    return size.width * size.height


def _header(each: CuPass, flags: int, layout: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Return the words of a pass before its lists."""
    table = each.table
    rows, columns = table.rows, table.columns
    flags |= rows.bits | rows.gather << 5 | columns.bits << 8 | columns.gather << 13
    flags |= table.wide << 16 | table.columns_first << 17
    red, green, blue = each.colour
    words = [
        _pair(*table.out),
        table.row_entries,
        table.column_entries,
        flags,
        _pair(*each.canvas),
        _pair(each.left, each.top),
        red << 16 | green << 8 | blue,
        *layout,
        0 if each.source is None else each.source.start(each.given),
        _pair(*each.given.size),
        0 if each.source is None else each.source.pitch,
        each.place,
        0,
        0,
    ]
    return np.frombuffer(WORDS.pack(*words), np.uint8)


def _layout(layout: Layout, plan: Plan, dtype: np.dtype[Any]) -> tuple[int, tuple[int, int, int], tuple[int, ...]]:
    """Return flags, the words of a pass about patches, and the shape of what the CU writes."""
    image = plan.image
    match layout:
        case Images(axes, channels_last=False):
            return 0, (0, 0, 0), (*[1] * axes, plan.images, 3, image.height, image.width)
        case Images(axes):  # with its channels last, a row of the image is a patch
            _patches(image, Size(image.width, 1), 1)
            words = (_pair(image.width, 1), 1 | 1 << 8, 0)
            return PATCHES | CHANNELS_LAST, words, (*[1] * axes, plan.images, image.height, image.width, 3)
        case MergedPatches(side, merge, frames):
            number = _patches(image, Size(side, side), merge)
            return PATCHES, (_pair(side, side), merge | frames << 8, 0), (number, 3 * frames * side * side)
        case PatchImages(side, frames):
            number = _patches(image, Size(side, side), 1)
            return PATCHES, (_pair(side, side), 1 | frames << 8, 0), (number, 3 * frames, side, side)
        case PaddedPatches(side, rows):
            values = 3 * side * side
            fill = (rows - _patches(image, Size(side, side), 1)) * values * dtype.itemsize
            return PATCHES | CHANNELS_LAST, (_pair(side, side), 1 | 1 << 8, fill), (1, rows, values)


def _patches(image: Size, patch: Size, merge: int) -> int:
    """Return the number of patches, if the unit has room for a row of squares of them."""
    across, down = image.width // patch.width, image.height // patch.height
    if patch.width % 2 or patch.height * merge * across * -(-patch.width // 8) > PATCH_WORDS:
        raise UnsupportedInput(
            f"patches of {patch.width}x{patch.height} of an image {image.width} pixels wide do not fit into the CU"
        )
    return across * down


def _pair(low: int, high: int) -> int:
    return low | high << 16
