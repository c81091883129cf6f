"""Draw the ParvaGPU scenarios."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from headrace.sim.experiments.parvagpu.published import GPCS
from headrace.sim.experiments.parvagpu.rows import PACKED, PARVAGPU, PLANNED, PLANS, Row
from headrace.sim.experiments.parvagpu.serving import POISSON
from headrace.sim.plot_style import SMALL_PT, figure, legend, others, picture, theme

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
WIDTH = 0.28


@picture
def deployments(name: str, rows: Sequence[Row]) -> Figure:
    """Draw GPUs by scenario, and below them the share of requests that were late."""
    scenarios = list(dict.fromkeys(row.scenario for row in rows))
    drawn, grid = figure(2, 1, 2.7, sharex=True)
    upper, lower = grid[:, 0]
    places = np.arange(len(scenarios), dtype=np.float64)
    for number, (plan, fill) in enumerate(zip(PLANS, others(len(PLANS)), strict=True)):
        of = [row for row in rows if (row.plan, row.arrivals) == (plan, POISSON)]
        at = places + (number - 1) * WIDTH
        bars = upper.bar(at, [row.gpus for row in of], WIDTH - 0.02, color=fill, label=NAMES[plan])
        upper.bar_label(bars, fontsize=SMALL_PT)
        bars = lower.bar(at, [row.late_percent for row in of], WIDTH - 0.02, color=fill)
        lower.bar_label(bars, [f"{float(f'{row.late_percent:.2g}'):g}" for row in of], fontsize=SMALL_PT)
    own = [row for row in rows if (row.plan, row.arrivals) == (PLANNED, POISSON)]
    limits: list[tuple[float, str, str]] = [(row.least, ":", "no plan has fewer") for row in own]
    published = [row.published_gpcs / GPCS if name == "six" else row.published_gpus for row in own]
    label = "its deployment" + (", GPCs of these networks / 7" if name == "six" else "")
    limits += [(gpus, "--", label) for gpus in published]
    for place, (height, style, text) in zip([*places, *places], limits, strict=True):
        upper.plot(
            [place - 1.6 * WIDTH, place + 1.6 * WIDTH],
            [height, height],
            color=theme().text,
            linestyle=style,
            linewidth=1.2,
            label=text if place == 0 else "_",
        )
    upper.set(ylabel="GPUs (A100-80GB)", title=TITLES[name])
    lower.set(ylabel="later than the SLO, %")
    lower.set_title("Poisson arrivals")
    lower.set_yscale("symlog", linthresh=0.001)
    lower.set(ylim=(0, 400), yticks=[0, 0.01, 1, 100])
    lower.set_yticks([0, 0.01, 1, 100], ["0", "0.01", "1", "100"])
    lower.set_xticks(places, [f"S{scenario}" for scenario in scenarios])
    for axes in (upper, lower):
        axes.minorticks_off()
        axes.grid(visible=False, axis="x")
    legend(drawn, upper, columns=3)
    return drawn
