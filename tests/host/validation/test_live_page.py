"""Test that the page on live and simulated latency shows the rows of docs/results/measured/h100.json."""

import json
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
POLICIES = {("lazy", 0.0): "`lazy`", ("graph", 0.0): "`graph`, no window", ("preba", 0.0): "`preba`"}
WAITS = "`preba`"  # a worker of this policy stays free on purpose while a window runs


def test_the_page_has_the_measured_figures():
    rows = json.loads((DOCS / "results" / "measured" / "h100.json").read_text())["parts"]["live"]["rows"]
    lines, turns_us = [], []
    for row in rows:
        details = row.get("details") or {}
        policy = POLICIES.get((details.get("policy"), details.get("window")))
        if row["quantity"] != "mean latency" or policy is None or row["measured"] is None:
            continue
        ratio, nodes = row["measured"] / row["expected"], details["live"]["machine"]
        lines.append(
            f"| {details['network']} | {details['load']} | {policy} | {row['expected']:.2f} | {row['measured']:.2f} | "
            f"{ratio:.2f} | {nodes:.2f} |"
        )
        if policy != WAITS:
            turns_us.append(details["live"]["turn_us"]["median"])
    assert len(lines) > 10
    page = (DOCS / "explanation" / "live_and_simulated.md").read_text()
    shown = [line for line in page.splitlines() if line.startswith(("| transformer", "| resnet50"))]
    assert shown == lines, "\n" + "\n".join(lines)
    assert f"between {min(turns_us):.0f} and {max(turns_us):.0f} us" in page
