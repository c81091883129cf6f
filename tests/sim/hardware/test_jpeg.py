"""Test read_jpeg_work on files with known contents. tests/hls/test_cycles.py compares its symbols with the hardware's
count.
"""

import cv2
import numpy as np
import pytest

from headrace.batching import UsageError
from headrace.sim.hardware.dpu import jpeg
from headrace.sim.hardware.dpu.jpeg import DHT, DQT, SOF0, SOF2, SOS, JpegWork, read_jpeg_work
from headrace.sim.hardware.dpu.jpeg_scans import (
    STEP_ALONE,
    STEP_DC,
    STEP_EMPTY,
    STEP_LAST,
    STEP_PLACE,
    STEP_RUN,
    STEP_SHORT,
    STEP_SYMBOL,
    STEP_WORD,
)

APP1 = 0xE1
SAMPLINGS = {
    "4:4:4": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444, 1, 1),
    "4:2:2": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422, 2, 1),
    "4:4:0": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440, 1, 2),
    "4:2:0": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420, 2, 2),
    "4:1:1": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411, 4, 1),
}
FLAT = np.full((40, 72, 3), 128, np.uint8)


def encode(image: np.ndarray, quality: int = 75, *options: int) -> bytes:
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality, *options])[1].tobytes()


def wave(row: int, column: int) -> np.ndarray:
    """Return a block with one coefficient besides DC, which is 0."""
    y, x = np.mgrid[:8, :8]
    cosines = np.cos((2 * y + 1) * row * np.pi / 16) * np.cos((2 * x + 1) * column * np.pi / 16)
    return np.rint(128 + 100 * cosines).astype(np.uint8)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_size_and_sampling_are_those_of_the_file(sampling):
    flag, h_factor, v_factor = SAMPLINGS[sampling]
    work = read_jpeg_work(encode(FLAT, 75, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, flag))
    assert (work.width, work.height, work.components) == (72, 40, 3)
    assert (work.h_factor, work.v_factor, work.blocks_per_mcu) == (h_factor, v_factor, h_factor * v_factor + 2)
    assert work.mcus_across == -(-72 // (8 * h_factor)) and work.mcus_down == -(-40 // (8 * v_factor))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("restart", [0, 1, 3])
def test_a_flat_block_has_two_symbols_and_none_is_long(sampling, restart):
    options = cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling][0], cv2.IMWRITE_JPEG_RST_INTERVAL, restart
    work = read_jpeg_work(encode(FLAT, 75, *options))
    blocks = work.mcus_across * work.mcus_down * work.blocks_per_mcu
    assert work.symbols == (2,) * blocks and work.long_codes == (0,) * blocks
    assert work.restart_interval == restart


@pytest.mark.parametrize(
    ("row", "column", "symbols", "long_codes"),
    [
        (0, 1, 3, 0),  # DC, the first coefficient (8 bits), end of block
        (5, 0, 4, 2),  # the 20th: a run of 16 zeros (11 bits) and one of 3 before it (16 bits)
        (7, 7, 5, 4),  # the last: three runs of 16, one of 14, and no end of block
    ],
)
def test_a_block_of_one_wave_has_the_symbols_of_its_place(row, column, symbols, long_codes):
    """Code lengths: ITU-T T.81, table K.5, which OpenCV writes."""
    jpeg = encode(np.hstack([wave(row, column), np.full((8, 8), 128, np.uint8), wave(row, column)]))
    work = read_jpeg_work(jpeg)
    assert work.symbols == (symbols, 2, symbols)
    assert work.long_codes == (long_codes, 0, long_codes)
    assert work.pairs == work.splits == (0, 0, 0)
    single = read_jpeg_work(jpeg, pair_bits=0)
    assert single.symbols == work.symbols and single.long_codes[0] == long_codes + (column == 1)
    assert (work.components, work.blocks_per_mcu) == (1, 1)


@pytest.mark.parametrize(
    ("coefficients", "symbols", "pairs", "splits"),
    [
        ({(0, 1): 1}, 3, 1, 0),  # with the end of block: 2 bits, an extra bit, 4 bits
        ({(0, 1): 1, (1, 0): 1}, 4, 1, 0),  # the two coefficients, in an even and an odd row
        ({(0, 1): 1, (1, 0): 1, (2, 0): 1}, 5, 2, 0),
        ({(0, 1): 1, (2, 0): 1}, 4, 1, 1),  # both in even rows
        ({(0, 1): 9, (1, 0): 9}, 4, 0, 0),  # 4 bits, 4 extra bits: no room for another code
        ({(5, 0): 1, (6, 0): 1}, 5, 1, 0),  # a run of 16; 6 bits and an extra one; the last with the end of block
    ],
)
def test_short_symbols_are_taken_in_pairs(coefficients, symbols, pairs, splits):
    """Code lengths: ITU-T T.81, table K.5, which OpenCV writes. Coefficients have these rows and columns."""
    plain = encode(FLAT[..., 0], 50)
    steps = plain[plain.index(bytes([0xFF, DQT])) + 5 :][:64]  # of quantisation, in zigzag order
    order = sorted(np.ndindex(8, 8), key=lambda place: (sum(place), place[(sum(place) + 1) % 2]))
    block = np.zeros((8, 8))
    for place, value in coefficients.items():
        block[place] = value * steps[order.index(place)]
    work = read_jpeg_work(encode(np.rint(cv2.idct(block) + 128).clip(0, 255).astype(np.uint8), 50))
    assert (work.symbols, work.pairs, work.splits) == ((symbols,), (pairs,), (splits,))
    assert read_jpeg_work(plain, pair_bits=0).pairs == (0,) * 45


