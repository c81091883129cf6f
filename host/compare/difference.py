"""The difference of two tensors, as numbers and as a picture."""

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from headrace.host.compare.values import numbers
from headrace.host.dpu.processors import ProcessorSpec
from headrace.host.dpu.reference.processor import laid_out

MAP_SIDE: Final = 320  # pixels of the longer side of a heat map
# Colours of a heat map, from no difference to the largest one: black, violet, red, orange, white.
COLOURS: Final = ((0, 0, 0), (66, 10, 104), (187, 55, 84), (249, 142, 8), (252, 255, 200))


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two arrays of one shape.

    Attributes:
        max, mean: Largest and mean absolute difference, in `unit`.
        share: Share of the values that differ at all.
        values: Number of the values.
        unit: "levels" of 8 bits, or "values" of the tensor.
        not_finite: Values that are a number on one side alone.
    """

    max: float
    mean: float
    share: float
    values: int
    unit: str
    not_finite: int = 0

    def within(self, tolerance: float) -> bool:
        """Tell whether no value differs by more than a tolerance."""
        return self.max <= tolerance and not self.not_finite

    @property
    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def gap(found: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """Return the absolute difference of each value. It is infinite where one side alone is a finite number.

    Values that are not numbers on both sides do not differ."""
    if found.dtype == expected.dtype and np.array_equal(found, expected):
        return np.zeros(found.shape)
    ours, theirs = numbers(found).astype(np.float64), numbers(expected).astype(np.float64)
    with np.errstate(invalid="ignore"):
        made: NDArray[np.float64] = np.abs(ours - theirs)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    made[same] = 0.0
    made[~np.isfinite(made)] = np.inf
    return made


def difference(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], unit: str) -> Difference:
    """Return the difference of arrays, each to the one at its place. Both lists have the same shapes."""
    gaps = [gap(ours, theirs) for ours, theirs in zip(found, expected, strict=True)]
    flat = np.concatenate([each.ravel() for each in gaps]) if gaps else np.zeros(0)
    finite = flat[np.isfinite(flat)]
    return Difference(
        max=float(finite.max(initial=0.0)),
        mean=float(finite.mean()) if finite.size else 0.0,
        share=float(np.count_nonzero(flat) / max(1, flat.size)),
        values=int(flat.size),
        unit=unit,
        not_finite=int(flat.size - finite.size),
    )


def shapes(arrays: Sequence[NDArray[Any]]) -> list[tuple[int, ...]]:
    return [each.shape for each in arrays]


def on_images(gaps: NDArray[np.float64], images: tuple[int, ...], spec: ProcessorSpec) -> NDArray[np.float64] | None:
    """Return differences of `pixel_values` at their places in the images, shape (number, 3, rows, columns).

    The layout of numbered values tells where each value comes from. Returns None if the shape is not that of the
    layout."""
    numbered = laid_out(np.arange(1, int(np.prod(images)) + 1).reshape(images), spec.layout)
    if numbered.shape != gaps.shape:
        return None
    found = np.zeros(numbered.size + 1 if numbered.size > np.prod(images) else int(np.prod(images)) + 1)
    np.maximum.at(found, numbered.ravel(), gaps.ravel())
    return found[1 : int(np.prod(images)) + 1].reshape(images)


def levels(spec: ProcessorSpec) -> NDArray[np.float64]:
    """Return the change of a value by one level of a pixel, for each channel."""
    table = numbers(spec.table()).astype(np.float64)
    slope: NDArray[np.float64] = np.abs(table[:, 255] - table[:, 0]) / 255
    return slope


def heat_map(gaps: NDArray[np.float64], full: float, keep_ratio: bool = True) -> bytes:
    """Return a PNG file of differences, shape (rows, columns). The colour at the end is that of `full` and more.

    A larger map shrinks by the maximum of each block, so that no single pixel disappears. Without `keep_ratio`, each
    side shrinks by itself, which suits features: they have many more frames than bands."""
    rows, columns = gaps.shape
    down, across = (max(1, -(-side // MAP_SIDE)) for side in gaps.shape)
    if keep_ratio:
        down = across = max(down, across)
    padded = np.pad(gaps, ((0, -rows % down), (0, -columns % across)))
    small = padded.reshape(padded.shape[0] // down, down, padded.shape[1] // across, across).max((1, 3))
    share = np.clip(np.nan_to_num(small, posinf=full) / (full or 1.0), 0, 1)
    # A small difference is still seen: the first visible colour begins at a tenth of the scale.
    share = np.where(share > 0, 0.1 + 0.9 * np.sqrt(share), 0)
    stops = np.linspace(0, 1, len(COLOURS))
    colours = np.stack([np.interp(share, stops, [each[channel] for each in COLOURS]) for channel in range(3)], -1)
    return png(np.rint(colours).astype(np.uint8))


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return a PNG file of RGB pixels."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


def thumbnail(pixels: NDArray[Any]) -> bytes:
    """Return a JPEG file of RGB pixels, at most MAP_SIDE long."""
    image = Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
    image.thumbnail((MAP_SIDE, MAP_SIDE))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    return file.getvalue()


def joined(images: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return images, shape (rows, columns, ...), one after another in a row, at most four of them."""
    shown = list(images[:4])
    rows = max(each.shape[0] for each in shown)
    return np.concatenate(
        [np.pad(each, ((0, rows - each.shape[0]), (0, 0), *[(0, 0)] * (each.ndim - 2))) for each in shown], axis=1
    )
