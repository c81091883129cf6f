"""A processor spec says what an image processor of Hugging Face computes. It computes no image itself.

`reference/processor.py` defines the results. `hugging_face/` reads a spec from a `preprocessor_config.json`.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.dpu.processors.canvases import Thumbnail, Tiles
from headrace.host.dpu.processors.layouts import (
    IMAGES,
    Extra,
    Images,
    Layout,
    MergedPatches,
    PaddedPatches,
    PatchImages,
)
from headrace.host.dpu.processors.plan import Pass, Placement, Plan
from headrace.host.dpu.processors.sizes import Size, SizeRule

MAX_SIDE: Final = 65535  # pixels of an image, before and after a resize
MAX_PIXELS: Final = 1 << 26  # of a resized image, of a canvas and of a tensor: 8192x8192, or the same in another form

DTYPES: Final = ("float32", "float16", "bfloat16")  # to which values can be cast
BFLOAT16: Final = np.dtype([("bfloat16", np.uint16)])  # numpy has no bfloat16: these are its 16 bits


def type_name(dtype: np.dtype[Any]) -> str:
    """Return the name of the type of a tensor's values, such as "float32"."""
    return "bfloat16" if dtype == BFLOAT16 else str(dtype)


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
    OPENCV = "opencv"  # its resize is INTER_LINEAR_EXACT, without antialiasing; all else is as with Pillow


OF_TORCHVISION: Final = (Filter.BILINEAR, Filter.BICUBIC, Filter.LANCZOS)


