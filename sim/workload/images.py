"""Photos: how many pixels each has, which is what preprocessing them goes by."""

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
    """Of a CSV file with the header width,height, one row a photo, further columns being left alone; shape (photos,).
    Raises UsageError that names file and line."""
    found: list[int] = []
    for where, row in read_rows(path, COLUMNS):
        try:
            width, height = (int(row[column]) for column in COLUMNS)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{where}: {error}; give {','.join(COLUMNS)}") from error
        if min(width, height) < 1 or width * height > MAX_PIXELS:
            raise UsageError(f"{where}: a photo of {width}x{height}; give 1 to {MAX_PIXELS} pixels")
        found.append(width * height)
    if not found:
        raise UsageError(f"{path} has no photos")
    return np.array(found, np.float64)


def draw(photos: Pixels, requests: int, rng: np.random.Generator) -> Pixels:
    """Of each request's photo, which is any of them, each as likely. The same in several calls as in one."""
    return photos[(rng.random(requests) * len(photos)).astype(np.int64)]
