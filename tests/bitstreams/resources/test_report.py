"""Yosys synthesises small modules of known cost, and the report shows that cost."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.bitstreams.errors import BuildError
from headrace.bitstreams.resources import netlist, report
from headrace.bitstreams.resources.report import (
    AUDIO_UNITS,
    IMAGE_UNITS,
    PREBA_TABLE_1,
    UNITS,
    measure,
    parts_of,
    resource_report,
)
from headrace.bitstreams.verilate import needed_files, rtl_sources
from headrace.host.cli import main as cli
from headrace.host.cli import resource_report as printing

RTL = Path(__file__).parent / "rtl"
SOURCES = sorted(RTL.glob("*.sv"))
CACHE = Path(__file__).parents[3] / "build" / "tests" / "report"  # by content, as what the other tests compile


def measured(name):
    return measure(name, SOURCES, CACHE)


def memory(result, name):
    return next(memory for memory in result["memories"] if memory["name"] == name)


# ---- What is counted


def test_each_kind_of_memory_is_told_with_its_cells():
    result = measured("report_mixed")
    resources = result["resources"]
    assert resources["uram"] == 1 and resources["bram36"] == 1
    assert memory(result, "ultra_memory")["mapping"] == "URAM"
    assert memory(result, "ultra_memory")["primitives"] == {"URAM288": 1}
    assert memory(result, "block_memory")["primitives"] == {"RAMB36E2": 1}
    queue = memory(result, "u_queue.memory")
    assert (queue["words"], queue["width"], queue["mapping"]) == (64, 32, "LUTRAM")
    assert queue["primitives"] == {"RAM64M8": 5}  # seven bits each
    assert resources["lutram"] == 5 * 8  # which take eight LUTs each


def test_a_multiplier_is_a_dsp_and_a_tiny_one_is_told():
    result = measured("report_mixed")
    assert result["resources"]["dsp"] == 1
    (small,) = result["soft_multipliers"]
    assert (small["a"], small["b"]) == (3, 3) and "report_mixed.sv" in small["source"]


def test_each_bit_of_a_carry_chain_takes_a_lut():
    pins = {"CI": ["0"], "CYINIT": ["0"], "DI": [5, 6, "0", "0"], "S": [5, 6, 7, "0"], "O": [8, 9, 10, 11]}
    chain = {"type": "CARRY4", "connections": {**pins, "CO": [12, 13, 14, 15]}}
    cells = module([register(4, 5), register(4, 6), lut([5, 6], 7), chain])
    assert (netlist.count_cells(cells)["lut"], netlist.count_cells(cells)["carry8"]) == (3, 1)


def test_a_fifo_costs_lut_ram_and_its_pointers():
    result = measure("stream_fifo", rtl_sources(), CACHE)  # 16 words of 8 bits
    assert result["resources"]["lutram"] == 8 and result["resources"]["ff"] < 20
    assert [memory["mapping"] for memory in result["memories"]] == ["LUTRAM"]


def test_a_memory_that_became_flip_flops_is_told():
    result = measured("report_registers")
    found = memory(result, "memory")
    assert (found["bits"], found["mapping"]) == (2048, "flip-flops")
    assert result["resources"]["ff"] >= 2048 and found["primitives"]["FF"] == 2048


LARGE = ("image_cu", "audio_mel_cu", "resample", "mel", "audio_norm_cu", "mel_normalize")
QUICK = ("crop",)


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("unit", [pytest.param(unit, marks=[pytest.mark.slow] * (unit not in QUICK)) for unit in UNITS])
def test_no_memory_of_a_unit_above_1_kbit_is_lost_or_became_flip_flops(unit):
    files = rtl_sources()
    if not any(file.stem == unit for file in files):
        pytest.skip("no RTL yet")
    result = measure(unit, files, CACHE)
    wrong = [m for m in result["memories"] if m["bits"] > 1024 and m["mapping"] in ("flip-flops", "removed")]
    assert not wrong
    assert not result["warnings"]


# 250 MHz by the estimate.
PARTS = ("jpeg_parser", "entropy_decoder", "band_decoder", "transform", "render", "job_ring")


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "unit", [pytest.param(unit, marks=[pytest.mark.slow] * (unit not in QUICK)) for unit in (*UNITS, *PARTS)]
)
def test_no_path_of_a_unit_passes_more_than_8_luts_or_takes_more_than_4_ns(unit):
    """abc9 estimates the delay without the time of LUT RAMs. The LUT levels count them."""
    result = measure(unit, rtl_sources(), CACHE)
    assert result["most_luts_on_a_path"] <= 8, result["longest_paths"][0]
    assert result["abc9_delay_ps"] <= 4000


WITH_OTHERS = ("image_cu", "audio_mel_cu", "audio_norm_cu")  # which have the other units within


@pytest.mark.parametrize(
    "unit", [pytest.param(unit, marks=[pytest.mark.slow] * (unit not in WITH_OTHERS)) for unit in LARGE]
)
def test_yosys_reads_what_takes_too_long_to_synthesise_here(unit):
    """Yosys needs names to be declared before they are used, and Verilator does not."""
    files = " ".join(map(str, needed_files(unit, rtl_sources())))
    read = f"libyosys.run_pass('read_slang --top {unit} {files}', libyosys.Design())"
    done = subprocess.run(
        [sys.executable, "-c", f"from pyosys import libyosys; {read}"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


# ---- Paths


def test_a_parity_of_36_bits_is_a_few_levels_of_luts():
    result = measured("report_parity")
    path = next(path for path in result["longest_paths"] if path["end"] == "parity_o")
    assert 2 <= path["luts"] <= 4 and path["carries"] == 0  # abc9 takes a level more where a faster pin makes up for it
    assert path["luts"] == result["most_luts_on_a_path"]
    assert path["start"].startswith("data_q[")


def test_a_32_bit_sum_is_one_adder_chain_from_its_lowest_bit():
    result = measured("report_parity")
    path = next(path for path in result["longest_paths"] if path["end"].startswith("sum_o["))
    assert re.match(r"(first|second)_q\[[0-3]\]", path["start"])
    assert (path["luts"], path["carries"], path["carry_cells"]) == (1, 1, 8)
    assert result["resources"]["carry8"] == 4


def test_abc9s_estimate_is_given():
    assert 500 < measured("report_parity")["abc9_delay_ps"] < 5000


def lut(inputs, output):
    pins = {f"I{index}": [bit] for index, bit in enumerate(inputs)}
    directions = {**dict.fromkeys(pins, "input"), "O": "output"}
    connections = {**pins, "O": [output]}
    return {"type": f"LUT{len(inputs)}", "connections": connections, "port_directions": directions, "parameters": {}}


def register(data, output):
    pins = {"C": [1], "CE": ["1"], "R": ["0"], "D": [data], "Q": [output]}
    directions = {pin: "output" if pin == "Q" else "input" for pin in pins}
    return {"type": "FDRE", "connections": pins, "port_directions": directions, "parameters": {}, "attributes": {}}


def module(cells, **names):
    nets = {name: {"hide_name": 0, "bits": [bit]} for name, bit in names.items()}
    return {"ports": {}, "cells": {str(number): cell for number, cell in enumerate(cells)}, "netnames": nets}


def test_a_path_ends_at_registers_and_names_what_it_passes():
    cells = [register(9, 2), lut([2], 3), lut([3, 2], 4), register(4, 5), lut([5], 6), register(6, 7)]
    timing = netlist.longest_paths(module(cells, first_q=2, middle=3, second_q=5, third_q=7))
    assert timing.max_luts == 2
    assert [(path.start, path.end, path.luts, path.via) for path in timing.paths[:2]] == [
        ("first_q", "second_q", 2, ("middle",)),
        ("second_q", "third_q", 1, ()),
    ]


def only_path(cells):
    """Return the ends of the estimate of the module's longest path, and its first path."""
    timing = netlist.longest_paths(module(cells, end_q=99))
    assert (timing.paths[0].fast_ps, timing.paths[0].slow_ps) == (timing.fast_ps, timing.slow_ps)
    return timing.fast_ps, timing.slow_ps


