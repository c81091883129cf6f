"""This module defines audio preprocessing and computes it on the CPU. It is the reference of the units and the
fallback.

Each of the three stages takes the result of the one before: resample (samples to mono at 16 kHz), mel (the logarithm of
a mel spectrogram) and normalize (each mel band over the whole input). The defaults are those of NeMo's feature
extractor for Conformer, CitriNet and Parakeet (`AudioToMelSpectrogramPreprocessor`, as transformers'
`ParakeetFeatureExtractor` has it), without its dither, which is noise for training. PREBA (Section 4.2) takes mean and
variance over all of an input. This project takes them for each mel band, as NeMo does. `AudioSpec.from_hf` has the
settings of other feature extractors.

Resampling uses the FIR of the compute units (resampling.py), so that both paths give the same features. soxr, which
`AudioSpec.resampler` can ask for, has another filter. Both filters pass 0.9 of the lower of the two bands and stop at
its end, so they differ only in between: at 16 kHz in the mel bands above 7.2 kHz.

NeMo's spectra are computed in float32. All others are computed in float64: a quiet band of a loud frame would lose more
than 1e-4 of its logarithm in float32.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import soxr
from numpy.typing import NDArray

from headrace.batching import BadInput, UsageError
from headrace.host.dpu.reference import audio_file, resampling
from headrace.host.dpu.reference.mel import kaldi_filters, mel_filters
from headrace.host.dpu.reference.processor import Form
from headrace.host.dpu.specs import (
    AudioSpec,
    AudioStage,
    Ends,
    Floor,
    Mask,
    MelScale,
    Rescale,
    Statistics,
    Window,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCK = 128  # frames at a time: they, their spectra and their powers stay in a core's cache

TOKENS_TYPE = np.dtype(np.int64)

Bank = tuple[int, int, int, MelScale, float, float]
Values = NDArray[np.float32] | NDArray[np.float64]


def filterbank(spec: AudioSpec) -> NDArray[np.float32]:
    """Return the mel filters of the spec, shape (n_mels, n_fft // 2 + 1)."""
    return _filterbank(_bank(spec))


def _bank(spec: AudioSpec) -> Bank:
    return spec.rate, spec.n_fft, spec.n_mels, spec.mel_scale, spec.low_hz, spec.highest_hz


@cache
def _filterbank(bank: Bank) -> NDArray[np.float32]:
    rate, n_fft, n_mels, scale, low_hz, high_hz = bank
    make = mel_filters if scale is MelScale.SLANEY else kaldi_filters
    filters = make(rate, n_fft, n_mels, low_hz, high_hz)
    filters.flags.writeable = False  # all callers share it
    return filters


@cache
def _sparse_filterbank(bank: Bank, dtype: type[np.floating[Any]]) -> "csr_array":
    """Return the filterbank as a sparse matrix, since a bin lies in two filters at most.

    A dense product takes longer. It takes many times longer when a thread of its library spins for a core that is
    busy."""
    from scipy.sparse import csr_array  # large, as is scipy.fft: a server or a command without audio does not need them

    return csr_array(_filterbank(bank).astype(dtype))


def prepare(spec: AudioSpec) -> None:
    """Make the tables that the CPU path uses and load its libraries, so that no request waits for them."""
    if spec.mel:
        import scipy.fft  # noqa: F401

        _sparse_filterbank(_bank(spec), precision(spec))
    if spec.resampler == "fir":
        for rate in spec.rates:
            if resampling.has_fir(rate, spec.rate):
                resampling.by_fir(np.zeros(1, np.float32), rate, spec.rate)


def preprocess(data: bytes, spec: AudioSpec, stage: AudioStage = AudioStage.NORMALIZE) -> NDArray[Any]:
    """Run the stages up to `stage` on the CPU.

    Returns:
        After resample, float32 samples (n,). After mel, float32 (n_mels, T), where T is `spec.frames(n)`. After
            normalize, `spec.dtype` of the shape `spec.shape(n)`. Without a mel stage, mel gives the samples.

    Raises:
        CorruptInput, BadInput: `audio_file.decode` refuses the file, or it is too short for a frame.
    """
    return process(data, spec, stage)[0]


def process(
    data: bytes, spec: AudioSpec, stage: AudioStage = AudioStage.NORMALIZE
) -> tuple[NDArray[Any], Mapping[str, NDArray[Any]]]:
    """Return what `preprocess` returns, and all tensors by name if `spec.tensors` names them.

    After the last stage, the first result is then the tensor of the features with its batch axis."""
    samples, rate = audio_file.decode(data, spec.rates, spec.longest_s)
    samples = resample(samples, rate, spec)
    if stage == AudioStage.RESAMPLE:
        return samples, {}
    if stage == AudioStage.MEL:
        return log_mel(samples, spec).astype(np.float32, copy=False), {}
    made = features(samples, spec)
    if spec.tensors is None:
        return made, {}
    by_name = named(made, spec.valid(len(samples)), spec)
    return by_name[spec.tensors.features], by_name


def of_array(array: Any, spec: AudioSpec) -> NDArray[np.float32]:
    """Return an array of samples of -1 to 1, shape (n,), at `spec.rate`, as float32.

    Raises:
        UsageError: The array is no sound.
        BadInput: A sample is not a number or too large, or the sound is longer than `spec.longest_s`.
    """
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{type(array).__name__} is no audio; give a NumPy array of samples")
    if array.dtype.kind != "f" or array.ndim != 1:
        raise UsageError(
            f"an array of {array.dtype} with shape {array.shape} is no audio; give floats (samples,) of -1 to "
            f"1 at {spec.rate} Hz"
        )
    samples = array.astype(np.float32)
    audio_file.check_samples(samples, spec.rate, spec.longest_s)
    return samples


def features(samples: NDArray[np.float32], spec: AudioSpec) -> NDArray[Any]:
    """Return the tensor of samples of shape (n,) at `spec.rate`, in `spec.dtype` and the shape `spec.shape(n)`.

    Raises BadInput for samples that are too short for a frame."""
    return arranged(normalize(log_mel(samples, spec), spec), spec)


def named(made: NDArray[Any], valid: int, spec: AudioSpec) -> dict[str, NDArray[Any]]:
    """Return all tensors by the names of `spec.tensors`, for features of which the first `valid` frames count."""
    assert spec.tensors is not None
    by_name = {spec.tensors.features: made[np.newaxis]}
    frames = made.shape[-1] if spec.bands_first else made.shape[0]
    for name, extra in spec.tensors.extras:
        if isinstance(extra, Mask):
            by_name[name] = (np.arange(frames) < valid).astype(extra.dtype)[np.newaxis]
        else:
            by_name[name] = np.array([-(-valid // extra.frames)], np.int64)
    return by_name


def forms(spec: AudioSpec, samples: int) -> dict[str, Form]:
    """Return the forms of the tensors of a spec with named tensors, for `samples` samples at `spec.rate`."""
    assert spec.tensors is not None
    shape = spec.shape(samples)
    frames = shape[-1] if spec.bands_first else shape[0]
    made = {spec.tensors.features: Form((1, *shape), np.dtype(spec.dtype))}
    for name, extra in spec.tensors.extras:
        made[name] = Form((1, frames), np.dtype(extra.dtype)) if isinstance(extra, Mask) else Form((1,), TOKENS_TYPE)
    return made


def resample(samples: NDArray[np.float32], rate: int, spec: AudioSpec) -> NDArray[np.float32]:
    """Resample (n,) samples at `rate` to (spec.resampled(n, rate),) with `spec.resampler`. Neither resampler clips."""
    if rate == spec.rate or not len(samples):
        return samples
    if spec.resampler == "fir" and resampling.has_fir(rate, spec.rate):
        return resampling.by_fir(samples, rate, spec.rate)
    longer = np.pad(samples, (0, -(-rate // spec.rate)))  # soxr rounds to the nearest length
    resampled: NDArray[np.float32] = soxr.resample(longer, rate, spec.rate, "HQ")
    return resampled[: spec.resampled(len(samples), rate)]


# ---- Mel ----


def log_mel(samples: NDArray[np.float32], spec: AudioSpec) -> Values:
    """Return the logarithm of the mel spectrogram, shape (n_mels, T), of samples of shape (n,).

    It is float64 if the spectra are and mean and deviation follow. A steady sound has bands with a small deviation, by
    which normalize would multiply the rounding to float32. Without a mel stage, the samples come back.

    Raises BadInput for samples that are too short for a frame."""
    if not spec.mel:
        if not len(samples):
            raise BadInput("the audio has no samples; send at least one")
        return samples
    check_frames(len(samples), spec)
    every, sounding = _windows(samples, spec)
    powers = np.empty((spec.n_mels, len(every)), _values(spec))
    powers[:, sounding:] = 0
    _write_band_powers(powers[:, :sounding], every, spec)
    return _logarithms(powers, spec)


def check_frames(samples: int, spec: AudioSpec) -> None:
    """Raise BadInput for so many samples if they are too few for a frame."""
    if spec.lengths.frames is None and not spec.frames(samples):
        raise BadInput(
            f"the audio has {samples} samples at {spec.rate} Hz, and a frame takes {spec.window}; send at least "
            f"{spec.window / spec.rate:g} s"
        )


def log_bands(frames: NDArray[Any], spec: AudioSpec) -> Values:
    """Return the logarithms of the power of each band, shape (n_mels, T), of frames, shape (T, window)."""
    powers = np.empty((spec.n_mels, len(frames)), _values(spec))
    _write_band_powers(powers, frames, spec)
    return _logarithms(powers, spec)


def precision(spec: AudioSpec) -> type[np.floating[Any]]:
    """Return float32 for NeMo's spectra, and float64 for all others."""
    nemos = (
        spec.ends is Ends.ZEROS
        and spec.window_shape is Window.HANN
        and spec.floor is Floor.ADDED
        and not (spec.remove_mean or spec.preemphasis_per_frame or spec.log10)
        and spec.gain == 1
        and spec.padded(0) == 0
    )
    return np.float32 if nemos else np.float64


def _values(spec: AudioSpec) -> type[np.floating[Any]]:
    """Return the type of powers and of their logarithms. log_mel tells when it is float64."""
    return precision(spec) if isinstance(spec.normalize, Statistics) else np.float32


def _write_band_powers(powers: Values, frames: NDArray[Any], spec: AudioSpec) -> None:
    """Write the power of each band, shape (n_mels, T), of the first T frames, shape (T or more, window)."""
    import scipy.fft

    kind = precision(spec)
    filters, window = _sparse_filterbank(_bank(spec), kind), (spec.gain * spec.window_weights()).astype(kind)
    for start in range(0, powers.shape[1], BLOCK):
        block = slice(start, min(start + BLOCK, powers.shape[1]))
        spectra = scipy.fft.rfft(_filtered(frames[block], spec) * window, spec.n_fft)
        powers[:, block] = filters @ (spectra.real**2 + spectra.imag**2).T


def _logarithms(powers: Values, spec: AudioSpec) -> Values:
    """Return the logarithms of powers, which are changed in place."""
    floor = powers.dtype.type(spec.log_floor)
    if spec.floor is Floor.ADDED:
        powers += floor
    else:
        np.maximum(powers, floor, out=powers)
    np.log(powers, out=powers)
    if spec.log10:
        powers *= powers.dtype.type(1 / math.log(10))
    return powers


def emphasise(signal: NDArray[Any], samples: NDArray[np.float32], before: NDArray[np.float32], spec: AudioSpec) -> None:
    """Apply the pre-emphasis over the whole sound, if the spec wants it, to `signal`, a copy of `samples`, shape (n,).

    `before`: the sample before them, shape (1,), or shape (0,) if they are the first."""
    if spec.preemphasis and not spec.preemphasis_per_frame:
        kind = precision(spec)
        signal[1:] -= kind(spec.preemphasis) * samples[:-1].astype(kind, copy=False)
        signal[: len(before)] -= kind(spec.preemphasis) * before[: len(signal)].astype(kind, copy=False)


def _windows(samples: NDArray[np.float32], spec: AudioSpec) -> tuple[NDArray[Any], int]:
    """Return the samples of all frames, shape (T, window), and how many frames from the first have any sound.

    Frames of the padding alone need no spectra, since their power is 0."""
    count, margin = spec.padded(len(samples)), 0 if spec.ends is Ends.INSIDE else spec.window // 2
    samples = samples[:count]
    padded = np.zeros(max(count, spec.window) + 2 * margin, precision(spec))
    audio = padded[margin : margin + count]
    audio[: len(samples)] = samples
    emphasise(audio[: len(samples)], samples, samples[:0], spec)
    if spec.ends is Ends.MIRRORED:
        padded[:margin] = audio[margin:0:-1]
        padded[margin + count : 2 * margin + count] = audio[-2 : -margin - 2 : -1]
    every = np.lib.stride_tricks.sliding_window_view(padded, spec.window)[:: spec.hop]
    frames = spec.frames(len(samples))
    if len(samples) + margin >= count:
        return every[:frames], frames
    return every[:frames], min(frames, -(-(len(samples) + margin) // spec.hop))


def _filtered(frames: NDArray[Any], spec: AudioSpec) -> NDArray[Any]:
    """Return frames, shape (T, window), without their mean and with pre-emphasis, if the spec wants it."""
    if spec.remove_mean:
        frames = frames - frames.mean(1, keepdims=True)
    if spec.preemphasis_per_frame and spec.preemphasis:
        before = np.concatenate((frames[:, :1], frames[:, :-1]), 1)
        frames = frames - spec.preemphasis * before
    return frames


# ---- Normalize ----


def normalize(mel: Values, spec: AudioSpec) -> NDArray[Any]:
    """Return the normalized values, shape (n_mels, T), in `spec.dtype`. `Lengths.frames` sets T.

    With Statistics a value becomes (x - mean) / (std + std_floor) of its band, std with N - 1 for N counted frames. N
    is `spec.counted(T)`. Frames after the first N are 0. With one counted frame all values are 0. A band that never
    changes, such as that of silence, is 0 too. Samples, shape (n,), are one band."""
    if not spec.mel:
        return _by_statistics(mel[np.newaxis], spec)[0]
    if (frames := spec.lengths.frames) is not None:
        mel = np.pad(mel[:, :frames], ((0, 0), (0, max(0, frames - mel.shape[1]))))
    if isinstance(spec.normalize, Rescale):
        return _rescaled(mel, spec.normalize).astype(spec.dtype, copy=False)
    return _by_statistics(mel, spec)


def _by_statistics(mel: Values, spec: AudioSpec) -> NDArray[Any]:
    rule = spec.normalize
    if not isinstance(rule, Statistics):
        return mel.astype(spec.dtype, copy=False)
    counted = spec.counted(mel.shape[1])
    if counted == 1:
        return np.zeros(mel.shape, spec.dtype)
    change = mel - mel[:, :1]  # exact for a constant band, and small numbers, which float32 can sum
    change -= change[:, :counted].mean(1, dtype=np.float64, keepdims=True).astype(mel.dtype)
    change[:, counted:] = 0
    variance = np.square(change).sum(1, dtype=np.float64, keepdims=True) / (counted - rule.ddof)
    divisor = (np.sqrt(variance + rule.variance_floor) + spec.std_floor).astype(mel.dtype)
    change /= np.where(divisor == 0, mel.dtype.type(1), divisor)
    return change.astype(np.float32, copy=False).astype(spec.dtype, copy=False)  # rounded as a float32 tensor is


def _rescaled(mel: Values, rule: Rescale) -> Values:
    made = mel if rule.span is None else np.maximum(mel, mel.max() - mel.dtype.type(rule.span))
    return (made + mel.dtype.type(rule.offset)) * mel.dtype.type(rule.factor)


def arranged(values: NDArray[Any], spec: AudioSpec) -> NDArray[Any]:
    """Return normalized values, shape (n_mels, T), with their last padding, stacked, and with the axes of the spec."""
    if not spec.mel:
        return values
    lengths = spec.lengths
    if rest := -values.shape[1] % lengths.multiple:
        values = np.pad(values, ((0, 0), (0, rest)), constant_values=lengths.pad_value)
    if lengths.stack > 1:
        frames = values.shape[1] // lengths.stack
        stacked = values[:, : frames * lengths.stack].T.reshape(frames, -1)
        return stacked.T if spec.bands_first else stacked
    return values if spec.bands_first else np.ascontiguousarray(values.T)
