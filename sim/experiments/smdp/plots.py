"""Draw the SMDP reproduction."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from headrace.sim.experiments.smdp.rows import Bounded, Cost, Point, Truncation

STATES = 48  # queue lengths drawn in Fig. 4
DRAWN_WEIGHTS = (0.0, 0.1, 1.0, 10.0, 100.0)
POLICIES = {
    "work_conserving": ("work-conserving", "C0", "--"),
    "static_8": ("static 8", "C1", "-."),
    "static_16": ("static 16", "C2", "-."),
    "static_32": ("static 32", "C4", "-."),
    "optimal": ("optimal", "C3", "-"),
}


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _heat_map(axes: Any, points: Sequence[Point], labels: Sequence[str]) -> Any:
    """Draw a column for each policy.

    States that it does not visit are pale. A cross above marks a policy without a control-limit structure."""
    actions = np.array([point.actions[: STATES + 1] for point in points]).T
    unseen = np.arange(STATES + 1)[:, None] >= np.array([point.visited for point in points])
    mesh = axes.pcolormesh(np.ma.masked_equal(actions, 0), cmap="viridis", vmin=1, vmax=32)
    axes.pcolormesh(np.ma.masked_equal(unseen, 0), cmap="gray", vmin=0, vmax=1, alpha=0.65)
    others = [number + 0.5 for number, point in enumerate(points) if point.control_limit is None]
    axes.plot(others, [STATES + 2.5] * len(others), "x", color="C3", markersize=4, clip_on=False, in_layout=False)
    axes.set_facecolor("0.8")
    axes.set(ylim=(0, STATES + 1), xlim=(0, len(points)))
    ticks = [number for number, label in enumerate(labels) if label]
    axes.set_xticks([number + 0.5 for number in ticks], [labels[number] for number in ticks])
    axes.set_yticks([number + 0.5 for number in range(0, STATES + 1, 8)], range(0, STATES + 1, 8))
    return mesh


def figure_4(path: Path, points: Sequence[Point], loads: Sequence[float]) -> None:
    figure, rows = plt.subplots(2, len(loads), figsize=(3.1 * len(loads), 7.2), sharey=True, layout="constrained")
    for axes, rho in zip(rows[0], loads, strict=True):
        column = [point for point in points if point.rho == rho]
        shown = {weight: f"{weight:g}" for weight in DRAWN_WEIGHTS}
        mesh = _heat_map(axes, column, [shown.get(point.w2 or 0.0, "") for point in column])
        axes.set_title(f"rho = {rho:g}", pad=16)
        axes.set_xlabel("w2, ms/W (log, 0 leftmost)")
    for axes, weight in zip(rows[1], DRAWN_WEIGHTS, strict=True):
        column = [point for point in points if point.w2 == weight]
        few = len(column) <= len(loads)
        labels = [f"{point.rho:g}" if few or point.rho in loads else "" for point in column]
        mesh = _heat_map(axes, column, labels)
        axes.set_title(f"w2 = {weight:g} ms/W", pad=16)
        axes.set_xlabel("load rho")
    for axes in rows[:, 0]:
        axes.set_ylabel("requests waiting, s")
    figure.colorbar(mesh, ax=rows, label="batch served (grey: wait)", ticks=[1, 8, 16, 24, 32], aspect=40, pad=0.01)
    figure.suptitle(
        "Optimal policies, w1 = 1. Red cross: no control-limit structure. Pale: states that are not visited (< 1e-9)."
    )
    _save(figure, path)


def figure_5(path: Path, rows: Sequence[Cost], loads: Sequence[float]) -> None:
    figure, panels = plt.subplots(2, len(loads), figsize=(3.1 * len(loads), 6.4), sharex=True, layout="constrained")
    for (upper, lower), rho in zip(panels.T, loads, strict=True):
        mine = [row for row in rows if row.rho == rho]
        weights = [row.w2 for row in mine]
        for name, (label, color, line) in POLICIES.items():
            costs = [getattr(row, name) for row in mine]
            if None in costs:
                continue
            upper.plot(weights, costs, line, color=color, label=label)
            lower.plot(weights, [cost / row.optimal for cost, row in zip(costs, mine, strict=True)], line, color=color)
        upper.set(title=f"rho = {rho:g}", ylim=(0, 1.5 * max(row.optimal for row in mine)))
        lower.set(xlabel="w2, ms/W", ylim=(0.98, 1.6))
        for axes in (upper, lower):
            axes.grid(alpha=0.3)
    panels[0, 0].set_ylabel("average cost g, ms")
    panels[1, 0].set_ylabel("g / optimal g")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.suptitle("Average cost, w1 = 1; static policies that are unstable are absent, what is far dearer is cut off")
    _save(figure, path)


def trade_off(path: Path, points: Sequence[Point], loads: Sequence[float], name: str, label: str) -> None:
    figure, panels = plt.subplots(1, len(loads), figsize=(3.3 * len(loads), 4.2), layout="constrained")
    for axes, rho in zip(panels, loads, strict=True):
        mine = [point for point in points if point.rho == rho]
        optimal = [point for point in mine if point.policy == "optimal"]
        axes.plot(
            [getattr(point, name) for point in optimal],
            [point.latency_ms for point in optimal],
            "o-",
            color="C3",
            markersize=3,
            label="optimal, w2 from 0 to 100 ms/W",
            zorder=3,
        )
        static = [point for point in mine if point.policy == "static"]
        offset = (4, 4) if name == "power_w" else (4, -11)  # the free side of the curve
        axes.scatter(
            [getattr(point, name) for point in static],
            [point.latency_ms for point in static],
            s=18,
            color="0.55",
            label="static 1 to 32 (where stable)",
        )
        for point in static:
            if point.size in (1, 2, 4, 8, 16, 32):
                place = (getattr(point, name), point.latency_ms)
                axes.annotate(str(point.size), place, offset, textcoords="offset points", fontsize=8)
        greedy = [point for point in mine if point.policy == "work-conserving"]
        axes.scatter(
            [getattr(point, name) for point in greedy],
            [point.latency_ms for point in greedy],
            s=60,
            marker="*",
            color="C0",
            label="work-conserving",
            zorder=4,
        )
        axes.set(title=f"rho = {rho:g}", xlabel=label, yscale="log")
        low = min(point.latency_ms for point in mine)
        # The latency of a static policy near its limit of stability is very long. The other curves would be a line at
        # the bottom.
        axes.set_ylim(0.8 * low, 1.5 * max(point.latency_ms for point in optimal))
        ticks = [tick for tick in (1, 2, 3, 5, 7, 10, 15, 20, 30, 50) if 0.8 * low <= tick]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(0.8 * low, 1.5 * max(point.latency_ms for point in optimal))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("mean latency, ms")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    _save(figure, path)


def figure_8(path: Path, rows: Sequence[Truncation], costs: Sequence[float], exact: float, tolerance: float) -> None:
    figure, panels = plt.subplots(2, 2, figsize=(11, 7.4), sharex=True, sharey="row", layout="constrained")
    names = {"rvi": "relative value iteration", "pi": "policy iteration (never waits in S_o)"}
    for (upper, lower), (method, title) in zip(panels.T, names.items(), strict=True):
        for number, cost in enumerate(costs):
            mine = [row for row in rows if row.method == method and row.overflow_cost == cost]
            for axes, name in ((upper, "g"), (lower, "delta")):
                values = [getattr(row, name) for row in mine]
                axes.plot([row.s_max for row in mine], values, "-", color=f"C{number}", label=f"overflow cost {cost:g}")
                lost = [row for row in mine if row.lost]
                axes.plot([row.s_max for row in lost], [getattr(row, name) for row in lost], "x", color=f"C{number}")
        upper.axhline(exact, color="0.3", linestyle=":", label="without truncation")
        lower.axhline(tolerance, color="0.3", linestyle=":")
        lower.annotate(
            "1e-3",
            (1, tolerance),
            (-4, 4),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
        upper.set(title=title, ylim=(0, 100))
        lower.set(xlabel="s_max", yscale="log", ylim=(1e-15, 1e4))
        for axes in (upper, lower):
            axes.grid(alpha=0.3)
    panels[0, 0].set_ylabel("average cost g, ms")
    panels[1, 0].set_ylabel("delta (cost of S_o), ms")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    figure.suptitle("rho = 0.9, w1 = 1, w2 = 1 ms/W. Crosses: more than half of the time in S_o.")
    _save(figure, path)


def figure_bound(path: Path, rows: Sequence[Bounded]) -> None:
    """Draw by how much a single policy needs more power than the mixture, against the bound, a line for each load."""
    figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
    for number, rho in enumerate(sorted({row.rho for row in rows})):
        mine = [row for row in rows if row.rho == rho]
        bounds, excess = [row.bound_ms for row in mine], [row.excess_percent for row in mine]
        axes.plot(bounds, excess, "o-", ms=3, color=f"C{number}", label=f"rho {rho:g}")
    axes.set(xlabel="bound on the mean latency, ms", ylabel="more power than the mixture, %")
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, path)
