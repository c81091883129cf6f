"""Draw how well the slice model predicts measured kernels."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from headrace.sim.experiments.gpu.rows import Modelled
from headrace.sim.plot_style import legend, others, panels, picture, theme

ALL, HELD_OUT = "all", "held out"
CLOSE = 0.2  # the half width of the band
WORDS = {"product": "products, by rows"}
RATIOS = (0.6, 0.8, 1, 1.25, 1.5, 2)  # ticks
SPACING = 0.24  # between the GPUs of a size


@picture
def predicted(rows: Sequence[Modelled]) -> Figure:
    """Draw predicted by measured time of the held-out kernels, by size and GPU: medians, 10th and 90th percentiles.

    There is a panel for each kind of kernel. A band shows what lies within CLOSE of the measured time."""
    held = [row for row in rows if row.half == HELD_OUT and row.size != ALL]
    kinds, gpus = (list(dict.fromkeys(getattr(row, field) for row in held)) for field in ("kernel", "gpu"))
    drawn, grid = panels([WORDS.get(kind, f"attention, {kind}: by keys") for kind in kinds], 1, 2.3, sharey=True)
    for axes, kind in zip(grid, kinds, strict=True):
        sizes = list(dict.fromkeys(row.size for row in held if row.kernel == kind))
        axes.axhspan(1 - CLOSE, 1 + CLOSE, color=theme().band, zorder=0)
        axes.axhline(1, color=theme().muted, lw=1)
        for number, (gpu, fill) in enumerate(zip(gpus, others(len(gpus)), strict=True)):
            mine = [row for row in held if (row.kernel, row.gpu) == (kind, gpu)]
            places = [sizes.index(row.size) + SPACING * (number - (len(gpus) - 1) / 2) for row in mine]
            # A row has measured by modelled time.
            medians = np.array([1 / row.ratio for row in mine])
            ends = np.array([[1 / row.p90 for row in mine], [1 / row.p10 for row in mine]]).reshape(2, -1)
            spread = np.abs(ends - medians)
            axes.errorbar(places, medians, yerr=spread, fmt="o", ms=6, lw=1.6, color=fill, label=gpu)
        axes.set_xticks(range(len(sizes)), sizes)
        axes.set(ylabel="predicted / measured", yscale="log")
        axes.set_yticks(RATIOS, [f"{ratio:g}" for ratio in RATIOS])
        axes.minorticks_off()
        axes.grid(visible=False, axis="x")
    legend(drawn, max(grid, key=lambda axes: len(axes.get_legend_handles_labels()[0])))
    return drawn
