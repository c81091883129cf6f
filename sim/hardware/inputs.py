"""The meaning of a request's size in preprocessing: bytes of its file, bytes of its tensor, and work.

A size is the seconds of a sound, or the pixels of an image. For images at hand more is known. There the size is the
number of the image among them, from 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.sim.hardware.dpu.audio import HOP, NEMO, MelPlan, mel_cu_cycles, norm_cycles
from headrace.sim.hardware.dpu.image import BEAT, PIXELS, WRITE_BYTES, image_cu_cycles
from headrace.sim.hardware.dpu.jpeg import read_jpeg_work

Values = NDArray[np.float64]
IMAGE_CU, MEL_CU, NORM_CU = UNITS = ("image cu", "mel cu", "norm cu")  # the steps of preprocessing that are on the card

# ILSVRC-2012's training set has 1,281,167 files in 138 GB, 108 KB a file. This is its most frequent size.
TYPICAL_SIZE: Final = (500, 375)
TYPICAL_PIXELS: Final = TYPICAL_SIZE[0] * TYPICAL_SIZE[1]
TYPICAL_FILE_BYTES: Final = 110_000
# The clocks of image_cu for an image of which only pixels and bytes are known. The units take PIXELS a clock of those
# that the crop needs (resized to 256, cropped to 224: 329 rows of 336 columns of TYPICAL_PIXELS, in whole blocks and
# MCUs), and write BEAT pixels or WRITE_BYTES of the tensor in a clock. If it is slower, they take Huffman symbols,
# one or two a clock; photos take some CLOCKS_PER_BYTE. Headers and the way through the units are added. The estimate
# was compared with `image_cu_cycles` for the twelve bundled photos at 500x375, quality 60 to 98. For 4:2:0 it is 18 %
# off at most, and 3 % too high on average. Small files of 4:4:4 get up to 39 % too few clocks, because their twice as
# many blocks go through the transform. `image_of` returns the clocks of a file.
NEEDED: Final = 329 * 336 / TYPICAL_PIXELS
CLOCKS_PER_BYTE: Final = 1.15
CLOCKS_PER_IMAGE: Final = 3000.0

TENSOR_PIXEL_BYTES: Final = 3 * 4  # float32
IMAGE_TENSOR_BYTES: Final = 224 * 224 * TENSOR_PIXEL_BYTES

# LibriSpeech has 16-bit samples at 16 kHz, here in WAV files. NeMo has 80 mel bands each 10 ms.
SAMPLE_RATE: Final = 16000
SAMPLE_BYTES: Final = 2
WAV_HEADER_BYTES: Final = 44
MELS: Final = 80
MEL_BYTES: Final = 4
SHORT: Final = 10 * HOP  # samples from which on `fewer_samples` knows the clocks of CU A
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
    """Return the clocks of decode after the headers for a whole image with a program, by pixels and bytes alone."""
    return max(pixels / BEAT, CLOCKS_PER_BYTE * file_bytes)


def estimated_clocks(pixels: Values, file_bytes: Values) -> Values:
    """Return the clocks of image_cu, from start to done, for images of which only pixels and bytes are known."""
    out = IMAGE_TENSOR_BYTES / min(WRITE_BYTES, BEAT * TENSOR_PIXEL_BYTES)
    units = np.maximum(NEEDED * pixels / PIXELS, out)
    return np.maximum(units, CLOCKS_PER_BYTE * file_bytes) + CLOCKS_PER_IMAGE


Clocks = Mapping[str, Callable[[Values], Values]]


class Inputs(Protocol):
    """The inputs of a run. Its methods raise UsageError for a size that cannot be."""

    @property
    def kind(self) -> str:
        """ "image" or "audio"."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the costs that are known of these inputs. Without any, the costs follow from `amount`."""

    def amount(self, sizes: Values) -> Values:
        """Return the pixels of each image, or the seconds of each sound."""

    def file_bytes(self, sizes: Values) -> Values:
        """Return the bytes of each file."""

    def tensor_bytes(self, sizes: Values) -> Values:
        """Return the bytes of all tensors of each input."""

    @property
    def clocks(self) -> Clocks:
        """The clocks of each kind of compute unit that an input passes, in turn, as a function of sizes."""

    def core_seconds(self, sizes: Values, label: str) -> Values:
        """Return the seconds of a core by the costs of one of `labels`."""


