"""patches x {csim, rtlsim} against the layouts of the reference, which are those of transformers."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from units import RTLSIM, on_both

from headrace.host.dpu.processors import MergedPatches, PaddedPatches, PatchImages, Size
from headrace.host.dpu.reference.processor import laid_out
from headrace.host.dpu.units.status import Status

RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Layout:
    side_width: int
    side_height: int
    merge: int = 1
    frames: int = 1
    channels_last: bool = False
    fill: int = 0


def noise(width: int, height: int) -> np.ndarray:
    return RNG.integers(0, 256, (height, width, 3), np.uint8)


def tables(dtype) -> np.ndarray:
    if dtype == np.uint8:
        return np.stack([RNG.permutation(256) for _ in range(3)]).astype(dtype)
    return RNG.standard_normal((3, 256)).astype(dtype)


def check(units, image, layout: Layout, of_tables, expected) -> None:
    result = units.patches(image, layout, of_tables)
    assert result.status == Status.OK
    assert result.size == Size(image.shape[1], image.shape[0])
    bytes_ = np.ascontiguousarray(expected).view(np.uint8).reshape(-1)
    assert result.bytes == len(bytes_)
    assert np.array_equal(result.words[: len(bytes_)], bytes_)
    assert not result.words[len(bytes_) :].any()
    assert len(result.words) == -(-len(bytes_) // 16) * 16


def planes(image, of_tables):
    return np.stack([of_tables[channel][image[..., channel]] for channel in range(3)])


TYPES = st.sampled_from([np.uint8, np.float16, np.float32])


@on_both
@settings(max_examples=40)
@given(data=st.data())
def test_merged_patches_are_those_of_transformers(units, data):
    side, merge, frames = (
        data.draw(st.sampled_from([2, 4, 14, 16])),
        data.draw(st.integers(1, 3)),
        data.draw(st.integers(1, 3)),
    )
    across, down = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    image, of_tables = noise(side * merge * across, side * merge * down), tables(data.draw(TYPES))
    expected = laid_out(planes(image, of_tables)[None], MergedPatches(side, merge, frames))
    check(units, image, Layout(side, side, merge, frames), of_tables, expected)


@on_both
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_patches_as_images_are_those_of_transformers(units, dtype):
    image, of_tables = noise(14 * 5, 14 * 3), tables(dtype)
    expected = laid_out(planes(image, of_tables)[None], PatchImages(14, 1))
    check(units, image, Layout(14, 14), of_tables, expected)


@on_both
@settings(max_examples=40)
@given(data=st.data())
def test_padded_patches_are_those_of_transformers(units, data):
    side, across, down = (
        data.draw(st.sampled_from([2, 6, 16])),
        data.draw(st.integers(1, 5)),
        data.draw(st.integers(1, 5)),
    )
    rows = across * down + data.draw(st.integers(0, 3))
    image, of_tables = noise(side * across, side * down), tables(data.draw(TYPES))
    expected = laid_out(planes(image, of_tables)[None], PaddedPatches(side, rows))
    fill = (rows - across * down) * side * side * 3 * of_tables.itemsize
    check(units, image, Layout(side, side, channels_last=True, fill=fill), of_tables, expected)


@on_both
@settings(max_examples=40)
@given(width=st.integers(1, 70), height=st.integers(1, 9), dtype=TYPES)
def test_a_patch_as_wide_as_the_image_gives_rows_columns_channels(units, width, height, dtype):
    image, of_tables = noise(width, height), tables(dtype)
    expected = np.moveaxis(planes(image, of_tables), 0, -1)
    check(units, image, Layout(width, 1, channels_last=True), of_tables, expected)


@on_both
@pytest.mark.parametrize(
    ("width", "height", "layout"),
    [
        (4088, 56, Layout(14, 14, 2, 2)),  # one row of squares in the memory
        (4096, 64, Layout(16, 16, 2, 1)),  # which it fills
        (2044, 84, Layout(14, 14, 2, 2)),  # two
        (8190, 3, Layout(8190, 1, channels_last=True)),
        (2, 1500, Layout(2, 2)),
    ],
)
def test_extreme_shapes(units, width, height, layout):
    image, of_tables = noise(width, height), tables(np.uint8)
    shown = planes(image, of_tables)
    if layout.channels_last:
        expected = np.moveaxis(shown, 0, -1)
    else:
        merged = MergedPatches(layout.side_width, layout.merge, layout.frames)
        expected = laid_out(shown[None], merged)
    check(units, image, layout, of_tables, expected)


@on_both
@pytest.mark.parametrize(
    ("width", "height", "layout"),
    [
        (30, 28, Layout(14, 14)),
        (28, 30, Layout(14, 14)),
        (42, 28, Layout(14, 14, 2)),
        (28, 42, Layout(14, 14, 2)),
        (12, 4, Layout(3, 2)),  # a pair of pixels would lie in two patches
        (28, 28, Layout(0, 14)),
        (28, 28, Layout(14, 0)),
        (28, 28, Layout(14, 14, 0)),
        (28, 28, Layout(14, 14, 1, 0)),
        (4, 4, Layout(65535, 65535, 255, 15)),
        (4112, 32, Layout(16, 16, 2)),  # a row of squares is beyond the memory
        (2056, 96, Layout(16, 96)),
    ],
)
def test_a_layout_that_does_not_fit_ends_in_a_status(units, width, height, layout):
    assert units.patches(noise(width, height), layout, tables(np.uint8)).status == Status.BAD_ARGUMENT
    assert units.patches(noise(28, 28), Layout(14, 14), tables(np.uint8)).status == Status.OK


@on_both
def test_a_tensor_beyond_the_capacity_is_refused_with_its_size(units):
    layout, of_tables = Layout(14, 14, 2, 2, fill=20), tables(np.float32)
    need = 3 * 56 * 28 * 2 * 4 + 20
    result = units.patches(noise(56, 28), layout, of_tables, capacity=need - 1)
    assert (result.status, result.bytes, len(result.words)) == (Status.BUFFER_TOO_SMALL, need, 0)
    assert units.patches(noise(56, 28), layout, of_tables, capacity=need).status == Status.OK


@on_both
def test_a_frame_with_an_error_passes(units):
    for status in (Status.PROGRESSIVE, Status.NOT_JPEG) * 3:
        result = units.patches(noise(28, 28), Layout(14, 14), tables(np.uint8), frame_status=status)
        assert (result.status, result.size, len(result.words)) == (status, Size(0, 0), 0)


@on_both
@pytest.mark.parametrize("given_pixels", [1, 2, 28 * 14, 28 * 28 - 1, 28 * 28])
def test_an_early_end_passes_its_status_on(units, given_pixels):
    result = units.patches(
        noise(28, 28), Layout(14, 14), tables(np.uint8), given=given_pixels, end_status=Status.TRUNCATED
    )
    assert result.status == Status.TRUNCATED
    assert len(result.words) <= 3 * 28 * 28  # no more than the tensor has
    image, of_tables = noise(28, 28), tables(np.uint8)
    expected = laid_out(planes(image, of_tables)[None], MergedPatches(14, 1, 1))
    check(units, image, Layout(14, 14), of_tables, expected)


@pytest.mark.parametrize(("dtype", "of_samples"), [(np.uint8, 7), (np.float16, 7), (np.float32, 3.5)])
def test_a_word_of_fourteen_pixels_takes_two_clocks_or_four(dtype, of_samples):
    image = noise(14 * 64, 14 * 12)
    assert RTLSIM.patches(image, Layout(14, 14, 2, 2), tables(dtype)).status == Status.OK
    samples = image.size * 2
    assert samples / of_samples <= RTLSIM.clocks.cycles <= 1.03 * samples / of_samples + image.shape[1] * 28 / 2 + 200
