"""Test that models on slices of their own change them over a day when that pays, and that late requests are counted."""

import math
from dataclasses import replace

import numpy as np
import pytest

from headrace.batching import UsageError
from headrace.sim.planner import target as target_module
from headrace.sim.planner.allocate import Option, ServerPlan, allocate
from headrace.sim.planner.rotation import _Rotation, capacity, capacity_left, holds, in_order, matched, pieces, rotate
from headrace.sim.planner.target import Target
from headrace.sim.planner.trials import Trial, measure
from headrace.sim.system.cost import HOURS_A_YEAR, YEARS, given_prices
from headrace.sim.workload.day import Interval

GPU = "a100-40gb"
ONE = Target("resnet50", 1.0, 100, GPU, quantile=0.9, gpus=2)
TARGETS = {model: replace(ONE, model=model) for model in ("resnet50", "swin_t")}
# Less than they hold with `preba`, so that fresh seeds confirm them.
OPTIONS = [
    Option(model, profile, "cpu", share * rate, cores=share * rate / 400, watts=share * rate / 10)
    for model, rate in (("resnet50", 1800.0), ("swin_t", 2400.0))
    for profile, share in (("1g.5gb", 0.1), ("3g.20gb", 0.45), ("4g.20gb", 0.5), ("7g.40gb", 1.0))
]


def option(model, profile):
    return next(each for each in OPTIONS if (each.model, each.profile) == (model, profile))


def server(*slices, cpus=1):
    """Return a server of pairs (profile, model); None is for idle."""
    found = tuple((profile, option(model, profile) if model else None) for profile, model in slices)
    return ServerPlan(tuple(profile for profile, _ in slices), found, (), cpus, False)


def run(text, trials):
    return [measure(trial) for trial in trials]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(target_module, "SHORTEST", 3000)


def day_of(*rates):
    width = 24 / len(rates)
    return [Interval(i * width, (i + 1) * width, dict(zip(TARGETS, each, strict=True))) for i, each in enumerate(rates)]


HALVES = server(("3g.20gb", "resnet50"), ("3g.20gb", "swin_t"))


def test_the_slices_of_a_model_together_hold_a_rate_if_cores_do():
    assert capacity([HALVES, HALVES])["swin_t"] == pytest.approx(2 * 0.45 * 2400)
    assert holds((HALVES,), {"resnet50": 810.0, "swin_t": 1080.0})
    assert not holds((HALVES,), {"resnet50": 811.0, "swin_t": 1.0})
    hungry = replace(HALVES, slices=tuple((name, replace(each, cores=20.0)) for name, each in HALVES.slices))
    assert not holds((hungry,), {"resnet50": 810.0, "swin_t": 1080.0})
    assert holds((replace(hungry, cpus=2),), {"resnet50": 810.0, "swin_t": 1080.0})
    assert holds((hungry,), {"resnet50": 500.0, "swin_t": 700.0})


def test_what_stays_serves_its_own_model_in_its_own_place():
    small = server(*[("1g.5gb", "resnet50")] * 3, *[("1g.5gb", "swin_t")] * 4)
    other = server(("4g.20gb", "swin_t"), *[("1g.5gb", "resnet50")] * 3)
    left = capacity_left(GPU, small, other)
    assert left["swin_t"] == 0 and left["resnet50"] in (0, 180, 360, 540)
    assert capacity_left(GPU, HALVES, server(("3g.20gb", "resnet50"), ("3g.20gb", "resnet50"))) == {"resnet50": 810.0}
    assert capacity_left(GPU, HALVES, replace(HALVES, cpus=2)) == {}


def test_servers_are_matched_so_that_the_most_stays():
    whole = server(("7g.40gb", "swin_t"))
    assert matched(GPU, (HALVES, whole), (whole, HALVES)) == [(0, 1), (1, 0)]
    assert matched(GPU, (whole,), (HALVES, whole)) == [(0, 1)]


@pytest.fixture
def change_of(monkeypatch):
    """Return the change from one plan to another in the middle of a day of these rates."""

    def change(rates, before, after, gpus):
        monkeypatch.setattr(_Rotation, "_plans", lambda self: [in_order(before), in_order(after)])
        targets = {name: replace(each, gpus=gpus) for name, each in TARGETS.items()}
        return _Rotation(targets, OPTIONS, day_of(rates, rates), run, 30.0)._change(1, 0, 1)

    return change


