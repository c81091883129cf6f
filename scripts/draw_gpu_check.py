#!/usr/bin/env python3
"""Draw the part `profiles` of a check: the time of each network as one CUDA graph, by what the slice model predicts.

    scripts/draw_gpu_check.py gpu_check.json PICTURE.png

It needs matplotlib and Headrace. The page docs/results/gpu_check.md has the picture of an H100."""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from headrace.host.validation.plan import CAPTURED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    result = json.loads(given.result.read_text())
    rows = [row for row in result["parts"]["profiles"]["rows"] if row["quantity"] == CAPTURED and row["ratio"]]
    precisions = list(dict.fromkeys(row["details"]["precision"] for row in rows))
    figure, panels = plt.subplots(1, len(precisions), figsize=(4 * len(precisions), 3.6), sharey=True, squeeze=False)
    for panel, precision in zip(panels[0], precisions, strict=True):
        for network in dict.fromkeys(row["details"]["network"] for row in rows):
            points = [
                (row["details"]["batch"], row["ratio"])
                for row in rows
                if (row["details"]["precision"], row["details"]["network"]) == (precision, network)
            ]
            panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=network)
        panel.axhspan(0.8, 1.2, color="0.92", zorder=0)
        panel.axhline(1.0, color="0.4", linewidth=0.8)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_xlabel("batch")
        panel.set_title(precision)
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("measured time / predicted time")
    panels[0][-1].legend(fontsize=7, loc="upper left")
    figure.suptitle(f"{result['device']['name']}: networks as one CUDA graph (grey: within 20 %)", fontsize=11)
    figure.tight_layout()
    figure.savefig(given.picture, dpi=110)


if __name__ == "__main__":
    main()
