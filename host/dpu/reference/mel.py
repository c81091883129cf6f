"""This module makes mel filter banks, with which audio preprocessing weighs the powers of a frame.

`mel_filters` has the scale of Slaney, and `kaldi_filters` that of Kaldi.

Slaney's scale and norm are those of his Auditory Toolbox (version 2, Interval Research Corporation, Technical Report
1998-010). The scale is linear below 1000 Hz, with 200/3 Hz a mel. Above, it is logarithmic: 27 mels are a factor of
6.4. librosa and NeMo use the same. The tables of the hardware depend on every bit, so this module computes what
librosa's `filters.mel` computes, in the same order. tests/host/dpu/reference/test_mel.py compares the two bit for bit.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LINEAR_HZ = 200.0 / 3  # width of a mel below BREAK_HZ
BREAK_HZ = 1000.0  # the logarithmic part begins here
BREAK_MEL = BREAK_HZ / LINEAR_HZ  # the same in mels
LOG_STEP = np.log(6.4) / 27.0  # width of a mel above BREAK_HZ, in natural logarithms of Hz


def hz_to_mel(hz: float) -> float:
    if hz >= BREAK_HZ:
        return float(BREAK_MEL + np.log(hz / BREAK_HZ) / LOG_STEP)
    return hz / LINEAR_HZ


def mel_to_hz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    hz = LINEAR_HZ * mels
    above = mels >= BREAK_MEL
    hz[above] = BREAK_HZ * np.exp(LOG_STEP * (mels[above] - BREAK_MEL))
    return hz


def mel_filters(
    rate: int, n_fft: int, n_mels: int, min_hz: float = 0.0, max_hz: float | None = None
) -> NDArray[np.float32]:
    """Return triangles over the bins of a spectrum of `n_fft` samples at `rate` Hz, shape (n_mels, n_fft // 2 + 1).

    Corners lie at equal distances in mels from `min_hz` to `max_hz`, which is half the rate if None. Filter m goes up
    from corner m to its peak at corner m + 1, and down to corner m + 2. Each filter is scaled by 2 / (its width in Hz),
    so that its area is 1 (Slaney's norm) and the unit of a weight is 1 / Hz. A filter without a bin is 0."""
    ends = hz_to_mel(min_hz), hz_to_mel(rate / 2 if max_hz is None else max_hz)
    corners = mel_to_hz(np.linspace(*ends, n_mels + 2))
    widths = np.diff(corners)
    ramps = np.subtract.outer(corners, np.fft.rfftfreq(n_fft, 1.0 / rate))
    filters = np.zeros((n_mels, n_fft // 2 + 1), np.float32)
    for m in range(n_mels):
        filters[m] = np.maximum(0, np.minimum(-ramps[m] / widths[m], ramps[m + 2] / widths[m + 1]))
    # Rounded to float32 before and after, as in librosa.
    filters *= (2.0 / (corners[2:] - corners[:-2]))[:, np.newaxis]
    return filters


def kaldi_filters(rate: int, n_fft: int, n_mels: int, min_hz: float, max_hz: float) -> NDArray[np.float32]:
    """Return Kaldi's triangles over the bins of a spectrum of `n_fft` samples, shape (n_mels, n_fft // 2 + 1).

    The scale is 1127 ln(1 + Hz / 700). Corners lie at equal distances in mels from `min_hz` to `max_hz`. A filter goes
    up and down linearly in mels, and has a peak of 1. A filter without a bin is 0."""
    corners = np.linspace(_kaldi_mel(min_hz), _kaldi_mel(max_hz), n_mels + 2)
    bins = _kaldi_mel(np.arange(n_fft // 2 + 1) * (rate / n_fft))
    widths = np.diff(corners)
    up = (bins - corners[:-2, np.newaxis]) / widths[:-1, np.newaxis]
    down = (corners[2:, np.newaxis] - bins) / widths[1:, np.newaxis]
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


def _kaldi_mel(hz: Any) -> Any:
    return 1127.0 * np.log(1.0 + hz / 700.0)
