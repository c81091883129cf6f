"""A processor spec says what an image processor of Hugging Face computes. It computes no image itself.

`reference/processor.py` defines the results. `hugging_face.py` reads a spec from a `preprocessor_config.json`.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError

MAX_OUTPUT: Final = 8192  # pixels on a side after the resize: more than a processor makes of a usual image
MAX_ASPECT: Final = 200  # of the sides of an image, for `SmartResize`
SCALE_PRECISION: Final = 1e-5  # of the scale that `MaxPatches` searches


class Filter(Enum):
    """The weight of a pixel by its distance from the centre (`reference/resampler.py`)."""

    BOX = "box"
    BILINEAR = "bilinear"
    HAMMING = "hamming"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


class Engine(Enum):
    """The library whose bits a processor gives."""

    TORCHVISION = "torchvision"
    PILLOW12 = "pillow12"
    PILLOW13 = "pillow13"


OF_TORCHVISION: Final = (Filter.BILINEAR, Filter.BICUBIC, Filter.LANCZOS)


class Size(NamedTuple):
    """Sides in pixels."""

    width: int
    height: int


class SizeRule(Protocol):
    """The size of the resized image by that of the source."""

    def of(self, source: Size) -> Size:
        """Return the size. Raises UsageError for a source that the rule does not take."""
        ...


@dataclass(frozen=True, slots=True)
class FixedSize:
    """One size for all images, whatever their aspect."""

    width: int
    height: int

    def of(self, source: Size) -> Size:
        return Size(self.width, self.height)


@dataclass(frozen=True, slots=True)
class ShortestEdge:
    """The shorter side becomes `pixels`. The longer side keeps the aspect and rounds down."""

    pixels: int

    def of(self, source: Size) -> Size:
        short, long = min(source), max(source)
        longer = self.pixels * long // short
        return Size(self.pixels, longer) if source.width <= source.height else Size(longer, self.pixels)


@dataclass(frozen=True, slots=True)
class LongestEdge:
    """The image shrinks into a box with its aspect, and then grows to multiples. So Pixtral chooses sizes.

    Args:
        box: The largest width and height. A smaller image only grows to the next multiples.
        multiple: Width and height of a patch, in pixels.
    """

    box: Size
    multiple: Size

    def of(self, source: Size) -> Size:
        by = max(source.height / self.box.height, source.width / self.box.width, 1.0)
        width, height = (max(1, math.floor(side / by)) for side in source)
        return Size(_up(width, self.multiple.width), _up(height, self.multiple.height))


@dataclass(frozen=True, slots=True)
class LongestSide:
    """The longer side becomes `pixels`, and the shorter one keeps the aspect, but has at least `least` pixels."""

    pixels: int
    least: int

    def of(self, source: Size) -> Size:
        by = self.pixels / max(source)
        return Size(*(max(round(side * by), self.least) for side in source))


@dataclass(frozen=True, slots=True)
class MaxPatches:
    """The image keeps its aspect and becomes as large as its patches may be many. So NaFlex of SigLIP 2 chooses sizes.

    Args:
        side: Of a patch, in pixels.
        patches: The most patches.
    """

    side: int
    patches: int

    def of(self, source: Size) -> Size:
        low, high = SCALE_PRECISION / 10, 100.0
        while high - low >= SCALE_PRECISION:
            middle = (low + high) / 2
            size = self._scaled(source, middle)
            if (size.width // self.side) * (size.height // self.side) <= self.patches:
                low = middle
            else:
                high = middle
        return self._scaled(source, low)

    def _scaled(self, source: Size, by: float) -> Size:
        return Size(*(max(self.side, math.ceil(side * by / self.side) * self.side) for side in source))


class Grow(Enum):
    """The step of `SmartResize` for an image with a side below the multiple.

    NONE leaves it out. TOGETHER scales both sides at once, and rounds down (GLM-4V). EACH scales by the height and then
    by the width, and rounds to the nearest pixel (PaddleOCR-VL)."""

    NONE = "none"
    TOGETHER = "together"
    EACH = "each"


@dataclass(frozen=True, slots=True)
class SmartResize:
    """Both sides become multiples of `multiple`, near the aspect of the source. So Qwen2-VL chooses sizes.

    Args:
        multiple: In pixels.
        min_pixels, max_pixels: Bounds of width times height times `frames`.
        frames: Of which the model takes the image.
        grow: The step for an image with a side below the multiple.
    """

    multiple: int
    min_pixels: int
    max_pixels: int
    frames: int = 1
    grow: Grow = Grow.NONE

    def of(self, source: Size) -> Size:
        grown = self._grown(source)
        if max(grown) > MAX_ASPECT * min(grown):
            raise UsageError(
                f"an image of {source.width}x{source.height} is too long for this processor; "
                f"the longer side may be {MAX_ASPECT} times the shorter one"
            )
        width, height = (round(side / self.multiple) * self.multiple for side in grown)
        pixels = self.frames * grown.width * grown.height
        if self.frames * width * height > self.max_pixels:
            by = math.sqrt(pixels / self.max_pixels)
            width, height = (
                max(self.multiple, math.floor(side / by / self.multiple) * self.multiple) for side in grown
            )
        elif self.frames * width * height < self.min_pixels:
            by = math.sqrt(self.min_pixels / pixels)
            width, height = (math.ceil(side * by / self.multiple) * self.multiple for side in grown)
        return Size(width, height)

    def _grown(self, source: Size) -> Size:
        width, height = source
        if self.grow is Grow.TOGETHER and min(source) < self.multiple:
            by = max(self.multiple / height, self.multiple / width)
            return Size(int(width * by), int(height * by))
        if self.grow is Grow.EACH:
            if height < self.multiple:
                width, height = round(width * self.multiple / height), self.multiple
            if width < self.multiple:
                width, height = self.multiple, round(height * self.multiple / width)
        return Size(width, height)


def _up(side: int, multiple: int) -> int:
    return -(-side // multiple) * multiple


class Canvas(Protocol):
    """The rule for the picture that is cut into tiles."""

    def of(self, source: Size, tile: Size) -> Size:
        """Return the size of the canvas, which is a multiple of the tile."""
        ...

    def fitted(self, source: Size, canvas: Size) -> Size:
        """Return the size of the image in the middle of the canvas. Zeros are around it."""
        ...


@dataclass(frozen=True, slots=True)
class ListedCanvas:
    """The canvas of a list that holds the most pixels of the image, or else wastes the fewest (LLaVA-NeXT).

    The image keeps its aspect. An image that is smaller than a canvas has all its pixels in it."""

    canvases: tuple[Size, ...]

    def of(self, source: Size, tile: Size) -> Size:
        area = source.width * source.height
        best, found = self.canvases[0], (0, 0)
        for canvas in self.canvases:
            by = min(canvas.width / source.width, canvas.height / source.height)
            held = min(int(source.width * by) * int(source.height * by), area)
            if (held, held - canvas.width * canvas.height) > found:
                best, found = canvas, (held, held - canvas.width * canvas.height)
        return best

    def fitted(self, source: Size, canvas: Size) -> Size:
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
        numbers = range(1, self.high + 1)
        grids = [Size(w, h) for w in numbers for h in numbers if self.low <= w * h <= self.high]
        aspect, area = source.width / source.height, source.width * source.height
        best, distance = Size(1, 1), math.inf
        for grid in sorted(grids, key=lambda each: each.width * each.height):
            far = abs(aspect - grid.width / grid.height)
            larger = area > 0.5 * tile.width * tile.height * grid.width * grid.height
            if far < distance or (far == distance and larger):
                best, distance = grid, far
        return Size(best.width * tile.width, best.height * tile.height)

    def fitted(self, source: Size, canvas: Size) -> Size:
        return canvas


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of a canvas, row by row, and a thumbnail of the whole image, which is as large as a tile.

    Args:
        tile: Size of a tile.
        canvas: Rule of the canvas.
        thumbnail_first: Whether the thumbnail comes before the tiles. Otherwise it comes behind them, and only if there
            are several.
    """

    tile: Size
    canvas: Canvas
    thumbnail_first: bool


