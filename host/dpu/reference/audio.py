"""This module defines audio preprocessing and computes it on the CPU. It is the reference of the units and the
fallback.

Each of the three stages takes the result of the one before: resample (samples to mono at 16 kHz), mel (the logarithm of
a mel spectrogram) and normalize (each mel band over the whole input). The defaults are those of NeMo's feature
extractor for Conformer, CitriNet and Parakeet (`AudioToMelSpectrogramPreprocessor`, as transformers'
`ParakeetFeatureExtractor` has it), without its dither, which is noise for training. PREBA (Section 4.2) takes mean and
variance over all of an input. This project takes them for each mel band, as NeMo does.

Resampling uses the FIR of the compute units (resampling.py), so that both paths give the same features. soxr, which
`AudioSpec.resampler` can ask for, has another filter. Both filters pass 0.9 of the lower of the two bands and stop at
its end, so they differ only in between: at 16 kHz in the mel bands above 7.2 kHz.
"""

from functools import cache
from typing import Any

import numpy as np
import scipy.fft
import scipy.sparse
import soxr
from numpy.typing import NDArray

from headrace.host.dpu.reference import audio_file, resampling
from headrace.host.dpu.reference.mel import mel_filters
from headrace.host.dpu.specs import AudioSpec, AudioStage

BLOCK = 128  # frames at a time: they, their spectra and their powers stay in a core's cache


def filterbank(spec: AudioSpec) -> NDArray[np.float32]:
    """Return the mel filters in Slaney's scale and norm, 0 to `rate` / 2, shape (n_mels, n_fft // 2 + 1)."""
    return _filterbank(spec.rate, spec.n_fft, spec.n_mels)


@cache
def _filterbank(rate: int, n_fft: int, n_mels: int) -> NDArray[np.float32]:
    filters = mel_filters(rate, n_fft, n_mels)
    filters.flags.writeable = False  # all callers share it
    return filters


@cache
def _sparse_filterbank(rate: int, n_fft: int, n_mels: int) -> scipy.sparse.csr_array:
    """Return the filterbank as a sparse matrix, since a bin lies in two filters at most.

    A dense product takes longer. It takes many times longer when a thread of its library spins for a core that is
    busy."""
    return scipy.sparse.csr_array(_filterbank(rate, n_fft, n_mels))


def prepare(spec: AudioSpec) -> None:
    """Make the tables that the CPU path uses, so that no request waits for them."""
    _sparse_filterbank(spec.rate, spec.n_fft, spec.n_mels)
    if spec.resampler == "fir":
        for rate in spec.rates:
            if resampling.has_fir(rate, spec.rate):
                resampling.by_fir(np.zeros(1, np.float32), rate, spec.rate)


def preprocess(data: bytes, spec: AudioSpec, stage: AudioStage = AudioStage.NORMALIZE) -> NDArray[Any]:
    """Run the stages up to `stage` on the CPU.

    Returns:
        After resample, float32 samples (n,). After mel, float32 (n_mels, T). After normalize, `spec.dtype` (n_mels, T).
            T is n // hop + 1.

    Raises:
        CorruptInput, BadInput: `audio_file.decode` refuses the file.
    """
    samples, rate = audio_file.decode(data, spec.rates, spec.longest_s)
    samples = resample(samples, rate, spec)
    if stage == AudioStage.RESAMPLE:
        return samples
    mel = log_mel(samples, spec)
    return mel if stage == AudioStage.MEL else normalize(mel, spec)


def resample(samples: NDArray[np.float32], rate: int, spec: AudioSpec) -> NDArray[np.float32]:
    """Resample (n,) samples at `rate` to (spec.resampled(n, rate),) with `spec.resampler`. Neither resampler clips."""
    if rate == spec.rate or not len(samples):
        return samples
    if spec.resampler == "fir" and resampling.has_fir(rate, spec.rate):
        return resampling.by_fir(samples, rate, spec.rate)
    longer = np.pad(samples, (0, -(-rate // spec.rate)))  # soxr rounds to the nearest length
    resampled: NDArray[np.float32] = soxr.resample(longer, rate, spec.rate, "HQ")
    return resampled[: spec.resampled(len(samples), rate)]


def log_mel(samples: NDArray[np.float32], spec: AudioSpec) -> NDArray[np.float32]:
    """Return the logarithm of the mel spectrogram, shape (n_mels, T), of samples of shape (n,)."""
    margin = spec.n_fft // 2
    padded = np.zeros(len(samples) + spec.n_fft, np.float32)
    padded[margin : margin + len(samples)] = samples
    padded[margin + 1 : margin + len(samples)] -= np.float32(spec.preemphasis) * samples[:-1]
    first = (spec.n_fft - spec.window) // 2  # outside the window all is 0; the start of a frame changes phases only
    every = np.lib.stride_tricks.sliding_window_view(padded[first:], spec.window)[:: spec.hop]
    filters, hann = _sparse_filterbank(spec.rate, spec.n_fft, spec.n_mels), spec.hann().astype(np.float32)
    mel = np.empty((spec.n_mels, spec.frames(len(samples))), np.float32)
    for start in range(0, mel.shape[1], BLOCK):
        block = slice(start, min(start + BLOCK, mel.shape[1]))
        spectra = scipy.fft.rfft(every[block] * hann, spec.n_fft)
        mel[:, block] = filters @ (spectra.real**2 + spectra.imag**2).T
    mel += np.float32(spec.log_floor)
    return np.log(mel, out=mel)


def normalize(mel: NDArray[np.float32], spec: AudioSpec) -> NDArray[Any]:
    """Return (x - mean) / (std + std_floor) of each band, shape (n_mels, T), std with N - 1 for N counted frames.

    N is `spec.counted(T)`. Frames after the first N are 0. With one counted frame all values are 0. A band that never
    changes, such as that of silence, is 0 too."""
    counted = spec.counted(mel.shape[1])
    if counted == 1:
        return np.zeros(mel.shape, spec.dtype)
    change = mel - mel[:, :1]  # exact for a constant band, and small numbers, which float32 can sum
    change -= change[:, :counted].mean(1, dtype=np.float64, keepdims=True).astype(np.float32)
    change[:, counted:] = 0
    deviation = np.sqrt(np.square(change).sum(1, dtype=np.float64, keepdims=True) / (counted - 1))
    change /= (deviation + spec.std_floor).astype(np.float32)
    return change.astype(spec.dtype, copy=False)
