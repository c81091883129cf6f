"""Images: how many pixels each has. Preprocessing takes its time by that number."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import LONGEST_NAME, UsageError
from headrace.sim.text_files import read_rows

COLUMNS: Final = ("width", "height")
WEIGHT, FILE_BYTES = "weight", "file_bytes"  # further columns, which a file need not have
MAX_PIXELS: Final = 100_000_000
MAX_WEIGHT: Final = 1e9
MAX_FILE_BYTES: Final = 1 << 31
SIZE: Final = re.compile(r"([0-9]{1,6})x([0-9]{1,6})(?::([0-9.]{1,12}))?", re.ASCII)

Pixels = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ImageSizes:
    """Sizes of images, each with its weight in a random choice.

    Attributes:
        width, height: Shape (images,).
        weight: Shape (images,), in any unit.
        file_bytes: Bytes of each file, shape (images,), or None where they are not known.
    """

    width: Pixels
    height: Pixels
    weight: Pixels
    file_bytes: Pixels | None = None

    @property
    def pixels(self) -> Pixels:
        return self.width * self.height


def read_images(path: Path) -> ImageSizes:
    """Return the sizes in a CSV file with the header width,height.

    The file has one row for each image. It may have the columns weight (1 without it) and file_bytes. Others are
    ignored. Raises UsageError that names file and line."""
    sizes: list[tuple[int, int]] = []
    weights: list[float] = []
    file_bytes: list[int] = []
    for where, row in read_rows(path, COLUMNS):
        try:
            width, height = (int(row[column]) for column in COLUMNS)
            weight = float(row.get(WEIGHT) or 1)
            if row.get(FILE_BYTES):
                file_bytes.append(int(row[FILE_BYTES]))
        except (TypeError, ValueError) as error:
            raise UsageError(f"{where}: {error}; give {','.join(COLUMNS)}") from error
        _check(where, width, height, weight)
        if file_bytes and not (len(file_bytes) == len(sizes) + 1 and 1 <= file_bytes[-1] <= MAX_FILE_BYTES):
            raise UsageError(f"{where}: {FILE_BYTES} must be 1 to {MAX_FILE_BYTES} in every row, or in none")
        sizes.append((width, height))
        weights.append(weight)
    if not sizes:
        raise UsageError(f"{path} has no images")
    return _sizes(sizes, weights, file_bytes)


@lru_cache(maxsize=4)  # a search asks for the same ones again and again
def parse_sizes(text: str) -> ImageSizes:
    """Return the sizes in a text such as "500x375,1024x768:2", with weights after colons. Raises UsageError."""
    sizes: list[tuple[int, int]] = []
    weights: list[float] = []
    for part in text.split(","):
        found = SIZE.fullmatch(part.strip())
        try:
            if found is None:
                raise ValueError
            width, height, weight = int(found[1]), int(found[2]), float(found[3] or 1)
        except ValueError:
            raise UsageError(
                f"{part.strip()[:LONGEST_NAME]!r} is no size of an image; give sizes such as 500x375,1024x768:2, "
                "where :2 is a weight"
            ) from None
        _check(repr(part.strip()), width, height, weight)
        sizes.append((width, height))
        weights.append(weight)
    return _sizes(sizes, weights, [])


@lru_cache(maxsize=4)
def one_size(width: int, height: int) -> ImageSizes:
    """Return one size."""
    return _sizes([(width, height)], [1.0], [])


def _check(where: str, width: int, height: int, weight: float) -> None:
    if min(width, height) < 1 or width * height > MAX_PIXELS:
        raise UsageError(f"{where}: an image of {width}x{height}; give 1 to {MAX_PIXELS} pixels")
    if not 0 < weight <= MAX_WEIGHT:
        raise UsageError(f"{where}: a weight of {weight:g}; give a number above 0, up to {MAX_WEIGHT:g}")


def _sizes(sizes: list[tuple[int, int]], weights: list[float], file_bytes: list[int]) -> ImageSizes:
    width, height = np.array(sizes, np.float64).T
    return ImageSizes(width, height, np.array(weights), np.array(file_bytes, np.float64) if file_bytes else None)


def draw(images: Pixels, requests: int, rng: np.random.Generator, weights: Pixels | None = None) -> Pixels:
    """Return the image of each request, or its pixels: one of `images`, by their weights.

    Without weights every image is equally likely. Several calls with one generator draw the same images as one call for
    all requests."""
    drawn = rng.random(requests)
    if weights is None or (weights == weights[0]).all():
        return images[(drawn * len(images)).astype(np.int64)]
    ends = np.cumsum(weights)
    chosen: Pixels = images[np.minimum(np.searchsorted(ends, drawn * ends[-1], side="right"), len(images) - 1)]
    return chosen
