import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.workload.lengths import TRANSLATION, Fixed
from headrace.sim.workload.traffic import deterministic, generate, generate_blocks, mmpp2, poisson, poisson_blocks


def test_poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process():
    gaps = np.diff(poisson(50.0, 200_000, seed=1))
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.01)
    assert gaps.std() == pytest.approx(1 / 50, rel=0.01)
    assert gaps.min() >= 0


def test_deterministic_arrivals_are_evenly_spaced():
    np.testing.assert_allclose(deterministic(4.0, 5), [0.25, 0.5, 0.75, 1.0, 1.25])


def test_a_modulated_process_has_the_mean_rate_and_the_burstiness_of_the_formula():
    """Mean rate: the phases' rates by their share of time. Variance of counts in a window T over their mean (index of
    dispersion), for equal dwell times d: 1 + 2 d var/mean (1 - (1 - exp(-a T)) / (a T)) with a = 2 / d, var and mean of
    the rate (Fischer and Meier-Hellstern 1993, Eq. 22)."""
    high, low, dwell, window = 180.0, 20.0, 1.0, 2.0
    times = mmpp2((high, low), (dwell, dwell), 1_500_000, seed=3)
    assert len(times) / times[-1] == pytest.approx(100, rel=0.02)
    counts = np.bincount((times / window).astype(int))[:-1]
    mean, variance, a = 100.0, 80.0**2, 2 / dwell
    expected = 1 + 2 * (variance / mean / a) * (1 - (1 - np.exp(-a * window)) / (a * window))
    assert counts.var() / counts.mean() == pytest.approx(expected, rel=0.06)


def test_a_modulated_process_with_equal_rates_is_poisson():
    gaps = np.diff(mmpp2((50.0, 50.0), (0.3, 2.0), 200_000, seed=1))
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.01) and gaps.std() == pytest.approx(1 / 50, rel=0.01)


def test_a_run_is_a_function_of_its_seed():
    for make in (lambda seed: poisson(10, 100, seed), lambda seed: mmpp2((10, 1), (1, 1), 100, seed)):
        assert (make(3) == make(3)).all()
        assert (make(3) != make(4)).any()


@given(rates=st.tuples(st.floats(0.1, 1e4), st.floats(0.1, 1e4)), count=st.integers(1, 500), seed=st.integers(0, 99))
def test_arrivals_are_as_many_as_asked_for_and_in_order(rates, count, seed):
    for times in (poisson(rates[0], count, seed), mmpp2(rates, (0.5, 1.5), count, seed)):
        assert times.shape == (count,) and times[0] >= 0 and (np.diff(times) >= 0).all()


@pytest.mark.parametrize(("rate", "count"), [(0, 1), (-1, 1), (float("nan"), 1), (float("inf"), 1), (1, 0)])
def test_impossible_traffic_is_refused(rate, count):
    for make in (lambda: poisson(rate, count, 0), lambda: deterministic(rate, count)):
        with pytest.raises(UsageError):
            make()
    with pytest.raises(UsageError):
        mmpp2((rate, 1.0), (1.0, 1.0), count, 0)


def test_phases_without_duration_are_refused():
    with pytest.raises(UsageError, match="phases last"):
        mmpp2((1.0, 2.0), (0.0, 1.0), 10, 0)


def test_generated_requests_have_their_models_lengths_and_deadlines():
    arrival = poisson(100, 3000, 0)
    load = generate(arrival, {"image": Fixed(), "text": TRANSLATION}, 0.5, 0)
    assert load.arrival == arrival.tolist()
    np.testing.assert_allclose(np.array(load.deadline) - arrival, 0.5)
    share = sum(model == "text" for model in load.models) / 3000
    assert share == pytest.approx(0.5, abs=0.04)
    image = [
        (i, o) for model, i, o in zip(load.models, load.input_len, load.output_len, strict=True) if model == "image"
    ]
    assert set(image) == {(1.0, 1)}
    assert load.output_len == generate(arrival, {"image": Fixed(), "text": TRANSLATION}, 0.5, 0).output_len
    assert load.output_len != generate(arrival, {"image": Fixed(), "text": TRANSLATION}, 0.5, 1).output_len
    assert generate(arrival, {"image": Fixed()}, math.inf, 0).deadline[0] == math.inf


@pytest.mark.parametrize("slo_s", [0.0, -1.0, math.nan])
def test_generated_requests_need_a_target_above_0(slo_s):
    with pytest.raises(UsageError, match="the target latency is"):
        generate(np.array([0.5]), {"image": Fixed()}, slo_s, 0)


@pytest.mark.parametrize("arrival", [[0.5, math.nan], [math.nan, 0.5], [math.inf], [-0.5], [1.0, 0.5]])
def test_requests_arrive_at_rising_times(arrival):
    with pytest.raises(UsageError, match="times of arrival"):
        generate(np.array(arrival), {"image": Fixed()}, 1.0, 0)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 9))
def test_each_model_has_its_share_of_the_requests(rates, seed):
    lengths = {f"model {number}": Fixed() for number in range(len(rates))}
    shares = [rate / sum(rates) for rate in rates]
    load = generate(poisson(100.0, 4000, seed), lengths, 0.1, seed, shares=shares)
    blocks = generate_blocks(poisson_blocks(100.0, 4000, seed, 900), lengths, 0.1, seed, shares)
    for models in (load.models, [model for block in blocks for model in block.models]):
        for model, share in zip(lengths, shares, strict=True):
            assert models.count(model) / 4000 == pytest.approx(share, abs=5 * math.sqrt(0.25 / 4000))
