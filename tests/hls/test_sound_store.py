"""sound_store x rtlsim: values to memory as float32, and of mel bands their exact sums behind them."""

import ctypes
from functools import cache

import numpy as np
import pytest
import rtlsim

from headrace.host.dpu.units.status import Status

BASE = 0x3_FFFF_F000  # the upper half of the address changes within the memory
SIZE = 1 << 20


class Settings(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64)]
    _fields_ += [
        (name, ctypes.c_uint32)
        for name in ("capacity", "bands", "mels", "left_out", "sound_status", "count", "latency", "stall", "seed")
    ]


class Outcome(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cycles", "status", "count", "bytes", "bus_error")]


@cache
def library() -> ctypes.CDLL:
    return rtlsim.load("sound_store")


def store(values, *, mels=0, left_out=0, status=0, capacity=None, offset=0, latency=60, stall=0, seed=1, size=SIZE):
    """`values`: (n,) samples, or with `mels` (T, mels), integers of 24 bits. Returns memory, 0xA5 where not written,
    and the outcome."""
    memory = np.full(SIZE, 0xA5, np.uint8)
    values = np.ascontiguousarray(values, np.int32)
    settings = Settings(
        BASE + offset,
        SIZE if capacity is None else capacity,
        bool(mels),
        mels,
        left_out,
        status,
        len(values),
        latency,
        stall,
        seed,
    )
    outcome = Outcome()
    fault = library().rtl_sound_store(
        ctypes.byref(settings),
        values.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(0 if status else values.size),
        memory.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint64(BASE),
        ctypes.c_uint64(size),
        ctypes.byref(outcome),
    )
    assert fault == 0, {1: "hangs", 2: "breaks the protocol", 3: "an assertion failed"}[fault]
    return memory, outcome


def expected(values, mels: int, left_out: int, offset: int):
    """Bytes of all memory by numpy, and of the output."""
    floats = (np.asarray(values, np.float64) * 2.0 ** (-18 if mels else -21)).astype("<f4").reshape(-1)
    output = np.concatenate([floats, np.zeros(-len(floats) % 4, "<f4")]).view(np.uint8)
    if mels:
        wide = np.asarray(values, np.int64)[: len(values) - left_out]
        output = np.concatenate([output, np.stack([wide.sum(0), (wide**2).sum(0)], 1).view(np.uint8).reshape(-1)])
    memory = np.full(SIZE, 0xA5, np.uint8)
    memory[offset : offset + len(output)] = output
    return memory, len(output) if mels else 4 * floats.size


def check(values, *, mels=0, left_out=0, offset=0, **options):
    memory, outcome = store(values, mels=mels, left_out=left_out, offset=offset, **options)
    whole, size = expected(values, mels, left_out, offset)
    assert (outcome.status, outcome.count, outcome.bytes) == (Status.OK, len(values), size)
    assert not outcome.bus_error and np.array_equal(memory, whole)
    return outcome


def noise(*shape: int, seed: int = 0):
    return np.random.default_rng([*shape, seed]).integers(-(1 << 23), 1 << 23, shape)


@pytest.mark.parametrize("stall", [0, 128])
@pytest.mark.parametrize("samples", [0, 1, 2, 3, 4, 5, 127, 1000])
def test_samples_are_exact_floats_with_zeros_behind_them(samples, stall):
    for offset in (0, 0xFF0):
        check(noise(samples), offset=offset, stall=stall, seed=offset)


@pytest.mark.parametrize("stall", [0, 128])
@pytest.mark.parametrize("mels", [4, 8, 80, 128])
@pytest.mark.parametrize("frames", [1, 2, 3, 17])
@pytest.mark.parametrize("left_out", [0, 1])
def test_bands_are_followed_by_their_sums(frames, mels, stall, left_out):
    """Of all frames, or of all but the last, which of one frame are none."""
    check(noise(frames, mels), mels=mels, left_out=left_out, stall=stall, offset=0x3F0)


def test_every_magnitude_is_exact():
    powers = [sign * (1 << shift) + delta for shift in range(23) for sign in (1, -1) for delta in (-1, 0, 1)]
    check(np.array([*powers, -(1 << 23), (1 << 23) - 1]))


@pytest.mark.parametrize("value", [-(1 << 23), (1 << 23) - 1, -1, 0])
def test_sums_of_the_largest_values_are_exact(value):
    check(np.full((2000, 4), value), mels=4)


@pytest.mark.slow
def test_sums_of_a_long_sound_are_exact():
    frames = SIZE // 16 - 5
    check(np.where(np.arange(4) % 2, -(1 << 23), (1 << 23) - 1) * np.ones((frames, 1), int), mels=4, latency=5)


def test_a_value_is_taken_a_clock():
    assert check(noise(10_000), latency=200).cycles <= 10_000 + 200 + 60
    assert check(noise(100, 80), mels=80, latency=200).cycles <= 8_080 + 200 + 110  # sums: a word a clock


@pytest.mark.parametrize("mels", [0, 8])
def test_what_does_not_fit_is_not_begun(mels):
    values = noise(20, 8) if mels else noise(23)
    size = 24 * 8 * 4 if mels else 92
    memory, outcome = store(values, mels=mels, capacity=size - 1, stall=40)
    assert (outcome.status, outcome.count, outcome.bytes) == (Status.BUFFER_TOO_SMALL, len(values), size)
    assert (memory == 0xA5).all()
    check(values, mels=mels, capacity=size)


def test_an_error_of_the_sound_goes_through_and_nothing_is_written():
    memory, outcome = store(noise(5), status=Status.RATE)
    assert (outcome.status, outcome.count, outcome.bytes) == (Status.RATE, 0, 0) and (memory == 0xA5).all()


@pytest.mark.parametrize("size", [0, 16, 2000])
def test_an_error_of_memory_is_told_and_all_is_taken(size):
    _, outcome = store(noise(900), size=size, stall=50)
    assert outcome.bus_error and outcome.status == Status.OK
    check(noise(900))


def test_random_sounds_and_memories_leave_nothing_behind():
    random = np.random.default_rng(5)
    for seed in range(60):
        mels = 4 * int(random.integers(0, 33))
        values = noise(int(random.integers(1, 30)), mels) if mels else noise(int(random.integers(0, 500)))
        check(
            values,
            mels=mels,
            left_out=seed % 2,
            offset=16 * int(random.integers(0, 600)),
            stall=int(random.integers(0, 230)),
            latency=int(random.integers(0, 300)),
            seed=seed,
        )
