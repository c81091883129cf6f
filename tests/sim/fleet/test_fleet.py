"""Test runs of a fleet: it is like one server where it is one, loses nothing whatever dies, and scales by its rule."""

import dataclasses
import math
import subprocess
import sys

import pytest
from exponential import NET, TIMES, arrivals, fleet_run
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.batching import SerialBatching, UsageError
from headrace.sim.fleet.routers import ROUTERS
from headrace.sim.fleet.settings import Autoscale, Delay, Failure, Fleet, parse_failures
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
from headrace.sim.simulation import simulate

DPU = {"accelerator": "a100-40gb", "preprocess": "dpu:4", "model": "swin_t", "rate_rps": 3000.0}


def without_clock(result):
    return {key: value for key, value in result.items() if key not in ("wall_s", "fleet")}


@pytest.mark.quick(15)
@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("policy", ["lazy", "graph", "serial", "smdp", "preba", "cellular"])
def test_one_server_behind_a_router_is_that_server(router, policy):
    cells = {"accelerator": "v100", "model": "lstm", "rate_rps": 500.0} if policy == "cellular" else {}
    scenario = Scenario.of(**{"policy": policy, "requests": 2000, "stream": True, **cells})
    alone = run_scenario(scenario)[0].result
    routed = run_scenario(scenario.having(servers=1, router=router))[0].result
    assert without_clock(routed) == without_clock(alone)


def test_each_server_has_its_preprocessing():
    scenario = Scenario.of(policy="preba", requests=5000, stream=True, **DPU)
    alone = run_scenario(scenario)[0].result
    routed = run_scenario(scenario.having(servers=1))[0].result
    for key in ("latency_ms", "queue_ms", "preprocess_ms", "batch_size_mean", "utilization"):
        assert routed[key] == pytest.approx(alone[key]), key
    assert routed["preprocess_utilization"] == pytest.approx(alone["preprocess_utilization"])
    four = run_scenario(scenario.having(servers=4, rate_rps=12_000.0, requests=20_000))[0].result
    assert four["finished"] == 20_000
    assert four["preprocess_utilization"] == pytest.approx(alone["preprocess_utilization"], rel=0.05)


def test_percentiles_are_within_three_in_a_thousand_of_the_exact_ones():
    come = arrivals(0.8, 20_000)
    exact = simulate(SerialBatching([NET]), come, TIMES, 1).result["latency_ms"]
    found = fleet_run(Fleet(1, "random"), 0.8, 20_000).result["latency_ms"]
    assert found == pytest.approx(exact, rel=3e-3)
    assert found["max"] == exact["max"]


def test_a_run_is_a_function_of_its_seed():
    fleet = Fleet(5, "power-of-two", Delay(0.1, 0.5), mtbf_s=50.0, mttr_s=5.0)
    one, same, other = (fleet_run(fleet, 3.0, 2000, seed).result for seed in (1, 1, 2))
    assert {**one, "wall_s": 0} == {**same, "wall_s": 0}
    assert one["latency_ms"] != other["latency_ms"]


def test_the_network_delays_each_way():
    alone = fleet_run(Fleet(1, "random"), 0.1, 500).result
    far = fleet_run(Fleet(1, "random", Delay(0.25)), 0.1, 500).result
    assert far["latency_ms"]["mean"] == pytest.approx(alone["latency_ms"]["mean"] + 500)
    assert far["queue_ms"] == pytest.approx(alone["queue_ms"])


def test_a_lognormal_delay_has_its_median_and_its_mean():
    drawn = sorted(map(lambda draw: draw(), [Delay(0.002, 0.5).sampler(3)] * 20_001))
    assert drawn[10_000] == pytest.approx(0.002, rel=0.02)
    assert sum(drawn) / len(drawn) == pytest.approx(0.002 * math.exp(0.5**2 / 2), rel=0.02)


