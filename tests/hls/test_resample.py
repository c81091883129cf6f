"""resample x {csim, rtlsim}: the sum of the definition in integers, bit for bit.

One model serves all RTL cases, without a reset between them, so that the taps stay from one to the next, and every case
runs twice in it: without stalls, in the clocks of the cycle model, and with random stalls on every stream."""

import ctypes
import itertools
import math
from functools import cache

import csim
import numpy as np
import pytest
import rtlsim
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.host.dpu.reference import resampling
from headrace.host.dpu.reference.resampling import TAP_ONE
from headrace.host.dpu.specs import RATES, AudioSpec
from headrace.host.dpu.units.audio_tables import taps_table
from headrace.host.dpu.units.status import Status
from headrace.sim.hardware.dpu.audio import TO_COUNT, resample_cycles, taps_cycles

SPEC = AudioSpec()
BROKEN, TIMEOUT = 255, 254
ONE = 1 << 16  # of a sample that goes in
OUT_ONE = 1 << 21  # of one that comes out
ERROR = 8.1e-6  # to float64, in docs/explanation/exactness.md, too


@cache
def table(rate: int):
    return taps_table(SPEC, rate)


@cache
def quantised(rate: int):
    """The taps in order, as integers; the middle one's place, up, down."""
    up, down = math.lcm(rate, 16000) // rate, math.lcm(rate, 16000) // 16000
    exact = resampling.taps(rate, SPEC.rate)
    return np.rint(exact * TAP_ONE).astype(np.int64), len(exact) // 2, up, down


