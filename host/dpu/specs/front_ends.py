"""This module has the parts of an `AudioSpec` that differ between families of speech models.

The families are NeMo's (Parakeet, Cohere), Whisper's (Qwen3-ASR, Voxtral), Kaldi's (SeamlessM4T, Speech2Text, AST),
Phi-4's, and Wav2Vec2's, which takes samples.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headrace.batching import UsageError

MAX_SAMPLES: Final = 1 << 26  # of a sound after its padding: 70 minutes at 16 kHz
MASK_TYPES: Final = ("bool", "int32", "int64")


class Ends(Enum):
    """The place of the first frame, and what lies beyond the ends of a sound of n samples."""

    ZEROS = "zeros"  # frame t is centred on sample t * hop, zeros lie beyond the ends: n // hop + 1 frames
    MIRRORED = "mirrored"  # centred alike, the sound is mirrored at its first and last sample: n // hop frames
    INSIDE = "inside"  # frame t begins at sample t * hop and ends inside: (n - window) // hop + 1 frames


class Window(Enum):
    """The shape of the window. w[i] is a function of i / (window - 1), or of i / window for the periodic one."""

    HANN = "hann"
    PERIODIC_HANN = "periodic_hann"
    HAMMING = "hamming"
    POVEY = "povey"  # the Hann window to the power of 0.85, as in Kaldi


class MelScale(Enum):
    """The mel scale, and the shape of the filters on it."""

    SLANEY = "slaney"  # linear below 1000 Hz; triangles over Hz with an area of 1
    KALDI = "kaldi"  # 1127 ln(1 + Hz / 700); triangles over mels with a peak of 1


class Floor(Enum):
    """The use of `log_floor`: ln(x + floor), or ln(max(x, floor))."""

    ADDED = "added"
    LEAST = "least"


@dataclass(frozen=True, slots=True)
class Statistics:
    """Each band becomes (x - mean) / (sqrt(variance + `variance_floor`) + std_floor) over the frames that count.

    `ddof` is subtracted from the number of frames for the variance, 0 or 1. A band that never changes becomes 0."""

    ddof: int = 1
    variance_floor: float = 0.0

    def __post_init__(self) -> None:
        if self.ddof not in (0, 1):
            raise UsageError(f"ddof is {self.ddof}; give 0 or 1")
        if not 0 <= self.variance_floor < math.inf:
            raise UsageError(f"variance_floor is {self.variance_floor}; give 0 or more")


@dataclass(frozen=True, slots=True)
class Rescale:
    """Each value becomes (max(x, greatest - `span`) + `offset`) * `factor`.

    `greatest` is the greatest value of the sound. Without a span there is no maximum."""

    span: float | None = None
    offset: float = 0.0
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.span is not None and not 0 < self.span < math.inf:
            raise UsageError(f"span is {self.span}; it must be above 0")
        if not math.isfinite(self.offset) or not math.isfinite(self.factor) or self.factor == 0:
            raise UsageError(f"offset and factor are {self.offset} and {self.factor}; give numbers, the factor not 0")


@dataclass(frozen=True, slots=True)
class Lengths:
    """The length of a sound and of its features. Whatever is added follows the end.

    Args:
        least: A shorter sound gets zeros up to so many samples, which count like its own.
        samples: Every sound gets zeros, or is cut, to so many samples. The zeros do not count.
        frames: Every spectrogram gets zeros, or is cut, to so many frames before normalize.
        multiple: After normalize, frames of `pad_value` follow up to a multiple of so many frames.
        stack: So many frames then become one. A rest is left out.
    """

    least: int = 0
    samples: int | None = None
    frames: int | None = None
    multiple: int = 1
    pad_value: float = 0.0
    stack: int = 1

    def __post_init__(self) -> None:
        for name, low in (("least", 0), ("samples", 1), ("frames", 1), ("multiple", 1), ("stack", 1)):
            given = getattr(self, name)
            if given is not None and not low <= given <= MAX_SAMPLES:
                raise UsageError(f"lengths.{name} is {given}; give {low} to {MAX_SAMPLES}")
        if not math.isfinite(self.pad_value):
            raise UsageError(f"lengths.pad_value is {self.pad_value}; give a number")


@dataclass(frozen=True, slots=True)
class Mask:
    """A tensor with a 1 for each frame, or sample, that counts, and 0 for the others."""

    dtype: str = "int32"

    def __post_init__(self) -> None:
        if self.dtype not in MASK_TYPES:
            raise UsageError(f"the type of a mask is {self.dtype!r}; give one of {', '.join(MASK_TYPES)}")


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tensor with the number of tokens, int64: one token for `frames` frames, and one for a rest."""

    frames: int

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise UsageError(f"the frames of a token are {self.frames}; give 1 or more")


@dataclass(frozen=True, slots=True)
class Tensors:
    """The tensors of a feature extractor of transformers, each with a first axis of 1, the batch.

    Args:
        processor: Its class.
        features: Name of the features.
        extras: The other tensors, with their names.
    """

    processor: str
    features: str
    extras: tuple[tuple[str, Mask | Tokens], ...] = ()
