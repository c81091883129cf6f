"""resize x csim against cv2.resize(INTER_LINEAR_EXACT)."""

import cv2
import numpy as np
import pytest
import units
from hypothesis import given
from hypothesis import strategies as st

from headrace.host.image import resized_size
from headrace.host.status import Status

RNG = np.random.default_rng(0)


def noise(width: int, height: int) -> np.ndarray:
    return RNG.integers(0, 256, (height, width, 3), np.uint8)


def check(image: np.ndarray, short: int) -> None:
    size = resized_size(image.shape[1], image.shape[0], short)
    status, out = units.resize(image, short)
    assert status == Status.OK
    assert np.array_equal(out, cv2.resize(image, size, interpolation=cv2.INTER_LINEAR_EXACT))


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300))
def test_any_size_is_opencvs_bit_for_bit(width, height, short):
    if resized_size(width, height, short)[0] * resized_size(width, height, short)[1] <= 1 << 20:
        check(noise(width, height), short)


@pytest.mark.parametrize("short", [1, 2, 3, 49, 128, 255, 256, 257, 512])
def test_weights_that_are_ties_round_as_opencv_rounds_them(short):
    # An odd source and an output with a power of two put many weights exactly between two steps.
    for source in (1, 2, 3, 49, 93, 99, 186, 197, 256, 257):
        check(noise(source, source), short)


@pytest.mark.parametrize(
    ("width", "height", "short"),
    [
        (1, 1, 256),
        (4096, 3, 2),
        (3, 4096, 2),
        (4096, 16, 64),
        (1, 300, 100),
        (2000, 1500, 256),
        (4096, 2160, 256),
    ],
)
def test_extreme_shapes(width, height, short):
    check(noise(width, height), short)


def test_the_same_size_is_a_copy():
    image = noise(120, 77)
    assert np.array_equal(units.resize(image, 77)[1], image)


def test_a_result_beyond_the_limit_or_of_no_size_is_refused():
    assert units.resize(noise(300, 1), 256)[0] == Status.RESIZE_LIMIT
    assert units.resize(noise(8, 8), 0)[0] == Status.RESIZE_LIMIT


def test_a_frame_with_an_error_passes():
    assert units.resize(noise(8, 8), 16, frame_status=Status.PROGRESSIVE)[0] == Status.PROGRESSIVE


@pytest.mark.parametrize("short", [5, 20, 60])
@pytest.mark.parametrize("given_pixels", [1, 2, 25, 30 * 20 - 1, 30 * 20])
def test_an_early_end_passes_its_status_on(given_pixels, short):
    status, _ = units.resize(noise(30, 20), short, given=given_pixels, end_status=Status.TRUNCATED)
    assert status == Status.TRUNCATED