@pytest.mark.parametrize("lost", ["reroute", "fail"])
def test_what_a_dying_server_has_goes_to_another_or_has_failed(lost):
    fleet = Fleet(2, "round-robin", failures=(Failure(0, 50.0, 10.0),), lost=lost)
    result = fleet_run(fleet, 1.6, 500).result
    assert result["fleet"]["failures"] == 1
    assert result["finished"] + result["failed"] == 500
    assert (result["failed"] > 0) == (lost == "fail")
    assert (result["fleet"]["rerouted"] > 0) == (lost == "reroute")


def test_what_finds_no_server_up_has_failed():
    come = arrivals(1.0, 200).arrival
    down = sum(20.0 <= at < 60.0 for at in come)
    result = fleet_run(Fleet(1, "join-idle", failures=parse_failures("0@20:40"), lost="fail"), 1.0, 200).result
    assert down <= result["failed"] <= down + 30  # with those that it had
    assert result["finished"] == 200 - result["failed"]


def test_a_server_that_is_down_costs_no_hours_and_comes_back():
    span_s = arrivals(1.0, 1000).arrival[-1]
    hours = [
        fleet_run(Fleet(2, "least-outstanding", failures=failures), 1.0, 1000).result["fleet"]["server_hours"]
        for failures in ((), (Failure(1, 100.0, 300.0), Failure(1, 200.0, 500.0)))  # it is dead at the second
    ]
    assert hours[0] == pytest.approx(2 * span_s / 3600, rel=0.02)
    assert hours[0] - hours[1] == pytest.approx(300 / 3600, rel=0.1)


FAILURES = st.builds(Failure, st.integers(0, 5), st.floats(0, 60), st.floats(0.1, 20))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ROUTERS),
    st.integers(1, 5),
    st.sampled_from((Delay(), Delay(0.3), Delay(0.3, 1.0))),
    st.lists(st.builds(Failure, st.integers(0, 0), st.floats(0, 60), st.floats(0.1, 20)), max_size=3),
    st.sampled_from((None, 5.0, 30.0)),
    st.sampled_from(("reroute", "fail")),
    st.integers(0, 1000),
)
def test_nothing_is_lost_whatever_dies(router, servers, delay, failures, mtbf_s, lost, seed):
    mttr_s = None if mtbf_s is None else 3.0
    fleet = Fleet(servers, router, delay, tuple(failures), mtbf_s, mttr_s, lost)
    done = fleet_run(fleet, 0.7 * servers, 120, seed)
    assert done.outcome.ledger.in_flight == 0
    assert done.result["finished"] + done.result["failed"] == done.result["requests"] == 120
    if lost == "reroute" and not failures and mtbf_s is None:
        assert done.result["failed"] == 0


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(ROUTERS),
    st.integers(1, 3),
    st.floats(0.5, 4),
    st.floats(0, 10),
    st.floats(0, 20),
    st.sampled_from((Delay(), Delay(0.3))),
    st.lists(FAILURES, max_size=4),
    st.sampled_from((None, 5.0, 30.0)),
    st.integers(0, 1000),
)
def test_nothing_is_lost_as_servers_start_stop_and_die(
    router, least, target, start_s, cooldown_s, delay, failures, mtbf_s, seed
):
    mttr_s = None if mtbf_s is None else 3.0
    scale = Autoscale(least, target, start_s, cooldown_s)
    done = fleet_run(Fleet(6, router, delay, tuple(failures), mtbf_s, mttr_s, autoscale=scale), 2.0, 150, seed)
    assert done.outcome.ledger.in_flight == 0
    assert done.result["finished"] + done.result["failed"] == 150
    if not failures and mtbf_s is None:
        assert done.result["failed"] == 0


