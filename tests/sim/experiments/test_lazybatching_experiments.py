import csv

import pytest

from headrace.sim.experiments.lazybatching import runs as lazybatching
from headrace.sim.experiments.lazybatching.rows import Runs
from headrace.sim.experiments.lazybatching.runs import NETWORKS, Job, run_job


@pytest.fixture(scope="module")
def quick(reproduced):
    return reproduced(lazybatching)


def test_every_number_of_the_paper_has_one_beside_it(quick):
    _, claims = quick
    papers = sorted(claim.paper for claim in claims)
    named = [1.1, 7.2, 2.4, 5.3, 2.7, 2.5, 1.1, 1.3, 1.2, 15, 1.5, 5.5, 54, 123, 20, 40, 60, 36, 36, 12, 14, 2.4, 1.8]
    assert papers == sorted([*named, 1.5, 1.3, 2.9])
    assert all(claim.measured is not None for claim in claims if "lowest target" not in claim.claim)


def test_the_figures_show_what_the_paper_found(quick):
    """Not how much, which is the table's: lazy has less latency than any GraphB at low load on every network."""
    folder, _ = quick
    with (folder / "figure12.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if float(row["rate_rps"]) == 16]
    for network in NETWORKS:
        mine = [row for row in rows if row["model"] == network]
        lazy = max(float(row["mean_ms"]) for row in mine if row["policy"] == "lazy")
        assert lazy < min(float(row["mean_ms"]) for row in mine if row["policy"] == "graph")


def test_policies_of_a_job_see_the_same_arrivals_and_a_job_is_a_function_of_its_seed():
    job = Job("test", "gnmt", 100.0, 3, 200, (5, 50), ("serial", "lazy", "oracle"))
    rows = run_job(job)
    assert [(row.policy, row.window_ms) for row in rows] == [
        ("graph", 5), ("graph", 50), ("serial", 0), ("lazy", 0), ("oracle", 0),
    ]  # fmt: skip
    assert run_job(job) == rows
    runs = Runs(rows)
    assert runs.mean("mean_ms", policy="lazy") == rows[3].mean_ms and len(runs.select(policy="graph")) == 2
