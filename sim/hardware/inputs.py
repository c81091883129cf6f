"""The meaning of a request's size in preprocessing: bytes of its file, bytes of its tensor, and work.

A size is the seconds of a clip, or the pixels of an image. For images at hand more is known. There the size is the
number of the image among them, from 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.sim.hardware.dpu.image import image_cu_cycles
from headrace.sim.hardware.dpu.jpeg import read_jpeg_work

Values = NDArray[np.float64]
KINDS: Final = ("image", "audio")

# ILSVRC-2012's training set has 1,281,167 files in 138 GB, 108 KB a file. This is its most frequent size.
TYPICAL_SIZE: Final = (500, 375)
TYPICAL_PIXELS: Final = TYPICAL_SIZE[0] * TYPICAL_SIZE[1]
TYPICAL_FILE_BYTES: Final = 110_000
# The clocks of image_cu for an image of which only pixels and bytes are known. The units take two pixels a clock of
# those that the crop needs (resized to 256, cropped to 224: 329 rows of 336 columns of TYPICAL_PIXELS, in whole blocks
# and MCUs). If it is slower, they take one Huffman symbol a clock; photos have some 1.4 symbols a byte (long codes
# count twice). Headers and the way through the units are added. The estimate was compared with `image_cu_cycles` for
# eight photos of scikit-learn and scikit-image at 500x375, 4:2:0 and 4:4:4, quality 60 to 98. It is 21 % off at most,
# where both limits are about equal, and 1 % too low on average. `image_of` returns the clocks of a file.
PIXELS_A_CLOCK: Final = 2.0
NEEDED: Final = 329 * 336 / TYPICAL_PIXELS
SYMBOLS_A_BYTE: Final = 1.4
CLOCKS_PER_IMAGE: Final = 3000.0

IMAGE_TENSOR_BYTES: Final = 3 * 224 * 224 * 4  # float32

# LibriSpeech has 16-bit samples at 16 kHz, here in WAV files. NeMo has 80 mel bands each 10 ms.
SAMPLE_RATE: Final = 16000
SAMPLE_BYTES: Final = 2
WAV_HEADER_BYTES: Final = 44
HOP: Final = 160
MELS: Final = 80
MEL_BYTES: Final = 4
ROW_BYTES: Final = 16  # the rows of the tensor have whole words of device memory


@dataclass(frozen=True, slots=True)
class KnownImage:
    """An image at hand. Raises UsageError for numbers below 1.

    Attributes:
        pixels: Of the image.
        file_bytes: Of its file.
        clocks: Of image_cu, from start to done.
        tensor_bytes: Of all its tensors.
        core_s: Seconds of a core by the label of the costs. None stands for those that follow from pixels and bytes.
    """

    pixels: int
    file_bytes: int
    clocks: int
    tensor_bytes: int = IMAGE_TENSOR_BYTES
    core_s: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if min(self.pixels, self.file_bytes, self.clocks, self.tensor_bytes) < 1:
            raise UsageError(
                f"an image of {self.pixels} pixels and {self.file_bytes} bytes that takes {self.clocks} clocks and has "
                f"tensors of {self.tensor_bytes} bytes: each must be at least 1"
            )


def image_of(jpeg: bytes) -> KnownImage:
    """Return what the cycle model says of a JPEG file. Raises UsageError for a file that the image CU does not take."""
    work = read_jpeg_work(jpeg)
    return KnownImage(work.width * work.height, len(jpeg), image_cu_cycles(work))


def usual_file_bytes(pixels: Values) -> Values:
    """Return the bytes of files with as many bytes a pixel as the typical image."""
    return pixels * (TYPICAL_FILE_BYTES / TYPICAL_PIXELS)


def decode_clocks(pixels: float, file_bytes: float) -> float:
    """Return the clocks of decode after the headers for a whole image, by pixels and bytes alone."""
    return max(pixels / PIXELS_A_CLOCK, SYMBOLS_A_BYTE * file_bytes)


def estimated_clocks(pixels: Values, file_bytes: Values) -> Values:
    """Return the clocks of image_cu, from start to done, for images of which only pixels and bytes are known."""
    return np.maximum(NEEDED * pixels / PIXELS_A_CLOCK, SYMBOLS_A_BYTE * file_bytes) + CLOCKS_PER_IMAGE


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a run: their kind, one of KINDS, and the images at hand, if any.

    The constructor raises UsageError for an unknown kind. Methods raise it for a size that cannot be."""

    kind: str
    images: tuple[KnownImage, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"there is no preprocessing of {self.kind!r}; choose from {', '.join(KINDS)}")
        if self.images and self.kind != "image":
            raise UsageError(f"images are given, but the inputs are {self.kind}: leave them out")

    def pixels(self, sizes: Values) -> Values:
        if not self.images:
            return self._checked(sizes)
        return self._of_images(sizes, [image.pixels for image in self.images])

    def file_bytes(self, sizes: Values) -> Values:
        if self.kind == "audio":
            return WAV_HEADER_BYTES + SAMPLE_BYTES * self.samples(sizes)
        if not self.images:
            return usual_file_bytes(self._checked(sizes))
        return self._of_images(sizes, [image.file_bytes for image in self.images])

    def tensor_bytes(self, sizes: Values) -> Values:
        if self.images:
            return self._of_images(sizes, [image.tensor_bytes for image in self.images])
        if self.kind == "image":
            return np.full(len(sizes), float(IMAGE_TENSOR_BYTES))
        return MELS * ROW_BYTES * np.ceil(self.frames(sizes) * MEL_BYTES / ROW_BYTES)

    def image_clocks(self, sizes: Values) -> Values:
        if self.images:
            return self._of_images(sizes, [image.clocks for image in self.images])
        return estimated_clocks(sizes, self.file_bytes(sizes))

    def core_seconds(self, sizes: Values, label: str) -> Values | None:
        """Return the seconds of a core by these costs, if they are known of each image at hand.

        Raises UsageError if only other costs are."""
        known = [image.core_s for image in self.images if image.core_s is not None]
        if not known or len(known) < len(self.images):
            return None
        if label not in known[0]:
            raise UsageError(f"there are no costs {label!r} of these images; choose from {', '.join(known[0])}")
        return self._of_images(sizes, [seconds[label] for seconds in known])

    def seconds(self, sizes: Values) -> Values:
        """Return the seconds of audio of each request."""
        return self._checked(sizes)

    def samples(self, sizes: Values) -> Values:
        return np.rint(self._checked(sizes) * SAMPLE_RATE)

    def frames(self, sizes: Values) -> Values:
        return np.floor(self.samples(sizes) / HOP) + 1

    def _checked(self, sizes: Values) -> Values:
        if not (np.isfinite(sizes).all() and (sizes > 0).all()):
            what = "seconds of audio" if self.kind == "audio" else "pixels"
            raise UsageError(f"sizes of requests are {what}, each above 0")
        return sizes

    def _of_images(self, sizes: Values, values: Sequence[float]) -> Values:
        numbers = sizes.astype(np.int64)
        if not ((numbers == sizes).all() and (numbers >= 0).all() and (numbers < len(values)).all()):
            raise UsageError(f"sizes of requests are numbers of images, 0 to {len(values) - 1}")
        return np.array(values, np.float64)[numbers]
