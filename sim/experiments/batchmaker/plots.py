"""Draw the BatchMaker reproduction: means over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from headrace.sim.experiments.batchmaker.rows import Runs

COLORS = {"cellular": "C3", "bucketed-graph": "C1", "graph": "0.5", "dynamic-graph": "C0", "lazy": "C2"}
NAMES = {"graph": "padded graphs", "bucketed-graph": "bucketed graphs", "dynamic-graph": "merged graphs"}


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)


def figure_3(path: Path, batches: Sequence[int], step_s: Mapping[str, Sequence[float]]) -> None:
    """Draw the steps (s) of each processor, the slowest on top as in the paper."""
    figure, panels = plt.subplots(len(step_s), 1, figsize=(6, 6), layout="constrained")
    for left, (name, steps) in zip(panels, reversed(list(step_s.items())), strict=True):
        left.loglog(batches, [1e6 * seconds for seconds in steps], "o-", color="C3")
        left.set(xlabel="batch", ylabel="LSTM step, us", title=f"A cell on the {name}, as modelled")
        right = left.twinx()
        right.semilogx(batches, [batch / s / 1e3 for batch, s in zip(batches, steps, strict=True)], "s--", color="C0")
        right.set_ylabel("thousand cells/s", color="C0")
        left.grid(alpha=0.3, which="both")
    _save(figure, path)


def _kinds(runs: Runs) -> list[tuple[str, int]]:
    return list(dict.fromkeys((row.policy, row.setting) for row in runs.rows))


def _curves(axes: Any, runs: Runs, field: str) -> None:
    """Draw a field against the rate that was served, with a line for each policy and setting."""
    kinds = _kinds(runs)
    names = [policy for policy, _ in kinds]
    for policy, setting in kinds:
        several = names.count(policy) > 1
        label = NAMES.get(policy, policy) + (f" ({setting})" if several else "")
        mine = runs.select(policy=policy, setting=setting)
        style = "--" if several and setting != max(s for name, s in kinds if name == policy) else "-"
        axes.plot(
            [rate / 1e3 for rate in mine.curve("throughput_rps")],
            mine.curve(field),
            "o" + style,
            ms=3,
            color=COLORS[policy],
            label=label,
        )
    axes.set(xlabel="thousand requests/s served", yscale="log")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)


def latency_by_throughput(path: Path, runs: Runs, title: str) -> None:
    figure, axes = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    _curves(axes, runs, "p90_ms")
    axes.set(ylabel="p90 latency, ms", title=title)
    _save(figure, path)


def waits(path: Path, runs: Runs) -> None:
    figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
    kinds = _kinds(runs)
    places = np.arange(len(kinds))
    for number, (field, label) in enumerate((("wait_p99_ms", "wait, p99"), ("run_p99_ms", "cells, p99"))):
        values = [runs.mean(field, policy=policy, setting=setting) for policy, setting in kinds]
        bars = axes.bar(places + 0.4 * number - 0.2, values, 0.38, label=label)
        axes.bar_label(bars, fmt="%.3g", fontsize=8)
    axes.set_xticks(places, [NAMES.get(policy, policy) for policy, _ in kinds])
    axes.set(ylabel="ms", yscale="log", title=f"LSTM at {runs.rates()[0]:g} requests/s")
    axes.legend()
    _save(figure, path)


def by_lengths(path: Path, runs: Runs) -> None:
    kinds = list(dict.fromkeys(row.lengths for row in runs.rows))
    figure, panels = plt.subplots(1, len(kinds), figsize=(4.6 * len(kinds), 4), sharey=True, layout="constrained")
    for axes, lengths in zip(panels, kinds, strict=True):
        _curves(axes, runs.select(lengths=lengths), "p90_ms")
        axes.set_title(f"LSTM, {lengths}")
    panels[0].set_ylabel("p90 latency, ms")
    _save(figure, path)


def widths(path: Path, runs: Runs) -> None:
    figure, axes = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    kinds = _kinds(runs)
    shades = plt.get_cmap("viridis")
    for number, (_, width) in enumerate(kinds):
        mine = runs.select(setting=width)
        served = [rate / 1e3 for rate in mine.curve("throughput_rps")]
        axes.plot(served, mine.curve("p90_ms"), "o-", ms=3, color=shades(number / len(kinds)), label=f"width {width}")
    axes.set(xlabel="thousand requests/s served", ylabel="p90 latency, ms", yscale="log", title="Bucketed graphs, LSTM")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    _save(figure, path)


def seq2seq(path: Path, runs: Runs) -> None:
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for axes, workers in zip(panels, (2, 4), strict=True):
        _curves(axes, runs.select(workers=workers), "p90_ms")
        axes.set_title(f"Seq2Seq, {workers} GPUs (setting: encoder batch, bucket width)")
    panels[0].set_ylabel("p90 latency, ms")
    _save(figure, path)


def less_latency(path: Path, less: Mapping[str, Mapping[float, float]]) -> None:
    """Draw how much less latency there is; `less` has percent by network and load (requests/s)."""
    figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
    for number, (name, by_load) in enumerate(less.items()):
        axes.semilogx(list(by_load), list(by_load.values()), "o-", ms=4, color=f"C{number}", label=name)
    axes.set(xlabel="load, requests/s", ylabel="p90 below the baseline's, %", title="Moderate loads", ylim=(0, 100))
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    _save(figure, path)


def trees(path: Path, runs: Runs) -> None:
    figure, axes = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    _curves(axes, runs, "p90_ms")
    axes.set(ylabel="p90 latency, ms", title=f"TreeLSTM, {runs.rows[0].lengths} (merged: us a cell)")
    _save(figure, path)


def compare(path: Path, runs: Runs) -> None:
    networks = list(dict.fromkeys(row.network for row in runs.rows))
    figure, panels = plt.subplots(2, len(networks), figsize=(5.2 * len(networks), 7), layout="constrained")
    for column, network in enumerate(networks):
        mine = runs.select(network=network)
        for axes, field, label in zip(panels[:, column], ("mean_ms", "p99_ms"), ("mean", "p99"), strict=True):
            for policy, setting in _kinds(mine):
                one = mine.select(policy=policy, setting=setting)
                axes.plot(one.rates(), one.curve(field), "o-", ms=4, color=COLORS[policy], label=policy)
            axes.set(
                xlabel="load, requests/s", ylabel=f"{label} latency, ms", xscale="log", yscale="log", title=network
            )
            axes.grid(alpha=0.3, which="both")
            axes.legend(fontsize=8)
    _save(figure, path)