def test_another_server_starts_when_one_dies():
    """One of three servers is to run, and server 0 begins."""
    come = arrivals(0.2, 100).arrival

    def result(failures, start_s=20.0):
        fleet = Fleet(3, "random", failures=parse_failures(failures), autoscale=Autoscale(1, 1000.0, start_s, 0.0))
        return fleet_run(fleet, 0.2, 100).result

    def between(begin_s, end_s):
        return sum(begin_s <= at < end_s for at in come)

    one = result("0@100:20")  # server 1 serves from 120 on, and server 0, which is back then, stays off
    assert between(100, 120) <= one["failed"] <= between(100, 120) + 2  # with those that it had
    assert one["fleet"]["server_hours"] * 3600 == pytest.approx(come[-1] - come[0], abs=5)
    assert one["fleet"]["failures"] == result("0@100:20,0@150:1")["fleet"]["failures"] == 1
    assert result("0@100:20,1@150:1")["fleet"]["failures"] == 2
    # One that dies while it starts does not serve when it would have, though it is back: server 2 does, from 130 on.
    assert result("0@100:900,1@110:1")["failed"] - one["failed"] == between(120, 130) > 0
    # All dead: who is back first, at 130, is started at once.
    assert result("0@100:900,1@101:900,2@102:28")["failed"] - one["failed"] == between(120, 150) > 0
    assert result("0@100:1", start_s=1e9)["finished"] == between(0, 100) - (one["failed"] - between(100, 120))


def test_servers_die_as_often_as_they_are_said_to_while_they_run():
    fleet = Fleet(10, "random", mtbf_s=20.0, mttr_s=5.0)
    span_s = arrivals(5.0, 20_000).arrival[-1]
    assert fleet_run(fleet, 5.0, 20_000).result["fleet"]["failures"] == pytest.approx(10 * span_s / 25, rel=0.05)
    # Of these, two run until one dies, and another takes its place at once.
    scaled = dataclasses.replace(fleet, autoscale=Autoscale(2, 1000.0, 0.0, 0.0))
    assert fleet_run(scaled, 0.5, 2000).result["fleet"]["failures"] == pytest.approx(2 * 4000 / 20, rel=0.1)


def test_autoscaling_pays_for_what_the_load_takes():
    def hours_and_latency(scale, rate_rps=3.0):
        result = fleet_run(Fleet(10, "least-outstanding", autoscale=scale), rate_rps, 3000).result
        return result["fleet"]["server_hours"] * 3600 / (3000 / rate_rps), result["latency_ms"]["mean"]

    fixed, fast = hours_and_latency(None)
    quick, near = hours_and_latency(Autoscale(1, 1.0, 0.5, 5.0))
    _, far = hours_and_latency(Autoscale(1, 1.0, 30.0, 0.0))
    assert fixed == pytest.approx(10, rel=0.03)
    assert 3.0 < quick < 8.0  # of servers on average; three are busy
    assert fast < near < far
    calm, _ = hours_and_latency(Autoscale(1, 1.0, 0.5, 60.0))
    assert calm > quick  # who cools down longer keeps servers longer
    idle, _ = hours_and_latency(Autoscale(4, 100.0, 0.5, 0.0), 0.3)
    assert idle == pytest.approx(4, rel=0.03)  # the least


def test_a_fleet_cannot_be_traced():
    with pytest.raises(UsageError, match="--servers keeps no tasks and no requests; leave out --trace"):
        run_scenario(Scenario.of(servers=2, requests=10), record=True)


def peak_mib(requests):
    program = f"""
import resource
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
given = dict(policy="serial", model="mobilenet_v1", rate_rps=75000.0, stream=True, servers=50)
done, _ = run_scenario(Scenario.of(network_delay="0.2", mtbf_s=2.0, mttr_s=0.1, requests={requests}, **given))
assert done.result["finished"] + done.result["failed"] == {requests} and done.result["fleet"]["failures"]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_requests():
    few, many = peak_mib(200_000), peak_mib(800_000)  # kept, six hundred thousand take over a hundred MiB
    assert many < few + 12