def cell(kind, parameters=None, outputs=(), **pins):
    directions = {pin: "output" if pin in outputs else "input" for pin in pins}
    return {"type": kind, "connections": pins, "port_directions": directions, "parameters": parameters or {}}


def test_a_path_has_the_clock_to_output_of_a_register_its_luts_and_their_wires():
    """LUT3: 0.127 to 0.407 by input. No wire lies between a LUT and the register that takes its output."""
    assert only_path([register(2, 2), lut(["0", "0", 2], 5), register(5, 99)]) == (150 + 300 + 127, 303 + 300 + 127)
    assert only_path([register(2, 2), lut([2, "0", "0"], 5), register(5, 99)]) == (150 + 300 + 407, 303 + 300 + 407)


def test_a_path_from_register_to_register_is_a_wire():
    assert only_path([register(2, 2), register(2, 99)]) == (450, 603)


def test_an_enable_has_setup_at_the_slow_end():
    flop = register("0", 99)
    flop["connections"]["CE"] = [2]
    assert only_path([register("0", 2), flop]) == (450, 603 + 109)


@pytest.mark.parametrize(
    ("kind", "parameters", "ends"),
    [
        ("RAMB36E2", {"DOA_REG": "0", "DOB_REG": "0"}, (901, 2454)),
        ("RAMB18E2", {"DOA_REG": "1", "DOB_REG": "1"}, (262, 882)),
        ("RAMB36E2", {"DOA_REG": "1", "DOB_REG": "0"}, (901, 2454)),
        ("URAM288", {"OREG_A": "FALSE", "OREG_B": "FALSE"}, (901, 2454)),
        ("URAM288", {"OREG_A": "TRUE", "OREG_B": "TRUE"}, (262, 882)),
    ],
)
def test_a_path_from_a_memory_has_its_clock_to_output(kind, parameters, ends):
    memory = cell(kind, parameters, ("DOUT",), DOUT=[2])
    assert only_path([memory, register(2, 99)]) == (ends[0] + 300, ends[1] + 300)


