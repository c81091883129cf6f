"""Sampling factors that OpenCV does not write, decode x {csim, rtlsim} against cv2.imdecode: 4:1:0, and components
with several blocks in an MCU each."""

import itertools
import json
import subprocess
import zlib
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
import test_decode_scans as scans_rtl
import test_image_cu as image_cu
import test_progressive as scans
from scan_script import Image, Scan, factors_of, libjpeg_script, photo_image, random_image, to_jpeg
from test_decode import (  # decode, decode_partly: fixtures
    SAMPLINGS,
    SLOW,
    STALLS,
    STATUS,
    assert_equal_to_opencv,
    bundled_images,
    csim_decode,
    decode,  # noqa: F401
    decode_partly,  # noqa: F401
    file_of_random_codes,
    golden,
    mutants,
    rtl_decode,
    sample,
    with_factors,
)

from headrace.host.dpu.specs import ImageSpec, ImageStage

MAX_WIDTH = 8192


def is_taken(factors: list[tuple[int, int]]) -> bool:
    (luma_h, luma_v), *_ = factors
    return (
        all(h in (1, 2, 4) and v in (1, 2, 4) and h <= luma_h and v <= luma_v for h, v in factors)
        and sum(h * v for h, v in factors) <= 10
    )


def name_of(factors: list[tuple[int, int]]) -> str:
    return " ".join(f"{h}x{v}" for h, v in factors)


COMMON = [name_of(factors_of(sampling)) for sampling in SAMPLINGS]
EVERY = [name_of(f) for f in itertools.product(itertools.product((1, 2, 4), repeat=2), repeat=3) if is_taken(f)]
OTHERS = [sampling for sampling in EVERY if sampling not in COMMON]


def greatest_width(sampling: str) -> int:
    """Two MCU rows fit into rows of luma and chroma of the greatest width, 32 and 16."""
    (luma_h, luma_v), *chroma = factors_of(sampling)
    return min(MAX_WIDTH, 2 * MAX_WIDTH // luma_v, *(MAX_WIDTH // v for h, v in chroma if h == luma_h))


NARROW = [sampling for sampling in OTHERS if greatest_width(sampling) < MAX_WIDTH]


def jpeg_of(image: Image, restart: int = 0) -> bytes:
    return to_jpeg(image, [Scan((0, 1, 2), restart=restart)], progressive=False)


def random_jpeg(rng: np.random.Generator, width: int, height: int, sampling: str) -> bytes:
    return jpeg_of(random_image(rng, width, height, sampling), int(rng.choice([0, 0, 1, 3])))


def photo(width: int, height: int) -> np.ndarray:
    image = cv2.imread(str(next(path for path in bundled_images() if path.name == "china.jpg")))
    return cv2.resize(image, (width, height))


def test_the_samplings_are_these():
    """The known ones are among them, and docs/reference/units.md has their numbers."""
    assert len(EVERY) == 42 and len(OTHERS) == 37
    assert {"4x2 1x1 1x1", "2x2 1x2 1x2", "2x1 2x1 2x1", "1x4 1x1 1x1"} <= set(OTHERS)
    widths = Counter(map(greatest_width, OTHERS))
    assert widths == {8192: 19, 4096: 14, 2048: 4}
    page = " ".join((Path(__file__).parents[2] / "docs" / "reference" / "units.md").read_text().split())
    assert f"takes {len(EVERY)} combinations of sampling factors" in page
    assert f"takes {widths[8192]} of the {len(OTHERS)} unusual ones up to 8192 pixels" in page
    assert f"{widths[4096]} more up to 4096" in page


def test_the_classes_in_the_documentation_have_as_many_combinations():
    """Those with at most ten blocks in an MCU, as T.81 allows them, and those of which OpenCV decodes a file."""
    rng, counts, decoded = np.random.default_rng(1), Counter(), Counter()
    for factors in itertools.product(itertools.product(range(1, 5), repeat=2), repeat=3):
        if sum(h * v for h, v in factors) > 10:
            continue
        name = "taken" if is_taken(factors) else "a factor of 3" if 3 in sum(factors, ()) else "chroma finer than luma"
        counts[name] += 1
        jpeg = jpeg_of(random_image(rng, 9, 9, name_of(factors)))
        decoded[name] += cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR) is not None
    measured = Path(__file__).parents[2] / "docs" / "results" / "measured" / "samplings.json"
    figures = json.loads(measured.read_text())
    assert (figures["combinations"], figures["opencv_decodes"]) == (dict(counts), dict(decoded))
    assert counts.total() == 515 and decoded.total() == 311 and decoded["taken"] == counts["taken"] == 42


