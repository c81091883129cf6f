"""progressive_decoder.sv against the C++: equal coefficients, workspaces and statuses, with any latency and pauses.
That the C++ is right is test_progressive's affair."""

import ctypes
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import cv2
import numpy as np
import pytest
import rtlsim
import scan_script
from scan_script import (
    Image,
    Scan,
    beyond_short_codes,
    libjpeg_script,
    random_image,
    to_jpeg,
    with_a_strange_symbol,
    with_ac_tables,
)
from test_decode import SAMPLINGS, SLOW, STATUS, bundled_images, picture
from test_progressive import REFUSED, SEQUENTIAL, TAKEN, encode, mutants, of_seeds, random_file

ALL_ROWS = 0xFFFFFFFF
LATENCY = 120
# Pauses of the tokens, of the coefficients and of memory, per cent, and memory's latency.
PAUSES = [(50, 50, 50, LATENCY), (0, 80, 20, 1), (80, 0, 0, 30), (0, 0, 80, LATENCY), (10, 10, 10, 300), (0, 0, 0, 1)]
FAULTS = {
    -1: "coefficients differ",
    -2: "too many clocks",
    -3: "more coefficients or accesses, or tokens left",
    -4: "an access beside the workspace or across 4 KiB",
    -5: "workspaces differ",
    -6: "a file of one scan",
    -7: "statuses differ",
    -8: "not idle at the end",
}


@cache
def library() -> ctypes.CDLL:
    return rtlsim.load("progressive_decoder")


@dataclass(frozen=True, slots=True)
class Run:
    status: int
    cycles: int  # from the first table to the end beat
    last_pass: int  # of these, from the end of the last scan
    read_words: int
    written_words: int


ONE_SCAN = -6


def run(
    jpeg: bytes,
    seed: int = 0,
    pauses: tuple[int, int, int, int] = (0, 0, 0, LATENCY),
    last_row: int = ALL_ROWS,
    error_after: int = 0,
) -> Run:
    """One model serves all calls, in the state that the one before left."""
    numbers = (ctypes.c_uint64 * 4)()
    status = library().rtl_progressive(
        jpeg,
        ctypes.c_uint32(len(jpeg)),
        ctypes.c_uint32(seed),
        *map(ctypes.c_uint32, pauses),
        ctypes.c_uint32(last_row),
        ctypes.c_uint64(error_after),
        numbers,
    )
    assert status >= 0 or status == ONE_SCAN, f"{FAULTS[status]}, seed {seed}, pauses {pauses}"
    return Run(status, *numbers)


def both(jpeg: bytes, seed: int) -> Run:
    """Without pauses and with those of a seed."""
    free = run(jpeg)
    assert run(jpeg, seed + 1, PAUSES[seed % len(PAUSES)]).status == free.status
    return free


@of_seeds(16, 1000)
def test_any_progression_gives_the_coefficients_of_the_cpp(seeds):
    for seed in seeds:
        image, script = random_file(seed, most=60)
        assert both(to_jpeg(image, script), seed).status == STATUS["OK"]


@pytest.mark.quick(12)
@pytest.mark.parametrize("groups", SEQUENTIAL.values(), ids=SEQUENTIAL)
@pytest.mark.parametrize("sampling", [*SAMPLINGS, "4:1:0"])
def test_sequential_files_of_several_scans_equal_the_cpp(groups, sampling):
    rng = np.random.default_rng(8)
    for number, size in enumerate(((1, 1), (17, 9), (50, 70))):
        image = random_image(rng, *size, sampling)
        script = [Scan(group, restart=int(rng.choice([0, 1, 5]))) for group in groups]
        assert both(to_jpeg(image, script, progressive=False), number).status == STATUS["OK"]


@pytest.mark.parametrize("count", [14, pytest.param(40, marks=SLOW)])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_libjpegs_files_of_any_size_equal_the_cpp(sampling, count):
    rng = np.random.default_rng(3)
    for number in range(count):
        image = picture(rng, *map(int, rng.integers(1, 70, 2)), 1 if number % 5 == 0 else 3)
        jpeg = encode(image, int(rng.integers(1, 101)), sampling, int(rng.choice([0, 0, 1, 7])))
        assert both(jpeg, number).status == STATUS["OK"]


@pytest.mark.parametrize("change", [beyond_short_codes, with_a_strange_symbol])
def test_files_whose_short_codes_are_looked_up_as_long_ones_equal_the_cpp(change):
    for seed in range(6):
        image, script = random_file(seed, most=30)
        jpeg = to_jpeg(image, script)
        changed = with_ac_tables(jpeg, change)
        assert changed != jpeg
        assert both(changed, seed).status == STATUS["OK"]


@pytest.mark.slow
def test_the_widest_image_and_the_longest_run():
    planes = (np.zeros((40, 1024, 64), np.int64),)
    planes[0][0, 0, 1] = planes[0][39, 1023, 63] = 5
    planes[0][..., 0] = 2 * np.arange(40)[:, None] - 40
    image = Image(8192, 320, "gray", planes)
    script = [Scan((0,), 0, 0), Scan((0,), 1, 63, 0, 2), Scan((0,), 1, 63, 2, 1), Scan((0,), 1, 63, 1, 0)]
    assert run(to_jpeg(image, script)).status == STATUS["OK"]
    for size, sampling in (((8192, 30), "4:2:0"), ((8191, 16), "4:4:4"), ((4097, 16), "4:1:1")):
        image = random_image(np.random.default_rng(1), *size, sampling)
        assert run(to_jpeg(image, libjpeg_script(3))).status == STATUS["OK"]


