"""What read_jpeg_work says of files whose contents are known. tests/hls/test_cycles.py compares its symbols with the
hardware's count."""

import cv2
import numpy as np
import pytest

from headrace.batching import UsageError
from headrace.sim.hardware import jpeg
from headrace.sim.hardware.jpeg import DHT, DQT, SOF0, SOS, read_jpeg_work

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
    """A block with one coefficient besides DC, which is 0."""
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
        (0, 1, 3, 1),  # DC, the first coefficient (8 bits), end of block
        (5, 0, 4, 2),  # the 20th: a run of 16 zeros (11 bits) and one of 3 before it (16 bits)
        (7, 7, 5, 4),  # the last: three runs of 16, one of 14, and no end of block
    ],
)
def test_a_block_of_one_wave_has_the_symbols_of_its_place(row, column, symbols, long_codes):
    """Code lengths: ITU-T T.81, table K.5, which OpenCV writes."""
    work = read_jpeg_work(encode(np.hstack([wave(row, column), np.full((8, 8), 128, np.uint8), wave(row, column)])))
    assert work.symbols == (symbols, 2, symbols)
    assert work.long_codes == (long_codes, 0, long_codes)
    assert (work.components, work.blocks_per_mcu) == (1, 1)


def test_segments_and_tables_are_in_the_files_order():
    plain = encode(FLAT)
    exif = b"Exif" + bytes(3000)
    jpeg = plain[:2] + bytes([0xFF, APP1]) + (len(exif) + 2).to_bytes(2, "big") + exif + plain[2:]
    work = read_jpeg_work(jpeg)
    markers = [marker for marker, _ in work.segments]
    assert markers[:2] == [APP1, 0xE0] and markers[-1] == SOS and {DQT, DHT, SOF0} < set(markers)
    assert work.segments[0] == (APP1, len(exif))
    assert jpeg.index(bytes([0xFF, SOS])) == 2 + sum(4 + size for _, size in work.segments[:-1])
    assert work.segments[1:] == read_jpeg_work(plain).segments
    # T.81, table K.3 and the numbers of symbols of K.3 to K.6.
    assert work.code_lengths[0][:10] == (0, 1, 5, 1, 1, 1, 1, 1, 1, 0)
    assert [sum(counts) for counts in work.code_lengths] == [12, 162, 12, 162]


def without_tables(jpeg: bytes) -> bytes:
    work, at = read_jpeg_work(jpeg), 2
    kept = [jpeg[:2]]
    for marker, size in work.segments:
        if marker != DHT:
            kept.append(jpeg[at : at + 4 + size])
        at += 4 + size
    return b"".join([*kept, jpeg[at:]])


def test_tables_that_the_file_lacks_are_those_of_the_standard_which_opencv_writes():
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    whole = read_jpeg_work(encode(noise, 95))
    bare = read_jpeg_work(without_tables(encode(noise, 95)))
    assert (bare.symbols, bare.long_codes) == (whole.symbols, whole.long_codes) and sum(whole.long_codes) > 20
    assert (whole.standard_tables, bare.code_lengths) == ((), ())
    assert sorted(bare.standard_tables) == sorted(whole.code_lengths)
    gray = read_jpeg_work(without_tables(encode(noise[..., 0])))
    assert [sum(counts) for counts in gray.standard_tables] == [12, 162]


def test_garbage_between_segments_is_skipped_and_counted():
    plain = encode(FLAT)
    work = read_jpeg_work(plain)
    at = 2 + 4 + work.segments[0][1]
    for garbage, before in ((b"\x00ab", 3), (b"\xff\xff", 2), (b"\x07\xff\x00\x07", 4), (b"\xff\x01\xff\xd3", 4)):
        found = read_jpeg_work(plain[:at] + garbage + plain[at:])
        assert (found.symbols, found.segments) == (work.symbols, work.segments)
        assert found.garbage == (0, before, *(0 for _ in work.segments[2:]))
    assert set(work.garbage) == {0}


def progressive() -> bytes:
    return encode(FLAT, 75, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)


@pytest.mark.parametrize(
    "jpeg",
    [b"", b"\xff\xd8", b"PNG", encode(FLAT)[:200], encode(FLAT)[:-40], progressive(), b"\xff\xd8\0" + encode(FLAT)[2:]],
    ids=[
        "empty",
        "only SOI",
        "other format",
        "cut in a header",
        "cut in the data",
        "progressive",
        "garbage behind SOI",
    ],
)
def test_what_is_no_sound_baseline_file_is_refused(jpeg):
    with pytest.raises(UsageError, match="baseline"):
        read_jpeg_work(jpeg)


def test_the_first_bytes_of_an_interval_come_two_a_clock_but_next_to_ff():
    assert jpeg._start(bytes(100)) == 4
    assert jpeg._start(bytes([1, 2, 3])) == 2
    assert jpeg._start(bytes([0xFF, 1, 2, 3, 4, 5, 6, 7])) == 4
    assert jpeg._start(bytes([1, 0xFF, 0xFF, 4, 5, 6, 7])) == 5
    assert jpeg._start(b"") == 0
