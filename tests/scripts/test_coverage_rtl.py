"""scripts/coverage_rtl.py: its reasons are of the RTL as it is, and it adds up what models wrote."""

from pathlib import Path

import pytest

from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import rtl_sources

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def coverage(load_script):
    return load_script("coverage_rtl")


def test_every_suite_is_a_test_file(coverage):
    assert all((ROOT / "tests" / "hls" / f"test_{suite}.py").exists() for suite in coverage.SUITES)
    assert len(set(coverage.SUITES)) == len(coverage.SUITES)


def test_every_reason_is_of_a_line_or_file_that_is_there(coverage):
    files = {str(file.relative_to(hls_folder())): file.read_text() for file in rtl_sources()}
    for path, part, _, _ in coverage.UNREACHED:
        assert any(path in name and part in text for name, text in files.items()), (path, part)
    for path, _, _ in coverage.UNTOGGLED:
        assert any(path in name for name in files), path


def entry(count: int, **keys: object) -> str:
    return "C '" + "".join(f"\1{key}\2{value}" for key, value in keys.items()) + f"' {count}\n"


def test_counts_of_instances_and_models_are_added_up(coverage, tmp_path, monkeypatch):
    monkeypatch.setattr(coverage, "hls_folder", lambda: tmp_path)
    (tmp_path / "unit").mkdir()
    source = tmp_path / "unit" / "unit.sv"
    source.write_text("if (a) b = c;\nassign d = e;\n`ifndef SYNTHESIS\nc_rare: cover property (x);\n`endif\n")
    at = {"f": source, "n": 3}
    data = [
        entry(2, **at, l=1, t="branch", page="v_branch/unit", o="if", S="1"),
        entry(0, **at, l=1, t="branch", page="v_branch/unit", o="else", S="1"),
        entry(3, **at, l=4, t="user", page="v_user/unit", o="c_rare", h="top.a"),
        entry(0, **at, l=4, t="user", page="v_user/unit", o="c_never", h="top.a"),
        entry(4, **at, l=2, t="toggle", page="v_toggle/unit", o="d:0->1"),
    ]
    for number in range(2):
        (tmp_path / f"{number}.dat").write_text("".join(data))
    units = coverage.report(coverage.collect(sorted(tmp_path.glob("*.dat"))))
    found = units["unit"]["unit/unit.sv"]
    assert found["covers"] == {"c_never": 0, "c_rare": 6}
    assert found["branches"] == [1, 2] and found["toggles"] == [0, 1]
    assert list(found["not_toggled"].values()) == [["d"]]


def test_reasons_that_nothing_needs_are_named(coverage):
    unneeded = list(coverage.unneeded({"unit": {"unit/unit.sv": {"not_reached": [], "not_toggled": {}}}}))
    assert len(unneeded) == len(coverage.UNREACHED) + len(coverage.UNTOGGLED)
