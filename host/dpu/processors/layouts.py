"""The order of the values in `pixel_values`, and the tensors that come with it.

The latter follow from sizes alone, so a host works them out without a pixel (`tensors.py`).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


@dataclass(frozen=True, slots=True)
class Images:
    """The layout (images, channels, rows, columns), or (images, rows, columns, channels) with the channels last.

    Args:
        axes: The number of axes of length 1 before it.
        slots: The number of images of the tensor. Images of zeros fill it up. None adds no image.
        channels_last: Whether the channels come last.
    """

    axes: int = 0
    slots: int | None = None
    channels_last: bool = False


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

    A row has the patch's rows, then its columns, then the channels.

    Args:
        side: Of a patch, in pixels.
        rows: The number of rows of the tensor.
        merge: Patches on a side of the square that gives a token.
    """

    side: int
    rows: int
    merge: int = 1


IMAGES: Final = Images()

Layout = Images | MergedPatches | PatchImages | PaddedPatches


class Extra(Enum):
    """The contents of a tensor that comes with `pixel_values`. A layout in patches has those of patches."""

    SOURCE_SIZE = "the rows and the columns of the source"
    RESULT_SIZE = "the rows and the columns of the result"
    BATCH = "the number of images that were given, 1"
    IMAGES = "the number of images of the result"
    IMAGES_OF_BATCH = "the same, for each image of a list of images"
    NO_CROPS = "the number of crops that were added, 0"
    CROPS = "the largest number of crops of an image, as a number"
    TILE_GRID = "the tiles on the height and on the width"
    TILE_GRID_ID = "the place of that grid among all grids, from 1 on"
    TILE_MASK = "1 for each image that is none of the zeros"
    PIXEL_MASK = "true for each pixel that is none of the zeros"
    PIXELS_OF_IMAGES = "1 for each pixel of each image"
    PATCH_GRID = "the patches on the height and on the width"
    PATCH_GRID_OF_FRAMES = "the number of frames, 1, and the same"
    PATCH_MASK = "1 for each patch that is none of the zeros"
    PATCH_PLACES = "the column and the row of each patch, and -1 for the zeros"
    TOKENS = "the number of patches by the patches of a token"
