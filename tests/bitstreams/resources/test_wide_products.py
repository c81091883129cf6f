"""Products that are wider than a multiplier are split between their two registers, and Yosys proves them equal.

Multipliers have factors of 4 bits here, so that the proof takes little time. Each module is read in one process."""

import json
import subprocess
import sys
import tempfile
from functools import cache

import pytest

UNSIGNED = "input [2:0] a, input [6:0] b, output reg [9:0] y"
SIGNED = "input signed [5:0] a, input signed [2:0] b, output reg signed [8:0] y"
TWICE = "reg {sign} [{top}:0] first; always @(posedge clk) begin first <= a * b; y <= first; end"
UNSIGNED_TWICE, SIGNED_TWICE = TWICE.format(sign="", top=9), TWICE.format(sign="signed", top=8)
SPLIT = {
    "unsigned": (UNSIGNED, UNSIGNED_TWICE),
    "signed": (SIGNED, SIGNED_TWICE),
    "both edges of the clock": (
        f"{UNSIGNED}, {SIGNED.replace(' a', ' c').replace(' b', ' d').replace(' y', ' z')}",
        UNSIGNED_TWICE + " reg signed [8:0] other; always @(negedge clk) begin other <= c * d; z <= other; end",
    ),
    "the lower bits of a product": (UNSIGNED.replace("9:0", "6:0"), TWICE.format(sign="", top=6)),
    "without its lowest bits": (
        UNSIGNED,
        "reg [9:0] first; always @(posedge clk) begin first <= a * b; y <= {first[9:2], 2'd0}; end",
    ),
}
WHOLE = {
    "an enable": (f"{UNSIGNED}, input en", UNSIGNED_TWICE.replace("y <=", "if (en) y <=")),
    "a reset": (f"{UNSIGNED}, input rst", UNSIGNED_TWICE.replace("first <= a * b", "first <= rst ? 0 : a * b")),
    "one register": (UNSIGNED, "always @(posedge clk) y <= a * b;"),
    "a reader of the first register": (
        f"{UNSIGNED}, output odd",
        f"{UNSIGNED_TWICE} assign odd = first[3] ^ first[8];",
    ),
    "two registers behind the first one": (
        f"{UNSIGNED}, output reg [9:0] z",
        f"{UNSIGNED_TWICE} always @(posedge clk) z <= first;",
    ),
    "an output of the first register": (f"{UNSIGNED}, output odd", f"{UNSIGNED_TWICE} assign odd = first[3];"),
    "a reader of the product": (
        f"{UNSIGNED}, output [9:0] now",
        "reg [9:0] first; assign now = a * b; always @(posedge clk) begin first <= now; y <= first; end",
    ),
    "an initial value": (UNSIGNED, f"{UNSIGNED_TWICE} initial first = 5;"),
    "another edge of the clock": (
        UNSIGNED,
        "reg [9:0] first; always @(posedge clk) first <= a * b; always @(negedge clk) y <= first;",
    ),
    "two wide factors": (
        "input [6:0] a, input [6:0] b, output reg [13:0] y",
        TWICE.format(sign="", top=13),
    ),
}
PROGRAM = """
import json, sys, tempfile
from pathlib import Path
from pyosys import libyosys
from headrace.bitstreams.resources import ecp5, wide_products

wide_products.FACTOR_BITS = 4
results = {}
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    for case, (ports, body) in json.load(sys.stdin).items():
        design = libyosys.Design()

        def run(*commands):
            for command in commands:
                libyosys.run_pass(f"tee -q {command}", design)

        (folder / "top.v").write_text(f"module top(input clk, {ports}); {body} endmodule")
        run(f"read_verilog {folder}/top.v", "hierarchy -top top", *ecp5.WORDS, "design -save whole")
        count = wide_products.split(design)
        run("opt_clean", "check -assert", f"write_json {folder}/split.json", "rename top gate", "design -stash split")
        run("design -copy-from whole -as gold top", "design -copy-from split -as gate gate")
        run("miter -equiv -flatten -make_outputs gold gate miter", "hierarchy -top miter")
        run(f"tee -o {folder}/proof.txt sat -prove trigger 0 -seq 3 -maxsteps 4 -tempinduct miter")
        module = json.loads((folder / "split.json").read_text())["modules"]["top"]
        proved = "Induction step proven: SUCCESS!" in (folder / "proof.txt").read_text()
        results[case] = {"count": count, "proved": proved, "cells": module["cells"]}
Path(sys.argv[1]).write_text(json.dumps(results))  # Yosys writes to stdout, also at its end
"""


@cache
def results() -> dict[str, dict]:
    with tempfile.NamedTemporaryFile("r") as file:
        command = [sys.executable, "-c", PROGRAM, file.name]
        done = subprocess.run(command, input=json.dumps(SPLIT | WHOLE), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
        return json.load(file)


def products(cells):
    return [cell["connections"] for cell in cells.values() if cell["type"] == "$mul"]


@pytest.mark.parametrize("case", SPLIT)
def test_a_wide_product_is_split_between_its_registers_and_stays_equal(case):
    found = results()[case]
    assert found["proved"] and found["count"] == (2 if "both" in case else 1)
    narrow = products(found["cells"])
    assert len(narrow) == 2 * found["count"]
    assert all(len(nets[side]) <= 4 for nets in narrow for side in "AB")
    registered = {bit for cell in found["cells"].values() if cell["type"] == "$dff" for bit in cell["connections"]["D"]}
    other = {
        bit
        for cell in found["cells"].values()
        if cell["type"] != "$dff"
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] == "input"
        for bit in bits
    }
    for nets in narrow:  # each product goes to a register and nowhere else
        assert set(nets["Y"]) <= registered and not set(nets["Y"]) & other


@pytest.mark.parametrize("case", WHOLE)
def test_a_product_stays_whole_with(case):
    found = results()[case]
    assert found["count"] == 0 and len(products(found["cells"])) == 1