def test_the_unit_takes_all_factors_of_files_that_encoders_wrote():
    """Of the files that were counted: all with three components."""
    measured = Path(__file__).parents[2] / "docs" / "results" / "measured" / "samplings.json"
    seen = {
        factors
        for source in json.loads(measured.read_text())["sources"]
        if source["kind"] == "encoders"
        for factors in source["factors"]
        if factors.count("x") == 3
    }
    assert len(seen) > 4 and seen <= set(EVERY)


@pytest.mark.quick(csim=8, rtlsim=2)
@pytest.mark.parametrize("sampling", OTHERS)
def test_forty_sizes_equal_opencv(decode, sampling):  # noqa: F811
    """Each width and each height up to 40."""
    rng = np.random.default_rng(3)
    for width, height in zip(1 + rng.permutation(40), 1 + rng.permutation(40), strict=True):
        assert_equal_to_opencv(decode, random_jpeg(rng, int(width), int(height), sampling))


@SLOW
@pytest.mark.parametrize("sampling", OTHERS)
def test_every_size_up_to_forty_equals_opencv(decode, sampling):  # noqa: F811
    rng = np.random.default_rng(4)
    for width, height in itertools.product(range(1, 41), repeat=2):
        assert_equal_to_opencv(decode, random_jpeg(rng, width, height, sampling))


@pytest.mark.quick(csim=6, rtlsim=2)
@pytest.mark.parametrize("sampling", OTHERS)
def test_photos_equal_opencv(decode, sampling):  # noqa: F811
    for size, coarseness in (((150, 131), 1), ((333, 70), 4)):
        assert_equal_to_opencv(decode, jpeg_of(photo_image(photo(*size), sampling, coarseness)))


@pytest.mark.quick(csim=3, rtlsim=1)
@pytest.mark.parametrize("sampling", OTHERS)
def test_images_of_the_greatest_width_equal_opencv(decode, sampling):  # noqa: F811
    assert_equal_to_opencv(decode, jpeg_of(photo_image(photo(greatest_width(sampling), 75), sampling, 6)))


@pytest.mark.quick(csim=8, rtlsim=4)
@pytest.mark.parametrize("sampling", NARROW)
def test_wider_ones_are_refused_where_two_mcu_rows_do_not_fit(decode, sampling):  # noqa: F811
    status, _ = decode(jpeg_of(photo_image(photo(greatest_width(sampling) + 1, 20), sampling, 8)))
    assert status == STATUS["SAMPLING"]


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=SLOW)])
def test_all_other_factors_are_refused_by_their_status(decode, step):  # noqa: F811
    """Of all that T.81 has, whatever the data; of those that are refused, some."""
    file = sample("4:4:4", 9, 9)
    pairs = list(itertools.product(range(1, 5), repeat=2))
    every = list(itertools.product(pairs, repeat=3))
    assert len(every) == 4096 and sum(map(is_taken, every)) == len(EVERY)
    for number, factors in enumerate(every):
        if is_taken(factors) or number % step == 0:
            status, _ = decode(with_factors(file, name_of(factors)).to_bytes())
            assert (status == STATUS["SAMPLING"]) == (not is_taken(factors)), factors


@pytest.mark.parametrize(("h", "v"), [(0, 1), (1, 0), (5, 1), (1, 3), (8, 1), (9, 1), (1, 9), (15, 15)])
@pytest.mark.parametrize("component", range(3))
def test_factors_that_no_component_has_are_refused(decode, component, h, v):  # noqa: F811
    factors = [(1, 1)] * 3
    factors[component] = (h, v)
    payload = sample("4:4:4").payloads(0xC0)[0]
    changed = bytearray(payload)
    changed[7 + 3 * component] = h << 4 | v
    status, _ = decode(sample("4:4:4").edit(0xC0, lambda _: bytes(changed)).to_bytes())
    assert status == STATUS["SAMPLING"]


