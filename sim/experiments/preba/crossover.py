"""Compare servers with a DPU to servers with more or faster cores, to find where a DPU pays.

A server of the map has one GPU in seven slices and all requests waiting, so that its slowest stage decides. One axis is
the time that a core takes for a request, and the other one the cores of the server. A DPU pays in throughput, energy or
dollars where its server serves more requests a second, a joule or a dollar. The libraries of `hardware.cpu` are points
of the first axis. Networks are the fastest of PREBA's for images and for audio, which ask the most of preprocessing.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from headrace.sim.experiments.preba.conditions import AUDIO_NETWORKS, CPU_CORES, GPU, IMPLIED, SATURATING_RPS, SEVENTHS
from headrace.sim.hardware.cpu import AudioCost, CpuCosts, ImageCost
from headrace.sim.hardware.inputs import TYPICAL_PIXELS, usual
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
from headrace.sim.system.preprocessors import COSTS

IMAGES: Final = "mobilenet_v3_small"
AUDIO: Final = "conformer_small"
# Pixels of an image, and seconds of a clip.
SIZES: Final = {IMAGES: (float(TYPICAL_PIXELS), 1e6, 4e6), AUDIO: (2.5, 10.0, 30.0)}
# As many compute units as keep up with the slices, or with the card's link, at the smallest size.
UNITS: Final = {IMAGES: "dpu:10", AUDIO: "dpu:4"}
CORES: Final = (
    8,
    12,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
)  # seven of them launch kernels; each 32 beyond the first 32 are a further CPU
COSTS_A_SIZE: Final = 25
CORE_MS: Final = {
    model: tuple(float(f"{ms:.3g}") for ms in np.geomspace(low, high, COSTS_A_SIZE))
    for model, (low, high) in {IMAGES: (0.2, 200), AUDIO: (0.5, 500)}.items()
}
LIBRARIES: Final = {
    IMAGES: ("ours", "opencv", "pillow", "torchvision", IMPLIED),
    AUDIO: ("ours", "librosa", "librosa-kaiser_best", IMPLIED),
}
GRID: Final = "grid"  # the label of costs that are no library's
DPU: Final = "dpu"
MORE: Final = 1.05  # a DPU pays in throughput from 5 % more on, as that of the slices is the same for all
METRICS: Final = ("throughput", "energy", "dollars")


@dataclass(frozen=True, slots=True)
class Case:
    """A server of the map.

    Attributes:
        model: The network.
        size: Pixels of every image, or seconds of every clip.
        label: DPU, GRID, or the label of a library's costs.
        cores: Cores of the server.
        core_ms: The time of a core for a request, for GRID; else 0.
        requests: The requests of the run.
    """

    model: str
    size: float
    label: str
    cores: int
    core_ms: float
    requests: int


@dataclass(frozen=True, slots=True)
class Served:
    """The rates of a server of the map. The first fields are those of `Case`.

    `core_ms` is the time of a core for a request by its costs; 0 for a DPU."""

    model: str
    size: float
    label: str
    cores: int
    core_ms: float
    throughput_rps: float
    requests_per_j: float
    requests_per_usd: float


def cases(requests: int, every: int) -> list[Case]:
    """Return the servers of the map, with every `every`-th cost of a core, and the last one."""
    found = []
    for model, sizes in SIZES.items():
        costs = CORE_MS[model]
        chosen = sorted({*costs[::every], costs[-1]})
        for size in sizes:
            found.append(Case(model, size, DPU, CPU_CORES, 0.0, requests))
            found += [Case(model, size, label, CPU_CORES, 0.0, requests) for label in LIBRARIES[model]]
            found += [Case(model, size, GRID, cores, ms, requests) for cores in CORES for ms in chosen]
    return found


def served(case: Case) -> Served:
    preprocess = UNITS[case.model] if case.label == DPU else f"cpu:{case.cores}:{case.label}"
    settings: dict[str, Any] = {"model": case.model, "accelerator": GPU, "partition": SEVENTHS, "policy": "preba"}
    settings |= {"lengths": f"{case.size:g}"} if case.model in AUDIO_NETWORKS else {"image_pixels": int(case.size)}
    settings |= {"preprocess": preprocess, "strict": True, "rate_rps": SATURATING_RPS, "requests": case.requests}
    with TemporaryDirectory() as folder:
        if case.label == GRID:
            path = Path(folder) / "costs.json"
            seconds = case.core_ms / 1e3
            path.write_text(CpuCosts(GRID, ImageCost(seconds), AudioCost(seconds, 0.0), "the map").to_json())
            settings["cpu_costs"] = str(path)
        result: dict[str, Any] = run_scenario(Scenario.of(**settings))[0].result
    return Served(
        case.model,
        case.size,
        case.label,
        case.cores,
        case.core_ms if case.label in (GRID, DPU) else library_ms(case.model, case.size, case.label),
        result["throughput_rps"],
        1 / result["energy_per_request_j"],
        result["cost"]["requests_per_usd"],
    )


def library_ms(model: str, size: float, label: str) -> float:
    """Return the time of a core (ms) that a library takes for an image of `size` pixels, or for `size` seconds."""
    costs = next(costs for costs in COSTS if costs.label == label)
    inputs = usual("audio" if model in AUDIO_NETWORKS else "image")
    return 1e3 * float(costs.seconds(inputs, np.array([size]))[0])


class Map:
    """The ratios of the DPU's server to the others, found by their fields."""

    def __init__(self, rows: Iterable[Served]) -> None:
        self.rows = list(rows)
        self._dpu = {(row.model, row.size): row for row in self.rows if row.label == DPU}

    def dpu(self, model: str, size: float) -> Served:
        return self._dpu[model, size]

    def of(self, model: str, size: float, label: str) -> Iterator[Served]:
        return (row for row in self.rows if (row.model, row.size, row.label) == (model, size, label))

    def ratio(self, row: Served, metric: str) -> float:
        """Return what the DPU's server does for each request of this one, a second, a joule or a dollar."""
        name = {"throughput": "throughput_rps", "energy": "requests_per_j", "dollars": "requests_per_usd"}[metric]
        return float(getattr(self.dpu(row.model, row.size), name) / getattr(row, name))

    def costs_ms(self, model: str) -> list[float]:
        return sorted({row.core_ms for row in self.rows if row.model == model and row.label == GRID})

    def ratios(self, model: str, size: float, metric: str) -> tuple[Sequence[int], list[float], Any]:
        """Return the cores, the costs (ms) and the ratios, shape (cores, costs)."""
        costs = self.costs_ms(model)
        table = np.full((len(CORES), len(costs)), math.nan)
        for row in self.of(model, size, GRID):
            table[CORES.index(row.cores), costs.index(row.core_ms)] = self.ratio(row, metric)
        return CORES, costs, table

    def pays_from_ms(self, model: str, size: float, cores: int, metric: str) -> float:
        """Return the cost of a request (ms of a core) from which a DPU pays beside so many cores.

        It is interpolated on logarithms of costs and ratios. It is 0 where a DPU pays at the least cost of the map, and
        infinite where it does at none."""
        _, costs, table = self.ratios(model, size, metric)
        over = np.log(table[CORES.index(cores)] / (MORE if metric == "throughput" else 1.0))
        if over[0] >= 0:
            return 0.0
        for left in range(len(costs) - 1):
            if over[left] < 0 <= over[left + 1]:
                share = -over[left] / (over[left + 1] - over[left])
                low, high = math.log(costs[left]), math.log(costs[left + 1])
                return math.exp(low + share * (high - low))
        return math.inf
