"""Draw how well the closed loop predicts measured servers."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from headrace.sim.experiments.aiconfigurator.rows import Errors
from headrace.sim.experiments.aiconfigurator.samples import DYNAMO
from headrace.sim.plot_style import figure, legend, others, picture, theme

CLOSE = 0.1  # the half width of the band
LEAST_ROWS = 10  # of a class that is drawn
TICKS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3)


@picture
def ratios(rows: Sequence[Errors]) -> Figure:
    """Draw predicted by measured time per output token of each class: medians, 10th and 90th percentiles.

    Classes of few rows are left out. A band shows what lies within CLOSE of the measured time."""
    shown = [row for row in rows if row.rows >= LEAST_ROWS] or list(rows)
    servers = list(dict.fromkeys(row.backend for row in shown))
    drawn, grid = figure(1, 1, 1.2 + 0.21 * len(shown))
    axes = grid[0, 0]
    axes.axvspan(1 - CLOSE, 1 + CLOSE, color=theme().band, zorder=0)
    axes.axvline(1, color=theme().muted, lw=1)
    places = np.arange(len(shown))[::-1]  # from the top
    for server, fill in zip(servers, others(len(servers)), strict=True):
        mine = [(place, row) for place, row in zip(places, shown, strict=True) if row.backend == server]
        medians = np.array([row.ratio for _, row in mine])
        ends = np.array([[row.p10 for _, row in mine], [row.p90 for _, row in mine]])
        axes.errorbar(
            medians,
            [place for place, _ in mine],
            xerr=np.abs(ends - medians),
            fmt="o",
            ms=5,
            lw=1.6,
            color=fill,
            label=server,
        )
    # The numbers of rows are in parentheses.
    names = [f"{row.model}, {row.gpu}, {row.precision} ({row.rows})" for row in shown]
    sources = [f"{row.source}: " if row.source == DYNAMO else "" for row in shown]
    axes.set_yticks(places, [f"{source}{name}" for source, name in zip(sources, names, strict=True)])
    axes.set(xlabel="predicted / measured time per output token", xscale="log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.grid(visible=False, axis="y")
    legend(drawn, axes)
    return drawn
