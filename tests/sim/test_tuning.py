"""Test parameters of policies on a given machine: the search finds what an exhaustive one does, and says what binds."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.batching import HeadraceError, Profile, ProfilePoint, UsageError
from headrace.sim.planner.trials import Trial, measure
from headrace.sim.planner.tuning import (
    ALIKE,
    Setting,
    Tried,
    best_of_each,
    choices,
    policies_for,
    still_racing,
    tune,
    usual,
)
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario


def run(text, trials):
    return [measure(trial) for trial in trials]


@pytest.fixture(scope="module")
def measured_profile(tmp_path_factory):
    """Return the profile of one worker that takes 20 ms, and 5 ms for each request of a batch, measured up to 16."""
    points = [ProfilePoint(batch, 0.02 + 0.005 * batch, batch / (0.02 + 0.005 * batch)) for batch in (1, 2, 4, 8, 16)]
    path = tmp_path_factory.mktemp("profile") / "net.json"
    path.write_text(Profile("net", 1, tuple(points)).to_json())
    return path


@pytest.fixture
def on_profile(measured_profile):
    return Scenario.of(model="net", accelerator="profile", profile=str(measured_profile), rate_rps=60.0, slo_ms=250.0)


def quantile_ms(scenario, requests, quantile=0.99, seed=0):
    return measure(Trial(scenario.having(requests=requests, seed=seed), quantile, 1)).quantile_ms


@pytest.mark.parametrize("policy", ["graph", "preba", "smdp", "static", "work-conserving", "earliest-deadline"])
@pytest.mark.parametrize("rate", [30.0, 110.0])
@pytest.mark.slow
def test_the_winner_is_that_of_an_exhaustive_search(on_profile, policy, rate):
    scenario = on_profile.having(rate_rps=rate, policy=policy, slo_ms=400.0)
    answer = tune(scenario, [policy], 0.9, run)
    (best,) = answer.policies
    requests = best.best.measured.requests
    every = [scenario.having(**dict(parameters)) for parameters in choices(scenario)]
    exhaustive = [
        Tried(Setting(policy, parameters, each), measure(Trial(each.having(requests=requests), 0.9, 1)), 0)
        for parameters, each in zip(choices(scenario), every, strict=True)
    ]
    (expected,) = best_of_each(exhaustive)
    found = best.best.measured.quantile_ms
    assert best.best.setting.parameters == expected.setting.parameters or found < expected.measured.quantile_ms
    assert found <= ALIKE * min(each.measured.quantile_ms for each in exhaustive)
    assert found <= ALIKE * best.usual.measured.quantile_ms  # what simulate has without being told


def test_several_policies_are_told_with_the_best_first(on_profile):
    answer = tune(on_profile, ["static", "graph", "preba"], 0.99, run)
    values = [each.best.measured.quantile_ms for each in answer.policies]
    assert values == sorted(values) and {each.policy for each in answer.policies} == {"static", "graph", "preba"}
    mean, low, high = answer.quantile_ms
    assert low <= mean <= high <= on_profile.workload.slo_ms
    best = answer.policies[0].best
    assert mean == pytest.approx(best.measured.quantile_ms, rel=0.1)  # other seeds
    assert answer.simulated > len(answer.tried) > 20
    tried = {(each.setting.policy, each.setting.parameters) for each in answer.tried}
    every = sum(len(choices(on_profile.having(policy=policy))) for policy in ("static", "graph", "preba"))
    assert answer.struck > 0 and len(tried) + answer.struck == every  # the default is one of them, or better


def test_it_holds_up_to_the_rate_that_is_told_and_not_beyond(on_profile):
    answer = tune(on_profile, ["graph", "static"], 0.99, run)
    for each in answer.policies:
        for tried, most in ((each.best, each.max_rps), (each.usual, each.usual_rps)):
            if most == 0.0:
                assert tried.measured.quantile_ms > on_profile.workload.slo_ms
                continue
            scenario = tried.setting.scenario
            assert quantile_ms(scenario.having(rate_rps=0.93 * most), 10_000) <= 1.05 * on_profile.workload.slo_ms
            if most < 0.95 * 160:  # what batches of 16 can do
                assert quantile_ms(scenario.having(rate_rps=1.1 * most), 10_000) > on_profile.workload.slo_ms
    static = next(each for each in answer.policies if each.policy == "static")
    assert static.max_rps > 1.5 * static.usual_rps  # whose batch of 64 never fills in time


def intervals():
    return st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.floats(1, 9), st.floats(0, 3), st.floats(0, 3)), min_size=1
    )


SOME = measure(Trial(Scenario.of(requests=100), 0.5, 1))


def tried_of(policy, value, below, above):
    measured = replace(SOME, quantile_ms=value, low_ms=value - below, high_ms=value + above)
    return Tried(Setting(policy, (), Scenario.of()), measured, 1)


@given(intervals())
@settings(max_examples=100)
def test_who_is_surely_slower_than_another_of_its_policy_is_out_of_the_race(drawn):
    tried = [tried_of(*each) for each in drawn]
    kept = list(still_racing(tried))
    for each in tried:
        rivals = [other for other in tried if other.setting.policy == each.setting.policy]
        beaten = any(other.measured.high_ms < each.measured.low_ms for other in rivals)
        assert (each in kept) != beaten
    for policy in {each[0] for each in drawn}:
        least = min(
            (each for each in tried if each.setting.policy == policy), key=lambda each: each.measured.quantile_ms
        )
        assert least in kept


def test_a_latency_within_a_hundredth_is_as_good_and_the_larger_batch_wins():
    def of(batch, value):
        measured = tried_of("graph", value, 0, 0).measured
        return Tried(Setting("graph", (("max_batch", batch),), Scenario.of(max_batch=batch)), measured, 0)

    assert best_of_each([of(4, 10.0), of(8, 10.05), of(16, 10.2)]) == [of(8, 10.05)]


def test_what_is_tried_follows_from_the_machine(on_profile):
    def space(scenario):
        found = {}
        for parameters in choices(scenario):
            for name, value in parameters:
                found.setdefault(name, set()).add(value)
        return found

    batches = {1, 2, 4, 8, 16}  # as measured
    assert space(on_profile.having(policy="graph"))["max_batch"] == batches
    assert max(space(on_profile.having(policy="graph"))["window_ms"]) == 125.0
    assert space(on_profile.having(policy="graph", slo_ms=45.0))["max_batch"] == {1, 2, 4}  # 8 take 60 ms
    assert set(space(on_profile.having(policy="preba"))) == {"knee_growth"}  # inputs of one size
    assert space(on_profile.having(policy="serial")) == {}
    assert set(space(on_profile.having(policy="smdp"))) == {"max_batch"}
    assert set(space(on_profile.having(policy="smdp", busy_w=10.0))) == {"max_batch", "w2"}
    texts = Scenario.of(model="gnmt")
    assert set(space(texts.having(policy="preba"))) == {"bucket_width", "merge_buckets", "knee_growth"}
    assert set(space(texts)) == {"max_batch", "coverage", "defer_late"}
    sounds = Scenario.of(model="citrinet", accelerator="a100-40gb", preprocess="cpu:32")
    assert set(space(sounds.having(policy="preba"))) == {"bucket_s", "merge_buckets", "knee_growth"}
    cells = Scenario.of(model="lstm", accelerator="v100", policy="cellular")
    assert set(space(cells)) == {"max_batch", "max_tasks"}
    assert dict(usual(cells).parameters) == {"max_batch": 64, "max_tasks": 5}


def test_a_batch_that_a_slice_has_no_memory_for_is_not_tried():
    small = Scenario.of(model="swin_t", accelerator="a100-40gb", partition="1g.5gb:7", policy="static", slo_ms=1e5)
    whole = small.having(partition="7g.40gb:1")
    most = [max(dict(parameters)["max_batch"] for parameters in choices(each)) for each in (small, whole)]
    assert most[0] <= most[1]
    run_scenario(small.having(max_batch=most[0], requests=10))  # which refuses what does not fit


@pytest.mark.parametrize(
    ("accelerator", "model", "cells"), [("npu", "resnet50", False), ("v100", "lstm", True), ("h100", "swin_t", False)]
)
def test_all_are_those_that_can_serve_the_machine(accelerator, model, cells):
    scenario = Scenario.of(accelerator=accelerator, model=model)
    named = policies_for(scenario, "all")
    assert {"graph", "lazy", "preba", "smdp"} <= set(named) and "oracle" not in named
    assert ("cellular" in named) == cells


def test_policies_are_named_once_each(on_profile):
    assert policies_for(on_profile, "graph, preba,graph") == ["graph", "preba"]
    with pytest.raises(UsageError, match="--tune 'grap': choose from"):
        policies_for(on_profile, "grap")
    with pytest.raises(UsageError, match="serves cells"):
        policies_for(on_profile, "cellular")


def test_tasks_ahead_of_a_worker_of_cells_are_a_setting():
    scenario = Scenario.of(model="lstm", accelerator="v100", policy="cellular", rate_rps=5000.0, requests=500)
    waits = [run_scenario(scenario.having(max_tasks=most))[0].latencies().mean() for most in (1, 5, 50)]
    assert waits[0] < waits[1] < waits[2]  # who joins waits for the tasks that are ahead


def test_a_replayed_trace_has_no_rate(on_profile, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,model,input_len,output_len\n" + "".join(f"{0.02 * n},net,1,1\n" for n in range(2000)))
    (best,) = tune(on_profile.having(replay=str(trace)), ["graph"], 0.99, run).policies
    assert best.max_rps is None and best.best.measured.quantile_ms < 60  # a request every 20 ms, which takes 25


def test_what_no_parameters_can_do_is_refused_with_what_binds(on_profile):
    with pytest.raises(UsageError, match=r"--slo-ms 20 is below 25 ms.*the SLO binds, by 1.25 times"):
        tune(on_profile.having(slo_ms=20.0), ["graph"], 0.99, run)
    with pytest.raises(UsageError, match=r"--slo-ms 30 is below 32 ms"):
        tune(on_profile.having(slo_ms=30.0, overhead_ms=7.0), ["graph"], 0.99, run)
    with pytest.raises(UsageError, match=r"--rate-rps 320 .*the machine binds, at about 160/s, 2.00 times"):
        tune(on_profile.having(rate_rps=320.0), ["graph"], 0.99, run)
    with pytest.raises(UsageError, match=r"--rate-rps 60 .*the machine binds, at about 40/s, 1.50 times"):
        tune(on_profile, ["serial"], 0.99, run)
    with pytest.raises(HeadraceError, match=r"nearest, graph .* 3\d % of what the machine can do; the SLO binds"):
        tune(on_profile.having(slo_ms=40.0, rate_rps=30.0), ["graph"], 0.99, run)
    with pytest.raises(HeadraceError, match=r"nearest, graph .* 98 % of what the machine can do; the machine binds"):
        tune(on_profile.having(slo_ms=110.0, rate_rps=157.0), ["graph"], 0.99, run)
    with pytest.raises(UsageError, match=r"--slo-quantile 0.2: give 0.5 to 0.999"):
        tune(on_profile, ["graph"], 0.2, run)
