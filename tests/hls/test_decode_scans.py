"""decode.sv on files of several scans, whose coefficients lie in a workspace in memory: pixels as OpenCV's, and status, pixels
and bytes of workspace needed as the C++'s. That the C++ is right is test_progressive's affair, and that the coefficients are
test_progressive_rtl's."""

from dataclasses import dataclass

import numpy as np
import pytest
from scan_script import Scan, random_image, to_jpeg
from test_decode import SAMPLINGS, SLOW, STALLS, STATUS, RtlMemory, golden, picture, rtl_decode
from test_progressive import REFUSED, SEQUENTIAL, TAKEN, WORKSPACE, encode, random_file
from test_progressive import decode as csim_decode

LATENCY = 120
# Of the file, of the pixels, of memory, per cent; memory's latency.
PAUSES = [(0, 0, 0, LATENCY), *((*stalls, 20 * i, 60 * i + 1) for i, stalls in enumerate(STALLS))]


@dataclass(frozen=True, slots=True)
class Run:
    status: int
    pixels: np.ndarray
    needed: int
    read_words: int
    cycles: int


def run(
    jpeg: bytes, seed: int = 0, workspace_bytes: int = WORKSPACE, pauses: tuple[int, int, int, int] = PAUSES[0],
    rows: tuple[int, int, int, int] = (0, 0, 0, 0), error_after: int = 1 << 40, reset_at: int = 0, forgets: bool = False,
) -> Run:  # fmt: skip
    """One model serves all calls, in the state that the one before left."""
    *stalls, stall, latency = pauses
    memory = RtlMemory(workspace_bytes, latency, stall, forgets, error_after, reset_at)
    status, width, height, rgb, counters = rtl_decode(jpeg, *stalls, seed=seed, rows=rows, memory=memory)
    shape = (rows[3] or height, width, 3)
    pixels = rgb[: int(np.prod(shape))].reshape(shape) if status == 0 else rgb[:0]
    return Run(status, pixels, counters.workspace_needed, counters.read_words, counters.cycles)


def check(
    jpeg: bytes, number: int = 0, workspace_bytes: int = WORKSPACE, rows: tuple[int, int, int, int] = (0, 0, 0, 0)
) -> Run:
    """Without pauses and with those of a number, as the C++."""
    expected = csim_decode(jpeg, workspace_bytes, rows)
    for seed, pauses in ((0, PAUSES[0]), (number + 1, PAUSES[number % len(PAUSES)])):
        found = run(jpeg, seed, workspace_bytes, pauses, rows)
        assert (found.status, found.needed) == (expected.status, expected.needed), f"{seed}, {pauses}"
        np.testing.assert_array_equal(found.pixels, expected.pixels)
    return found


def assert_equal_to_opencv(jpeg: bytes, number: int = 0, workspace_bytes: int = WORKSPACE) -> None:
    done = check(jpeg, number, workspace_bytes)
    assert done.status == STATUS["OK"]
    np.testing.assert_array_equal(done.pixels, golden(jpeg))


@pytest.mark.parametrize("sampling", [*SAMPLINGS, "gray"])
def test_libjpegs_progressive_files_equal_opencv(sampling):
    rng = np.random.default_rng(list(SAMPLINGS).index(sampling) if sampling != "gray" else 9)
    for number in range(14):
        image = picture(rng, *map(int, rng.integers(1, 100, 2)), 1 if sampling == "gray" else 3)
        restart = int(rng.choice([0, 0, 1, 7]))
        jpeg = encode(image, int(rng.integers(1, 101)), "4:2:0" if sampling == "gray" else sampling, restart)
        assert_equal_to_opencv(jpeg, number)


@pytest.mark.parametrize("seed", [*range(30), *(pytest.param(n, marks=SLOW, id=f"{n}") for n in range(30, 300))])
def test_any_progression_equals_opencv(seed):
    image, script = random_file(seed, most=60)
    assert_equal_to_opencv(to_jpeg(image, script), seed)


@pytest.mark.parametrize("groups", SEQUENTIAL.values(), ids=SEQUENTIAL)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_sequential_files_of_several_scans_equal_opencv(groups, sampling):
    rng = np.random.default_rng(8)
    for number, size in enumerate(((1, 1), (17, 9), (50, 70))):
        image = random_image(rng, *size, sampling)
        script = [Scan(group, restart=int(rng.choice([0, 1, 5]))) for group in groups]
        assert_equal_to_opencv(to_jpeg(image, script, progressive=False), number)


@pytest.mark.parametrize("name", REFUSED)
def test_file_that_cannot_be_decoded_ends_in_its_status(name):
    expected, build = REFUSED[name]
    assert check(build(), 4).status == STATUS[expected]


@pytest.mark.parametrize("name", TAKEN)
def test_files_that_lack_something_that_is_not_needed_equal_opencv(name):
    assert_equal_to_opencv(TAKEN[name](), 2)