@dataclass(frozen=True, slots=True)
class Images:
    """Images of which only the pixels are known."""

    kind: str = field(default="image", init=False)
    labels: tuple[str, ...] = field(default=(), init=False)

    def amount(self, sizes: Values) -> Values:
        return _positive(sizes, "pixels")

    def file_bytes(self, sizes: Values) -> Values:
        return usual_file_bytes(self.amount(sizes))

    def tensor_bytes(self, sizes: Values) -> Values:
        return np.full(len(sizes), float(IMAGE_TENSOR_BYTES))

    @property
    def clocks(self) -> Clocks:
        return {IMAGE_CU: lambda sizes: estimated_clocks(sizes, self.file_bytes(sizes))}

    def core_seconds(self, sizes: Values, label: str) -> Values:
        raise _no_costs(label, self.labels)


@dataclass(frozen=True, slots=True)
class KnownImages:
    """Images at hand. Sizes are numbers of these."""

    images: tuple[KnownImage, ...]
    kind: str = field(default="image", init=False)

    @property
    def labels(self) -> tuple[str, ...]:
        known = [image.core_s or {} for image in self.images]
        return tuple(label for label in known[0] if all(label in each for each in known))

    def amount(self, sizes: Values) -> Values:
        return self._of(sizes, [image.pixels for image in self.images])

    def file_bytes(self, sizes: Values) -> Values:
        return self._of(sizes, [image.file_bytes for image in self.images])

    def tensor_bytes(self, sizes: Values) -> Values:
        return self._of(sizes, [image.tensor_bytes for image in self.images])

    @property
    def clocks(self) -> Clocks:
        return {IMAGE_CU: lambda sizes: self._of(sizes, [image.clocks for image in self.images])}

    def core_seconds(self, sizes: Values, label: str) -> Values:
        if label not in self.labels:
            raise _no_costs(label, self.labels)
        return self._of(sizes, [(image.core_s or {})[label] for image in self.images])

    def _of(self, sizes: Values, values: Sequence[float]) -> Values:
        numbers = sizes.astype(np.int64)
        if not ((numbers == sizes).all() and (numbers >= 0).all() and (numbers < len(values)).all()):
            raise UsageError(f"sizes of requests are numbers of images, 0 to {len(values) - 1}")
        return np.array(values, np.float64)[numbers]


def _nemo_bytes(samples: int) -> int:
    return MELS * ROW_BYTES * math.ceil(NEMO.frames(samples) * MEL_BYTES / ROW_BYTES)


@dataclass(frozen=True, slots=True)
class AudioWork:
    """The work of a feature extractor for a sound. The defaults are those of NeMo's.

    Attributes:
        tensor_bytes: Returns the bytes of all tensors by samples at SAMPLE_RATE.
        plan: How CU A makes frames, or the reason why the units do not have the feature extractor.
        n_mels: The number of bands.
        value_bytes: Bytes of a value that CU B writes.
        longest_s: The longest sound that the feature extractor takes, in seconds.
        by_frames: Whether rows of the tensor that CU B writes are frames, otherwise bands.
    """

    tensor_bytes: Callable[[int], int] = _nemo_bytes
    plan: MelPlan | str = NEMO
    n_mels: int = MELS
    value_bytes: int = MEL_BYTES
    longest_s: float = math.inf
    by_frames: bool = False


