"""transform.sv against the C++ of the same processes: equal samples, whatever the coefficients and the pauses."""

import ctypes
from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np
import pytest
import rtlsim
import test_decode as jpegs

from headrace.sim.hardware.dpu.image import transform_cycles


@cache
def library() -> ctypes.CDLL:
    return rtlsim.load("transform")


def records(files: list[bytes]) -> bytes:
    return b"".join(len(file).to_bytes(4, "little") + file for file in files)


@dataclass(frozen=True)
class Timing:
    """Of the last file, from its first coefficient on."""

    cycles: int
    latency: int  # from the first block's last coefficient to its first row
    lengths: list[int]  # coefficients of each block


def transform(files: list[bytes], seed: int = 1, pause_in: int = 0, pause_out: int = 0, pairs: int = 0) -> Timing:
    """The files one after the other; samples are compared with the C++ within. `pairs`: per cent of the coefficients
    that come together with the next one."""
    cycles, latency, blocks = (ctypes.c_uint64() for _ in range(3))
    lengths = np.zeros(100_000, np.uint32)
    data = records(files)
    code = library().transform_files(
        data,
        ctypes.c_uint64(len(data)),
        seed,
        pause_in,
        pause_out,
        pairs,
        ctypes.byref(cycles),
        ctypes.byref(latency),
        ctypes.byref(blocks),
        lengths.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(len(lengths)),
    )
    assert code == 0, {1: "samples differ", 2: "too many clocks", 3: "more samples than blocks"}[code]
    return Timing(cycles.value, latency.value, [int(n) for n in lengths[: blocks.value]])


LATENCY = 38  # from a block's last coefficient to its first row


def files() -> list[bytes]:
    rng = np.random.default_rng(31)
    made = []
    for i, sampling in enumerate((*jpegs.SAMPLINGS, "gray") * 4):
        image = jpegs.picture(rng, int(rng.integers(1, 90)), int(rng.integers(1, 90)), 1 if sampling == "gray" else 3)
        quality = int(rng.integers(1, 101))
        made.append(jpegs.encode(image, quality, "4:2:0" if sampling == "gray" else sampling, bool(i % 2), i % 3))
    return made


@pytest.mark.parametrize("pairs", [0, 70])
@pytest.mark.parametrize(("pause_in", "pause_out"), [(0, 0), (50, 0), (0, 50), (50, 50), (10, 80), (80, 10)])
def test_samples_of_files_one_after_the_other_equal_the_cpp(pause_in, pause_out, pairs):
    transform(files(), 7, pause_in, pause_out, pairs)


@pytest.mark.parametrize("seed", range(12))
def test_arbitrary_coefficients_overflow_as_in_the_cpp(seed):
    pause = [0, 50][seed % 2]
    assert library().transform_random(seed, 400, pause, [0, 70][seed // 2 % 2], [0, 50, 100][seed % 3]) == 0


def test_wide_quantisation_tables_overflow_as_in_the_cpp():
    large = [jpegs.wide_quant_table(n, [65535 - 700 * i for i in range(64)]) for n in (0, 1)]
    file = jpegs.sample().without(jpegs.DQT).with_first(jpegs.Segment(jpegs.DQT, b"".join(large)))
    transform([file.to_bytes(), jpegs.sample().to_bytes()])


def test_files_with_errors_are_followed_by_good_ones():
    damaged = [jpegs.REFUSED[name][1]() for name in ("no DQT", "code in no table", "EOI too early", "empty")]
    transform([file for bad in damaged for file in (bad, jpegs.sample().to_bytes())], 3, 30, 30)


@pytest.mark.parametrize(
    ("quality", "sampling"), [(90, "4:2:0"), (75, "4:2:0"), (90, "4:4:4"), (75, "4:4:4"), (30, "4:4:4")]
)
@pytest.mark.parametrize("name", ["china.jpg", "rocket.jpg", "astronaut.png"])
def test_clocks_follow_the_model(name, quality, sampling):
    photo = cv2.imread(str(next(path for path in jpegs.bundled_images() if path.name == name)))
    timing = transform([jpegs.encode(cv2.resize(photo, (500, 375)), quality, sampling)])
    assert timing.latency == LATENCY
    assert timing.cycles == pytest.approx(transform_cycles(timing.lengths), abs=4)
    assert timing.cycles < 1.05 * max(sum(timing.lengths), 500 * 375 / 2)


def test_two_coefficients_take_a_clock_but_for_those_of_one_bank():
    photo = cv2.imread(str(next(path for path in jpegs.bundled_images() if path.name == "rocket.jpg")))
    jpeg = jpegs.encode(cv2.resize(photo, (200, 152)), 100, "4:4:4")
    single, double = transform([jpeg]), transform([jpeg], pairs=100)
    assert single.lengths == double.lengths
    assert double.cycles < 0.65 * single.cycles


def test_flat_blocks_take_eight_clocks_each():
    timing = transform([jpegs.encode(np.full((200, 200, 3), 77, np.uint8), 75, "4:2:0")])
    assert timing.cycles <= 8 * len(timing.lengths) + LATENCY + 10


def test_a_reset_in_mid_image_leaves_nothing_behind():
    file = jpegs.sample(width=60, height=50).to_bytes()
    assert library().transform_resets(file, len(file), 53, 40) == 0
