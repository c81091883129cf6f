"""The reports of `headrace build --report` and `--route`: run the tools with progress, and print tables."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from headrace.bitstreams.kernel import parse_kernels
from headrace.bitstreams.resources.report import JPEG_BYTES, U55C, OnStep, resource_report
from headrace.bitstreams.resources.routes import SEEDS, route_report
from headrace.bitstreams.resources.routes import UNITS as ROUTED
from headrace.bitstreams.sources import hls_folder
from headrace.host.cli.console import err, out, progress, show, tell
from headrace.sim.system.limits import LAUNCHES_S, OTHERS, TENSOR_BYTES, Cu, cus_for, limits

COLUMNS = {"lut": "LUT", "ff": "FF", "dsp": "DSP", "bram36": "BRAM36", "uram": "URAM"}
LISTED_MEMORY_BITS = 1024


def run_report(cache: Path, cycles_per_image: int) -> dict[str, Any]:
    """Return the resource report. Units that changed since the last report are synthesised, with a progress bar each.

    `cache` is the folder of former results."""
    with _steps("synthesising") as on_step:
        report = resource_report(cache, cycles_per_image=cycles_per_image, on_step=on_step)
    return report | {"card_limits": card_limits(report)}


@contextmanager
def _steps(doing: str) -> Iterator[OnStep]:
    """Give a function that shows the progress of each unit."""
    with progress() as shown:
        bars: dict[str, Any] = {}

        def on_step(unit: str, step: int, of: int, name: str) -> None:
            text = f"{unit}: {name}"
            if unit not in bars:
                bars[unit] = shown.add_task(text, total=of)
                if not err.is_terminal:
                    tell(f"{doing} {unit}" if step < of else text)
            shown.update(bars[unit], completed=step, description=text)

        yield on_step


def run_routes(cache: Path, units: Sequence[str], seeds: Sequence[int], configuration: str) -> dict[str, Any]:
    """Return the report of a configuration's routed units: those named, or all of UNITS if none is named.

    If no seed is given, the seeds are SEEDS."""
    with _steps("routing") as on_step:
        return route_report(
            cache, units=units or ROUTED, seeds=seeds or SEEDS, configuration=configuration, on_step=on_step
        )


def print_routes(report: dict[str, Any]) -> None:
    """Print clock, cells and worst path of each routed unit."""
    rows = [row for row in report["units"] if row["error"] is None]
    title = f"{report['device']}\nworst path: clock-to-output, its logic, its wires, ns"
    kinds = {"lut4": "LUT4", "ff": "FF", "bram18": "RAM18", "mult18": "MULT18"}
    table = _table(title, "unit", "MHz", *kinds.values(), "path", "LUTs", "from", "to")
    for row in rows:
        path = row["worst_path"]
        if path is None:
            table.add_row(row["unit"], "-", *(str(row["cells"][kind]) for kind in kinds), "-", "-", "-", "-")
            continue
        times = " + ".join(f"{path[part]:.1f}" for part in ("clock_to_output_ns", "logic_ns", "wires_ns"))
        cells = (f"{row['cells'][kind]:,}" for kind in kinds)
        table.add_row(row["unit"], f"{row['mhz']:g}", *cells, times, str(path["luts"]), path["from"], path["to"])
    if rows:
        out.print(table)
    for row in report["units"]:
        if reason := row["error"] or row.get("reason"):
            show(reason if row["error"] else f"{row['unit']} is larger than the device: {reason}")
    show(f"placed and routed by {report['tool']}; no board ran it")


def card_limits(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what limits the rate of a card, for each clock, launch and tensor format.

    The clocks are the report's, and the one that the estimated delay of the image CU supports. A row has the number of
    CUs that reach the report's rate, and by tensor format the limits of a card, the lowest first. The list is empty if
    the report has no image CU."""
    found = [row for row in report["units"] if row["unit"] == "image_cu" and row["error"] is None]
    if not found or found[0]["abc9_delay_ps"] is None:
        return []
    kernel = parse_kernels((hls_folder() / "image_cu" / "kernel.xml").read_bytes())[0]
    masters = sum(port.is_master for port in kernel.ports)
    clocks = {"assumed": report["clock_mhz"], "estimated": round(1e6 / found[0]["abc9_delay_ps"])}
    result = []
    for basis, clock_mhz in clocks.items():
        cu = Cu(found[0]["resources"], masters, report["cycles_per_image"], clock_mhz * 1e6)
        for launch_s in LAUNCHES_S:
            cus = cus_for(report["target_images_per_s"], cu, launch_s)
            by_format = {
                name: [asdict(limit) for limit in limits(cu, launch_s, JPEG_BYTES, size)]
                for name, size in TENSOR_BYTES.items()
            }
            row = {"clock_mhz": clock_mhz, "clock": basis, "launch_us": launch_s * 1e6, "masters": masters}
            result.append(row | {"images_per_s_of_a_cu": cu.images_s(launch_s), "cus": cus, "limits": by_format})
    return result


