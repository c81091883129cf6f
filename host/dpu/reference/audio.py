"""This module defines audio preprocessing and computes it on the CPU: the reference's definition and the fallback path.

Three stages, each on the result of the one before: resample (samples to mono at 16 kHz), mel (the logarithm of a mel
spectrogram) and normalize (each mel band over the whole input). The defaults are those of NeMo's feature extractor for
Conformer, CitriNet and Parakeet (`AudioToMelSpectrogramPreprocessor`, as transformers' `ParakeetFeatureExtractor` has
it), without its dither, which is noise for training. PREBA (Section 4.2) has normalize take mean and variance over all
of an input; that they are of each mel band is this project's choice, after NeMo.

Resampling uses the FIR of the compute units (resampling.py), so that both paths give the same features. soxr, which
`AudioSpec.resampler` can ask for, has another filter. Both pass 0.9 of the lower of the two bands and stop at its end.
So they differ in between only: at 16 kHz in the mel bands above 7.2 kHz.
"""

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
import scipy.fft
import scipy.sparse
import soxr
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.dpu.reference import audio_file, resampling
from headrace.host.dpu.reference.mel import mel_filters
from headrace.host.dpu.reference.resampling import RATES

FORMATS = ("float32", "float16")
RESAMPLERS = ("fir", "soxr")
NORMALIZE_OVER = ("nemo", "all")
BLOCK = 128  # frames at a time: they, their spectra and their powers stay in a core's cache
SILENCE = 2.0**-24  # added to a band's power before the logarithm; NeMo's log_zero_guard_value


class Stage(IntEnum):
    """The last stage that runs."""

    RESAMPLE = 0
    MEL = 1
    NORMALIZE = 2


