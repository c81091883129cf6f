"""Rules for the size of an image after a resize. The names say which model chooses its sizes so."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from headrace.batching import UsageError

MAX_ASPECT: Final = 200  # of the sides of an image, for `SmartResize`
SCALE_PRECISION: Final = 1e-5  # of the scale that `MaxPatches` searches


class Size(NamedTuple):
    """Sides in pixels."""

    width: int
    height: int

    @property
    def exchanged(self) -> "Size":
        return Size(self.height, self.width)


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
    """The longer side becomes `pixels`, and the shorter one keeps the aspect, but has at least `least` pixels.

    The shorter side rounds to the nearest pixel (DeepSeek-VL), or down (Aria)."""

    pixels: int
    least: int
    down: bool = False

    def of(self, source: Size) -> Size:
        by = self.pixels / max(source)
        if not self.down:
            return Size(*(max(round(side * by), self.least) for side in source))
        shorter = max(int(min(source) * by), self.least)
        return Size(self.pixels, shorter) if source.width >= source.height else Size(shorter, self.pixels)


@dataclass(frozen=True, slots=True)
class EvenLongestSide:
    """The longer side becomes `pixels`. The shorter side keeps the aspect and becomes even. So Idefics3 chooses sizes.

    A square is as wide as `pixels`, and its height becomes even."""

    pixels: int

    def of(self, source: Size) -> Size:
        aspect = source.width / source.height
        wide = source.width >= source.height
        shorter = int(self.pixels / aspect) if wide else int(self.pixels * aspect)
        shorter = max(shorter + shorter % 2, 1)
        return Size(self.pixels, shorter) if wide else Size(shorter, self.pixels)


@dataclass(frozen=True, slots=True)
class Within:
    """The image shrinks into a box and keeps its aspect. A smaller image is left as it is. So Donut chooses sizes.

    A square has no longer side, so it takes the aspect of the box if it is larger."""

    box: Size

    def of(self, source: Size) -> Size:
        width, height = min(source.width, self.box.width), min(source.height, self.box.height)
        if (width, height) == source:
            return source
        if source.height > source.width:
            width = int(source.width * height / source.height)
        elif source.width > source.height:
            height = int(source.height * width / source.width)
        return Size(width, height)


@dataclass(frozen=True, slots=True)
class SoftTokens:
    """The largest image with the aspect of the source that gives at most `tokens` tokens. So Gemma 4 chooses sizes.

    Args:
        multiple: Side of the square of pixels that gives a token. Both sides are multiples of it.
        tokens: The largest number of tokens.
    """

    multiple: int
    tokens: int

    def of(self, source: Size) -> Size:
        pixels = self.tokens * self.multiple**2
        by = math.sqrt(pixels / (source.width * source.height))
        width, height = (math.floor(by * side / self.multiple) for side in source)
        if width == 0:  # then the image is high: its tokens are one column
            width, height = 1, min(source.height // source.width, self.tokens)
        elif height == 0:
            width, height = min(source.width // source.height, self.tokens), 1
        return Size(width * self.multiple, height * self.multiple)


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