@dataclass(frozen=True, slots=True)
class Planes:
    """The layout (1, channels, rows, columns). `sizes` adds `image_sizes`, with the rows and the columns."""

    sizes: bool = False


@dataclass(frozen=True, slots=True)
class MergedPatches:
    """The layout (patches, values), with one row for each patch, as Qwen2-VL takes it.

    Patches of `merge` times `merge` follow each other, because the model merges them. Each patch repeats the image for
    `frames` frames. A row has the channels, then the frames, then the patch's rows.

    Args:
        side: Of a patch, in pixels.
        merge: Patches on a side of the square that the model merges.
        frames: Frames that the model takes at once.
    """

    side: int
    merge: int
    frames: int


@dataclass(frozen=True, slots=True)
class PatchImages:
    """The layout (patches, channels times frames, `side`, `side`), row by row, as PaddleOCR-VL takes it."""

    side: int
    frames: int


@dataclass(frozen=True, slots=True)
class PaddedPatches:
    """The layout (1, `rows`, values), with one row for each patch, and zeros after the last one, as SigLIP 2 takes it.

    A row has the patch's rows, then its columns, then the channels."""

    side: int
    rows: int


@dataclass(frozen=True, slots=True)
class StackedTiles:
    """The layout (1, tiles, channels, rows, columns), with `image_sizes` for the rows and columns of the source.

    `images` adds `batch_num_images`, which is 1."""

    images: bool = False


