"""The FIR of the compute units on the CPU, checked against scipy's polyphase filter in float64."""

import itertools
import math

import numpy as np
import pytest
import scipy  # its parts are large, and load when they are used
from hypothesis import given
from hypothesis import strategies as st

from headrace.host.dpu.reference.resampling import TAP_ONE, by_fir, fixed_taps, has_fir, taps
from headrace.host.dpu.specs import RATES

BOUND = 2.0**-20  # of samples of -1 to 1: sums in float32
PAIRS = [pair for pair in itertools.permutations(RATES, 2)]


def scipys(samples, source, target):
    """Return the sums over the rounded taps, in float64."""
    up, down = math.lcm(source, target) // source, math.lcm(source, target) // target
    return scipy.signal.resample_poly(
        samples.astype(np.float64), up, down, window=fixed_taps(source, target) / TAP_ONE / up
    )


def noise(count, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, count).astype(np.float32)


@pytest.mark.parametrize("source", [rate for rate in RATES if rate != 16000])
def test_a_second_of_noise_is_scipys(source):
    samples = noise(source)
    ours, expected = by_fir(samples, source, 16000), scipys(samples, source, 16000)
    assert ours.dtype == np.float32 and ours.shape == expected.shape
    assert np.abs(ours - expected).max() < BOUND


@given(st.sampled_from(PAIRS), st.integers(0, 3000), st.integers(0, 1000))
def test_any_length_between_any_two_rates_is_scipys(pair, count, seed):
    samples = noise(count, seed)
    ours = by_fir(samples, *pair)
    assert ours.shape == (math.ceil(count * pair[1] / pair[0]),)
    if count:
        assert np.abs(ours - scipys(samples, *pair)).max() < 2 * BOUND  # going up, a float32 has few places to spare


def test_inputs_are_not_changed_and_the_same_rate_is_left_alone():
    samples = noise(500)
    kept = samples.copy()
    assert by_fir(samples, 16000, 16000) is samples
    by_fir(samples, 44100, 16000)
    assert np.array_equal(samples, kept)


def test_taps_are_rounded_to_24_bits():
    for rate in RATES:
        fixed = fixed_taps(rate, 16000)
        assert np.abs(fixed - taps(rate, 16000) * TAP_ONE).max() <= 0.5
        assert np.abs(fixed).max() < TAP_ONE or rate == 16000


def test_rates_without_a_short_filter_are_told():
    assert has_fir(44100, 16000) and has_fir(8000, 48000)
    assert not has_fir(44056, 16000) and not has_fir(16000, 12000)
