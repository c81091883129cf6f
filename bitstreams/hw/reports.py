"""Read clock, slack and utilisation from the reports of a Vivado build: `make report`.

A link leaves the reports below its folder: Vivado's `*_timing_summary_postroute_physopted.rpt` or `*_routed.rpt`, its
`*_utilization_routed.rpt` or `*_placed.rpt`, and, next to the container, v++'s `headrace.xclbin.info` with the clock
that was reached. A value without a report is None, never a guess. This file has no imports of Headrace, as the folder
has a copy of it.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

TIMING = ("*timing_summary_postroute_physopted.rpt", "*timing_summary_routed.rpt")
UTILISATION = ("*utilization_routed.rpt", "*utilization_placed.rpt")
ROWS = {"lut": r"CLB LUTs\*?", "ff": r"CLB Registers", "bram36": r"Block RAM Tile", "uram": r"URAM", "dsp": r"DSPs"}


def read_reports(folder: Path) -> dict[str, Any] | None:
    """Return the values of the reports in the folder of a link. None if nothing was built there."""
    if not (folder / "headrace.xclbin").is_file():
        return None
    timing, used = _newest(folder, TIMING), _newest(folder, UTILISATION)
    return {
        "clock_mhz": _clock(folder),
        "slack_ns": _slack(timing.read_text(errors="replace")) if timing else None,
        "utilisation": _utilisation(used.read_text(errors="replace")) if used else None,
        "reports": [str(path.relative_to(folder)) for path in (timing, used) if path],
    }


def _newest(folder: Path, patterns: tuple[str, ...]) -> Path | None:
    for pattern in patterns:
        if reports := sorted(folder.rglob(pattern), key=lambda path: path.stat().st_mtime):
            return reports[-1]
    return None


def _clock(folder: Path) -> float | None:
    """Return the clock of the kernels in MHz. v++ lowers it below the requested clock where timing is not met."""
    info = folder / "headrace.xclbin.info"
    text = info.read_text(errors="replace") if info.is_file() else ""
    match = re.search(r"Type:\s+DATA\s+Frequency:\s+(\d+(?:\.\d+)?)\s*MHz", text)
    return float(match[1]) if match else None


def _slack(text: str) -> float | None:
    """Return the worst negative slack: the first number below the heading of the design's summary."""
    match = re.search(r"^\s*WNS\(ns\)[^\n]*\n[-\s]+\n\s*(-?\d+\.\d+)", text, re.M)
    return float(match[1]) if match else None


def _utilisation(text: str) -> dict[str, dict[str, float]]:
    """Return the amount and the per cent of the card for each resource.

    The columns are found by their headings, which change with releases."""
    used = {}
    heading: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if "Used" in cells:
            heading = cells
        for name, pattern in ROWS.items():
            if len(cells) == len(heading) and re.fullmatch(pattern, cells[0]) and name not in used:
                row = dict(zip(heading, cells, strict=True))
                used[name] = {"used": float(row["Used"]), "per_cent": float(row["Util%"].lstrip("<"))}
    return used


if __name__ == "__main__":
    built = read_reports(Path(sys.argv[1]))
    print("not built" if built is None else json.dumps(built, indent=2))
