"""audio_norm_cu, C++ and RTL: log-mel bands with their sums to a normalised tensor. Every case that runs on the RTL is
compared with the C++, all bytes of the output buffer included; the C++ with float64."""

import random
import struct
import subprocess

import cu_rtlsim
import numpy as np
import pytest
from norm_cu import (
    BY_FRAMES,
    FORMATS,
    PLACES,
    STATISTICS,
    STD_FLOOR,
    UNTOUCHED,
    contents,
    quantised,
    run_csim,
    run_rtlsim,
    statistics,
    tensor_bytes,
)

from headrace.host.dpu.reference.audio import normalize
from headrace.host.dpu.specs import NORMALIZE_OVER, AudioSpec
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import KernelFailed, KernelModel, MemoryModel
from headrace.sim.hardware.dpu.audio import norm_cycles

SLOW = pytest.mark.slow
# RMS errors against float64, in docs/explanation/exactness.md, too.
ERROR_FLOAT32 = 6e-8
ERROR_FLOAT16 = 2.5e-4


def speech(frames: int, mels: int, seed: int = 1) -> np.ndarray:
    """Log-mel values as of speech, (frames, mels): bands at -13 to -2, that swing by some 0.5 to 4, slowly."""
    rng = np.random.default_rng([seed, frames, mels])
    noise = rng.standard_normal((frames + 8, mels))
    slow = np.cumsum(noise, 0)[8:] - np.cumsum(noise, 0)[:-8]
    values = rng.uniform(-13, -2, mels) + rng.uniform(0.2, 1.4, mels) * slow + 0.3 * noise[8:]
    return quantised(np.clip(values, -16.6, 10))


