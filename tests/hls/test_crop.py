"""crop x {csim, rtlsim} against slices of numpy, and rtlsim's clocks against the cycle model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from units import RTLSIM, on_both

from headrace.host.dpu.units.status import Status
from headrace.sim.hardware.dpu.image import crop_cycles

IMAGE = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)


@on_both
@settings(max_examples=20)
@given(data=st.data())
def test_any_window_inside_the_image_is_numpys_slice(units, data):
    check_window(units, data)


@pytest.mark.slow
@on_both
@given(data=st.data())
def test_a_hundred_windows_inside_the_image_are_numpys_slices(units, data):
    check_window(units, data)


def check_window(units, data):
    image = IMAGE[:, : data.draw(st.integers(1, 53))]  # odd rows and even ones
    width, height = data.draw(st.integers(1, image.shape[1])), data.draw(st.integers(1, 37))
    x, y = data.draw(st.integers(0, image.shape[1] - width)), data.draw(st.integers(0, 37 - height))
    status, out = units.crop(image, width, height, x, y)
    assert status == Status.OK and np.array_equal(out, image[y : y + height, x : x + width])


@on_both
@given(data=st.data())
def test_beats_without_pixels_of_the_window_need_not_come(units, data):
    width, height = data.draw(st.integers(1, 53)), data.draw(st.integers(1, 37))
    x, y = data.draw(st.integers(0, 53 - width)), data.draw(st.integers(0, 37 - height))
    status, out = units.crop(IMAGE, width, height, x, y, cut=True)
    assert status == Status.OK and np.array_equal(out, IMAGE[y : y + height, x : x + width])


@on_both
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_window_in_a_row_of_few_pixels(units, size):
    for width in range(1, size + 1):
        for x in range(size - width + 1):
            status, out = units.crop(IMAGE[:5, :size], width, 3, x, 1)
            assert status == Status.OK and np.array_equal(out, IMAGE[1:4, x : x + width])


@on_both
@pytest.mark.parametrize("width", range(1, 54))
def test_centred_as_torchvision_centres_it(units, width):
    x, y = round((53 - width) / 2.0), round((37 - 20) / 2.0)
    status, out = units.crop(IMAGE, width, 20)
    assert status == Status.OK and np.array_equal(out, IMAGE[y : y + 20, x : x + width])


@on_both
@pytest.mark.parametrize(
    "window",
    [
        (54, 1),
        (1, 38),
        (0, 5),
        (5, 0),
        (53, 37, 1, 0),
        (53, 37, 0, 1),
        (1, 1, 53, 0),
        (1, 1, 0, 1 << 31),
        (1 << 31, 1 << 31),
        (10, 10, 0xFFFFFFFE, 0),
        (0x10005, 5),
        (5, 0x10005),
        (5, 5, 0x10000, 0),
        (5, 5, 0, 0x10000),
        (0x7FFF0005, 5),
        (5, 0x7FFF0005),
        (5, 5, 0x7FFF0000, 0),
        (5, 5, 0, 0x7FFF0000),
    ],
)
def test_a_window_outside_is_refused(units, window):
    assert units.crop(IMAGE, *window)[0] == Status.CROP_OUTSIDE


@on_both
@pytest.mark.parametrize(
    ("size", "window"),
    [
        ((65535, 2), (43690, 1, 21845, 1)),
        ((65535, 2), (21845, 2)),
        ((65534, 1), (65534, 1, 0, 0)),
        ((2, 65535), (1, 43690, 1, 21845)),
        ((3, 65535), (3, 21845)),
        ((1, 65535), (1, 1, 0, 65534)),
    ],
)
def test_windows_of_the_widest_and_highest_images(units, size, window):
    image = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), np.uint8)
    width, height, *at = window
    x, y = at or (round((size[0] - width) / 2.0), round((size[1] - height) / 2.0))
    status, out = units.crop(image, *window)
    assert status == Status.OK and np.array_equal(out, image[y : y + height, x : x + width])


@on_both
def test_a_frame_with_an_error_passes(units):
    for status in (Status.NOT_JPEG, Status.TRUNCATED, Status.RESIZE_LIMIT) * 5:  # held back for some clocks or none
        assert units.crop(IMAGE, 5, 5, frame_status=status)[0] == status


@on_both
@pytest.mark.parametrize("given_pixels", [1, 53, 53 * 18 + 18, 53 * 20, 53 * 37])
def test_an_early_end_passes_its_status_on_wherever_the_window_lies(units, given_pixels):
    for x, y in ((0, 0), (48, 32), (20, 15), (17, 15)):
        status, _ = units.crop(IMAGE, 5, 5, x, y, given=given_pixels, end_status=Status.CORRUPT_HUFFMAN)
        assert status == Status.CORRUPT_HUFFMAN


@on_both
def test_every_request_stands_alone_whatever_the_one_before_was(units):
    for before in (
        {"given": 700, "end_status": Status.TRUNCATED},
        {"given": 53 * 37, "end_status": Status.CORRUPT_HUFFMAN},
        {"frame_status": Status.NOT_JPEG},
        {},
    ):
        for window in ((5, 5, 3, 30), (5, 5, 48, 32), (54, 1), (53, 37)):
            units.crop(IMAGE, *window, **before)
            status, out = units.crop(IMAGE, 20, 30, 7, 3)
            assert status == Status.OK and np.array_equal(out, IMAGE[3:33, 7:27])


@pytest.mark.parametrize("window", [(1, 1, 0, 0), (53, 37), (20, 20), (20, 20, 1, 1), (1, 1, 52, 36)])
def test_clocks_are_those_of_the_cycle_model(window):
    assert RTLSIM.crop(IMAGE, *window)[0] == Status.OK
    assert RTLSIM.clocks.cycles == pytest.approx(crop_cycles(53, 37), rel=0.02)
