"""Draw the capacity of a server by its preprocessing, and latency by load and policy."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from headrace.sim.experiments.slices.rows import Capacity, Served
from headrace.sim.plot_style import (
    SMALL_PT,
    color,
    figure,
    legend,
    panels,
    picture,
    plain_numbers,
)

KEYS = {"cpu, measured": "cpu"}  # designs whose colour has another name


@picture
def plot_preparing(rows: Sequence[Capacity]) -> Figure:
    """Draw, for the smallest slices, the throughput of each design as a share of that with inputs ready."""
    rows = [row for row in rows if not row.partition.endswith(":1")]
    models, gpus, designs = (
        list(dict.fromkeys(getattr(row, field) for row in rows)) for field in ("model", "gpu", "design")
    )
    designs.remove("ideal")
    drawn, grid = panels(gpus, columns=2, height_in=2.5, sharey=True, sharex=True)
    for axes, gpu in zip(grid, gpus, strict=True):
        mine = {(row.model, row.design): row.throughput_rps for row in rows if row.gpu == gpu}
        for place, design in enumerate(designs):
            heights = [mine.get((model, design), 0.0) / mine[model, "ideal"] for model in models]
            at = np.arange(len(models)) + 0.2 * (place - (len(designs) - 1) / 2)
            axes.bar(at, heights, 0.19, color=color(KEYS.get(design, design)), label=design)
        axes.set_xticks(range(len(models)), models, rotation=35, ha="right", fontsize=SMALL_PT)
        axes.grid(visible=False, axis="x")
        axes.tick_params(labelbottom=axes in grid[-2:])
    for axes in grid[::2]:
        axes.set_ylabel("of that with inputs ready")
    legend(drawn, grid[0])
    return drawn


@picture
def plot_policies(rows: Sequence[Served]) -> Figure:
    """Draw mean and 99th percentile of latency by load in the smallest slices, with inputs ready."""
    rows = [row for row in rows if row.preprocess == "ideal" and row.load < 1 and not row.partition.endswith(":1")]
    models, policies = (list(dict.fromkeys(getattr(row, field) for row in rows)) for field in ("model", "policy"))
    drawn, grid = figure(len(models), 2, 2.1, sharex=True, sharey="row")
    for line, model in zip(grid, models, strict=True):
        for axes, field, words in zip(line, ("mean_ms", "p99_ms"), ("mean", "99th percentile"), strict=True):
            for policy in policies:
                mine = [row for row in rows if (row.model, row.policy) == (model, policy)]
                loads, values = [row.load for row in mine], [getattr(row, field) for row in mine]
                axes.plot(loads, values, "o-", color=color(policy), label=policy)
            axes.set(title=f"{model}: {words}", yscale="log")
            plain_numbers(axes.yaxis)
        line[0].set_ylabel("ms")
    for axes in grid[-1]:
        axes.set_xlabel("load")
    legend(drawn, grid[0][0], columns=5)
    return drawn
