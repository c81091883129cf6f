"""Compute the tables that the host loads into the audio CUs before a request."""

import math

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.dpu.reference.audio import filterbank
from headrace.host.dpu.reference.resampling import TAP_ONE, fixed_taps
from headrace.host.dpu.specs import RATES, AudioSpec, Ends, Floor, MelScale

LANES = 88  # outputs that hls/resample computes at the same time, one on each multiplier
TAP_WORDS = 1024  # words of taps in hls/resample
TARGET_HZ = 16000  # output rate of hls/resample
PROGRAM_STEPS = 256  # 4096 bytes, the size of the unit's memory
WINDOW_ROWS = 128  # 2048 bytes
WINDOW_SCALE = 2**26  # value of a window's weight of 1, in 26 bits
FRAME_STEPS = 160  # steps that a program may have: the clocks of a frame at one sample a clock
WEIGHT_SCALE = 2**28  # value of a filter's weight of 1, in 24 bits
EMIT, ADVANCE, LAST = 1 << 48, 1 << 49, 1 << 50
FRAME_SIZES = (512, 400)  # n_fft that hls/mel has
# A 1 in units of the registers
LOG_ONE, MEAN_ONE, FLOOR_ONE, PREEMPHASIS_ONE = 1 << 18, 1 << 26, 1 << 40, 1 << 24
# The register `plan`
POINTS_400, LEAST_FLOOR, MEAN_REMOVED, EMPHASISED_ALONE = 1 << 0, 1 << 3, 1 << 4, 1 << 5
EXPONENT_SHIFT = 8
GAIN_BITS = (-64, 23)  # of the powers' gain in the unit, so that full scale stays below e^32 in the logarithm
ENDS = {Ends.ZEROS: 0 << 1, Ends.MIRRORED: 1 << 1, Ends.INSIDE: 2 << 1}


def passes(rate: int) -> int:
    """Return how many passes over its LANES outputs hls/resample makes for an input sample at `rate` Hz.

    Where the rate goes up by half or more, twice LANES outputs overlap."""
    return 2 if 4 * rate < 3 * TARGET_HZ else 1


def taps_table(spec: AudioSpec, rate: int) -> NDArray[np.int32]:
    """Return the taps in the order of hls/resample, shape (words, LANES), int32 in units of 1 / TAP_ONE.

    The taps are `resampling.fixed_taps(rate, TARGET_HZ)`, each rounded once. `up` / `down` is 16000 / `rate` in lowest
    terms, and `step` is `down` times `passes(rate)`. There are `step` words, or none where there is nothing to
    resample. Lane k of word w holds the tap at w + k * `step`, or 0 where there is none. The middle tap, which an
    output has for the input at its own time, is at `step` * LANES / 2. So output m has, for input i, lane k of the word
    w for which w + k * `step` is `step` * LANES / 2 + m * `down` - i * `up`.

    In device memory these are little-endian int32, word after word. Their bytes are a multiple of 16.

    Raises:
        UsageError: The DPU does not take these rates, or the taps do not fit.
    """
    if spec.rate != TARGET_HZ:
        raise UsageError(f"the DPU resamples to {TARGET_HZ} Hz, not to {spec.rate}; set rate to {TARGET_HZ}")
    if rate not in RATES:
        raise UsageError(f"the DPU cannot resample from {rate} Hz, only from {', '.join(map(str, RATES))} Hz")
    if rate == TARGET_HZ:
        return np.zeros((0, LANES), np.int32)
    taps = fixed_taps(rate, TARGET_HZ)
    step = rate // math.gcd(rate, TARGET_HZ) * passes(rate)
    before, half = step * LANES // 2, len(taps) // 2
    after = step * LANES - before - half - 1
    if step > TAP_WORDS or before < half or after < 0 or np.abs(taps).max() >= TAP_ONE:
        raise UsageError(f"the DPU cannot resample from {rate} Hz: its filter of {len(taps)} taps does not fit")
    return np.pad(taps.astype(np.int32), (before - half, after)).reshape(LANES, step).T.copy()


def bank_shift(spec: AudioSpec) -> int:
    """Return n for a filterbank whose weights the unit takes 2^-n times, so that those of a filter are below 2^-4.

    Slaney's filters have an area of 1 and need none. Kaldi's have a peak of 1."""
    if spec.mel_scale is MelScale.SLANEY:
        return 0
    greatest = float(filterbank(spec).sum(1, dtype=np.float64).max())
    return max(0, math.floor(math.log2(greatest)) + 5) if greatest > 0 else 0