@dataclass(frozen=True, slots=True)
class TileRows:
    """The layout (tiles, channels, rows, columns), with `num_patches` for the number of tiles."""


Layout = Planes | MergedPatches | PatchImages | PaddedPatches | StackedTiles | TileRows


@dataclass(frozen=True, slots=True)
class ProcessorSpec:
    """The settings of an image processor: resize, crop, values and layout.

    Args:
        name: The processor's class in transformers.
        size: Rule of the resize. None leaves the image as it is.
        filter: Filter of the resize.
        engine: Library whose bits the result has.
        crop: Size of the centred crop; zeros pad an image that is smaller. None crops nothing.
        rescale: Factor of the pixel values; None leaves it out.
        mean, std: One value for each RGB channel, of the rescaled values. None leaves out the normalization.
        square: Colour that pads the resized image to a square; None pads nothing.
        tiles: Tiles in place of one image; `size`, `crop` and `square` are then without effect.
        layout: Order of the values in the tensor.

    Raises:
        UsageError: A value is outside its range.
    """

    name: str
    size: SizeRule | None
    filter: Filter
    engine: Engine
    crop: Size | None = None
    rescale: float | None = 1 / 255
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    square: tuple[int, int, int] | None = None
    tiles: Tiles | None = None
    layout: Layout = Planes()

    def __post_init__(self) -> None:
        if self.engine is Engine.TORCHVISION and self.filter not in OF_TORCHVISION:
            raise UsageError(f"{self.name}: torchvision has no filter {self.filter.value}; choose the engine pillow13")
        if (self.mean is None) != (self.std is None):
            raise UsageError(f"{self.name}: give both image_mean and image_std, or neither")
        if self.std is not None and not all(value > 0 for value in self.std):
            raise UsageError(f"{self.name}: image_std is {list(self.std)}; each value must be above 0")

    def resized(self, source: Size) -> Size:
        """Return the size after the resize. Raises UsageError if it is outside 1 to MAX_OUTPUT."""
        if self.tiles is not None:
            canvas = self.tiles.canvas.of(source, self.tiles.tile)
            size = self.tiles.canvas.fitted(source, canvas)
        else:
            size = source if self.size is None else self.size.of(source)
        if not 1 <= min(size) <= max(size) <= MAX_OUTPUT:
            raise UsageError(
                f"{self.name} resizes {source.width}x{source.height} to {size.width}x{size.height}; "
                f"each side must be 1 to {MAX_OUTPUT} pixels"
            )
        return size

    def table(self) -> NDArray[Any]:
        """Return the output value of each pixel value, shape (3, 256): float32, or uint8 without a change of values.

        Each library has an order of its own for the same formula, which shows in the last bit."""
        pixels = np.broadcast_to(np.arange(256, dtype=np.uint8), (3, 256))
        if self.rescale is None and self.mean is None:
            return pixels.copy()
        mean, std = (np.array(value or 0, np.float32).reshape(-1, 1) for value in (self.mean, self.std))
        if self.engine is not Engine.TORCHVISION:
            values = pixels.astype(np.float32)
            if self.rescale is not None:
                values = (pixels.astype(np.float64) * self.rescale).astype(np.float32)
            return values if self.mean is None else (values - mean) / std
        values = pixels.astype(np.float32)
        if self.mean is None:
            return values * np.float32(self.rescale or 1)
        if self.rescale is not None:  # torchvision scales the constants, not the pixels
            mean, std = mean * np.float32(1.0 / self.rescale), std * np.float32(1.0 / self.rescale)
        return (values - mean) / std
