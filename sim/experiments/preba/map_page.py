"""Draw the map of crossover.py, and write the page docs/explanation/does_a_dpu_pay.md from its rows."""

import math
import textwrap
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headrace.sim.experiments.preba.conditions import GPU, IMPLIED
from headrace.sim.experiments.preba.crossover import (
    AUDIO,
    CORES,
    IMAGES,
    LIBRARIES,
    METRICS,
    MORE,
    SIZES,
    UNITS,
    Map,
)
from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.plot_style import SMALL_PT, panels, picture, theme
from headrace.sim.system.cost import PRICES_USD, USD_A_KWH, YEARS

SHOWN_CORES: Final = (8, 16, 32, 64, 128)
LINES: Final[dict[str, Any]] = {"throughput": "-", "energy": ":", "dollars": "--"}
WIDTH: Final = 120  # of the page's lines
LIBRARY: Final = "#1a7f37"  # on the map's colours, in both themes
GREATEST: Final = 8.0  # the end of the colour scale; a power of two
PARTS: Final = {"node": "node", "cpu": "cpu", "gpu": GPU, "card": "fpga"}  # by the page's words
PICTURE: Final = "../images/results/preba/map.png"
DARK_PICTURE: Final = "../images/results/preba/map-dark.png"


def shown(model: str, size: float) -> str:
    """Return a size in words."""
    if model == AUDIO:
        return f"clips of {size:g} s"
    return "photos of 500x375" if size == TYPICAL_PIXELS else f"photos of {size / 1e6:g} MP"


def _of(model: str, size: float) -> list[str]:
    """Return the libraries to show at a size. The costs that the paper implies are those of one size."""
    return [label for label in LIBRARIES[model] if label != IMPLIED or size == SIZES[model][0]]


@picture
def draw(found: Map) -> Figure:
    sizes = [(model, size) for model, every in SIZES.items() for size in every]
    drawn, grid = panels([_title(found, model, size) for model, size in sizes], height_in=3.1, sharey=True)
    levels = np.arange(-math.log2(GREATEST), math.log2(GREATEST) + 0.1, 0.25)
    for number, (panel, (model, size)) in enumerate(zip(grid, sizes, strict=True)):
        cores, costs, dollars = found.ratios(model, size, "dollars")
        colours = np.clip(np.log2(dollars), levels[0], levels[-1])
        mesh = panel.contourf(costs, cores, colours, levels, cmap="RdBu_r", extend="both")
        for metric, style in LINES.items():
            _, _, ratios = found.ratios(model, size, metric)
            edge = np.log(ratios / (MORE if metric == "throughput" else 1.0))
            if edge.min() < 0 < edge.max():
                panel.contour(costs, cores, edge, [0.0], colors="black", linestyles=style, linewidths=1.8)
        for place, label in enumerate(_of(model, size)):
            (library,) = found.of(model, size, label)
            panel.axvline(library.core_ms, color=LIBRARY, linewidth=1)
            late = library.core_ms > 0.1 * costs[-1]
            panel.text(
                library.core_ms,
                CORES[0] * 1.06 * 1.28**place,
                f"{label} " if late else f" {label}",
                horizontalalignment="right" if late else "left",
                color="black",
                fontsize=SMALL_PT,
                bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5},
            )
        panel.set_xscale("log")
        panel.set_yscale("log", base=2)
        panel.set_yticks(SHOWN_CORES, [str(each) for each in SHOWN_CORES])
        panel.minorticks_off()
        panel.grid(visible=False)
        panel.xaxis.set_major_formatter("{x:g}")
        if number >= 3:
            panel.set_xlabel("ms of a core for a request")
        if number % 3 == 0:
            panel.set_ylabel("cores of the server")
    bar = drawn.colorbar(mesh, ax=grid, shrink=0.8)
    ticks = [-3, -2, -1, 0, 1, 2, 3]
    bar.set_ticks(ticks, labels=[f"{2.0**tick:g}" for tick in ticks])
    bar.set_label("requests a dollar: with a DPU / with cores (red: the DPU pays)")
    text = theme().text
    handles = [Line2D([], [], color=text, linestyle=style, linewidth=1.8) for style in LINES.values()]
    labels = [f"edge of {metric}: the DPU pays to its right" for metric in LINES]
    handles.append(Line2D([], [], color=LIBRARY))
    drawn.legend(handles, [*labels, "a library, measured"], loc="outside lower center", ncols=2)
    return drawn


