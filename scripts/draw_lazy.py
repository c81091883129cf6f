#!/usr/bin/env python3
"""Draw the worked timeline of Eq. 2 of the policy `lazy`, as the head of batching/policies/lazy.py has it.

    .venv/bin/python scripts/draw_lazy.py [docs/images/lazy_timeline.png]

A test replays that table with the policy (tests/batching/policies/test_worked_timelines.py). Exit status 0.
"""

import ast
import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\s+([\d.]+) - ([\d.]+)\s+0\s+((?:R\d ?)+)\s+((?:[A-D] ?)+)\s+(\w+)\s*$", re.MULTILINE)
TIMES = re.compile(r"R1 to R5 arrive at\s+(.+?) ms, with slos of\s+(.+?) ms", re.DOTALL)
HEADING = "Example of Eq. 2\n"
LAST_MS = 14
COLORS = dict(zip("ABCD", ("#9ecae1", "#6baed6", "#4292c6", "#2171b5"), strict=True))


def numbers(text: str) -> list[float]:
    """Return the numbers in a text such as "0, 0.5 and 2"."""
    return [float(each) for each in re.findall(r"\d+(?:\.\d+)?", text)]


def example() -> str:
    """Return the head of lazy.py from the example of Eq. 2 on."""
    text = ast.get_docstring(ast.parse((ROOT / "batching" / "policies" / "lazy.py").read_text())) or ""
    return text.partition(HEADING)[2]


def draw(path: Path) -> None:
    """Draw a row for each request: when it comes, which nodes it runs, and its deadline."""
    text = example()
    found = TIMES.search(text)
    assert found is not None, "the head of lazy.py has no example"
    arrivals, slos = numbers(found[1]), numbers(found[2])
    figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
    reasons: dict[float, str] = {}
    for start, stop, requests, nodes, reason in ROW.findall(text):
        letters = nodes.split()
        width = (float(stop) - float(start)) / len(letters)
        reasons[float(start)] = reason
        for request in requests.split():
            for place, node in enumerate(letters):
                left = float(start) + place * width
                row = int(request[1:]) - 1
                axes.barh(row, width, left=left, height=0.62, color=COLORS[node], edgecolor="white")
                axes.text(left + width / 2, row, node, ha="center", va="center", color="white", weight="bold")
    for row, (came, slo) in enumerate(zip(arrivals, slos, strict=True)):
        axes.plot([came, came], [row - 0.42, row + 0.42], color="black", lw=2)
        if came + slo < LAST_MS:
            axes.plot(came + slo, row, marker="|", ms=16, mew=2, color="#cb181d")
    for start, reason in reasons.items():
        axes.axvline(start, color="0.85", lw=1, zorder=0)
        axes.text(start + 0.06, -0.95, reason, fontsize=8, color="0.35", va="center")
    axes.set_yticks(range(len(arrivals)), [f"R{number + 1}" for number in range(len(arrivals))])
    axes.set(xlim=(-0.1, LAST_MS), ylim=(len(arrivals) - 0.4, -1.3), xlabel="time, ms", xticks=range(LAST_MS + 1))
    axes.plot([], [], color="black", lw=2, label="the request comes")
    axes.plot([], [], color="#cb181d", marker="|", ls="", ms=12, mew=2, label="its deadline, for R3 and R5 later")
    axes.legend(loc="lower left", frameon=False, fontsize=8)
    axes.set_title(
        "One worker, four nodes of 1 ms. R2 catches up with R1 at node B, and both go on as one batch", fontsize=10
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "lazy_timeline.png")
