"""The clock of an entropy decoder's loop and nothing else, on an ECP5: what no decoder of its kind is faster than.

    .venv/bin/python -m benchmarks.entropy_loop [--json [FILE]]

A symbol tells by its length where the next one begins, so the window, the look-up and the shift form a loop. The
modules of benchmarks/entropy_loops/ are this loop alone. nextpnr places and routes each with the seeds of `headrace
build --route ecp5`, and the row has the lower clock. Clocks a look-up times the period is the time of a look-up, which
tells one symbol or two. The ways:

- LUT RAM, as the decoder has it: four tables that tell one symbol by 6 bits, or two that tell two by 8.
- Block RAM, whose output chooses the shift: a word tells one symbol or two alike.
- Block RAM with a register at its output: a look-up takes two clocks.
- Block RAMs that look up each of the next 16 places ahead of the loop, which then is a choice and an adder.
"""

import argparse
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, arguments, main, progress, table
from headrace.bitstreams.cache_folder import cache_folder
from headrace.bitstreams.resources.report import measure
from headrace.bitstreams.resources.routes import SEEDS, of_seeds, routing

FOLDER = Path(__file__).parent / "entropy_loops"
# Of a module: what the table lies in, symbols that a look-up tells, and clocks from one look-up to the next.
WAYS = {
    "loop_lut_ram": ("LUT RAM", "1", 1),
    "loop_lut_ram_pairs": ("LUT RAM", "2", 1),
    "loop_block_ram": ("block RAM", "1 or 2", 1),
    "loop_block_ram_registered": ("block RAM with an output register", "1 or 2", 2),
    "loop_all_places": ("block RAMs for 16 places ahead of the loop", "1 or 2", 1),
}


KEPT = ("mhz", "mhz_of_seeds", "cells", "worst_path")


def routed() -> dict[str, dict[str, Any]]:
    """Return clock, cells and worst path of each way, with the seeds of `headrace build --route ecp5`.

    The row is that of the lower clock."""
    files = sorted(FOLDER.glob("*.sv"))
    found = []
    for seed in SEEDS:
        progress(f"seed {seed}")
        found.append({name: measure(name, files, cache_folder(), tool=routing(seed)) for name in WAYS})
    rows = {name: of_seeds([each[name] for each in found]) for name in WAYS}
    return {name: {key: row[key] for key in KEPT} for name, row in rows.items()}


def run(_: argparse.Namespace) -> Report:
    found = routed()
    loops = [
        {
            "module": name,
            "table": memory,
            "symbols": symbols,
            "clocks": clocks,
            "look_ups_mhz": round(found[name]["mhz"] / clocks, 1),
            **found[name],
        }
        for name, (memory, symbols, clocks) in WAYS.items()
    ]
    head = "module | MHz | of seeds | clocks a look-up | million look-ups a second | symbols a look-up"
    rows = (
        f"{loop['module']} | {loop['mhz']:.0f} | {', '.join(f'{mhz:.0f}' for mhz in loop['mhz_of_seeds'])}"
        f" | {loop['clocks']} | {loop['look_ups_mhz']:.0f} | {loop['symbols']}"
        for loop in loops
    )
    return Report({"seeds": list(SEEDS), "loops": loops}, table(head, rows))


if __name__ == "__main__":
    main(arguments(__doc__), run)