def power_exponent(spec: AudioSpec) -> int:
    """Return n for powers that count 2^n times before the logarithm.

    It makes up for `bank_shift`, and for the gain as far as values have a place in the unit's logarithm."""
    low, high = GAIN_BITS
    return bank_shift(spec) + max(low, min(high, round(2 * math.log2(spec.gain))))


def log_offset(spec: AudioSpec) -> float:
    """Return what the natural logarithms of the spec are above those of the unit: the rest of the gain."""
    return 2 * math.log(spec.gain) + (bank_shift(spec) - power_exponent(spec)) * math.log(2)


def plan_of(spec: AudioSpec) -> int:
    """Return the register `plan` of the mel unit; hls/mel/mel.hpp has its bits."""
    return (
        (POINTS_400 if spec.n_fft == 400 else 0)
        | ENDS[spec.ends]
        | (LEAST_FLOOR if spec.floor is Floor.LEAST else 0)
        | (MEAN_REMOVED if spec.remove_mean else 0)
        | (EMPHASISED_ALONE if spec.preemphasis_per_frame and spec.preemphasis else 0)
        | power_exponent(spec) % 256 << EXPONENT_SHIFT
    )


def floor_of(spec: AudioSpec) -> int:
    """Return the register `log_floor`: the added power, or the least logarithm, which is signed."""
    if spec.floor is Floor.ADDED:
        return round(added_floor(spec) * FLOOR_ONE)
    return round(least_log(spec) * LOG_ONE)


def added_floor(spec: AudioSpec) -> float:
    """Return the added power in units of the mel unit, without gain and with its filters."""
    return spec.log_floor / spec.gain**2 * 2.0 ** -bank_shift(spec)


def least_log(spec: AudioSpec) -> float:
    """Return the least logarithm in units of the mel unit."""
    return math.log(spec.log_floor) - log_offset(spec)


def window_table(spec: AudioSpec) -> NDArray[np.uint32]:
    """Return the weights of the window as the mel unit takes them, uint32 of shape (128, 4), LSB 2^-26.

    The window lies in the middle of a frame of 512 samples, and at the beginning of one of 400. Row t has the weights
    of samples 2 t, 2 t + 1, 2 t + 256 and 2 t + 257 of the frame. With 400 samples, rows 120 to 127 have in their last
    two places the weights of samples 2 t and 2 t + 1. A weight of 1 becomes the greatest number below it.
    """
    weights = np.rint(spec.window_weights() * WINDOW_SCALE).clip(0, WINDOW_SCALE - 1).astype(np.uint32)
    before = (spec.n_fft - spec.window) // 2
    frame = np.zeros(512, np.uint32)
    frame[before : before + spec.window] = weights
    table = np.concatenate([frame[:256].reshape(WINDOW_ROWS, 2), frame[256:].reshape(WINDOW_ROWS, 2)], axis=1)
    if spec.n_fft == 400:
        table[120:, 2:] = table[120:, :2]
    return table


def filter_program(spec: AudioSpec) -> NDArray[np.uint64]:
    """Return `filterbank(spec)` as the program that the mel unit runs for each frame: uint64 of shape (256, 2).

    Its weights are 2^-`bank_shift` of the filterbank's. The program is little-endian in device memory, with zeros after
    the last step. A row is one step (one clock) of both lanes. With frames of 512 samples the first lane goes up from
    bin 1 to 128. The second goes down from bin 255 to 128, which belongs to the first lane. Bins 0 and 256 have no
    weight. With 400 samples these numbers are 100, 199 and 200. A bin lies in at most two filters, which are
    neighbours. So a lane keeps two sums: that of the filter which it leaves, and that of the next one. An entry of the
    program has these bits.

    | bits | |
    | --- | --- |
    | 0 to 23 | weight of the bin in the filter that the lane leaves, LSB 2^-28 |
    | 24 to 47 | weight in the next filter |
    | 48 | emit: after this bin the lane gives out the first sum and moves the second into its place |
    | 49 | advance: the next step has the next bin (both lanes alike) |
    | 50 | last step (both lanes alike) |

    The first lane emits filters 0, 1, 2 and so on. The second emits n_mels - 1 and so on downwards. The unit adds up
    the sums of a filter that both lanes emit.

    Raises:
        UsageError: The unit takes frames of its own size only. It also refuses a filterbank in which a bin lies in
            other filters than two neighbours, with weights above 2^-4, or with more steps than a frame has clocks.
    """
    if (spec.rate, spec.window, spec.hop) != (16000, 400, 160) or spec.n_fft not in FRAME_SIZES:
        raise UsageError(
            f"rate, n_fft, window, hop are {spec.rate}, {spec.n_fft}, {spec.window}, {spec.hop}; "
            "the DPU computes mel bands with 16000, 512 or 400, 400, 160 only"
        )
    if spec.n_mels % 4 or not 4 <= spec.n_mels <= 128:
        raise UsageError(f"n_mels is {spec.n_mels}; the DPU takes multiples of 4 from 4 to 128")
    return program_of(filterbank(spec) * np.float32(2.0 ** -bank_shift(spec)))