def expected(pcm, rate: int):
    """The definition's sum, rounded once, shape (ceil(n * 16000 / rate),)."""
    pcm = np.asarray(pcm, np.int64)
    if rate == 16000:
        return pcm << 5
    taps, half, up, down = quantised(rate)
    out = np.zeros(-(-len(pcm) * up // down), np.int64)
    for m in range(len(out)):
        first = max(0, -(-(m * down - half) // up))
        last = min(len(pcm) - 1, (m * down + half) // up)
        inputs = np.arange(first, last + 1)
        out[m] = pcm[inputs] @ taps[half + m * down - inputs * up]
    return (out + (1 << 17)) >> 18


class Numbers(ctypes.Structure):
    _fields_ = [("load", ctypes.c_uint64), ("header", ctypes.c_uint64), ("cycles", ctypes.c_uint64)]


def code_of(function, pcm, rate, status, load, *more):
    """Of a bench; the rate's index and the count, and the samples."""
    pcm = np.ascontiguousarray(pcm, np.int32)
    words = np.ascontiguousarray(table(rate) if load else np.zeros(0), "<u4")
    out, sound = np.zeros(-(-len(pcm) * 16000 // rate) + 1, np.int32), (ctypes.c_uint32 * 2)()
    code = function(
        pointer(words),
        ctypes.c_uint64(words.nbytes // 16),
        ctypes.c_uint32(load),
        ctypes.c_uint32(status),
        ctypes.c_uint32(RATES.index(rate)),
        pointer(pcm),
        ctypes.c_uint32(len(pcm)),
        pointer(out),
        ctypes.c_uint64(len(out)),
        sound,
        *more,
    )
    return code, sound, out


class Csim:
    """The C++ as software. `loaded`: the rate of the taps that are there."""

    loaded = 0

    def resample(self, pcm, rate, status=Status.OK):
        """Returns the status, the rate and the samples."""
        load = rate not in (self.loaded, 16000)
        self.loaded = rate if load else self.loaded
        return self.run(pcm, rate, status, load)

    def run(self, pcm, rate, status, load):
        return self.call(self.library().csim_resample, pcm, rate, status, load)

    @staticmethod
    @cache
    def library():
        return csim.load("resample")

    @staticmethod
    def call(function, pcm, rate, status, load, *more):
        code, sound, out = code_of(function, pcm, rate, status, load, *more)
        assert code != BROKEN, "the unit broke the stream contract"
        assert code != TIMEOUT, "the unit did not end"
        return Status(code), RATES[sound[0]], out[: sound[1]] if code == 0 else None


class Rtlsim(Csim):
    """The SystemVerilog, Verilated."""

    def __init__(self) -> None:
        self._seeds = itertools.count(1)

    def run(self, pcm, rate, status, load):
        seed = next(self._seeds)
        stalled = self.clocked(pcm, rate, status, load, seed)
        unstalled = self.clocked(pcm, rate, status, load, 0)
        numbers = self.numbers
        assert stalled[:2] == unstalled[:2] and np.array_equal(stalled[2], unstalled[2]), f"stalls of seed {seed}"
        if status == Status.OK:
            assert numbers.header == TO_COUNT and numbers.cycles == resample_cycles(len(pcm), rate)
            assert not load or numbers.load == taps_cycles(rate)
        return unstalled

    def clocked(self, pcm, rate, status, load, seed):
        self.numbers = Numbers()
        clocks = ctypes.c_uint64(10_000_000 + 400 * len(pcm))
        return self.call(bench(), pcm, rate, status, load, clocks, ctypes.c_uint32(seed), ctypes.byref(self.numbers))


def bench():
    return rtlsim.load("resample").rtl_resample


CSIM, RTLSIM = Csim(), Rtlsim()
on_both = pytest.mark.parametrize("unit", [CSIM, RTLSIM], ids=["csim", "rtlsim"])


def pointer(array) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def check(unit, pcm, rate: int) -> None:
    status, of_rate, samples = unit.resample(pcm, rate)
    assert (status, of_rate) == (Status.OK, rate)
    assert np.array_equal(samples, expected(pcm, rate))


def noise(count: int, seed: int = 1):
    return np.random.default_rng(seed).integers(-ONE, ONE - 1, count)


@on_both
@pytest.mark.parametrize("rate", RATES)
def test_any_number_of_samples_gives_the_definitions_sum(unit, rate):
    for count in (0, 1, 2, 3, 5, 43, 44, 45, 87, 88, 89, 176, 500):
        check(unit, noise(count, count), rate)


@on_both
@pytest.mark.parametrize("rate", RATES)
def test_the_loudest_samples_do_not_overflow(unit, rate):
    """Square waves, and the signs of the taps themselves: the largest sum that there can be."""
    square = np.where(np.arange(400) // 20 % 2, ONE - 2, -ONE)
    check(unit, square, rate)
    check(unit, np.full(300, -ONE), rate)
    if rate != 16000:
        taps, half, up, down = quantised(rate)
        inputs = np.arange(400)
        for m in (200 * up // down, 200 * up // down + 1):
            place = half + m * down - inputs * up
            inside = (place >= 0) & (place < len(taps))
            worst = np.where(taps[np.clip(place, 0, len(taps) - 1)] < 0, ONE - 2, -ONE) * inside
            loudest = expected(worst, rate)[m] / OUT_ONE
            assert -2.56 < loudest < -2
            check(unit, worst, rate)


@on_both
@pytest.mark.parametrize("rate", RATES)
def test_a_click_gives_the_filter_itself(unit, rate):
    for at in (0, 1, 150):
        check(unit, np.eye(1, 300, at, dtype=int)[0] * -ONE, rate)


@on_both
def test_taps_stay_until_others_are_loaded(unit):
    for rate in (44100, 44100, 16000, 44100, 8000, 8000, 11025, 16000, 11025, 48000, 44100):
        check(unit, noise(100, rate), rate)


@on_both
def test_an_upstream_error_passes_and_leaves_the_taps(unit):
    check(unit, noise(50), 24000)
    for status in (Status.TRUNCATED, Status.NOT_WAV, Status.TOO_LONG):
        assert unit.resample(noise(7), 24000, status)[0] == status
        check(unit, noise(50), 24000)


def test_a_reset_in_mid_sound_or_load_leaves_nothing_behind():
    for clocks in (1, 10, 40, 50, 80, 90, 150, 300):
        more = (ctypes.c_uint64(clocks), ctypes.c_uint32(0), ctypes.byref(Numbers()))
        assert code_of(bench(), noise(400), 48000, Status.OK, True, *more)[0] == TIMEOUT
        RTLSIM.loaded = 0
        check(RTLSIM, noise(60), 32000)
        check(RTLSIM, noise(60), 16000)


@on_both
@settings(max_examples=60, deadline=None)
@given(rate=st.sampled_from(RATES), pcm=st.lists(st.integers(-ONE, ONE - 2), max_size=300))
def test_any_samples_give_the_definitions_sum(unit, rate, pcm):
    check(unit, pcm, rate)


@on_both
@pytest.mark.slow
@pytest.mark.parametrize("rate", RATES)
def test_seconds_of_samples_give_the_definitions_sum(unit, rate):
    check(unit, noise(2 * rate + 1), rate)


@pytest.mark.quick(3)
@pytest.mark.parametrize("rate", [rate for rate in RATES if rate != 16000])
def test_the_error_to_float64_is_that_of_rounding_taps_and_sums(rate):
    """With the taps of the definition as they are. The sum's rounding is half of 2^-21; each tap's adds up to 2^-24."""
    chirp = np.sin(np.arange(4000) ** 2 * (0.4 * min(rate, 16000) / rate / 8000 * np.pi))
    pcm = np.rint(0.9 * ONE * chirp).astype(int)
    _, _, samples = CSIM.resample(pcm, rate)
    exact, half, up, down = resampling.taps(rate, SPEC.rate), *quantised(rate)[1:]
    spread = np.zeros(len(pcm) * up)
    spread[::up] = pcm / ONE
    length = len(spread) + len(exact) - 1
    convolved = np.fft.irfft(np.fft.rfft(spread, length) * np.fft.rfft(exact, length), length)
    filtered = convolved[half:][: len(spread)][::down]
    error = samples[: len(filtered)] / OUT_ONE - filtered
    of_taps = np.rint(exact * TAP_ONE) / TAP_ONE - exact
    bound = 2.0**-22 + max(np.abs(of_taps[phase::up]).sum() for phase in range(up))
    assert np.abs(error).max() < bound < ERROR
    assert 20 * np.log10(np.sqrt(np.square(error).mean())) < -128


@pytest.mark.parametrize("rate", RATES)
def test_an_input_sample_takes_a_clock_and_at_8_and_11_khz_two(rate):
    passes = 2 if rate < 12000 else 1
    assert resample_cycles(10 * rate, rate) - resample_cycles(rate, rate) == passes * 9 * rate
    assert resample_cycles(rate, rate) < passes * rate + 150 * passes