def test_segments_and_tables_are_in_the_files_order():
    plain = encode(FLAT)
    exif = b"Exif" + bytes(3000)
    jpeg = plain[:2] + bytes([0xFF, APP1]) + (len(exif) + 2).to_bytes(2, "big") + exif + plain[2:]
    work = read_jpeg_work(jpeg)
    markers = [marker for marker, _ in work.headers.segments]
    assert markers[:2] == [APP1, 0xE0] and markers[-1] == SOS and {DQT, DHT, SOF0} < set(markers)
    assert work.headers.segments[0] == (APP1, len(exif))
    assert jpeg.index(bytes([0xFF, SOS])) == 2 + sum(4 + size for _, size in work.headers.segments[:-1])
    assert work.headers.segments[1:] == read_jpeg_work(plain).headers.segments
    # T.81, table K.3 and the numbers of symbols of K.3 to K.6.
    assert work.headers.code_lengths[0].counts[:10] == (0, 1, 5, 1, 1, 1, 1, 1, 1, 0)
    assert [sum(table.counts) for table in work.headers.code_lengths] == [12, 162, 12, 162]


def without_tables(jpeg: bytes) -> bytes:
    work, at = read_jpeg_work(jpeg), 2
    kept = [jpeg[:2]]
    for marker, size in work.headers.segments:
        if marker != DHT:
            kept.append(jpeg[at : at + 4 + size])
        at += 4 + size
    return b"".join([*kept, jpeg[at:]])


def test_tables_that_the_file_lacks_are_those_of_the_standard_which_opencv_writes():
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    whole = read_jpeg_work(encode(noise, 95))
    bare = read_jpeg_work(without_tables(encode(noise, 95)))
    assert (bare.symbols, bare.long_codes) == (whole.symbols, whole.long_codes) and sum(whole.long_codes) > 20
    assert (whole.headers.standard_tables, bare.headers.code_lengths) == ((), ())
    assert sorted(bare.headers.standard_tables) == sorted(whole.headers.code_lengths)
    gray = read_jpeg_work(without_tables(encode(noise[..., 0])))
    assert [sum(table.counts) for table in gray.headers.standard_tables] == [12, 162]


def test_garbage_between_segments_is_skipped_and_counted():
    plain = encode(FLAT)
    work = read_jpeg_work(plain)
    at = 2 + 4 + work.headers.segments[0][1]
    for garbage, before in ((b"\x00ab", 3), (b"\xff\xff", 2), (b"\x07\xff\x00\x07", 4), (b"\xff\x01\xff\xd3", 4)):
        found = read_jpeg_work(plain[:at] + garbage + plain[at:])
        assert (found.symbols, found.headers.segments) == (work.symbols, work.headers.segments)
        assert found.headers.garbage == (0, before, *(0 for _ in work.headers.segments[2:]))
    assert set(work.headers.garbage) == {0}


def lossless() -> bytes:
    return encode(FLAT).replace(b"\xff\xc0", b"\xff\xc3")


def progressive(image: np.ndarray = FLAT, *options: int) -> bytes:
    return encode(image, 75, cv2.IMWRITE_JPEG_PROGRESSIVE, 1, *options)


def steps_of(work: JpegWork) -> list[list[int]]:
    return [[step for part in scan.intervals for step in part.steps] for scan in work.scans]


def test_scans_of_a_flat_progressive_image_have_a_symbol_a_block_then_runs_and_bits():
    """libjpeg's script for gray: DC but its last bit, 1 to 5, 6 to 63, 1 to 63 refined, the last bit of DC, of AC."""
    work = read_jpeg_work(progressive(np.full((16, 24), 90, np.uint8)))
    assert [(scan.noted, scan.reads, scan.writes) for scan in work.scans] == [
        (64, 0, 8),
        (5, 1, 1),
        (58, 8, 8),
        (63, 8, 8),
        (1, 1, 1),
        (63, 8, 8),
    ]
    dc, low, high, refined, dc_refined, last = steps_of(work)
    words = [STEP_WORD] * 7 + [STEP_WORD + STEP_LAST]
    assert all(step >= STEP_SYMBOL and step & STEP_DC for step in dc[::2])
    assert dc[1::2] == [STEP_EMPTY + STEP_LAST] * 6
    # a run of four blocks and two
    assert low == [STEP_SYMBOL + STEP_SHORT + STEP_RUN + 2, *[STEP_WORD + STEP_LAST] * 6]
    for steps in (high, refined, last):
        assert steps[0] >= STEP_SYMBOL and steps[1:] == words * 6
    assert dc_refined == [STEP_WORD + STEP_LAST + 1] * 6
    assert [scan.fill for scan in work.scans] == [7, 0, 0, 0, 0, 0]
    assert work.symbols == (8,) * 6  # a word each, and its last place in the last one


