"""Draw the SMDP reproduction."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from headrace.sim.experiments.smdp.rows import Bounded, Cost, Point, Truncation
from headrace.sim.plot_style import (
    SHADES,
    SMALL_PT,
    color,
    figure,
    headed,
    label_ends,
    legend,
    others,
    panels,
    picture,
    plain_numbers,
    shades,
    theme,
    tints,
)

STATES = 48  # queue lengths drawn in Fig. 4
DRAWN_WEIGHTS = (0.0, 0.1, 1.0, 10.0, 100.0)
STATIC = ("static_8", "static_16", "static_32")
LINES = {"work_conserving": ("work-conserving", "--"), "optimal": ("optimal", "-")}


def _heat_map(axes: Any, points: Sequence[Point], labels: Sequence[str]) -> Any:
    """Draw a column for each policy.

    States that it does not visit are pale. A cross above marks a policy without a control-limit structure."""
    actions = np.array([point.actions[: STATES + 1] for point in points]).T
    unseen = np.arange(STATES + 1)[:, None] >= np.array([point.visited for point in points])
    mesh = axes.pcolormesh(np.ma.masked_equal(actions, 0), cmap=SHADES, vmin=1, vmax=32, rasterized=True)
    pale = np.zeros((*unseen.shape, 4))
    pale[unseen] = (*to_rgb(theme().background), 0.65)
    axes.imshow(pale, extent=(0, len(points), 0, STATES + 1), origin="lower", aspect="auto", interpolation="nearest")
    no_limit = [number + 0.5 for number, point in enumerate(points) if point.control_limit is None]
    axes.plot(
        no_limit, [STATES + 2.5] * len(no_limit), "x", color=color("cellular"), ms=4, clip_on=False, in_layout=False
    )
    axes.set_facecolor(theme().grid)
    axes.set(ylim=(0, STATES + 1), xlim=(0, len(points)))
    axes.grid(visible=False)
    ticks = [number for number, label in enumerate(labels) if label]
    axes.set_xticks([number + 0.5 for number in ticks], [labels[number] for number in ticks])
    axes.set_yticks([number + 0.5 for number in range(0, STATES + 1, 8)], range(0, STATES + 1, 8))
    return mesh


@picture
def figure_4(points: Sequence[Point], loads: Sequence[float]) -> Figure:
    drawn, grid = figure(2, len(loads), 3.0, sharey=True)
    for axes, rho in zip(grid[0], loads, strict=True):
        column = [point for point in points if point.rho == rho]
        shown = {weight: f"{weight:g}" for weight in DRAWN_WEIGHTS}
        mesh = _heat_map(axes, column, [shown.get(point.w2 or 0.0, "") for point in column])
        axes.set_title(f"rho = {rho:g}", pad=14)
        axes.set_xlabel("w2, ms/W")
    for axes, weight in zip(grid[1], DRAWN_WEIGHTS, strict=True):
        column = [point for point in points if point.w2 == weight]
        few = len(column) <= len(loads)
        labels = [f"{point.rho:g}" if few or point.rho in loads else "" for point in column]
        mesh = _heat_map(axes, column, labels)
        axes.set_title(f"w2 = {weight:g}", pad=14)
        axes.set_xlabel("load rho")
    for axes in grid.flat:
        axes.tick_params(axis="x", labelrotation=45)
    for axes in grid[:, 0]:
        axes.set_ylabel("requests waiting, s")
    drawn.colorbar(mesh, ax=grid, label="batch served (gap: wait)", ticks=[1, 8, 16, 24, 32], aspect=40, pad=0.01)
    headed(drawn, "Optimal policies, w1 = 1 (cross: no control limit; pale: states that are not visited)")
    return drawn


@picture
def figure_5(rows: Sequence[Cost], loads: Sequence[float]) -> Figure:
    drawn, grid = figure(len(loads), 2, 1.9, sharex=True)
    fills = dict(zip(STATIC, tints("static", len(STATIC)), strict=True))
    fills |= {"work_conserving": color("work-conserving"), "optimal": color("smdp")}
    for (cost, ratio), rho in zip(grid, loads, strict=True):
        mine = [row for row in rows if row.rho == rho]
        weights = [row.w2 for row in mine]
        for name, fill in fills.items():
            label, line = LINES.get(name, (name.replace("_", " "), "-."))
            costs = [getattr(row, name) for row in mine]
            if None in costs:
                continue
            cost.plot(weights, costs, line, color=fill, label=label)
            by_best = [cost / row.optimal for cost, row in zip(costs, mine, strict=True)]
            ratio.plot(weights, by_best, line, color=fill, label=label)
        cost.set(title=f"rho = {rho:g}: average cost g, ms", ylim=(0, 1.5 * max(row.optimal for row in mine)))
        ratio.set(title="g / optimal g", ylim=(0.98, 1.6))
    for axes in grid[-1]:
        axes.set_xlabel("w2, ms/W")
    legend(drawn, grid[0, 0], columns=5)
    headed(drawn, "Average cost, w1 = 1 (static policies that are unstable are left out)")
    return drawn


@picture
def trade_off(points: Sequence[Point], loads: Sequence[float], name: str, label: str) -> Figure:
    drawn, grid = panels([f"rho = {rho:g}" for rho in loads], height_in=3.0)
    for axes, rho in zip(grid, loads, strict=True):
        mine = [point for point in points if point.rho == rho]
        by_policy = {
            policy: [point for point in mine if point.policy == policy]
            for policy in ("optimal", "static", "work-conserving")
        }
        optimal = by_policy["optimal"]
        for policy, key, mark, size, words in (
            ("optimal", "smdp", "o-", 3.0, "optimal, w2 from 0 to 100 ms/W"),
            ("static", "static", "o", 3.5, "static 1 to 32 (where stable)"),
            ("work-conserving", "work-conserving", "*", 9.0, "work-conserving"),
        ):
            x = [getattr(point, name) for point in by_policy[policy]]
            y = [point.latency_ms for point in by_policy[policy]]
            axes.plot(x, y, mark, color=color(key), ms=size, label=words, zorder=3 + (policy != "static"))
        offset = (4, 4) if name == "power_w" else (4, -11)  # the free side of the curve
        for point in by_policy["static"]:
            if point.size in (1, 2, 4, 8, 16, 32):
                place = (getattr(point, name), point.latency_ms)
                axes.annotate(
                    str(point.size), place, offset, textcoords="offset points", fontsize=SMALL_PT, annotation_clip=True
                )
        axes.set(xlabel=label, yscale="log")
        plain_numbers(axes.yaxis)
        # The latency of a static policy near its limit of stability is very long. The other curves would be a line at
        # the bottom.
        low, high = min(point.latency_ms for point in mine), max(point.latency_ms for point in optimal)
        axes.set_ylim(0.8 * low, 1.5 * high)
    for axes in grid[::3]:
        axes.set_ylabel("mean latency, ms")
    legend(drawn, grid[0])
    return drawn


@picture
def figure_8(rows: Sequence[Truncation], costs: Sequence[float], exact: float, tolerance: float) -> Figure:
    drawn, grid = figure(2, 2, 2.8, sharex=True, sharey="row")
    names = {"rvi": "relative value iteration", "pi": "policy iteration (never waits in S_o)"}
    for (upper, lower), (method, title) in zip(grid.T, names.items(), strict=True):
        for cost, fill in zip(costs, others(len(costs)), strict=True):
            mine = [row for row in rows if row.method == method and row.overflow_cost == cost]
            for axes, name in ((upper, "g"), (lower, "delta")):
                values = [getattr(row, name) for row in mine]
                axes.plot([row.s_max for row in mine], values, "-", color=fill, label=f"overflow cost {cost:g}")
                lost = [row for row in mine if row.lost]
                axes.plot([row.s_max for row in lost], [getattr(row, name) for row in lost], "x", color=fill)
        upper.axhline(exact, color=theme().muted, linestyle=":", label="without truncation")
        lower.axhline(tolerance, color=theme().muted, linestyle=":")
        lower.annotate(
            "1e-3",
            (1, tolerance),
            (-4, 4),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            fontsize=SMALL_PT,
        )
        upper.set(title=title, ylim=(0, 100))
        lower.set(xlabel="s_max", yscale="log", ylim=(1e-15, 1e4))
    grid[0, 0].set_ylabel("average cost g, ms")
    grid[1, 0].set_ylabel("delta (cost of S_o), ms")
    legend(drawn, grid[0, 0], columns=3)
    headed(drawn, "rho = 0.9, w1 = 1, w2 = 1 ms/W (cross: more than half of the time in S_o)")
    return drawn


@picture
def figure_bound(rows: Sequence[Bounded]) -> Figure:
    """Draw by how much a single policy needs more power than the mixture, against the bound, a line for each load."""
    drawn, (axes,) = panels(["One policy in place of the best mixture of two"], height_in=4.0)
    loads = sorted({row.rho for row in rows})
    for rho, shade in zip(loads, shades(len(loads)), strict=True):
        mine = [row for row in rows if row.rho == rho]
        bounds, excess = [row.bound_ms for row in mine], [row.excess_percent for row in mine]
        axes.plot(bounds, excess, "o-", color=shade, label=f"rho {rho:g}")
    axes.set(xlabel="bound on the mean latency, ms", ylabel="more power than the mixture, %")
    label_ends(axes)
    return drawn
