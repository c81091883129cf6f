"""The pages that scripts/docs_results.py writes are those in the repository, and follow from what experiments wrote."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "docs_results.py"))
HEAD = f"| figure | what | paper | measured | measured / paper | kind | note |\n|{' --- |' * 7}\n"
COUNTS = "| rows | all | near | off | unknown |\n| --- | ---: | ---: | ---: | ---: |\n| independent | {} |\n\n"


@pytest.mark.parametrize("name", SCRIPT["names"]())
def test_a_page_in_the_repository_is_the_one_that_is_written(name):
    written = (ROOT / "docs" / f"{name}.md").read_text()
    assert written == SCRIPT["page"](name), "run scripts/docs_results.py"


def test_every_experiment_has_a_page_of_results():
    from headrace.sim.experiments.experiment import NAMES

    assert {f"results/{name}" for name in NAMES} <= set(SCRIPT["names"]())


@pytest.fixture
def claims(tmp_path, monkeypatch):
    """Return the class of claims, which reads table.md of the only experiment, "own", from the given text."""
    monkeypatch.setitem(SCRIPT["Claims"].__init__.__globals__, "EXPERIMENTS", tmp_path)
    (tmp_path / "own" / "results").mkdir(parents=True)

    def make(counts: str, rows: str):
        (tmp_path / "own" / "results" / "table.md").write_text(COUNTS.format(counts) + HEAD + rows)
        return SCRIPT["Claims"]("own")

    return make


ROWS = (
    "| 1 | latency | 10 ms | 11.4 ms | 1.14 | independent | mean. With other costs: slow 20.5 ms, a 3 ms |\n"
    "| 2 | rate | > 5 1/s | 4 1/s | not kept | independent | note. Why it differs: the load is not known |\n"
    "| 3 | share | 50 % | 20 % | 0.40 | independent |  |\n"
    "| 4 | target | 40 ms | - | - | independent | nobody was in time |\n"
)


def test_rows_are_near_or_differ_with_or_without_a_cause(claims):
    table = claims("4 | 1 | 1 | 2", ROWS)
    assert [row.result for row in table.rows] == ["near", "**bound not kept**", "**differs**", "no result"]
    off = table.off_table("independent").splitlines()[2:]
    assert off == [
        "| 2 | rate | > 5 1/s | 4 1/s | The load is not known |",
        "| 3 | share | 50 % | 20 % | not found |",
        "| 4 | target | 40 ms | - | not found |",
    ]
    assert table.one("1", "lat").number == "11.4" and table.one("1", "lat").other("slow") == "20.5 ms"


def test_a_table_whose_counts_are_not_those_of_its_rows_is_refused(claims):
    with pytest.raises(ValueError, match="counted as"):
        claims("4 | 2 | 1 | 1", ROWS)


def test_a_row_that_prose_names_must_exist_once(claims):
    table = claims("4 | 1 | 1 | 2", ROWS)
    with pytest.raises(ValueError, match="0 rows"):
        table.one("1", "throughput")


def test_only_columns_of_numbers_are_aligned_to_the_right():
    text = SCRIPT["markdown"](["network", "rate", "what"], [["a", "1,000 1/s", "x"], ["b", "< 2.5e-3 ms", "1 to 2"]])
    assert text.splitlines()[1] == "| --- | ---: | --- |"


def test_a_quantile_lies_between_its_neighbours():
    assert SCRIPT["quantile"]([4.0, 1.0, 2.0], 0.5) == 2.0
    assert SCRIPT["quantile"]([1.0, 2.0], 0.25) == 1.25


def test_check_fails_for_a_page_that_differs(tmp_path):
    for folder in ("docs", "scripts", "sim/experiments"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored, symlinks=True)
    command = [sys.executable, tmp_path / "scripts" / "docs_results.py", "--check", "results/smdp"]
    assert subprocess.run(command).returncode == 0
    page = tmp_path / "docs" / "results" / "smdp.md"
    page.write_text(page.read_text().replace("89", "90", 1))
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr == "different: docs/results/smdp.md\n"


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Return the folder of the pictures of the only experiment, "own"."""
    names = SCRIPT["picture"].__globals__
    monkeypatch.setitem(names, "ROOT", tmp_path)
    monkeypatch.setitem(names, "DOCS", tmp_path / "docs")
    monkeypatch.setitem(names, "PICTURES", tmp_path / "docs" / "images" / "results")
    folder = tmp_path / "docs" / "images" / "results" / "own"
    folder.mkdir(parents=True)
    return folder


def test_a_picture_has_a_variant_for_dark_pages_if_there_is_one(pictures):
    (pictures / "one.png").write_bytes(b"light")
    assert SCRIPT["picture"]("own", "one", "latency") == "![latency](../images/results/own/one.png)"
    (pictures / "one-dark.png").write_bytes(b"dark")
    lines = SCRIPT["picture"]("own", "one", "latency").splitlines()
    assert 'srcset="../images/results/own/one-dark.png"' in lines[1]
    assert lines[2].strip() == '<img src="../images/results/own/one.png" alt="latency">'
    with pytest.raises(ValueError, match=r"there is no docs/images/results/own/two\.png"):
        SCRIPT["picture"]("own", "two", "")


def test_pictures_that_pages_show_are_taken_from_a_reproduction(pictures, tmp_path):
    (pictures / "one.png").write_bytes(b"old")
    drawn = tmp_path / "out"
    drawn.mkdir()
    for name in ("one.png", "one-dark.png", "two.png"):
        (drawn / name).write_bytes(b"new")
    taken = SCRIPT["take_pictures"]("own", drawn)
    assert [path.name for path in taken] == ["one.png", "one-dark.png"]
    assert {path.name for path in pictures.iterdir()} == {"one.png", "one-dark.png"}
    assert (pictures / "one.png").read_bytes() == b"new"


def test_prose_is_wrapped_and_tables_and_code_are_not():
    words = "word " * 40
    code = f"```text\n{words}\n```"
    table = f"| {words}|"
    text = f"# {words}\n\n{words}\n- item {words}\n  more\n\n{table}\n{code}\n"
    lines = SCRIPT["reflowed"](text).splitlines()
    assert {line for line in lines if len(line) > 120} == {f"# {words}", words, table}
    assert lines[2] == ("word " * 24).strip() and lines[4].startswith("- item word") and lines[5].startswith("  word")
    assert lines[5].endswith("more")
    assert SCRIPT["reflowed"]("\n".join(lines)) == "\n".join(lines)
