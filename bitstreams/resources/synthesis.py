"""Synthesise one module with Yosys: `python -m headrace.bitstreams.resources.synthesis TOP LOG FILE...`

Yosys ends its process when it meets an error, prints without end and cannot be stopped, so the caller (report.py) runs
it in another process. stdout carries JSON lines: {"step", "of", "name"} for each step, then {"result"}. All output of
Yosys goes to the file LOG, errors included.

`read_slang` reads the SystemVerilog. Yosys's own `read_verilog -sv` is not used, because it silently drops memories of
packed structs.
"""

import json
import os
import re
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.bitstreams.resources.netlist import (
    LoopError,
    Timing,
    count_cells,
    flip_flops_by_name,
    group_name,
    longest_paths,
    unmapped_cells,
)

OPTIONS = "-family xcup -flatten -uram -noiopad -noclkbuf"  # synth_xilinx uses abc9 and infers DSPs by default
# Labels of synth_xilinx where a step begins.
STEPS = (
    "begin",
    "map_dsp",
    "coarse",
    "map_memory",
    "map_ffram",
    "fine",
    "map_cells",
    "map_ffs",
    "map_luts",
    "finalize",
)
STEP_COUNT = len(STEPS) + 2  # reading before them, measuring after them
LARGE_MEMORY_BITS = 1024  # flip-flops of so many bits or more get a line of the report
MAPPINGS = {"LUTRAM": "LUTRAM", "BLOCKRAM": "BRAM", "URAM": "URAM"}


def synthesise(top: str, sources: list[str], log: Path, say: Any) -> dict[str, Any]:
    from pyosys import libyosys

    design = libyosys.Design()

    def run(command: str) -> None:
        libyosys.run_pass(f"tee -q -a {log} {command}", design)

    def netlist(folder: str) -> dict[str, Any]:
        file = Path(folder) / "netlist.json"
        for command in (f"select {top}", f"write_json -selected {file}", "select -clear"):
            libyosys.run_pass(f"tee -q {command}", design)
        module: dict[str, Any] = json.loads(file.read_text())["modules"][top]
        return module

    with tempfile.TemporaryDirectory(prefix="headrace-synthesis-") as folder:
        say({"step": 0, "of": STEP_COUNT, "name": "read_slang"})
        run(f"read_slang --top {top} {' '.join(sources)}")
        taken: dict[str, dict[str, Any]] = {}
        for number, (label, end) in enumerate(zip(STEPS, (*STEPS[1:], "check"), strict=True), 1):
            if label in ("map_dsp", "coarse", "map_memory"):
                taken[label] = netlist(folder)
            say({"step": number, "of": STEP_COUNT, "name": label})
            run(f"synth_xilinx {OPTIONS} -top {top} -run {label}:{end}")
        say({"step": STEP_COUNT - 1, "of": STEP_COUNT, "name": "paths"})
        final = netlist(folder)
    text = log.read_text(errors="replace")
    warnings = _warnings(text, final)
    try:
        timing = longest_paths(final)
    except LoopError as error:
        timing = Timing([], 0, 0, 0)
        warnings.append(str(error))
    memories = _memories(taken["map_dsp"], taken["map_memory"], final, text)
    return {
        "resources": count_cells(final),
        "longest_paths": [asdict(path) for path in timing.paths],
        "most_luts_on_a_path": timing.max_luts,
        "path_ps": {"fast": timing.fast_ps, "slow": timing.slow_ps},
        "abc9_delay_ps": _abc9_delay(text),
        "memories": memories,
        "soft_multipliers": _soft_multipliers(taken["coarse"]),
        "warnings": warnings,
    }


def _abc9_delay(text: str) -> float | None:
    found = re.findall(r"^ABC: \w:\s+Del =\s*([\d.]+)\.", text, re.MULTILINE)
    return float(found[-1]) if found else None


def _warnings(text: str, final: dict[str, Any]) -> list[str]:
    patterns = r"^Warning: ((?:multiple conflicting drivers|found logic loop|.*used but has no driver).*)$"
    found = list(dict.fromkeys(re.findall(patterns, text, re.MULTILINE)))[:20]
    return found + [f"{count} cells of type {kind}" for kind, count in sorted(unmapped_cells(final).items())]


def _memories(early: dict[str, Any], mapped: dict[str, Any], final: dict[str, Any], text: str) -> list[dict[str, Any]]:
    """Return all arrays: how memory_libmap mapped each of them, and the cells that it became.

    `early` is the design as read, so that the result includes arrays that are gone by the time of mapping."""
    mapped_to = dict(re.findall(r"^mapping memory [^.\s]+\.(\S+) via \$__XILINX_([A-Z]+)", text, re.MULTILINE))
    cells = {
        cell["parameters"]["MEMID"].lstrip("\\"): cell for cell in mapped["cells"].values() if cell["type"] == "$mem_v2"
    }
    registers = flip_flops_by_name(final)
    memories = []
    for name, memory in (early.get("memories") or {}).items():
        bits = memory["width"] * memory["size"]
        style = memory["attributes"].get("ram_style")
        if name in mapped_to:
            mapping = MAPPINGS[mapped_to[name]]
        elif name not in cells:
            mapping = "removed"  # never read, or all constant
        elif int(cells[name]["parameters"]["WR_PORTS"], 2) == 0:
            mapping = "logic"  # a small table
        else:
            mapping = "flip-flops"
        prefix = f"{name}."
        primitives: dict[str, int] = {}
        for cell_name, cell in final["cells"].items():
            if cell_name.startswith(prefix) and re.fullmatch(r"(\d+\.)*\d+", cell_name[len(prefix) :]):
                primitives[cell["type"]] = primitives.get(cell["type"], 0) + 1
        if mapping == "flip-flops":
            primitives["FF"] = registers.get(group_name(name), 0)
        words = {"words": memory["size"], "width": memory["width"], "bits": bits}
        memories.append({"name": name, **words, "style": style, "mapping": mapping, "primitives": primitives})
    known = {group_name(memory["name"]) for memory in memories}
    for name, bits in registers.items():
        if bits >= LARGE_MEMORY_BITS and name not in known:
            row = {"name": name, "words": 1, "width": bits, "bits": bits, "style": None}
            memories.append({**row, "mapping": "registers", "primitives": {"FF": bits}})
    for name, net in early["netnames"].items():  # arrays with a style that were read as plain registers
        if "ram_style" in net["attributes"] and group_name(name) not in known:
            bits, style = len(net["bits"]), net["attributes"]["ram_style"]
            row = {"name": name, "words": 1, "width": bits, "bits": bits, "style": style}
            memories.append({**row, "mapping": "flip-flops", "primitives": {"FF": bits}})
    return sorted(memories, key=lambda memory: -memory["bits"])


def _soft_multipliers(module: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the multiplications that LUTs compute."""
    found = []
    for cell in module["cells"].values():
        if cell["type"] == "$mul":
            widths = {pin: int(cell["parameters"][f"{pin}_WIDTH"], 2) for pin in ("A", "B")}
            source = cell["attributes"].get("src", "").split("|")[0]
            found.append({"a": widths["A"], "b": widths["B"], "source": source})
    return found


def main() -> None:
    top, log, *sources = sys.argv[1:]
    # Yosys's own output goes to the log, so that stdout has JSON lines only.
    stdout = os.fdopen(os.dup(1), "w", buffering=1)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)

    def say(line: dict[str, Any]) -> None:
        stdout.write(json.dumps(line) + "\n")

    say({"result": synthesise(top, sources, Path(log), say)})


if __name__ == "__main__":
    main()