def test_late_are_requests_of_the_models_that_what_is_left_cannot_hold(change_of):
    rates = 700.0, 400.0
    before = server(("4g.20gb", "resnet50"), ("1g.5gb", "swin_t"), ("1g.5gb", "swin_t"))
    after = server(("4g.20gb", "resnet50"), ("3g.20gb", "swin_t"))
    change = change_of(rates, [before], [after], 1)
    queue_s = 400 * 30 / (0.45 * 2400 - 400)  # it is worked off in, with what then is there
    assert change.servers == 1 and change.seconds == 30
    assert change.late == pytest.approx(400 * (30 + queue_s))  # none of resnet50, whose slice stays
    with_spare = change_of(rates, [before], [after], 2)
    assert with_spare.late == 0.0 and with_spare.usd > change.usd == 0.0


def test_what_never_catches_up_is_no_change(change_of):
    only = server(("3g.20gb", "resnet50"), ("3g.20gb", "resnet50"))
    with np.errstate(invalid="ignore"):
        assert change_of((700.0, 300.0), [HALVES], [only], 1).late == math.inf


def test_servers_change_one_after_another(change_of):
    wholes = server(("7g.40gb", "resnet50")), server(("7g.40gb", "swin_t"))
    change = change_of((100.0, 900.0), wholes, (HALVES, HALVES), 2)
    assert change.servers == 2 and change.seconds == 60
    # While that of resnet50 is away swin_t has its own; then half of the first serves it, and the other half works off
    # the queue of resnet50, for which all of that time is counted.
    assert change.late == pytest.approx(100 * (30 + 30))


def test_a_server_changes_into_the_one_that_it_is_matched_with(change_of):
    """The first server becomes the second one of the next plan, and the second server stays."""
    stays = server(("3g.20gb", "resnet50"), ("4g.20gb", "swin_t"))
    becomes = server(("4g.20gb", "resnet50"), ("3g.20gb", "swin_t"))
    change = change_of((1000.0, 1200.0), [HALVES, stays], [stays, becomes], 2)
    queue_s = (1000 - 810) * 30 / (810 + 900 - 1000)  # of resnet50, which has 810/s while the first changes
    assert change.servers == 1 and change.late == pytest.approx(1000 * (30 + queue_s))


def test_a_day_of_one_mix_is_the_allocation_of_that_mix():
    rates = {"resnet50": 700.0, "swin_t": 900.0}
    answer = rotate(TARGETS, OPTIONS, day_of(*[tuple(rates.values())] * 3), run)
    assert not answer.best.changes and answer.best == answer.static
    usd = allocate(GPU, OPTIONS, rates, gpus=2, least="cost", prices=given_prices(None)).usd
    assert answer.best.usd_per_day == pytest.approx(24 * usd / (YEARS * HOURS_A_YEAR))


def test_slices_go_to_the_model_that_needs_them_and_each_interval_holds():
    day = day_of((300.0, 1400.0), (1200.0, 200.0), (300.0, 1400.0))
    answer = rotate(TARGETS, OPTIONS, day, run)
    best, static = answer.best, answer.static
    assert [len(stage.plan) for stage in best.stages] == [1, 1, 1] and len(static.stages[0].plan) == 2
    assert best.usd_per_day < 0.8 * static.usd_per_day
    assert [change.hour for change in best.changes] == [8.0, 16.0] and best.late <= 0.1
    for stage in (*best.stages, *static.stages):
        for piece in pieces(TARGETS, stage.plan, stage.interval.rates_rps):
            again = measure(Trial(piece.candidate.scenario(piece.target, 3000, seed=9), 0.9, 1))
            assert again.quantile_ms <= piece.target.slo_ms
        assert {piece.target.model for piece in pieces(TARGETS, stage.plan, stage.interval.rates_rps)} == set(TARGETS)


def test_nothing_changes_if_too_many_would_be_late():
    day = day_of((300.0, 1400.0), (1200.0, 200.0), (300.0, 1400.0))
    answer = rotate({name: replace(each, quantile=0.999) for name, each in TARGETS.items()}, OPTIONS, day, run, 3600.0)
    assert not any(change.late for change in answer.best.changes)


def test_rates_that_no_servers_hold_say_what_binds():
    with pytest.raises(UsageError, match=r"--gpus 2: 2 x a100-40gb hold .* of these rates at most"):
        rotate(TARGETS, OPTIONS, day_of((300.0, 1500.0), (9000.0, 400.0)), run)
