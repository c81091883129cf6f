"""Draw the LazyBatching reproduction. Bands are the range over seeds where there is one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from headrace.sim.experiments.lazybatching.conditions import TARGETS_MS
from headrace.sim.experiments.lazybatching.rows import LiveRow, LiveRuns, Runs
from headrace.sim.plot_style import (
    color,
    doublings,
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

POLICIES = ("serial", "oracle", "lazy")
ORACLE = (0, (4, 2))  # dashes: it often lies on lazy


def _of_capacity() -> dict[str, Any]:
    """Return the colours of the panels by capacity. The three rules of lazy are tints of its colour."""
    rules = dict(zip(("lazy eq2", "lazy batched", "lazy least-delay"), tints("lazy", 3), strict=True))
    return {"best rival": theme().muted, **rules, "oracle": color("oracle")}


def _name(model: str) -> str:
    return model.replace("+", " + ")


def _logarithmic(axes: Any) -> None:
    axes.set(xscale="log", yscale="log")
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis)


@picture
def figure_3(batches: Sequence[int], latency_s: Sequence[float]) -> Figure:
    drawn, (left, right) = panels(["ResNet-50 on the NPU: requests/s", "latency of the batch, ms"], 2, 2.8)
    rate = [batch / seconds for batch, seconds in zip(batches, latency_s, strict=True)]
    for axes, values in ((left, rate), (right, [1e3 * seconds for seconds in latency_s])):
        axes.plot(batches, values, "o-")
        axes.set(xlabel="batch size (already formed)", ylim=(0, None))
        doublings(axes)
    return drawn


@picture
def figure_5(runs: Runs) -> Figure:
    drawn, (latency, throughput) = panels(["GraphB, ResNet-50: mean latency, ms", "requests/s"], 2, 3.0)
    for rate, shade in zip(runs.rates(), shades(len(runs.rates())), strict=True):
        groups = sorted(runs.select(rate_rps=rate, policy="graph"), key=lambda group: group[0].window_ms)
        windows = [group[0].window_ms for group in groups]
        means = [np.mean([row.mean_ms for row in group]) for group in groups]
        served = [np.mean([row.throughput_rps for row in group]) for group in groups]
        for axes, values in ((latency, means), (throughput, served)):
            axes.plot(windows, values, "o-", color=shade, label=f"{rate:g}/s")
    for axes in (latency, throughput):
        axes.set_xlabel("window, ms")
    latency.set_ylim(0, None)
    throughput.set_yscale("log")
    plain_numbers(throughput.yaxis)
    label_ends(latency, throughput)
    return drawn


@picture
def by_load(runs: Runs, field: str, label: str) -> Figure:
    """Draw a field against the load, with a panel for each network. The longer a GraphB window, the fuller its tint."""
    models = runs.models()
    drawn, grid = panels([_name(model) for model in models], 2, 2.7)
    for axes, model in zip(grid, models, strict=True):
        windows = sorted({row.window_ms for row in runs.rows if row.model == model and row.policy == "graph"})
        for window, tint in zip(windows, tints("graph", len(windows)), strict=True):
            ends = window in (windows[0], windows[-1])
            name = f"GraphB {window} ms" if ends else None
            _line(axes, runs, field, name, tint, 1.8 if ends else 0.8, model=model, policy="graph", window_ms=window)
        for policy in POLICIES:
            if runs.select(model=model, policy=policy):
                _line(axes, runs, field, policy, color(policy), 2.0, model=model, policy=policy, band=True)
        axes.set_xlabel("load, requests/s")
        _logarithmic(axes)
    for axes in grid[::3]:
        axes.set_ylabel(label)
    legend(drawn, grid[0], columns=5)
    return drawn


def _line(
    axes: Any,
    runs: Runs,
    field: str,
    label: str | None,
    fill: Any,
    width: float,
    *,
    band: bool = False,
    **settings: object,
) -> None:
    groups = sorted(runs.select(**settings), key=lambda group: group[0].rate_rps)
    rates = [group[0].rate_rps for group in groups]
    values = [[getattr(row, field) for row in group] for group in groups]
    means = [np.mean(value) for value in values]
    style = ORACLE if settings.get("policy") == "oracle" else "-"
    axes.plot(rates, means, "o", ls=style, lw=width, ms=width + 1.2, color=fill, label=label or "_")
    if band:
        axes.fill_between(rates, [min(v) for v in values], [max(v) for v in values], color=fill, alpha=0.15, lw=0)


@picture
def figure_14(runs: Runs) -> Figure:
    models = runs.models()
    drawn, grid = panels([_name(model) for model in models], 2, 2.8)
    share = np.linspace(0, 100, 101)
    for axes, model in zip(grid, models, strict=True):
        graph = runs.select(model=model, policy="graph")
        best = min(graph, key=lambda group: float(np.mean([row.p99_ms for row in group])))
        worst = max(graph, key=lambda group: float(np.mean([row.p99_ms for row in group])))
        faint, full = tints("graph", 2)
        shown = [("GraphB, best p99", best, full), ("GraphB, worst p99", worst, faint)]
        shown += [(policy, runs.select(model=model, policy=policy)[0], color(policy)) for policy in POLICIES]
        for name, group, fill in shown:
            style = ORACLE if name == "oracle" else "-"
            axes.plot(np.mean([row.quantiles_ms for row in group], axis=0), share, label=name, color=fill, ls=style)
        axes.axhline(99, color=theme().muted, lw=0.8, ls=":")
        axes.set_title(f"{_name(model)}, {graph[0][0].rate_rps:g}/s")
        axes.set(xlabel=f"ms (best {best[0].window_ms}, worst {worst[0].window_ms} ms)", xscale="log")
        plain_numbers(axes.xaxis)
    for axes in grid[::3]:
        axes.set_ylabel("% of requests")
    legend(drawn, grid[0], columns=5)
    return drawn


@picture
def figure_15(runs: Runs) -> Figure:
    models = runs.models()
    drawn, grid = panels([f"{_name(model)}, 1000/s" for model in models], 2, 2.5, sharey=True)
    for axes, model in zip(grid, models, strict=True):
        # A window is shown for the targets above it.
        for window, tint in zip(runs.windows(), tints("graph", len(runs.windows())), strict=True):
            met = [
                (target, 100 - 100 * runs.in_time(target, model=model, policy="graph", window_ms=window))
                for target in TARGETS_MS
                if window < target
            ]
            label = "GraphB, every window below the target" if window == runs.windows()[-1] else "_"
            axes.plot(*(zip(*met, strict=True) if met else ((), ())), "o-", lw=0.8, ms=2, color=tint, label=label)
        for policy in POLICIES:
            values = [100 - 100 * runs.in_time(target, model=model, policy=policy) for target in TARGETS_MS]
            style = ORACLE if policy == "oracle" else "-"
            axes.plot(TARGETS_MS, values, "o", ls=style, color=color(policy), label=policy)
        axes.set(xlabel="target latency, ms", ylim=(-3, 103))
    for axes in grid[::3]:
        axes.set_ylabel("% later than the target")
    legend(drawn, grid[0])
    return drawn


@picture
def figure_16(runs: Runs) -> Figure:
    models, rates = runs.models(), runs.rates()
    drawn, grid = figure(3, 1, 2.5)
    latency, throughput, late = grid[:, 0]
    bars = [("serial", 0), ("graph", 95), ("oracle", 0), ("lazy", 0)]
    for axes, field, label in ((latency, "mean_ms", "mean latency, ms"), (throughput, "throughput_rps", "requests/s")):
        names = [f"{_name(model)}\n{rate:g}/s" for rate in rates for model in models]
        for number, (policy, window) in enumerate(bars):
            settings = {"policy": policy, "window_ms": window, "slo_ms": 100.0}
            heights = [runs.mean(field, model=m, rate_rps=rate, **settings) for rate in rates for m in models]
            places = np.arange(len(names)) + (number - 1.5) * 0.2
            axes.bar(places, heights, 0.19, color=color(policy), label=_bar(policy, window))
        axes.set_xticks(range(len(names)), names, rotation=35, ha="right")
        axes.set(ylabel=label, yscale="log")
        plain_numbers(axes.yaxis)
    for number, (policy, window) in enumerate(bars):
        settings = {"rate_rps": rates[-1], "policy": policy, "window_ms": window}
        heights = [
            100 - 100 * float(np.mean([runs.in_time(target, model=m, **settings) for target in TARGETS_MS]))
            for m in models
        ]
        places = np.arange(len(models)) + (number - 1.5) * 0.2
        late.bar(places, heights, 0.19, color=color(policy), label=_bar(policy, window))
    late.set_xticks(range(len(models)), [_name(model) for model in models], rotation=35, ha="right")
    late.set(ylabel="% late", title=f"{rates[-1]:g} requests/s, mean over targets of 20 to 100 ms")
    for axes in (latency, throughput, late):
        axes.grid(visible=False, axis="x")
    legend(drawn, latency)
    return drawn


def _bar(policy: str, window: int) -> str:
    return f"GraphB {window} ms" if policy == "graph" else policy


@picture
def figure_17(rows: Sequence[LiveRow]) -> Figure:
    runs = LiveRuns(rows)
    drawn, (latency, late) = panels(["mean latency, ms", "late, %"], 2, 3.2, sharex=True)
    headed(drawn, f"Transformer, live on {rows[0].device}")
    bars = [("lazy", 0.0), *(("graph", window) for window in runs.windows())]
    fills = [color("lazy"), *tints("graph", len(runs.windows()))]
    for axes, field in ((latency, "mean_ms"), (late, "violation_rate")):
        scale = 100 if field == "violation_rate" else 1
        for number, ((policy, window), fill) in enumerate(zip(bars, fills, strict=True)):
            places = np.arange(len(runs.loads())) + (number - len(bars) / 2) * 0.8 / len(bars)
            name = policy if policy == "lazy" else f"GraphB, window {window:g}"
            for field_name, filled in ((field, True), (f"simulated_{field}", False)):
                heights = [scale * runs.mean(field_name, load, policy, window) for load in runs.loads()]
                if filled:
                    axes.bar(places, heights, 0.78 / len(bars), color=fill, label=name)
                else:
                    label = "simulated" if number == 0 else "_"
                    axes.plot(places, heights, "_", color=theme().text, ms=6, label=label)
        axes.set_xticks(range(len(runs.loads())), [f"load {load:g}" for load in runs.loads()])
        axes.grid(visible=False, axis="x")
    legend(drawn, latency)
    return drawn


@picture
def sensitivity(steps: Runs, max_batch: Runs, together: Runs) -> Figure:
    names = ["lazy, assumed decoder steps", "largest batch", "four networks on one NPU"]
    drawn, (left, middle, right) = panels(names, columns=1, height_in=3.0)
    styles = ("-", "--", ":")
    for model, style in zip(steps.models(), styles, strict=False):
        for rate, fill in zip(steps.rates(), others(len(steps.rates())), strict=True):
            groups = sorted(steps.select(model=model, rate_rps=rate), key=lambda group: group[0].dec_timesteps or 0)
            shares = [100 * np.mean([row.violation_rate for row in group]) for group in groups]
            assumed = [group[0].dec_timesteps or 0 for group in groups]
            left.plot(assumed, shares, "o", ls=style, color=fill, label=f"{model}, {rate:g}/s")
    left.set(xlabel="dec_timesteps", ylabel="% later than 60 ms")
    limits = sorted({row.max_batch for row in max_batch.rows})
    for limit, fill in zip(limits, shades(len(limits)), strict=True):
        for model, style in zip(max_batch.models(), styles, strict=False):
            gains = []
            for rate in max_batch.rates():
                settings = {"model": model, "rate_rps": rate, "max_batch": limit}
                graph = max_batch.by_window("mean_ms", **settings)
                gains.append(np.mean(list(graph.values())) / max_batch.mean("mean_ms", policy="lazy", **settings))
            middle.plot(max_batch.rates(), gains, "o", ls=style, color=fill, label=f"{model}, at most {limit}")
    middle.set(xlabel="load, requests/s", ylabel="mean GraphB latency / lazy's")
    for policy in POLICIES:
        _line(right, together, "mean_ms", policy, color(policy), 2.0, policy=policy, band=True)
    windows = sorted({row.window_ms for row in together.rows if row.policy == "graph"})
    for window, tint in zip((windows[0], windows[-1]), tints("graph", 2), strict=True):
        _line(right, together, "mean_ms", f"GraphB {window} ms", tint, 1.4, policy="graph", window_ms=window)
    right.set(xlabel="load, requests/s", ylabel="mean latency, ms")
    for axes in (middle, right):
        _logarithmic(axes)
    label_ends(left, middle, right)
    return drawn


@picture
def capacity(
    loads: Sequence[float], shown: Sequence[tuple[str, Mapping[str, Sequence[float]]]], columns: int
) -> Figure:
    """Draw mean latencies (ms) by share of capacity. A panel has a title, and its lines by name."""
    fills = _of_capacity()
    drawn, grid = panels([title for title, _ in shown], columns, 2.0, sharex=True)
    for axes, (_, values) in zip(grid, shown, strict=True):
        for name, means in values.items():
            style = ORACLE if name == "oracle" else "-"
            axes.plot(loads, means, "o", ls=style, color=fills[name], label=name)
        axes.set(yscale="log", xticks=loads)
        plain_numbers(axes.yaxis)
    for axes in grid[::columns]:
        axes.set_ylabel("mean latency, ms")
    for axes in grid[-columns:]:
        axes.set_xlabel("load, share of capacity")
    legend(drawn, grid[0], columns=5)
    return drawn