@dataclass(frozen=True, slots=True)
class AudioSpec:
    """Rates in Hz; `window`, `n_fft` and `hop` in samples at `rate`; `longest_s` in seconds of input.

    A frame is `n_fft` samples, with the window in its middle; frame t is centred on sample t * `hop`, the input having
    zeros on both sides. Samples are -1..1, of which 16-bit ones are int16 / 32768; two channels become one as their
    mean. Pre-emphasis is y[i] = x[i] - `preemphasis` * x[i - 1] with y[0] = x[0]; 0 leaves it out. `log_floor` is
    added to a mel band's power before the natural logarithm, `std_floor` to its standard deviation.

    `normalize_over` names the frames that mean and standard deviation are taken over, on both paths. "nemo" is NeMo's
    rule: samples // `hop` frames count, and the last frame, which does not, becomes 0. "all" is every frame.

    `resampler` is that of the CPU path. "fir" is the compute units' own filter. "soxr" is that library's quality HQ.
    Between rates that are not of RATES it is always soxr, as the compute units do not take such inputs.

    Raises UsageError for what makes no sense."""

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
        if self.dtype not in FORMATS:
            raise UsageError(f"tensor type {self.dtype!r} is not one of {', '.join(FORMATS)}")
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
        """Samples at `self.rate` of so many at `rate`, the last part of one rounded up, as in librosa."""
        return -(-samples * self.rate // rate)

    def frames(self, samples: int) -> int:
        """Of so many samples at `self.rate`; 1 of none."""
        return samples // self.hop + 1

    @property
    def left_out(self) -> int:
        """The frames at the end that normalize does not count, 0 or 1."""
        return int(self.normalize_over == "nemo")

    def counted(self, frames: int) -> int:
        """Return how many of `frames` frames, from the first, mean and deviation are taken over; 1 at least.

        Of one counted frame there is no deviation, and all values become 0."""
        return max(1, frames - self.left_out)

    def taps(self, rate: int) -> NDArray[np.float64]:
        """The FIR that resamples from `rate`, shape (2 * half + 1,), symmetric, at `up` times `rate`, where `up` /
        `down` is `self.rate` / `rate` in lowest terms: output m is the sum over inputs i of
        x[i] * taps[half + m * down - i * up], inputs beyond either end being 0. One tap, a 1, where there is nothing
        to resample. It passes 0.9 of the lower Nyquist frequency within 0.03 dB and stops by 90 dB from the whole."""
        return resampling.taps(rate, self.rate)

    def hann(self) -> NDArray[np.float64]:
        """The symmetric window, shape (`window`,)."""
        return np.hanning(self.window)

    def filterbank(self) -> NDArray[np.float32]:
        """Mel filters in Slaney's scale and norm, 0 to `rate` / 2, shape (n_mels, n_fft // 2 + 1)."""
        return _filterbank(self.rate, self.n_fft, self.n_mels)


@cache
def _filterbank(rate: int, n_fft: int, n_mels: int) -> NDArray[np.float32]:
    filters = mel_filters(rate, n_fft, n_mels)
    filters.flags.writeable = False  # everybody's
    return filters


@cache
def _sparse_filterbank(rate: int, n_fft: int, n_mels: int) -> scipy.sparse.csr_array:
    """A bin is in two filters at most. A dense product takes longer by itself, and many times that when a thread of its
    library waits, spinning, for a core that is busy."""
    return scipy.sparse.csr_array(_filterbank(rate, n_fft, n_mels))


def prepare(spec: AudioSpec) -> None:
    """Make the tables that the CPU path uses, so that no request waits for them."""
    _sparse_filterbank(spec.rate, spec.n_fft, spec.n_mels)
    if spec.resampler == "fir":
        for rate in spec.rates:
            if resampling.has_fir(rate, spec.rate):
                resampling.by_fir(np.zeros(1, np.float32), rate, spec.rate)


def preprocess(data: bytes, spec: AudioSpec, stage: Stage = Stage.NORMALIZE) -> NDArray[Any]:
    """Run the stages up to `stage` on the CPU.

    Returns float32 samples (n,) after resample, float32 (n_mels, T) after mel, `spec.dtype` (n_mels, T) after
    normalize, where T = n // hop + 1. Raises CorruptInput and BadInput, as `sound_file.decode` does."""
    samples, rate = audio_file.decode(data, spec.rates, spec.longest_s)
    samples = resample(samples, rate, spec)
    if stage == Stage.RESAMPLE:
        return samples
    mel = log_mel(samples, spec)
    return mel if stage == Stage.MEL else normalize(mel, spec)


def resample(samples: NDArray[np.float32], rate: int, spec: AudioSpec) -> NDArray[np.float32]:
    """Resample (n,) samples at `rate` to (spec.resampled(n, rate),) with `spec.resampler`. Neither is clipped."""
    if rate == spec.rate or not len(samples):
        return samples
    if spec.resampler == "fir" and resampling.has_fir(rate, spec.rate):
        return resampling.by_fir(samples, rate, spec.rate)
    longer = np.pad(samples, (0, -(-rate // spec.rate)))  # soxr rounds to the nearest length
    resampled: NDArray[np.float32] = soxr.resample(longer, rate, spec.rate, "HQ")
    return resampled[: spec.resampled(len(samples), rate)]


def log_mel(samples: NDArray[np.float32], spec: AudioSpec) -> NDArray[np.float32]:
    """(n,) to (n_mels, T)."""
    margin = spec.n_fft // 2
    padded = np.zeros(len(samples) + spec.n_fft, np.float32)
    padded[margin : margin + len(samples)] = samples
    padded[margin + 1 : margin + len(samples)] -= np.float32(spec.preemphasis) * samples[:-1]
    first = (spec.n_fft - spec.window) // 2  # beyond the window all is 0; where a frame begins turns phases only
    every = np.lib.stride_tricks.sliding_window_view(padded[first:], spec.window)[:: spec.hop]
    filterbank, hann = _sparse_filterbank(spec.rate, spec.n_fft, spec.n_mels), spec.hann().astype(np.float32)
    mel = np.empty((spec.n_mels, spec.frames(len(samples))), np.float32)
    for start in range(0, mel.shape[1], BLOCK):
        block = slice(start, min(start + BLOCK, mel.shape[1]))
        spectra = scipy.fft.rfft(every[block] * hann, spec.n_fft)
        mel[:, block] = filterbank @ (spectra.real**2 + spectra.imag**2).T
    mel += np.float32(spec.log_floor)
    return np.log(mel, out=mel)


def normalize(mel: NDArray[np.float32], spec: AudioSpec) -> NDArray[Any]:
    """Return (x - mean) / (std + std_floor) of each band, shape (n_mels, T), std with N - 1 for N counted frames.

    `spec.counted` tells N. Frames behind the N first are 0. All is 0 of one counted frame, as is a band that never
    changes: that of silence, say."""
    counted = spec.counted(mel.shape[1])
    if counted == 1:
        return np.zeros(mel.shape, spec.dtype)
    change = mel - mel[:, :1]  # exact for what does not change, and of small numbers, which float32 can sum
    change -= change[:, :counted].mean(1, dtype=np.float64, keepdims=True).astype(np.float32)
    change[:, counted:] = 0
    deviation = np.sqrt(np.square(change).sum(1, dtype=np.float64, keepdims=True) / (counted - 1))
    change /= (deviation + spec.std_floor).astype(np.float32)
    return change.astype(spec.dtype, copy=False)