def exact(q: np.ndarray, std_floor: int = STD_FLOOR, counted: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(frames, mels) to (mels, frames), in float64, and the divisors (mels, 1)."""
    values = q.T / 2.0**PLACES
    counted = q.shape[0] if counted is None else counted
    change = values - values[:, :counted].mean(1, keepdims=True)
    change[:, counted:] = 0
    divisor = np.sqrt(np.square(change).sum(1, keepdims=True) / max(1, counted - 1)) + std_floor / 2.0**40
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(divisor > 0, change / divisor, 0), divisor


def bound(q: np.ndarray, dtype: str, std_floor: int = STD_FLOOR, counted: int | None = None) -> np.ndarray:
    """What mel_normalize.hpp says of the difference to `exact`, and a little for float64."""
    expected, divisor = exact(q, std_floor, counted)
    parts = 5 * 2.0**-24 if dtype == "float32" else 2.0**-11 + 5 * 2.0**-24
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(expected) * (parts + 2.0**-40 / divisor) + 1.01 * 2.0**-27 / divisor
    return np.where(divisor > 0, error, 0) + (2.0**-25 if dtype == "float16" else 0)


def on_cpp_and_rtl(mel, frames, mels, *, behind: MemoryModel | None = None, rtl: dict | None = None, **settings):
    """Runs both and holds them to the same status, record and memory. Returns the C++'s result and the RTL's."""
    expected = run_csim(mel, frames, mels, **settings)
    done = run_rtlsim(mel, frames, mels, behind=behind, **(rtl or {}), **settings)
    assert (done.status, done.record) == (expected.status, expected.record)
    assert np.array_equal(done.memory, expected.memory)
    return expected, done


def check(q: np.ndarray, format: int, std_floor: int = STD_FLOOR, counted: int | None = None, **settings) -> np.ndarray:
    """The tensor (mels, frames), which both give, within the bound."""
    done, _ = on_cpp_and_rtl(
        contents(q, counted=counted), *q.shape, counted=counted, format=format, std_floor=std_floor, **settings
    )
    got = done.tensor(FORMATS[format])
    assert (np.abs(got - exact(q, std_floor, counted)[0]) <= bound(q, FORMATS[format], std_floor, counted)).all()
    return got


# ---- Values ----

SIZES = [1, 2, 3, 15, 16, 17, 100, 127, 128, 129, 1000, 3501]


@pytest.mark.quick(30)
@pytest.mark.parametrize("format", [0, 1], ids=FORMATS)
@pytest.mark.parametrize("mels", [4, 80, 128])
@pytest.mark.parametrize("frames", SIZES)
def test_bands_are_normalised_over_the_whole_input(frames, mels, format):
    q = speech(frames, mels)
    error = check(q, format) - exact(q)[0]
    assert np.sqrt(np.square(error).mean()) < (ERROR_FLOAT32 if format == 0 else ERROR_FLOAT16)


@pytest.mark.parametrize("format", [0, 1], ids=FORMATS)
@pytest.mark.parametrize(
    ("frames", "counted"), [(2, 1), (3, 2), (17, 16), (128, 127), (129, 128), (130, 129), (300, 77)]
)
def test_frames_that_do_not_count_are_zeros(frames, counted, format):
    got = check(speech(frames, 20), format, counted=counted)
    assert not got[:, counted:].any() and (counted == 1 or got[:, :counted].all(0).any())


@pytest.mark.parametrize("format", [0, 1], ids=FORMATS)
@pytest.mark.parametrize(
    ("frames", "mels"), [(1, 4), (2, 12), (3, 80), (127, 20), (128, 4), (129, 128), (300, 36), (1000, 8)]
)
def test_rows_of_frames_have_the_same_values(frames, mels, format):
    """Also with frames that do not count, and with one mean and factor for all bands."""
    mel = contents(speech(frames, mels))
    for counted, rule in (
        (frames, STATISTICS),
        (max(1, frames - 1), STATISTICS),
        (frames, (0, 1 << 20, 8 << 24 | 1 << 23)),
    ):
        settings = {"counted": counted, "rule": rule}
        expected = run_csim(mel, frames, mels, format=format, **settings).tensor(FORMATS[format])
        done, _ = on_cpp_and_rtl(mel, frames, mels, format=format | BY_FRAMES, **settings)
        assert np.array_equal(done.tensor(FORMATS[format], by_frames=True), expected)


@pytest.mark.parametrize("frames", [2, 3, 128, 300])
@pytest.mark.parametrize(("ddof", "variance_floor"), [(0, 0.0), (1, 6872 / 2**36), (0, 65535 / 2**36)])
def test_the_variance_is_over_as_many_frames_and_with_the_floor_that_the_rule_says(frames, ddof, variance_floor):
    q = speech(frames, 20)
    q[:, 0] = 7  # a band that never changes
    q[:, 1] = np.arange(frames) % 2  # and one whose deviation is the last place
    rule = statistics(ddof, variance_floor)
    done, _ = on_cpp_and_rtl(contents(q), *q.shape, std_floor=0, rule=rule)
    values = q.T / 2.0**PLACES
    change = values - values.mean(1, keepdims=True)
    divisor = np.sqrt(np.square(change).sum(1, keepdims=True) / (frames - ddof) + variance_floor)
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = np.where(divisor > 0, change / divisor, 0)
        error = np.abs(wanted) * (5 * 2.0**-24 + 2.0**-40 / divisor) + 1.01 * 2.0**-27 / divisor
    assert (np.abs(done.tensor("float32") - wanted) <= np.where(divisor > 0, error, 0)).all()


@pytest.mark.parametrize(("mels", "format"), [(4, 1), pytest.param(4, 0, marks=SLOW), pytest.param(128, 0, marks=SLOW)])
def test_the_longest_input(mels, format):
    check(speech(65535, mels), format)


@pytest.mark.parametrize("format", [0, 1], ids=FORMATS)
@pytest.mark.parametrize("rule", NORMALIZE_OVER)
def test_it_is_the_cpu_paths_normalisation(format, rule):
    q = speech(300, 80)
    spec = AudioSpec(dtype=FORMATS[format], normalize_over=rule)
    mel = np.ascontiguousarray((q.T / 2.0**PLACES).astype(np.float32))
    got = check(q, format, counted=spec.counted(300))
    assert np.abs(got - normalize(mel, spec).astype(np.float64)).max() < (3e-6 if format == 0 else 2.0**-8)


@pytest.mark.parametrize("format", [0, 1], ids=FORMATS)
@pytest.mark.parametrize("frames", [1, 2, 77, 700])
def test_bands_that_hardly_change_or_swing_from_end_to_end(frames, format):
    rng = np.random.default_rng(frames)
    ends = np.array([-(1 << 23), (1 << 23) - 1])
    q = speech(frames, 32)
    q[:, 0:4] = ends[[0, 1, 0, 1]] // [1, 1, 3, 5]  # constant
    q[:, 4:8] = -4_000_000 + np.rint(rng.standard_normal((frames, 4)) * 1e-4 * 2**PLACES)  # std 1e-4: 26 places
    q[:, 8:12] = 3_000_000 + rng.integers(0, 2, (frames, 4))
    q[:, 12:16] = ends[rng.integers(0, 2, (frames, 4))]
    q[:, 16] = ends[0]
    q[0, 16] = ends[1]  # a click
    q[:, 17] = 0
    q[-1, 17] = 1
    for std_floor in (STD_FLOOR, 0, 1, 0xFFFFFFFF):
        got = check(q, format, std_floor)
        assert not got[:4].any(), "what never changes is 0"
    if frames == 1:
        assert not got.any()


def test_halves_that_are_too_small_or_too_large_become_subnormal_zero_or_infinite():
    """The statistics, which are those of other values, say what to subtract and to divide by."""
    frames = 64
    q = np.tile(np.array([1, -1, 2, 3, 700, -(1 << 22), (1 << 23) - 1, 0])[:, None], (8, 8))
    spreads = np.array([0, 1, 40, 3000, 1 << 20, 1 << 22, (1 << 23) - 1, 1 << 18], np.uint64)
    mel = contents(q, sums=np.ones(8, np.int64), squares=spreads * spreads * np.uint64(frames))
    done, _ = on_cpp_and_rtl(mel, frames, 8, format=1)
    got = done.tensor("float16")
    variance = (float(frames**2) * spreads.astype(float) ** 2 - 1) / (frames * (frames - 1))
    divisor = np.sqrt(np.maximum(0, variance)) + STD_FLOOR / 2.0**22
    expected = (q.T - 1 / frames) / divisor[:, None]
    infinite, subnormal, zero = np.abs(expected) >= 65520, np.abs(expected) < 2.0**-14, np.abs(expected) < 2.0**-25
    assert infinite.any() and zero.any() and (subnormal & ~zero).any()
    assert np.array_equal(np.isinf(got), infinite) and not got[zero].any()
    near = np.maximum(np.abs(expected) * 2.0**-11, 2.0**-25) * 1.001
    assert (np.abs(got - expected) <= near)[~infinite].all()
    assert np.array_equal(np.signbit(got), np.signbit(expected))


@pytest.mark.parametrize("format", [0, 1], ids=FORMATS)
def test_to_nearest_and_ties_to_even(format):
    """A variance of 0 and a std_floor whose reciprocal is a power of two: results are exact before they are rounded."""
    rng = np.random.default_rng(3)
    frames, std_floor = 256, ((1 << 24) - 1) << 8
    sums = np.array([0, 0, 64, 1])  # means of 0, 1/4 and 1/256
    ties = np.array([2049, 2050, 2051, 2053, 4098, 4102, 4106, 65535, 65537, 1025, 1, 3])
    q = rng.integers(-(1 << 23), 1 << 23, (frames, 4))
    q[:, 1] = np.resize([*ties, *-ties], frames) << rng.integers(0, 7, frames)
    done, _ = on_cpp_and_rtl(contents(q, sums, np.zeros(4, np.uint64)), frames, 4, format=format, std_floor=std_floor)
    changes = (q.T - (sums / frames)[:, None]) * 2.0**-10  # fit float64
    expected = changes.astype(FORMATS[format])
    halfway = np.abs(changes - expected) == np.spacing(np.abs(expected)).astype(float) / 2
    assert halfway.sum() > 20
    assert np.array_equal(done.tensor(FORMATS[format]), expected.astype(float))


@pytest.mark.parametrize("std_floor", [1, 1 << 8, 1 << 31])
def test_a_divisor_that_is_a_power_of_two(std_floor):
    """Its reciprocal would need a bit more; the greatest of 24 bits stands for it. Means in 2^-8 use all bits."""
    q = np.random.default_rng(4).integers(-(1 << 23), 1 << 23, (256, 8))
    sums = np.arange(8)
    done, _ = on_cpp_and_rtl(contents(q, sums, np.zeros(8, np.uint64)), 256, 8, std_floor=std_floor)
    expected = (q.T - (sums / 256)[:, None]) * 2.0**22 / std_floor
    assert (np.abs(done.tensor("float32") - expected) <= np.abs(expected) * 2 * 2.0**-24).all()


# ---- Any contents ----


def odd_contents(rng: np.random.Generator, frames: int, mels: int) -> np.ndarray:
    """Of several kinds: any bits, infinities and NaNs, sums of other values, sums that no values have."""
    mel = contents(speech(frames, mels, int(rng.integers(1 << 30))))
    words, sums = mel[: 4 * frames * mels].view("<u4"), mel[4 * frames * mels :].view("<u8")
    kind = rng.integers(6)
    if kind in (1, 3):
        words[:] = rng.integers(0, 1 << 32, len(words), np.uint64)
    if kind == 2:
        special = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00001, 0x42000000, 0xC2000000, 0x41FFFFFF, 1, 0x36800000]
        words[:] = rng.choice(np.array(special, np.uint32), len(words))
    if kind == 3:
        sums[:] = rng.integers(0, 1 << 64, len(sums), np.uint64, endpoint=False)
    if kind == 4:
        special = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, frames << 23, (frames << 23) + 1, frames << 46]
        sums[:] = rng.choice(np.array(special, np.uint64), len(sums))
    if kind == 5:
        sums[:] >>= rng.integers(0, 64, len(sums)).astype(np.uint64)
    return mel


def odd_rule(rng: np.random.Generator) -> tuple[int, int, int]:
    """Return least, mean and scale: half of the time those of statistics, with any rule for the variance."""
    if rng.integers(2):
        return STATISTICS[0], int(rng.choice([0, 1 << 16, rng.integers(-(1 << 31), 1 << 31)])), 0
    least, mean = int(rng.integers(-(1 << 23), 1 << 23)), int(rng.integers(-(1 << 31), 1 << 31))
    return least, mean, int(rng.integers(1, 48)) << 24 | int(rng.integers(1 << 23, 1 << 24))


def odd_record(seed: int) -> tuple[np.ndarray, dict[str, int]]:
    """Contents and arguments, of which some are refused. The buffers fit the arguments that are not."""
    rng = np.random.default_rng([seed, 7])
    frames = int(rng.choice([1, 2, 3, rng.integers(4, 140), rng.integers(1, 400)]))
    mels = 4 * int(rng.integers(1, 33)) if frames < 150 else 4 * int(rng.integers(1, 4))
    format = int(rng.integers(4))
    mel = odd_contents(rng, frames, mels)
    needed = tensor_bytes(frames, mels, format)
    std_floor = int(rng.choice([0, 1, STD_FLOOR, STD_FLOOR, rng.integers(1 << 32), 0xFFFFFFFF]))
    settings = {
        "frames": frames,
        "counted": int(rng.choice([frames, max(1, frames - 1), rng.integers(1, frames + 1)])),
        "mels": mels,
        "format": format,
        "std_floor": std_floor,
        "rule": odd_rule(rng),
        "memory": needed + 64,
        "capacity": needed + int(rng.choice([0, 0, 0, 63, -1, -needed])),
    }
    if rng.random() < 0.1:
        name, value = random.Random(seed).choice(
            [
                ("frames", 0),
                ("frames", 65536),
                ("counted", 0),
                ("counted", frames + 1),
                ("mels", 0),
                ("mels", 2),
                ("mels", 132),
                ("mels", 1 << 31),
                ("format", 4),
                ("rule", (1 << 23, 0, 0)),
                ("rule", (-(1 << 23) - 1, 0, 0)),
                ("rule", (0, 0, 1 << 23)),
                ("rule", (0, 0, 4 << 24 | 0x7FFFFF)),
                ("rule", (0, 0, 48 << 24 | 0x800000)),
            ]
        )
        settings[name] = value
    return mel, settings


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=SLOW, id=f"from {n}") for n in range(100, 2000, 100))])
def test_cpp_and_rtl_agree_on_any_contents_and_arguments_within_a_bound_of_clocks(first):
    seen = set()
    for seed in range(first, first + 100):
        mel, settings = odd_record(seed)
        stalls = MemoryModel(stall=(0.05, 0.3, 0.6)[seed % 3], seed=seed) if seed % 2 else None
        most = (2 * len(mel) // 4 + 3_000) * (20 if stalls else 1)
        expected, _done = on_cpp_and_rtl(mel, behind=stalls, rtl={"max_cycles": most}, **settings)
        seen.add(expected.status)
    assert seen == {Status.OK, Status.BUFFER_TOO_SMALL, Status.BAD_ARGUMENT}


@pytest.mark.parametrize("count", [200, *(pytest.param(count, marks=SLOW) for count in (500, 2_000))])
def test_no_access_of_the_cpp_lies_outside_a_buffer_whatever_its_contents(count, csim_executable, tmp_path):
    program = csim_executable("audio_norm_cu")
    records = [odd_record(seed) for seed in range(count)]
    path = tmp_path / "corpus"
    with path.open("wb") as file:
        for mel, settings in records:
            names = ("frames", "counted", "mels", "capacity", "format", "std_floor")
            words = [settings[name] for name in names] + [value % 2**32 for value in settings["rule"]]
            file.write(struct.pack("<10I", len(mel), *words) + mel.tobytes())
    done = subprocess.run([program, path], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    statuses = [Status(int(line)) for line in done.stdout.splitlines()]
    assert len(statuses) == count and set(statuses) == {Status.OK, Status.BUFFER_TOO_SMALL, Status.BAD_ARGUMENT}


# ---- Arguments ----


@pytest.mark.parametrize(("frames", "mels", "format"), [(1, 4, 0), (33, 80, 0), (129, 12, 1)])
def test_a_buffer_that_is_too_small_is_left_alone_and_the_sizes_are_told(frames, mels, format):
    mel, needed = contents(speech(frames, mels)), tensor_bytes(frames, mels, format)
    for capacity in (0, needed - 16, needed - 1):
        done, _ = on_cpp_and_rtl(mel, frames, mels, format=format, capacity=capacity)
        assert done.status == Status.BUFFER_TOO_SMALL and (done.memory == UNTOUCHED).all()
        assert done.record == (frames, mels, needed // mels, needed, 0, 0, 0)
    assert on_cpp_and_rtl(mel, frames, mels, format=format, capacity=needed)[0].status == Status.OK


@pytest.mark.parametrize(
    "changed",
    [
        {"frames": 0},
        {"frames": 65536},
        {"frames": 0x80000004},
        {"counted": 0},
        {"counted": 9},
        {"counted": 0x80000004},
        {"counted": 0x10004},
        {"frames": 7, "counted": 8},
        {"mels": 0},
        {"mels": 81},
        {"mels": 82},
        {"mels": 132},
        {"mels": 256},
        {"mels": 0x80000004},
        {"format": 4},
        {"format": 0x80000000},
    ],
)
def test_arguments_out_of_range_run_nothing(changed):
    settings = {"frames": 8, "mels": 80, "format": 0, "memory": 4096} | changed
    done, rtl = on_cpp_and_rtl(contents(speech(8, 80)), **settings)
    assert done.status == Status.BAD_ARGUMENT and done.record == (0,) * 7
    assert (done.memory == UNTOUCHED).all() and rtl.cycles < 400


# ---- rtlsim only ----


@pytest.mark.parametrize("name", ["mel", "tensor", "result"])
def test_a_pointer_off_its_16_bytes_is_a_bad_argument(name):
    mel = contents(speech(9, 8))
    done = run_rtlsim(mel, 9, 8, addresses={name: cu_rtlsim.BANK + 8})
    assert done.status == Status.BAD_ARGUMENT and (done.memory == UNTOUCHED).all()
    on_cpp_and_rtl(mel, 9, 8)


@pytest.mark.parametrize("name", ["mel", "tensor", "result"])
def test_a_pointer_to_nowhere_ends_in_bus_error_and_the_next_run_is_right(name):
    mel = contents(speech(140, 8))
    done = run_rtlsim(mel, 140, 8, addresses={name: 0xDEAD_0000_0000})
    assert (
        done.status == Status.BUS_ERROR
        and done.record == ((140, 8, 560, 4480, 0, 0, 0), 7 * (0xA5A5A5A5,))[name == "result"]
    )
    on_cpp_and_rtl(mel, 140, 8)


@pytest.mark.parametrize("missing", ["statistics", "values"])
def test_mel_bands_that_run_out_of_memory_end_in_bus_error(missing):
    mel = contents(speech(140, 8))
    short = mel[:-16] if missing == "statistics" else mel[:4096]
    assert run_rtlsim(short, 140, 8).status == Status.BUS_ERROR
    on_cpp_and_rtl(mel, 140, 8)


@pytest.mark.parametrize("stagger", [0, 16, 0x800, 0xFF0])
@pytest.mark.parametrize("high", [0, 0x5555_5555_5555_5000, 0xAAAA_AAAA_AAAA_A000])
def test_buffers_may_begin_anywhere(stagger, high):
    for format in (0, 1):
        on_cpp_and_rtl(contents(speech(261, 20)), 261, 20, format=format, rtl={"stagger": stagger, "high": high})


@pytest.mark.parametrize(
    "behind",
    [MemoryModel(latency=1), MemoryModel(latency=1000), MemoryModel(bandwidth=0.05), MemoryModel(max_outstanding=1)]
    + [MemoryModel(stall=stall, seed=7) for stall in (0.1, 0.5, 0.9)],
    ids=str,
)
def test_slow_memory_costs_time_and_nothing_else(behind):
    for frames, format in ((300, 0), (13, 1)):
        on_cpp_and_rtl(contents(speech(frames, 12)), frames, 12, format=format, behind=behind)


@pytest.mark.parametrize("clocks", [10, 150, 250, 400, 700, 1_000, 1_400])
def test_a_reset_in_mid_run_leaves_nothing_behind(clocks):
    mel = contents(speech(500, 12))
    with pytest.raises(KernelFailed, match="did not finish within"):
        run_rtlsim(mel, 500, 12, max_cycles=clocks)
    on_cpp_and_rtl(mel, 500, 12)


def test_the_same_request_takes_the_same_clocks_again_and_after_reset():
    mel = contents(speech(200, 80))
    models = [KernelModel(cu_rtlsim.library("audio_norm_cu"), seed) for seed in (1, 2)]
    cycles = [[run_rtlsim(mel, 200, 80, model=model).cycles for _ in range(3)] for model in models]
    assert cycles[0] == cycles[1] and len(set(cycles[0])) == 1


@pytest.mark.quick(30)
@pytest.mark.parametrize("format", [0, 1], ids=FORMATS)
@pytest.mark.parametrize("mels", [4, 80, 128])
@pytest.mark.parametrize("frames", SIZES)
def test_a_request_takes_at_most_two_clocks_a_value_and_1600(frames, mels, format):
    """And few more than one for four values, once there are many."""
    done = run_rtlsim(contents(speech(frames, mels)), frames, mels, format=format)
    cycles, values = done.counters["cycles"], frames * mels
    assert cycles <= 2 * values + 1_600
    assert cycles <= 0.26 * values + 0.26 * mels * 128 + 8 * mels + 800
    assert done.counters["statistics"] <= 6 * mels + 326  # memory's latency, 120, among them
    assert 0 < done.counters["first_output"] <= done.counters["last_output"] < cycles
    assert abs(done.cycles - cycles) < 20


@pytest.mark.quick(40)
@pytest.mark.parametrize("latency", [1, 120, 300])
@pytest.mark.parametrize("format", [0, 1, 2, 3], ids=[*FORMATS, *(f"{each} by frames" for each in FORMATS)])
@pytest.mark.parametrize("mels", [4, 80])
@pytest.mark.parametrize("frames", [1, 2, 9, 33, 100, 128, 129, 140, 257, 1000, pytest.param(3501, marks=SLOW)])
def test_clocks_follow_the_model(frames, mels, format, latency):
    """Buffers begin where pages do, as XRT has them. How many frames count makes no difference."""
    half, by_frames = format & 1, bool(format & BY_FRAMES)
    behind, counted = MemoryModel(latency=latency), max(1, frames - half)
    mel = contents(speech(frames, mels), counted=counted)
    done = run_rtlsim(mel, frames, mels, counted=counted, format=format, behind=behind, stagger=0)
    expected = norm_cycles(frames, mels, element_bytes=4 >> half, by_frames=by_frames, latency=latency)
    assert done.counters["cycles"] == pytest.approx(expected, rel=0.01, abs=2)
