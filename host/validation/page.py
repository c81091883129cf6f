"""Write the page of a check from its JSON: for each part what was expected, what was measured, and the ratio."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.host.validation.plan import Row, row_of

# What each part measures, and what its column "expected" holds.
ABOUT: Final[Mapping[str, str]] = {
    "profiles": "This part measures the latency of a batch: the input is copied to the device, and the network runs. "
    "The slice model of the whole GPU gives the expected number.",
    "nodes": "This part runs a network node by node: operator by operator, and as CUDA graphs. The expected number is "
    "the time of the same network in one piece.",
    "live": "This part runs policies on one worker, at shares of what padded batches sustain. The simulator gives the "
    "expected number, with the same arrivals and the latencies measured before. It is LazyBatching's Fig. 17, with "
    "`preba`.",
    "copies": "This part copies bytes between the host and the device. The expected number is the rate that the slice "
    "model assumes for inputs.",
    "server": "This part runs `headrace serve` with one worker under a closed loop. The expected number is the best "
    "throughput of the worker's profile.",
    "decode": "This part decodes JPEG files to pixels. The simulator's model of the GPU's decoders gives the expected "
    "number.",
}


def page(found: Mapping[str, Any]) -> str:
    """Return the page as Markdown, from the contents of gpu_check.json."""
    device = found["device"]
    lines = [f"# GPU check: {device.get('name') or device['kind']}", ""]
    lines += ["This page lists every measurement of `scripts/gpu_check` next to its prediction.", ""]
    lines += [f"- {name}: {value}" for name, value in device.items() if value not in (None, "")]
    lines += [f"- size: {'small' if found['small'] else 'full'}", f"- time: {found['wall_s']:.0f} s", ""]
    if device["kind"] == "cpu":
        lines += [
            "This machine has no GPU that torch can use, or the CPU was asked for. The numbers below come from the "
            "CPU. They show that the check runs. Predictions are those of a GPU, and say nothing about a CPU.",
            "",
        ]
    for name, part in found["parts"].items():
        rows = [row_of(values) for values in part["rows"]]
        lines += [f"## {name}", "", ABOUT[name], "", _outcome(part, rows), ""]
        if rows:
            lines += [*_table(rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def _outcome(part: Mapping[str, Any], rows: Sequence[Row]) -> str:
    words = [f"It has {len(rows)} rows, and took {part['seconds']:.0f} s."]
    if part["error"]:
        words.insert(0, f"**Failed**: {part['error'].rstrip('.')}.")
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if ratios:
        words.append(
            f"Measured / expected is {statistics.median(ratios):.3g} in the median, and {min(ratios):.3g} to "
            f"{max(ratios):.3g} in all rows."
        )
    return " ".join(words)


def _table(rows: Sequence[Row]) -> list[str]:
    lines = ["| case | what | expected | measured | ratio | note |", "| --- | --- | ---: | ---: | ---: | --- |"]
    for row in rows:
        cells = (
            row.case,
            row.quantity,
            _number(row.expected, row.unit),
            _number(row.measured, row.unit),
            "-" if row.ratio is None else f"{row.ratio:.3g}",
            (f"failed: {row.error}" if row.error else row.note).replace("|", "/").replace("\n", " "),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.4g} {unit}".rstrip()
