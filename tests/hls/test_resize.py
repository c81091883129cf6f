"""resize x {csim, rtlsim} against cv2.resize(INTER_LINEAR_EXACT), and rtlsim's clocks against the cycle model."""

from math import ceil

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from units import RTLSIM, on_both

from headrace.host.dpu.reference.image import resized_size
from headrace.host.dpu.units.status import Status
from headrace.sim.hardware.dpu.image import BEAT, PIXELS, resize_cycles

RNG = np.random.default_rng(0)


def noise(width: int, height: int) -> np.ndarray:
    return RNG.integers(0, 256, (height, width, 3), np.uint8)


def check(units, image: np.ndarray, short: int) -> None:
    size = resized_size(image.shape[1], image.shape[0], short)
    status, out = units.resize(image, short)
    assert status == Status.OK
    assert np.array_equal(out, cv2.resize(image, size, interpolation=cv2.INTER_LINEAR_EXACT))


SIDES = {"width": st.integers(1, 300), "height": st.integers(1, 300), "short": st.integers(1, 300)}


@on_both
@settings(max_examples=20)
@given(**SIDES)
def test_any_size_is_opencvs_bit_for_bit(units, width, height, short):
    check_up_to_a_megapixel(units, width, height, short)


@pytest.mark.slow
@on_both
@given(**SIDES)
def test_a_hundred_sizes_are_opencvs_bit_for_bit(units, width, height, short):
    check_up_to_a_megapixel(units, width, height, short)


def check_up_to_a_megapixel(units, width: int, height: int, short: int) -> None:
    out_width, out_height = resized_size(width, height, short)
    if out_width * out_height <= 1 << 20:
        check(units, noise(width, height), short)


@on_both
@given(width=st.integers(1, 20), height=st.integers(1, 20), short=st.integers(1, 40))
def test_a_few_pixels_are_opencvs_bit_for_bit(units, width, height, short):
    check(units, noise(width, height), short)


@pytest.mark.quick(csim=9, rtlsim=6)
@on_both
@pytest.mark.parametrize("short", [1, 2, 3, 49, 128, 255, 256, 257, 512])
def test_weights_that_are_ties_round_as_opencv_rounds_them(units, short):
    # An odd source and an output with a power of two put many weights exactly between two steps.
    for source in (1, 2, 3, 49, 93, 99, 186, 197, 256, 257):
        check(units, noise(source, source), short)


@pytest.mark.quick(csim=3, rtlsim=2)
@on_both
@pytest.mark.parametrize("source", [113, 259, 263])
def test_ties_moved_by_rounding_errors_of_either_sign_and_up_to_the_bound(units, source):
    # 113: below, and rounded back to the tie; column 1 of 259 and 263: above and below by half a unit, to the bit.
    check(units, noise(source, source), 768)


@pytest.mark.quick(csim=14, rtlsim=8)
@on_both
@pytest.mark.parametrize(
    ("width", "height", "short"),
    [
        (1, 1, 256),
        (8192, 3, 2),
        (3, 8192, 2),
        (1, 65500, 1),
        (8192, 16, 64),
        (8191, 16, 16),
        (8192, 12, 17),
        (5001, 40, 31),
        (1, 300, 100),
        (31, 2, 70),
        pytest.param(31, 2, 400, marks=pytest.mark.slow),
        (2000, 1500, 256),
        pytest.param(4096, 2160, 256, marks=pytest.mark.slow),
        (4097, 300, 256),
        (8192, 1, 7),
        (1, 8192, 7),
        (8191, 1, 8),
        (2049, 3, 11),
        pytest.param(2049, 3, 91, marks=pytest.mark.slow),
        (3, 4096, 47),
        (2, 65500, 2),
        (33, 65500, 1),
        (8192, 515, 1),
        pytest.param(1030, 4096, 1, marks=pytest.mark.slow),
        (3, 2, 1100),
        pytest.param(1, 1, 4100, marks=pytest.mark.slow),
        pytest.param(8192, 8192, 1, marks=pytest.mark.slow),
        pytest.param(8192, 2731, 3, marks=pytest.mark.slow),
        pytest.param(300, 65500, 1, marks=pytest.mark.slow),
    ],
)
def test_extreme_shapes(units, width, height, short):
    check(units, noise(width, height), short)


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("seed", range(10))
def test_any_width_or_height_of_a_narrow_image_is_opencvs_bit_for_bit(units, seed):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        long, narrow = int(rng.integers(1, 8193)), int(rng.integers(1, 4))
        short = int(2 ** rng.uniform(0, np.log2(65536 * narrow / long))) if long >= narrow else 1
        size = (long, narrow) if rng.integers(2) else (narrow, long)
        out = resized_size(*size, short)
        if max(out) <= 65535 and out[0] * out[1] <= 3 << 20:
            check(units, noise(*size), short)


