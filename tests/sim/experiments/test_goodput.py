"""Test the study of goodput: the meaning of its numbers, and the use of policies that know deadlines."""

import csv
import json

import pytest
from progress_counter import Counter

from headrace.sim.experiments.goodput.rows import Row
from headrace.sim.experiments.goodput.runs import (
    EXPERIMENT,
    LOADS,
    MODELS,
    POLICIES,
    SLO_MS,
    Job,
    Scale,
    averaged,
    capacity_rps,
    run_job,
    simulated,
    table,
)
from headrace.sim.experiments.reproduce import reproduce
from headrace.sim.hardware.npu import npu_times
from headrace.sim.zoo import model_graph


def in_time(policy, load):
    result = simulated(Job("resnet50", 20.0, load, policy, 4000, 0))
    assert result["finished"] + result["dropped"] == 4000
    return 1.0 - result["sla_violation_rate"]


def test_a_load_of_one_is_what_full_batches_serve():
    alone = npu_times(model_graph("resnet50")).whole(64, 1.0, 1) / 64
    assert capacity_rps(("resnet50",)) == pytest.approx(1 / alone)
    assert capacity_rps(("resnet50", "resnet50")) == pytest.approx(1 / alone)
    assert capacity_rps(("resnet50", "transformer")) < 2 / alone


@pytest.mark.parametrize("policy", POLICIES)
def test_below_the_capacity_nearly_all_are_in_time(policy):
    assert in_time(policy, 0.6) > 0.999


def test_in_overload_who_knows_deadlines_serves_most_of_what_can_be_served():
    by_policy = {policy: in_time(policy, 1.5) for policy in POLICIES}
    for policy in ("earliest-deadline", "deferred"):
        assert by_policy[policy] > 0.6  # of at most 1 / 1.5
        for other in ("graph", "preba", "smdp", "lazy"):
            assert by_policy[policy] > 2 * by_policy[other]


@pytest.mark.slow
def test_the_study_writes_all_its_rows_and_a_plot(tmp_path):
    progress = Counter()
    report = reproduce(EXPERIMENT, out=tmp_path, scale=Scale(60, 1), progress=progress)
    settings = len(MODELS) * len(SLO_MS) * len(LOADS) * len(POLICIES)
    assert len(report.rows["goodput"]) == progress.steps == settings
    assert len(report.tables) == 2 + settings // len(LOADS)
    assert (tmp_path / "tables.md").read_text() == "\n".join(report.tables) + "\n"
    assert len(json.loads((tmp_path / "table.json").read_text())["goodput"]) == settings
    with (tmp_path / "goodput.csv").open() as file:
        assert len(list(csv.DictReader(file))) == settings
    assert (tmp_path / "goodput.png").read_bytes()[:4] == b"\x89PNG"


def test_every_setting_has_a_job_for_each_seed_and_a_line_of_the_table():
    jobs = EXPERIMENT.jobs("goodput", Scale(60, 2))
    settings = len(MODELS) * len(SLO_MS) * len(POLICIES)
    assert len(jobs) == len(set(jobs)) == 2 * len(LOADS) * settings and {job.seed for job in jobs} == {0, 1}
    rows = [Row(j.model, j.slo_ms, j.load, j.policy, j.load / 10, 0.0, 100 * j.load, 8.0) for j in jobs if j.seed == 0]
    lines = table(rows)
    assert len(lines) == 2 + settings and {line.count("|") for line in lines} == {len(LOADS) + 5}
    shares = " | ".join(f"{10 * load:.1f} %" for load in LOADS)
    assert all(line.endswith(f" | {shares} | 60.0, 8.0 |") for line in lines[2:])


def test_a_row_is_the_mean_of_its_seeds():
    jobs = [Job("resnet50", 20.0, 0.6, "lazy", 200, seed) for seed in range(3)]
    runs = [row for job in jobs for row in run_job(job)]
    (mean,) = averaged(runs)
    assert (mean.model, mean.slo_ms, mean.load, mean.policy) == ("resnet50", 20.0, 0.6, "lazy")
    assert mean.latency_ms == pytest.approx(sum(run.latency_ms for run in runs) / 3)
    assert mean.goodput == pytest.approx(0.6 * sum(run.in_time for run in runs) / 3)
