"""Images: how many pixels each has. Preprocessing takes its time by that number."""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.sim.text_files import read_rows

COLUMNS: Final = ("width", "height")
MAX_PIXELS: Final = 100_000_000

Pixels = NDArray[np.float64]


def read_images(path: Path) -> Pixels:
    """Return the pixels of each image in a CSV file with the header width,height, shape (images,).

    The file has one row for each image. Further columns are ignored. Raises UsageError that names file and line."""
    pixels: list[int] = []
    for where, row in read_rows(path, COLUMNS):
        try:
            width, height = (int(row[column]) for column in COLUMNS)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{where}: {error}; give {','.join(COLUMNS)}") from error
        if min(width, height) < 1 or width * height > MAX_PIXELS:
            raise UsageError(f"{where}: an image of {width}x{height}; give 1 to {MAX_PIXELS} pixels")
        pixels.append(width * height)
    if not pixels:
        raise UsageError(f"{path} has no images")
    return np.array(pixels, np.float64)


def draw(images: Pixels, requests: int, rng: np.random.Generator) -> Pixels:
    """Return the pixels of the image of each request. Every image is equally likely.

    Several calls with one generator draw the same images as one call for all requests."""
    return images[(rng.random(requests) * len(images)).astype(np.int64)]