@dataclass(frozen=True, slots=True)
class Audio:
    """Audio in WAV files of 16 bits at SAMPLE_RATE, of which the seconds are known.

    Attributes:
        work: The work of the feature extractor.
        core_s: The seconds of a core as a function of the seconds of sounds, by the label of the costs.
    """

    work: AudioWork = AudioWork()
    core_s: Mapping[str, Callable[[Values], Values]] = field(default_factory=dict)
    kind: str = field(default="audio", init=False)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.core_s)

    def amount(self, sizes: Values) -> Values:
        seconds = _positive(sizes, "seconds of audio")
        if (seconds > self.work.longest_s).any():
            raise UsageError(
                f"a sound has {seconds.max():.4g} s, and the feature extractor takes up to {self.work.longest_s:g} s; "
                "give shorter --lengths"
            )
        return seconds

    def file_bytes(self, sizes: Values) -> Values:
        return WAV_HEADER_BYTES + SAMPLE_BYTES * self._samples(sizes)

    def tensor_bytes(self, sizes: Values) -> Values:
        return _each(self.work.tensor_bytes, self._samples(sizes))

    @property
    def clocks(self) -> Clocks:
        work, plan = self.work, self.work.plan
        if isinstance(plan, str):
            raise UsageError(f"the audio CUs do not have this feature extractor: {plan}")

        def mel(sizes: Values) -> Values:
            samples = self._samples(sizes)
            fewer, later = fewer_samples(samples, plan)
            return _each(lambda count: _mel_clocks(count, work.n_mels, plan), fewer) + later

        def norm(sizes: Values) -> Values:
            frames = _each(plan.frames, self._samples(sizes))
            return _each(lambda count: _norm_clocks(count, work.n_mels, work.value_bytes, work.by_frames), frames)

        return {MEL_CU: mel, NORM_CU: norm}

    def core_seconds(self, sizes: Values, label: str) -> Values:
        if label not in self.core_s:
            raise _no_costs(label, self.labels)
        return self.core_s[label](self.amount(sizes))

    def _samples(self, sizes: Values) -> Values:
        return np.rint(self.amount(sizes) * SAMPLE_RATE)


def fewer_samples(samples: Values, plan: MelPlan) -> tuple[Values, Values]:
    """Return fewer samples, and by how many clocks CU A takes less for these.

    Between the limits of a plan, a further hop of samples takes a clock for each. Samples that only fill a padded sound
    take none. So the cycle model has to run for few lengths, although it runs exactly."""
    limit = max(SHORT, -(-plan.min_samples // HOP) * HOP)
    fewer = np.minimum(samples, limit + samples % HOP)
    fewer = np.where(samples < plan.min_samples, np.minimum(samples, SHORT), fewer)
    fewer = np.where(samples > plan.max_samples, samples, fewer)
    return fewer, np.where(samples < plan.min_samples, 0.0, samples - fewer)


def usual(kind: str) -> Inputs:
    """Return inputs of a kind of which nothing but the size is known. Raises UsageError for an unknown kind."""
    made: Mapping[str, Inputs] = {"image": Images(), "audio": Audio()}
    if kind not in made:
        raise UsageError(f"there is no preprocessing of {kind!r}; choose from {', '.join(made)}")
    return made[kind]


def _no_costs(label: str, labels: Sequence[str]) -> UsageError:
    return UsageError(f"there are no costs {label!r} of these inputs; choose from {', '.join(labels)}")


def _positive(sizes: Values, what: str) -> Values:
    if not (np.isfinite(sizes).all() and (sizes > 0).all()):
        raise UsageError(f"sizes of requests are {what}, each above 0")
    return sizes


@cache
def _mel_clocks(samples: int, n_mels: int, plan: MelPlan) -> int:
    return mel_cu_cycles(samples, n_mels=n_mels, plan=plan)


@cache
def _norm_clocks(frames: int, n_mels: int, value_bytes: int, by_frames: bool) -> int:
    return norm_cycles(frames, n_mels, element_bytes=value_bytes, by_frames=by_frames)


def _each(function: Callable[[int], int], counts: Values) -> Values:
    different, places = np.unique(counts, return_inverse=True)
    return np.array([function(int(count)) for count in different], np.float64)[places]