@pytest.mark.quick(3)
@pytest.mark.parametrize("sampling", scan_script.SAMPLING)
def test_the_last_pass_ends_with_the_rows_that_are_wanted(sampling):
    image = random_image(np.random.default_rng(5), 60, 150, sampling)
    jpeg = to_jpeg(image, libjpeg_script(len(image.planes)))
    whole = run(jpeg)
    reads = {row: run(jpeg, row + 1, PAUSES[row % 6], row).read_words for row in (0, 7, 8, 70, 130, 149)}
    assert list(reads.values()) == sorted(reads.values())
    assert reads[0] < reads[70] < reads[149] == whole.read_words


@pytest.mark.parametrize("name", REFUSED)
def test_file_that_cannot_be_decoded_ends_in_the_status_of_the_cpp(name):
    expected, build = REFUSED[name]
    jpeg = build()
    if run(jpeg).status != ONE_SCAN:  # refused before it is known to be one of several
        assert both(jpeg, 4).status == STATUS[expected]


@pytest.mark.parametrize("name", TAKEN)
def test_files_that_lack_something_that_is_not_needed_equal_the_cpp(name):
    assert both(TAKEN[name](), 2).status == STATUS["OK"]


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(180, 1, id="180"),
        pytest.param(1500, 1, marks=SLOW, id="1,500"),
        *(pytest.param(6000, n, marks=SLOW, id=f"corpus {n}") for n in range(2, 7)),
    ],
)
def test_damaged_files_end_in_the_status_of_the_cpp(count, seed):
    seen = Counter(
        run(file, number, PAUSES[number % len(PAUSES)]).status for number, file in enumerate(mutants(count, seed))
    )
    assert seen[STATUS["OK"]] > count // 10 and seen[ONE_SCAN] < count // 10 and len(seen) >= 9, seen


@pytest.mark.parametrize("step", [11, pytest.param(3, marks=SLOW)])
@pytest.mark.parametrize("restart", [0, 2])
def test_file_cut_off_anywhere_ends_in_the_status_of_the_cpp(restart, step):
    image = random_image(np.random.default_rng(9), 33, 20, "4:2:0")
    jpeg = to_jpeg(image, scan_script.with_all(libjpeg_script(3), restart=restart))
    first_data = jpeg.index(b"\xff\xda") + 14
    for length in range(first_data, len(jpeg), step):
        assert run(jpeg[:length], length, PAUSES[length % len(PAUSES)]).status == STATUS["TRUNCATED"]


def test_an_error_of_memory_ends_in_its_status_and_is_forgotten():
    image = random_image(np.random.default_rng(5), 60, 50, "4:2:0")
    jpeg = to_jpeg(image, libjpeg_script(3))
    words = run(jpeg).read_words
    for number, error_after in enumerate((1, words // 3, words - 1)):
        assert run(jpeg, number, PAUSES[number], error_after=error_after).status == STATUS["BUS_ERROR"]
        assert both(jpeg, number).status == STATUS["OK"]


def photos() -> list[np.ndarray]:
    paths = [path for path in bundled_images() if path.stem in ("astronaut", "chelsea", "china", "rocket")]
    return [cv2.resize(cv2.imread(str(path)), (500, 375), interpolation=cv2.INTER_AREA) for path in paths]


def test_photos_take_little_more_than_a_clock_a_pixel():
    """libjpeg's ten scans at 4:2:0, quality 75: in the mean, and the most detailed one little more."""
    clocks = []
    for photo in photos():
        jpeg = encode(photo, 75)
        assert jpeg.count(b"\xff\xda") == 10
        clocks.append(run(jpeg).cycles / (photo.shape[0] * photo.shape[1]))
    assert np.mean(clocks) <= 1.35 and max(clocks) <= 1.5, clocks


def test_latency_costs_only_between_scans():
    """That of the first words and of the last answer, and that of the last pass."""
    jpeg = encode(cv2.resize(photos()[0], (250, 188)), 75)
    near, far = (run(jpeg, pauses=(0, 0, 0, latency)) for latency in (1, LATENCY))
    assert far.cycles - near.cycles <= (10 * 2 + 1) * (LATENCY - 1)


def test_a_components_first_scan_reads_nothing_and_others_only_their_band():
    image = random_image(np.random.default_rng(5), 64, 64, "gray")
    blocks = 64
    script = [Scan((0,), 0, 0), Scan((0,), 1, 7), Scan((0,), 8, 15), Scan((0,), 16, 63)]
    measured = run(to_jpeg(image, script))
    assert measured.read_words == blocks * (0 + 1 + 1 + 6 + 8)
    assert measured.written_words == blocks * (8 + 1 + 1 + 6)


def test_files_follow_each_other_whatever_became_of_the_one_before():
    good = to_jpeg(random_image(np.random.default_rng(6), 33, 35, "4:2:0"), libjpeg_script(3))
    for name in ("DC category 12", "run beyond the band", "coefficients sent twice", "last bits missing"):
        assert both(REFUSED[name][1](), 1).status != STATUS["OK"]
        assert both(good, 3).status == STATUS["OK"]
    script = libjpeg_script(3)
    late = to_jpeg(random_image(np.random.default_rng(6), 33, 35, "4:2:0"), [*script[:-1], replace(script[-1], high=2)])
    assert both(late, 1).status == STATUS["CORRUPT_HEADER"]
    assert both(good, 5).status == STATUS["OK"]
