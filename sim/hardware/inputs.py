"""What the size of a request stands for where it is preprocessed: bytes of its file, of its tensor, and work.

A size is the seconds of a sound, or the pixels of a photo. Of photos that are at hand more is known than that: there a
size is the photo's number among them, from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.sim.hardware.dpu.image import image_cu_cycles
from headrace.sim.hardware.dpu.jpeg import read_jpeg_work

Values = NDArray[np.float64]
KINDS: Final = ("image", "sound")

# ILSVRC-2012's training set: 1,281,167 files in 138 GB are 108 KB a file; the size that most of them have.
TYPICAL_PIXELS: Final = 500 * 375
TYPICAL_FILE_BYTES: Final = 110_000
# Clocks of image_cu for a photo of which no more is known than pixels and bytes. Two pixels a clock of those that the
# crop needs (resized to 256, cropped to 224: 329 rows of 336 columns of TYPICAL_PIXELS, in whole blocks and MCUs), or
# one Huffman symbol a clock if that is slower, of which photos have some 1.4 a byte (long codes count twice); headers
# and the way through the units. Beside `image_cu_cycles` of eight photos of scikit-learn's and scikit-image's at
# 500x375, 4:2:0 and 4:4:4, quality 60 to 98: 21 % off at most, where both take about as long, and 1 % too few on
# average. `photo_of` has the clocks of a file.
PIXELS_A_CLOCK: Final = 2.0
NEEDED: Final = 329 * 336 / TYPICAL_PIXELS
SYMBOLS_A_BYTE: Final = 1.4
CLOCKS_PER_IMAGE: Final = 3000.0

IMAGE_TENSOR_BYTES: Final = 3 * 224 * 224 * 4  # float32

# LibriSpeech's: 16-bit samples at 16 kHz, here in WAV files, and NeMo's 80 mel bands each 10 ms.
SAMPLE_RATE: Final = 16000
SAMPLE_BYTES: Final = 2
WAV_HEADER_BYTES: Final = 44
HOP: Final = 160
MELS: Final = 80
MEL_BYTES: Final = 4
ROW_BYTES: Final = 16  # of a row of the tensor: whole words of device memory


@dataclass(frozen=True, slots=True)
class Photo:
    """One that is at hand. `clocks` are those of image_cu, from start to done. Raises UsageError."""

    pixels: int
    file_bytes: int
    clocks: int

    def __post_init__(self) -> None:
        if min(self.pixels, self.file_bytes, self.clocks) < 1:
            raise UsageError(
                f"a photo of {self.pixels} pixels and {self.file_bytes} bytes that takes {self.clocks} clocks: each "
                "must be at least 1"
            )


def image_of(jpeg: bytes) -> Photo:
    """By the cycle model. Raises UsageError for a file that the image CU does not take."""
    work = read_jpeg_work(jpeg)
    return Photo(work.width * work.height, len(jpeg), image_cu_cycles(work))


def estimated_clocks(pixels: Values, file_bytes: Values) -> Values:
    """Of image_cu, from start to done, of photos that nobody has looked into."""
    return np.maximum(NEEDED * pixels / PIXELS_A_CLOCK, SYMBOLS_A_BYTE * file_bytes) + CLOCKS_PER_IMAGE


@dataclass(frozen=True, slots=True)
class Inputs:
    """All requests of a run: of one of KINDS, and with `photos` those at hand. Raises UsageError, as do its methods for
    a size that there is not."""

    kind: str
    photos: tuple[Photo, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"there is no preprocessing of {self.kind!r}; choose from {', '.join(KINDS)}")
        if self.photos and self.kind != "image":
            raise UsageError(f"photos are given, but what is preprocessed is {self.kind}: leave them out")

    def pixels(self, sizes: Values) -> Values:
        if not self.photos:
            return self._checked(sizes)
        return self._of_images(sizes, [photo.pixels for photo in self.photos])

    def file_bytes(self, sizes: Values) -> Values:
        if self.kind == "sound":
            return WAV_HEADER_BYTES + SAMPLE_BYTES * self.samples(sizes)
        if not self.photos:
            return self._checked(sizes) * (TYPICAL_FILE_BYTES / TYPICAL_PIXELS)
        return self._of_images(sizes, [photo.file_bytes for photo in self.photos])

    def tensor_bytes(self, sizes: Values) -> Values:
        if self.kind == "image":
            return np.full(len(sizes), float(IMAGE_TENSOR_BYTES))
        return MELS * ROW_BYTES * np.ceil(self.frames(sizes) * MEL_BYTES / ROW_BYTES)

    def image_clocks(self, sizes: Values) -> Values:
        if self.photos:
            return self._of_images(sizes, [photo.clocks for photo in self.photos])
        return estimated_clocks(sizes, self.file_bytes(sizes))

    def seconds(self, sizes: Values) -> Values:
        """Of sound."""
        return self._checked(sizes)

    def samples(self, sizes: Values) -> Values:
        return np.rint(self._checked(sizes) * SAMPLE_RATE)

    def frames(self, sizes: Values) -> Values:
        return np.floor(self.samples(sizes) / HOP) + 1

    def _checked(self, sizes: Values) -> Values:
        if not (np.isfinite(sizes).all() and (sizes > 0).all()):
            what = "seconds of sound" if self.kind == "sound" else "pixels"
            raise UsageError(f"sizes of requests are {what}, each above 0")
        return sizes

    def _of_images(self, sizes: Values, values: Sequence[int]) -> Values:
        numbers = sizes.astype(np.int64)
        if not ((numbers == sizes).all() and (numbers >= 0).all() and (numbers < len(values)).all()):
            raise UsageError(f"sizes of requests are numbers of photos, 0 to {len(values) - 1}")
        return np.array(values, np.float64)[numbers]
