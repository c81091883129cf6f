"""axi_write x rtlsim: runs of words to memory, in bursts that the bus allows, whatever memory does."""

import ctypes
from functools import cache

import numpy as np
import pytest
import rtlsim

BASE = 0x7F_FFFF_F000  # the upper half of the address changes within the memory
SIZE = 1 << 16


class Command(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("words", ctypes.c_uint64)]


class Outcome(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cycles", "bus_error", "bursts", "most_waiting", "held")]


@cache
def library() -> ctypes.CDLL:
    return rtlsim.load("axi_write")


def write(runs, *, latency=0, stall=0, late=0, seed=1, size=SIZE, base=BASE):
    """`runs`: (byte offset, words) of each. Memory must end up with their words and nothing else within `size`."""
    total = sum(words for _, words in runs)
    data = np.random.default_rng(seed).integers(0, 256, 16 * total, np.uint8)
    memory, expected, begin = np.full(SIZE, 0xA5, np.uint8), np.full(SIZE, 0xA5, np.uint8), 0
    for offset, words in runs:
        expected[offset : offset + 16 * words] = data[begin : begin + 16 * words]
        begin += 16 * words
    expected[size:] = 0xA5
    commands = (Command * len(runs))(*((base + offset, words) for offset, words in runs))
    outcome = Outcome()
    fault = library().rtl_axi_write(
        commands,
        ctypes.c_uint64(len(runs)),
        data.ctypes.data_as(ctypes.c_void_p),
        memory.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(base),
        ctypes.c_uint64(size),
        ctypes.c_uint32(latency),
        ctypes.c_uint32(stall),
        ctypes.c_uint32(late),
        ctypes.c_uint32(seed),
        ctypes.byref(outcome),
    )
    assert fault == 0, {1: "hangs", 2: "breaks the protocol", 3: "an assertion failed"}[fault]
    assert np.array_equal(memory, expected)
    return outcome


@pytest.mark.parametrize("stall", [0, 100, 200])
@pytest.mark.parametrize("words", [1, 2, 31, 32, 33, 300, 1000])
@pytest.mark.parametrize("offset", [0, 16, 0xFF0, 0x3F0, 0xF80])
def test_words_land_in_order_at_any_place(offset, words, stall):
    assert not write([(offset, words)], latency=20, stall=stall, seed=words + offset).bus_error


@pytest.mark.parametrize("latency", [0, 150, 400])
def test_a_long_run_takes_a_word_a_clock(latency):
    outcome = write([(0, 4000)], latency=latency)
    assert outcome.cycles <= 4000 + latency + 80
    assert not outcome.held


def test_rows_of_a_tile_take_a_word_a_clock():
    outcome = write([(512 * row, 32) for row in range(80)], latency=150)
    assert outcome.cycles <= 80 * 32 + 150 + 80


@pytest.mark.parametrize("late", [0, 200])
def test_a_burst_never_holds_the_bus_up(late):
    """Words come with pauses, bursts do not."""
    random = np.random.default_rng(3)
    for seed in range(20):
        runs = [(1024 * i, int(random.integers(1, 64))) for i in range(10)]
        assert not write(runs, stall=180, late=late, seed=seed).held


@pytest.mark.parametrize("words", [1, 32])
def test_no_more_bursts_wait_for_their_response_than_can_be_counted(words):
    """A memory that is slow to answer: 63 wait, the 64th is not issued before the first is answered."""
    outcome = write([(512 * run, words) for run in range(128)], latency=5000)
    assert outcome.bursts == 128 and outcome.most_waiting == 63


@pytest.mark.parametrize("size", [0, 16, 5008])
def test_an_error_of_memory_is_told_and_all_is_taken(size):
    assert write([(0, 300), (8192, 10)], size=size, stall=50).bus_error
    assert not write([(0, 300)]).bus_error


def test_random_runs_leave_nothing_behind():
    random = np.random.default_rng(2)
    for seed in range(200):
        cuts = np.sort(random.choice(SIZE // 16, 2 * int(random.integers(1, 12)), replace=False))
        runs = [(16 * int(a), int(b - a)) for a, b in cuts.reshape(-1, 2)]
        random.shuffle(runs)
        write(
            runs,
            latency=int(random.integers(0, 200)),
            stall=int(random.integers(0, 200)),
            late=seed % 3 * 100,
            seed=seed,
            base=int(random.integers(0, 1 << 48)) << 16,
        )
