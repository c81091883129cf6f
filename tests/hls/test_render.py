"""render.sv against the C++ of the same process and cv2.imdecode: equal pixels, whatever the size and the pauses."""

import ctypes
from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np
import pytest
import rtlsim
import test_decode as jpegs
from scan_script import factors_of, photo_image
from test_sampling import OTHERS, greatest_width, jpeg_of, random_jpeg
from test_transform import records

from headrace.sim.hardware.dpu.image import render_cycles

SAMPLINGS = (*jpegs.SAMPLINGS, "gray")


@cache
def library() -> ctypes.CDLL:
    return rtlsim.load("render")


@dataclass(frozen=True)
class Counts:
    words: int  # of eight samples
    cycles: int
    first_beat: int
    wait_rows: int
    wait_output: int


def render(files: list[bytes], seed: int = 1, pause_in: int = 0, pause_out: int = 0) -> list[Counts]:
    """The files one after the other; every frame and beat is compared with the C++ within. The last file's pixels are
    compared with OpenCV's, if that has any."""
    counts = np.zeros((len(files), 5), np.uint64)
    expected = jpegs.golden(files[-1])
    rgb = np.zeros_like(expected) if expected is not None else np.zeros(0, np.uint8)
    data = records(files)
    code = library().render_files(
        data,
        ctypes.c_uint64(len(data)),
        seed,
        pause_in,
        pause_out,
        counts.ctypes.data_as(ctypes.c_void_p),
        rgb.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(rgb.size),
    )
    assert code == 0, {1: "frames differ", 2: "beats differ", 3: "too many clocks", 4: "more than the image"}[code]
    if expected is not None:
        np.testing.assert_array_equal(rgb, expected)
    return [Counts(*(int(value) for value in row)) for row in counts]


def encode(image: np.ndarray, quality: int, sampling: str, **options) -> bytes:
    return jpegs.encode(image, quality, "4:2:0" if sampling == "gray" else sampling, **options)


def picture(rng: np.random.Generator, width: int, height: int, sampling: str) -> np.ndarray:
    return jpegs.picture(rng, width, height, 1 if sampling == "gray" else 3)


def photo(width: int, height: int, sampling: str) -> np.ndarray:
    image = cv2.imread(str(next(path for path in jpegs.bundled_images() if path.name == "china.jpg")))
    image = cv2.resize(image, (width, height))
    return cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) if sampling == "gray" else image


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_small_size_equals_the_cpp(sampling):
    """Edges: chroma of one or two columns, rows that no MCU row follows, MCUs mostly outside the image."""
    rng = np.random.default_rng(3)
    sizes = [(width, height) for height in range(1, 19) for width in range(1, 19)]
    render([encode(picture(rng, *size, sampling), 95, sampling) for size in sizes])


@pytest.mark.parametrize(("pause_in", "pause_out"), [(0, 0), (50, 0), (0, 50), (50, 50), (20, 80), (80, 20)])
def test_files_one_after_the_other_with_pauses_equal_the_cpp(pause_in, pause_out):
    rng = np.random.default_rng(41)
    sizes = rng.integers(1, 131, (48, 2))
    files = [
        encode(picture(rng, int(width), int(height), sampling), 90, sampling)
        for (width, height), sampling in zip(sizes, SAMPLINGS * 8, strict=True)
    ]
    render(files, 5, pause_in, pause_out)


@pytest.mark.quick(6)
@pytest.mark.parametrize("pause_out", [0, 60])
@pytest.mark.parametrize("width", [8192, 8191, 4097])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_rows_of_the_greatest_width_go_round_the_memories(sampling, width, pause_out):
    render([encode(photo(width, 100, sampling), 90, sampling)], 2, 0, pause_out)


@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:0", "4:4:0"])
def test_image_of_the_greatest_height_equals_opencv(sampling):
    column = jpegs.picture(np.random.default_rng(9), 8, 655)
    render([encode(np.tile(column, (100, 1, 1)), 80, sampling)])


@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:0"])
def test_components_that_are_rgb_are_not_converted(sampling):
    render([jpegs.with_ids(jpegs.sample(sampling).without(jpegs.APP0), *b"RGB").to_bytes()])


