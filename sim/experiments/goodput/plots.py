"""Draw goodput by load."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from headrace.sim.experiments.goodput.rows import Row


def plot(path: Path, rows: Sequence[Row]) -> None:
    models, targets = (list(dict.fromkeys(getattr(row, field) for row in rows)) for field in ("model", "slo_ms"))
    policies = list(dict.fromkeys(row.policy for row in rows))
    max_load = max(row.load for row in rows)
    figure, panels = plt.subplots(
        len(targets), len(models), figsize=(5 * len(models), 3.4 * len(targets)), sharex=True, sharey=True
    )
    for line, slo_ms in zip(panels, targets, strict=True):
        for axes, model in zip(line, models, strict=True):
            axes.plot([0, max_load], [0, max_load], color="0.8", lw=0.8)
            for policy in policies:
                mine = [row for row in rows if (row.model, row.slo_ms, row.policy) == (model, slo_ms, policy)]
                dashed = "--" if policy in ("graph", "preba", "smdp") else "-"
                axes.plot([row.load for row in mine], [row.goodput for row in mine], dashed, marker=".", label=policy)
            axes.set(title=f"{model.replace(',', ', ')}\nwithin {slo_ms:g} ms", ylim=(0, 1.25))
            axes.grid(alpha=0.3)
    for axes in panels[-1]:
        axes.set_xlabel("load, of what full batches can serve")
    for line in panels:
        line[0].set_ylabel("goodput, of the same")
    panels[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
