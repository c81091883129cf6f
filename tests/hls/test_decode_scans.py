"""decode.sv on files of several scans, whose coefficients lie in a workspace in memory: pixels as OpenCV's, and status,
pixels and bytes of workspace needed as the C++'s. That the C++ is right is test_progressive's affair, and that the
coefficients are test_progressive_rtl's."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scan_script
import test_decode
from scan_script import Scan, libjpeg_script, random_image, symbol_count, to_jpeg
from test_decode import SAMPLINGS, SLOW, STALLS, STATUS, WAS_RESET, RtlMemory, golden, picture, rtl_decode, sample
from test_progressive import (
    REFUSED,
    SEQUENTIAL,
    TAKEN,
    WORKSPACE,
    decode_partly,
    encode,
    file_of_several_scans_without_huffman_tables,
    files_that_define_quantisation_tables_again,
    mutants,
    of_seeds,
    random_file,
    scripted,
)

LATENCY = 120
CAPACITY = 3 * 128 * 160  # bytes of RGB
ALL_ROWS = (0, 0, 0, 0)
NEVER = 1 << 40
# Of the file, of the pixels, of memory, per cent; memory's latency.
FREE = (0, 0, 0, LATENCY)
PAUSES = [FREE, *((*stalls, 20 * i, 60 * i + 1) for i, stalls in enumerate(STALLS))]


@dataclass(frozen=True, slots=True)
class Run:
    status: int
    pixels: np.ndarray
    counters: test_decode.RtlCounters

    @property
    def read_words(self) -> int:
        return self.counters.read_words

    @property
    def written_words(self) -> int:
        return self.counters.written_words

    @property
    def cycles(self) -> int:
        return self.counters.cycles


def run(
    jpeg: bytes,
    seed: int = 0,
    pauses: tuple[int, int, int, int] = FREE,
    *,
    workspace_bytes: int = WORKSPACE,
    rows: tuple[int, int, int, int] = ALL_ROWS,
    error_after: int = NEVER,
    reset_at: int = 0,
    forgets: bool = False,
    takes_writes: bool = False,
) -> Run:
    """One model serves all calls, in the state that the one before left. Status, size, bytes needed and pixels must be
    the C++'s, unless memory fails or there is a reset."""
    *stalls, stall, latency = pauses
    memory = RtlMemory(workspace_bytes, latency, stall, forgets, error_after, reset_at, takes_writes)
    status, width, height, rgb, counters = rtl_decode(jpeg, *stalls, seed, CAPACITY, rows, memory)
    if error_after == NEVER and reset_at == 0:
        *expected, expected_rgb, _ = decode_partly(jpeg, workspace_bytes, rows, CAPACITY)
        assert [status, width, height, counters.workspace_needed] == expected, f"seed {seed}, pauses {pauses}"
        assert np.array_equal(rgb, expected_rgb), f"seed {seed}, pauses {pauses}"
    shape = (rows[3] or height, width, 3)
    pixels = rgb[: int(np.prod(shape))].reshape(shape) if status == STATUS["OK"] else rgb[:0]
    return Run(status, pixels, counters)


def both(jpeg: bytes, number: int, **more) -> Run:
    """Without pauses and with those of a number."""
    run(jpeg, number + 1, PAUSES[number % len(PAUSES)], **more)
    return run(jpeg, **more)


def assert_equal_to_opencv(jpeg: bytes, number: int = 0) -> None:
    done = both(jpeg, number)
    assert done.status == STATUS["OK"]
    np.testing.assert_array_equal(done.pixels, golden(jpeg))


@pytest.mark.parametrize("progressive", [True, False])
def test_counters_tell_of_symbols_and_of_waits_for_the_file_and_the_workspace(progressive):
    image = random_image(np.random.default_rng(4), 80, 60, "4:2:0")
    script = libjpeg_script(3) if progressive else [Scan((0,)), Scan((1, 2))]
    jpeg = to_jpeg(image, script, progressive)
    free, slow_file, slow_memory = (
        run(jpeg, 1, pauses).counters for pauses in (FREE, (99, 0, 0, LATENCY), (0, 0, 90, LATENCY))
    )
    for counters in (free, slow_file, slow_memory):
        assert counters.symbols == symbol_count(image, script, progressive)
    assert slow_file.wait_data - free.wait_data > 0.5 * (slow_file.cycles - free.cycles) > 0  # the rest is of headers
    if progressive:  # else nothing is read before the last pass
        assert slow_memory.wait_data - free.wait_data > 1000


