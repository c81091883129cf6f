"""crop x csim against slices of numpy."""

import numpy as np
import pytest
import units
from hypothesis import given
from hypothesis import strategies as st

from headrace.host.status import Status

IMAGE = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)


@given(st.data())
def test_any_window_inside_the_image_is_numpys_slice(data):
    width, height = data.draw(st.integers(1, 53)), data.draw(st.integers(1, 37))
    x, y = data.draw(st.integers(0, 53 - width)), data.draw(st.integers(0, 37 - height))
    status, out = units.crop(IMAGE, width, height, x, y)
    assert status == Status.OK and np.array_equal(out, IMAGE[y : y + height, x : x + width])


@pytest.mark.parametrize("width", range(1, 54))
def test_centred_as_torchvision_centres_it(width):
    x, y = round((53 - width) / 2.0), round((37 - 20) / 2.0)
    status, out = units.crop(IMAGE, width, 20)
    assert status == Status.OK and np.array_equal(out, IMAGE[y : y + 20, x : x + width])


@pytest.mark.parametrize(
    "window",
    [(54, 1), (1, 38), (0, 5), (5, 0), (53, 37, 1, 0), (53, 37, 0, 1), (1, 1, 53, 0), (1, 1, 0, 1 << 31),
     (1 << 31, 1 << 31), (10, 10, 0xFFFFFFFE, 0)],
)  # fmt: skip
def test_a_window_outside_is_refused(window):
    assert units.crop(IMAGE, *window)[0] == Status.CROP_OUTSIDE


def test_a_frame_with_an_error_passes():
    assert units.crop(IMAGE, 5, 5, frame_status=Status.NOT_JPEG)[0] == Status.NOT_JPEG


@pytest.mark.parametrize("given_pixels", [1, 53, 53 * 20, 53 * 37])
def test_an_early_end_passes_its_status_on_wherever_the_window_lies(given_pixels):
    for x, y in ((0, 0), (48, 32), (20, 15)):
        status, _ = units.crop(IMAGE, 5, 5, x, y, given=given_pixels, end_status=Status.CORRUPT_HUFFMAN)
        assert status == Status.CORRUPT_HUFFMAN
