"""Test the properties that hold for all experiments."""

import csv
import json
import shutil

import pyarrow.parquet as pq
import pytest
from experiment_names import PAPERS
from live_rows import measure_of
from progress_counter import Counter

from headrace.batching import UsageError
from headrace.sim import plot_style
from headrace.sim.experiments.experiment import NAMES, named
from headrace.sim.experiments.report import Claim, Kind, counted, write_claims
from headrace.sim.experiments.reproduce import reproduce


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_has_the_name_of_its_folder_and_jobs_for_its_figures(name):
    experiment = named(name)
    assert experiment.name == name
    for figure in experiment.figures:
        few, many = experiment.jobs(figure, experiment.quick), experiment.jobs(figure, experiment.full)
        assert len(few) <= len(many)
        assert len({experiment.order(job) for job in few}) <= len(few)


SLOWER = [pytest.param(name, marks=pytest.mark.slow) for name in PAPERS if name != "parvagpu"]


@pytest.mark.parametrize("name", ["parvagpu", *SLOWER])
def test_every_figure_has_a_plot_and_its_numbers(name, reproduced):
    experiment = named(name)
    folder, claims = reproduced(experiment)
    not_plotted = {"table1", "pcie"}
    if name == "preba":
        not_plotted |= {"sensitivity", "map"}  # the first is a table, and the map has a file name of its own
    if name == "lazybatching":
        not_plotted |= {"pairs", "cellular"}  # statements of the paper's text
    for name in (f"figure{figure}" for figure in experiment.figures if figure not in not_plotted):
        assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        with (folder / f"{name}.csv").open() as file:
            assert len(list(csv.DictReader(file))) > 3
    table = json.loads((folder / "table.json").read_text())
    assert [(entry["claim"], entry["paper"]) for entry in table] == [(claim.claim, claim.paper) for claim in claims]
    counts, rows = (part.splitlines() for part in (folder / "table.md").read_text().split("\n\n"))
    assert len(rows) == len(claims) + 2
    assert sum(int(line.split(" | ")[1]) for line in counts[2:]) == len(claims)


@pytest.mark.parametrize("name", ["parvagpu", *SLOWER])
def test_a_second_start_takes_what_the_first_found(name, reproduced, tmp_path, monkeypatch):
    """The second start takes all results, to the byte. It does not run kept jobs: a number that is changed there comes
    out."""
    experiment = named(name)
    folder, _ = reproduced(experiment)
    again = tmp_path / "again"
    again.mkdir()
    shutil.copy(folder / "runs.parquet", again)
    progress = Counter()
    reproduce(name, out=again, scale="quick", progress=progress, measure=measure_of(experiment))
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
    monkeypatch.setattr(plot_style, "save", lambda drawn, path: None)  # pictures take most of the time
    reproduce(name, out=again, scale="quick", measure=measure_of(experiment))
    assert any(b"12345" in path.read_bytes() for path in again.glob("*.csv"))
    assert records[-1] in pq.read_table(again / "runs.parquet")["record"].to_pylist()


@pytest.mark.parametrize(
    ("bound", "measured", "compared"),
    [("", 150.0, "1.50"), (">", 150.0, "kept"), (">", 80.0, "not kept"), ("<", 80.0, "kept"), ("", None, "-")],
)
def test_a_bound_of_the_paper_is_checked_as_a_bound(bound, measured, compared, tmp_path):
    write_claims(tmp_path, [Claim("9", "wait", 100, measured, "ms", bound=bound)])
    row = (tmp_path / "table.md").read_text().splitlines()[-1]
    assert row.startswith(f"| 9 | wait | {bound} 100 ms |".replace("  ", " "))
    assert row.endswith(f"| {compared} | independent |  |")


@pytest.mark.parametrize(
    ("paper", "measured", "bound", "near"),
    [
        (100, 115, "", True),
        (100, 85, "", True),
        (100, 115.1, "", False),
        (100, 84.9, "", False),
        (0, 0, "", True),
        (100, None, "", False),
        (100, 300, ">", True),
        (100, 99, ">", False),
        (100, None, ">", False),
    ],
)
def test_a_row_is_near_within_15_per_cent_or_where_the_bound_is_kept(paper, measured, bound, near):
    assert Claim("9", "wait", paper, measured, "ms", bound=bound).near is near


def test_the_count_tells_rows_by_what_they_prove_and_whether_a_run_shows_the_cause():
    rows = [
        Claim("1", "a", 10, 10, "ms"),
        Claim("1", "b", 10, 20, "ms", cause="the other network is smaller (figure 2)"),
        Claim("1", "c", 10, 20, "ms"),
        Claim("1", "d", 10, 10, "ms", kind=Kind.CIRCULAR),
        Claim("1", "e", 10, 10, "ms", kind=Kind.BY_CONSTRUCTION, cause="a cause of a row that is near is not counted"),
    ]
    assert counted(rows).splitlines()[2:] == [
        "| independent | 3 | 1 | 1 | 1 |",
        "| by construction | 1 | 1 | 0 | 0 |",
        "| circular | 1 | 1 | 0 | 0 |",
    ]


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
    with pytest.raises(UsageError, match="no experiment 'vidur'; choose from aiconfigurator, batchmaker, goodput"):
        reproduce("vidur", out=tmp_path)
    with pytest.raises(UsageError, match="no scale 'slow'; choose full or quick"):
        reproduce("smdp", out=tmp_path, scale="slow")