def print_report(report: dict[str, Any]) -> None:
    """Print the report as tables and lines."""
    rows = [row for row in report["units"] if row["error"] is None]
    units = [row for row in rows if row["part_of"] is None]
    if rows:
        _print_resources(rows)
        if units:
            _print_shares(report, units)
        if report["card_limits"]:
            _print_limits(report)
        _print_paths(rows)
        _print_memories([row for row in units if row["unit"].endswith("_cu")] or units or rows)
    for row in rows:
        for warning in row["warnings"]:
            show(f"{row['unit']}: warning: {warning}")
        if row["soft_multipliers"]:
            sizes = ", ".join(f"{m['a']}x{m['b']} ({m['source'].rpartition('/')[2]})" for m in row["soft_multipliers"])
            show(f"{row['unit']}: multipliers in LUTs: {sizes}")
    for row in report["units"]:
        if row["error"] is not None:
            show(row["error"])
    if report["missing_units"]:
        show(f"no RTL yet: {', '.join(report['missing_units'])}")
    show(f"synthesised by {report['tool']}; nothing was placed or routed, and delays are estimates")


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
        f"share of an {report['card']['name']}, %: one CU / all CUs / PREBA's Table 1\n"
        f"{cus} image CUs reach {report['target_images_per_s']:,} images/s at {report['clock_mhz']} MHz"
        f" and {cycles:,} clocks per image; audio units are in one CU"
    )
    table = _table(title, "unit", *(COLUMNS[kind] for kind in U55C))
    for row in rows:
        one, all_cus, preba = row["percent_of_card"], row["percent_of_card_for_cus"], row["preba_percent"]
        cells = (
            f"{one[kind]:.2f} / {all_cus[kind]:.2f} / " + (f"{preba[kind]:.1f}" if preba else "-") for kind in U55C
        )
        table.add_row(row["unit"], *cells)
    out.print(table)


def _print_limits(report: dict[str, Any]) -> None:
    target, rows = report["target_images_per_s"], report["card_limits"]
    title = (
        f"image CUs that reach {target:,} images/s of {report['cycles_per_image']:,} clocks each\n"
        f"and the lowest limit of one {report['card']['name']} by tensor format: images/s, the part that limits, "
        "and its CUs"
    )
    table = _table(title, "clock", "launch", "images/s of a CU", "CUs", *TENSOR_BYTES)
    for row in rows:
        binds = (row["limits"][name][0] for name in TENSOR_BYTES)
        table.add_row(
            f"{row['clock_mhz']} MHz, {row['clock']}",
            f"{row['launch_us']:.0f} us" if row["launch_us"] else "queue",
            f"{row['images_per_s_of_a_cu']:,.0f}",
            str(row["cus"]),
            *(_limit(limit) for limit in binds),
        )
    out.print(table)
    every = {limit["name"]: limit for row in rows[:1] for name in TENSOR_BYTES for limit in row["limits"][name]}
    cus = ", ".join(f"{limit['name']} {limit['cus']}" for limit in every.values() if limit["cus"] is not None)
    show(f"largest number of CUs by {cus}")
    for other in OTHERS:
        show(f"for comparison, {other.name}: {other.images_s:,.0f} images/s ({other.of}; {other.source})")


def _limit(limit: dict[str, Any]) -> str:
    units = f", {limit['cus']} CUs" if limit["cus"] is not None else ""
    return f"{limit['images_s']:,.0f} {limit['name']}{units}"


def _print_paths(rows: list[dict[str, Any]]) -> None:
    title = (
        "longest path between registers: its LUTs, adder chains (with their CARRY4), MUXF and multipliers;\n"
        "the estimate of its delay, from fast to slow cells, and abc9's of LUTs and wires alone"
    )
    table = _table(title, "unit", "LUT", "carry", "MUXF", "DSP", "max LUTs", "estimate, ns", "abc9", "from", "to")
    for row in rows:
        if not row["longest_paths"]:
            continue
        path = row["longest_paths"][0]
        carry = f"{path['carries']} ({path['carry_cells']})" if path["carries"] else "0"
        delay = f"{row['path_ps']['fast'] / 1e3:.1f} to {row['path_ps']['slow'] / 1e3:.1f}"
        abc9 = f"{row['abc9_delay_ps'] / 1e3:.1f}" if row["abc9_delay_ps"] else "-"
        counts = (str(path["luts"]), carry, str(path["muxes"]), str(path["dsps"]), str(row["most_luts_on_a_path"]))
        table.add_row(_name(row), *counts, delay, abc9, path["start"], path["end"])
    out.print(table)


def _print_memories(rows: list[dict[str, Any]]) -> None:
    """Print the memories of each unit. Equal memories of a generate loop share a line."""
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
