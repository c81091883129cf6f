"""This module has the settings of audio preprocessing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.dpu.specs.feature_extractors import fields_of
from headrace.host.dpu.specs.front_ends import Ends, Floor, Lengths, MelScale, Rescale, Statistics, Tensors, Window

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
    its dither. `from_hf` gives those of a feature extractor of transformers.

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
        ends: Place of the frames, and what lies beyond the ends.
        window_shape: Shape of the window.
        gain: Factor of the samples. Kaldi's features are those of 16-bit samples, so it is 32768 there.
        remove_mean: Whether each frame loses the mean of its `window` samples.
        preemphasis_per_frame: Whether the filter runs in each frame by itself, after the mean is removed. Then y[0] is
            (1 - p) * x[0].
        mel_scale, low_hz, high_hz: Scale and ends of the filterbank. None as `high_hz` is half the rate.
        floor: Whether `log_floor` is added to the power, or is its least value.
        log10: Whether the logarithm is that to the base of 10. Otherwise it is the natural one.
        mel: Whether the mel stage runs. Without it, the tensor has the samples, as one band for normalize.
        normalize: The rule of normalize. None leaves the values as they are.
        lengths: Padding and cutting of the sound and of the frames.
        bands_first: Whether the axes of the tensor are band, frame. Otherwise they are frame, band.
        tensors: Names of the tensors of a feature extractor. None means one tensor, without a name or a batch axis.

    Samples are -1..1: a 16-bit sample is int16 / 32768. Two channels become one, which is their mean. A frame is
    `n_fft` samples with the window in its middle. Frame t is centred on sample t * `hop`. The input has zeros on both
    sides. `ends` changes the last two rules.

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
    # Frames, and what is done with them before the DFT
    ends: Ends = Ends.ZEROS
    window_shape: Window = Window.HANN
    gain: float = 1.0
    remove_mean: bool = False
    preemphasis_per_frame: bool = False
    # Bands and their logarithm
    mel_scale: MelScale = MelScale.SLANEY
    low_hz: float = 0.0
    high_hz: float | None = None
    floor: Floor = Floor.ADDED
    log10: bool = False
    mel: bool = True
    # After the logarithm
    normalize: Statistics | Rescale | None = field(default_factory=Statistics)
    lengths: Lengths = field(default_factory=Lengths)
    bands_first: bool = True
    tensors: Tensors | None = None

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
        if self.n_fft != 400 and not (2 <= self.n_fft <= 4096 and self.n_fft & (self.n_fft - 1) == 0):
            raise UsageError(f"n_fft is {self.n_fft}; give a power of two of 2 to 4096 samples, or 400")
        if not 2 <= self.window <= self.n_fft or self.window % 2:
            raise UsageError(f"window is {self.window}; give an even number of 2 to n_fft ({self.n_fft}) samples")
        if not 1 <= self.hop <= self.n_fft:
            raise UsageError(f"hop is {self.hop}; give 1 to n_fft ({self.n_fft}) samples")
        if not 1 <= self.n_mels <= self.n_fft // 2:
            raise UsageError(f"n_mels is {self.n_mels}; give 1 to n_fft / 2 ({self.n_fft // 2}) bands")
        for name in ("log_floor", "longest_s", "gain"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not 0 <= self.std_floor < math.inf:
            raise UsageError(f"std_floor is {self.std_floor}; give 0 or more")
        if not 0 <= self.low_hz < self.highest_hz <= self.rate / 2:
            raise UsageError(
                f"low_hz is {self.low_hz} and high_hz is {self.high_hz}; give 0 to half the rate ({self.rate / 2:g} Hz)"
            )
        self._check_plan()

    def _check_plan(self) -> None:
        """Raise UsageError for settings that contradict each other."""
        if self.normalize_over == "nemo" and (
            self.ends is not Ends.ZEROS or not self.mel or not isinstance(self.normalize, Statistics)
        ):
            raise UsageError("normalize_over is 'nemo', which is for mean and deviation of centred frames; give 'all'")
        least = self.window // 2 + 1
        if self.mel and self.ends is Ends.MIRRORED and self.padded(0) < least:
            raise UsageError(f"mirrored ends need a sound; give lengths.least or lengths.samples of {least} or more")
        if not self.mel and self.lengths != Lengths():
            raise UsageError("lengths are for frames; leave them out where the tensor has samples")
        if not self.mel and isinstance(self.normalize, Rescale):
            raise UsageError("normalize is a rescale, which is for frames; give Statistics or None for samples")

    @classmethod
    def from_hf(cls, config: Mapping[str, Any] | Path | str, base: str | None = None) -> "AudioSpec":
        """Return the spec of a feature extractor of transformers.

        Args:
            config: The contents of a `preprocessor_config.json`, or the path of the file.
            base: The class, for a file that names none.

        Raises:
            UsageError: The file cannot be read, its class has no counterpart here, or a setting is unknown or wrong.
        """
        fields = fields_of(config, base)
        try:
            return cls(**fields)
        except UsageError as error:
            where = "" if isinstance(config, Mapping) else f"{config}: "
            raise UsageError(f"{where}{fields['tensors'].processor}: {error}") from error

    def resampled(self, samples: int, rate: int) -> int:
        """Return the number of samples at `self.rate` for `samples` samples at `rate`, rounded up as in librosa."""
        return -(-samples * self.rate // rate)

    def padded(self, samples: int) -> int:
        """Return the number of samples that the mel stage takes of a sound of `samples` samples at `self.rate`."""
        return max(samples, self.lengths.least) if self.lengths.samples is None else self.lengths.samples

    def frames(self, samples: int) -> int:
        """Return the number of frames of the mel stage for `samples` samples at `self.rate`.

        No samples give 1 frame by the defaults. There may be none with `Ends.INSIDE`."""
        count = self.padded(samples)
        match self.ends:
            case Ends.ZEROS:
                return count // self.hop + 1
            case Ends.MIRRORED:
                return count // self.hop
            case Ends.INSIDE:
                return max(0, (count - self.window) // self.hop + 1)

    def shape(self, samples: int) -> tuple[int, ...]:
        """Return the shape of the tensor for `samples` samples at `self.rate`, without a batch axis."""
        if not self.mel:
            return (samples,)
        lengths = self.lengths
        frames = self.frames(samples) if lengths.frames is None else lengths.frames
        frames = -(-frames // lengths.multiple) * lengths.multiple // lengths.stack
        bands = self.n_mels * lengths.stack
        return (bands, frames) if self.bands_first else (frames, bands)

    def within(self, longest: int) -> "AudioSpec":
        """Return the spec for audio whose tensor has at most `longest` frames, or samples without the mel stage.

        A tensor that always has the same length changes nothing."""
        lengths = self.lengths
        if self.shape(0) == self.shape(round(self.longest_s * self.rate)):
            return self
        frames = longest // lengths.multiple * lengths.multiple * lengths.stack
        if not self.mel:
            samples = longest
        elif self.ends is Ends.INSIDE:
            samples = (frames - 1) * self.hop + self.window
        else:
            samples = (frames - (self.ends is Ends.ZEROS)) * self.hop
        return replace(self, longest_s=min(self.longest_s, max(samples, self.hop) / self.rate))

    @property
    def left_out(self) -> int:
        """The number of frames at the end that normalize does not count, 0 or 1."""
        return int(self.normalize_over == "nemo")

    def counted(self, frames: int) -> int:
        """Return how many of `frames` frames, from the first, normalize counts. It counts at least 1.

        One counted frame has no deviation, and all values become 0."""
        return max(1, frames - self.left_out)

    def valid(self, samples: int) -> int:
        """Return how many frames of the tensor count for the model, of `samples` samples at `self.rate`.

        Padding does not count. Without the mel stage, samples count."""
        if not self.mel:
            return samples
        frames = self.frames(samples)
        if self.ends is Ends.MIRRORED:  # a frame counts if its centre is a sample
            frames = min(frames, -(-max(samples, self.lengths.least) // self.hop))
        else:
            frames = self.counted(frames) if frames else 0
        if self.lengths.frames is not None:
            frames = min(frames, self.lengths.frames)
        return frames // self.lengths.stack

    @property
    def highest_hz(self) -> float:
        """The upper end of the filterbank."""
        return self.rate / 2 if self.high_hz is None else self.high_hz

    @property
    def name(self) -> str:
        """The class in transformers, or that of this spec."""
        return type(self).__name__ if self.tensors is None else self.tensors.processor

    def window_weights(self) -> NDArray[np.float64]:
        """Return the window, shape (`window`,)."""
        match self.window_shape:
            case Window.HANN:
                return self.hann()
            case Window.PERIODIC_HANN:
                return np.hanning(self.window + 1)[:-1]
            case Window.HAMMING:
                return np.hamming(self.window)
            case Window.POVEY:
                return np.hanning(self.window) ** 0.85

    def hann(self) -> NDArray[np.float64]:
        """Return the symmetric Hann window, shape (`window`,)."""
        return np.hanning(self.window)
