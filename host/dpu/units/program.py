"""The program with which an image CU computes a `ProcessorSpec` for images of one size.

hls/image_cu/image_cu.hpp defines the program. It is a list of passes. The first pass reads the decoded image, and the
others read images that earlier passes kept in the workspace.

A file with an Exif orientation is not turned by the CU. Its lists and canvases are those of the upright image, with
rows and columns exchanged or mirrored, so the CU makes the tensor of the stored image. The host turns that.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    type_name,
)
from headrace.host.dpu.reference.processor import shape
from headrace.host.dpu.reference.resampler import WITH_TAPS
from headrace.host.dpu.specs import Orientation
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
    """A pass of the CU, as the image is stored.

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
        dtype: Of the values.
        values: Their number, without those of the images of zeros that fill the tensor up.
        layout: Their order.
        plan: The passes of the processor, from which the other tensors follow.
        turn: The step that turns the image upright.
        workspace_bytes: Bytes of the workspace that it needs.
    """

    data: NDArray[np.uint8]
    passes: tuple[CuPass, ...]
    dtype: np.dtype[Any]
    values: int
    layout: Layout
    plan: Plan
    turn: Orientation
    workspace_bytes: int

    @property
    def tensor_bytes(self) -> int:
        """The bytes that the CU writes."""
        return self.values * self.dtype.itemsize

    @property
    def format(self) -> int:
        """The value of the `format` register."""
        return FORMATS[self.dtype.itemsize]

    def pixel_values(self, written: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the tensor of the bytes that the CU wrote, as a copy."""
        values = np.zeros(shape(self.plan, self.layout), self.dtype)
        values.reshape(-1)[: self.values] = self._upright(written.view(self.dtype))
        return values

    def _upright(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the stored image in the order of the upright one."""
        if self.turn is Orientation.NONE:
            return values
        stored = _stored(self.plan.image, self.turn)
        match self.layout:
            case Images(channels_last=last):
                axes = (-1, *stored[::-1], 3) if last else (-1, 3, *stored[::-1])
                rows = (1,) if last else (2,)
            case MergedPatches(side, merge, frames):
                down, across = stored.height // side // merge, stored.width // side // merge
                axes, rows = (down, across, merge, merge, 3 * frames, side, side), (0, 2, 5)
            case PatchImages(side, frames):
                axes, rows = (stored.height // side, stored.width // side, 3 * frames, side, side), (0, 3)
            case PaddedPatches(side):
                down, across = stored.height // side, stored.width // side
                values = values.copy()
                image = values[: down * across * side * side * 3].reshape(down, across, side, side, 3)
                image[...] = self.turn.turned(self.turn.view(image, 0), 2).reshape(image.shape)
                return values
        found = values.reshape(axes)
        for each in rows:
            found = self.turn.view(found, each)
        return found.reshape(-1)


@lru_cache(maxsize=64)
def program(
    spec: ProcessorSpec, source: Size, workspace_used: int = 0, turn: Orientation = Orientation.NONE
) -> Program:
    """Return the program for images of a size.

    Args:
        source: Size of the upright image.
        workspace_used: Bytes at the beginning of the workspace that the decoder needs.
        turn: The step that turns the stored image upright.

    Raises:
        UnsupportedInput: The compute unit does not do what the spec wants for this size.
        UsageError: The spec does not take this size.
    """
    if spec.engine not in WITH_TAPS:
        raise UnsupportedInput(f"{spec.name}: the CU's scaler has no engine {spec.engine.value}")
    plan = spec.plan(source)
    dtype = spec.table().dtype
    stored = _stored(plan.image, turn)
    flags, words = _layout(spec.layout, stored, dtype)
    image_values = 3 * plan.image.width * plan.image.height
    if plan.images > 1 and image_values * dtype.itemsize % WORD_BYTES:
        raise UnsupportedInput(
            f"images of {plan.image.width}x{plan.image.height} in {type_name(dtype)} do not begin with a word of the "
            "CU's memory"
        )
    written = replace(spec.layout, slots=None) if isinstance(spec.layout, Images) else spec.layout
    passes = _Passes(spec, plan, turn, image_values * dtype.itemsize, -(-workspace_used // WORD_BYTES) * WORD_BYTES)
    done = tuple(passes.all())
    parts: list[NDArray[np.uint8]] = []
    for number, each in enumerate(done):
        more = MORE if number + 1 < len(done) else 0
        parts += [_header(each, more | (KEEPS if each.keeps else flags), words), each.table.packed()]
    values = math.prod(shape(plan, written))
    return Program(np.concatenate(parts), done, dtype, values, spec.layout, plan, turn, passes.workspace_bytes)


def _stored(size: Size, turn: Orientation) -> Size:
    return size.exchanged if turn.exchanges_sides else size


class _Passes:
    """The passes of the CU for a plan.

    An image that several passes read lies in the workspace. A tile is a pass of its own, which reads the part of the
    image that the tile needs. All sizes and parts here are those of the upright image, and `_pass` makes them those of
    the stored one."""

    def __init__(
        self, spec: ProcessorSpec, plan: Plan, turn: Orientation, image_bytes: int, workspace_used: int
    ) -> None:
        self._spec, self._plan, self._turn, self._image_bytes = spec, plan, turn, image_bytes
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
            yield self._keep(None, plan.source, None, plan.source, COPY)
        place = 0
        for number, step in enumerate(plan.passes):
            if number in read_later:
                yield self._keep(step.of, self._size(step.of), number, step.size, self._how)
            if step.placement is not None:
                for tile in _tiles(step.placement):
                    yield self._tile(number, step, step.placement, tile, place)
                    place += self._image_bytes

    @property
    def _how(self) -> tuple[Filter, Engine]:
        return self._spec.filter, self._spec.engine

    def _size(self, number: int | None) -> Size:
        """Return the size of the result of a pass, or of the source."""
        return self._plan.source if number is None else self._plan.passes[number].size

    def _keep(self, of: int | None, source: Size, number: int | None, size: Size, how: tuple[Filter, Engine]) -> CuPass:
        """Return the pass that makes an image for later passes."""
        part = scaler.whole(size)
        kept = Kept(self.workspace_bytes, _stored(size, self._turn))
        self.workspace_bytes = kept.end
        done = self._pass(of, source, size, part, how, Placement(size, size), keeps=True, place=kept.place)
        self._kept[number] = kept
        return done

    def _tile(self, number: int, step: Pass, by: Placement, tile: Box, place: int) -> CuPass:
        """Return the pass that makes a tile of a canvas."""
        part, left, top = _part_on_tile(step.size, by, tile)
        on_tile = Placement(tile.size, tile.size, left, top, by.colour)
        if 0 in part.size:  # a tile without a pixel of the image
            if by.colour != (0, 0, 0):
                raise UnsupportedInput(f"{self._spec.name}: a tile without the image has a colour of its own")
            one = Span(0, 1)
            canvas = _stored(tile.size, self._turn)
            return CuPass(next(iter(self._kept.values())), Box(one, one), scaler.BLACK, canvas, place=place)
        if number in self._kept:
            return self._pass(number, step.size, step.size, part, COPY, on_tile, place=place)
        return self._pass(step.of, self._size(step.of), step.size, part, self._how, on_tile, place=place)

    def _pass(
        self,
        of: int | None,
        source: Size,
        size: Size,
        part: Box,
        how: tuple[Filter, Engine],
        on: Placement,
        *,
        keeps: bool = False,
        place: int,
    ) -> CuPass:
        """Return the pass that puts a part of a resized image on a canvas."""
        turn = self._turn
        kept = self._kept.get(of)
        given = scaler.whole(source) if kept is None else self._aligned(scaler.needed(source, size, *how, part), source)
        table = scaler.table(source, size, *how, part, given, turn)
        mirrors = turn.mirrors
        spans = [_mirrored(*each) for each in zip(given, source, mirrors, strict=True)]
        places = [
            _mirrored(Span(at, count), side, mirror).first
            for at, count, side, mirror in zip((on.left, on.top), part.size, on.canvas, mirrors, strict=True)
        ]
        if turn.exchanges_sides:
            spans.reverse()
            places.reverse()
        return CuPass(kept, Box(*spans), table, _stored(on.canvas, turn), *places, on.colour, keeps, place)

    def _aligned(self, part: Box, image: Size) -> Box:
        """Return the part with those columns of the stored image before it that are in the same word."""
        spans = list(part)
        axis = int(self._turn.exchanges_sides)  # the one that the columns of the stored image lie along
        mirror = self._turn.mirrors[axis]
        extra = _mirrored(spans[axis], image[axis], mirror).first % KEPT_PIXELS
        first, count = spans[axis]
        spans[axis] = Span(first if mirror else first - extra, count + extra)
        return Box(*spans)


def _mirrored(span: Span, side: int, mirror: bool) -> Span:
    return Span(side - span.first - span.count, span.count) if mirror else span


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


def _layout(layout: Layout, image: Size, dtype: np.dtype[Any]) -> tuple[int, tuple[int, int, int]]:
    """Return the flags and the words of a pass about patches, for an image as it is stored."""
    match layout:
        case Images(channels_last=False):
            return 0, (0, 0, 0)
        case Images():  # with its channels last, a row of the image is a patch
            _patches(image, Size(image.width, 1), 1)
            return PATCHES | CHANNELS_LAST, (_pair(image.width, 1), 1 | 1 << 8, 0)
        case MergedPatches(side, merge, frames):
            _patches(image, Size(side, side), merge)
            return PATCHES, (_pair(side, side), merge | frames << 8, 0)
        case PatchImages(side, frames):
            _patches(image, Size(side, side), 1)
            return PATCHES, (_pair(side, side), 1 | frames << 8, 0)
        case PaddedPatches(side, rows):
            fill = (rows - _patches(image, Size(side, side), 1)) * 3 * side * side * dtype.itemsize
            return PATCHES | CHANNELS_LAST, (_pair(side, side), 1 | 1 << 8, fill)


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
