"""The live rows of our own H100, for the table of Fig. 17 next to the rows of the machine that runs the experiment.

figure17_h100.csv has them. It comes from the part "live" of docs/results/measured/h100.json, which scripts/gpu_check
wrote. A test compares the two files. `lazy` kept to Eq. 2 there.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from headrace.sim.experiments.lazybatching.rows import LiveRow

FILE = "figure17_h100.csv"
POLICIES = ("lazy", "graph")  # of Fig. 17


@dataclass(frozen=True, slots=True)
class H100Row:
    """A live run on the H100, with the simulator's mean latency for the same arrivals. `late` is a share."""

    device: str
    network: str
    load: float
    policy: str
    window: float
    requests: int
    mean_ms: float
    late: float
    simulated_mean_ms: float
    slowdown: float


def rows_of(check: Mapping[str, Any]) -> list[H100Row]:
    """Return the rows of Fig. 17 in what scripts/gpu_check wrote. Runs that the worker could not sustain have none."""
    rows = []
    for row in check["parts"]["live"]["rows"]:
        details = row["details"]
        if row["measured"] is None or details.get("policy") not in POLICIES:
            continue
        live = details["live"]
        rows.append(
            H100Row(
                check["device"]["name"],
                details["network"],
                details["load"],
                details["policy"],
                details["window"],
                live["requests"],
                live["latency_ms"]["mean"],
                live["sla_violation_rate"],
                details["simulated"]["latency_ms"]["mean"],
                live["machine"],
            )
        )
    return rows


def read() -> list[H100Row]:
    """Return the rows of FILE."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return [
        H100Row(
            row["device"],
            row["network"],
            float(row["load"]),
            row["policy"],
            float(row["window"]),
            int(row["requests"]),
            float(row["mean_ms"]),
            float(row["late"]),
            float(row["simulated_mean_ms"]),
            float(row["slowdown"]),
        )
        for row in csv.DictReader(text.splitlines())
    ]


def table(rows: Sequence[LiveRow]) -> list[str]:
    """Return a table in Markdown: the given live rows, and those of the H100."""
    shown = [
        H100Row(
            row.device,
            "transformer",
            row.load,
            row.policy,
            row.window,
            row.requests,
            row.mean_ms,
            row.violation_rate,
            row.simulated_mean_ms,
            row.slowdown,
        )
        for row in rows
    ]
    shown += read()
    lazy = {(row.device, row.network, row.load): row.mean_ms for row in shown if row.policy == "lazy"}
    lines = [
        "Fig. 17, live. Windows of `graph` are in latencies of a request alone. Slowdown is the time of nodes by that "
        "in the profile.",
        "",
        "| device | network | load | policy | mean, ms | by lazy's | late | simulated mean, ms | slowdown |",
        "| --- " * 9 + "|",
    ]
    for row in shown:
        policy = f"graph {row.window:g}" if row.policy == "graph" else row.policy
        by_lazy = row.mean_ms / lazy[row.device, row.network, row.load]
        head = f"| {row.device} | {row.network} | {row.load:g} | {policy} | {row.mean_ms:.2f} | {by_lazy:.2f} "
        lines.append(f"{head}| {row.late:.1%} | {row.simulated_mean_ms:.2f} | {row.slowdown:.2f} |")
    return [*lines, ""]
