#!/usr/bin/env python3
"""Fit the GPU slice model (sim/hardware/gpu/slice.py) to ParvaGPU's measurements on slices of an A100-80GB, and report
its error for networks that were left out of the fit.

    .venv/bin/python scripts/calibrate_gpu_slice.py [--out out/gpu_slice] [--new]

Prints the constants that the module has as FITTED and PARVAGPU, and errors by network: of the throughput with that
network left out of the fit, of the knees, and with several processes on a slice. Writes them and a plot to the folder.

With --new nothing is fitted. The program compares the module with five networks of the data that played no part until
the model and its constants were fixed.

The authors' artifact says how they measured (github.com/MunQ-Lee/ParvaGPU_SC24, scripts/): NVIDIA's PyTorch 21.11
(1.11, so TF32 in all products), eager, fp32, torchvision's networks on images of 224 x 224, and BERT-large, 128 tokens.
Each step copies its input from pageable memory, which waits until the GPU is idle, and then launches the network. Its
seconds are the time from one step to the next.

The fit uses the five CNNs with one process on a slice. It minimizes the mean of |log(modelled / measured)| over a
network's rows, averaged over the networks. BERT is left out of every fit, because its rows have about 2 ms an item that
belong neither to the slice nor to the network. On slices of 1 to 7 GPCs a batch of 128 takes 947 to 425 ms, which is
A / GPCs + 2.6 ms an item. Several processes hide that part: three on one GPC have 1.36 times the throughput of one. The
program in the artifact has no such part, and it needs more memory than these rows had: it keeps the data for gradients,
about 280 MB an item, but three processes at batch 256 fit into 10 GB. The rows with three and more processes still test
BERT.
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, astuple
from functools import cache
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import minimize

from headrace.batching.graphs.profile import Profile, ProfilePoint
from headrace.batching.graphs.torch_graph import from_torch
from headrace.batching.graphs.traced import Traced
from headrace.sim.hardware.gpu.kernels import FITTED, Kernels
from headrace.sim.hardware.gpu.mig import gpu_named
from headrace.sim.hardware.gpu.slice import PARVAGPU, TF32, Host, SliceTimes, slice_of
from headrace.sim.plot_style import headed, legend, panels, picture, plain_numbers, shades
from headrace.sim.zoo.traced import traced

DATA = Path(__file__).parents[1] / "sim" / "experiments" / "parvagpu" / "profiles.csv"
NETWORKS = {
    "resnet50": "resnet50",
    "resnet152": "resnet152",
    "densenet121": "densenet121",
    "mobilenetv2": "mobilenet_v2",
    "vgg16": "vgg16",
    "bert": "bert_large",
}
FITTED_TO = ("resnet50", "resnet152", "densenet121", "mobilenetv2", "vgg16")
LENGTHS = {"bert": 128.0}
SLICES = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb", 7: "7g.80gb"}  # by GPCs
# Guesses from before any fit. All fits start there, so that a network that is left out has no influence.
FREE = (
    "grouped",
    "memory",
    "sm_bytes",
    "kernel_s",
)  # the constants of kernels that are fitted; others keep their values
EVALUATIONS = 300
START, START_HOST = Kernels(12, 0.85, 13, 2.5e-6), Host(27e-6, 50e-6, 8e9)
# These networks played no part until the model and its constants were fixed.
NEW = {
    "resnet101": "resnet101",
    "vgg19": "vgg19",
    "densenet169": "densenet169",
    "densenet201": "densenet201",
    "inceptionv3": "inception_v3",
}
Floats = NDArray[np.float64]
Rows = dict[int, float]  # seconds of a batch by its size


def measured() -> dict[tuple[str, int, int], Rows]:
    """Return the measured rows by model, number of GPCs and number of processes."""
    rows: dict[tuple[str, int, int], Rows] = defaultdict(dict)
    with DATA.open() as file:
        for line in csv.DictReader(file):
            batch = int(line["batch"])
            key = line["model"], int(line["gpcs"]), int(line["procs"])
            rows[key][batch] = batch / float(
                line["throughput_per_proc_s"]
            )  # not from the latencies, which are rounded to 1 ms
    return rows


@cache
def times_of(model: str, gpcs: int) -> SliceTimes:
    gpu = gpu_named("a100-80gb")
    return SliceTimes(traced(NETWORKS[model]), slice_of(gpu, gpu.profiles[SLICES[gpcs]]), PARVAGPU, TF32)


def modelled(model: str, gpcs: int, processes: int, batches: Sequence[int], kernels: Kernels, host: Host) -> Floats:
    """Return the modelled seconds of each batch."""
    times = copy(times_of(model, gpcs))  # the copy shares the laid-out network
    times.kernels, times.host = kernels, host
    return times.batch_s(batches, LENGTHS.get(model, 1.0), processes)


def errors(
    rows: dict[tuple[str, int, int], Rows], model: str, processes: int, kernels: Kernels, host: Host
) -> dict[int, Floats]:
    """Return log(modelled / measured) of each row, by the number of GPCs."""
    return {
        gpcs: np.log(modelled(model, gpcs, processes, list(found), kernels, host) / np.array(list(found.values())))
        for (name, gpcs, count), found in rows.items()
        if name == model and count == processes
    }


def fit(
    rows: dict[tuple[str, int, int], Rows], models: Sequence[str], evaluations: int = EVALUATIONS
) -> tuple[Kernels, Host]:
    """Return the constants that fit these networks best. Each of two rounds looks at `evaluations` sets of them."""

    def unpack(logs: Floats) -> tuple[Kernels, Host]:
        values = [float(value) for value in np.exp(logs)]
        return Kernels(*values[: len(FREE)]), Host(*values[len(FREE) :])

    def mean_error(logs: Floats) -> float:
        kernels, host = unpack(logs)
        if kernels.memory > 1:
            return np.inf
        return float(
            np.mean(
                [
                    np.mean(np.abs(np.concatenate(list(errors(rows, model, 1, kernels, host).values()))))
                    for model in models
                ]
            )
        )

    at = np.log(np.array([*(getattr(START, name) for name in FREE), *astuple(START_HOST)]))
    for _ in range(2):  # a shrunk simplex may be stuck, so the second round starts from its result
        simplex = np.vstack([at, at + 0.25 * np.eye(len(at))])
        at = minimize(
            mean_error, at, method="Nelder-Mead", options={"maxfev": evaluations, "initial_simplex": simplex}
        ).x
    return unpack(at)


def knee(batches: Sequence[int], seconds: Sequence[float]) -> int:
    points = (ProfilePoint(batch, s, batch / s) for batch, s in zip(batches, seconds, strict=True))
    return Profile("", 1, tuple(points)).knee().batch


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


@picture
def plot(rows: dict[tuple[str, int, int], Rows], left_out: dict[str, tuple[Kernels, Host]]) -> Figure:
    drawn, grid = panels([NETWORKS[model] for model in NETWORKS], height_in=2.5, sharex=True)
    for panel, model in zip(grid, NETWORKS, strict=True):
        for gpcs, shade in zip(SLICES, shades(len(SLICES)), strict=True):
            found = rows[model, gpcs, 1]
            batches = list(found)
            seconds = modelled(model, gpcs, 1, batches, *left_out[model])
            panel.loglog(batches, 1e3 * seconds, "-", color=shade, linewidth=1)
            panel.loglog(batches, [1e3 * s for s in found.values()], "o", color=shade, label=f"{SLICES[gpcs]}")
        panel.set_xscale("log", base=2)
        plain_numbers(panel.yaxis)
    for panel in grid[-3:]:
        panel.set_xlabel("batch")
    for panel in grid[::3]:
        panel.set_ylabel("ms a batch")
    legend(drawn, grid[0], columns=5)
    headed(drawn, "A100-80GB slices: measured (dots, ParvaGPU), and modelled without that network in the fit (lines)")
    return drawn


def at_224() -> Traced:
    """Return Inception for 224 x 224, as the artifact runs it. The traced network is for 299 x 299."""
    from headrace.host.workers.networks.zoo.torchvision_networks import torchvision

    example = torch.zeros(1, 3, 224, 224)
    graph = from_torch(torchvision.models.inception_v3(weights=None, init_weights=False), example, name="inception_v3")
    return Traced("inception_v3", None, {1.0: example.numel()}, {1.0: graph})


def show_new() -> None:
    gpu = gpu_named("a100-80gb")
    known = measured()
    lines = []
    for name, network in NEW.items():
        rows = {gpcs: found for (model, gpcs, processes), found in known.items() if (model, processes) == (name, 1)}
        graph = at_224() if network == "inception_v3" else traced(network)
        off: list[float] = []
        knees = []
        for gpcs, found in sorted(rows.items()):
            times = SliceTimes(graph, slice_of(gpu, gpu.profiles[SLICES[gpcs]]), PARVAGPU, TF32)
            ours = times.batch_s(list(found), 1.0, 1)
            off += np.abs(np.array(list(found.values())) / ours - 1).tolist()
            knees.append((knee(list(found), list(found.values())), knee(list(found), list(ours))))
        close = sum(0.5 <= guess / seen <= 2 for seen, guess in knees)
        lines.append(
            [
                network,
                str(len(off)),
                f"{np.median(off):.1%}",
                f"{np.quantile(off, 0.9):.1%}",
                f"{close}/{len(knees)}",
                " ".join(f"{seen}:{guess}" for seen, guess in knees),
            ]
        )
    print(table(["network", "rows", "error", "9 of 10", "knees", "measured:modelled by GPCs"], lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/gpu_slice"))
    parser.add_argument("--new", action="store_true")
    options = parser.parse_args()
    if options.new:
        show_new()
        return
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    rows = measured()
    kernels, host = fit(rows, FITTED_TO)
    print("fitted to all:", kernels, host, "in the module:", FITTED, PARVAGPU, sep="\n  ", flush=True)
    left_out = {
        model: fit(rows, [other for other in FITTED_TO if other != model]) if model in FITTED_TO else (kernels, host)
        for model in NETWORKS
    }
    report: dict[str, object] = {"kernels": asdict(kernels), "host": asdict(host)}
    lines, alone, near = [], [], []
    for model in NETWORKS:
        inside = np.concatenate(list(errors(rows, model, 1, FITTED, PARVAGPU).values()))
        by_gpcs = errors(rows, model, 1, *left_out[model])
        outside = np.concatenate(list(by_gpcs.values()))
        knees = []
        for gpcs in SLICES:
            found = rows[model, gpcs, 1]
            guess = knee(list(found), list(modelled(model, gpcs, 1, list(found), *left_out[model])))
            knees.append((knee(list(found), list(found.values())), guess))
        close = [0.5 <= guess / seen <= 2 for seen, guess in knees]
        alone.append(outside)
        near += close
        lines.append(
            [
                NETWORKS[model],
                str(len(outside)),
                f"{np.median(np.abs(np.expm1(-inside))):.1%}",
                f"{np.median(np.abs(np.expm1(-outside))):.1%}",
                f"{np.quantile(np.abs(np.expm1(-outside)), 0.9):.1%}",
                f"{np.median(np.expm1(-outside)):+.1%}",
                f"{sum(close)}/{len(close)}",
                " ".join(f"{seen}:{guess}" for seen, guess in knees),
            ]
        )
    for name, chosen in (("without BERT", alone[:-1]), ("all", alone)):
        e = np.expm1(-np.concatenate(chosen))
        count = near[: 5 * len(chosen)]
        lines.append(
            [
                name,
                str(len(e)),
                "",
                f"{np.median(np.abs(e)):.1%}",
                f"{np.quantile(np.abs(e), 0.9):.1%}",
                f"{np.median(e):+.1%}",
                f"{sum(count)}/{len(count)}",
                "",
            ]
        )
    head = ["network", "rows", "module's", "left out", "9 of 10", "bias", "knees", "measured:modelled by GPCs"]
    text = "Error of throughput, one process, module's constants and with the network left out of the fit:\n"
    text += table(head, lines)
    shared = []
    for model in NETWORKS:
        cells = []
        for processes in (2, 3, 4, 5):
            found_errors = np.concatenate(list(errors(rows, model, processes, *left_out[model]).values()))
            cells.append(f"{np.median(np.abs(np.expm1(-found_errors))):.1%}")
        shared.append([NETWORKS[model], *cells])
    text += "\n\nMedian error of throughput, several processes on a slice, network left out of the fit:\n"
    text += table(["network", "2", "3", "4", "5"], shared)
    print(text)
    report["left_out"] = [dict(zip(head, line, strict=True)) for line in lines]
    report["processes"] = shared
    (out / "calibration.json").write_text(json.dumps(report, indent=2) + "\n")
    (out / "calibration.txt").write_text(text + "\n")
    plot(out / "calibration.png", rows, left_out)


if __name__ == "__main__":
    main()
