"""Two statements of LazyBatching without a figure: other pairs of languages, and cellular batching.

Section VI-C says that LazyBatching is as effective on other pairs of languages than English to German. Section VI says
that cellular batching is identical to graph batching on its networks. A network that does not recur is one cell for
cellular batching: the whole graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.batching.graphs.cell_graph import CellGraph, CellModel, CellType
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.policies.cellular import CellularBatching
from headrace.sim.engine import Arrivals
from headrace.sim.experiments.lazybatching.claims import gains
from headrace.sim.experiments.lazybatching.rows import Row, Runs
from headrace.sim.experiments.report import Claim
from headrace.sim.simulation import Simulation, simulate

PAIRS = ("english-to-french", "russian-to-english")  # names in workload/lengths.py
PAIR_NETWORKS = ("gnmt", "transformer")
STATIC_NETWORK = "resnet50"
GAINS = (("mean_ms", "latency, best GraphB / lazy"), ("throughput_rps", "throughput, lazy / best GraphB"))


@dataclass(frozen=True, slots=True)
class _Whole:
    """The `LatencyModel` of a cell that is a whole graph."""

    times: NodeTimes

    def latency(self, node: int, batch: int, length: float) -> float:
        return self.times.whole(batch, 1.0, 1)


def serve_as_cells(model: str, times: NodeTimes, arrivals: Arrivals, max_batch: int) -> Simulation:
    """Return the run of `cellular` on a network that does not recur. A worker is given one task at a time."""
    graph = CellGraph.chain(0, 1)
    cells = CellModel(model, (CellType("graph", max_batch),), lambda request: graph)
    policy = CellularBatching([cells], 1, max_tasks=1, strict=True)
    return simulate(policy, arrivals, {model: NodeTimes(cells.graph, _Whole(times))}, 1, cell_models={model: cells})


def figure_pairs(rows: Sequence[Row], folder: Path) -> list[Claim]:
    runs = Runs(rows)
    lines = ["network,pair,latency_gain,throughput_gain"]
    claims = []
    for network in PAIR_NETWORKS:
        by_load = {
            pair: [gains(runs.of(named(network, pair)), field, best=True) for field, _ in GAINS]
            for pair in ("", *PAIRS)
        }
        found = {pair: [float(np.mean(each)) for each in of_pair] for pair, of_pair in by_load.items()}
        lines += [f"{network},{pair or 'english-to-german'},{a:.4f},{b:.4f}" for pair, (a, b) in found.items()]
        loads = ", ".join(f"{rate:g}" for rate in runs.rates())
        for pair in PAIRS:
            for place, (_, what) in enumerate(GAINS):
                ours, german = found[pair][place], found[""][place]
                alone = by_load[pair][place][0] / by_load[""][place][0]
                cause = f"at {runs.rates()[0]:g}/s alone it is {alone:.2f}"
                note = (
                    f"{loads}/s, best window at each, mean: {ours:.2f} by {german:.2f}. The paper has no number, and "
                    "says that the effect remains. The lengths follow from parallel treebanks (workload/lengths.py)"
                )
                claims.append(
                    Claim(
                        "VI-C, pairs",
                        f"{network}, {pair}: {what}, by that of English to German",
                        1,
                        ours / german,
                        "x",
                        note,
                        cause=cause,
                    )
                )
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    return claims


def figure_cellular(rows: Sequence[Row], folder: Path) -> list[Claim]:
    runs = Runs(rows)
    ratios = [
        runs.mean("mean_ms", policy="cellular", rate_rps=rate)
        / runs.mean("mean_ms", policy="graph", window_ms=0, rate_rps=rate)
        for rate in runs.rates()
    ]
    by_load = ", ".join(f"{rate:g}/s {ratio:.4f}" for rate, ratio in zip(runs.rates(), ratios, strict=True))
    what = f"{STATIC_NETWORK}: latency, cellular / GraphB without a window"
    return [Claim("VI, cellular", what, 1, float(np.mean(ratios)), "x", f"mean over loads: {by_load}")]


def named(network: str, pair: str) -> str:
    """Return the name under which a network stands in the rows, for a pair of languages; "" is English to German."""
    return f"{network}, {pair}" if pair else network


REPORTS = {"pairs": figure_pairs, "cellular": figure_cellular}