@on_both
@given(data=st.data())
def test_a_crop_is_a_part_of_the_whole_image(units, data):
    image = noise(data.draw(st.integers(1, 90)), data.draw(st.integers(1, 60)))
    short = data.draw(st.integers(1, 90))
    size = resized_size(image.shape[1], image.shape[0], short)
    if size[0] * size[1] > 1 << 18:
        return
    rows, columns = data.draw(st.integers(1, size[1])), data.draw(st.integers(1, size[0]))
    top, left = data.draw(st.integers(0, size[1] - rows)), data.draw(st.integers(0, size[0] - columns))
    status, out = units.resize(image, short, (columns, rows, left, top))
    assert status == Status.OK
    whole = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR_EXACT)
    assert np.array_equal(out, whole[top : top + rows, left & ~1 : ((left + columns - 1) | 1) + 1])


@on_both
@pytest.mark.parametrize(("width", "short"), [(4096, 16), (4097, 16), (8191, 16), (8192, 16), (8192, 31), (8192, 5)])
def test_a_crop_at_the_right_edge_of_a_wide_image(units, width, short):
    image = noise(width, 16)
    whole = cv2.resize(image, resized_size(width, 16, short), interpolation=cv2.INTER_LINEAR_EXACT)
    for columns in (1, 2, 9):
        left = whole.shape[1] - columns
        status, out = units.resize(image, short, (columns, 5, left, 0))
        assert status == Status.OK
        assert np.array_equal(out, whole[:5, left & ~1 :])


@on_both
def test_the_same_size_is_a_copy(units):
    image = noise(120, 77)
    assert np.array_equal(units.resize(image, 77)[1], image)


@on_both
def test_a_result_beyond_the_limit_or_of_no_size_is_refused(units):
    for _ in range(5):
        assert units.resize(noise(300, 1), 256)[0] == Status.RESIZE_LIMIT
        assert units.resize(noise(8, 8), 0)[0] == Status.RESIZE_LIMIT


@on_both
def test_a_frame_with_an_error_passes(units):
    for status in (Status.PROGRESSIVE, Status.NOT_JPEG, Status.CORRUPT_HEADER) * 5:  # held back for some clocks or none
        assert units.resize(noise(8, 8), 16, frame_status=status)[0] == status


@on_both
@pytest.mark.parametrize("short", [5, 20, 60])
@pytest.mark.parametrize("given_pixels", [1, 2, 25, 30 * 20 - 1, 30 * 20])
def test_an_early_end_passes_its_status_on(units, given_pixels, short):
    status, _ = units.resize(noise(30, 20), short, given=given_pixels, end_status=Status.TRUNCATED)
    assert status == Status.TRUNCATED


@on_both
def test_every_request_stands_alone_whatever_the_one_before_was(units):
    image = noise(61, 40)
    for before in (
        {"given": 700, "end_status": Status.TRUNCATED},
        {"given": 61 * 40, "end_status": Status.CORRUPT_HUFFMAN},
        {"frame_status": Status.NOT_JPEG},
        {},
    ):
        for short in (17, 40, 90, 0):
            units.resize(noise(61, 40), short, **before)
            check(units, image, 33)


@pytest.mark.quick(9)
@pytest.mark.parametrize(
    ("width", "height", "short"),
    [
        (500, 375, 256),
        (500, 375, 375),
        (500, 375, 374),
        (375, 500, 256),
        (500, 375, 100),
        (640, 480, 512),
        (33, 57, 31),
        (32, 40, 64),
        (301, 200, 500),
        (2000, 90, 45),
        (4096, 40, 40),
        (4100, 40, 40),
        (8192, 30, 20),
        (8192, 20, 30),
    ],
)
def test_clocks_are_those_of_the_cycle_model(width, height, short):
    check(RTLSIM, noise(width, height), short)
    expected = resize_cycles(width, height, *resized_size(width, height, short))
    assert RTLSIM.clocks.cycles == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("short", "crop"), [(256, (224, 224, 58, 16)), (256, (224, 224, 0, 0)), (375, (300, 50, 7, 10))]
)
def test_a_crop_takes_the_clocks_of_its_own_part(short, crop):
    assert RTLSIM.resize(noise(500, 375), short, crop)[0] == Status.OK
    scale = 375 / short
    beats, rows = ceil(crop[0] * scale / PIXELS), ceil(crop[1] * scale)
    least = max(beats * rows, ceil(crop[0] / BEAT) * crop[1])
    assert 0 <= RTLSIM.clocks.cycles - least <= (8 + 1) * rows + 2 * beats + 50  # blocks are taken whole


@pytest.mark.parametrize("short", [100, 256, *([374, 375] if PIXELS == BEAT else [])])
def test_input_is_never_held_back_where_the_output_has_fewer_beats(short):
    check(RTLSIM, noise(500, 375), short)
    assert RTLSIM.clocks.held == 0
