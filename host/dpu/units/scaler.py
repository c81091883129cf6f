"""The tables of the scaler, the hardware unit that resizes with any filter of `reference/resampler.py`.

The scaler knows no filter and no size. It runs two lists of steps, one along rows and one along columns. An element is
a pixel of a row, or a row of the image. A step takes an element or not, multiplies by up to LANES weights, and gives an
output element or not. There are two kinds of lists:

    scatter   A step adds the taken element, times a weight each, to the LANES outputs that are open. When it gives an
              output, that is the first open one. So an image shrinks, whatever the number of taps.
    gather    A step keeps the taken element with those before it. When it gives an output, that is the weighted sum of
              the last LANES elements. So an image grows.

A crop is a list that gives a part of the outputs only. Such a list may also do without the elements of the source that
no output of the part needs.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UnsupportedInput
from headrace.host.dpu.processors import Engine, Filter, Size
from headrace.host.dpu.reference import resampler
from headrace.host.dpu.specs import Orientation

NARROW_LANES: Final = 8  # weights of a step
WIDE_LANES: Final = 4  # weights of a step where two steps run in a clock
MAX_ENTRIES: Final = 4096  # of the list along rows, which the unit holds. Its rows fit if their entries do
WEIGHT_BITS: Final = 24
ENTRY_BYTES: Final = 32
TAKE, EMIT = 1, 2
WIDE_FILTERS: Final = (Filter.BOX, Filter.BILINEAR, Filter.HAMMING, Filter.BICUBIC)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The steps of one direction.

    Attributes:
        flags: TAKE and EMIT of each step, shape (steps,).
        weights: Shape (steps, lanes), multiples of 2^-bits. Lane 0 is the first open output of a scatter, and the
            newest element of a gather.
        bits: The fixed point of the weights.
        gather: The kind of the list.
    """

    flags: NDArray[np.uint8]
    weights: NDArray[np.int32]
    bits: int
    gather: bool