@pytest.mark.parametrize("pause_out", [0, 50])
def test_rows_before_an_error_are_sent_and_the_next_image_is_whole(pause_out):
    rng = np.random.default_rng(4)
    files = []
    for sampling in SAMPLINGS:
        file = encode(
            picture(rng, 64, 200, sampling),
            90,
            sampling,
            restart={"4:1:1": 2, "4:4:4": 8, "4:4:0": 8, "gray": 8}.get(sampling, 4),
        )
        parts = jpegs.take_apart(file)
        for marker in range(0xD0, 0xD6):  # the first to the sixth MCU row is the last whole one
            scan = parts.scan.replace(bytes([0xFF, marker]), b"\xff\xff\xff\xd7", 1)
            files += [jpegs.replace(parts, scan=scan).to_bytes(), jpegs.sample(width=17, height=9).to_bytes()]
        cut_at_eoi = jpegs.replace(parts, trailer=b"").to_bytes()  # all MCUs are there
        files += [cut_at_eoi, jpegs.sample(width=20, height=40).to_bytes()]
    render(files, 8, 0, pause_out)


@pytest.mark.quick(15)
@pytest.mark.parametrize("sampling", OTHERS)
def test_small_files_of_every_sampling_with_pauses_equal_the_cpp(sampling):
    rng = np.random.default_rng(7)
    sizes = zip(1 + rng.permutation(36), 1 + rng.permutation(36), strict=True)
    files = [random_jpeg(rng, int(width), int(height), sampling) for width, height in sizes]
    render(files)
    render(files, 3, 40, 60)


@pytest.mark.quick(4)
@pytest.mark.parametrize("pause_out", [0, 60])
@pytest.mark.parametrize("sampling", OTHERS)
def test_rows_of_every_sampling_go_round_the_memories(sampling, pause_out):
    render([jpeg_of(photo_image(photo(greatest_width(sampling), 100, sampling), sampling, 6))], 2, 0, pause_out)


def test_bad_headers_are_answered_by_a_frame_with_the_status():
    bad = [jpegs.REFUSED[name][1]() for name in ("no DQT", "CMYK", "empty", "progressive", "code in no table")]
    render([file for one in bad for file in (one, one, jpegs.sample().to_bytes())], 1, 0, 20)


def test_damaged_files_end_as_in_the_cpp():
    render(jpegs.mutants(600), 1, 10, 10)


FACTORS = {"4:4:4": (1, 1), "4:2:2": (2, 1), "4:4:0": (1, 2), "4:2:0": (2, 2), "4:1:1": (4, 1), "gray": (1, 1)}


@pytest.mark.quick(14)
@pytest.mark.parametrize("size", [(500, 375), (64, 64), (8192, 100), (101, 62)])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_clocks_follow_the_model(sampling, size):
    """Two pixels leave in every clock, without a gap between words, rows and MCU rows whose samples are there."""
    (counts,) = render([encode(photo(*size, sampling), 90, sampling)])
    components = 1 if sampling == "gray" else 3
    assert counts.cycles == pytest.approx(render_cycles(*size, *FACTORS[sampling], components), abs=4)


@pytest.mark.quick(12)
@pytest.mark.parametrize("size", [(500, 375), (1024, 100), (101, 62)])
@pytest.mark.parametrize("sampling", OTHERS)
def test_clocks_of_every_sampling_follow_the_model(sampling, size):
    (counts,) = render([jpeg_of(photo_image(photo(*size, sampling), sampling, 4))])
    luma, *chroma = factors_of(sampling)
    assert counts.cycles == pytest.approx(render_cycles(*size, *luma, 3, chroma), abs=4)


@pytest.mark.parametrize(("pause_in", "pause_out"), [(0, 70), (70, 0)])
def test_waits_are_told_apart(pause_in, pause_out):
    (counts,) = render([encode(photo(8192, 64, "4:2:0"), 90, "4:2:0")], 1, pause_in, pause_out)
    assert (counts.wait_output > 0) == (pause_out > 0)
    assert counts.wait_rows > 0  # the ring is full while two MCU rows are sent


def test_a_reset_in_mid_image_leaves_nothing_behind():
    file = jpegs.sample(width=60, height=50).to_bytes()
    assert library().render_resets(file, len(file), 67, 40) == 0
