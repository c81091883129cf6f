"""axi_read x rtlsim: any run of words from memory, in bursts that the bus allows, whatever memory does."""

import ctypes
from functools import cache

import numpy as np
import pytest
import rtlsim

BASE = 0x7F_FFFF_F000  # the upper half of the address changes within the memory
SIZE = 1 << 16
MEMORY = np.random.default_rng(6).integers(0, 256, SIZE, np.uint8)
WHOLE = 0xFFFFFFFF


class Outcome(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cycles", "first", "taken", "bursts", "most_flying", "error")]


@cache
def library() -> ctypes.CDLL:
    return rtlsim.load("axi_read")


def read(offset: int, words: int, *, stop_after=WHOLE, latency=0, stall=0, seed=1, size=SIZE, base=BASE, **more):
    """The words taken, and what happened. `more`: how `slow` the consumer is, if not as memory; the clock `reset_at` of
    a reset, of memory as well if it `forgets`."""
    out = np.full(16 * words + 16, 0xA5, np.uint8)
    outcome = Outcome()
    fault = library().rtl_axi_read(
        MEMORY.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(base),
        ctypes.c_uint64(size),
        ctypes.c_uint64(base + offset),
        ctypes.c_uint32(words),
        ctypes.c_uint32(stop_after),
        ctypes.c_uint32(latency),
        ctypes.c_uint32(stall),
        ctypes.c_uint32(more.get("slow", stall)),
        ctypes.c_uint32(more.get("reset_at", WHOLE)),
        ctypes.c_uint32(more.get("forgets", False)),
        ctypes.c_uint32(seed),
        out.ctypes.data_as(ctypes.c_void_p),
        ctypes.byref(outcome),
    )
    assert fault == 0, {1: "hangs", 2: "breaks the protocol", 3: "an assertion failed"}[fault]
    assert (out[16 * outcome.taken :] == 0xA5).all()
    return out[: 16 * outcome.taken], outcome


@pytest.mark.parametrize("stall", [0, 100, 200])
@pytest.mark.parametrize("words", [0, 1, 2, 63, 64, 65, 300, 1000])
@pytest.mark.parametrize("offset", [0, 16, 0xFF0, 0x3F0, 0xF80])
def test_words_come_in_order_from_any_place(offset, words, stall):
    taken, outcome = read(offset, words, latency=20, stall=stall, seed=words + offset)
    assert outcome.taken == words and not outcome.error
    assert np.array_equal(taken, MEMORY[offset : offset + 16 * words])


@pytest.mark.parametrize("latency", [100, 128, 400])
def test_latency_does_not_cost_throughput(latency):
    _, outcome = read(0, 4000, latency=latency)
    assert outcome.first <= latency + 8
    assert outcome.cycles <= 4000 + latency + 12


def test_no_more_is_requested_than_there_is_room_for():
    _, outcome = read(0, 2000, latency=1000)
    assert outcome.most_flying == 512


@pytest.mark.parametrize("stall", [0, 150])
@pytest.mark.parametrize("stop_after", [0, 1, 50, 511, 998, 999])
def test_a_stopped_reader_takes_what_is_under_way_and_reads_again(stop_after, stall):
    taken, outcome = read(0x40, 1000, stop_after=stop_after, latency=90, stall=stall)
    assert np.array_equal(taken, MEMORY[0x40 : 0x40 + 16 * stop_after])
    assert outcome.bursts < 18 and not outcome.error
    taken, _ = read(0x100, 40, latency=90, stall=stall)
    assert np.array_equal(taken, MEMORY[0x100 : 0x100 + 640])


@pytest.mark.parametrize("stall", [0, 150])
@pytest.mark.parametrize("good", [0, 1, 63, 64, 200, 999])
def test_after_an_error_zeros_are_given_to_the_end(good, stall):
    taken, outcome = read(0, 1000, latency=50, stall=stall, size=16 * good)
    assert outcome.taken == 1000 and outcome.error
    assert np.array_equal(taken[: 16 * good], MEMORY[: 16 * good]) and not taken[16 * good :].any()
    taken, outcome = read(0, 10, latency=50)
    assert np.array_equal(taken, MEMORY[:160]) and not outcome.error


def test_errors_in_words_that_nobody_took_do_not_count():
    taken, outcome = read(0, 1000, latency=5, size=1600, stop_after=100)
    assert len(taken) == 1600 and not outcome.error


@pytest.mark.parametrize("slow", [100, 250])
@pytest.mark.parametrize("latency", [0, 60])
def test_a_slow_consumer_beside_a_fast_memory_loses_nothing(slow, latency):
    taken, outcome = read(0x30, 2000, latency=latency, slow=slow)
    assert np.array_equal(taken, MEMORY[0x30 : 0x30 + 32000])
    assert outcome.most_flying <= 512 and outcome.bursts == -(-(3 + 2000) // 64)


@pytest.mark.parametrize("stall", [0, 120])
@pytest.mark.parametrize("reset_at", [1, 2, 3, 4, 5, 6, 7, 40, 150, 200, 333, 700])
def test_reads_under_way_at_a_reset_are_not_taken_for_those_of_the_next_run(reset_at, stall):
    _, outcome = read(0, 1000, latency=150, stall=stall, reset_at=reset_at, seed=reset_at)
    assert outcome.bursts == 0 or outcome.cycles >= min(reset_at, 150)
    taken, outcome = read(0x2000, 300, latency=10, stall=stall)
    assert np.array_equal(taken, MEMORY[0x2000 : 0x2000 + 4800]) and not outcome.error


@pytest.mark.parametrize("reset_at", [3, 40, 170, 400])
def test_a_memory_that_is_reset_as_well_is_not_waited_for_forever(reset_at):
    _, outcome = read(0, 1000, latency=150, reset_at=reset_at, forgets=True)
    assert outcome.cycles < reset_at + 1040
    taken, outcome = read(0x2000, 300, latency=10)
    assert np.array_equal(taken, MEMORY[0x2000 : 0x2000 + 4800]) and not outcome.error


def test_random_runs_leave_nothing_behind():
    random = np.random.default_rng(2)
    for seed in range(300):
        words = int(random.integers(0, 400))
        offset = 16 * int(random.integers(0, SIZE // 16 - words))
        stop = int(random.integers(0, words + 1)) if seed % 3 == 0 else WHOLE
        limit = int(random.integers(0, SIZE)) & -16 if seed % 4 == 0 else SIZE
        taken, outcome = read(
            offset,
            words,
            stop_after=stop,
            latency=int(random.integers(0, 200)),
            stall=int(random.integers(0, 200)),
            seed=seed,
            size=limit,
            base=int(random.integers(0, 1 << 48)) << 16,
        )
        assert outcome.taken == min(words, stop)
        expected = np.where(np.arange(SIZE) < limit, MEMORY, 0)[offset : offset + 16 * outcome.taken]
        assert np.array_equal(taken, expected)
        assert outcome.error == (offset + 16 * outcome.taken > limit and outcome.taken > 0)
