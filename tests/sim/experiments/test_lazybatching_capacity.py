"""LazyBatching's figures by share of capacity, and the live rows of an H100 in Fig. 17's table."""

import json
from pathlib import Path

import pytest
from live_rows import live_rows

from headrace.sim.experiments.lazybatching import capacity, h100_live
from headrace.sim.experiments.lazybatching.runs import EXPERIMENT

ROOT = Path(__file__).parents[3]


def test_capacity_is_the_rate_of_full_batches():
    """ResNet-50 has inputs of one length, so a saturated worker runs batches of 64 one after the other."""
    times = capacity.times_of("resnet50", "h100")
    assert capacity.capacity_rps("resnet50", "h100") == pytest.approx(64 / times.whole(64, 1, 1))


@pytest.mark.parametrize(("model", "hardware"), [("gnmt", "h100"), ("bert_base", "npu"), ("resnet50", "h100")])
def test_the_default_rule_is_near_the_best_rival_where_eq_2_is_not(model, hardware):
    rows = capacity.run(capacity.CapacityJob(model, hardware, 0.6, 1, 1000))
    found = capacity.averaged(rows)
    for policies in found.values():
        assert policies["lazy least-delay"][0] <= capacity.WORST * capacity.best_rival_ms(policies)
        assert policies["lazy least-delay"][1] <= policies["oracle"][1] + capacity.LATER
    loose = found[model, hardware, 0.6, 200.0]
    assert loose["lazy eq2"][0] > 1.5 * capacity.best_rival_ms(loose)


def test_the_report_has_a_line_for_each_point_and_names_the_points_that_miss_the_goal():
    def row(job, slo_ms, policy):
        mean = 2.0 if policy == "lazy least-delay" and (job.load, slo_ms) == (0.9, 20.0) else 1.0
        return capacity.CapacityRow(job.model, job.hardware, job.load, 1.0, 10.0, 0, slo_ms, policy, mean, mean - 1)

    policies = ["graph 0", "graph 1", "graph 5", "work-conserving", "oracle", *(f"lazy {s}" for s in capacity.SLACKS)]
    jobs = capacity.jobs(1, 10)
    rows = [row(job, slo_ms, policy) for job in jobs for slo_ms in capacity.SLOS_MS for policy in policies]
    lines = capacity.tables(rows)
    assert sum(line.endswith(("| 1.00 |", "| 2.00 |")) for line in lines) == len(jobs) * len(capacity.SLOS_MS)
    speed, late = capacity.notes(rows)
    assert "1.00 to 2.00" in speed and "Points above 1.05: 8 of 72" in speed
    assert late.count("+100.0 points") == 8


def test_the_h100s_rows_are_those_that_the_check_measured():
    check = json.loads((ROOT / "docs" / "results" / "measured" / "h100.json").read_text())
    rows = h100_live.read()
    assert rows == h100_live.rows_of(check)
    assert {row.network for row in rows} == {"transformer", "resnet50"}


def test_figure_17_shows_the_h100_next_to_the_machine_that_was_measured(tmp_path):
    report = EXPERIMENT.report("17", live_rows(), tmp_path)
    lines = [line for line in report.tables if line.startswith("| ")]
    assert "| a core | transformer | 0.3 | graph 5 | 80.00 | 8.00 | 90.0% | 80.00 | 1.00 |" in lines
    assert sum("H100" in line for line in lines) == len(h100_live.read())
