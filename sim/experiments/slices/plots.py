"""Draw the capacity of a server by its preprocessing, and latency by load and policy."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from headrace.sim.experiments.slices.rows import Capacity, Served


def plot_preparing(path: Path, rows: Sequence[Capacity]) -> None:
    """Draw, for the smallest slices, the throughput of each design as a share of that with inputs ready."""
    rows = [row for row in rows if not row.partition.endswith(":1")]
    models, gpus, designs = (
        list(dict.fromkeys(getattr(row, field) for row in rows)) for field in ("model", "gpu", "design")
    )
    designs.remove("ideal")
    figure, panels = plt.subplots(1, len(gpus), figsize=(4 * len(gpus), 3.6), sharey=True, squeeze=False)
    for axes, gpu in zip(panels[0], gpus, strict=True):
        mine = {(row.model, row.design): row.throughput_rps for row in rows if row.gpu == gpu}
        for place, design in enumerate(designs):
            heights = [mine.get((model, design), 0.0) / mine[model, "ideal"] for model in models]
            at = [number + 0.2 * (place - (len(designs) - 1) / 2) for number in range(len(models))]
            axes.bar(at, heights, 0.2, label=design)
        axes.axhline(1, color="0.6", lw=0.8)
        axes.set_xticks(range(len(models)), models, rotation=35, ha="right", fontsize=8)
        axes.set_title(gpu)
    panels[0][0].set_ylabel("throughput, of that with inputs ready")
    figure.tight_layout(rect=(0, 0, 1, 0.92))
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="upper center", ncols=len(designs), fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_policies(path: Path, rows: Sequence[Served]) -> None:
    """Draw mean and 99th percentile of latency by load in the smallest slices, with inputs ready."""
    rows = [row for row in rows if row.preprocess == "ideal" and row.load < 1 and not row.partition.endswith(":1")]
    models, policies = (list(dict.fromkeys(getattr(row, field) for row in rows)) for field in ("model", "policy"))
    figure, panels = plt.subplots(1, len(models), figsize=(4 * len(models), 3.4), sharex=True, squeeze=False)
    for axes, model in zip(panels[0], models, strict=True):
        for number, policy in enumerate(policies):
            mine = [row for row in rows if (row.model, row.policy) == (model, policy)]
            loads = [row.load for row in mine]
            axes.plot(loads, [row.mean_ms for row in mine], "-", color=f"C{number}", marker=".", label=policy)
            axes.plot(loads, [row.p99_ms for row in mine], ":", color=f"C{number}", marker=".")
        axes.set(title=model, xlabel="load", yscale="log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3, which="both")
    panels[0][0].set_ylabel("ms: mean (solid), p99 (dotted)")
    panels[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
