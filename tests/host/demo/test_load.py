import pytest

from headrace.batching import Profile, ProfilePoint
from headrace.host.demo.equality import Equality, Prepared
from headrace.host.demo.load import FEWEST, MOST, NPU_RPS, run_rates, run_requests
from headrace.host.demo.options import DemoOptions


def profile(*rates, name="net"):
    """Requests/s at batch 1, 2, 4 ..."""
    return Profile(name, 1, tuple(ProfilePoint(2**n, 2**n / rate, rate) for n, rate in enumerate(rates)))


def rates(profiles, dpu=50.0, cores=2, **given):
    prepared = Prepared((), (), (), {}, Equality(), None, {"cpu": 200.0, "dpu": dpu})
    return run_rates(DemoOptions(photos=(), **given), profiles, [prepared] * len(profiles), cores)


@pytest.mark.parametrize("knee", [120.0, 150.0, 220.0, 1000.0])
def test_policies_are_compared_at_more_than_serving_one_by_one_sustains_and_less_than_batches_do(knee):
    load = rates([profile(100.0, knee)])["beforehand"]
    assert 100 < load <= 0.85 * knee


def test_where_batches_bring_nothing_the_load_is_one_that_can_be_sustained():
    assert rates([profile(100.0, 101.0)])["beforehand"] == pytest.approx(85)


def test_preprocessors_share_a_load_that_the_slowest_sustains_beside_the_network():
    found = rates([profile(100.0, 200.0)])
    assert found["cpu"] == found["dpu"] == pytest.approx(0.6 * 50)  # 100 photos/s on two cores, and as many inferences
    assert rates([profile(100.0, 200.0)], preprocessors=("cpu",))["cpu"] == pytest.approx(0.6 * 80)


def test_a_dpu_that_takes_none_of_the_photos_does_as_many_as_the_cpu_does():
    assert rates([profile(100.0, 200.0)], dpu=0.0)["dpu"] == pytest.approx(0.6 * 80)


def test_two_networks_sustain_what_their_mean_times_allow():
    both = [profile(100.0, 400.0, name="a"), profile(300.0, 1200.0, name="b")]
    assert rates(both, models=("a", "b"))["beforehand"] == pytest.approx((150 * 600) ** 0.5)


def test_simulated_npus_get_no_more_than_this_process_can_send():
    assert set(rates([profile(5e3, 2e4)], dpu=5e3, npus=1, preprocessors=("beforehand", "dpu")).values()) == {NPU_RPS}


def test_a_rate_of_the_users_is_every_runs():
    assert rates([profile(100.0, 200.0)], rate_rps=7.0) == {"beforehand": 7.0, "cpu": 7.0, "dpu": 7.0}


def test_a_run_lasts_a_few_seconds_unless_told():
    assert [run_requests(DemoOptions(photos=()), rate) for rate in (0.1, 100.0, 1e6)] == [FEWEST, 600, MOST]
    assert run_requests(DemoOptions(photos=(), requests=7), 100.0) == 7
