"""Draw the ParvaGPU scenarios."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from headrace.sim.experiments.parvagpu.published import GPCS
from headrace.sim.experiments.parvagpu.rows import PACKED, PARVAGPU, PLANNED, PLANS, Row
from headrace.sim.experiments.parvagpu.serving import POISSON

TITLES = {
    "eleven": "All eleven networks, profiles measured by its authors",
    "six": "Six networks, profiles measured by its authors",
    "modelled": "All eleven networks, profiles of our slice model, one process a slice",
}
NAMES = {
    PARVAGPU: "ParvaGPU's two stages",
    PACKED: "its rule, packed exactly",
    PLANNED: "planned by simulation",
}
COLORS = dict(zip(PLANS, ("0.6", "C0", "C3"), strict=True))
WIDTH = 0.26


def figure(path: Path, name: str, rows: Sequence[Row]) -> None:
    """Draw GPUs by scenario, and below them the share of requests that were late."""
    scenarios = list(dict.fromkeys(row.scenario for row in rows))
    drawn, (upper, lower) = plt.subplots(2, 1, figsize=(9, 7), sharex=True, layout="constrained")
    places = np.arange(len(scenarios), dtype=np.float64)
    for number, plan in enumerate(PLANS):
        of = [row for row in rows if (row.plan, row.arrivals) == (plan, POISSON)]
        at = places + (number - 1) * WIDTH
        bars = upper.bar(at, [row.gpus for row in of], WIDTH, color=COLORS[plan], label=NAMES[plan])
        upper.bar_label(bars, fontsize=8)
        bars = lower.bar(at, [row.late_percent for row in of], WIDTH, color=COLORS[plan])
        lower.bar_label(bars, [f"{float(f'{row.late_percent:.2g}'):g}" for row in of], fontsize=8)
    own = [row for row in rows if (row.plan, row.arrivals) == (PLANNED, POISSON)]
    limits: list[tuple[float, str, str]] = [(row.least, "C2", "no plan has fewer") for row in own]
    published = [row.published_gpcs / GPCS if name == "six" else row.published_gpus for row in own]
    label = "its deployment" + (", GPCs of these networks / 7" if name == "six" else "")
    limits += [(gpus, "k", label) for gpus in published]
    for place, (height, color, text) in zip([*places, *places], limits, strict=True):
        upper.plot(
            [place - 1.6 * WIDTH, place + 1.6 * WIDTH],
            [height, height],
            color=color,
            linestyle="--" if color == "k" else ":",
            label=text if place == 0 else None,
        )
    upper.set(ylabel="GPUs (A100-80GB)", title=TITLES[name])
    upper.legend(fontsize=8)
    lower.set(ylabel="requests later than the SLO, %\n(Poisson arrivals)")
    lower.set_yscale("symlog", linthresh=0.001)
    lower.set_ylim(0, 100)
    lower.set_xticks(places, [f"S{scenario}" for scenario in scenarios])
    for axes in (upper, lower):
        axes.grid(alpha=0.3, axis="y")
        axes.set_axisbelow(True)
    drawn.savefig(path, dpi=110)
    plt.close(drawn)
