"""Rules for the canvas that is cut into tiles, and for the size of the image on it."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

import numpy as np

from headrace.batching import UsageError
from headrace.host.dpu.processors.sizes import Size

COVERING: Final = 0.9  # the part of an image that the tiles of `CoveringCanvas` hold in full resolution


class Canvas(Protocol):
    """The rule for the picture that is cut into tiles."""

    def of(self, source: Size, tile: Size) -> Size:
        """Return the size of the canvas, which is a multiple of the tile."""
        ...

    def fitted(self, source: Size, canvas: Size, tile: Size) -> Size:
        """Return the size of the image on the canvas. Zeros are around it."""
        ...


@dataclass(frozen=True, slots=True)
class ListedCanvas:
    """The canvas of a list that holds the most pixels of the image, or else wastes the fewest (LLaVA-NeXT).

    The image keeps its aspect. An image that is smaller than a canvas has all its pixels in it."""

    canvases: tuple[Size, ...]

    def of(self, source: Size, tile: Size) -> Size:
        area = source.width * source.height
        best, found = self.canvases[0], (-1, 0)  # an image without a pixel on any canvas takes the smallest one
        for canvas in self.canvases:
            by = min(canvas.width / source.width, canvas.height / source.height)
            held = min(int(source.width * by) * int(source.height * by), area)
            if (held, held - canvas.width * canvas.height) > found:
                best, found = canvas, (held, held - canvas.width * canvas.height)
        return best

    def fitted(self, source: Size, canvas: Size, tile: Size) -> Size:
        across, down = canvas.width / source.width, canvas.height / source.height
        if across < down:
            return Size(canvas.width, min(math.ceil(source.height * across), canvas.height))
        return Size(min(math.ceil(source.width * down), canvas.width), canvas.height)


@dataclass(frozen=True, slots=True)
class GridCanvas:
    """The grid of `low` to `high` tiles whose aspect is nearest to that of the image (InternVL).

    Of two grids with one aspect, the larger one is taken if the image has more than half its pixels. The image fills
    the canvas, so its aspect changes."""

    low: int
    high: int

    def of(self, source: Size, tile: Size) -> Size:
        grids = [grid for grid in _grids(self.high) if _area(grid) >= self.low]
        aspect, area = source.width / source.height, source.width * source.height
        best, distance = Size(1, 1), math.inf
        for grid in sorted(grids, key=_area):
            far = abs(aspect - grid.width / grid.height)
            larger = area > 0.5 * tile.width * tile.height * grid.width * grid.height
            if far < distance or (far == distance and larger):
                best, distance = grid, far
        return Size(best.width * tile.width, best.height * tile.height)

    def fitted(self, source: Size, canvas: Size, tile: Size) -> Size:
        return canvas


@dataclass(frozen=True, slots=True)
class CoveringCanvas:
    """The smallest grid of at most `high` tiles that holds more than 90 % of the pixels of the image (Ovis2).

    A tile holds the pixels of its part of the image, up to the length of its side, with the aspect kept. If no grid
    holds enough, the one that holds the most is taken. The image fills the canvas."""

    high: int

    def of(self, source: Size, tile: Size) -> Size:
        grids = sorted(_grids(self.high), key=_area)
        held = [self._held(source, tile.height, grid) / (source.width * source.height) for grid in grids]
        enough = [(_area(grid), -part, grid) for grid, part in zip(grids, held, strict=True) if part > COVERING]
        if enough:
            grid = min(enough, key=lambda each: each[:2])[2]
        else:
            grid = min(zip(grids, held, strict=True), key=lambda each: (-each[1], _area(each[0])))[0]
        return Size(grid.width * tile.width, grid.height * tile.height)

    def _held(self, source: Size, side: int, grid: Size) -> float:
        """Return the pixels that all parts hold. The parts have as many rows as the grid has columns, as in Ovis2."""
        rows, columns = grid
        heights = [source.height // rows] * (rows - 1) + [source.height - source.height // rows * (rows - 1)]
        widths = [source.width // columns] * (columns - 1) + [source.width - source.width // columns * (columns - 1)]
        parts = (sorted((width, height)) for height in heights for width in widths)
        return sum(short * long if long <= side else short / long * side * side for short, long in parts)

    def fitted(self, source: Size, canvas: Size, tile: Size) -> Size:
        return canvas


class Fit(Enum):
    """How an image lies on a canvas: it is stretched to all of it, or keeps its aspect.

    INNER keeps the aspect and enlarges an image up to one tile only. FULL enlarges it up to the canvas."""

    STRETCHED = "stretched"
    INNER = "inner"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class ClosestCanvas:
    """The canvas of at most `high` tiles on which the image grows least, or else shrinks least.

    Of canvases with the same scale, the smallest one is taken.

    Args:
        high: The largest number of tiles.
        fit: How the image lies on the canvas.
        single: Whether the scales of a canvas have single precision (Llama 4). Otherwise it is double (Mllama).
        largest: Whether the image grows most instead.
    """

    high: int
    fit: Fit
    single: bool = False
    largest: bool = False

    def of(self, source: Size, tile: Size) -> Size:
        canvases = [Size(grid.width * tile.width, grid.height * tile.height) for grid in _grids(self.high)]
        scaled = [(min(self._scales(source, canvas)), canvas) for canvas in canvases]
        growing = [scale for scale, _ in scaled if scale >= 1]
        best = min if growing and not self.largest else max
        chosen = best(growing or [scale for scale, _ in scaled])
        return min((canvas for scale, canvas in scaled if scale == chosen), key=_area)

    def fitted(self, source: Size, canvas: Size, tile: Size) -> Size:
        if self.fit is Fit.STRETCHED:
            return canvas
        largest = canvas if self.fit is Fit.FULL else Size(*map(max, source, tile))
        box = Size(*map(min, largest, canvas))
        # Llama 4 has single precision for a side that the canvas limits, and double precision for the other one.
        limited = [self.fit is Fit.FULL or one > limit for one, limit in zip(largest, canvas, strict=True)]
        across, down = (
            np.float32(side) / np.float32(own) if self.single and by_canvas else side / own
            for side, own, by_canvas in zip(box, source, limited, strict=True)
        )
        if across < down:
            return Size(box.width, min(max(math.floor(source.height * across), 1), box.height))
        return Size(min(max(math.floor(source.width * down), 1), box.width), box.height)

    def _scales(self, source: Size, canvas: Size) -> list[np.floating[Any]]:
        number = np.float32 if self.single else np.float64
        return [number(side) / number(own) for side, own in zip(canvas, source, strict=True)]


@dataclass(frozen=True, slots=True)
class MultiplesCanvas:
    """The sides of the image, rounded up to multiples of the tile. The longer one comes first (Idefics3).

    The shorter side keeps the aspect before it rounds up. The image fills the canvas. `high` is the largest number of
    tiles."""

    high: int

    def of(self, source: Size, tile: Size) -> Size:
        aspect = source.width / source.height
        if source.width >= source.height:
            width = _up(source.width, tile.width)
            canvas = Size(width, _up(int(width / aspect), tile.height))
        else:
            height = _up(source.height, tile.height)
            canvas = Size(_up(int(height * aspect), tile.width), height)
        tiles = _area(canvas) // _area(tile)
        if not 1 <= tiles <= self.high:
            raise UsageError(
                f"an image of {source.width}x{source.height} gives {tiles} tiles of {tile.width}x{tile.height}; "
                f"1 to {self.high} are possible"
            )
        return canvas

    def fitted(self, source: Size, canvas: Size, tile: Size) -> Size:
        return canvas


class Thumbnail(Enum):
    """The picture of the whole image that comes with its tiles, as large as a tile.

    ALWAYS_FIRST comes with one tile, too. The others come with several tiles only. LAST_OF_CANVAS is a resize of the
    canvas. All others are resizes of the image from which the canvas is made, too."""

    ALWAYS_FIRST = "always first"
    FIRST = "first"
    LAST = "last"
    LAST_OF_CANVAS = "last, of the canvas"


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of a canvas, row by row, and a thumbnail.

    Args:
        tile: Size of a tile.
        canvas: Rule of the canvas.
        thumbnail: The picture of the whole image. None leaves it out.
        middle: Whether the image is in the middle of the canvas. Otherwise it is in the upper left corner.
    """

    tile: Size
    canvas: Canvas
    thumbnail: Thumbnail | None
    middle: bool = False


def _grids(high: int) -> list[Size]:
    """Return the grids of at most `high` tiles by their width, then by their height."""
    numbers = range(1, high + 1)
    return [Size(width, height) for width in numbers for height in numbers if width * height <= high]


def _area(size: Size) -> int:
    return size.width * size.height


def _up(side: int, multiple: int) -> int:
    return -(-side // multiple) * multiple