def test_a_path_to_a_memory_has_its_setup():
    cells = [register("0", 2), cell("RAMB36E2", {}, ("DOUT",), ADDRARDADDR=[2], DOUT=[7])]
    assert only_path(cells) == (450, 603 + 566)


def test_lut_ram_counts_from_its_address_and_from_its_clock():
    ram = cell("RAM32M", {}, ("DOA",), ADDRA=[2, "0", "0", "0", "0"], DOA=[8], WCLK=[1])
    assert only_path([register("0", 2), ram, register(8, 99)]) == (150 + 300 + 642, 303 + 300 + 642)
    ram["connections"]["ADDRA"] = ["0"] * 5
    assert only_path([ram, register(8, 99)]) == (792, 1190)


def test_a_multiplier_without_registers_is_on_the_path():
    dsp = cell("DSP48E2", dict.fromkeys(("AREG", "BREG", "CREG", "MREG", "PREG"), "0"), ("P",), A=[2], P=[3])
    assert only_path([register("0", 2), dsp, register(3, 99)]) == (150 + 300 + 1838 + 300, 303 + 300 + 2823 + 300)


def test_a_registered_multiplier_ends_a_path():
    dsp = cell("DSP48E2", dict.fromkeys(("AREG", "BREG", "CREG", "MREG", "PREG"), "1"), ("P",), A=[2], P=[3])
    assert only_path([register("0", 2), dsp, register(3, 99)]) == (450, 329 + 300)


def test_the_report_gives_both_ends_of_the_estimate():
    result = measured("report_parity")
    ends = result["path_ps"]
    assert result["abc9_delay_ps"] < ends["fast"] < ends["slow"]
    assert ends["slow"] == result["longest_paths"][0]["slow_ps"]


def test_a_loop_within_a_clock_is_an_error_that_names_a_signal():
    cells = [lut([2, 4], 3), lut([3], 4), register(4, 5)]
    with pytest.raises(netlist.LoopError, match=r"loop through (first|second)"):
        netlist.longest_paths(module(cells, start=2, first=3, second=4, end_q=5))


def test_a_loop_in_the_source_is_a_warning():
    assert any("loop" in warning for warning in measured("report_loop")["warnings"])


# ---- Shares


