"""Specs say what preprocessing computes: sizes, formats and stages. They compute no input themselves.

A driver, its compute units and the CPU path take the same spec. The type of a spec names the kind of input.
`reference/` defines the results for a spec.
"""

import math
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError

# ---- Images ----

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # RGB, of pixel values in 0..1; torchvision's training transform
IMAGENET_STD = (0.229, 0.224, 0.225)
MAX_MEGAPIXELS = 100  # medium format cameras make images of this size; OpenCV holds 3 bytes a pixel
IMAGE_FORMATS = ("float32", "float16", "int8")  # index = value of the image CU's `format` register


class ImageStage(IntEnum):
    """The last stage that runs. The values are those of the image CU's `stage` register."""

    DECODE = 0
    RESIZE = 1
    CROP = 2
    NORMALIZE = 3


class Damaged(Enum):
    """The rule for a damaged file from which OpenCV still makes an image: STRICT refuses it, LENIENT takes it."""

    STRICT = "strict"
    LENIENT = "lenient"


class Orientation(IntEnum):
    """The step that turns a stored image upright. The values are those of the Exif tag (CIPA DC-008, tag 0x0112).

    From 5 on, the step exchanges rows and columns first and then mirrors the image."""

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

    @property
    def mirrors(self) -> tuple[bool, bool]:
        """Whether the step mirrors the columns, and whether it mirrors the rows, of the upright image."""
        return (
            self in (self.MIRROR, self.HALF_TURN, self.QUARTER_TURN, self.TRANSVERSE),
            self in (self.HALF_TURN, self.FLIP, self.TRANSVERSE, self.BACK_QUARTER_TURN),
        )

    def view(self, image: NDArray[Any], rows: int) -> NDArray[Any]:
        """Return a view of the image upright. Axis `rows` of `image` holds its rows, and the next axis its columns."""
        columns = rows + 1
        if self.exchanges_sides:
            image = image.swapaxes(rows, columns)
        for axis, mirrored in zip((columns, rows), self.mirrors, strict=True):
            if mirrored:
                image = np.flip(image, axis)
        return image

    def turned(self, image: NDArray[Any], rows: int) -> NDArray[Any]:
        """Return the same as a copy."""
        return np.ascontiguousarray(self.view(image, rows))


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """The settings of image preprocessing: decode (JPEG to RGB), resize (shorter side), crop and normalize.

    Args:
        resize_short: Length of the shorter side after the resize, in pixels.
        crop_width, crop_height: Size of the crop window, in pixels.
        crop_x, crop_y: Offset of the window, in pixels. None centres the window.
        mean, std: One value per RGB channel, for pixel values in 0..1.
        dtype: Type of the tensor, one of IMAGE_FORMATS.
        int8_step: Value of one int8 step. None chooses the smallest step that holds every value of the three tables.
        max_megapixels: Largest image that the CPU takes. The DPU has limits of its own.
        damaged: Rule of the CPU for damaged files. The DPU never takes a file that it finds damaged.
        orient: Turn the result upright, as the file's Exif orientation says. It needs a centred crop.

    `orient` turns the image after the other stages. Where the turn exchanges the sides, the crop window has its sides
    exchanged too. To turn the image before the resize would give the same result up to rounding: one level, and one
    pixel where the crop cuts off an odd number of pixels.

    Raises:
        UsageError: A value is outside its range.
    """

    resize_short: int = 256
    crop_width: int = 224
    crop_height: int = 224
    crop_x: int | None = None
    crop_y: int | None = None
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    dtype: str = "float32"
    int8_step: float | None = None
    max_megapixels: int = MAX_MEGAPIXELS
    damaged: Damaged = Damaged.STRICT
    orient: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in IMAGE_FORMATS:
            raise UsageError(f"tensor type {self.dtype!r} is not one of {', '.join(IMAGE_FORMATS)}")
        for name in ("resize_short", "crop_width", "crop_height"):
            if not 1 <= getattr(self, name) <= 65535:
                raise UsageError(f"{name} is {getattr(self, name)}; give 1 to 65535 pixels")
        for name in ("crop_x", "crop_y"):
            offset = getattr(self, name)
            if offset is not None and not 0 <= offset <= 65535:
                raise UsageError(f"{name} is {offset}; give 0 to 65535 pixels, or nothing to centre the crop")
        if self.orient and (self.crop_x is not None or self.crop_y is not None):
            raise UsageError("orient needs a centred crop; give no crop offsets with it")
        if not all(s > 0 for s in self.std):
            raise UsageError(f"std is {self.std}; each channel's must be above 0")
        if self.int8_step is not None and not self.int8_step > 0:
            raise UsageError(f"int8_step is {self.int8_step}; it must be above 0")

    @property
    def tensor_shape(self) -> tuple[int, int, int]:
        return (3, self.crop_height, self.crop_width)

    def turn(self, orientation: Orientation) -> Orientation:
        """Return the turn that this spec applies to an image with that orientation: NONE without `orient`."""
        return orientation if self.orient else Orientation.NONE

    def as_stored(self, orientation: Orientation) -> "ImageSpec":
        """Return the spec for the stages before the turn, for an image with that orientation."""
        width, height = self.crop_width, self.crop_height
        if self.turn(orientation).exchanges_sides:
            width, height = height, width
        return replace(self, orient=False, crop_width=width, crop_height=height)

    def tables(self) -> NDArray[Any]:
        """Return the normalized value of every pixel value, shape (3, 256), in `dtype`.

        A value is `(x / 255 - mean) / std` in float32, then rounded to `dtype`. The CU and the CPU both look up their
        results in these tables."""
        mean, std = (np.asarray(value, np.float32)[:, None] for value in (self.mean, self.std))
        values = (np.arange(256, dtype=np.float32) / np.float32(255) - mean) / std
        if self.dtype != "int8":
            return values.astype(self.dtype, copy=False)
        step = self.int8_step
        if step is None:
            step = float(np.abs(values).max()) / 127
        quantized: np.ndarray[Any, Any] = np.clip(np.rint(values / np.float32(step)), -127, 127).astype(np.int8)
        return quantized


