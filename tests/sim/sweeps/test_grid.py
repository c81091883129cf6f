"""Grids: which scenarios a file is, and which files are none."""

import json
from dataclasses import asdict

import pytest

from headrace.batching import UsageError
from headrace.sim.scenario import Scenario
from headrace.sim.sweeps.grid import MAX_RUNS, Found, read_grid, run
from headrace.sim.sweeps.journal import Journal
from headrace.sim.sweeps.sweep import sweep, worker_pool


def grid_of(tmp_path, text):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return read_grid(path)


def test_every_combination_is_there_once_and_the_seed_varies_fastest(tmp_path):
    grid = grid_of(tmp_path, 'seeds = 2\nmodel = "gnmt"\nrate-rps = [100, 2.5]\npolicy = ["lazy", "graph"]')
    assert list(grid.combinations()) == [
        {"model": "gnmt", "rate_rps": rate, "policy": policy, "seed": seed}
        for rate in (100.0, 2.5)
        for policy in ("lazy", "graph")
        for seed in (0, 1)
    ]
    assert len(grid) == 8 and grid.varied() == ["rate_rps", "policy"]
    assert all(type(each["rate_rps"]) is float for each in grid.combinations())


@pytest.mark.parametrize(("text", "seeds"), [("seeds = [7, 3]", [7, 3]), ("seed = [5]", [5]), ("seed = 4", [4])])
def test_seeds_may_be_named(tmp_path, text, seeds):
    assert [each["seed"] for each in grid_of(tmp_path, text).combinations()] == seeds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("polcy = 1", "there is no setting 'polcy'; known are accelerator"),
        ("policy = []", "policy is an empty list"),
        ("seeds = []", "seed is an empty list"),
        ("seeds = 0", "seeds is 0; give 1 to"),
        ("seeds = true", "must be of type int"),
        ("requests = [10, 1.5]", "requests is 1.5: it must be of type int"),
        ("requests = [[10]]", r"requests is \[10\]: it must be of type int"),
        ("policy = {a = 1}", "there is no setting 'a'"),
        ("policy = [[1]]", r"policy is \[1\]: it must be of type str"),
        ("seed = 1\nseeds = 2", "give seed or seeds"),
        ("rate-rps = 1\nrate_rps = 2", "twice, with dashes and without"),
        ("npus = [1, 2, 1]", "npus has a value twice"),
        ("[", "Invalid"),
        (f"seeds = {MAX_RUNS // 20 + 1}\nmax-batch = {list(range(1, 21))}", "100,020 combinations; leave out values"),
    ],
)
def test_what_is_no_grid_is_refused_with_why(tmp_path, text, words):
    with pytest.raises(UsageError, match=words):
        grid_of(tmp_path, text)


def test_what_is_no_text_is_refused(tmp_path):
    (tmp_path / "grid.toml").write_bytes(bytes(range(256)))
    with pytest.raises(UsageError, match=r"grid\.toml"):
        read_grid(tmp_path / "grid.toml")


def scenarios(seeds, rates=(100.0, 1000.0)):
    return [
        Scenario.of(model="gnmt", requests=200, rate_rps=rate, policy=policy, seed=seed)
        for rate in rates
        for policy in ("lazy", "graph")
        for seed in range(seeds)
    ]


def test_runs_are_a_function_of_their_settings_wherever_they_run():
    jobs = scenarios(2)
    assert sweep(run, jobs, lambda: None) == [run(job) for job in jobs]
    assert "wall_s" not in run(jobs[0]).result and run(jobs[0]).result["finished"] == 200


def test_a_changed_grid_runs_only_what_is_new(tmp_path):
    steps = []

    def swept(jobs):
        with Journal(tmp_path / "runs.parquet", Found) as journal, worker_pool(2) as workers:
            known = len(journal)
            found = workers.sweep(run, jobs, lambda: steps.append(1), journal)
            return found, len(journal) - known

    first, new = swept(scenarios(2))
    assert new == 8
    second, new = swept(scenarios(3, rates=(1000.0, 3000.0)))
    assert new == 8, "two policies at 1,000/s with the third seed, and six runs at 3,000/s"
    assert second == [run(job) for job in scenarios(3, rates=(1000.0, 3000.0))]
    assert json.dumps([asdict(each) for each in swept(scenarios(2))[0]]) == json.dumps([asdict(each) for each in first])


def test_a_run_that_cannot_be_stable_is_told_beside_the_others():
    beyond = Scenario.of(policy="smdp", traffic="mmpp", by_phase=True, rate_rps=1e4, requests=100)
    found = run(beyond)
    assert found.result == {} and found.failed is not None and found.failed.startswith("unstable: 10000 requests")
