"""The tables of the hardware pages follow from the committed measurements, and these belong to the RTL as it is."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.bitstreams.resources.report import CYCLES_PER_IMAGE
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import rtl_sources
from headrace.sim.system.card import estimated_mhz

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "units_reference.py"))
FIGURES = runpy.run_path(str(ROOT / "scripts" / "clock_figures.py"))
CLOCKS = json.loads((ROOT / "docs" / "results" / "measured" / "clocks.json").read_text())


# ---- Tables


@pytest.mark.parametrize("name", SCRIPT["PAGES"])
def test_a_page_has_the_tables_that_the_script_writes(name):
    text = (ROOT / name).read_text()
    assert SCRIPT["filled"](text) == text


def test_every_table_stands_on_a_page_and_no_mark_is_left_open():
    texts = [(ROOT / name).read_text() for name in SCRIPT["PAGES"]]
    used = {name for text in texts for _, name, _ in SCRIPT["MARKED"].findall(text)}
    assert used == SCRIPT["TABLES"].keys()
    for text in texts:
        assert text.count("<!-- table: ") == text.count("<!-- end of table -->") == len(SCRIPT["MARKED"].findall(text))


def test_check_fails_for_a_page_with_an_old_table(tmp_path):
    for folder in ("scripts", "tests/hls", "docs", "hls"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, tmp_path / "scripts" / "units_reference.py", "--check"]
    assert subprocess.run(command, timeout=60).returncode == 0
    page = tmp_path / "hls" / "README.md"
    page.write_text(page.read_text().replace("| `crop` | 410 |", "| `crop` | 411 |"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "hls/README.md has old tables" in done.stderr
    subprocess.run(command[:-1], check=True, timeout=60)
    assert page.read_text() == (ROOT / "hls" / "README.md").read_text()


def test_an_unknown_table_is_an_error():
    with pytest.raises(KeyError):
        SCRIPT["filled"]("<!-- table: nothing -->\n<!-- end of table -->\n")


# ---- Units


def test_every_unit_has_its_sources_and_every_unit_of_hls_has_a_row():
    hls = hls_folder()
    for unit in SCRIPT["UNITS"]:
        assert (hls / unit.folder / f"{unit.module}.sv").is_file()
        assert (hls / unit.folder / f"{Path(unit.folder).name}.hpp").is_file() == unit.in_cpp
    tops = {path.stem for path in hls.glob("*/*.sv") if path.stem == path.parent.name}
    assert tops <= {unit.module for unit in SCRIPT["UNITS"]}


def test_the_bounds_are_the_constants_that_the_tests_compare_with():
    for file, name, _ in SCRIPT["BOUNDS"]:
        text = (ROOT / "tests" / file).read_text()
        assert SCRIPT["constant"](ROOT / "tests" / file, name) > 0
        assert len(re.findall(rf"\b{name}\b", text)) >= 2, f"{file}: nothing uses {name}"
    with pytest.raises(KeyError, match="NOTHING"):
        SCRIPT["constant"](ROOT / "tests" / "hls" / "test_mel.py", "NOTHING")


def test_the_measured_errors_are_within_the_bounds():
    bounds = {name: SCRIPT["constant"](ROOT / "tests" / file, name) for file, name, _ in SCRIPT["BOUNDS"]}
    for row in CLOCKS["audio_cu"]["rows"]:
        assert row["resample_error"] < bounds["ERROR"]
        assert row["mel_error_999"] < bounds["ERROR_999"] and row["mel_error_all"] < bounds["ERROR_HIGH"]
        assert row["normalised_rms"] < bounds["ERROR_FLOAT32"]


# ---- Clocks


def test_the_clocks_were_measured_on_this_rtl():
    """If this fails, the RTL changed: run scripts/clock_figures.py and scripts/units_reference.py."""
    assert CLOCKS["rtl_sha256"] == FIGURES["own_digest"]()


def test_the_digest_ignores_comments_and_sees_code(tmp_path):
    folder = tmp_path / "unit"
    folder.mkdir()
    file = folder / "unit.sv"

    def digest(text: str) -> str:
        file.write_text(text)
        return FIGURES["rtl_digest"]([file])

    plain = digest("module unit;\n  assign a = b;\nendmodule\n")
    assert digest("// A unit.\nmodule unit;\n  assign a = b;  // why\n\nendmodule\n") == plain
    assert digest("module unit;\n  assign a = c;\nendmodule\n") != plain


def test_macros_belong_to_the_digest():
    assert any(path.parent.glob("*.svh") for path in rtl_sources())
    assert FIGURES["own_digest"]() != FIGURES["rtl_digest"](rtl_sources())


def test_the_reports_clocks_of_an_image_are_the_measured_ones():
    (row,) = [r for r in CLOCKS["image_cu"]["summary"] if (r["sampling"], r["quality"]) == ("4:2:0", 90)]
    assert row["start_to_start"] == pytest.approx(CYCLES_PER_IMAGE, rel=1e-3)
    assert CLOCKS["image_cu"]["estimated_clock_mhz"] == estimated_mhz("image cu")


def test_floats_are_rounded_and_everything_else_stays():
    assert FIGURES["rounded"]({"a": [1.23456789, 12345678], "b": "x"}) == {"a": [1.23457, 12345678], "b": "x"}
