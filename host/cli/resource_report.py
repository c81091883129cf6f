"""`headrace build --report`: runs the synthesis with progress shown, and prints its tables."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.table import Table

from headrace.bitstreams.resources.report import U55C, resource_report
from headrace.host.cli.console import err, out, progress, show, tell

COLUMNS = {"lut": "LUT", "ff": "FF", "dsp": "DSP", "bram36": "BRAM36", "uram": "URAM"}
LISTED_MEMORY_BITS = 1024


def run_report(cache: Path, cycles_per_image: int) -> dict[str, Any]:
    """Synthesise what has changed since the last time, with a bar for each unit on stderr."""
    with progress() as shown:
        bars: dict[str, Any] = {}

        def on_step(unit: str, step: int, of: int, name: str) -> None:
            text = f"{unit}: {name}"
            if unit not in bars:
                bars[unit] = shown.add_task(text, total=of)
                if not err.is_terminal:
                    tell(f"synthesising {unit}" if step < of else text)
            shown.update(bars[unit], completed=step, description=text)

        return resource_report(cache, cycles_per_image=cycles_per_image, on_step=on_step)


def print_report(report: dict[str, Any]) -> None:
    rows = [row for row in report["units"] if row["error"] is None]
    units = [row for row in rows if row["part_of"] is None]
    if rows:
        _print_resources(rows)
        if units:
            _print_shares(report, units)
        _print_paths(rows)
        _print_memories([row for row in units if row["unit"].endswith("_cu")] or units or rows)
    for row in rows:
        for warning in row["warnings"]:
            show(f"{row['unit']}: warning: {warning}")
        if row["soft_multipliers"]:
            sizes = ", ".join(f"{m['a']}x{m['b']} ({m['source'].rpartition('/')[2]})" for m in row["soft_multipliers"])
            show(f"{row['unit']}: multiplied in LUTs: {sizes}")
    for row in report["units"]:
        if row["error"] is not None:
            show(row["error"])
    if report["missing_units"]:
        show(f"no RTL yet: {', '.join(report['missing_units'])}")
    show(f"by {report['tool']}; nothing was placed or routed, and delays are estimates")


def _name(row: dict[str, Any]) -> str:
    return f"  {row['unit']}" if row["part_of"] else row["unit"]


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        words = heading in ("unit", "from", "to", "memory", "cells")
        table.add_column(heading, justify="left" if words else "right", overflow="fold")
    return table


def _print_resources(rows: list[dict[str, Any]]) -> None:
    table = _table("cells", "unit", *COLUMNS.values(), "of LUT: RAM", "shift", "CARRY8", "MUXF")
    for row in rows:
        have = row["resources"]
        kinds = (*COLUMNS, "lutram", "srl", "carry8", "muxf")
        table.add_row(_name(row), *(f"{have[kind]:,g}" if have[kind] % 1 else f"{have[kind]:,.0f}" for kind in kinds))
    out.print(table)


def _print_shares(report: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    cus, cycles = report["cus"], report["cycles_per_image"]
    title = (
        f"per cent of an {report['card']['name']}: one CU / all CUs / PREBA's Table 1\n"
        f"{cus} image CUs reach {report['target_images_per_s']:,} images/s at {report['clock_mhz']} MHz"
        f" and {cycles:,} clocks an image; audio units are in one CU"
    )
    table = _table(title, "unit", *(COLUMNS[kind] for kind in U55C))
    for row in rows:
        one, all_cus, preba = row["percent_of_card"], row["percent_of_card_for_cus"], row["preba_percent"]
        cells = (
            f"{one[kind]:.2f} / {all_cus[kind]:.2f} / " + (f"{preba[kind]:.1f}" if preba else "-") for kind in U55C
        )
        table.add_row(row["unit"], *cells)
    out.print(table)


def _print_paths(rows: list[dict[str, Any]]) -> None:
    title = "longest path between registers: LUTs, adder chains (CARRY4 in them), MUXF, multipliers on it"
    table = _table(title, "unit", "LUT", "carry", "MUXF", "DSP", "most LUTs", "abc9's delay", "from", "to")
    for row in rows:
        if not row["longest_paths"]:
            continue
        path = row["longest_paths"][0]
        carry = f"{path['carries']} ({path['carry_cells']})" if path["carries"] else "0"
        delay = f"{row['abc9_delay_ps'] / 1e3:.1f} ns" if row["abc9_delay_ps"] else "-"
        counts = (str(path["luts"]), carry, str(path["muxes"]), str(path["dsps"]), str(row["most_luts_on_a_path"]))
        table.add_row(_name(row), *counts, delay, path["start"], path["end"])
    out.print(table)


def _print_memories(rows: list[dict[str, Any]]) -> None:
    """Those of a generate loop in one line."""
    table = _table(f"memories of more than {LISTED_MEMORY_BITS} bits", "unit", "memory", "words x width", "in", "cells")
    for row in rows:
        groups: dict[tuple[Any, ...], list[str]] = defaultdict(list)
        for memory in row["memories"]:
            if memory["bits"] > LISTED_MEMORY_BITS:
                cells = ", ".join(f"{count} {kind}" for kind, count in memory["primitives"].items())
                size = f"{memory['words']} x {memory['width']}"
                groups[re.sub(r"\[\d+\]", "[*]", memory["name"]), size, memory["mapping"], cells].append(memory["name"])
        for (name, size, mapping, cells), names in groups.items():
            times = f"{len(names)} times " if len(names) > 1 else ""
            table.add_row(row["unit"], name, times + size, mapping, cells)
    out.print(table)