def program_of(filterbank: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return the program for any filterbank of shape (n_mels, 257) or (n_mels, 201); see `filter_program`."""
    weights = np.rint(filterbank.astype(np.float64) * WEIGHT_SCALE).astype(np.int64)
    last = weights.shape[1] - 1
    middle = last // 2
    if weights[:, 0].any() or weights[:, last].any():
        raise UsageError("the filterbank weighs 0 Hz or half the rate; the DPU leaves these two bins out")
    if weights.min() < 0 or weights.sum(1).max() >= WEIGHT_SCALE >> 4:
        raise UsageError("a mel filter has a weight below 0 or weights of 2^-4 and more in all, too large for the DPU")
    up, lane_up = _lane(weights, range(1, middle + 1), 0)
    other = weights[::-1].copy()
    other[:, middle] = 0  # this bin belongs to the first lane
    needed = len(weights) - up  # the second lane emits a filter that lies in neither lane, as 0
    _, lane_down = _lane(other, range(last - 1, middle - 1, -1), needed)
    rows: list[tuple[int, int]] = []
    for first, second in zip(lane_up, lane_down, strict=True):
        steps = max(len(first), len(second))
        for step in range(steps):
            entries = [lane[step] if step < len(lane) else 0 for lane in (first, second)]
            advance = ADVANCE if step == steps - 1 else 0
            rows.append((entries[0] | advance, entries[1] | advance))
    if len(rows) > FRAME_STEPS:
        raise UsageError(f"the mel filterbank takes {len(rows)} steps a frame; the DPU has {FRAME_STEPS}")
    rows[-1] = (rows[-1][0] | LAST, rows[-1][1] | LAST)
    program = np.zeros((PROGRAM_STEPS, 2), np.uint64)
    program[: len(rows)] = np.array(rows, np.uint64)
    return program


def _lane(weights: NDArray[np.int64], bins: range, needed: int) -> tuple[int, list[list[int]]]:
    """Return how many filters a lane emits, at least `needed`, and the entries of each bin, in the order of `bins`.

    The filters are in the order of `weights`."""
    lane: list[list[int]] = []
    leaving = 0  # the filter of the first sum

    def emit(times: int) -> None:
        """Emit so many filters after the last bin so far. The first emit is in the step of that bin."""
        if times:
            lane[-1][-1] |= EMIT
            lane[-1] += [EMIT] * (times - 1)

    for at in bins:
        inside = [int(index) for index in np.flatnonzero(weights[:, at])] or [leaving]
        passed = max(0, inside[-1] - 1 - leaving)  # no filter is emitted before it must be
        if lane:
            emit(passed)
        before = [] if lane else [EMIT] * passed  # filters without a bin, before the first one
        leaving += passed
        if inside[0] < leaving:
            raise UsageError("a bin lies in mel filters that are not two neighbours; the DPU cannot do that")
        rising = weights[leaving + 1, at] if leaving + 1 < len(weights) else 0
        lane.append([*before, int(weights[leaving, at]) | int(rising) << 24])
    touched = np.flatnonzero(weights[:, list(bins)].any(1))
    emitted = max(needed, int(touched[-1]) + 1 if len(touched) else 0, leaving)
    emit(emitted - leaving)
    return emitted, lane
