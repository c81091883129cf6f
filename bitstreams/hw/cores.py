"""Write FuseSoC cores, one for each unit. A core lists the unit's files and has targets `lint`, `sim` and one for each
card."""

import json
from collections.abc import Sequence
from pathlib import Path

from headrace.bitstreams.platforms import platforms
from headrace.bitstreams.sources import place
from headrace.bitstreams.verilate import VERILATE_FLAGS, needed_files


def units(sources: Sequence[Path]) -> list[str]:
    """Return the units: folders directly below hls/ with a top module of the same name."""
    return sorted({path.stem for path in sources if place(path) == Path(path.stem, path.name)})


def core(unit: str, sources: Sequence[Path], folder: str) -> str:
    """Return the text of a .core file (CAPI2) next to `folder`, which holds the sources as hls/ does."""
    files = [
        {f"{folder}/{place(path)}": {"is_include_file": True}} if path.suffix == ".svh" else f"{folder}/{place(path)}"
        for path in needed_files(unit, sources)
    ]
    waivers = [flag for flag in VERILATE_FLAGS if flag.startswith("-W") and flag != "-Wno-fatal"]
    lint = [*waivers, "--relative-includes", "--assert"]
    clock, reset = ("ap_clk", "ap_rst_n") if unit.endswith("_cu") else ("clk_i", "rst_ni")
    flags = (f"-DUNIT=V{unit}", f"-DCLOCK_PORT={clock}", f"-DRESET_PORT={reset}")
    description = {
        "name": f"headrace:unit:{unit}:0.1.0",
        "description": f"{unit} of Headrace's data-processing unit",
        "filesets": {
            "rtl": {"files": files, "file_type": "systemVerilogSource"},
            "sim": {"files": ["scripts/sim_main.cpp"], "file_type": "cppSource"},
        },
        "targets": {
            "default": {"filesets": ["rtl"]},
            "lint": {
                "description": "Verilator's warnings, of which there are none",
                "default_tool": "verilator",
                "filesets": ["rtl"],
                "toplevel": unit,
                "tools": {"verilator": {"mode": "lint-only", "verilator_options": lint}},
            },
            "sim": {
                "description": "a Verilated model, assertions on, with a clock and nothing to do",
                "default_tool": "verilator",
                "filesets": ["rtl", "sim"],
                "toplevel": unit,
                "tools": {
                    "verilator": {
                        "mode": "cc",
                        "verilator_options": [*lint, *(word for flag in flags for word in ("-CFLAGS", flag))],
                    }
                },
            },
            **{
                card.name: {
                    "description": f"synthesis by Vivado for {card.part}",
                    "default_tool": "vivado",
                    "filesets": ["rtl"],
                    "toplevel": unit,
                    "tools": {"vivado": {"part": card.part, "pnr": "none"}},
                }
                for card in platforms().values()
            },
        },
    }
    return "CAPI=2:\n" + json.dumps(description, indent=2) + "\n"  # YAML has JSON within it
