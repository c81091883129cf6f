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

MAX_OUTPUT: Final = 4096  # pixels on a side after the resize
MOST_ASPECT: Final = 200  # of the sides of an image, for `SmartResize`


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
class SmartResize:
    """Both sides become multiples of `multiple`, near the aspect of the source. So Qwen2-VL chooses sizes.

    Args:
        multiple: In pixels.
        min_pixels, max_pixels: Bounds of width times height.
    """

    multiple: int
    min_pixels: int
    max_pixels: int

    def of(self, source: Size) -> Size:
        if max(source) > MOST_ASPECT * min(source):
            raise UsageError(
                f"an image of {source.width}x{source.height} is too long for this processor; "
                f"the longer side may be {MOST_ASPECT} times the shorter one"
            )
        width, height = (round(side / self.multiple) * self.multiple for side in source)
        area = source.width * source.height
        if width * height > self.max_pixels:
            by = math.sqrt(area / self.max_pixels)
            width, height = (
                max(self.multiple, math.floor(side / by / self.multiple) * self.multiple) for side in source
            )
        elif width * height < self.min_pixels:
            by = math.sqrt(self.min_pixels / area)
            width, height = (math.ceil(side * by / self.multiple) * self.multiple for side in source)
        return Size(width, height)


@dataclass(frozen=True, slots=True)
class Patches:
    """A layout with one row for each patch, as vision-language models take it.

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
        patches: Layout in patches; None for planes (channels, rows, columns).

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
    patches: Patches | None = None

    def __post_init__(self) -> None:
        if self.engine is Engine.TORCHVISION and self.filter not in OF_TORCHVISION:
            raise UsageError(f"{self.name}: torchvision has no filter {self.filter.value}; choose the engine pillow13")
        if (self.mean is None) != (self.std is None):
            raise UsageError(f"{self.name}: give both image_mean and image_std, or neither")
        if self.std is not None and not all(value > 0 for value in self.std):
            raise UsageError(f"{self.name}: image_std is {list(self.std)}; each value must be above 0")

    def resized(self, source: Size) -> Size:
        """Return the size after the resize. Raises UsageError if it is outside 1 to MAX_OUTPUT."""
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