def test_shares_are_per_cent_of_the_card_and_grow_with_the_compute_units():
    resources = {"lut": 13_036.8, "ff": 26_073.6, "dsp": 902.4, "bram36": 504, "uram": 96}
    assert report.share_of_card(resources) == pytest.approx({"lut": 1, "ff": 1, "dsp": 10, "bram36": 25, "uram": 10})
    assert report.share_of_card(resources, 4)["bram36"] == pytest.approx(100)


@pytest.mark.parametrize(("cycles", "cus"), [(34_883, 1), (34_884, 2), (130_000, 4), (300_000_000, 8600)])
def test_compute_units_are_those_that_reach_the_rate(cycles, cus, tmp_path):
    assert resource_report(tmp_path, cycles_per_image=cycles, units=())["cus"] == cus


@pytest.mark.parametrize(("whole", "units"), [("image_cu", IMAGE_UNITS[1:]), ("audio", AUDIO_UNITS)])
def test_prebas_rows_do_not_exceed_its_total(whole, units):
    rows = [PREBA_TABLE_1[unit] for unit in units if unit in PREBA_TABLE_1]
    for kind, total in PREBA_TABLE_1[whole].items():
        assert sum(row[kind] for row in rows) <= total + 1e-9


# ---- Sources


def test_a_module_comes_with_what_it_instantiates_and_the_packages():
    assert [file.stem for file in needed_files("report_mixed", SOURCES)] == [
        "report_pkg",
        "report_mixed",
        "report_queue",
    ]
    assert parts_of("report_mixed", [*SOURCES, RTL / "report_queue.sv"]) == []  # rtl/ is what all share


def test_what_a_needed_file_includes_is_needed(tmp_path):
    """Otherwise a cached result would outlive a change of the included file."""
    (tmp_path / "top.sv").write_text('`include "ports.svh"\nmodule top (`PORTS); part u_part (.*); endmodule\n')
    (tmp_path / "part.sv").write_text('`include "ports.svh"\nmodule part (`PORTS); endmodule\n')
    (tmp_path / "other.sv").write_text('`include "others.svh"\nmodule other; endmodule\n')
    (tmp_path / "ports.svh").write_text("`define PORTS input logic clk_i\n")
    names = [file.name for file in needed_files("top", sorted(tmp_path.glob("*.sv")))]
    assert names == ["ports.svh", "top.sv", "part.sv"]


def test_parts_are_the_modules_that_a_unit_instantiates(tmp_path):
    for name, text in {
        "top": "part #(.A(1)) u_a (.x(1)); part u_b (.*); // other u_c ()",
        "part": "",
        "other": "",
    }.items():
        (tmp_path / f"{name}.sv").write_text(text)
    assert parts_of("top", sorted(tmp_path.glob("*.sv"))) == ["part"]


def test_a_broken_unit_has_its_error_and_the_others_are_reported():
    result = resource_report(CACHE, units=("report_broken", "report_parity"), sources=SOURCES)
    broken, parity = result["units"]
    assert re.search(r"report_broken does not synthesise:\n.*report_broken\.sv:6.*never_declared", broken["error"])
    assert parity["error"] is None and parity["resources"]["lut"] > 0


def test_units_without_rtl_are_named(tmp_path):
    assert resource_report(tmp_path, units=("nowhere",), sources=SOURCES)["missing_units"] == ["nowhere"]


# ---- Running it


def test_the_same_sources_are_not_synthesised_again(tmp_path, monkeypatch):
    source = tmp_path / "report_parity.sv"
    source.write_text((RTL / "report_parity.sv").read_text())
    calls = []
    monkeypatch.setattr(report, "_run", lambda name, *_: calls.append(name) or {"resources": {}})
    for expected in (1, 1):
        assert measure("report_parity", [source], tmp_path / "cache") == {"resources": {}} and len(calls) == expected
    source.write_text(source.read_text() + "// changed\n")
    measure("report_parity", [source], tmp_path / "cache")
    assert len(calls) == 2 and len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.slow
def test_progress_counts_up_to_the_end(tmp_path):
    steps = []
    measure("report_parity", SOURCES, tmp_path, on_step=lambda unit, step, of, name: steps.append((step, of)))
    assert steps == sorted(steps) and steps[0][0] == 0 and steps[-1][0] == steps[-1][1]


