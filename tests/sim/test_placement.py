"""Test that a plan for models on slices of their own does what its pieces do when they are simulated again."""

from collections import Counter

import pytest
from few_slices import GPU, few_slices

from headrace.batching import HeadraceError, UsageError
from headrace.sim.hardware.gpu.mig import gpu_named, partitions
from headrace.sim.planner import placement
from headrace.sim.planner.allocate import CARD_CUS, Option
from headrace.sim.planner.placement import place, shared_out
from headrace.sim.planner.target import Target
from headrace.sim.planner.trials import Trial, interval, measure
from headrace.sim.system.system import CORES


def run(text, trials):
    return [measure(trial) for trial in trials]


@pytest.fixture(scope="module", autouse=True)
def small():
    with few_slices():
        yield


def targets_of(*asked, **more):
    return [Target(model, rate, slo_ms, GPU, quantile=0.9, **more) for model, rate, slo_ms in asked]


@pytest.fixture(scope="module")
def placed():
    return place(targets_of(("swin_t", 1500, 40), ("resnet50", 1300, 60), gpus=2), run)


def measured_again(piece, seed):
    return measure(Trial(piece.candidate.scenario(piece.target, piece.target.requests(1), seed), 0.9, 1))


@pytest.mark.slow
def test_pieces_do_again_what_is_told_of_them(placed):
    for server in placed.own.servers:
        for piece in server.pieces:
            assert measured_again(piece, 0) == piece.measured
            fresh = [measured_again(piece, seed).quantile_ms for seed in range(1, 6)]
            assert piece.quantile_ms == interval(fresh) and piece.quantile_ms[2] <= piece.target.slo_ms


def test_pieces_serve_the_rates_on_slices_cores_and_cus_that_are_bought(placed):
    real = {tuple(sorted(each.name for each in parts)) for parts in partitions(gpu_named(GPU), full=True)}
    for each in (placed.own, *placed.runners_up):
        served = Counter()
        for server in each.servers:
            assert tuple(sorted(server.plan.partition)) in real
            slices, given = Counter(), Counter()
            for piece in server.pieces:
                served[piece.target.model] += piece.target.rate_rps
                profile, _, count = piece.candidate.hardware.partition.partition(":")
                slices[profile] += int(count)
                way, _, number = piece.candidate.hardware.preprocess.partition(":")
                given[way] += int(number or 0)
            assert slices <= Counter(server.plan.partition)
            assert given["cpu"] <= CORES * server.plan.cpus and given["dpu"] <= CARD_CUS * server.plan.card
        assert served == pytest.approx({"swin_t": 1500, "resnet50": 1300}, rel=1e-5)
        held = Counter()
        for piece in (piece for server in each.servers for piece in server.pieces):
            held[piece.target.model] += piece.max_rps
        fullest = max(1500 / held["swin_t"], 1300 / held["resnet50"])
        assert each.used["slices"] == pytest.approx(fullest) and 0 < fullest < 1.001
        assert each.cost_usd == pytest.approx(sum(server.cost_usd for server in each.servers))


def test_nothing_that_was_simulated_is_cheaper(placed):
    # The program, which takes energy to be in proportion to rates, has images for one model on cores, others not.
    shared = placed.shared.best.measured.cost_usd
    assert placed.shared_wins == (shared < placed.own.cost_usd)
    assert placed.runners_up and all(placed.own.cost_usd <= each.cost_usd for each in placed.runners_up)


@pytest.mark.slow
def test_models_that_slices_of_their_own_do_not_hold_share_them():
    # Half of a GPU holds some 1150 1/s of resnet50, and that is what it gets beside another model.
    placed = place(targets_of(("resnet50", 1400, 60), ("swin_t", 100, 60)), run)
    assert placed.shared_wins and "the slices bind" in placed.own and placed.next_usd is None
    assert placed.shared.target.rate_rps == 1500 and placed.shared.quantile_ms[2] <= 60


def given_options(monkeypatch, resnet50_rps):
    """Return known capacities. That of resnet50's slice is only assumed: simulation decides what is true."""
    options = [
        Option(
            "resnet50",
            "3g.20gb",
            "cpu",
            resnet50_rps,
            cores=resnet50_rps / 300,
            watts=60,
            batch=64,
            policy="graph",
            parameters=(("window_ms", 15.0), ("max_batch", 64)),
        ),
        Option("bert_base", "3g.20gb", "ideal", 400, watts=60),
    ]
    monkeypatch.setattr(placement, "options_of", lambda targets, run: options)
    return options


def test_a_slice_that_holds_less_than_was_taken_gets_less(monkeypatch):
    given_options(monkeypatch, 3000)
    targets = targets_of(("resnet50", 1500, 60), ("bert_base", 100, 60), gpus=4)
    placed = place(targets, run)
    assert "do not share slices" in placed.shared and not placed.shared_wins
    pieces = [piece for server in placed.own.servers for piece in server.pieces]
    lowered = {piece.max_rps / piece.slices for piece in pieces if piece.target.model == "resnet50"}
    assert all(rate < 1500 for rate in lowered)
    assert sum(piece.slices for piece in pieces if piece.target.model == "resnet50") > 1
    assert all(measured_again(piece, 1).quantile_ms <= piece.target.slo_ms for piece in pieces)


def test_what_still_fails_is_told_after_some_tries(monkeypatch):
    given_options(monkeypatch, 3000)
    monkeypatch.setattr(placement, "TRIES", 2)
    monkeypatch.setattr(placement, "LOWER", 0.999)
    targets = targets_of(("resnet50", 3000, 60), ("bert_base", 100, 60), gpus=4)
    with pytest.raises(HeadraceError, match=r"no placement was confirmed in 2 tries: 3g.20gb for resnet50 with cpu"):
        place(targets, run)


def test_what_too_few_gpus_hold_once_capacities_are_true_is_told(monkeypatch):
    given_options(monkeypatch, 3000)
    targets = targets_of(("resnet50", 2000, 60), ("bert_base", 100, 60))
    with pytest.raises(UsageError, match=r"--gpus 1: 1 x a100-40gb hold .* the slices bind; the largest part is resn"):
        place(targets, run)


def test_a_budget_that_is_too_low_is_told(monkeypatch):
    given_options(monkeypatch, 700)
    targets = targets_of(("resnet50", 500, 60), ("bert_base", 100, 60), budget_usd=1000)
    with pytest.raises(UsageError, match=r"--budget-usd 1000: .* cost 14,... \$ in .*; the budget binds"):
        place(targets, run)


def test_cores_are_shared_out_by_need():
    one, other = (Option("a", name, "cpu", 1) for name in ("3g.20gb", "4g.20gb"))
    assert shared_out(9, {one: 2, other: 1}) == {one: 6, other: 3}
    assert shared_out(5, {one: 100, other: 0}) == {one: 4, other: 1}  # one at least
    assert shared_out(5, {}) == {}
