import pytest

from headrace.batching import Profile, ProfilePoint
from headrace.host.demo.options import DemoOptions
from headrace.host.demo.runs.load import (
    HEAVY,
    MAX_REQUESTS,
    MIN_REQUESTS,
    MIN_SLO_S,
    NPU_RPS,
    Capacity,
    run_rates,
    run_requests,
    slo_s,
)


def profile(*rates, name="net"):
    """Return a profile with these rates (requests/s) at batch 1, 2, 4 and so on."""
    return Profile(name, 1, tuple(ProfilePoint(2**n, 2**n / rate, rate) for n, rate in enumerate(rates)))


def capacity(*profiles):
    return Capacity.of((profile, profile.typical_length) for profile in profiles)


def rates(profiles, dpu=50.0, cores=2, from_files=None, **given):
    takers = from_files or profiles
    files_per_s = [{"cpu": 200.0, "dpu": dpu}] * len(takers)
    options = DemoOptions(images=(), **{"preprocessors": ("beforehand", "cpu", "dpu")} | given)
    return run_rates(options, capacity(*profiles), capacity(*takers), files_per_s, cores)


@pytest.mark.parametrize("knee", [120.0, 150.0, 220.0, 1000.0])
def test_policies_are_compared_near_what_the_workers_sustain_in_batches_of_the_knee(knee):
    load = rates([profile(100.0, knee)])["beforehand"]
    assert load == pytest.approx(0.85 * knee) and (load > 100) == (knee > 118)


def test_the_load_follows_the_profile_and_not_the_machine():
    slow, fast = (rates([profile(10.0 * speed, 25.0 * speed)])["beforehand"] for speed in (1, 7))
    assert fast == pytest.approx(7 * slow)


def test_preprocessors_share_a_load_that_the_slowest_sustains_with_the_network():
    loads = rates([profile(100.0, 200.0)])
    assert loads["cpu"] == loads["dpu"] == pytest.approx(0.6 * 50)  # 100 photos/s on two cores, and as many inferences
    assert rates([profile(100.0, 200.0)], preprocessors=("cpu",))["cpu"] == pytest.approx(0.6 * 80)


def test_runs_from_files_have_the_load_of_the_networks_that_take_files():
    loads = rates([profile(100.0, 200.0)], from_files=[profile(25.0, 30.0, name="large")], file_models=("large",))
    assert loads["beforehand"] == pytest.approx(HEAVY * 200) and loads["dpu"] == pytest.approx(0.6 * 20)


def test_a_dpu_that_takes_none_of_the_photos_does_as_many_as_the_cpu_does():
    assert rates([profile(100.0, 200.0)], dpu=0.0)["dpu"] == pytest.approx(0.6 * 80)


def test_two_networks_sustain_what_their_mean_times_allow():
    both = [profile(100.0, 400.0, name="a"), profile(300.0, 1200.0, name="b")]
    assert capacity(*both).one_by_one_rps == pytest.approx(150)
    assert rates(both, models=("a", "b"))["beforehand"] == pytest.approx(HEAVY * 600)


def test_simulated_npus_get_no_more_than_this_process_can_send():
    assert set(rates([profile(5e3, 2e4)], dpu=5e3, npus=1, preprocessors=("beforehand", "dpu")).values()) == {NPU_RPS}


def test_a_rate_of_the_users_is_every_runs():
    assert rates([profile(100.0, 200.0)], rate_rps=7.0) == {"beforehand": 7.0, "cpu": 7.0, "dpu": 7.0}


def test_the_target_is_four_batches_of_the_slowest_networks_knee_unless_told():
    options = DemoOptions(images=())
    both = capacity(profile(100.0, 400.0), profile(10.0, 20.0, name="slow"))  # knees of 5 and 100 ms
    assert slo_s(options, both) == pytest.approx(0.4)
    assert slo_s(options, capacity(profile(1e4, 4e4))) == MIN_SLO_S
    assert slo_s(DemoOptions(images=(), slo_s=0.05), both) == 0.05


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
    found = Capacity.of((Profile("net", 1, tuple(points)), length) for length in (100.0, 200.0))
    assert (found.one_by_one_rps, found.in_batches_rps, found.knee_s) == pytest.approx((1 / 0.15, 1 / 0.09, 0.24))