@pytest.mark.quick(csim=16, rtlsim=10)
@pytest.mark.parametrize("sampling", OTHERS)
@pytest.mark.parametrize("size", [(61, 83), (4, 40), (5, 33)])
def test_some_rows_are_those_of_the_whole_image(decode_partly, sampling, size):  # noqa: F811
    rng = np.random.default_rng(11)
    jpeg = random_jpeg(rng, *size, sampling)
    width, height = size
    expected = golden(jpeg)
    ends = [int(rng.integers(0, height)) for _ in range(3)] + [
        row for row in (6, 7, 8, 14, 15, 16, 17, 31) if row < height
    ]
    for last in ends:
        first = int(rng.integers(0, last + 1))
        count = last + 1 - first
        status, _, _, rgb = decode_partly(jpeg, rows=(*size, first, count))
        assert status == STATUS["OK"]
        assert np.array_equal(rgb[: 3 * width * count].reshape(count, width, 3), expected[first : last + 1])


@pytest.mark.parametrize(
    ("sampling", "last", "mcu_rows"),
    [
        ("4x2 1x1 1x1", 15, 1),
        ("4x2 1x1 1x1", 16, 2),
        ("4x2 1x1 1x1", 31, 2),
        ("2x2 1x2 1x2", 15, 1),
        ("2x2 1x2 1x1", 14, 1),
        ("2x2 1x2 1x1", 15, 2),
        ("2x2 2x1 1x2", 15, 2),
        ("2x2 1x1 1x2", 31, 3),
        ("1x2 1x2 1x2", 15, 1),
        ("2x1 2x1 2x1", 7, 1),
    ],
)
def test_nothing_behind_the_last_mcu_row_that_is_needed_is_seen(decode_partly, sampling, last, mcu_rows):  # noqa: F811
    """A restart interval an MCU row: what lies between the markers can be damaged by itself."""
    image = random_image(np.random.default_rng(2), 64, 80, sampling)
    jpeg = jpeg_of(image, restart=8 // factors_of(sampling)[0][0])
    expected = golden(jpeg)
    at = [0, *(place for place in range(len(jpeg)) if jpeg[place] == 0xFF and 0xD0 <= jpeg[place + 1] <= 0xD7)]
    rows = (64, 80, 3, last - 2)
    for behind in (b"", b"\xff\xd9", bytes(40)):
        status, _, _, rgb = decode_partly(jpeg[: at[mcu_rows]] + behind, rows=rows)
        assert status == STATUS["OK"]
        assert np.array_equal(rgb[: 3 * 64 * rows[3]].reshape(-1, 64, 3), expected[3 : last + 1])
    damaged = jpeg[: at[mcu_rows] - 3] + b"\xff\xd9"
    assert decode_partly(damaged, rows=rows)[0] == STATUS["TRUNCATED"]


@pytest.mark.quick(csim=20, rtlsim=20)
@pytest.mark.parametrize("sampling", EVERY)
def test_all_is_checked_if_the_last_mcu_row_is_needed(decode_partly, sampling):  # noqa: F811
    """Any of its rows, and none above the last of the MCU row before, which may need chroma of it."""
    height, mcu_rows = 96, 8 * factors_of(sampling)[0][1]
    jpeg = jpeg_of(random_image(np.random.default_rng(5), 4, height, sampling))
    without_end = jpeg[:-2]
    for last in range(height - mcu_rows, height, 8):
        rows = (4, height, 0, last + 1)
        assert decode_partly(jpeg, rows=rows)[0] == STATUS["OK"]
        assert decode_partly(without_end, rows=rows)[0] == STATUS["TRUNCATED"]
    assert decode_partly(without_end, rows=(4, height, 0, height - mcu_rows - 1))[0] == STATUS["OK"]


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", ["csim", "rtlsim"])
@pytest.mark.parametrize("sampling", OTHERS)
def test_crops_through_the_compute_unit_equal_opencvs(name, sampling):
    """Windows of rows and columns, whose edges are not the image's."""
    rng = np.random.default_rng(8)
    for _ in range(3):
        width, height = (int(side) for side in rng.integers(20, 140, 2))
        jpeg = jpeg_of(photo_image(photo(width, height), sampling, int(rng.integers(1, 6))))
        short = int(rng.integers(8, min(width, height) + 8))
        crop_width, crop_height = (int(side) for side in rng.integers(1, short + 1, 2))
        spec = ImageSpec(resize_short=short, crop_width=crop_width, crop_height=crop_height)
        image_cu.check(image_cu.CUS[name], jpeg, spec, ImageStage.CROP)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=SLOW) for seed in range(1, 20))])