def test_synthesis_ends_at_the_time_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "TIME_LIMIT_S", 0.2)
    with pytest.raises(BuildError, match=r"report_mixed: synthesis took more than 0\.2 s"):
        measure("report_mixed", SOURCES, tmp_path)


def test_missing_yosys_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "find_spec", lambda _: None)
    with pytest.raises(BuildError, match=r"pip install 'headrace\[rtl\]'"):
        resource_report(tmp_path)


def test_ctrl_c_ends_yosys_too(tmp_path):
    script = f"""
import functools, sys
from pathlib import Path
from headrace.bitstreams.resources.report import resource_report
from headrace.host.cli import main as cli, resource_report as printing
files = sorted(Path({str(RTL)!r}).glob("*.sv"))
printing.resource_report = functools.partial(resource_report, units=("report_mixed", "report_parity"), sources=files)
sys.argv = ["headrace", "build", "--report"]
cli.main()
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores interrupts, and what it starts inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    first = process.stderr.readline()
    assert "synthesising" in first, first + process.stderr.read()
    time.sleep(0.5)  # into Yosys's work
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130 and "interrupted" in process.stderr.read()
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if str(tmp_path).encode() in read(pid / "cmdline")]


def read(file):
    try:
        return file.read_bytes()
    except OSError:
        return b""


# ---- The command


@pytest.fixture
def small_report(monkeypatch):
    """`headrace build --report` on two of the modules here."""

    def run(cache, **options):
        units = ("report_mixed", "report_broken")
        return resource_report(CACHE, units=units, sources=SOURCES, **options)

    monkeypatch.setattr(printing, "resource_report", run)


def test_the_command_prints_tables_and_fails_with_a_broken_unit(small_report):
    done = CliRunner().invoke(cli.app, ["build", "--report", "--cycles-per-image", "70000"])
    assert done.exit_code == 1
    assert "URAM288" in done.stdout and "never_declared" in done.stdout and "3 image CUs" in done.stdout


def test_the_command_gives_json(small_report):
    done = CliRunner().invoke(cli.app, ["build", "--report", "--json"])
    rows = json.loads(done.stdout)["units"]
    assert rows[0]["percent_of_card"]["uram"] == pytest.approx(100 / 960) and rows[1]["error"]


def test_the_command_says_what_ends_the_card_first(monkeypatch):
    """An image CU of known cells and delay is compared with limits that were calculated by hand."""
    resources = {"lut": 20_000, "ff": 16_000, "dsp": 50, "bram36": 13, "uram": 12}
    kinds = dict.fromkeys(("lutram", "srl", "carry8", "muxf"), 0)

    def run(cache, **options):
        found = resource_report(CACHE, units=("report_mixed",), sources=SOURCES, **options)
        row = {**found["units"][0], "unit": "image_cu", "resources": resources | kinds, "abc9_delay_ps": 4000.0}
        return {**found, "units": [row]}

    monkeypatch.setattr(printing, "resource_report", run)
    arguments = ["build", "--report", "--cycles-per-image", "70000"]
    rows = json.loads(CliRunner().invoke(cli.app, [*arguments, "--json"]).stdout)["card_limits"]
    assert [(row["clock_mhz"], row["launch_us"], row["cus"]) for row in rows] == [
        (300, 0, 3),
        (300, 50, 3),
        (300, 100, 3),
        (250, 0, 3),
        (250, 50, 3),
        (250, 100, 4),
    ]
    masters = (report.Path(printing.hls_folder()) / "image_cu" / "kernel.xml").read_text().count('mode="master"')
    (ports,) = [limit for limit in rows[0]["limits"]["int8"] if limit["name"] == "HBM ports"]
    assert ports["cus"] == 32 // masters
    assert rows[0]["limits"]["float32"][0]["name"] == "PCIe out"
    printed = CliRunner().invoke(cli.app, arguments).stdout
    assert "250 MHz, estimated" in printed and "HBM ports" in printed and "jpegDecoder" in printed


@pytest.mark.parametrize("arguments", [[], ["--report", "--info", "x"], ["--report", "-o", "x"]])
def test_build_takes_one_task_at_a_time(arguments):
    done = CliRunner().invoke(cli.app, ["build", *arguments])
    assert "give -o FILE" in str(done.exception)