# ---- Audio ----

RATES = (8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000)  # Hz; between any two of them there is a short FIR
AUDIO_FORMATS = ("float32", "float16")  # index = value of the normalize CU's `format` register
RESAMPLERS = ("fir", "soxr")
NORMALIZE_OVER = ("nemo", "all")
SILENCE = 2.0**-24  # added to a band's power before the logarithm; NeMo's log_zero_guard_value


class AudioStage(IntEnum):
    """The last stage that runs."""

    RESAMPLE = 0
    MEL = 1
    NORMALIZE = 2


@dataclass(frozen=True, slots=True)
class AudioSpec:
    """The settings of audio preprocessing: resample, mel (the logarithm of a mel spectrogram) and normalize.

    The defaults are those of NeMo's `AudioToMelSpectrogramPreprocessor` for Conformer, CitriNet and Parakeet, without
    its dither.

    Args:
        rate: Sample rate of the mel stage, in Hz.
        rates: Sample rates of the inputs that the DPU may take, in Hz.
        preemphasis: Factor p of y[i] = x[i] - p * x[i - 1], with y[0] = x[0]. 0 leaves the filter out.
        n_fft, window, hop: Frame, window and distance of frames, in samples at `rate`.
        n_mels: Number of mel bands.
        log_floor: Added to the power of a mel band before the natural logarithm.
        std_floor: Added to the standard deviation of a mel band.
        longest_s: Longest input, in seconds.
        dtype: Type of the tensor, one of AUDIO_FORMATS.
        normalize_over: Frames that mean and standard deviation count, on both paths. With "all", every frame counts.
            With "nemo", samples // `hop` frames count (NeMo's rule). The last frame does not, and becomes 0.
        resampler: Resampler of the CPU path. "fir" is the filter of the compute units. "soxr" is that library's quality
            HQ. A rate that is not in RATES always goes to soxr, as the compute units do not take such inputs.

    Samples are -1..1: a 16-bit sample is int16 / 32768. Two channels become one, which is their mean. A frame is
    `n_fft` samples with the window in its middle. Frame t is centred on sample t * `hop`. The input has zeros on both
    sides.

    Raises:
        UsageError: A value is outside its range.
    """

    rate: int = 16000
    rates: tuple[int, ...] = RATES
    preemphasis: float = 0.97
    n_fft: int = 512
    window: int = 400
    hop: int = 160
    n_mels: int = 80
    log_floor: float = SILENCE
    std_floor: float = 1e-5
    longest_s: float = 35.0
    dtype: str = "float32"
    normalize_over: str = "nemo"
    resampler: str = "fir"

    def __post_init__(self) -> None:
        if self.dtype not in AUDIO_FORMATS:
            raise UsageError(f"tensor type {self.dtype!r} is not one of {', '.join(AUDIO_FORMATS)}")
        if self.normalize_over not in NORMALIZE_OVER:
            raise UsageError(f"normalize_over is {self.normalize_over!r}; give one of {', '.join(NORMALIZE_OVER)}")
        if self.resampler not in RESAMPLERS:
            raise UsageError(f"resampler is {self.resampler!r}; give one of {', '.join(RESAMPLERS)}")
        if not 4000 <= self.rate <= 48000:
            raise UsageError(f"rate is {self.rate}; give 4000 to 48000 Hz")
        if not self.rates or not all(4000 <= rate <= 192000 for rate in self.rates):
            raise UsageError(f"rates are {self.rates}; give some, each of 4000 to 192000 Hz")
        if not 0 <= self.preemphasis < 1:
            raise UsageError(f"preemphasis is {self.preemphasis}; give 0 (none) to below 1")
        if not (2 <= self.n_fft <= 4096 and self.n_fft & (self.n_fft - 1) == 0):
            raise UsageError(f"n_fft is {self.n_fft}; give a power of two of 2 to 4096 samples")
        if not 2 <= self.window <= self.n_fft or self.window % 2:
            raise UsageError(f"window is {self.window}; give an even number of 2 to n_fft ({self.n_fft}) samples")
        if not 1 <= self.hop <= self.n_fft:
            raise UsageError(f"hop is {self.hop}; give 1 to n_fft ({self.n_fft}) samples")
        if not 1 <= self.n_mels <= self.n_fft // 2:
            raise UsageError(f"n_mels is {self.n_mels}; give 1 to n_fft / 2 ({self.n_fft // 2}) bands")
        for name in ("log_floor", "std_floor", "longest_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be above 0")

    def resampled(self, samples: int, rate: int) -> int:
        """Return the number of samples at `self.rate` for `samples` samples at `rate`, rounded up as in librosa."""
        return -(-samples * self.rate // rate)

    def frames(self, samples: int) -> int:
        """Return the number of frames of `samples` samples at `self.rate`. No samples give 1 frame."""
        return samples // self.hop + 1

    @property
    def left_out(self) -> int:
        """The number of frames at the end that normalize does not count, 0 or 1."""
        return int(self.normalize_over == "nemo")

    def counted(self, frames: int) -> int:
        """Return how many of `frames` frames, from the first, normalize counts. It counts at least 1.

        One counted frame has no deviation, and all values become 0."""
        return max(1, frames - self.left_out)

    def hann(self) -> NDArray[np.float64]:
        """Return the symmetric Hann window, shape (`window`,)."""
        return np.hanning(self.window)
