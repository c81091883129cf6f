"""Write FuseSoC cores, one for each unit. A core lists the unit's files and has targets `lint`, `sim` and one for each
card.

hls/headrace.core is another one, for designs on small boards: image_stream in the configuration `small`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headrace.bitstreams.platforms import platforms
from headrace.bitstreams.sources import place
from headrace.bitstreams.verilate import VERILATE_FLAGS, needed_files, rtl_sources

STREAM: Final = "image_stream"


def units(sources: Sequence[Path]) -> list[str]:
    """Return the units: folders directly below hls/ with a top module of the same name."""
    return sorted({path.stem for path in sources if place(path) == Path(path.stem, path.name)})


def core(unit: str, sources: Sequence[Path], folder: str) -> str:
    """Return the text of a .core file (CAPI2) next to `folder`, which holds the sources as hls/ does."""
    lint = _lint_options()
    clock, reset = ("ap_clk", "ap_rst_n") if unit.endswith("_cu") else ("clk_i", "rst_ni")
    flags = (f"-DUNIT=V{unit}", f"-DCLOCK_PORT={clock}", f"-DRESET_PORT={reset}")
    description = {
        "name": f"headrace:unit:{unit}:0.1.0",
        "description": f"{unit} of Headrace's data-processing unit",
        "filesets": {
            "rtl": _fileset(unit, sources, f"{folder}/"),
            "sim": {"files": ["scripts/sim_main.cpp"], "file_type": "cppSource"},
        },
        "targets": {
            "default": {"filesets": ["rtl"]},
            "lint": _lint(unit),
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
    return _text(description)


def stream_core() -> str:
    """Return the text of hls/headrace.core: image_stream for designs of users, in the configuration `small`."""
    description = {
        "name": f"headrace:ip:{STREAM}:0.2.0",
        "description": "JPEG files from an AXI4-Stream to pixels on another one",
        "filesets": {"rtl": _fileset(STREAM, rtl_sources(configuration="small"), "")},
        "targets": {"default": {"filesets": ["rtl"], "toplevel": STREAM}, "lint": _lint(STREAM)},
    }
    return _text(description)


def _fileset(unit: str, sources: Sequence[Path], folder: str) -> dict[str, Any]:
    names = [f"{folder}{place(path)}" for path in needed_files(unit, sources)]
    files = [{name: {"is_include_file": True}} if name.endswith(".svh") else name for name in names]
    return {"files": files, "file_type": "systemVerilogSource"}


def _lint(unit: str) -> dict[str, Any]:
    return {
        "description": "Verilator's warnings, of which there are none",
        "default_tool": "verilator",
        "filesets": ["rtl"],
        "toplevel": unit,
        "tools": {"verilator": {"mode": "lint-only", "verilator_options": _lint_options()}},
    }


def _lint_options() -> list[str]:
    waivers = [flag for flag in VERILATE_FLAGS if flag.startswith("-W") and flag != "-Wno-fatal"]
    return [*waivers, "--relative-includes", "--assert"]


def _text(description: dict[str, Any]) -> str:
    return "CAPI=2:\n" + json.dumps(description, indent=2) + "\n"  # YAML has JSON within it
