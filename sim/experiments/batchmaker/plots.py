"""Draw the BatchMaker reproduction: means over seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from headrace.sim.experiments.batchmaker.rows import Runs
from headrace.sim.plot_style import (
    FONT_PT,
    color,
    figure,
    label_ends,
    others,
    panels,
    picture,
    plain_numbers,
    shades,
)

NAMES = {"graph": "padded graphs", "bucketed-graph": "bucketed graphs", "dynamic-graph": "merged graphs"}


@picture
def figure_3(batches: Sequence[int], step_s: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the steps (s) of each processor, the slowest first as in the paper."""
    drawn, grid = figure(len(step_s), 2, 2.3, sharex=True)
    for (left, right), (name, steps) in zip(grid, reversed(list(step_s.items())), strict=True):
        left.loglog(batches, [1e6 * seconds for seconds in steps], "o-")
        left.set(ylabel="LSTM step, us", title=f"A cell on the {name}, as modelled")
        right.semilogx(batches, [batch / s / 1e3 for batch, s in zip(batches, steps, strict=True)], "o-")
        right.set(ylabel="thousand cells/s", ylim=(0, None))
    for axes in grid[-1]:
        axes.set_xlabel("batch")
    return drawn


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
        served = [rate / 1e3 for rate in mine.curve("throughput_rps")]
        axes.plot(served, mine.curve(field), "o" + style, color=color(policy), label=label)
    axes.set(xlabel="thousand requests/s served", yscale="log")
    plain_numbers(axes.yaxis)


def _single(runs: Runs, title: str) -> Figure:
    drawn, (axes,) = panels([title], height_in=4.2)
    _curves(axes, runs, "p90_ms")
    axes.set_ylabel("90th percentile of latency, ms")
    label_ends(axes)
    return drawn


@picture
def latency_by_throughput(runs: Runs, title: str) -> Figure:
    return _single(runs, title)


@picture
def waits(runs: Runs) -> Figure:
    kinds = _kinds(runs)
    drawn, (axes,) = panels([f"LSTM at {runs.rates()[0]:g} requests/s: wait (left) and cells (right), p99"])
    places = np.arange(len(kinds))
    for number, field in enumerate(("wait_p99_ms", "run_p99_ms")):
        values = [runs.mean(field, policy=policy, setting=setting) for policy, setting in kinds]
        fill = [color(policy) for policy, _ in kinds]
        bars = axes.bar(places + 0.4 * number - 0.2, values, 0.38, color=fill, alpha=1 if number else 0.6)
        axes.bar_label(bars, fmt="%.3g")
    axes.set_xticks(places, [NAMES.get(policy, policy) for policy, _ in kinds])
    axes.set(ylabel="ms", yscale="log")
    plain_numbers(axes.yaxis)
    axes.grid(visible=False, axis="x")
    return drawn


@picture
def by_lengths(runs: Runs) -> Figure:
    kinds = list(dict.fromkeys(row.lengths for row in runs.rows))
    drawn, grid = panels([f"LSTM, {lengths}" for lengths in kinds], columns=2, height_in=3.0, sharey=True)
    for axes, lengths in zip(grid, kinds, strict=True):
        _curves(axes, runs.select(lengths=lengths), "p90_ms")
        axes.set_ylabel("90th percentile, ms")
    label_ends(*grid)
    return drawn


@picture
def widths(runs: Runs) -> Figure:
    drawn, (axes,) = panels(["Bucketed graphs, LSTM, by the width of a bucket"], height_in=4.2)
    kinds = _kinds(runs)
    for (_, width), shade in zip(kinds, shades(len(kinds)), strict=True):
        mine = runs.select(setting=width)
        served = [rate / 1e3 for rate in mine.curve("throughput_rps")]
        axes.plot(served, mine.curve("p90_ms"), "o-", color=shade, label=f"width {width}")
    axes.set(xlabel="thousand requests/s served", ylabel="90th percentile of latency, ms", yscale="log")
    plain_numbers(axes.yaxis)
    label_ends(axes)
    return drawn


@picture
def seq2seq(runs: Runs) -> Figure:
    gpus = (2, 4)
    drawn, grid = panels([f"Seq2Seq, {count} GPUs" for count in gpus], columns=1, height_in=3.0)
    for axes, workers in zip(grid, gpus, strict=True):
        _curves(axes, runs.select(workers=workers), "p90_ms")
        axes.set_ylabel("90th percentile, ms")
    grid[0].set_title(f"Seq2Seq, {gpus[0]} GPUs (in brackets: encoder batch, bucket width)")
    label_ends(*grid)
    return drawn


@picture
def less_latency(less: Mapping[str, Mapping[float, float]]) -> Figure:
    """Draw how much less latency there is; `less` has percent by network and load (requests/s)."""
    drawn, (axes,) = panels(["Moderate loads"], height_in=3.6)
    for (name, by_load), fill in zip(less.items(), others(len(less)), strict=True):
        axes.semilogx(list(by_load), list(by_load.values()), "o-", color=fill, label=name)
    axes.set(xlabel="load, requests/s", ylabel="p90 below the baseline's, %", ylim=(0, 100))
    plain_numbers(axes.xaxis)
    label_ends(axes)
    return drawn


@picture
def trees(runs: Runs) -> Figure:
    return _single(runs, f"TreeLSTM, {runs.rows[0].lengths} (merged: us a cell)")


@picture
def compare(runs: Runs) -> Figure:
    networks = list(dict.fromkeys(row.network for row in runs.rows))
    drawn, grid = figure(len(networks), 2, 3.0, sharex="row")
    for line, network in zip(grid, networks, strict=True):
        mine = runs.select(network=network)
        for axes, field, label in zip(line, ("mean_ms", "p99_ms"), ("mean", "99th percentile"), strict=True):
            for policy, setting in _kinds(mine):
                one = mine.select(policy=policy, setting=setting)
                axes.plot(one.rates(), one.curve(field), "o-", color=color(policy), label=policy)
            axes.set(xlabel="load, requests/s", ylabel=f"{label}, ms", xscale="log", yscale="log")
            plain_numbers(axes.xaxis)
            plain_numbers(axes.yaxis)
        line[0].set_title(network, fontsize=FONT_PT)
    label_ends(*grid.flat)
    return drawn
