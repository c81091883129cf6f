"""Two Huffman symbols a clock: files of short codes through decode's RTL, against the C++ and the model's count."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import rtlsim
import test_decode
from test_decode import (
    SAMPLINGS,
    SLOW,
    STALLS,
    STATUS,
    WAS_RESET,
    Jpeg,
    RtlMemory,
    Segment,
    csim_decode,
    encode,
    file_of_random_codes,
    golden,
    huffman_tables,
    mutants,
    picture,
    rtl_decode,
    sample,
    take_apart,
)

from headrace.sim.hardware.dpu.image import decode_cycles
from headrace.sim.hardware.dpu.jpeg import DHT, SOS, read_jpeg_work

CAPACITY = 1 << 16
TO_STEPS = 400  # clocks from the headers until both tables of steps are complete, at most
# Runs and sizes that go in pairs, ZRL, which goes alone, and a coefficient that is too large to go with another.
SHORT = [run << 4 | size for run in range(3) for size in range(1, 4)] + [0xF0, 0x0A, 0x71]


def short_codes(rng: np.random.Generator) -> list[bytes]:
    """Return files whose AC tables have few symbols, so that nearly all codes are short."""
    samplings = ("4:4:4", "4:2:0", "4:1:1")
    symbols = [SHORT[: rng.integers(1, len(SHORT) + 1)] for _ in range(24)]
    return [file_of_random_codes(rng, samplings[i % 3], some, 2, (130, 100)) for i, some in enumerate(symbols)]


def check_equal(jpeg: bytes, stalls: tuple[int, int] = (0, 0), seed: int = 0) -> int:
    """Compare status, size and pixels of the RTL with those of the C++. Return the number of pairs."""
    *expected, pixels = csim_decode(jpeg, capacity=CAPACITY)
    *found, rgb, counters = rtl_decode(jpeg, *stalls, seed=seed, capacity=CAPACITY)
    assert found == expected and np.array_equal(rgb, pixels)
    return int(counters.pairs)


def check_pairs(jpeg: bytes) -> int:
    """Decode a file without errors, and compare the pairs with the cycle model's. Return their number."""
    work = read_jpeg_work(jpeg)
    pairs = check_equal(jpeg)
    assert sum(work.pairs) - TO_STEPS <= pairs <= sum(work.pairs)
    return pairs


@pytest.mark.parametrize("seed", range(4))
def test_files_of_short_codes_equal_the_cpp_and_go_in_pairs(seed):
    assert sum(map(check_pairs, short_codes(np.random.default_rng(seed)))) > 1000


@pytest.mark.quick(8)
@pytest.mark.parametrize("restart", [1, 2, 5])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_pairs_stop_at_restart_markers(sampling, restart):
    jpeg = encode(picture(np.random.default_rng(restart), 97, 81), 75, sampling, optimize=True, restart=restart)
    assert check_pairs(jpeg) > 0
    for number, stalls in enumerate(STALLS):
        check_equal(jpeg, stalls, number)


@pytest.mark.parametrize("numbers", [(0, 0), (1, 0), (1, 1), (2, 2), (2, 3), (0, 2), (3, 1)])
def test_pairs_come_from_the_table_of_each_component(numbers):
    """Tables 2 and 3 have no pairs. Where the components share a number the file is gray."""
    luma, chroma = numbers
    gray = luma == chroma
    file = take_apart(encode(picture(np.random.default_rng(7), 83, 61, 1 if gray else 3), 75, "4:4:4", optimize=True))
    tables = {table[0]: table[1:] for payload in file.payloads(DHT) for table in huffman_tables(payload)}
    places = {0x00: 0x00, 0x01: 0x01, 0x10: 0x10 | luma, 0x11: 0x10 | chroma}
    moved = [Segment(DHT, bytes([places[number]]) + table) for number, table in tables.items()]

    def select(payload: bytes) -> bytes:
        selectors = [1, luma] if gray else [1, luma, 2, 0x10 | chroma, 3, 0x10 | chroma]
        return bytes([payload[0], *selectors, 0, 63, 0])

    changed = file.without(DHT).with_first(*moved).edit(SOS, select).to_bytes()
    assert (check_pairs(changed) > 0) == (min(numbers) < 2)
    np.testing.assert_array_equal(golden(changed), golden(file.to_bytes()))