@pytest.mark.slow
def test_counters_tell_of_waits_for_the_transform():
    """Pixels are taken in a tenth of the clocks, and the image is larger than what waits for that in front of them."""
    jpeg = encode(picture(np.random.default_rng(6), 1600, 240), 40, "4:2:0")
    memory = RtlMemory(6 * 1600 * 240, LATENCY, 0, False, NEVER, 0)
    free, slow = (rtl_decode(jpeg, 0, stall, 1, 3 * 1600 * 240, ALL_ROWS, memory)[4] for stall in (0, 90))
    assert slow.wait_transform - free.wait_transform > 0.4 * (slow.cycles - free.cycles) > 0
    assert free.wait_transform < 0.03 * free.cycles


def test_an_error_in_words_of_the_workspace_that_nobody_wanted_does_not_count():
    """The second scan ends after some blocks, with the words of 64 more here: memory answers at once."""
    image = random_image(np.random.default_rng(5), 60, 50, "4:2:0")
    script = [Scan((0, 1, 2), 0, 0), Scan((0,), 1, 63)]
    jpeg = to_jpeg(image, script)
    cut = jpeg[: jpeg.rindex(b"\xff\xda") + 50]
    soon = (0, 0, 0, 1)
    done = run(cut, pauses=soon)
    assert done.status == STATUS["TRUNCATED"] and done.read_words > 100
    afters = range(1, done.read_words, 5)
    statuses = [run(cut, pauses=soon, error_after=after, takes_writes=True).status for after in afters]
    taken = statuses.count(STATUS["BUS_ERROR"])  # of the blocks before the end is seen
    assert 0 < taken < 10  # 27 of those that had come
    assert statuses == [STATUS["BUS_ERROR"]] * taken + [STATUS["TRUNCATED"]] * (len(statuses) - taken)


@pytest.mark.quick(5)
@pytest.mark.parametrize("count", [3, pytest.param(14, marks=SLOW)])
@pytest.mark.parametrize("sampling", [*SAMPLINGS, "gray"])
def test_libjpegs_progressive_files_equal_opencv(sampling, count):
    rng = np.random.default_rng([*SAMPLINGS, "gray"].index(sampling))
    for number in range(count):
        image = picture(rng, *map(int, rng.integers(1, 100, 2)), 1 if sampling == "gray" else 3)
        restart = int(rng.choice([0, 0, 1, 7]))
        jpeg = encode(image, int(rng.integers(1, 101)), "4:2:0" if sampling == "gray" else sampling, restart)
        assert_equal_to_opencv(jpeg, number)


@of_seeds(12, 500)
def test_any_progression_equals_opencv(seeds):
    for seed in seeds:
        image, script = random_file(seed, most=60)
        assert_equal_to_opencv(to_jpeg(image, script), seed)


@pytest.mark.quick(10)
@pytest.mark.parametrize("groups", SEQUENTIAL.values(), ids=SEQUENTIAL)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_sequential_files_of_several_scans_equal_opencv(groups, sampling):
    rng = np.random.default_rng(8)
    for number, size in enumerate(((1, 1), (17, 9), (50, 70))):
        image = random_image(rng, *size, sampling)
        script = [Scan(group, restart=int(rng.choice([0, 1, 5]))) for group in groups]
        assert_equal_to_opencv(to_jpeg(image, script, progressive=False), number)


def test_tables_may_change_between_scans():
    for number, jpeg in enumerate(files_that_define_quantisation_tables_again()):
        assert_equal_to_opencv(jpeg, number)
    assert_equal_to_opencv(file_of_several_scans_without_huffman_tables(), 2)


