"""This module resamples audio with the FIR of the compute units, on the CPU.

`taps` designs the filter, `fixed_taps` rounds it to the numbers that hls/resample multiplies with, and `by_fir`
computes the same sums as that unit, in float32. So both paths give the same samples, up to the rounding of sums.

The filter passes 0.9 of the lower of both Nyquist frequencies and stops at the whole of it.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from headrace.host.dpu.specs import RATES

PASS_BAND = 0.9  # end of the pass band, as a fraction of the lower Nyquist frequency; the stop band begins at 1
PASS_RIPPLE_DB, STOP_DB = 0.03, 90.0  # 0.1 dB would be 0.02 in ln of power, twice the allowance for fixed point
TAP_ONE = 1 << 23  # a tap of 1, as taps are signed numbers of 24 bits
OUTPUTS = 32  # about as many outputs come from one row of a matrix product
# OpenBLAS computes a product of at most 2^18 multiplications on the thread that calls it. Larger ones wake its own
# threads, which are in the way where requests run in parallel.
MULTIPLICATIONS = 1 << 18
WINDOW_VALUES = 1 << 16  # values of the matrices that are made at a time, so that they stay in a core's cache


@cache
def taps(source: int, target: int) -> NDArray[np.float64]:
    """Return the FIR that resamples from `source` to `target` Hz, shape (2 * half + 1,), symmetric.

    Its taps lie at `up` times `source`, where `up` / `down` is `target` / `source` in lowest terms. Output m is the sum
    over inputs i of x[i] * taps[half + m * down - i * up]. Inputs beyond either end are 0. Equal rates give one tap,
    which is 1. The FIR passes 0.9 of the lower Nyquist frequency within 0.03 dB and stops by 90 dB from the whole.

    The design is minimax (Parks-McClellan) at a rate a few times as high as the lower of the two. A short Kaiser
    window's FIR then interpolates it to where both rates meet: a third fewer taps than by a Kaiser window alone."""
    import scipy.signal  # large; audio at the target rate does not need it

    if source == target:
        return _constant(np.ones(1))
    high = math.lcm(source, target)
    low = min(source, target)
    between = max(k for k in range(1, high // low + 1) if high % k == 0 and (k == 1 or high // k >= 4 * low))
    coarse = _minimax(low, high // between)
    if between == 1:
        return _constant(coarse * (high / source) / coarse.sum())
    pass_hz, stop_hz = low / 2, high / between - low / 2  # images of the coarse FIR begin there
    length, beta = scipy.signal.kaiserord(STOP_DB + 10, (stop_hz - pass_hz) / (high / 2))
    fine = scipy.signal.firwin(length | 1, (pass_hz + stop_hz) / 2, window=("kaiser", beta), fs=high)
    spread = np.zeros((len(coarse) - 1) * between + 1)
    spread[::between] = coarse
    exact = np.convolve(spread, fine)
    return _constant(exact * (high / source) / exact.sum())


def fixed_taps(source: int, target: int) -> NDArray[np.int64]:
    """Return `taps` in units of 1 / TAP_ONE, each rounded once: the numbers that both paths multiply with."""
    return np.rint(taps(source, target) * TAP_ONE).astype(np.int64)


def has_fir(source: int, target: int) -> bool:
    """Return whether `by_fir` takes these rates. Between others the filter may have millions of taps."""
    return source in RATES and target in RATES


def by_fir(samples: NDArray[np.float32], source: int, target: int) -> NDArray[np.float32]:
    """Resample (n,) samples from `source` to `target` Hz, both of RATES, to (ceil(n * target / source),) samples.

    Samples of -1 to 1 come out within 2^-19 of those of the compute unit, which rounds its sums to 2^-21."""
    if source == target or not len(samples):
        return samples
    fir = _polyphase(source, target)
    count = -(-len(samples) * fir.up // fir.down)
    products = -(-count // (fir.outputs * len(fir.matrices) * fir.rows))
    span = fir.matrices.shape[1]
    last = (products * fir.rows - 1) * fir.step + int(fir.starts[-1]) + span
    padded = np.zeros(max(last, len(samples)) - fir.first, np.float32)  # zeros beyond both ends
    padded[-fir.first : len(samples) - fir.first] = samples
    resampled = np.empty((products, fir.rows, len(fir.matrices), fir.outputs), np.float32)
    at_once = max(1, WINDOW_VALUES // (fir.rows * span))
    for phase, (start, matrix) in enumerate(zip(fir.starts, fir.matrices, strict=True)):
        windows = np.lib.stride_tricks.sliding_window_view(padded[start - fir.first :], span)[:: fir.step]
        windows = windows[: products * fir.rows].reshape(products, fir.rows, span)
        for begin in range(0, products, at_once):
            block = slice(begin, begin + at_once)
            np.matmul(np.ascontiguousarray(windows[block]), matrix, out=resampled[block, :, phase])
    return resampled.reshape(-1)[:count]


@dataclass(frozen=True, slots=True)
class _Polyphase:
    """A FIR as matrices. Outputs repeat their pattern of taps after `up` of them, which takes `down` inputs.

    A pattern, or a few, is cut into phases of `outputs` outputs each. Phase p of row r multiplies the inputs from
    r * `step` + `starts[p]` on with `matrices[p]`, shape (inputs, outputs). `first` is the earliest input, which lies
    before the audio. `rows` rows make one matrix product."""

    up: int
    down: int
    outputs: int
    step: int
    rows: int
    first: int
    starts: NDArray[np.int64]
    matrices: NDArray[np.float32]


@cache
def _polyphase(source: int, target: int) -> _Polyphase:
    high = math.lcm(source, target)
    up, down = high // source, high // target
    fixed = fixed_taps(source, target)
    half = len(fixed) // 2
    if up > OUTPUTS:
        outputs = max(count for count in range(1, OUTPUTS + 1) if up % count == 0)
        phases = up // outputs
    else:
        outputs, phases = OUTPUTS // up * up, 1
    begin = np.arange(phases) * outputs * down  # of each phase's first output, at the rate `high`
    starts = -((half - begin) // up)
    span = int(((begin + (outputs - 1) * down + half) // up - starts).max()) + 1
    inputs = starts[:, None, None] + np.arange(span)[:, None]
    place = half + begin[:, None, None] + np.arange(outputs) * down - inputs * up
    inside = (place >= 0) & (place < len(fixed))
    matrices = np.where(inside, fixed[np.clip(place, 0, len(fixed) - 1)] / TAP_ONE, 0).astype(np.float32)
    step = phases * outputs * down // up
    rows = max(1, MULTIPLICATIONS // (span * outputs))
    return _Polyphase(up, down, outputs, step, rows, int(starts[0]), starts, matrices)


def _minimax(low: int, rate: int) -> NDArray[np.float64]:
    """Return a minimax FIR of odd length at `rate`.

    Its length follows Kaiser's formula (Oppenheim and Schafer, Section 7.7.3), with some taps more for rounding and for
    interpolation."""
    import scipy.signal

    ripple, stop = 0.8 * (10 ** (PASS_RIPPLE_DB / 20) - 1) / 2, 10 ** (-(STOP_DB + 2) / 20)  # 2: 0 Hz passes as it is
    width = low / 2 * (1 - PASS_BAND) / rate
    length = math.ceil((-10 * math.log10(ripple * stop) - 13) / (14.6 * width)) + 4
    bands = [0, PASS_BAND * low / 2, low / 2, rate / 2]
    return scipy.signal.remez(length | 1, bands, [1, 0], weight=[1, ripple / stop], fs=rate, maxiter=100)


def _constant(array: NDArray[np.float64]) -> NDArray[np.float64]:
    array.flags.writeable = False  # all callers share it
    return array
