"""Draw goodput by load."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from headrace.sim.experiments.goodput.rows import Row
from headrace.sim.plot_style import color, figure, legend, picture, theme


@picture
def plot(rows: Sequence[Row]) -> Figure:
    """Draw a panel for each network and target latency."""
    models, targets = (list(dict.fromkeys(getattr(row, field) for row in rows)) for field in ("model", "slo_ms"))
    policies = list(dict.fromkeys(row.policy for row in rows))
    max_load = max(row.load for row in rows)
    drawn, grid = figure(len(targets), len(models), 2.4, sharex=True, sharey=True)
    for line, slo_ms in zip(grid, targets, strict=True):
        for axes, model in zip(line, models, strict=True):
            axes.plot([0, max_load], [0, max_load], color=theme().muted, lw=0.8)
            for policy in policies:
                mine = [row for row in rows if (row.model, row.slo_ms, row.policy) == (model, slo_ms, policy)]
                dashed = "--" if policy in ("graph", "preba", "smdp") else "-"
                loads, goodput = [row.load for row in mine], [row.goodput for row in mine]
                axes.plot(loads, goodput, "o" + dashed, color=color(policy), label=policy)
            axes.set(title=f"{model.replace(',', ', ')}\nwithin {slo_ms:g} ms", ylim=(0, 1.25))
    for axes in grid[-1]:
        axes.set_xlabel("load, of full batches")
    for line in grid:
        line[0].set_ylabel("goodput, of the same")
    legend(drawn, grid[0][0], columns=6)
    return drawn
