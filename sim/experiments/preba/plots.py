"""Draw the PREBA reproduction."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

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
from headrace.sim.plot_style import (
    SMALL_PT,
    color,
    figure,
    headed,
    legend,
    others,
    panels,
    picture,
    plain_numbers,
    shades,
    theme,
)

# Lines may lie on each other. All stay visible, because the first is drawn thickest.
WIDTHS = {IDEAL: 5.0, DPU: 3.0, CPU: 1.4, BASELINES[IMPLIED]: 1.4, BASELINES[TODAY]: 1.4}
KEYS = {
    IDEAL: "ideal",
    DPU: "dpu",
    CPU: "cpu",
    BASELINES[IMPLIED]: "cpu, paper-implied",
    BASELINES[TODAY]: "cpu, library",
}
NAMES = {IDEAL: "Ideal", DPU: "DPU", **{cpu: f"CPU, {baseline}" for baseline, cpu in BASELINES.items()}}
SIGNS = {IDEAL: "I", DPU: "D", CPU: "c", BASELINES[IMPLIED]: "p", BASELINES[TODAY]: "l"}  # below stacked bars
PARTS = {"preprocess_ms": "preprocessing", "queue_ms": "batching", "execution_ms": "execution"}


def _color(design: str) -> str:
    return color(KEYS[design])


def _part_colors() -> tuple[str, str, str]:
    """Return the colours of preprocessing, batching and execution."""
    first, second, _ = others(3)
    return second, first, theme().muted


def _panels(networks: Sequence[str] = NETWORKS, height: float = 2.4, **settings: Any) -> tuple[Figure, list[Any]]:
    """Return a figure with a panel for each network, three in a row."""
    return panels([SHORT[model] for model in networks], height_in=height, **settings)


def _label_left(grid: Sequence[Any], label: str) -> None:
    """Label the vertical axes of the panels at the left, three in a row."""
    for axes in grid[::3]:
        axes.set_ylabel(label)


@picture
def figure_5(rows: Rows) -> Figure:
    drawn, grid = _panels()
    fills = dict(zip(PARTITIONS, others(len(PARTITIONS)), strict=True))
    for panel, model in zip(grid, NETWORKS, strict=True):
        for parts, fill in fills.items():
            curve = rows.curve(model, parts)
            rates = [point.throughput_rps for point in curve]
            panel.plot([point.batch for point in curve], rates, "o-", color=fill, label=parts)
        panel.set_xscale("log", base=2)
        panel.set(xlabel="batch of a slice", ylim=(0, None))
    _label_left(grid, "requests/s of the GPU")
    legend(drawn, grid[0])
    return drawn


@picture
def figure_6(rows: Rows) -> Figure:
    drawn, grid = _panels()
    fills = dict(zip(PARTITIONS, others(len(PARTITIONS)), strict=True))
    for panel, model in zip(grid, NETWORKS, strict=True):
        for parts, fill in fills.items():
            curve = rows.curve(model, parts)
            latencies = [point.latency_ms for point in curve]
            panel.plot([point.batch for point in curve], latencies, "o-", color=fill, label=parts)
            last = parts == PARTITIONS[-1]
            for at, style, label in (
                (knee(curve), "full", "Batch_knee"),
                (latency_knee(curve), "none", "knee by latency"),
            ):
                name = label if last else "_"
                text = theme().text
                panel.plot(at.batch, at.latency_ms, "D", color=text, fillstyle=style, ms=6, ls="", label=name)
        panel.set_xscale("log", base=2)
        panel.set(xlabel="batch of a slice", yscale="log")
        plain_numbers(panel.yaxis)
    _label_left(grid, "latency of a batch, ms")
    legend(drawn, grid[0], columns=5)
    return drawn


def _stack(panel: Any, places: Sequence[float], runs: Sequence[Run], width: float, parts: dict[str, str]) -> None:
    bottom = np.zeros(len(runs))
    for (name, label), fill in zip(parts.items(), _part_colors()[-len(parts) :], strict=True):
        values = np.array([getattr(run, name) for run in runs])
        panel.bar(places, values, width, bottom=bottom, color=fill, label=label)
        bottom += values
    panel.grid(visible=False, axis="x")


@picture
def figure_7(rows: Rows) -> Figure:
    drawn, grid = _panels()
    parts = {name: label for name, label in PARTS.items() if name != "preprocess_ms"}
    for panel, model in zip(grid, NETWORKS, strict=True):
        runs = [rows.one(model=model, partition=each) for each in (SEVENTHS, WHOLE)]
        _stack(panel, range(2), runs, 0.6, parts)
        panel.set_xticks(
            range(2), [f"{each}\n{run.throughput_rps:.0f}/s" for each, run in zip((SEVENTHS, WHOLE), runs, strict=True)]
        )
    _label_left(grid, "mean latency, ms")
    legend(drawn, grid[0])
    return drawn


def _grouped(panel: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]], fills: Sequence[str]) -> None:
    width = 0.8 / len(series)
    for number, ((label, values), fill) in enumerate(zip(series.items(), fills, strict=True)):
        places = np.arange(len(groups)) + (number - (len(series) - 1) / 2) * width
        panel.bar(places, values, width, color=fill, label=label)
    panel.set_xticks(range(len(groups)), groups)
    panel.grid(visible=False, axis="x")


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


@picture
def figure_8(rows: Rows, cores: Callable[[str, str], float]) -> Figure:
    names = [f"requests/s, {SEVENTHS}, sounds of {CLIP} s", "cores to keep up with Ideal"]
    drawn, (upper, lower) = panels(names, columns=1, height_in=2.6)
    designs = (IDEAL, *BASELINES.values())
    rates = _of_designs(rows, lambda run: run.throughput_rps, designs)
    _grouped(upper, _shown(NETWORKS), rates, [_color(design) for design in designs])
    needed = {NAMES[cpu]: [cores(model, cpu) for model in NETWORKS] for cpu in BASELINES.values()}
    _grouped(lower, _shown(NETWORKS), needed, [_color(cpu) for cpu in BASELINES.values()])
    lower.axhline(32, color=theme().text, linestyle=":", lw=1.2)
    lower.annotate(
        "the server's 32", (1, 32), (-4, 3), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right"
    )
    for axes in (upper, lower):
        axes.set_yscale("log")
    legend(drawn, upper)
    return drawn


@picture
def figure_9(rows: Rows) -> Figure:
    drawn, grid = figure(4, 3, 1.9, sharex=True)
    for number, model in enumerate(NETWORKS):
        rate, used = grid[2 * (number // 3) : 2 * (number // 3) + 2, number % 3]
        for design in BASELINES.values():
            runs = sorted(rows.of(model=model, preprocess=design), key=lambda run: run.active)
            active = [run.active for run in runs]
            rates = [run.throughput_rps for run in runs]
            rate.plot(active, rates, "o-", color=_color(design), label=NAMES[design])
            used.plot(active, [100 * run.cpu for run in runs], "o-", color=_color(design))
        rate.set(title=SHORT[model], ylim=(0, None))
        used.set(ylim=(0, 105))
        used.xaxis.get_major_locator().set_params(integer=True)
        if number % 3 == 0:
            rate.set_ylabel("requests/s")
            used.set_ylabel("CPU used, %")
    for axes in grid[-1]:
        axes.set_xlabel("servers active")
    legend(drawn, grid[0][0])
    return drawn


@picture
def figure_14(rows: Rows) -> Figure:
    drawn, grid = panels([f"Conformer, {parts}" for parts in (SEVENTHS, WHOLE)], columns=2, height_in=3.4, sharey=True)
    for panel, parts in zip(grid, (SEVENTHS, WHOLE), strict=True):
        points = rows.curve("conformer", parts)
        batches = sorted({point.batch for point in rows.points})
        lengths = sorted({point.seconds for point in points})
        latency = np.full((len(lengths), len(batches)), np.nan)
        for point in points:
            latency[lengths.index(point.seconds), batches.index(point.batch)] = point.latency_ms
            if point.knee:
                at = (batches.index(point.batch) + 0.5, lengths.index(point.seconds) + 0.5)
                panel.plot(*at, "D", color="black", ms=5)
        mesh = panel.pcolormesh(np.ma.masked_invalid(latency), cmap="cividis_r", vmin=0, vmax=200)
        panel.set_facecolor(theme().grid)
        panel.grid(visible=False)
        panel.set_xticks(np.arange(len(batches)) + 0.5, batches)
        panel.set_yticks(np.arange(len(lengths)) + 0.5, [f"{seconds:g}" for seconds in lengths])
        panel.set_xlabel("batch of a slice")
    grid[0].set_ylabel("length of the sounds, s")
    drawn.colorbar(mesh, ax=grid, label="latency of a batch, ms (empty: no memory)", extend="max")
    return drawn


@picture
def figure_15(rows: Rows) -> Figure:
    drawn, grid = _panels(AUDIO_NETWORKS, 3.0)
    for panel, model in zip(grid, AUDIO_NETWORKS, strict=True):
        for seconds, shade in zip(KNEE_LENGTHS_S, shades(len(KNEE_LENGTHS_S)), strict=True):
            curve = rows.curve(model, SEVENTHS, seconds)
            latencies = [point.latency_ms for point in curve]
            panel.plot([point.batch for point in curve], latencies, "o-", color=shade, label=f"{seconds:g} s")
            at = knee(curve)
            panel.plot(at.batch, at.latency_ms, "D", ms=7, color=shade)
        panel.axhline(35, color=theme().muted, linestyle=":", lw=1.2)
        panel.set(xlabel="batch of a slice", ylim=(0, 200))
        panel.set_xscale("log", base=2)
    _label_left(grid, "latency of a batch, ms")
    legend(drawn, grid[0], columns=6)
    return drawn


@picture
def figure_17(rows: Rows) -> Figure:
    drawn, grid = _panels()
    for panel, model in zip(grid, NETWORKS, strict=True):
        for design in KEYS:
            runs = sorted(rows.of(model=model, preprocess=design), key=lambda run: run.active)
            _wide(panel, [run.active for run in runs], [run.throughput_rps for run in runs], design)
        panel.set(xlabel="servers active", ylim=(0, None))
        panel.xaxis.get_major_locator().set_params(integer=True)
    _label_left(grid, "requests/s")
    legend(drawn, grid[0], columns=5)
    return drawn


def _wide(panel: Any, x: Sequence[float], y: Sequence[float], design: str) -> None:
    """Draw the line of a design as wide as its place asks for."""
    width = WIDTHS[design]
    panel.plot(x, y, "o-", ms=2 + width / 2, lw=width, color=_color(design), label=NAMES[design])


@picture
def figure_18(rows: Rows) -> Figure:
    drawn, grid = _panels()
    for panel, model in zip(grid, NETWORKS, strict=True):
        for design in KEYS:
            runs = sorted(rows.of(model=model, preprocess=design, load="share", of=design), key=lambda run: run.share)
            runs = list({run.share: run for run in runs}.values())
            _wide(panel, [run.throughput_rps for run in runs], [run.p95_ms for run in runs], design)
        target = rows.one(model=model, preprocess=IDEAL, load="tail", share=TARGET_SLACKS[0]).target_ms
        panel.axhline(target, color=theme().text, linestyle=":", lw=1.2, label="target")
        panel.set(xlabel="requests/s", yscale="log")
        plain_numbers(panel.yaxis)
    _label_left(grid, "95th percentile, ms")
    legend(drawn, grid[0], columns=6)
    return drawn


@picture
def figure_19(rows: Rows) -> Figure:
    of = {"": "", UTTERANCES: ", LibriSpeech"}
    names = [f"{SHORT[model]}{of.get(lengths, f', {lengths} s')}" for model, lengths in LATENCY_CASES]
    drawn, grid = panels(names, columns=1, height_in=2.3)
    loads = sorted({run.share for run in rows.runs})
    for panel, (model, lengths) in zip(grid, LATENCY_CASES, strict=True):
        for number, design in enumerate(KEYS):
            runs = [rows.one(model=model, lengths=lengths, preprocess=design, share=share) for share in loads]
            places = np.arange(len(loads)) + (number - 2) * 0.16
            _stack(panel, list(places), runs, 0.14, PARTS)
            for place, run in zip(places, runs, strict=True):
                _sign(panel, place, run.mean_ms, design)
        panel.set_xticks(range(len(loads)), [f"{share:g}" for share in loads])
        panel.set_ylabel("mean latency, ms")
        panel.margins(y=0.12)
    grid[-1].set_xlabel("share of the design's greatest throughput")
    handles, labels = grid[0].get_legend_handles_labels()
    drawn.legend(handles[: len(PARTS)], labels[: len(PARTS)], loc="outside lower center", ncols=len(PARTS))
    headed(drawn, _signs(list(KEYS)))
    return drawn


def _sign(panel: Any, place: float, top: float, design: str) -> None:
    panel.annotate(
        SIGNS[design], (place, top), (0, 2), textcoords="offset points", fontsize=SMALL_PT, ha="center", va="bottom"
    )


def _signs(designs: Sequence[str]) -> str:
    return ", ".join(f"{SIGNS[design]}: {NAMES[design]}" for design in designs)


@picture
def figure_20(rows: Rows) -> Figure:
    drawn, (upper, lower) = panels(["W, each at its greatest throughput", "requests/J"], columns=1, height_in=2.7)
    designs = (*BASELINES.values(), DPU)
    cpu, gpu, fpga = others(3)
    for number, design in enumerate(designs):
        bottom = np.zeros(len(NETWORKS))
        places = np.arange(len(NETWORKS)) + (number - 1.5) * 0.22
        for part, fill in (("cpu_w", cpu), ("gpu_w", gpu), ("fpga_w", fpga), ("node_w", theme().muted)):
            values = np.array([getattr(rows.one(model=model, preprocess=design), part) for model in NETWORKS])
            upper.bar(places, values, 0.2, bottom=bottom, color=fill, label=part[:-2] if number == 0 else "_")
            bottom += values
        for place, top in zip(places, bottom, strict=True):
            _sign(upper, place, top, design)
    upper.set_xticks(range(len(NETWORKS)), _shown(NETWORKS))
    upper.set_title(f"W, each at its greatest throughput ({_signs(designs)})")
    upper.margins(y=0.4)
    upper.grid(visible=False, axis="x")
    upper.legend(ncols=4, loc="upper left")
    series = _of_designs(rows, lambda run: run.requests_per_j, designs)
    _grouped(lower, _shown(NETWORKS), series, [_color(design) for design in designs])
    lower.set_yscale("log")
    legend(drawn, lower)
    return drawn


@picture
def figure_21(rows: Rows) -> Figure:
    drawn, (axes,) = panels(["million requests a dollar, over three years"], height_in=3.4)
    designs = (*BASELINES.values(), DPU)
    bought = _of_designs(rows, lambda run: run.requests_per_usd / 1e6, designs)
    _grouped(axes, _shown(NETWORKS), bought, [_color(design) for design in designs])
    axes.set_yscale("log")
    legend(drawn, axes)
    return drawn


@picture
def figure_22(rows: Rows) -> Figure:
    drawn, grid = panels(["requests/s, saturated", "requests/s within Fig. 18's target"], columns=2, height_in=3.0)
    static = f"{STATIC}:{STATIC_READINGS[0]}"
    for panel, load in zip(grid, ("saturated", "tail"), strict=True):
        series = {
            **{f"Base, {NAMES[cpu]}": (cpu, static) for cpu in BASELINES.values()},
            "Base + DPU": (DPU, static),
            "Base + DPU + dynamic batching": (DPU, "preba"),
        }
        values = {
            label: [
                run.within_rps if load == "tail" else run.throughput_rps
                for m in AUDIO_NETWORKS
                for run in [rows.one(model=m, preprocess=d, policy=p, load=load, lengths=UTTERANCES)]
            ]
            for label, (d, p) in series.items()
        }
        fills = [*(_color(cpu) for cpu in BASELINES.values()), color("dpu"), color("preba")]
        _grouped(panel, _shown(AUDIO_NETWORKS), values, fills)
    legend(drawn, grid[0], columns=3)
    return drawn
