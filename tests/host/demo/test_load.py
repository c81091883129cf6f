import pytest

from headrace.batching import Profile, ProfilePoint
from headrace.host.demo.options import DemoOptions
from headrace.host.demo.runs.load import (
    MAX_REQUESTS,
    MIN_REQUESTS,
    NPU_RPS,
    in_batches_rps,
    one_by_one_rps,
    run_rates,
    run_requests,
)


def profile(*rates, name="net"):
    """Return a profile with these rates (requests/s) at batch 1, 2, 4 and so on."""
    return Profile(name, 1, tuple(ProfilePoint(2**n, 2**n / rate, rate) for n, rate in enumerate(rates)))


def rates(profiles, dpu=50.0, cores=2, **given):
    inputs = [(profile, profile.typical_length) for profile in profiles]
    files_per_s = [{"cpu": 200.0, "dpu": dpu}] * len(profiles)
    options = DemoOptions(images=(), **given)
    return run_rates(options, one_by_one_rps(inputs), in_batches_rps(inputs), files_per_s, cores)


@pytest.mark.parametrize("knee", [120.0, 150.0, 220.0, 1000.0])
def test_policies_are_compared_at_more_than_serving_one_by_one_sustains_and_less_than_batches_do(knee):
    load = rates([profile(100.0, knee)])["beforehand"]
    assert 100 < load <= 0.85 * knee


def test_where_batches_bring_nothing_the_load_is_one_that_can_be_sustained():
    assert rates([profile(100.0, 101.0)])["beforehand"] == pytest.approx(85)


def test_preprocessors_share_a_load_that_the_slowest_sustains_with_the_network():
    loads = rates([profile(100.0, 200.0)])
    assert loads["cpu"] == loads["dpu"] == pytest.approx(0.6 * 50)  # 100 photos/s on two cores, and as many inferences
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
    assert [run_requests(DemoOptions(images=()), rate) for rate in (0.1, 100.0, 1e6)] == [
        MIN_REQUESTS,
        600,
        MAX_REQUESTS,
    ]
    assert run_requests(DemoOptions(images=(), requests=7), 100.0) == 7


def test_the_rates_that_the_workers_sustain_are_for_the_lengths_that_come():
    points = [
        ProfilePoint(batch, latency * length, batch / (latency * length), length)
        for length in (100.0, 200.0)
        for batch, latency in ((1, 0.001), (2, 0.0012))
    ]
    inputs = [(Profile("net", 1, tuple(points)), length) for length in (100.0, 200.0)]
    assert one_by_one_rps(inputs) == pytest.approx(1 / 0.15)
    assert in_batches_rps(inputs) == pytest.approx(1 / 0.09)
