"""Test the properties that hold for all experiments."""

import csv
import json
import shutil

import pyarrow.parquet as pq
import pytest
from progress_counter import Counter

from headrace.batching import UsageError
from headrace.sim.experiments.experiment import NAMES, named
from headrace.sim.experiments.report import Claim, write_claims
from headrace.sim.experiments.reproduce import reproduce

PAPERS = ("batchmaker", "lazybatching", "parvagpu", "preba", "smdp")


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_has_the_name_of_its_folder_and_jobs_for_its_figures(name):
    experiment = named(name)
    assert experiment.name == name
    for figure in experiment.figures:
        few, many = experiment.jobs(figure, experiment.quick), experiment.jobs(figure, experiment.full)
        assert len(few) <= len(many)
        assert len({experiment.order(job) for job in few}) <= len(few)


@pytest.mark.parametrize("name", PAPERS)
def test_every_figure_has_a_plot_and_its_numbers(name, reproduced):
    experiment = named(name)
    folder, claims = reproduced(experiment)
    not_plotted = ("table1", "pcie", *(("17",) if name == "lazybatching" else ()))  # 17 is its live prototype
    for name in (f"figure{figure}" for figure in experiment.figures if figure not in not_plotted):
        assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        with (folder / f"{name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) > 3
    table = json.loads((folder / "table.json").read_text())
    assert [(entry["claim"], entry["paper"]) for entry in table] == [(claim.claim, claim.paper) for claim in claims]
    assert len((folder / "table.md").read_text().splitlines()) == len(claims) + 2


SLOWER = [pytest.param(name, marks=pytest.mark.slow) for name in PAPERS if name != "parvagpu"]


@pytest.mark.parametrize("name", ["parvagpu", *SLOWER])
def test_a_second_start_takes_what_the_first_found(name, reproduced, tmp_path):
    """The second start takes all results, to the byte. It does not run kept jobs: a number that is changed there comes
    out."""
    experiment = named(name)
    folder, _ = reproduced(experiment)
    again = tmp_path / "again"
    again.mkdir()
    shutil.copy(folder / "runs.parquet", again)
    progress = Counter()
    reproduce(name, out=again, scale="quick", progress=progress)
    assert (progress.skipped, progress.steps) == (progress.stages[0][1], 0)
    names = sorted(path.name for path in folder.iterdir() if path.suffix != ".pickle")  # the fixture's
    assert [path.name for path in sorted(again.iterdir())] == names
    assert [name for name in names if (folder / name).read_bytes() != (again / name).read_bytes()] == []

    records = pq.read_table(folder / "runs.parquet")["record"].to_pylist()
    changed = [json.loads(record) for record in records[:-1]]  # one is missing
    for record in changed:
        for _, row in record["result"]["rows"]:
            row |= {name: 12345.0 for name in ("latency_ms", "mean_ms", "p99") if name in row}
    (again / "runs.parquet").unlink()
    (again / "runs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in changed))
    reproduce(name, out=again, scale="quick")
    assert any(b"12345" in path.read_bytes() for path in again.glob("*.csv"))
    assert records[-1] in pq.read_table(again / "runs.parquet")["record"].to_pylist()


@pytest.mark.parametrize(
    ("bound", "measured", "compared"),
    [("", 150.0, "1.50"), (">", 150.0, "kept"), (">", 80.0, "not kept"), ("<", 80.0, "kept"), ("", None, "-")],
)
def test_a_bound_of_the_paper_is_checked_as_a_bound(bound, measured, compared, tmp_path):
    write_claims(tmp_path, [Claim("9", "wait", 100, measured, "ms", bound=bound)])
    row = (tmp_path / "table.md").read_text().splitlines()[-1]
    assert row.startswith(f"| 9 | wait | {bound} 100 ms |".replace("  ", " ")) and row.endswith(f"| {compared} |  |")


@pytest.mark.parametrize(
    ("name", "figure", "known"),
    [
        ("lazybatching", "4", "3, 5"),
        ("smdp", "3", "4, 5"),
        ("smdp", "table2", "4, 5"),
        ("batchmaker", "4", "3, 7a"),
        ("preba", "10", "5, 6"),
        ("parvagpu", "twelve", "eleven, six"),
        ("slices", "folding", "preparing, scheduling"),
    ],
)
def test_an_unknown_figure_is_refused(name, figure, known, tmp_path):
    with pytest.raises(UsageError, match=f"--figure {figure}: choose from {known}"):
        reproduce(name, out=tmp_path, scale="quick", figures=[figure])


def test_an_unknown_name_or_scale_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no experiment 'vidur'; choose from batchmaker, goodput"):
        reproduce("vidur", out=tmp_path)
    with pytest.raises(UsageError, match="no scale 'slow'; choose full or quick"):
        reproduce("smdp", out=tmp_path, scale="slow")
