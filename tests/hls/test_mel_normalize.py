"""mel_normalize, C++ and RTL, word for word; test_audio_norm_cu compares their values with float64."""

import ctypes
from dataclasses import dataclass
from functools import cache

import csim
import numpy as np
import pytest
import rtlsim
from norm_cu import BY_FRAMES, STATISTICS, STD_FLOOR, contents
from numpy.typing import NDArray

NEVER = (1 << 64) - 1


@dataclass(frozen=True)
class Clocks:
    """From the start, with no pauses."""

    last_statistics: int
    last_value: int
    last_scale: int
    first_word: int
    last_word: int
    idle: int


@cache
def cpp() -> ctypes.CDLL:
    return csim.load("mel_normalize")


@cache
def rtl() -> ctypes.CDLL:
    return rtlsim.load("mel_normalize")


def words_of(frames: int, mels: int, *, seed: int = 1) -> NDArray[np.uint64]:
    """The statistics, then the values, a row a word."""
    rng = np.random.default_rng([frames, mels, seed])
    mel = contents(rng.integers(-4_000_000, 1_000_000, (frames, mels))).view(np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(np.roll(mel, mels, 0))


def given(frames: int, mels: int, half: int) -> int:
    """Words that come out. 2 is added to `half` where rows are frames."""
    if half & BY_FRAMES:
        return frames * -(-mels // (8 if half & 1 else 4))
    return sum(-(-min(128, frames - first) // (8 if half else 4)) for first in range(0, frames, 128)) * mels


def run_csim(words, frames, mels, half=0, std_floor=STD_FLOOR, *, counted=None, rule=STATISTICS) -> NDArray[np.uint64]:
    """`counted` frames, or all."""
    out = np.zeros((given(frames, mels, half), 2), np.uint64)
    cpp().csim_mel_normalize(
        words.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(len(words)),
        *map(ctypes.c_uint32, (frames, counted or frames, mels, half, std_floor, *rule)),
        out.ctypes.data_as(ctypes.c_void_p),
    )
    return out


def run_rtl(
    words,
    frames,
    mels,
    half=0,
    std_floor=STD_FLOOR,
    *,
    counted=None,
    rule=STATISTICS,
    pauses=(0, 0),
    seed=1,
    reset_at=NEVER,
) -> tuple[NDArray[np.uint64], Clocks]:
    out = np.zeros((given(frames, mels, half), 2), np.uint64)
    clocks = (ctypes.c_uint64 * 6)()
    fault = rtl().rtl_mel_normalize(
        words.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(len(words)),
        *map(ctypes.c_uint32, (frames, counted or frames, mels, half, std_floor, *rule, *pauses, seed)),
        ctypes.c_uint64(reset_at),
        out.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(len(out)),
        clocks,
    )
    assert fault == 0, {1: "it does not end", 2: "it gives or takes too many words, or too few"}[fault]
    return out, Clocks(*clocks)


SIZES = [(1, 4), (2, 128), (3, 80), (127, 12), (128, 8), (129, 8), (256, 4), (385, 20)]


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize(("frames", "mels"), SIZES)
def test_cpp_and_rtl_give_the_same_words_whatever_pauses_there_are(frames, mels, half):
    words = words_of(frames, mels)
    expected = run_csim(words, frames, mels, half)
    for seed, pauses in enumerate([(0, 0), (60, 0), (0, 60), (200, 30), (30, 200), (128, 128)]):
        assert np.array_equal(run_rtl(words, frames, mels, half, pauses=pauses, seed=seed)[0], expected), pauses


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize(("frames", "mels"), [(1, 4), (5, 12), (129, 80), (260, 20)])
def test_rows_of_frames_are_the_same_in_both_with_pauses_on_both_sides(frames, mels, half):
    words = words_of(frames, mels)
    for counted in sorted({1, max(1, frames - 1), frames}):
        expected = run_csim(words, frames, mels, half | BY_FRAMES, counted=counted)
        for seed, pauses in enumerate([(0, 0), (60, 30), (30, 200)]):
            found, _ = run_rtl(words, frames, mels, half | BY_FRAMES, counted=counted, pauses=pauses, seed=seed)
            assert np.array_equal(found, expected), (counted, pauses)


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("frames", [2, 3, 5, 128, 129, 130, 257, 300])
def test_frames_that_do_not_count_are_zeros_in_the_same_clocks(frames, half):
    mels = 8
    words = words_of(frames, mels)
    clocks = run_rtl(words, frames, mels, half)[1]
    for counted in sorted({1, 2, frames - 1, frames, (frames + 1) // 2, min(frames, 127), min(frames, 128)}):
        expected = run_csim(words, frames, mels, half, counted=counted)
        for seed, pauses in enumerate([(0, 0), (60, 30), (30, 200)]):
            found, took = run_rtl(words, frames, mels, half, counted=counted, pauses=pauses, seed=seed)
            assert np.array_equal(found, expected), (counted, pauses)
            assert pauses != (0, 0) or took == clocks
        values = expected.view("<f2" if half else "<f4")
        first = 0
        for begin in range(0, frames, 128):
            count = min(128, frames - begin)
            rows = values.reshape(-1)[first : first + mels * -(-count // (8 if half else 4)) * (8 if half else 4)]
            rows = rows.reshape(mels, -1)
            first += rows.size
            assert not rows[:, max(0, counted - begin) :].any()
            assert counted < 3 or counted <= begin or rows[:, : counted - begin].any()


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize(("frames", "mels"), SIZES)
def test_one_mean_and_factor_for_all_bands_is_the_same_in_both_and_in_float64(frames, mels, half):
    words = words_of(frames, mels)
    q = np.rint(words[mels:].view("<f4").reshape(frames, mels).astype(np.float64) * 2**18)
    for seed, (least, mean, reciprocal, shift) in enumerate(
        [(-(1 << 23), 0, 1 << 23, 8), (-2_000_000, -617_000_000, 0xDE6A4F, 4), (0, (1 << 31) - 1, 0xFFFFFF, 1)]
    ):
        rule = (least, mean, shift << 24 | reciprocal)
        found = run_csim(words, frames, mels, half, rule=rule)
        assert np.array_equal(run_rtl(words, frames, mels, half, rule=rule, pauses=(40, 40), seed=seed)[0], found)
        if frames <= 128:
            wanted = (np.maximum(q, least) / 2**18 - mean / 2**26) * (reciprocal * 2.0 ** (shift - 31))
            rows = found.view("<f2" if half else "<f4").reshape(mels, -1)[:, :frames].T.astype(np.float64)
            assert np.allclose(rows, wanted, rtol=2**-10 if half else 2**-23, atol=2**-20 if half else 0)


def test_bands_take_six_clocks_each_and_are_known_192_later():
    for mels in (4, 80, 128):
        _, clocks = run_rtl(words_of(5, mels), 5, mels)
        assert clocks.last_statistics <= 6 * mels
        assert clocks.last_scale <= 6 * mels + 192 + 3


@pytest.mark.parametrize("half", [0, 1])
def test_four_values_come_and_go_in_a_clock(half):
    frames, mels = 128 * 9, 80
    tile = 128 * mels // 4
    _, clocks = run_rtl(words_of(frames, mels), frames, mels, half)
    assert clocks.last_value - clocks.last_statistics <= 9 * tile + 9 * 4
    assert clocks.last_word - clocks.last_value <= tile + 23
    # From a full tile; two words of statistics wait for their six clocks when the last one comes.
    assert clocks.first_word - (clocks.last_statistics + 12 + tile) <= 22 + half
    assert clocks.idle - clocks.last_word <= 2


def test_a_reset_at_any_time_leaves_nothing_behind():
    frames, mels = 150, 12
    words = words_of(frames, mels)
    expected = run_csim(words, frames, mels)
    for reset_at in (1, 7, 60, 100, 181, 200, 500, 572, 700, 1000):
        run_rtl(words, frames, mels, reset_at=reset_at, pauses=(20, 20), seed=reset_at)
        assert np.array_equal(run_rtl(words, frames, mels)[0], expected), reset_at
