"""store x rtlsim: samples to bytes in memory as numpy lays them out, and not one byte elsewhere."""

import ctypes
from functools import cache

import numpy as np
import pytest
import rtlsim

from headrace.host.dpu.units.status import Status

BASE = 0x3_FFFF_F000  # the upper half of the address changes within the memory
SIZE = 1 << 20
UNIT = {"word_bytes": 16}
WIDTHS = {"float32": 2, "float16": 1, "int8": 0}  # log2 of the bytes


class Settings(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("width", "height", "frame_status", "end_status")]
    _fields_ += [(name, ctypes.c_uint64) for name in ("pixels", "address")]
    _fields_ += [
        (name, ctypes.c_uint32) for name in ("capacity", "planar", "shift", "latency", "stall", "seed", "eager")
    ]


class Outcome(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "cycles",
            "status",
            "width",
            "height",
            "bytes",
            "bus_error",
            "taken_by",
            "bursts",
            "most_waiting",
        )
    ]


@cache
def library(word_bytes: int) -> ctypes.CDLL:
    return rtlsim.load("store", {"Bytes": word_bytes} if word_bytes != 16 else {})


@pytest.fixture(params=(16, 32), ids=lambda word: f"words of {word}", autouse=True)
def word_bytes(request, monkeypatch) -> int:
    """Bytes of a word of the unit that `store` runs."""
    monkeypatch.setitem(UNIT, "word_bytes", request.param)
    return request.param


def store(
    samples,
    *,
    planar=True,
    shift=2,
    offset=0,
    capacity=0xFFFFFFFF,
    given=None,
    frame_status=0,
    end_status=0,
    latency=60,
    stall=0,
    seed=1,
    eager=False,
    size=SIZE,
    shape=None,
    base=BASE,
):
    """`samples`: (height, width, 3) of 32-bit words. Returns memory, 0xA5 where not written, and the outcome."""
    height, width = shape or samples.shape[:2]
    samples = np.ascontiguousarray(samples, np.uint32)
    memory = np.full(SIZE, 0xA5, np.uint8)
    pixels = height * width if given is None else given
    settings = Settings(
        width,
        height,
        frame_status,
        end_status,
        pixels,
        base + offset,
        capacity,
        planar,
        shift,
        latency,
        stall,
        seed,
        eager,
    )
    outcome = Outcome()
    fault = library(UNIT["word_bytes"]).rtl_store(
        ctypes.byref(settings),
        samples.ctypes.data_as(ctypes.c_void_p),
        memory.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(base),
        ctypes.c_uint64(size),
        ctypes.byref(outcome),
    )
    assert fault == 0, {1: "hangs", 2: "breaks the protocol", 3: "an assertion failed"}[fault]
    return memory, outcome


def noise(height: int, width: int, seed: int = 0):
    return np.random.default_rng([height, width, seed]).integers(0, 1 << 32, (height, width, 3), np.uint32)


def packed(samples, planar: bool, shift: int):
    """The tensor as numpy has it: (3, H, W) or (H, W, 3) of the samples' low bytes."""
    elements = (samples & np.uint32((1 << (8 << shift)) - 1)).astype(f"<u{1 << shift}")
    return np.ascontiguousarray(elements.transpose(2, 0, 1) if planar else elements).reshape(-1).view(np.uint8)


def check(samples, planar: bool, shift: int, offset: int = 0, **options):
    memory, outcome = store(samples, planar=planar, shift=shift, offset=offset, **options)
    expected = np.full(SIZE, 0xA5, np.uint8)
    tensor = packed(samples, planar, shift)
    expected[offset : offset + tensor.size] = tensor
    assert outcome.status == Status.OK and outcome.bytes == tensor.size and not outcome.bus_error
    assert (outcome.width, outcome.height) == (samples.shape[1], samples.shape[0])
    assert np.array_equal(memory, expected)
    return outcome


@pytest.mark.parametrize("stall", [0, 128])
@pytest.mark.parametrize(("planar", "shift"), [(True, 2), (True, 1), (True, 0), (False, 0)])
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (3, 5), (7, 7), (9, 13), (16, 16), (17, 33), (64, 48)])
def test_frames_of_any_size_are_packed_without_gaps(size, planar, shift, stall):
    for offset in (0, 0xFF0, 0x3D0):
        check(noise(*size), planar, shift, offset, stall=stall, seed=offset)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_random_frames_and_memories_leave_nothing_behind(dtype):
    random = np.random.default_rng(WIDTHS[dtype])
    for seed in range(120):
        samples = noise(*random.integers(1, 60, 2), seed)
        planar = dtype != "int8" or bool(seed % 2)
        offset = 16 * int(random.integers(0, 600))
        stall, latency = int(random.integers(0, 230)), int(random.integers(0, 300))
        check(
            samples,
            planar,
            WIDTHS[dtype],
            offset,
            stall=stall,
            latency=latency,
            seed=seed,
            eager=bool(seed & 2),
            base=int(random.integers(0, 1 << 44)) << 20,
        )


