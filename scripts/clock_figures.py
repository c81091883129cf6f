#!/usr/bin/env python3
"""Write docs/results/measured/clocks.json: the clocks of the compute units' RTL, and the errors of the audio units.

    .venv/bin/python scripts/clock_figures.py [--check]

It runs the benchmarks image_cu, launch_queue and audio_cu, which simulate the RTL clock by clock. That takes some ten
minutes on two quiet cores. The result depends on the RTL and on the files alone, not on the machine. The file also
has a digest of the RTL without its comments. With --check nothing is measured, and the exit status is 1 if the digest
is not that of the RTL in hls/. scripts/units_reference.py writes the tables of the documentation from the file."""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.bitstreams.sources import place
from headrace.bitstreams.verilate import rtl_sources

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "results" / "measured" / "clocks.json"
LAUNCH_COUNT = 8  # images for each start of the queue
RUNS: dict[str, list[str]] = {
    "image_cu": [],
    "launch_queue": ["--count", str(LAUNCH_COUNT)],
    "audio_cu": [],
}
KEPT = {  # the figures of each benchmark that the tables show
    "image_cu": (
        "clock_mhz",
        "estimated_clock_mhz",
        "memory_latency",
        "photos",
        "gap_between_runs",
        "model_deviation",
        "memory_bytes_per_s_max",
        "summary",
    ),
    "launch_queue": ("rows",),
    "audio_cu": ("latency", "merged_cycles", "overlapped_cycles", "rows"),
}
DIGITS = 6


def rtl_digest(sources: Sequence[Path]) -> str:
    """Return a digest of the RTL, of its names and its code. Comments and blanks do not count."""
    digest = hashlib.sha256()
    for path in sorted(sources, key=place):
        code = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        digest.update(f"{place(path)}\0{' '.join(code.split())}\0".encode())
    return digest.hexdigest()


def own_digest() -> str:
    """Return the digest of the RTL in hls/."""
    sources = rtl_sources()
    headers = {header for path in sources for header in path.parent.glob("*.svh")}
    return rtl_digest([*sources, *sorted(headers)])


def rounded(value: Any) -> Any:
    """Return the value with its floats rounded, so that the file stays small."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def measured(name: str, options: Sequence[str]) -> dict[str, Any]:
    """Run a benchmark and return the figures of KEPT."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"benchmarks.{name}", *options, "--json", str(file)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        figures = json.loads(file.read_text())
    return {key: figures[key] for key in KEPT[name]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        if json.loads(OUT.read_text())["rtl_sha256"] != own_digest():
            sys.exit(f"{OUT.name} is not of this RTL: run scripts/clock_figures.py and scripts/units_reference.py")
        return
    digest = own_digest()
    figures = {name: rounded(measured(name, options)) for name, options in RUNS.items()}
    figures["image_cu"]["summary"] = [row for row in figures["image_cu"]["summary"] if row["size"] != "own"]
    figures["launch_queue"]["count"] = LAUNCH_COUNT
    OUT.write_text(json.dumps({"rtl_sha256": digest, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
