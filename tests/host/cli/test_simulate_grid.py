"""`headrace simulate --grid`: its table, its JSON, and what goes with it."""

import json
from pathlib import Path

import pytest
from command import headrace, headrace_here

GRID = 'model = "gnmt"\nrequests = 100\npolicy = ["lazy", "graph"]\nseeds = 2\n'


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


def test_each_run_is_that_of_simulate_with_its_settings(grid):
    runs = json.loads(headrace("simulate", "--grid", grid, "--json", "--rate-rps", 50).stdout)
    assert [(each["settings"]["policy"], each["settings"]["seed"]) for each in runs] == [
        ("lazy", 0),
        ("lazy", 1),
        ("graph", 0),
        ("graph", 1),
    ]
    one = ("simulate", "--model", "gnmt", "--requests", 100, "--policy", "graph", "--seed", 1, "--rate-rps", 50)
    alone = json.loads(headrace(*one, "--json").stdout)
    assert runs[3]["settings"] == alone.pop("settings")
    assert runs[3]["warnings"] == alone.pop("warnings") and runs[3]["failed"] is None
    del alone["wall_s"]
    assert runs[3]["result"] == alone


def test_the_table_has_a_row_for_each_setting_that_varies(grid):
    done = headrace("simulate", "--grid", grid)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line]
    assert [row[:2] for row in rows] == [["lazy", "2"], ["graph", "2"]]
    runs = json.loads(headrace("simulate", "--grid", grid, "--json").stdout)
    mean = sum(each["result"]["latency_ms"]["mean"] for each in runs[:2]) / 2
    assert rows[0][3] == f"{mean:.4g}"


def test_a_second_start_goes_on_from_the_folder_of_the_first(grid, tmp_path):
    folder = tmp_path / "out"
    first = headrace("simulate", "--grid", grid, "-o", folder, "--json")
    again = headrace("simulate", "--grid", grid, "-o", folder, "--json")
    assert again.stdout == first.stdout
    assert "4 runs are in" in again.stderr and "runs are in" not in first.stderr
    assert [path.name for path in folder.iterdir()] == ["runs.parquet"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--policy", "lazy"), "--grid has policy as well: give it once"),
        (("--trace", "new.pftrace"), "--trace is for one run"),
        (("--busy-w", "inf"), "--busy-w inf: give a finite number"),
    ],
)
def test_what_does_not_go_with_a_grid(grid, more, words, monkeypatch):
    monkeypatch.chdir(grid.parent)
    done = headrace_here("simulate", "--grid", grid, *more)
    assert (done.returncode, done.stdout) == (2, "") and words in done.stderr


@pytest.mark.parametrize("option", ["--out", "--ray"])
def test_what_is_for_a_grid_alone(option, tmp_path):
    done = headrace_here("simulate", option, tmp_path / "x")
    assert done.returncode == 2 and f"{option} is for --grid" in done.stderr
    assert not (tmp_path / "x").exists()


def test_the_file_of_somebody_else_is_refused(grid, tmp_path):
    (tmp_path / "runs.parquet").write_bytes(b"PAR1")
    done = headrace_here("simulate", "--grid", grid, "-o", tmp_path)
    assert done.returncode == 2 and "no file of results that Headrace wrote" in done.stderr


def test_the_example_is_a_grid():
    assert headrace("simulate", "--grid", Path(__file__).parents[3] / "examples/grid.toml").returncode == 0