def test_a_wave_is_placed_where_it_is_and_corrected_later():
    """The 20th coefficient, in the third word: a run of 14 zeros from the sixth on goes through the two before."""
    work = read_jpeg_work(progressive(wave(5, 0)))
    _, low, high, refined, _, last = steps_of(work)
    assert low[1:] == [STEP_WORD + STEP_LAST]
    kinds = [STEP_SYMBOL if step >= STEP_SYMBOL else step for step in high]
    rest = [STEP_WORD] * 5 + [STEP_WORD + STEP_LAST]
    assert kinds == [STEP_SYMBOL, *[STEP_WORD] * 2, STEP_PLACE + STEP_ALONE, STEP_SYMBOL, *rest]
    for steps in (refined, last):
        assert [step for step in steps if step < STEP_SYMBOL] == [STEP_WORD, STEP_WORD, STEP_WORD + 1, *rest[1:]]
    assert work.symbols == (8,)


@pytest.mark.parametrize("restart", [1, 3])
def test_restart_intervals_of_a_progressive_file_are_apart(restart):
    work = read_jpeg_work(progressive(FLAT, cv2.IMWRITE_JPEG_RST_INTERVAL, restart))
    mcus = [work.mcus_across * work.mcus_down, *[9 * 5] * 2]  # of the interleaved scans; luma alone has blocks
    assert [len(scan.intervals) for scan in work.scans[:2]] == [-(-mcus[i] // restart) for i in (0, 1)]


def test_a_block_without_a_sample_of_the_image_leaves_in_a_clock():
    """In whole MCUs luma has 10x6 blocks, of which 9x5 have a sample."""
    work = read_jpeg_work(progressive(FLAT))
    assert sorted(work.symbols) == [1] * (60 - 45) + [8] * (45 + 2 * 15)


def test_zeros_may_follow_the_last_interval_of_a_scan_and_no_other():
    whole = progressive(FLAT, cv2.IMWRITE_JPEG_RST_INTERVAL, 3)
    begin = whole.index(bytes([0xFF, SOS]))
    restart, end = whole.index(b"\xff\xd0", begin), whole.index(b"\xff\xc4", begin)
    assert restart < end
    assert read_jpeg_work(whole[:end] + b"\0" + whole[end:]).symbols == read_jpeg_work(whole).symbols
    with pytest.raises(UsageError, match="continues after"):
        read_jpeg_work(whole[:restart] + b"\0" + whole[restart:])


def test_data_is_handed_on_two_bytes_a_clock_but_one_next_to_ff():
    assert list(jpeg._tokens(bytes(64), 16, 32)) == [16] * 8
    assert list(jpeg._tokens(bytes(32) + b"\xff\xd9", 15, 32)) == [16] * 8 + [8]
    assert list(jpeg._tokens(bytes(14) + b"\1\2\3\xff\0\4\5\xff\xd9", 13, 21)) == [16, 16, 8, 16]


def test_a_progressive_file_that_is_cut_off_anywhere_is_refused():
    whole = progressive(np.random.default_rng(2).integers(0, 256, (40, 40, 3), np.uint8))
    read_jpeg_work(whole)
    for length in [*range(0, len(whole), 29), *range(len(whole) - 12, len(whole))]:
        with pytest.raises(UsageError, match="progressive"):
            read_jpeg_work(whole[:length])


@pytest.mark.parametrize("sequential", [False, True])
def test_an_image_that_claims_to_be_large_is_refused_at_once(sequential):
    """It is refused before there is a place for each of its 25 million blocks."""
    small = encode(FLAT) if sequential else progressive()
    at = small.index(bytes([0xFF, SOF0 if sequential else SOF2])) + 5
    with pytest.raises(UsageError, match=r"too few|too early"):
        read_jpeg_work(small[:at] + (65500).to_bytes(2, "big") + (8192).to_bytes(2, "big") + small[at + 4 :])


@pytest.mark.parametrize(
    "jpeg",
    [b"", b"\xff\xd8", b"PNG", encode(FLAT)[:200], encode(FLAT)[:-40], lossless(), b"\xff\xd8\0" + encode(FLAT)[2:]],
    ids=[
        "empty",
        "only SOI",
        "other format",
        "cut in a header",
        "cut in the data",
        "lossless",
        "garbage behind SOI",
    ],
)
def test_what_is_no_sound_baseline_or_progressive_file_is_refused(jpeg):
    with pytest.raises(UsageError, match="baseline"):
        read_jpeg_work(jpeg)


def test_the_first_bytes_of_an_interval_come_two_a_clock_but_next_to_ff():
    assert jpeg._start(bytes(100)) == 4
    assert jpeg._start(bytes([1, 2, 3])) == 2
    assert jpeg._start(bytes([0xFF, 1, 2, 3, 4, 5, 6, 7])) == 4
    assert jpeg._start(bytes([1, 0xFF, 0xFF, 4, 5, 6, 7])) == 5
    assert jpeg._start(b"") == 0
