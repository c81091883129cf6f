"""axi_read_upsize and axi_write_upsize x rtlsim: words of 16 bytes over a port of 32, for any burst on 16 bytes."""

import ctypes

import numpy as np
import pytest
import rtlsim

SIZE = 16 * 4096
PAGE_WORDS = 256
FAULTS = {1: "hangs", 2: "breaks the protocol", 3: "an assertion failed"}


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def write(addresses, words, *, stall: int = 0, seed: int = 1, partial: bool = False) -> int:
    """Write random data in these bursts and check every byte of memory. Returns the clocks."""
    random = np.random.default_rng(seed)
    addresses, words = np.asarray(addresses, np.uint64), np.asarray(words, np.uint32)
    total = int(words.sum())
    data = random.integers(0, 256, 16 * total, np.uint8)
    strobes = random.integers(0, 2, 16 * total, np.uint8) if partial else np.ones(16 * total, np.uint8)
    memory, expected = np.full(SIZE, 0xA5, np.uint8), np.full(SIZE, 0xA5, np.uint8)
    begin = 0
    for address, count in zip(addresses.tolist(), words.tolist(), strict=True):
        part = slice(16 * begin, 16 * (begin + count))
        inside = expected[address : address + 16 * count]
        inside[:] = np.where(strobes[part], data[part], inside)
        begin += count
    clocks = ctypes.c_uint64()
    fault = rtlsim.load("axi_write_upsize").rtl_axi_write_upsize(
        pointer(addresses),
        pointer(words),
        ctypes.c_uint64(len(words)),
        pointer(data),
        pointer(strobes),
        pointer(memory),
        ctypes.c_uint64(SIZE),
        ctypes.c_uint32(stall),
        ctypes.c_uint32(seed),
        ctypes.byref(clocks),
    )
    assert fault == 0, FAULTS[fault]
    assert np.array_equal(memory, expected)
    return clocks.value


def bursts(count: int, seed: int, longest: int = 32):
    """Addresses and words of bursts that stay within a page."""
    random = np.random.default_rng([count, seed])
    first = random.integers(0, PAGE_WORDS, count)
    words = np.minimum(random.integers(1, longest + 1, count), PAGE_WORDS - first)
    return 16 * (first + PAGE_WORDS * random.integers(0, SIZE // 4096, count)), words


@pytest.mark.parametrize("stall", [0, 60, 200])
@pytest.mark.parametrize("partial", [False, True], ids=["whole words", "strobes"])
@pytest.mark.parametrize("longest", [1, 3, 32])
def test_bursts_write_their_bytes_and_no_others(longest, partial, stall):
    write(*bursts(400, longest, longest), stall=stall, seed=stall + longest, partial=partial)


@pytest.mark.parametrize("odd", [0, 1])
def test_a_word_is_written_a_clock(odd):
    count, words, in_page = 60, 32, 6
    addresses = [16 * (odd + 40 * (i % in_page) + PAGE_WORDS * (i // in_page)) for i in range(count)]
    assert write(addresses, [words] * count) <= count * words + 10


def read(count: int, *, stall: int = 0, seed: int = 1, reset_at: int = 0, forgets: bool = False) -> tuple[int, int]:
    """The bench compares each word with memory. Returns the clocks, and those from a reset to the next address."""
    memory = np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8)
    clocks, silent = ctypes.c_uint64(), ctypes.c_uint64()
    fault = rtlsim.load("axi_read_upsize").rtl_axi_read_upsize(
        pointer(memory),
        ctypes.c_uint64(SIZE),
        ctypes.c_uint64(count),
        ctypes.c_uint32(stall),
        ctypes.c_uint32(seed),
        ctypes.c_uint64(reset_at),
        ctypes.c_uint32(forgets),
        ctypes.byref(clocks),
        ctypes.byref(silent),
    )
    assert fault == 0, FAULTS[fault]
    return clocks.value, silent.value


@pytest.mark.parametrize("stall", [0, 60, 200])
@pytest.mark.parametrize("seed", range(4))
def test_each_reader_gets_the_words_that_it_asked_for(seed, stall):
    read(600, stall=stall, seed=seed)


@pytest.mark.parametrize("stall", [0, 100])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_of_before_a_reset_comes_before_the_next_address(seed, stall):
    _, silent = read(60, stall=stall, seed=seed, reset_at=20 + seed)
    assert silent > 0


@pytest.mark.parametrize("seed", range(6))
def test_a_memory_that_is_reset_as_well_is_not_waited_for_forever(seed):
    """Also where it is reset between the two words of a beat."""
    _, silent = read(60, seed=seed, reset_at=20 + seed, forgets=True)
    assert 1000 < silent < 1040
