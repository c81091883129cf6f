"""Draw the PREBA reproduction."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from headrace.sim.experiments.preba.conditions import (
    AUDIO_NETWORKS,
    BASELINES,
    CLIP,
    CPU,
    DPU,
    IDEAL,
    IMPLIED,
    KNEE_LENGTHS_S,
    LATENCY_CASES,
    NETWORKS,
    PARTITIONS,
    SEVENTHS,
    SHORT,
    STATIC,
    STATIC_READINGS,
    TARGET_SLACKS,
    TODAY,
    UTTERANCES,
    WHOLE,
)
from headrace.sim.experiments.preba.rows import Rows, Run, knee, latency_knee

# Lines may lie on each other. All stay visible, because the first is drawn thickest.
WIDTHS = {IDEAL: 6.0, DPU: 3.5, CPU: 1.5, BASELINES[IMPLIED]: 1.5, BASELINES[TODAY]: 1.5}
COLORS = {IDEAL: "0.75", DPU: "C3", CPU: "0.1", BASELINES[IMPLIED]: "C1", BASELINES[TODAY]: "C0"}
NAMES = {IDEAL: "Ideal", DPU: "DPU", **{cpu: f"CPU, {baseline}" for baseline, cpu in BASELINES.items()}}
PARTITION_COLORS = dict(zip(PARTITIONS, ("C3", "C1", "C0"), strict=True))
PARTS = {"preprocess_ms": "preprocessing", "queue_ms": "batching", "execution_ms": "execution"}
PART_COLORS = ("C3", "C0", "0.6")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panels(networks: Sequence[str] = NETWORKS, height: float = 3.2, **settings: Any) -> tuple[Any, list[Any]]:
    """Return a figure with a panel for each network, three in a row."""
    rows = -(-len(networks) // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(12, height * rows), squeeze=False, layout="constrained", **settings)
    panels = list(axes.flat)
    for panel, model in zip(panels, networks, strict=True):
        panel.set_title(SHORT[model])
        panel.grid(alpha=0.3)
    return figure, panels


def _legend(figure: Any, panel: Any) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _plain(panel: Any) -> None:
    """Label a logarithmic axis with plain numbers."""
    low, high = panel.get_ylim()
    ticks = [tick for power in range(-1, 5) for tick in (10.0**power, 2 * 10.0**power, 5 * 10.0**power)]
    panel.set_yticks([tick for tick in ticks if low <= tick <= high])
    panel.yaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()


def figure_5(path: Path, rows: Rows) -> None:
    figure, panels = _panels()
    for panel, model in zip(panels, NETWORKS, strict=True):
        for parts in PARTITIONS:
            curve = rows.curve(model, parts)
            panel.plot(
                [point.batch for point in curve],
                [point.throughput_rps for point in curve],
                "o-",
                color=PARTITION_COLORS[parts],
                markersize=4,
                label=parts,
            )
        panel.set_xscale("log", base=2)
        panel.set(xlabel="batch of a slice", ylabel="requests/s of the GPU", ylim=(0, None))
    _legend(figure, panels[0])
    _save(figure, path)


def figure_6(path: Path, rows: Rows) -> None:
    figure, panels = _panels()
    for panel, model in zip(panels, NETWORKS, strict=True):
        for parts in PARTITIONS:
            curve = rows.curve(model, parts)
            panel.plot(
                [point.batch for point in curve],
                [point.latency_ms for point in curve],
                "o-",
                color=PARTITION_COLORS[parts],
                markersize=3,
                label=parts,
            )
            at = knee(curve)
            panel.plot(at.batch, at.latency_ms, "D", color="C2", markersize=8, label="Batch_knee" * (parts == WHOLE))
            at = latency_knee(curve)
            label = "by latency" * (parts == WHOLE)
            panel.plot(at.batch, at.latency_ms, "D", color="k", fillstyle="none", markersize=8, label=label)
        panel.set_xscale("log", base=2)
        panel.set(xlabel="batch of a slice", ylabel="latency of a batch, ms", yscale="log")
        _plain(panel)
    handles, labels = panels[0].get_legend_handles_labels()
    kept = [(handle, label) for handle, label in zip(handles, labels, strict=True) if label]
    figure.legend(*zip(*kept, strict=True), loc="outside lower center", ncols=len(kept))
    _save(figure, path)


def _stack(panel: Any, places: Sequence[float], runs: Sequence[Run], width: float, parts: dict[str, str]) -> None:
    bottom = np.zeros(len(runs))
    for (name, label), color in zip(parts.items(), PART_COLORS[-len(parts) :], strict=True):
        values = np.array([getattr(run, name) for run in runs])
        panel.bar(places, values, width, bottom=bottom, color=color, label=label)
        bottom += values


def figure_7(path: Path, rows: Rows) -> None:
    figure, panels = _panels()
    parts = {name: label for name, label in PARTS.items() if name != "preprocess_ms"}
    for panel, model in zip(panels, NETWORKS, strict=True):
        runs = [rows.one(model=model, partition=each) for each in (SEVENTHS, WHOLE)]
        _stack(panel, range(2), runs, 0.6, parts)
        panel.set_xticks(
            range(2), [f"{each}\n{run.throughput_rps:.0f}/s" for each, run in zip((SEVENTHS, WHOLE), runs, strict=True)]
        )
        panel.set_ylabel("mean latency, ms")
    _legend(figure, panels[0])
    _save(figure, path)


def _grouped(panel: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]], colors: Sequence[str]) -> None:
    width = 0.8 / len(series)
    for number, ((label, values), color) in enumerate(zip(series.items(), colors, strict=True)):
        places = np.arange(len(groups)) + (number - (len(series) - 1) / 2) * width
        panel.bar(places, values, width, color=color, label=label)
    panel.set_xticks(range(len(groups)), groups, fontsize=8)
    panel.grid(alpha=0.3, axis="y")
    panel.set_axisbelow(True)


def _shown(networks: Sequence[str]) -> list[str]:
    return [SHORT[model].replace(" ", "\n") for model in networks]


def _of_designs(
    rows: Rows,
    value: Callable[[Run], float],
    designs: Sequence[str],
    networks: Sequence[str] = NETWORKS,
    **fields: object,
) -> dict[str, Sequence[float]]:
    return {
        NAMES[design]: [value(rows.one(model=model, preprocess=design, **fields)) for model in networks]
        for design in designs
    }


def figure_8(path: Path, rows: Rows, cores: Callable[[str, str], float]) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
    designs = (IDEAL, *BASELINES.values())
    rates = _of_designs(rows, lambda run: run.throughput_rps, designs)
    _grouped(left, _shown(NETWORKS), rates, [COLORS[design] for design in designs])
    left.set(ylabel="requests/s", title=f"1g.5gb(7x), sounds of {CLIP} s", yscale="log")
    left.legend(fontsize=8)
    needed = {NAMES[cpu]: [cores(model, cpu) for model in NETWORKS] for cpu in BASELINES.values()}
    _grouped(right, _shown(NETWORKS), needed, [COLORS[cpu] for cpu in BASELINES.values()])
    right.axhline(32, color="C1", linestyle=":", label="the server's 32")
    right.set(ylabel="cores to keep up with Ideal", yscale="log")
    right.legend(fontsize=8)
    _save(figure, path)


def figure_9(path: Path, rows: Rows) -> None:
    figure, panels = _panels()
    for panel, model in zip(panels, NETWORKS, strict=True):
        right = panel.twinx()
        for design in BASELINES.values():
            runs = sorted(rows.of(model=model, preprocess=design), key=lambda run: run.active)
            active = [run.active for run in runs]
            panel.plot(active, [run.throughput_rps for run in runs], "o-", color=COLORS[design], label=NAMES[design])
            right.plot(active, [100 * run.cpu for run in runs], "x:", color=COLORS[design])
        right.set(ylabel="CPU used, % (dotted)", ylim=(0, 105))
        panel.set(xlabel="inference servers active", ylabel="requests/s", ylim=(0, None))
        panel.xaxis.get_major_locator().set_params(integer=True)
    _legend(figure, panels[0])
    _save(figure, path)


def figure_14(path: Path, rows: Rows) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.2), sharey=True, layout="constrained")
    for panel, parts in zip(axes, (SEVENTHS, WHOLE), strict=True):
        points = rows.curve("conformer", parts)
        batches = sorted({point.batch for point in rows.points})
        lengths = sorted({point.seconds for point in points})
        latency = np.full((len(lengths), len(batches)), np.nan)
        for point in points:
            latency[lengths.index(point.seconds), batches.index(point.batch)] = point.latency_ms
            if point.knee:
                panel.plot(batches.index(point.batch) + 0.5, lengths.index(point.seconds) + 0.5, "kD", markersize=5)
        mesh = panel.pcolormesh(np.ma.masked_invalid(latency), cmap="RdYlGn_r", vmin=0, vmax=200)
        panel.set_facecolor("0.85")
        panel.set_xticks(np.arange(len(batches)) + 0.5, batches, fontsize=8)
        panel.set_yticks(np.arange(len(lengths)) + 0.5, [f"{seconds:g}" for seconds in lengths])
        panel.set(title=f"Conformer, {parts}", xlabel="batch of a slice")
    axes[0].set_ylabel("length of the sounds, s")
    figure.colorbar(mesh, ax=axes, label="latency of a batch, ms (grey: no memory)", extend="max")
    _save(figure, path)


def figure_15(path: Path, rows: Rows) -> None:
    figure, panels = _panels(AUDIO_NETWORKS)
    for panel, model in zip(panels, AUDIO_NETWORKS, strict=True):
        for number, seconds in enumerate(KNEE_LENGTHS_S):
            curve = rows.curve(model, SEVENTHS, seconds)
            panel.plot(
                [point.batch for point in curve],
                [point.latency_ms for point in curve],
                "o-",
                markersize=3,
                color=f"C{number}",
                label=f"{seconds:g} s",
            )
            at = knee(curve)
            panel.plot(at.batch, at.latency_ms, "D", markersize=9, color=f"C{number}")
        panel.axhline(35, color="0.3", linestyle=":")
        panel.set(xlabel="batch of a slice", ylabel="latency of a batch, ms", ylim=(0, 200))
        panel.set_xscale("log", base=2)
    _legend(figure, panels[0])
    _save(figure, path)


def figure_17(path: Path, rows: Rows) -> None:
    figure, panels = _panels()
    for panel, model in zip(panels, NETWORKS, strict=True):
        for design in COLORS:
            runs = sorted(rows.of(model=model, preprocess=design), key=lambda run: run.active)
            rates = [run.throughput_rps for run in runs]
            panel.plot(
                [run.active for run in runs],
                rates,
                "o-",
                markersize=3 + WIDTHS[design] / 2,
                linewidth=WIDTHS[design],
                color=COLORS[design],
                label=NAMES[design],
            )
        panel.set(xlabel="inference servers active", ylabel="requests/s", ylim=(0, None))
        panel.xaxis.get_major_locator().set_params(integer=True)
    _legend(figure, panels[0])
    _save(figure, path)


def figure_18(path: Path, rows: Rows) -> None:
    figure, panels = _panels()
    for panel, model in zip(panels, NETWORKS, strict=True):
        for design in COLORS:
            runs = sorted(rows.of(model=model, preprocess=design, load="share", of=design), key=lambda run: run.share)
            runs = list({run.share: run for run in runs}.values())
            rates = [run.throughput_rps for run in runs]
            panel.plot(
                rates,
                [run.p95_ms for run in runs],
                "o-",
                markersize=3 + WIDTHS[design] / 2,
                linewidth=WIDTHS[design],
                color=COLORS[design],
                label=NAMES[design],
            )
        target = rows.one(model=model, preprocess=IDEAL, load="tail", share=TARGET_SLACKS[0]).target_ms
        panel.axhline(target, color="C2", linestyle=":", label="target")
        panel.set(xlabel="requests/s", ylabel="95th percentile, ms", yscale="log")
        _plain(panel)
    _legend(figure, panels[0])
    _save(figure, path)


def figure_19(path: Path, rows: Rows) -> None:
    figure, axes = plt.subplots(1, len(LATENCY_CASES), figsize=(14, 4.4), layout="constrained")
    loads = sorted({run.share for run in rows.runs})
    for panel, (model, lengths) in zip(axes, LATENCY_CASES, strict=True):
        for number, design in enumerate(COLORS):
            runs = [rows.one(model=model, lengths=lengths, preprocess=design, share=share) for share in loads]
            places = np.arange(len(loads)) + (number - 2) * 0.16
            _stack(panel, list(places), runs, 0.14, PARTS)
            for place, run in zip(places, runs, strict=True):
                panel.annotate(
                    NAMES[design],
                    (place, run.mean_ms),
                    (0, 2),
                    textcoords="offset points",
                    fontsize=5.5,
                    rotation=90,
                    ha="center",
                    va="bottom",
                )
        panel.set_xticks(range(len(loads)), [f"{share:g}" for share in loads])
        of = {"": "", UTTERANCES: ", LibriSpeech"}.get(lengths, f", {lengths} s")
        panel.set(
            title=f"{SHORT[model]}{of}", xlabel="share of the design's greatest throughput", ylabel="mean latency, ms"
        )
        panel.margins(y=0.4)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles[: len(PARTS)], labels[: len(PARTS)], loc="outside lower center", ncols=len(PARTS))
    _save(figure, path)


def figure_20(path: Path, rows: Rows) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(14, 4.4), layout="constrained")
    designs = (*BASELINES.values(), DPU)
    for number, design in enumerate(designs):
        bottom = np.zeros(len(NETWORKS))
        places = np.arange(len(NETWORKS)) + (number - 1.5) * 0.22
        for part, color in (("cpu_w", "C0"), ("gpu_w", "C2"), ("fpga_w", "C3"), ("node_w", "0.7")):
            values = np.array([getattr(rows.one(model=model, preprocess=design), part) for model in NETWORKS])
            left.bar(places, values, 0.2, bottom=bottom, color=color, label=part[:-2] if number == 0 else None)
            bottom += values
        for place, top in zip(places, bottom, strict=True):
            left.annotate(
                NAMES[design],
                (place, top),
                (0, 2),
                textcoords="offset points",
                fontsize=6,
                rotation=90,
                ha="center",
                va="bottom",
            )
    left.set_xticks(range(len(NETWORKS)), _shown(NETWORKS), fontsize=8)
    left.set_ylabel("W, each at its greatest throughput")
    left.margins(y=0.45)
    left.legend(fontsize=8, ncols=4, loc="upper left")
    _grouped(
        right,
        _shown(NETWORKS),
        _of_designs(rows, lambda run: run.requests_per_j, designs),
        [COLORS[d] for d in designs],
    )
    right.set(ylabel="requests/J", yscale="log")
    right.legend(fontsize=8)
    _save(figure, path)


def figure_21(path: Path, rows: Rows) -> None:
    figure, panel = plt.subplots(figsize=(8, 4), layout="constrained")
    designs = (*BASELINES.values(), DPU)
    bought = _of_designs(rows, lambda run: run.requests_per_usd / 1e6, designs)
    _grouped(panel, _shown(NETWORKS), bought, [COLORS[design] for design in designs])
    panel.set(ylabel="million requests a dollar, three years", yscale="log")
    panel.legend(fontsize=8)
    _save(figure, path)


def figure_22(path: Path, rows: Rows) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
    static = f"{STATIC}:{STATIC_READINGS[0]}"
    for panel, load in zip(axes, ("saturated", "tail"), strict=True):
        series = {
            **{f"Base, {NAMES[cpu]}": (cpu, static) for cpu in BASELINES.values()},
            "Base+DPU": (DPU, static),
            "Base+DPU+DynamicBatching": (DPU, "preba"),
        }
        values = {
            label: [
                run.within_rps if load == "tail" else run.throughput_rps
                for m in AUDIO_NETWORKS
                for run in [rows.one(model=m, preprocess=d, policy=p, load=load, lengths=UTTERANCES)]
            ]
            for label, (d, p) in series.items()
        }
        colors = [*(COLORS[cpu] for cpu in BASELINES.values()), "C2", "C3"]
        _grouped(panel, _shown(AUDIO_NETWORKS), values, colors)
        panel.set(ylabel="requests/s", title="saturated" if load == "saturated" else "within Fig. 18's target")
    axes[0].legend(fontsize=8)
    _save(figure, path)