@pytest.mark.parametrize("times", [2, 5])
def test_a_table_that_is_written_again_takes_the_place_of_the_one_before(times):
    """Short tables follow each other while the steps of the one before are worked out."""
    first, *files = short_codes(np.random.default_rng(times))[:9]
    others = [
        Segment(DHT, table)
        for other in (first, *files[: times - 2])
        for payload in take_apart(other).payloads(DHT)
        for table in huffman_tables(payload)
        if table[0] in (0x10, 0x11)
    ]
    for jpeg in files:
        check_pairs(take_apart(jpeg).with_first(*others).to_bytes())


def test_files_with_other_tables_follow_each_other():
    rng = np.random.default_rng(9)
    for i in range(30):
        jpeg = encode(picture(rng, 70, 50), int(rng.integers(20, 100)), list(SAMPLINGS)[i % 5], optimize=True)
        check_pairs(jpeg)


def resets(jpeg: bytes, step: int) -> Iterator[int]:
    """Yield clocks around the end of the headers, when steps are worked out."""
    *_, counters = rtl_decode(jpeg, capacity=CAPACITY)
    yield from range(max(1, counters.header - 500), counters.header + 400, step)


@pytest.mark.parametrize("step", [37, pytest.param(3, marks=SLOW)])
def test_a_reset_while_steps_are_worked_out_leaves_nothing_behind(step):
    files = [
        encode(picture(np.random.default_rng(1), 60, 50), 90, "4:2:0"),
        encode(picture(np.random.default_rng(2), 60, 50), 60, "4:4:4", optimize=True),
    ]
    for number, clock in enumerate(resets(files[0], step)):
        status, *_ = rtl_decode(files[number % 2], memory=RtlMemory(reset_at=clock))
        assert status in (WAS_RESET, STATUS["OK"])
        check_pairs(files[1 - number % 2])


@pytest.mark.parametrize("count", [200, pytest.param(4000, marks=SLOW)])
def test_damaged_files_of_short_codes_end_as_in_the_cpp(count):
    for number, jpeg in enumerate(mutants(count, 5, short_codes)):
        check_equal(jpeg, ((0, 0), *STALLS)[number % (len(STALLS) + 1)], number)


@pytest.mark.parametrize("restart", [0, 1])
def test_files_of_short_codes_cut_off_anywhere_end_as_in_the_cpp(restart):
    file: Jpeg = sample("4:4:4", 30, 20, optimize=True, restart=restart)
    for length in range(len(file.scan)):
        check_equal(replace(file, scan=file.scan[:length]).to_bytes())


@SLOW
def test_a_build_for_one_symbol_a_clock_takes_no_pairs(monkeypatch):
    library = rtlsim.load("decode", Symbols=1)
    monkeypatch.setattr(test_decode, "rtl_library", lambda: library)
    for sampling in ("4:4:4", "4:2:0"):
        jpeg = encode(picture(np.random.default_rng(3), 120, 100), 97, sampling)
        work = read_jpeg_work(jpeg, pair_bits=0)
        status, *_, rgb, counters = rtl_decode(jpeg, capacity=3 * 120 * 100)
        assert status == STATUS["OK"]
        np.testing.assert_array_equal(rgb.reshape(100, 120, 3), golden(jpeg))
        assert (counters.symbols, counters.pairs) == (sum(work.symbols), 0)
        assert counters.cycles == pytest.approx(decode_cycles(work), rel=0.003)
    for number, jpeg in enumerate(mutants(100, 6, short_codes)):
        check_equal(jpeg, ((0, 0), *STALLS)[number % (len(STALLS) + 1)], number)
