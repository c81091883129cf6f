#!/usr/bin/env python3
"""Draw the part `profiles` of a check: the time of each network as one CUDA graph, by what the slice model predicts.

    scripts/draw_gpu_check.py gpu_check.json PICTURE.png

It needs matplotlib and Headrace. The page docs/results/gpu_check.md has the picture of an H100."""

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from headrace.host.validation.plan import CAPTURED
from headrace.sim.plot_style import headed, legend, others, panels, picture, theme


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    draw(given.picture, json.loads(given.result.read_text()))


@picture
def draw(result: dict[str, Any]) -> Figure:
    """Draw a panel for each precision, with a line for each network."""
    rows = [row for row in result["parts"]["profiles"]["rows"] if row["quantity"] == CAPTURED and row["ratio"]]
    precisions = list(dict.fromkeys(row["details"]["precision"] for row in rows))
    networks = list(dict.fromkeys(row["details"]["network"] for row in rows))
    drawn, grid = panels(precisions, height_in=3.0, sharey=True)
    for panel, precision in zip(grid, precisions, strict=True):
        panel.axhspan(0.8, 1.2, color=theme().band, zorder=0)
        panel.axhline(1.0, color=theme().muted, linewidth=0.8)
        for network, fill in zip(networks, others(len(networks)), strict=True):
            points = [
                (row["details"]["batch"], row["ratio"])
                for row in rows
                if (row["details"]["precision"], row["details"]["network"]) == (precision, network)
            ]
            panel.plot(*(zip(*points, strict=True) if points else ((), ())), "o-", color=fill, label=network)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_xlabel("batch")
    grid[0].set_ylabel("measured time / predicted time")
    legend(drawn, grid[0])
    headed(drawn, f"{result['device']['name']}: networks as one CUDA graph (band: within 20 %)")
    return drawn


if __name__ == "__main__":
    main()
