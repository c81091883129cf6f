"""The program of the mel filterbank gives the filterbank's sums when it runs as the unit runs it."""

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.host.dpu.reference.audio import filterbank
from headrace.host.dpu.specs import AudioSpec
from headrace.host.dpu.units.audio_tables import FRAME_STEPS, PROGRAM_STEPS, WEIGHT_SCALE, filter_program, program_of


def run(program, powers, n_mels):
    """Run the program in integers, as the docstring of `filter_program` says."""
    lanes = [[0, 0, []], [0, 0, []]]  # the sums of both filters, and what was emitted
    at = 1
    for row in program.tolist():
        for lane, entry, power in zip(lanes, row, (powers[at], powers[256 - at]), strict=True):
            lane[0] += (entry & 0xFFFFFF) * power
            lane[1] += (entry >> 24 & 0xFFFFFF) * power
            if entry >> 48 & 1:
                lane[2].append(lane[0])
                lane[0], lane[1] = lane[1], 0
        at += row[0] >> 49 & 1
        if row[0] >> 50 & 1:
            break
    else:
        pytest.fail("no step is the last one")
    up, down = lanes[0][2], lanes[1][2]
    assert max(len(up), len(down)) <= n_mels <= len(up) + len(down)
    return np.array(up + [0] * (n_mels - len(up))) + np.array([0] * (n_mels - len(down)) + down[::-1])


@pytest.mark.parametrize("n_mels", range(4, 129, 4))
def test_it_computes_the_filterbank_within_a_frames_clocks(n_mels):
    spec = AudioSpec(n_mels=n_mels)
    program = filter_program(spec)
    assert program.shape == (PROGRAM_STEPS, 2) and program.dtype == np.uint64
    assert np.flatnonzero(program.any(1))[-1] < FRAME_STEPS
    powers = np.random.default_rng(n_mels).integers(0, 2**32, 257).tolist()
    weights = np.rint(filterbank(spec).astype(np.float64) * WEIGHT_SCALE).astype(np.int64)
    assert run(program, powers, n_mels).tolist() == [int(sum(row * powers)) for row in weights.astype(object)]


@given(st.integers(2, 60), st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.5, 0.9]))
def test_it_computes_any_filterbank_of_neighbours(n_mels, seed, density):
    """Some filters have no bin, in any place, and some bins have no filter."""
    random = np.random.default_rng(seed)
    lower = np.sort(random.integers(0, n_mels - 1, 255))
    weights = np.zeros((n_mels, 257), np.float32)
    for filters in (lower, lower + 1):
        weights[filters, np.arange(1, 256)] = random.integers(1, 256, 255) / 2**20 * (random.random(255) < density)
    powers = random.integers(0, 1000, 257)
    wanted = (weights.astype(np.float64) * WEIGHT_SCALE).astype(np.int64) @ powers
    try:
        program = program_of(weights)
    except UsageError as error:  # sparse filters may take a step more than a frame has clocks
        assert f"the DPU has {FRAME_STEPS}" in str(error) and density < 0.5
        reject()
    assert run(program, powers.tolist(), n_mels).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"n_mels": 6}, "n_mels is 6"),
        ({"n_mels": 132}, "n_mels is 132"),
        ({"n_fft": 1024}, "16000, 1024"),
        ({"window": 320}, "320"),
        ({"hop": 80}, "80"),
        ({"rate": 22050}, "22050"),
    ],
)
def test_what_the_unit_cannot_do_is_refused(settings, told):
    with pytest.raises(UsageError, match=told):
        filter_program(AudioSpec(**settings))


def test_a_filterbank_that_does_not_fit_is_refused():
    for told, filter, at, weight in (
        ("0 Hz", 0, 0, 0.01),
        ("half the rate", 3, 256, 0.01),
        ("2\\^-4", 2, 100, 0.0625),
        ("below 0", 2, 100, -0.01),
        ("neighbours", 3, 1, 0.01),
    ):
        weights = np.zeros((4, 257), np.float32)
        weights[0, 1:3] = weights[1, 3:200] = 1e-4
        weights[filter, at] = weight
        with pytest.raises(UsageError, match=told):
            program_of(weights)
    crowded = np.zeros((120, 257), np.float32)
    crowded[np.arange(0, 120, 2), np.arange(1, 61)] = 0.01  # every other filter empty: two steps a bin
    with pytest.raises(UsageError, match="steps a frame; the DPU has 160"):
        program_of(crowded)
