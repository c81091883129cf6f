"""Test the cycle models by themselves, for properties that hold on any hardware. tests/hls compares them with the
hardware.
"""

from dataclasses import replace

import pytest

from headrace.sim.hardware.dpu.headers import header_cycles
from headrace.sim.hardware.dpu.image import (
    BLOCK,
    LONG_CODE,
    PIXELS,
    RESTART,
    crop_cycles,
    decode_cycles,
    image_cu_cycles,
    normalize_cycles,
    render_cycles,
    resize_cycles,
    transform_cycles,
)
from headrace.sim.hardware.dpu.jpeg import DHT, DQT, SOF0, SOS, CodeLengths, Headers, JpegWork

# A table with one code of each length: what is short is written to 32, 16, 8 ... groups of places.
LADDER = (1,) * 15 + (0,)


def photo(symbols: int, width: int = 512, height: int = 384, h_factor: int = 2, v_factor: int = 2) -> JpegWork:
    """Return the work of an image whose blocks all have this number of symbols."""
    mcus = -(-width // (8 * h_factor)) * -(-height // (8 * v_factor))
    blocks = mcus * (h_factor * v_factor + 2)
    segments = ((DQT, 130), (SOF0, 15), (DHT, 4 * 32), (SOS, 10))
    headers = Headers(2, segments, tuple(CodeLengths(table, LADDER) for table in (0, 0x10, 1, 0x11)), (0,) * 4, ())
    none = (0,) * blocks
    return JpegWork(width, height, 3, h_factor, v_factor, headers, 0, (symbols,) * blocks, none, none, none, none, (4,))


def test_headers_take_a_clock_a_byte_and_what_the_states_between_add():
    # SOI 2; DQT 5 + 1 + 64 + 1; SOF 5 + 9 and a check; DHT below; SOS 5 + 6 and a check; one to see that all
    # tables are written, one to tell.
    # DHT: 5; a table: 1 + 16, check, then a clock for each of 15 lengths and one for its symbol, and one to see that
    # all is done. The codes of 1 to 5 bits take the table 32, 16, 8, 4, 2 clocks, and two may wait for it: the symbol
    # of 7 bits leaves the parser a clock behind the one in which that of 5 bits goes into the table; the others do
    # not wait.
    table = 1 + 16 + 1 + (1 + 1) + (1 + 32 + 16 + 8 + 4 + 1) + (1 + 1) * 8 + 1
    headers = Headers(2, ((DQT, 65), (SOF0, 9), (DHT, 32), (SOS, 6)), (CodeLengths(0x10, LADDER),), (0,) * 4, ())
    work = replace(photo(2, 8, 8, 1, 1), components=1, headers=headers)
    assert header_cycles(work) == 2 + (5 + 66) + (5 + 10) + (5 + table + 1) + (5 + 7) + 2


def test_a_segment_that_says_nothing_takes_a_clock_for_16_bytes():
    work = photo(10)
    clocks = []
    for size in (48, 1648, 16048):
        headers = replace(work.headers, segments=((0xE1, size), *work.headers.segments), garbage=(0,) * 5)
        clocks.append(header_cycles(replace(work, headers=headers)))
    assert clocks[1] - clocks[0] == 100 and clocks[2] - clocks[0] == 1000


def test_dense_photos_take_a_clock_a_symbol_and_sparse_ones_a_clock_for_each_beat():
    dense, sparse = photo(40), photo(3)
    assert sum(dense.symbols) < decode_cycles(dense) < 1.10 * sum(dense.symbols) + 3000
    for pixels in (2, 4):
        beats = 512 * 384 / pixels
        assert beats < decode_cycles(sparse, pixels=pixels) < 1.10 * beats + 3000


def test_long_codes_and_restarts_cost_dense_photos_their_clocks():
    work = photo(40)
    blocks = len(work.symbols)
    assert decode_cycles(replace(work, long_codes=(1,) * blocks)) - decode_cycles(work) == LONG_CODE * blocks
    mcus = work.mcus_across * work.mcus_down
    intervals = mcus // 8
    restarted = replace(work, restart_interval=8, starts=(4,) * intervals)
    assert decode_cycles(restarted) - decode_cycles(work) == (RESTART + 4) * (intervals - 1)


def test_pairs_of_symbols_save_dense_photos_a_clock_each_unless_they_are_stored_one_by_one():
    work = photo(60)
    blocks = len(work.symbols)
    paired = replace(work, pairs=(10,) * blocks)
    assert decode_cycles(work) - decode_cycles(paired) == 10 * blocks
    assert decode_cycles(replace(paired, splits=(10,) * blocks)) == decode_cycles(work)
    within = replace(paired, splits=(5,) * blocks, long_codes=(3,) * blocks)  # stored while a long code is looked up
    assert decode_cycles(within) - decode_cycles(paired) == 3 * LONG_CODE * blocks


def test_the_transform_evens_out_as_many_sparse_blocks_as_it_can_hold():
    assert transform_cycles([2] * 5000) == pytest.approx(5000 * BLOCK, rel=0.01)
    assert transform_cycles([64] * 100) == pytest.approx(6400, rel=0.01)
    evened = transform_cycles(([2] * 500 + [14] * 500) * 10)
    assert evened == pytest.approx(10_000 * BLOCK, rel=0.01)
    assert transform_cycles(([2] * 2000 + [14] * 2000) * 2) > 1.2 * 8000 * BLOCK


@pytest.mark.parametrize("pixels", [2, 4])
def test_render_and_resize_take_a_beat_a_clock(pixels):
    beats = 500 // pixels * 375
    # An MCU row before, one row held back, and two clocks for each of the 63 words of a row.
    assert 0 < render_cycles(500, 375, 2, 2, 3, pixels=pixels) - beats < 4000
    assert 0 <= resize_cycles(500, 375, 341, 256, pixels) - beats < 120  # a row of output after the last of input


def test_crop_and_normalize_take_two_pixels_a_clock():
    beats = 250 * 375
    assert 0 <= crop_cycles(500, 375) - beats < 50
    assert 0 <= normalize_cycles(500, 375) - beats < 50


def test_going_up_takes_the_clocks_of_the_larger_image():
    assert resize_cycles(500, 375, 1000, 750) == pytest.approx(500 * 750, rel=0.01)


def test_the_whole_unit_adds_little_to_decode_but_memorys_latency():
    work = photo(12)
    alone, whole = decode_cycles(work), image_cu_cycles(work, stage=1, latency=120)
    assert 0 < whole - alone - 3 * 120 < 300
    assert image_cu_cycles(work, stage=1, latency=220) - whole == 300


def test_what_a_crop_leaves_out_is_not_rendered_and_below_it_not_decoded():
    """224 of 256 rows of the resized image: 336 of 384, of which the first wanted comes with a later MCU row. 224 of
    341 columns: 336 of 512, and up to 16 more, as blocks are taken whole."""

    def clocks(work: JpegWork, width: int, height: int) -> int:
        return image_cu_cycles(work, crop_width=width, crop_height=height, element_bytes=1)

    sparse, dense = photo(3), photo(60)
    # Half of the rows come before the window, where the transform may take longer than render.
    saved = clocks(sparse, 341, 256) - clocks(sparse, 341, 224)
    assert 24 * 512 / PIXELS <= saved <= 1.15 * 48 * 512 / PIXELS
    saved = clocks(sparse, 341, 256) - clocks(sparse, 224, 256)
    assert 384 * (512 - 336 - 16) / PIXELS <= saved <= 384 * (512 - 336) / PIXELS
    mcu_row = 60 * dense.mcus_across * dense.blocks_per_mcu
    assert clocks(dense, 224, 256) - clocks(dense, 224, 224) == pytest.approx(mcu_row, rel=0.25)


def test_what_is_behind_decode_counts_where_it_is_slower():
    """Two pixels a clock, or 1.5 words of 16 bytes of float32, of which one is written."""
    work = photo(4, 224, 224)
    beats, words = 224 * 224 // 2, 3 * 224 * 224 * 4 // 16
    assert words > image_cu_cycles(work, resize_short=224) > beats > decode_cycles(work)
    assert image_cu_cycles(work, resize_short=224, write_bytes=16) > words
    assert image_cu_cycles(work, resize_short=224, write_bytes=16, element_bytes=1) < words
    assert image_cu_cycles(work, resize_short=1000, stage=1) > 1000 * 500
