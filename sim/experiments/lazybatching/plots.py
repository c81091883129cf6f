"""Draw the LazyBatching reproduction. Bands are the range over seeds where there is one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from headrace.sim.experiments.lazybatching.conditions import TARGETS_MS
from headrace.sim.experiments.lazybatching.rows import LiveRow, LiveRuns, Runs

COLORS = {"serial": "0.5", "lazy": "C3", "oracle": "C0"}
OF_CAPACITY = {
    "best rival": "0.4",
    "lazy eq2": "C3",
    "lazy batched": "C1",
    "lazy least-delay": "C2",
    "oracle": "C0",
}


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _name(model: str) -> str:
    return model.replace("+", " + ")


def figure_3(path: Path, batches: Sequence[int], latency_s: Sequence[float]) -> None:
    figure, left = plt.subplots(figsize=(6, 4))
    rate = [batch / seconds for batch, seconds in zip(batches, latency_s, strict=True)]
    left.bar([str(batch) for batch in batches], rate, color="C0", alpha=0.6)
    left.set(xlabel="batch size (already formed)", ylabel="requests/s", title="ResNet-50 on the NPU")
    right = left.twinx()
    right.plot([str(batch) for batch in batches], [s * 1e3 for s in latency_s], "o-", color="C3")
    right.set_ylabel("latency of the batch, ms", color="C3")
    _save(figure, path)


def figure_5(path: Path, runs: Runs) -> None:
    figure, (latency, throughput) = plt.subplots(1, 2, figsize=(11, 4))
    for rate in runs.rates():
        groups = sorted(runs.select(rate_rps=rate, policy="graph"), key=lambda group: group[0].window_ms)
        windows = [group[0].window_ms for group in groups]
        latency.plot(windows, [np.mean([r.mean_ms for r in group]) for group in groups], "o-", label=f"{rate:g}/s")
        served = [np.mean([r.throughput_rps for r in group]) for group in groups]
        throughput.plot(windows, served, "o-", label=f"{rate:g}/s")
    latency.set(xlabel="window, ms", ylabel="mean latency, ms", title="GraphB, ResNet-50", ylim=(0, None))
    throughput.set(xlabel="window, ms", ylabel="requests/s", title="GraphB, ResNet-50", yscale="log")
    for axes in (latency, throughput):
        axes.grid(alpha=0.3)
        axes.legend(title="load")
    _save(figure, path)


def by_load(path: Path, runs: Runs, field: str, label: str) -> None:
    """Draw a field against the load, with a panel for each network.

    GraphB windows are grey to brown, all others coloured."""
    models = runs.models()
    figure, panels = plt.subplots(1, len(models), figsize=(5 * len(models), 4), squeeze=False)
    shades = plt.get_cmap("copper")
    for axes, model in zip(panels[0], models, strict=True):
        windows = sorted({row.window_ms for row in runs.rows if row.model == model and row.policy == "graph"})
        for number, window in enumerate(windows):
            shade = shades(number / max(1, len(windows) - 1))
            name = f"GraphB {window} ms" if number in (0, len(windows) - 1) else None
            _line(axes, runs, field, name, shade, 1.0, model=model, policy="graph", window_ms=window)
        for policy in ("serial", "oracle", "lazy"):
            if runs.select(model=model, policy=policy):
                _line(axes, runs, field, policy, COLORS[policy], 2.2, model=model, policy=policy)
        axes.set(xlabel="load, requests/s", ylabel=label, title=_name(model), xscale="log", yscale="log")
        axes.grid(alpha=0.3, which="both")
    panels[0][min(1, len(models) - 1)].legend(fontsize=8, loc="upper left")  # the panel of GNMT has room
    _save(figure, path)


def _line(axes: Any, runs: Runs, field: str, label: str | None, color: Any, width: float, **settings: object) -> None:
    groups = sorted(runs.select(**settings), key=lambda group: group[0].rate_rps)
    rates = [group[0].rate_rps for group in groups]
    values = [[getattr(row, field) for row in group] for group in groups]
    axes.plot(rates, [np.mean(value) for value in values], "o-", ms=3, lw=width, color=color, label=label)
    if width > 1:
        axes.fill_between(rates, [min(v) for v in values], [max(v) for v in values], color=color, alpha=0.15)


def figure_14(path: Path, runs: Runs) -> None:
    models = runs.models()
    figure, panels = plt.subplots(1, len(models), figsize=(5 * len(models), 4), squeeze=False)
    share = np.linspace(0, 100, 101)
    for axes, model in zip(panels[0], models, strict=True):
        graph = runs.select(model=model, policy="graph")
        best = min(graph, key=lambda group: float(np.mean([row.p99_ms for row in group])))
        worst = max(graph, key=lambda group: float(np.mean([row.p99_ms for row in group])))
        shown = [(f"GraphB {best[0].window_ms} ms (best p99)", best, "C1")]
        shown.append((f"GraphB {worst[0].window_ms} ms (worst p99)", worst, "peru"))
        shown += [(policy, runs.select(model=model, policy=policy)[0], COLORS[policy]) for policy in COLORS]
        for name, group, color in shown:
            axes.plot(np.mean([row.quantiles_ms for row in group], axis=0), share, label=name, color=color)
        axes.axhline(99, color="0.7", lw=0.8, ls="--")
        title = f"{_name(model)}, {graph[0][0].rate_rps:g} requests/s"
        axes.set(xlabel="latency, ms", ylabel="% of requests", title=title, xscale="log")
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)
    _save(figure, path)


def figure_15(path: Path, runs: Runs) -> None:
    models = runs.models()
    figure, panels = plt.subplots(1, len(models), figsize=(4 * len(models), 4), squeeze=False, sharey=True)
    for axes, model in zip(panels[0], models, strict=True):
        # A window is shown for the targets above it.
        for window in runs.windows():
            met = [
                (target, 100 - 100 * runs.in_time(target, model=model, policy="graph", window_ms=window))
                for target in TARGETS_MS
                if window < target
            ]
            label = "GraphB, every window below the target" if window == runs.windows()[0] else None
            axes.plot(*zip(*met, strict=True), ".-", color="peru", alpha=0.4, label=label)
        for policy in ("serial", "oracle", "lazy"):
            values = [100 - 100 * runs.in_time(target, model=model, policy=policy) for target in TARGETS_MS]
            axes.plot(TARGETS_MS, values, "o-", color=COLORS[policy], label=policy)
        axes.set(title=f"{_name(model)}, 1000 requests/s", xlabel="SLA target, ms", ylim=(-3, 103))
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("% later than the target")
    panels[0][0].legend(fontsize=8)
    _save(figure, path)


def figure_16(path: Path, runs: Runs) -> None:
    models, rates = runs.models(), runs.rates()
    figure, (latency, throughput, late) = plt.subplots(1, 3, figsize=(16, 4))
    bars = [("serial", 0), ("graph", 95), ("oracle", 0), ("lazy", 0)]
    for axes, field, label in ((latency, "mean_ms", "mean latency, ms"), (throughput, "throughput_rps", "requests/s")):
        names = [f"{_name(model)}\n{rate:g}/s" for rate in rates for model in models]
        for number, (policy, window) in enumerate(bars):
            settings = {"policy": policy, "window_ms": window, "slo_ms": 100.0}
            heights = [runs.mean(field, model=m, rate_rps=rate, **settings) for rate in rates for m in models]
            places = np.arange(len(names)) + (number - 1.5) * 0.2
            axes.bar(places, heights, 0.2, color=COLORS.get(policy, "peru"), label=_bar(policy, window))
        axes.set_xticks(range(len(names)), names, fontsize=6)
        axes.set(ylabel=label, yscale="log")
    for number, (policy, window) in enumerate(bars):
        settings = {"rate_rps": rates[-1], "policy": policy, "window_ms": window}
        heights = [
            100 - 100 * float(np.mean([runs.in_time(target, model=m, **settings) for target in TARGETS_MS]))
            for m in models
        ]
        places = np.arange(len(models)) + (number - 1.5) * 0.2
        late.bar(places, heights, 0.2, color=COLORS.get(policy, "peru"), label=_bar(policy, window))
    late.set_xticks(range(len(models)), [_name(model) for model in models], fontsize=8)
    late.set(ylabel="% late, mean over targets of 20 to 100 ms", title=f"{rates[-1]:g} requests/s")
    for axes in (latency, throughput, late):
        axes.legend(fontsize=7)
    _save(figure, path)


def _bar(policy: str, window: int) -> str:
    return f"GraphB {window} ms" if policy == "graph" else policy


def figure_17(path: Path, rows: Sequence[LiveRow]) -> None:
    runs = LiveRuns(rows)
    figure, (latency, late) = plt.subplots(1, 2, figsize=(11, 4))
    bars = [("lazy", 0.0), *(("graph", window) for window in runs.windows())]
    for axes, field, label in ((latency, "mean_ms", "mean latency, ms"), (late, "violation_rate", "% late")):
        scale = 100 if field == "violation_rate" else 1
        for number, (policy, window) in enumerate(bars):
            places = np.arange(len(runs.loads())) + (number - len(bars) / 2) * 0.8 / len(bars)
            name = policy if policy == "lazy" else f"GraphB, window {window:g}"
            for field_name, filled in ((field, True), (f"simulated_{field}", False)):
                heights = [scale * runs.mean(field_name, load, policy, window) for load in runs.loads()]
                if filled:
                    color = COLORS["lazy"] if policy == "lazy" else plt.get_cmap("YlOrBr")(0.3 + 0.12 * number)
                    axes.bar(places, heights, 0.8 / len(bars), color=color, label=name)
                else:
                    axes.plot(places, heights, "_", color="black", label="simulated" if number == 0 else None)
        axes.set_xticks(range(len(runs.loads())), [f"load {load:g}" for load in runs.loads()])
        axes.set(ylabel=label)
        axes.legend(fontsize=7)
    figure.suptitle(f"Transformer, live on {rows[0].device}", fontsize=9)
    _save(figure, path)


def sensitivity(path: Path, steps: Runs, max_batch: Runs, together: Runs) -> None:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(16, 4))
    for model, mark in zip(steps.models(), "os^", strict=False):
        for number, rate in enumerate(steps.rates()):
            groups = sorted(steps.select(model=model, rate_rps=rate), key=lambda group: group[0].dec_timesteps or 0)
            shares = [100 * np.mean([row.violation_rate for row in group]) for group in groups]
            assumed = [group[0].dec_timesteps or 0 for group in groups]
            left.plot(assumed, shares, f"{mark}-", color=f"C{number}", label=f"{model}, {rate:g}/s")
    left.set(xlabel="dec_timesteps", ylabel="% later than 60 ms", title="lazy, assumed decoder steps")
    limits = sorted({row.max_batch for row in max_batch.rows})
    for number, limit in enumerate(limits):
        for model, mark in zip(max_batch.models(), "os^", strict=False):
            gains = []
            for rate in max_batch.rates():
                settings = {"model": model, "rate_rps": rate, "max_batch": limit}
                graph = max_batch.by_window("mean_ms", **settings)
                gains.append(np.mean(list(graph.values())) / max_batch.mean("mean_ms", policy="lazy", **settings))
            middle.plot(max_batch.rates(), gains, f"{mark}-", color=f"C{number}", label=f"{model}, at most {limit}")
    middle.set(xlabel="load, requests/s", ylabel="mean GraphB latency / lazy's", title="maximum batch", xscale="log")
    middle.set_yscale("log")
    for policy in ("serial", "oracle", "lazy"):
        _line(right, together, "mean_ms", policy, COLORS[policy], 2.0, policy=policy)
    windows = sorted({row.window_ms for row in together.rows if row.policy == "graph"})
    for window in (windows[0], windows[-1]):
        name = f"GraphB {window} ms"
        _line(right, together, "mean_ms", name, "peru", 1.0, policy="graph", window_ms=window)
    right.set(xlabel="load, requests/s", ylabel="mean latency, ms", title="four networks on one NPU")
    right.set(xscale="log", yscale="log")
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    _save(figure, path)


def capacity(
    path: Path, loads: Sequence[float], panels: Sequence[tuple[str, Mapping[str, Sequence[float]]]], columns: int
) -> None:
    """Draw mean latencies (ms) by share of capacity. A panel has a title, and its lines by name."""
    lines = -(-len(panels) // columns)
    figure, all_axes = plt.subplots(lines, columns, figsize=(4 * columns, 3.2 * lines), sharex=True, squeeze=False)
    for axes, (title, values) in zip(all_axes.flat, panels, strict=False):
        for name, means in values.items():
            axes.plot(loads, means, "o-", markersize=4, color=OF_CAPACITY[name], label=name)
        axes.set(title=title, yscale="log", xticks=loads)
        axes.grid(alpha=0.3, which="both")
    for axes in all_axes[:, 0]:
        axes.set_ylabel("mean latency, ms")
    for axes in all_axes[-1]:
        axes.set_xlabel("load, share of capacity")
    all_axes[0, 0].legend(fontsize=8)
    _save(figure, path)
