"""How a photo is to be turned: the orientation in a JPEG file's Exif segment (CIPA DC-008, tag 0x0112).

A value from 1 to 8: from 5 on rows and columns are exchanged, first of all; then what is stored is mirrored.
"""

import contextlib
import struct
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.host.dpu.photo_file import SOI, segments

APP1 = 0xE1
EXIF = b"Exif\0\0"
ORIENTATION_TAG = 0x0112
SHORT = 3  # the type of its value: 16 bits


class Orientation(IntEnum):
    """What turns the stored image upright."""

    NONE = 1
    MIRROR = 2
    HALF_TURN = 3
    FLIP = 4
    TRANSPOSE = 5
    QUARTER_TURN = 6  # clockwise
    TRANSVERSE = 7
    BACK_QUARTER_TURN = 8

    @property
    def exchanges_sides(self) -> bool:
        return self >= Orientation.TRANSPOSE

    def turned(self, image: NDArray[Any], rows: int) -> NDArray[Any]:
        """The image upright, its axis `rows` being the rows and the next one the columns."""
        columns = rows + 1
        if self.exchanges_sides:
            image = image.swapaxes(rows, columns)
        if self in (self.MIRROR, self.HALF_TURN, self.QUARTER_TURN, self.TRANSVERSE):
            image = np.flip(image, columns)
        if self in (self.HALF_TURN, self.FLIP, self.TRANSVERSE, self.BACK_QUARTER_TURN):
            image = np.flip(image, rows)
        return np.ascontiguousarray(image)


def orientation(jpeg: bytes) -> Orientation:
    """That of the first Exif segment in front of the image's data; NONE where there is none, or none that makes sense.

    Never fails: whether the file is sound is the decoder's question."""
    if jpeg.startswith(bytes([0xFF, SOI])):
        with contextlib.suppress(struct.error):  # the file ends within its header
            for marker, start, end in segments(jpeg):
                segment = jpeg[start + 4 : end]  # behind marker and length
                if marker == APP1 and segment.startswith(EXIF):
                    return _of_tiff(segment[len(EXIF) :])
    return Orientation.NONE


def _of_tiff(tiff: bytes) -> Orientation:
    """By the entry of the first directory."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return Orientation.NONE
    try:
        magic, directory = struct.unpack_from(order + "HI", tiff, 2)
        (entries,) = struct.unpack_from(order + "H", tiff, directory)
        for entry in range(entries):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, directory + 2 + 12 * entry)
            if tag == ORIENTATION_TAG:
                return Orientation(value) if magic == 42 and kind == SHORT else Orientation.NONE
    except (struct.error, ValueError):
        pass
    return Orientation.NONE
