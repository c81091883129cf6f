"""Test a day's schedule against all schedules, and the cost of its changes against simulated ones."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.hardware.gpu.mig import GPUS, partition, partitions
from headrace.sim.planner import bounds, schedule, space
from headrace.sim.planner import target as target_module
from headrace.sim.planner.schedule import _Day, cheapest_cycle, left_of, plan_day, stays
from headrace.sim.planner.target import Candidate, Hardware, Target
from headrace.sim.planner.trials import Trial, measure
from headrace.sim.run import run_scenario
from headrace.sim.workload.day import Interval

FEW = 3000  # requests of the last round
TARGET = Target("resnet50", 1.0, 50, "a100-40gb", quantile=0.9)


def run(text, trials):
    return [measure(trial) for trial in trials]


@pytest.fixture
def small(monkeypatch):
    """A space of few partitions and parameters, in which smaller ones draw less."""
    few = [parts for number, parts in enumerate(partitions(GPUS["a100-40gb"], full=True)) if number in (0, 8, 41)]
    monkeypatch.setattr(space, "partitions", lambda gpu, full: few)
    for module, name, value in (
        (space, "SOCKETS", (1,)),
        (space, "CUS", (2,)),
        (space, "WINDOWS", (1 / 4,)),
        (bounds, "BATCHES", (1,)),
        (target_module, "SHORTEST", FEW),
        (schedule, "LEVELS", 2),
    ):
        monkeypatch.setattr(module, name, value)
    bounds.bounds.cache_clear()  # it knows BATCHES
    yield
    bounds.bounds.cache_clear()


def day_of(*rates):
    hours = np.linspace(0, 24, len(rates) + 1)
    return [Interval(*span, {"resnet50": rate}) for *span, rate in zip(hours[:-1], hours[1:], rates, strict=True)]


costs = st.integers(0, 6).map(float)


@st.composite
def cycles(draw):
    intervals, states = draw(st.integers(1, 4)), draw(st.integers(1, 3))

    def table(of, *shape):
        return np.array(draw(st.lists(of, min_size=math.prod(shape), max_size=math.prod(shape)))).reshape(shape)

    of_state = intervals, states
    usd = table(costs | st.just(math.inf), *of_state)
    late = table(costs, *of_state)
    change_usd, change_late = (table(of, *of_state, states) for of in (costs, costs | st.just(math.inf)))
    for each in (change_usd, change_late):
        each[:, range(states), range(states)] = 0.0
    return usd, late, change_usd, change_late, draw(st.integers(0, 30).map(float))


@settings(max_examples=400)
@given(cycles())
def test_the_cheapest_cycle_is_what_trying_all_of_them_finds(tables):
    usd, late, change_usd, change_late, allowance = tables
    intervals, states = usd.shape

    def total(path, of, change):
        return sum(of[i, path[i]] + change[i, path[i - 1], path[i]] for i in range(intervals))

    possible = [
        path
        for path in product(range(states), repeat=intervals)
        if total(path, usd, change_usd) < math.inf and total(path, late, change_late) <= allowance
    ]
    found = cheapest_cycle(*tables)
    if not possible:
        assert found is None
        return
    assert found in possible
    assert total(found, usd, change_usd) == min(total(path, usd, change_usd) for path in possible)


def one(parts, way="cpu:32", policy="preba", servers=1):
    return Candidate(Hardware(servers, parts, way), policy)


def test_instances_of_the_same_profile_in_the_same_place_stay():
    small_ones, mixed, halves = one("1g.5gb:7"), one("4g.20gb:1,1g.5gb:3"), one("3g.20gb:2")
    assert left_of(TARGET, small_ones, mixed).hardware.partition == "1g.5gb:3"
    assert left_of(TARGET, mixed, small_ones).hardware.partition == "1g.5gb:3"
    assert left_of(TARGET, small_ones, halves) is None  # 3g.20gb takes all places
    assert left_of(TARGET, one("7g.40gb:1"), small_ones) is None


@given(*[st.sampled_from(list(partitions(GPUS["a100-40gb"], full=True)))] * 2)
def test_what_stays_and_what_comes_fit_the_gpu_together(before, after):
    texts = [",".join(profile.name for profile in parts) for parts in (before, after)]
    plans = [one(",".join(f"{name}:1" for name in text.split(","))) for text in texts]
    left = left_of(TARGET, *plans)
    if left is None:
        return
    kept = [each.profile.name for each in partition(GPUS["a100-40gb"], left.hardware.partition)]
    for parts in (before, after):
        names = [profile.name for profile in parts]
        assert all(kept.count(name) <= names.count(name) for name in kept)


def test_a_server_loses_no_slice_by_another_policy_but_all_by_another_bitstream():
    here = one("1g.5gb:7")
    assert stays(TARGET, here, one("1g.5gb:7", policy="graph"))
    assert not stays(TARGET, here, one("3g.20gb:2"))
    for other in (one("1g.5gb:7", "dpu:2"), one("1g.5gb:7", "cpu:64")):
        assert not stays(TARGET, here, other) and left_of(TARGET, here, other) is None  # another server
    four, eight = one("1g.5gb:7", "dpu:4"), one("4g.20gb:1,1g.5gb:3", "dpu:8")
    assert left_of(TARGET, four, eight) is None
    assert left_of(TARGET, four, one("4g.20gb:1,1g.5gb:3", "dpu:4")).hardware.partition == "1g.5gb:3"


def test_a_day_of_one_rate_is_the_plan_of_that_rate(small):
    answer = plan_day(TARGET, day_of(800.0, 800.0, 800.0), run)
    assert not answer.best.changes and answer.best == answer.static
    assert answer.best.usd_per_day == pytest.approx(24 * answer.best.stages[0].usd_per_hour)


def test_servers_come_and_go_with_the_rate_and_each_interval_holds(small):
    day = day_of(400.0, 2400.0, 900.0)
    answer = plan_day(replace(TARGET, gpus=2), day, run)
    best, static = answer.best, answer.static
    assert [stage.plan.hardware.servers for stage in best.stages] == [1, 2, 1]
    assert len({stage.plan for stage in static.stages}) == 1 and not static.changes
    assert best.usd_per_day < static.usd_per_day
    paid = sum(stage.usd_per_hour * stage.interval.hours for stage in best.stages)
    assert best.usd_per_day == pytest.approx(paid + sum(change.usd for change in best.changes))
    for stage in (*best.stages, *static.stages):
        target = replace(TARGET, rate_rps=stage.interval.rate_rps)
        again = measure(Trial(stage.plan.scenario(target, 6000, seed=77), 0.9, 1))
        assert again.quantile_ms <= TARGET.slo_ms
    assert best.late <= TARGET.late
    early = [change.early for change in best.changes if change.before.hardware.servers < change.after.hardware.servers]
    assert early == [True] and len(best.changes) == 2  # it is there when it is needed


def served(plan, target, came, folder):
    """Return when arrivals at given times came and when they were done."""
    file = folder / "moment.csv"
    file.write_text("arrival_s,model,input_len,output_len\n" + "".join(f"{time!r},resnet50,1,1\n" for time in came))
    done, _ = run_scenario(plan.scenario(target, 10).having(replay=str(file)))
    return done.arrivals.arrays()[0], np.array(done.outcome.finished)


def late_in_a_simulation(change, rate, seconds, after_s, folder):
    """Return the late requests of a GPU that changes for `seconds`. The remaining slices serve meanwhile, and all serve
    for `after_s` more."""
    target, slo_s = replace(TARGET, rate_rps=rate), TARGET.slo_ms / 1e3
    random = np.random.default_rng(5)
    waiting = np.sort(random.uniform(0, seconds, round(rate * seconds)))
    following = np.sort(random.uniform(seconds, seconds + after_s, round(rate * after_s)))
    left, late = left_of(TARGET, change.before, change.after), 0
    if left is not None:
        came, finished = served(left, target, waiting.tolist(), folder)
        waiting = np.sort(came[finished > seconds])
        late = np.sum((finished - came)[finished <= seconds] > slo_s)
    came, finished = served(change.after, target, [*[seconds] * len(waiting), *following.tolist()], folder)
    here = came == seconds
    return int(late + np.sum(np.sort(finished[here]) - waiting > slo_s) + np.sum((finished - came)[~here] > slo_s))


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [
        ("1g.5gb:7", "3g.20gb:2", 400.0),  # nothing is left
        ("1g.5gb:7", "3g.20gb:2", 1400.0),  # and the queue lasts
        ("1g.5gb:7", "4g.20gb:1,1g.5gb:3", 400.0),  # what is left holds the target
        ("1g.5gb:7", "4g.20gb:1,1g.5gb:3", 1200.0),  # and does not
    ],
)
def test_no_fewer_are_counted_as_late_than_are_in_a_simulation(small, tmp_path, monkeypatch, before, after, rate):
    monkeypatch.setattr(_Day, "_plans", lambda self: [one(before), one(after)])
    seconds, after_s = 3.0, 20.0
    change = _Day(TARGET, day_of(rate, rate + 1), run, seconds)._change(1, 0, 1)
    assert change.servers == 1 and change.seconds == seconds and change.early
    late = late_in_a_simulation(change, rate, seconds, after_s, tmp_path)
    beyond = rate * (seconds + after_s) - change.late  # of which the target allows some
    assert beyond > 0 and change.late <= late + 0.2 * change.late
    assert late <= change.late + TARGET.late * beyond


def test_what_is_to_spare_keeps_all_requests_in_time(small, monkeypatch):
    plans = [one("3g.20gb:2"), one("1g.5gb:7")]
    monkeypatch.setattr(_Day, "_plans", lambda self: plans)
    alone, with_spare = (_Day(replace(TARGET, gpus=gpus), day_of(300.0, 900.0), run, 30.0) for gpus in (1, 2))
    change = alone._change(1, 0, 1)
    assert change.late >= 300 * 30 and change.usd == 0.0
    change = with_spare._change(1, 0, 1)
    assert change.late == 0.0 and change.usd > 0.0


@pytest.mark.slow
def test_no_repartitioning_pays_if_too_many_would_be_late(small, monkeypatch):
    day = day_of(300.0, 1700.0)
    quick, slow = (plan_day(TARGET, day, run, seconds) for seconds in (1.0, 3600.0))
    assert quick.best.usd_per_day <= slow.best.usd_per_day == slow.static.usd_per_day
    assert not slow.best.changes


def test_what_nothing_can_serve_at_its_highest_rate_says_what_binds(small):
    with pytest.raises(UsageError, match="--rate-rps 90000 is more than 1 x a100-40gb can serve"):
        plan_day(TARGET, day_of(100.0, 9e4), run)