@pytest.mark.parametrize("transform", [0, 1, 2])
def test_the_colours_are_known_from_the_first_scan_on(transform):
    """Adobe's segment comes too late, also one that is refused in front of it."""
    first, *others = libjpeg_script(3)
    late = replace(others[0], before=test_decode.adobe(transform).to_bytes())
    assert_equal_to_opencv(scripted(first, late, *others[1:]), transform)


@pytest.mark.quick(2)
@pytest.mark.parametrize("sampling", scan_script.SAMPLING)
def test_the_last_pass_ends_with_the_rows_that_are_wanted(sampling):
    image = random_image(np.random.default_rng(5), 60, 150, sampling)
    jpeg = to_jpeg(image, libjpeg_script(len(image.planes)))
    whole = both(jpeg, 0)
    for number, (first, count) in enumerate(((0, 1), (37, 60), (0, 131), (149, 1))):
        part = both(jpeg, number, rows=(60, 150, first, count))
        np.testing.assert_array_equal(part.pixels, whole.pixels[first : first + count])
        assert (part.read_words < whole.read_words) == (first + count < 140)


@pytest.mark.parametrize("name", REFUSED)
def test_file_that_cannot_be_decoded_ends_in_its_status(name):
    expected, build = REFUSED[name]
    assert both(build(), 4).status == STATUS[expected]


@pytest.mark.parametrize("name", TAKEN)
def test_files_that_lack_something_that_is_not_needed_equal_opencv(name):
    assert_equal_to_opencv(TAKEN[name](), 2)


@pytest.mark.quick(50)
@pytest.mark.parametrize("name", test_decode.REFUSED)
def test_what_is_wrong_with_a_file_of_one_scan_is_the_same_with_a_workspace(name):
    """Frames that are called progressive are looked into, and a first scan without all components is no fault."""
    both(test_decode.REFUSED[name][1](), 1)


# ---- The workspace ----


@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 12), marks=SLOW)], ids=["5 seeds", "7 seeds"])
def test_a_workspace_that_is_too_small_is_left_alone_and_the_size_said(seeds):
    for seed in seeds:
        image, script = random_file(seed, most=60)
        jpeg, size = to_jpeg(image, script), image.workspace_bytes
        assert both(jpeg, seed, workspace_bytes=size).status == STATUS["OK"]
        small = both(jpeg, seed, workspace_bytes=size - 16)
        assert (small.status, small.written_words) == (STATUS["BUFFER_TOO_SMALL"], 0)
    wide = to_jpeg(random_image(np.random.default_rng(2), 4096, 3, "4:4:4"), libjpeg_script(3))
    assert both(wide, 1, workspace_bytes=128 * 512 * 3 - 128).status == STATUS["BUFFER_TOO_SMALL"]


def test_without_a_workspace_such_files_are_refused():
    assert both(scripted(*libjpeg_script(3)), 1, workspace_bytes=0).status == STATUS["PROGRESSIVE"]
    one_by_one = scripted(*(Scan((c,)) for c in range(3)), progressive=False)
    assert both(one_by_one, 2, workspace_bytes=0).status == STATUS["MULTIPLE_SCANS"]


def test_a_file_of_one_sequential_scan_leaves_the_workspace_alone():
    done = both(sample().to_bytes(), 3)
    assert (done.status, done.read_words, done.written_words) == (STATUS["OK"], 0, 0)