@dataclass(frozen=True, slots=True)
class Crop:
    """The centre of the image. Zeros pad an image that is smaller.

    Where their number is odd, torchvision has one more after the image, and Pillow's path has one more before it."""

    size: Size

    def of(self, image: Size, engine: Engine) -> Placement:
        left, top = (
            self._start(there, side, engine is Engine.TORCHVISION) for there, side in zip(image, self.size, strict=True)
        )
        return Placement(self.size, self.size, left, top)

    def _start(self, there: int, side: int, first: bool) -> int:
        more = side - there
        if more < 0:
            return -(-more // 2)
        return more // 2 if first else more - more // 2


@dataclass(frozen=True, slots=True)
class Square:
    """The image in the middle of a square of its longer side, which has an RGB colour elsewhere."""

    colour: tuple[int, int, int]

    def of(self, image: Size, engine: Engine) -> Placement:
        side = max(image)
        return Placement(
            Size(side, side), Size(side, side), (side - image.width) // 2, (side - image.height) // 2, self.colour
        )


@dataclass(frozen=True, slots=True)
class Pad:
    """The image in the middle of a canvas or in its upper left corner, with zeros elsewhere."""

    size: Size
    middle: bool

    def of(self, image: Size, engine: Engine) -> Placement:
        if image.width > self.size.width or image.height > self.size.height:
            raise UsageError(
                f"the resized image of {image.width}x{image.height} does not fit into {self.size.width}x"
                f"{self.size.height}; give settings with which it shrinks enough"
            )
        return placed(image, self.size, self.size, self.middle)


def placed(image: Size, canvas: Size, tile: Size, middle: bool) -> Placement:
    """Return a placement in the middle or in the upper left corner. An odd row of zeros is after the image."""
    left, top = ((side - there) // 2 if middle else 0 for side, there in zip(canvas, image, strict=True))
    return Placement(canvas, tile, left, top)


@dataclass(frozen=True, slots=True)
class ProcessorSpec:
    """The settings of an image processor: resizes, place on a canvas, values and layout.

    Args:
        name: The processor's class in transformers.
        filter: Filter of all resizes.
        engine: Library whose bits the result has.
        on_white: Whether white is behind transparent pixels. Otherwise, transparency is dropped.
        sizes: Rules of the resizes, each of the image that the one before it made. Without rules there is no resize.
        place: What happens to the resized image. None takes it as it is.
        tiles: Tiles of the resized image in place of one image; `place` must be None then.
        rescale: Factor of the pixel values; None leaves it out.
        mean, std: One value for each RGB channel, of the rescaled values. None leaves out the normalization.
        bfloat16: Whether the values are bfloat16, and each step of their formula rounds to it. They come as their bits,
            in the dtype BFLOAT16.
        dtype: Type to which the values are cast at the end, one of DTYPES. None keeps that of the processor.
        layout: Order of the values in the tensor.
        extras: The other tensors, with their names.

    Raises:
        UsageError: A value is outside its range.
    """

    name: str
    filter: Filter
    engine: Engine
    on_white: bool = False
    sizes: tuple[SizeRule, ...] = ()
    place: Crop | Square | Pad | None = None
    tiles: Tiles | None = None
    rescale: float | None = 1 / 255
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    bfloat16: bool = False
    dtype: str | None = None
    layout: Layout = IMAGES
    extras: tuple[tuple[str, Extra], ...] = ()

    def __post_init__(self) -> None:
        if self.engine is Engine.TORCHVISION and self.filter not in OF_TORCHVISION:
            raise UsageError(f"{self.name}: torchvision has no filter {self.filter.value}; choose the engine pillow13")
        if self.engine is Engine.OPENCV and self.filter is not Filter.BILINEAR:
            raise UsageError(
                f"{self.name}: the engine opencv resizes by bilinear only, and the processor by {self.filter.value}; "
                "choose another engine"
            )
        if (self.mean is None) != (self.std is None):
            raise UsageError(f"{self.name}: give both image_mean and image_std, or neither")
        if self.std is not None and not all(value > 0 for value in self.std):
            raise UsageError(f"{self.name}: image_std is {list(self.std)}; each value must be above 0")
        if self.dtype not in (None, *DTYPES):
            raise UsageError(f"{self.name}: there is no dtype {self.dtype!r}; choose from {', '.join(DTYPES)}")
        if self.place is not None and self.tiles is not None:
            raise UsageError(f"{self.name}: tiles have a canvas of their own; give no crop or pad with them")
        if isinstance(self.place, Crop | Pad) and self.place.size.width * self.place.size.height > MAX_PIXELS:
            raise UsageError(
                f"{self.name}: a canvas of {self.place.size.width}x{self.place.size.height} is too large; "
                f"give at most {MAX_PIXELS} pixels in all"
            )
        if isinstance(self.layout, PaddedPatches) and self.layout.rows * self.layout.side**2 > MAX_PIXELS:
            raise UsageError(
                f"{self.name}: {self.layout.rows} patches of {self.layout.side}x{self.layout.side} are too many; "
                f"give at most {MAX_PIXELS} pixels in all"
            )

    def plan(self, source: Size) -> Plan:
        """Return the passes of a source. Raises UsageError for a source that the processor does not take."""
        passes: list[Pass] = []
        image, last = source, None
        for rule in self.sizes:
            size = rule.of(image)
            self._check(source, image, size)
            passes.append(Pass(last, size))
            image, last = size, len(passes) - 1
        if self.tiles is not None:
            passes += self._tiled(source, image, last, len(passes))
        else:
            placement = Placement(image, image) if self.place is None else self.place.of(image, self.engine)
            self._check(source, placement.canvas, placement.canvas)
            passes[-1:] = [Pass(passes[-1].of if passes else None, image, placement)]
        plan = Plan(source, tuple(passes))
        if self._pixels(plan) > MAX_PIXELS:
            raise UsageError(
                f"{self.name} makes a tensor of {self._pixels(plan)} pixels of {source.width}x{source.height}; "
                f"at most {MAX_PIXELS} are possible"
            )
        return plan

    def _tiled(self, source: Size, image: Size, of: int | None, number: int) -> list[Pass]:
        """Return the pass of the canvas and that of the thumbnail. The former has a number if it comes first."""
        assert self.tiles is not None
        tile, thumbnail = self.tiles.tile, self.tiles.thumbnail
        canvas = self.tiles.canvas.of(image, tile)
        fitted = self.tiles.canvas.fitted(image, canvas, tile)
        self._check(source, canvas, canvas)
        self._check(source, image, fitted)
        tiles = Pass(of, fitted, placed(fitted, canvas, tile, self.tiles.middle))
        if thumbnail is None or (thumbnail is not Thumbnail.ALWAYS_FIRST and canvas == tile):
            return [tiles]
        whole = Pass(number if thumbnail is Thumbnail.LAST_OF_CANVAS else of, tile, Placement(tile, tile))
        first = thumbnail in (Thumbnail.ALWAYS_FIRST, Thumbnail.FIRST)
        return [whole, tiles] if first else [tiles, whole]

    def _check(self, source: Size, image: Size, size: Size) -> None:
        """Refuse the resize of an image to a size if that or the image between its two passes is too large."""
        if not 1 <= min(size) <= max(size) <= MAX_SIDE:
            wanted = f"each side must be 1 to {MAX_SIDE} pixels"
        elif max(image.height, size.height) * size.width > MAX_PIXELS:
            wanted = f"the image must have at most {MAX_PIXELS} pixels, also where its width alone is new"
        else:
            return
        raise UsageError(f"{self.name} resizes {source.width}x{source.height} to {size.width}x{size.height}; {wanted}")

    def _pixels(self, plan: Plan) -> int:
        """Return the pixels of `pixel_values`, of three values each."""
        pixels = plan.images * plan.image.width * plan.image.height
        match self.layout:
            case Images(slots=int(slots)):
                return max(slots, plan.images) * plan.image.width * plan.image.height
            case MergedPatches(frames=frames) | PatchImages(frames=frames):
                return pixels * frames
            case _:
                return pixels

    def cast(self, dtype: str | None = None, channels_last: bool = False) -> "ProcessorSpec":
        """Return the spec with values of another type, and with the channels last.

        Raises:
            UsageError: There is no such type, or the tensor has patches instead of images.
        """
        layout = self.layout
        if channels_last:
            if not isinstance(layout, Images):
                raise UsageError(f"{self.name} makes patches, whose channels have their place; leave out channels_last")
            layout = replace(layout, channels_last=True)
        return replace(self, dtype=dtype or self.dtype, layout=layout)

    def table(self) -> NDArray[Any]:
        """Return the output value of each pixel value, shape (3, 256).

        Without a dtype of the spec they are float32, BFLOAT16 for a spec with bfloat16, or uint8 without a change of
        values."""
        values = self._values()
        if self.dtype is None:
            return values
        if values.dtype == BFLOAT16:
            values = of_bfloat16(values)
        values = values.astype(np.float32)
        if self.dtype == "bfloat16":
            return to_bfloat16(values)
        return values.astype(self.dtype)

    def _values(self) -> NDArray[Any]:
        """Return the table before the cast. Each library has an order of its own for the same formula, which shows in
        the last bit."""
        pixels = np.broadcast_to(np.arange(256, dtype=np.uint8), (3, 256))
        if self.rescale is None and self.mean is None:
            return pixels.copy()
        mean, std = (np.array(value or 0, np.float32).reshape(-1, 1) for value in (self.mean, self.std))
        if self.bfloat16:
            values = _bfloat16(pixels.astype(np.float32) * np.float32(self.rescale or 1))
            return _bits_of_bfloat16(_bfloat16(_bfloat16(values - _bfloat16(mean)) / _bfloat16(std)))
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


def of_bfloat16(bits: NDArray[Any]) -> NDArray[np.float32]:
    """Return the numbers of values in the dtype BFLOAT16."""
    return (bits["bfloat16"].astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[Any]:
    """Return values, rounded to the nearest and halves to the even one, in the dtype BFLOAT16."""
    return _bits_of_bfloat16(_bfloat16(values))


def _bits_of_bfloat16(rounded: NDArray[np.float32]) -> NDArray[Any]:
    return (rounded.view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to the nearest bfloat16, and halves to the even one. The lower 16 bits of the result are 0."""
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
