"""This module defines the antialiased resize of today's image processors: Pillow's and torchvision's, bit for bit.

A resize has two passes, one along rows and one along columns, with 8-bit pixels between them. In a pass, each output
pixel is a weighted mean of the input pixels under a filter. The filter is as much wider as the image shrinks, so it
also removes what the output cannot show (aliasing).

The libraries agree on filters, windows and weights, but not on three details:

    engine        fixed point of the taps                              which pass comes first
    torchvision   as many bits as keep the pass's taps below 2^15      rows
    pillow12      22 bits                                              rows (Pillow up to 12.1)
    pillow13      22 bits                                              columns, if the height shrinks by more than
                                                                       twice the number of pixels of the width

Pillow 12.2 and 12.3 differ from 12.1 for images that are more than 100 times as high as wide. They have no engine here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.dpu.processors import MAX_SIDE, Engine, Filter

WITH_TAPS: Final = (Engine.TORCHVISION, Engine.PILLOW12, Engine.PILLOW13)  # the engines that resize by taps
BITS: Final = 22  # of Pillow's taps, and the most of torchvision's: 8 bits of a pixel and 2 of overflow fill 32
TAP_LIMIT: Final = 1 << 15  # torchvision's taps are 16-bit integers
STRIP: Final = 1536  # values of a row that a pass takes at once, which bounds its memory


@dataclass(frozen=True, slots=True)
class Taps:
    """The fixed-point weights of a pass.

    Attributes:
        first: The first input pixel of each output pixel, shape (out,).
        weights: The integers by which the pixels from `first` on are multiplied, shape (out, width). Rows with fewer
            taps end in zeros.
        counts: The number of taps of each output pixel, shape (out,).
        bits: The weights are multiples of 2^-bits.
    """

    first: NDArray[np.int32]
    weights: NDArray[np.int32]
    counts: NDArray[np.int32]
    bits: int


def taps(source: int, target: int, by: Filter, engine: Engine) -> Taps:
    """Return the taps of a pass from `source` to `target` pixels.

    Raises:
        UsageError: A size is outside 1 to MAX_SIDE.
    """
    for side in (source, target):
        if not 1 <= side <= MAX_SIDE:
            raise UsageError(f"a side of {side} pixels cannot be resized; give 1 to {MAX_SIDE}")
    scale = source / target
    wider = max(scale, 1.0)
    reach, weight = FILTERS[by]
    support = reach * wider
    centres = (np.arange(target) + 0.5) * scale
    first = np.maximum((centres - support + 0.5).astype(np.int64), 0)  # towards 0, as in C
    counts = np.minimum((centres + support + 0.5).astype(np.int64), source) - first
    places = np.arange(counts.max())
    distances = (places + first[:, None] - centres[:, None] + 0.5) * (1.0 / wider)
    weights = np.where(places < counts[:, None], weight(distances), 0.0)
    totals = np.add.accumulate(weights, axis=1)[:, -1:]  # one after the other, as the libraries add
    weights = np.divide(weights, totals, out=weights, where=totals != 0)
    bits = BITS if engine is not Engine.TORCHVISION else _bits_below(TAP_LIMIT, float(weights.max()))
    scaled = weights * (1 << bits)
    rounded = np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int32)  # halves go away from 0
    return Taps(first.astype(np.int32), rounded, counts.astype(np.int32), bits)


def resize(image: NDArray[np.uint8], width: int, height: int, by: Filter, engine: Engine) -> NDArray[np.uint8]:
    """Return an image (rows, columns, 3) of uint8 with another size.

    Raises:
        UsageError: A size is outside 1 to MAX_SIDE.
    """
    rows, columns = image.shape[:2]
    if engine is Engine.OPENCV:
        return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR_EXACT), np.uint8)
    for axis in (0, 1) if columns_first(columns, rows, width, height, engine) else (1, 0):
        target = (height, width)[axis]
        if image.shape[axis] == target:
            continue
        by_taps = taps(image.shape[axis], target, by, engine)
        image = _pass(image, by_taps) if axis == 0 else cv2.transpose(_pass(cv2.transpose(image), by_taps))
    return image


def columns_first(source_width: int, source_height: int, width: int, height: int, engine: Engine) -> bool:
    """Tell whether the pass along columns, which changes the height, is the first one."""
    shrinks = source_height - height
    return engine is Engine.PILLOW13 and shrinks > 0 and shrinks > 2 * (source_width - width)


def _pass(image: NDArray[np.uint8], by: Taps) -> NDArray[np.uint8]:
    """Return an image with another number of rows: the product of a sparse matrix of taps and the rows.

    The sums are 32-bit integers, as in the libraries."""
    from scipy.sparse import csr_array  # large; most images need no resampler

    rows, source = by.weights.shape[0], image.shape[0]
    present = np.arange(by.weights.shape[1]) < by.counts[:, None]
    places = (by.first[:, None] + np.arange(by.weights.shape[1], dtype=np.int32))[present]
    ends = np.concatenate(([0], np.cumsum(by.counts, dtype=np.int32)))
    matrix = csr_array((by.weights[present], places, ends), shape=(rows, source))
    flat = image.reshape(source, -1)
    resized = np.empty((rows, flat.shape[1]), np.uint8)
    for start in range(0, flat.shape[1], STRIP):
        strip = slice(start, start + STRIP)
        sums = matrix @ flat[:, strip].astype(np.int32)
        sums += 1 << (by.bits - 1)
        sums >>= by.bits
        resized[:, strip] = np.clip(sums, 0, 255, out=sums)
    return resized.reshape(rows, *image.shape[1:])


def _bits_below(limit: int, largest: float) -> int:
    """Return the most bits, at most BITS, with which the largest weight stays below the limit."""
    return max(bits for bits in range(BITS + 1) if int(0.5 + largest * (1 << bits)) < limit)


# ---- The filters ----


def _box(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _bilinear(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _hamming(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The window of 0.54 and 0.46, which Pillow has in single precision, times a sinc. It is 1 in the middle.

    Both constants add up to a little more than 1, so the middle is a case of its own."""
    x = np.abs(x)
    window = float(np.float32(0.54)) + float(np.float32(0.46)) * _each(math.cos, x * math.pi)
    return np.where(x == 0.0, 1.0, np.where(x >= 1.0, 0.0, _sinc(x) * window))


def _bicubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The cubic convolution with a = -0.5."""
    a, x = -0.5, np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _lanczos(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where((x >= -3.0) & (x < 3.0), _sinc(x) * _sinc(x / 3), 0.0)


def _sinc(x: NDArray[np.float64]) -> NDArray[np.float64]:
    turned = x * math.pi
    return np.divide(_each(math.sin, turned), turned, out=np.ones_like(turned), where=turned != 0)


def _each(function: Callable[[float], float], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Apply a function of the C library, which the libraries call. Those of numpy differ in the last bit."""
    return np.fromiter(map(function, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


# The distance from which on all weights are 0, and the weight by distance, in pixels of the smaller image.
FILTERS: Final[dict[Filter, tuple[float, Callable[[NDArray[np.float64]], NDArray[Any]]]]] = {
    Filter.BOX: (0.5, _box),
    Filter.BILINEAR: (1.0, _bilinear),
    Filter.HAMMING: (1.0, _hamming),
    Filter.BICUBIC: (2.0, _bicubic),
    Filter.LANCZOS: (3.0, _lanczos),
}
