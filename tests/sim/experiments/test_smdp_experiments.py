import csv

import pytest

from headrace.sim.experiments.report import Kind
from headrace.sim.experiments.smdp.rows import Truncation
from headrace.sim.experiments.smdp.runs import EXPERIMENT, PAPER, LoadJob, least_s_max, run_job, table_1


@pytest.fixture(scope="module")
def quick(reproduced):
    return reproduced(EXPERIMENT)


def rows_of(folder, name):
    with (folder / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_every_figure_has_a_note(quick):
    folder, _ = quick
    notes = (folder / "notes.md").read_text()
    assert all(f"- Fig. {figure}: " in notes for figure in EXPERIMENT.figures[:-1])


@pytest.mark.slow
def test_table_1_comes_out(quick):
    folder, claims = quick
    assert [row["s_max"] for row in rows_of(folder, "table1") if row["method"] == "rvi"] == [
        "89",
        "78",
        "70",
        "161",
        "192",
    ]
    exact = [claim for claim in claims if "s_max" in claim.claim or claim.figure == "abstract"]
    assert len(exact) == 7
    assert [claim.measured for claim in exact] == pytest.approx([claim.paper for claim in exact], rel=1e-3)
    iterations = [claim for claim in claims if "iterations" in claim.claim]
    assert [claim.measured for claim in iterations] == pytest.approx([claim.paper for claim in iterations], abs=1)
    assert all(claim.ratio == pytest.approx(1, rel=0.03) for claim in claims if claim.paper)


@pytest.mark.slow
def test_no_policy_costs_less_than_the_optimal_one(quick):
    folder, _ = quick
    rows = rows_of(folder, "figure5")
    assert all(float(row["saving_percent"]) >= float(row["saving_over_all_percent"]) > -1e-5 for row in rows)
    assert max(float(row["saving_percent"]) for row in rows) > 10
    assert all(float(row["excess_percent"]) > -1e-5 for row in rows_of(folder, "figure4"))
    # 8 requests take 3.49 ms, so 0.9 of what batches of 32 serve is too much for them.
    assert all((row["static_8"] == "") == (row["rho"] == "0.9") for row in rows)


@pytest.mark.slow
def test_a_policy_of_control_limit_structure_is_the_best_one_of_that_structure(quick):
    folder, _ = quick
    limits = [row for row in rows_of(folder, "figure4") if row["control_limit"]]
    assert len(limits) >= 10
    for row in limits:
        assert float(row["departs"]) < 1e-6 and float(row["excess_percent"]) < 1e-3
        assert row["best_limit"] == row["control_limit"]


@pytest.mark.slow
def test_under_a_bound_a_mixture_never_needs_more_power_than_a_single_policy(quick):
    folder, _ = quick
    rows = rows_of(folder, "figurebound")
    assert len(rows) >= 25
    for row in rows:
        assert float(row["mixture_w"]) <= float(row["single_w"]) * (1 + 1e-6)
        assert float(row["single_ms"]) <= float(row["bound_ms"]) and float(row["mixture_ms"]) <= float(
            row["bound_ms"]
        ) * (1 + 1e-9)
    assert max(float(row["single_w"]) / float(row["mixture_w"]) for row in rows) > 1.1  # at low load


def test_a_point_has_the_power_that_its_efficiency_says():
    optimal, *_ = run_job(LoadJob(0.5, (1.0,)))
    # 32 requests take 10.8152 ms, and half of that rate arrives.
    assert optimal.requests_per_j == pytest.approx(0.5 * 32 / 10.8152 / optimal.power_w * 1e3)


def test_a_point_has_the_policy_up_to_two_of_the_largest_batches():
    """The policy waits below its limit, and serves as many as it can from there on."""
    optimal, *_ = run_job(LoadJob(0.9, (1.0,)))
    limit = optimal.control_limit
    assert 1 < limit < 32 and optimal.actions == tuple(min(q, 32) if q >= limit else 0 for q in range(65))
    assert optimal.departs < 1e-9 and optimal.visited > 2 * limit


def test_the_search_stops_at_the_least_truncation_whatever_its_stride():
    for stride in (1, 3, 7):  # 71 and 74 are the first tries that are large enough
        assert least_s_max("pi", 100.0, stride).s_max == 70


def test_table_1_has_the_numbers_of_the_paper_beside_those_of_the_solver():
    """The rows are the paper's own numbers, so every ratio is 1."""
    rows = [
        Truncation(cost, s_max, method, iterations, 66.13, delta, 12, 0.0, False)
        for cost, (s_max, iterations, delta) in PAPER.items()
        for method in ("rvi", "pi")
    ]
    claims = {claim.claim: claim for claim in table_1(rows).claims}
    assert claims["overflow cost 100: least s_max"].measured == claims["overflow cost 100: least s_max"].paper == 70
    assert claims["overflow cost 10: iterations of RVI"].kind is Kind.BY_CONSTRUCTION  # the limit of both
    assert claims["overflow cost 1000: iterations of RVI"].kind is Kind.INDEPENDENT
    assert all(claim.ratio == pytest.approx(1, rel=0.01) for claim in claims.values() if claim.paper)
    assert len(claims) == 3 * len(PAPER) + 4