def _title(found: Map, model: str, size: float) -> str:
    of = "MobileNetV3-small" if model == IMAGES else "Conformer small"
    return f"{shown(model, size)}\n{of}, DPU {found.dpu(model, size).throughput_rps:,.0f}/s"


def _ms(value: float) -> str:
    if value == 0:
        return "always"
    return "never" if value == math.inf else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def edges(found: Map) -> list[str]:
    """Return a table in Markdown: from which time of a core a DPU pays, by size and cores."""
    lines = [
        f"| inputs | {' | '.join(f'{cores} cores' for cores in SHOWN_CORES)} |",
        f"| --- |{' --- |' * len(SHOWN_CORES)}",
    ]
    for model, sizes in SIZES.items():
        for size in sizes:
            cells = []
            for cores in SHOWN_CORES:
                edge = [found.pays_from_ms(model, size, cores, metric) for metric in METRICS]
                cells.append(" / ".join(map(_ms, edge)))
            lines.append(f"| {shown(model, size)} | {' | '.join(cells)} |")
    return lines


def libraries(found: Map) -> list[str]:
    """Return a table in Markdown: what a DPU does beside 32 cores with each library."""
    lines = [
        "| inputs | library | core time, ms | 32 cores, requests/s | DPU, requests/s | throughput | energy | dollars |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for model, sizes in SIZES.items():
        for size in sizes:
            for label in _of(model, size):
                (row,) = found.of(model, size, label)
                ratios = " | ".join(f"{found.ratio(row, metric):.2f}" for metric in METRICS)
                rates = f"{row.throughput_rps:,.0f} | {found.dpu(model, size).throughput_rps:,.0f}"
                lines.append(f"| {shown(model, size)} | {label} | {row.core_ms:.3g} | {rates} | {ratios} |")
    return lines


def verdict(found: Map) -> str:
    """Return in words which libraries a DPU beats in requests per dollar, on 32 cores and at the least size."""
    texts = []
    for model, what in ((IMAGES, "For photos"), (AUDIO, "For clips")):
        pays: dict[bool, list[str]] = {True: [], False: []}
        for label in LIBRARIES[model]:
            if label != IMPLIED:
                (row,) = found.of(model, SIZES[model][0], label)
                pays[found.ratio(row, "dollars") > 1].append(label)
        texts.append(
            f"{what}, a DPU pays if the server uses {_listed(pays[True])}. It does not pay with {_listed(pays[False])}."
        )
    return " ".join(texts)


def _listed(names: list[str]) -> str:
    return "none of them" if not names else " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def page(found: Map) -> str:
    """Return the page docs/explanation/does_a_dpu_pay.md."""
    image, clip = SIZES[IMAGES][0], SIZES[AUDIO][0]
    image_ms, clip_ms = (found.pays_from_ms(*one, 32, "dollars") for one in ((IMAGES, image), (AUDIO, clip)))
    units = {model: text.removeprefix("dpu:") for model, text in UNITS.items()}
    numbers: dict[str, Any] = {
        "photo": f"{image_ms:.1f}",
        "clip": f"{clip_ms:.1f}",
        "photo_rate": f"{found.dpu(IMAGES, image).throughput_rps:,.0f}",
        "clip_rate": f"{found.dpu(AUDIO, clip).throughput_rps:,.0f}",
        "image_units": units[IMAGES],
        "audio_units": units[AUDIO],
        "verdict": textwrap.fill(f"We measured some libraries. {verdict(found)}", WIDTH),
        "edges": "\n".join(edges(found)),
        "libraries": "\n".join(libraries(found)),
        "picture": PICTURE,
        "dark_picture": DARK_PICTURE,
        "more": f"{100 * (MORE - 1):.0f}",
        **{key: f"{PRICES_USD[part]:,.0f} $" for key, part in PARTS.items()},
        "years": YEARS,
        "kwh": f"{USD_A_KWH:g}",
    }
    return TEXT.format(**numbers)


TEXT: Final = """\
# Does a DPU pay?

This page tells when an FPGA card for preprocessing is worth its price and its power. All numbers come from
simulation: no part of this page ran on a card, a GPU or a server of this size.

A DPU is an FPGA card that turns JPEG files and recordings into tensors. A server without a DPU does this work on its
CPU cores.

## Short answer

The server of this page has one A100-40GB in seven slices and 32 cores. Seven of the cores launch kernels. The networks
are PREBA's fastest: they serve {photo_rate} photos/s and {clip_rate} clips/s behind a DPU.

- A DPU serves more requests per dollar if a core needs more than {photo} ms for a photo of 500x375.
- For a clip of 2.5 s, the limit is {clip} ms of a core.

{verdict}

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="{dark_picture}">
  <img src="{picture}" alt="Requests per dollar of a server with a DPU, divided by those of a server without one">
</picture>

## How to read the picture

- The horizontal axis is the time that one core needs for a request. The vertical axis is the number of cores of a
  server with one GPU.
- In a red area, the server with a DPU serves more requests per dollar. In a blue area, the server without a DPU serves
  more. In a white area, both serve the same.
- The three black lines are the limits for throughput, energy and dollars. A DPU pays to the right of a line. If a line
  bends back, the DPU also pays above it.
- A green line is a library. It stands at the time that one core of our machine needed.
- A server with more than 32 cores has several CPUs. They cost money and power, even if preprocessing is cheap. The
  server with a DPU has only one CPU.

A simple rule explains the picture. Let R be the requests/s that the GPU can serve, and T the time of a core for one
request. Preprocessing needs R x T cores. The cores are the bottleneck if fewer are free. A network that is half as fast
moves the limits to twice the time. For larger photos, the compute units of the DPU become the bottleneck.

## Time per request from which a DPU pays

Each cell gives the time of one core (ms) for throughput / energy / dollars. "Always" stands for every time of the
picture, and "never" for none. A DPU counts as better in throughput from {more} % more requests/s on, because the
GPU is the same in both servers. MP means millions of pixels.

{edges}

## Libraries on a server with 32 cores

The last three columns divide the server with a DPU by the server without one. They give requests/s, requests per joule
and requests per dollar.

{libraries}

| library | meaning |
| --- | --- |
| `ours` | the CPU path of Headrace |
| `librosa` | librosa with its resampler `soxr_hq`, the default since release 0.10 |
| `librosa-kaiser_best` | librosa with the default resampler of earlier releases |
| `paper-implied` | the cost that follows from the numbers in the PREBA paper |

## Assumptions

- **Time of a core.** `headrace profile --cpu-preprocessing NAME` measured the libraries on an AMD EPYC (family 26). It
  used 36 photos and 32 recordings, resampled from 22,050 to 16,000 Hz. Measure your own core with this command, and
  give its file to `headrace simulate --cpu-costs FILE`.
- **Load.** All requests wait at the start, so the slowest stage of a server determines its throughput.
- **Compute units.** The DPU has {image_units} compute units for images, or {audio_units} of each kind for audio.
  Their cycle models run at 300 MHz. No vendor tool has confirmed this clock rate.
- **Prices.** A node with 32 cores costs {node}, each further CPU {cpu}, the GPU {gpu}, and the card {card}.
  A server runs for {years:g} years at {kwh} $/kWh. The prices are assumptions (`sim/system/cost.py`), and so are
  parts of the power model (`sim/hardware/gpu/power.py`). A server with 8 or 16 cores has the price and power of one
  with 32.

[PREBA, reproduced](../results/preba.md) compares the paper's own numbers with this model.

## Repeat it

<!-- not run: a whole evaluation takes minutes -->
```bash
headrace reproduce preba --figure map --out out/map
```

The command writes the picture, its rows (`map.csv`) and this page.
"""