@pytest.mark.parametrize("latency", [100, 200])
def test_a_cropped_row_is_taken_at_two_pixels_a_clock(latency, word_bytes):
    """18 rows of 224 float32 pixels without a pause: what the FIFOs are sized for, as the crop gives them in bursts."""
    samples = noise(18, 224)
    outcome = check(samples, True, 2, latency=latency, eager=True)
    assert outcome.taken_by <= 18 * 112 + 20
    assert outcome.cycles <= clocks_for(18, word_bytes) + 400 + latency


@pytest.mark.parametrize(("planar", "shift"), [(True, 1), (True, 0), (False, 0)])
def test_narrower_samples_are_always_taken_at_two_pixels_a_clock(planar, shift):
    outcome = check(noise(200, 224), planar, shift, latency=120, eager=True)
    assert outcome.taken_by <= 200 * 112 + 20


def clocks_for(rows: int, word_bytes: int) -> int:
    """Clocks for rows of 224 pixels of three float32: two pixels a clock in, a word a clock out."""
    return max(rows * 224 // 2, 3 * 4 * rows * 224 // word_bytes)


def test_memory_gets_a_word_a_clock_when_the_samples_ask_for_more(word_bytes):
    outcome = check(noise(224, 224), True, 2, latency=150, eager=True)
    assert outcome.cycles <= clocks_for(224, word_bytes) * 1.03 + 400


def test_no_more_bursts_wait_for_their_response_than_can_be_counted():
    """A memory that is slow to answer: 63 wait, the 64th is not issued before the first is answered."""
    outcome = check(noise(64, 64), True, 2, latency=5000)
    assert outcome.bursts == 96 and outcome.most_waiting == 63


@pytest.mark.parametrize("stall", [0, 128])
def test_a_tensor_beyond_its_capacity_is_not_begun(stall):
    samples = noise(20, 30)
    memory, outcome = store(samples, capacity=20 * 30 * 12 - 1, stall=stall)
    assert outcome.status == Status.BUFFER_TOO_SMALL and outcome.bytes == 20 * 30 * 12
    assert (outcome.width, outcome.height) == (30, 20) and (memory == 0xA5).all()
    check(samples, True, 2, capacity=20 * 30 * 12, stall=stall)


def test_sizes_beyond_32_bits_are_told():
    _, outcome = store(noise(1, 9), shape=(65535, 65535), given=9)
    assert outcome.status == Status.BUFFER_TOO_SMALL and outcome.bytes == 65535 * 65535 * 12


def test_an_error_of_the_frame_goes_through_and_nothing_is_written():
    memory, outcome = store(noise(3, 3), frame_status=Status.CROP_OUTSIDE)
    assert outcome.status == Status.CROP_OUTSIDE
    assert (outcome.width, outcome.height, outcome.bytes) == (0, 0, 0) and (memory == 0xA5).all()


@pytest.mark.parametrize("given", [0, 1, 5, 30, 31, 450])
@pytest.mark.parametrize(("planar", "shift"), [(True, 2), (True, 0), (False, 0)])
def test_pixels_before_an_error_are_written(given, planar, shift):
    samples = noise(20, 30)
    memory, outcome = store(
        samples, planar=planar, shift=shift, given=given, end_status=Status.CORRUPT_HUFFMAN, stall=60
    )
    assert outcome.status == Status.CORRUPT_HUFFMAN and (outcome.width, outcome.height) == (30, 20)
    elements = samples.reshape(600, 3)[:given].reshape(1, given, 3)
    expected = np.full(SIZE, 0xA5, np.uint8)
    bytes_of_plane = 600 << shift
    for plane, begin in enumerate(range(0, 3 * bytes_of_plane, bytes_of_plane) if planar else (None,)):
        part = packed(elements, True, shift).reshape(3, -1)[plane] if planar else packed(elements, False, shift)
        begin = begin or 0
        expected[begin : begin + part.size] = part
    assert np.array_equal(memory, expected)


def test_an_error_beats_too_small_a_buffer():
    _, outcome = store(noise(20, 30), capacity=100, given=60, end_status=Status.TRUNCATED)
    assert outcome.status == Status.TRUNCATED and outcome.bytes == 20 * 30 * 12


@pytest.mark.parametrize("size", [0, 16, 5000])
def test_an_error_of_memory_is_told_and_all_is_taken(size):
    samples = noise(40, 40)
    _, outcome = store(samples, size=size, stall=50)
    assert outcome.bus_error and outcome.status == Status.OK
    check(samples, True, 2)