def test_an_error_of_memory_ends_in_its_status_and_is_forgotten():
    jpeg = scripted(*libjpeg_script(3))
    words = both(jpeg, 0).read_words
    for number, error_after in enumerate((1, words // 3, words - 1)):
        assert run(jpeg, number, PAUSES[number], error_after=error_after).status == STATUS["BUS_ERROR"]
        assert both(jpeg, number).status == STATUS["OK"]


@pytest.mark.quick(4)
@pytest.mark.parametrize("forgets", [False, True], ids=["memory goes on", "memory is reset, too"])
@pytest.mark.parametrize("number", range(len(PAUSES)))
def test_a_reset_leaves_nothing_behind(number, forgets):
    """The workspace is not idle before what memory still sends has come; files of both kinds follow."""
    jpeg = scripted(*libjpeg_script(3))
    cycles = run(jpeg, number, PAUSES[number]).cycles
    for part in (0.1, 0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 0.95):
        reset_at = int(part * cycles)
        assert run(jpeg, number, PAUSES[number], reset_at=reset_at, forgets=forgets).status == WAS_RESET
        following = jpeg if int(100 * part) % 2 else sample().to_bytes()
        assert run(following, number, PAUSES[number]).status == STATUS["OK"]


# ---- One after the other ----


@pytest.mark.parametrize("count", [30, pytest.param(60, marks=SLOW)])
def test_files_of_both_kinds_follow_each_other(count):
    rng = np.random.default_rng(12)
    baseline = [sample(name).to_bytes() for name in ("4:2:0", "4:4:4")]
    several = [scripted(*libjpeg_script(3)), scripted(*(Scan((c,)) for c in range(3)), progressive=False)]
    damaged = [REFUSED[name][1]() for name in ("DC category 12", "run beyond the band", "coefficients sent twice")]
    damaged += [test_decode.REFUSED[name][1]() for name in ("DC category 12", "EOI too early", "no DQT")]
    for number in range(count):
        kind = (baseline, several, damaged)[rng.integers(3)]
        run(kind[rng.integers(len(kind))], number, PAUSES[number % len(PAUSES)])
    for jpeg in (baseline[0], several[0], baseline[0], several[1], baseline[1]):
        assert both(jpeg, 1).status == STATUS["OK"]


def test_what_the_file_before_has_sent_does_not_count():
    """The one before knows of its AC coefficients that nothing of them was sent."""
    dc, *ac = Scan((0, 1, 2), 0, 0), *(Scan((c,), 1, 63) for c in range(3))
    assert run(scripted(dc)).status == STATUS["TRUNCATED"]
    assert run(scripted(ac[0], dc, *ac[1:])).status == STATUS["CORRUPT_HEADER"]
    assert run(scripted(dc, *ac)).status == STATUS["OK"]
    assert run(scripted(Scan((0,), 0, 0), ac[0])).status == STATUS["TRUNCATED"]


# ---- Damaged files ----


@pytest.mark.parametrize("step", [19, pytest.param(1, marks=SLOW)])
@pytest.mark.parametrize("restart", [0, 2])
def test_file_cut_off_anywhere_is_reported_as_truncated(restart, step):
    image = random_image(np.random.default_rng(9), 33, 20, "4:2:0")
    jpeg = to_jpeg(image, scan_script.with_all(libjpeg_script(3), restart=restart))
    for length in range(2, len(jpeg), step):
        assert run(jpeg[:length], length, PAUSES[length % len(PAUSES)]).status == STATUS["TRUNCATED"]


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(260, 60, id="260"),
        *(pytest.param(3000, n, marks=SLOW, id=f"3,000 of {n}") for n in (11, 12)),
        *(pytest.param(6000, n, marks=SLOW, id=f"corpus {n}") for n in range(13, 16)),
    ],
)
def test_rtl_and_cpp_agree_on_every_damaged_file_of_several_scans(count, seed):
    seen = Counter()
    for number, file in enumerate(mutants(count, seed)):
        size = (WORKSPACE, WORKSPACE, WORKSPACE, 0, 4096)[number // len(PAUSES) % 5]
        seen[run(file, number, PAUSES[number % len(PAUSES)], workspace_bytes=size).status] += 1
    assert seen[STATUS["OK"]] > count // 10 and len(seen) >= 12, seen


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(50, 31, id="50"),
        *(pytest.param(1500, n, marks=SLOW, id=f"corpus {n}") for n in range(200, 208)),
    ],
)
def test_rtl_and_cpp_agree_on_every_damaged_file_of_one_scan_with_a_workspace(count, seed):
    for number, file in enumerate(test_decode.mutants(count, seed)):
        run(file, number, PAUSES[number % len(PAUSES)])