def test_tables_are_those_of_the_component(decode, seed):  # noqa: F811
    rng = np.random.default_rng(seed)
    for sampling in OTHERS:
        assert_equal_to_opencv(decode, file_of_random_codes(rng, sampling))


@pytest.mark.parametrize("step", [11, pytest.param(3, marks=SLOW)])
@pytest.mark.parametrize("sampling", ["4x2 1x1 1x1", "2x2 1x2 2x1"])
def test_file_cut_off_anywhere_is_reported_as_truncated(decode, sampling, step):  # noqa: F811
    jpeg = random_jpeg(np.random.default_rng(6), 33, 35, sampling)
    for length in range(2, len(jpeg), step):
        assert decode(jpeg[:length])[0] == STATUS["TRUNCATED"], length


# ---- Several scans ----


@pytest.mark.quick(3)
@pytest.mark.parametrize("sampling", OTHERS)
@pytest.mark.parametrize("progressive", [False, True])
def test_several_scans_of_any_equal_opencv(sampling, progressive):
    """C++ and RTL; of most sizes the last MCUs have blocks without a sample of the image."""
    rng = np.random.default_rng(1)
    for number, size in enumerate([(1, 1), (8, 8), (33, 33), *rng.integers(1, 100, (5, 2))]):
        image = random_image(rng, *map(int, size), sampling)
        orders = scans.SEQUENTIAL.values()
        script = libjpeg_script(3) if progressive else [Scan(group) for group in list(orders)[number % len(orders)]]
        jpeg = to_jpeg(image, script, progressive)
        scans.assert_coefficients(scans.assert_equal_to_opencv(jpeg), image)
        scans_rtl.assert_equal_to_opencv(jpeg, number)


@pytest.mark.quick(6)
@pytest.mark.parametrize("sampling", OTHERS)
def test_a_workspace_is_as_large_as_the_whole_mcus_of_any_are(sampling):
    image = random_image(np.random.default_rng(3), 70, 41, sampling)
    jpeg, size = to_jpeg(image, libjpeg_script(3)), image.workspace_bytes
    for workspace_bytes, expected in ((size, "OK"), (size - 16, "BUFFER_TOO_SMALL")):
        done = scans_rtl.run(jpeg, workspace_bytes=workspace_bytes)  # the C++ tells the same
        assert (done.status, done.counters.workspace_needed) == (STATUS[expected], size)


# ---- Damaged files ----


def small_files(rng: np.random.Generator) -> list[bytes]:
    return [random_jpeg(rng, *map(int, rng.integers(1, 60, 2)), sampling) for sampling in OTHERS]


def test_damaged_files_end_in_opencv_pixels_or_a_status(csim_executable, tmp_path):
    """Under the address and UB sanitizers."""
    files = mutants(1500, 1, small_files)
    corpus = tmp_path / "corpus"
    corpus.write_bytes(b"".join(len(file).to_bytes(4, "little") + file for file in files))
    done = subprocess.run([csim_executable("decode"), corpus], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = Counter()
    for file, line in zip(files, done.stdout.splitlines(), strict=True):
        status, width, height, crc, _ = (int(field) for field in line.split())
        seen[status] += 1
        if status == STATUS["OK"]:
            expected = golden(file)
            assert expected is not None and expected.shape == (height, width, 3)
            assert zlib.crc32(expected.tobytes()) == crc
    assert seen[STATUS["OK"]] > 100 and seen[STATUS["SAMPLING"]] > 5, seen


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(150, 1, id="150"),
        pytest.param(1500, 1, marks=SLOW, id="1,500"),
        *(pytest.param(10_000, n, marks=SLOW, id=f"corpus {n}") for n in range(2, 5)),
    ],
)
def test_rtl_and_cpp_agree_on_every_damaged_file_within_a_bound_of_cycles(count, seed):
    for number, file in enumerate(mutants(count, seed, small_files)):
        *expected, pixels = csim_decode(file, capacity=1 << 16)
        stalls = ((0, 0), *STALLS)[number % (len(STALLS) + 1)]
        *found, rgb, _ = rtl_decode(file, *stalls, seed=number, capacity=1 << 16)
        assert found == expected and np.array_equal(rgb, pixels), f"mutant {number}, {stalls} % stalls"