@dataclass(frozen=True, slots=True, eq=False)
class ScalerTable:
    """All that the scaler needs for an image of one size.

    Attributes:
        source, out: Sizes of the image and of the result.
        rows, columns: Steps along a row, and along a column.
        wide: Two steps run in a clock, with WIDE_LANES weights each.
        columns_first: The pass along columns comes first.
    """

    source: Size
    out: Size
    rows: Steps
    columns: Steps
    wide: bool
    columns_first: bool

    @property
    def row_entries(self) -> int:
        return -(-len(self.rows.flags) // 2) if self.wide else len(self.rows.flags)

    def row_gives(self) -> list[int]:
        """Return the pixels that each entry along rows gives."""
        gives = (self.rows.flags & EMIT) // EMIT
        steps = 2 if self.wide else 1
        gives = np.pad(gives, (0, -len(gives) % steps)).reshape(-1, steps).sum(1)
        return [int(pixels) for pixels in gives]

    @property
    def column_entries(self) -> int:
        return len(self.columns.flags)

    def packed(self) -> NDArray[np.uint8]:
        """Return the bytes that the unit reads: entries of ENTRY_BYTES, first those along rows."""
        rows = _packed(self.rows, paired=self.wide)
        return np.concatenate([rows, _packed(self.columns, paired=False)]).reshape(-1)


_ONE: Final = Steps(np.array([TAKE | EMIT], np.uint8), np.zeros((1, WIDE_LANES), np.int32), bits=1, gather=False)
BLACK: Final = ScalerTable(Size(1, 1), Size(1, 1), _ONE, _ONE, wide=True, columns_first=False)  # makes a black pixel
_taps = lru_cache(maxsize=64)(resampler.taps)


class Span(NamedTuple):
    """Elements from `first` on, `count` of them."""

    first: int
    count: int


class Box(NamedTuple):
    """A part of an image: spans of its columns and of its rows."""

    columns: Span
    rows: Span

    @property
    def size(self) -> Size:
        return Size(self.columns.count, self.rows.count)


def whole(image: Size) -> Box:
    """Return all of an image."""
    return Box(Span(0, image.width), Span(0, image.height))


@lru_cache(maxsize=256)
def needed(source: Size, target: Size, by: Filter, engine: Engine, part: Box) -> Box:
    """Return the part of the source that a part of the result is made of."""
    spans = []
    for there, side, span in zip(source, target, part, strict=True):
        begin, end = _ends(_taps(there, side, by, engine), span)
        first = int(begin.min())
        spans.append(Span(first, int(end.max()) - first))
    return Box(*spans)


@lru_cache(maxsize=256)
def table(
    source: Size,
    target: Size,
    by: Filter,
    engine: Engine,
    part: Box,
    given: Box,
    turn: Orientation = Orientation.NONE,
) -> ScalerTable:
    """Return the table for a resize from `source` to `target`, of which only a part is wanted.

    Args:
        part: The part of the result.
        given: The part of the source that the unit is given. It has all that `part` needs.
        turn: The step that turns the image that the unit is given upright. All sizes are those of the upright image.

    Raises:
        UnsupportedInput: The unit has no room for the list along rows.
    """
    wide = by in WIDE_FILTERS
    lanes = WIDE_LANES if wide else NARROW_LANES
    steps = [
        _steps(_taps(there, side, by, engine), there, span, taken, lanes, mirrored)
        for there, side, span, taken, mirrored in zip(source, target, part, given, turn.mirrors, strict=True)
    ]
    columns_first = resampler.columns_first(*source, *target, engine)
    out, taken_size = part.size, given.size
    if turn.exchanges_sides:
        steps.reverse()
        columns_first = not columns_first
        out, taken_size = out.exchanged, taken_size.exchanged
    made = ScalerTable(taken_size, out, *steps, wide, columns_first)
    if made.row_entries > MAX_ENTRIES:
        raise UnsupportedInput(
            f"a resize from {source.width}x{source.height} to {target.width}x{target.height} needs {made.row_entries} "
            f"entries of a list; the scaler has room for {MAX_ENTRIES}"
        )
    return made


def _ends(taps: resampler.Taps, span: Span) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the first tap of each output and the one after its last. Weights of 0 at the end are no taps."""
    there = taps.weights[span.first : span.first + span.count] != 0
    # An output without any tap is 0, and keeps one.
    trailing = np.where(there.any(axis=1), there.shape[1] - there[:, ::-1].argmax(axis=1), 1)
    begin = taps.first[span.first : span.first + span.count]
    return begin, begin + trailing


def _steps(taps: resampler.Taps, source: int, span: Span, taken: Span, lanes: int, mirrored: bool) -> Steps:
    """Return the steps that give the outputs of a span from the elements of another.

    With `mirrored`, the last element comes first, and the last output leaves first."""
    begin, end = _ends(taps, span)
    begin, end = begin - taken.first, end - taken.first
    weights = taps.weights[span.first : span.first + span.count]
    if mirrored:
        leading = (weights != 0).argmax(axis=1)  # weights of 0, which are at the end then
        places = end[:, None] - begin[:, None] - 1 - np.arange(weights.shape[1])
        weights = np.where(places >= 0, np.take_along_axis(weights, np.maximum(places, 0), axis=1), 0)[::-1]
        begin, end = taken.count - end[::-1], taken.count - (begin + leading)[::-1]
    make = _gather if len(taps.first) > source else _scatter
    return make(weights, begin, end, taps.bits, taken.count, lanes)


def _scatter(
    weights: NDArray[np.int32],
    begin: NDArray[np.int32],
    end: NDArray[np.int32],
    bits: int,
    source: int,
    lanes: int,
) -> Steps:
    outputs = np.arange(len(begin))
    given = np.maximum.accumulate(end - 1 - outputs) + outputs  # the step of each output: one a step, in order
    steps = max(source, int(given[-1]) + 1)
    flags = np.where(np.arange(steps) < source, TAKE, 0).astype(np.uint8)
    flags[given] |= EMIT
    open_ = np.searchsorted(given, np.arange(steps))  # the first open output at each step
    spread = np.zeros((steps, lanes), np.int32)
    for tap in range(weights.shape[1]):
        counts = weights[:, tap] != 0
        at = (begin + tap)[counts]
        spread[at, outputs[counts] - open_[at]] = weights[counts, tap]
    return Steps(flags, spread, bits, gather=False)


def _gather(
    weights: NDArray[np.int32],
    begin: NDArray[np.int32],
    end: NDArray[np.int32],
    bits: int,
    source: int,
    lanes: int,
) -> Steps:
    newest = np.maximum.accumulate(end - 1)
    # A step takes one element, so a step behind an output may have to take some without giving any.
    flags, rows = [], []
    taken = 0
    for output, last in enumerate(newest.tolist()):
        alone = max(last - taken, 0)
        flags += [TAKE] * alone + [(TAKE if taken <= last else 0) | EMIT]
        rows += [-1] * alone + [output]
        taken = max(taken, last + 1)
    flags += [TAKE] * (source - taken)
    rows += [-1] * (source - taken)
    of = np.array(rows)
    gathered = np.zeros((len(of), lanes), np.int32)
    for lane in range(lanes):
        tap = newest - lane - begin
        counts = (tap >= 0) & (tap < weights.shape[1])
        gathered[of >= 0, lane] = np.where(counts, weights[np.arange(len(begin)), np.where(counts, tap, 0)], 0)
    return Steps(np.array(flags, np.uint8), gathered, bits, gather=True)


def _packed(steps: Steps, paired: bool) -> NDArray[np.uint8]:
    """Return entries of ENTRY_BYTES: NARROW_LANES weights of WEIGHT_BITS, and then four bits of flags.

    With `paired`, an entry has two steps, one after the other. The last one may do nothing."""
    flags, weights = steps.flags, steps.weights
    if paired:
        odd = len(flags) % 2
        flags = np.pad(flags, (0, odd)).reshape(-1, 2)
        weights = np.pad(weights, ((0, odd), (0, 0))).reshape(-1, NARROW_LANES)
        flags = flags[:, 0] | flags[:, 1] << 2
    else:
        weights = np.pad(weights, ((0, 0), (0, NARROW_LANES - weights.shape[1])))
    entries = np.zeros((len(flags), ENTRY_BYTES), np.uint8)
    low = weights.astype("<i4").view(np.uint8).reshape(-1, NARROW_LANES, 4)[:, :, : WEIGHT_BITS // 8]
    entries[:, : NARROW_LANES * WEIGHT_BITS // 8] = low.reshape(len(flags), -1)
    entries[:, NARROW_LANES * WEIGHT_BITS // 8] = flags
    return entries
