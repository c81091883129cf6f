"""Draw the demo's picture.

It has a row for each load, with the latencies of the runs and their parts, and the networks' profiles to the right. The
simulated part is below, on a gray background.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from headrace.batching import Profile, ProfilePoint
from headrace.host.demo.options import BEFOREHAND
from headrace.host.demo.runs.live import LiveReport
from headrace.host.demo.runs.serving import Run
from headrace.host.demo.runs.simulated import LOADED, Load, Simulated
from headrace.sim.experiments.preba.conditions import CPU_CORES

PART_NAMES = {
    "sent_late": "sent late",
    "cu_wait": "wait for a unit",
    "preprocess": "preprocess",
    "queue": "queue",
    "batch": "batch",
    "execute": "execute",
}
LINES = {BEFOREHAND: "-", "cpu": "-", "dpu": "--"}
BACKGROUND = "0.92"  # the gray of the simulated part
MAX_LINEAR_RATIO = 30  # rates with a larger ratio are drawn on a logarithmic scale


def draw(report: LiveReport, sentences: Sequence[str], path: Path) -> None:
    """Draw the report into a PNG file. `sentences` say what the runs show; they become the title."""
    simulated = report.simulated
    loads: dict[float, list[Run]] = {}
    for run in report.runs:
        loads.setdefault(report.rates_rps[run.preprocessor], []).append(run)
    heights = [2 + 4.2 * len(loads), 2.8 if isinstance(simulated, Simulated) else 0]
    whole = plt.figure(figsize=(16, sum(heights)), layout="constrained")
    figure = whole
    if isinstance(simulated, Simulated):
        figure, below = whole.subfigures(2, 1, height_ratios=heights)
        _simulated(below, simulated)
        sentences = [f"Live: {sentence}" for sentence in sentences[:1]] + list(sentences[1:])
    grid = figure.add_gridspec(len(loads), 3, width_ratios=(1.15, 1.15, 0.9))
    for row, (rate, runs) in enumerate(loads.items()):
        from_tensors = all(run.preprocessor == BEFOREHAND for run in runs)
        what = "nothing to preprocess" if from_tensors else "from file to output"
        title = f"{rate:.{_digits(rate)}f} requests/s, {what}"
        names = [run.policy if from_tensors else run.name for run in runs]
        _latencies(figure.add_subplot(grid[row, 0]), runs, names, f"{title}: latency")
        _times(figure.add_subplot(grid[row, 1]), runs, names, "where the time went")
    _profiles(figure.add_subplot(grid[:, 2]), report, list(loads))
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, 140)]
    figure.suptitle("\n".join(lines), fontsize=13, weight="bold", x=0.01, ha="left")
    figure.supxlabel(
        f"{' and '.join(report.profiles)} on {report.hardware}; {report.machine['cpu']}, "
        f"{report.machine['cores']} cores. {report.footnote}",
        fontsize=10,
        x=0.01,
        ha="left",
    )
    whole.savefig(path, dpi=100)
    plt.close(whole)


def _latencies(axes: Axes, runs: Sequence[Run], names: Sequence[str], title: str) -> None:
    policies = list(dict.fromkeys(run.policy for run in runs))
    for name, run in zip(names, runs, strict=True):
        latencies = sorted((r.served.finished - r.served.arrival) * 1e3 for r in run.records if r.served)
        shares = np.arange(1, len(latencies) + 1) / max(1, len(latencies))
        axes.step(
            latencies,
            shares,
            where="post",
            label=name,
            lw=2,
            color=f"C{policies.index(run.policy)}",
            ls=LINES[run.preprocessor],
        )
    axes.set(xlabel="latency, ms", ylabel="share of requests", ylim=(0, 1), xscale="log", title=title)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=9)


def _times(axes: Axes, runs: Sequence[Run], names: Sequence[str], title: str) -> None:
    left = np.zeros(len(names))
    for part, label in PART_NAMES.items():
        width = np.array([run.breakdown_ms()[part] or 0.0 for run in runs])
        axes.barh(names, width, left=left, label=label)
        left += width
    for place, total in enumerate(left):
        axes.annotate(f" {total:.0f} ms", (total, place), va="center", fontsize=10)
    axes.set(xlabel="mean ms of a request", xlim=(0, 1.2 * left.max() or 1), title=title)
    axes.set_ylim(1.25 * len(names) - 0.4, -0.6)  # the first bar is on top; the legend has room below the last
    axes.legend(fontsize=9, ncols=3, loc="lower right", columnspacing=1, handlelength=1)


def _profiles(axes: Axes, report: LiveReport, rates: Sequence[float]) -> None:
    for number, (name, profile) in enumerate(report.profiles.items()):
        batches, throughputs = zip(*((p.batch, p.throughput_rps) for p in _curve(profile)), strict=True)
        axes.plot(batches, throughputs, "o-", color=f"C{number}", lw=2, label=name)
        knee = profile.knee()
        axes.plot(knee.batch, knee.throughput_rps, "o", ms=14, mfc="none", mec="C3", mew=2)
        axes.annotate(
            f"knee: batch {knee.batch}, {knee.latency_s * 1e3:.0f} ms",
            (knee.batch, knee.throughput_rps),
            textcoords="offset points",
            xytext=(0, 14),
            ha="right" if knee.batch > min(batches) else "left",
            fontsize=9,
        )
    for rate in rates:
        axes.axhline(rate, color="gray", ls=":")
        axes.annotate(
            f"load: {rate:.{_digits(rate)}f}/s",
            (0.98, rate),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            xytext=(0, 3),
            ha="right",
            fontsize=9,
        )
    axes.set(xscale="log", xlabel="batch size", ylabel="requests/s, all workers", title="Profile: what batching brings")
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.minorticks_off()
    points = [point for profile in report.profiles.values() for point in _curve(profile)]
    axes.set_xticks(sorted({point.batch for point in points}))
    axes.margins(x=0.15, y=0.12)
    if max(point.throughput_rps for point in points) > MAX_LINEAR_RATIO * min(
        *rates, *(p.throughput_rps for p in points)
    ):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize=9)


def _simulated(figure: SubFigure, simulated: Simulated) -> None:
    figure.set_facecolor(BACKGROUND)
    load = simulated.loads[-1]
    names = [each.name for each in load.servers]
    panels = figure.subplots(1, 4, sharey=True)
    _bars(panels[0], load, [each.result["throughput_rps"] for each in load.servers], "served/s")
    latencies = [None if each.limited_by else each.result["latency_ms"]["p99"] for each in load.servers]
    _bars(panels[1], load, latencies, "99th percentile, ms")
    _bars(panels[2], load, [each.busy_cores for each in load.servers], f"busy cores, of {CPU_CORES}")
    _bars(panels[3], load, [each.result["energy_per_request_j"] for each in load.servers], "J a request")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    panels[0].axvline(load.rate_rps, color="gray", ls=":")
    figure.suptitle(
        f"Simulated, not run: {' and '.join(simulated.models)} on {simulated.server}; DPU of {simulated.cus}\n"
        f"{load.rate_rps:,.0f} {simulated.what}/s, {LOADED:.0%} of the rate that the slices sustain: "
        f"the live arrivals, {load.faster:,.0f} times as fast",
        fontsize=13,
        weight="bold",
        x=0.01,
        ha="left",
    )


def _bars(axes: Axes, load: Load, values: Sequence[float | None], title: str) -> None:
    """Draw a bar for each server. None stands for a latency that grows throughout the run."""
    largest = max((value for value in values if value is not None), default=1.0)
    for place, (server, value) in enumerate(zip(load.servers, values, strict=True)):
        if value is None:
            axes.annotate(f" grows, because {server.limited_by!r} is full", (0, place), va="center", fontsize=9)
            continue
        axes.barh(place, value, color=f"C{place}")
        digits = 0 if value >= 100 else 1 if value >= 1 else 3
        axes.annotate(f" {value:,.{digits}f}", (value, place), va="center", fontsize=10)
    axes.set(xlim=(0, 1.25 * largest), title=title)
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _digits(rate: float) -> int:
    return 0 if rate >= 10 else 1


def _curve(profile: Profile) -> Sequence[ProfilePoint]:
    """Return the points of the profile at the typical length."""
    return profile.curve(profile.typical_length)
