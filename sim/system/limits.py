"""How many photos a second one Alveo U55C can preprocess, and what ends it first.

Compute units stop at the card's cells (`card.USABLE` of them) or at its memory ports: each AXI master of a unit takes
one of the HBM's 32 (AMD PG276). A photo holds its unit for its clocks and, where the host starts a run for each, for
the launch: 50 to 100 us on a U55C (Xilinx/XRT issue 8687). All units share PCIe, each direction by itself (pcie.py):
files go to the card, tensors from it. What the host's own threads manage is not in it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.inputs import IMAGE_TENSOR_BYTES
from headrace.sim.hardware.pcie import FPGA_LINK
from headrace.sim.system.card import HBM_PORTS, U55C, USABLE

LAUNCHES_S: Final = (0.0, 50e-6, 100e-6)  # 0: none for a photo, as from a queue in device memory
TENSOR_BYTES: Final = {
    "float32": IMAGE_TENSOR_BYTES,
    "float16": IMAGE_TENSOR_BYTES // 2,
    "int8": IMAGE_TENSOR_BYTES // 4,
}


@dataclass(frozen=True, slots=True)
class Other:
    """What decodes JPEG elsewhere, with where that is written."""

    name: str
    images_s: float
    of: str
    source: str


# Files and sizes differ, and none but ours resizes, crops and normalizes: a place in the order, not a race.
OTHERS: Final = (
    Other("Vitis jpegDecoder, 1 unit", 1148, "512x512, no RGB; 243 MHz, 24.6 k LUT, 39 DSP", "Vitis Libraries, codec"),
    Other("libjpeg-turbo, a core", 860, "Zen 5, files not named", "a figure given to this project, not measured here"),
    Other("A100, its JPEG engine", 5000, "ImageNet, pipeline", "NVIDIA/DALI issue 5362"),
    Other("A100, engine and CUDA", 7000, "ImageNet, pipeline", "NVIDIA/DALI issue 5362"),
)


@dataclass(frozen=True, slots=True)
class Cu:
    """One compute unit: its cells by kind, AXI masters, clocks from start to start of a photo."""

    cells: Mapping[str, float]
    masters: int
    cycles: float
    clock_hz: float

    def images_s(self, launch_s: float) -> float:
        return 1 / (self.cycles / self.clock_hz + launch_s)


@dataclass(frozen=True, slots=True)
class Limit:
    """`cus` compute units fit by `name`; None where the limit is not of units."""

    name: str
    images_s: float
    cus: int | None = None


def cus_for(rate: float, cu: Cu, launch_s: float) -> int:
    """Compute units that reach a rate in images/s. Raises UsageError."""
    if not 0 < rate < float("inf") or not 0 <= launch_s < float("inf"):
        raise UsageError("a rate in images/s is above 0, and a launch takes 0 s or more")
    # A count that reaches the rate but for the last place of a float reaches it.
    return math.ceil(rate / cu.images_s(launch_s) * (1 - 1e-12))


def limits(cu: Cu, launch_s: float, jpeg_bytes: float, tensor_bytes: float) -> list[Limit]:
    """Each limit of the card for photos of so many bytes and tensors of so many, the one that binds first in front."""
    most = {kind.upper(): math.floor(USABLE * have / cu.cells[kind]) for kind, have in U55C.items() if cu.cells[kind]}
    most["HBM ports"] = HBM_PORTS // cu.masters
    found = [Limit(name, cus * cu.images_s(launch_s), cus) for name, cus in most.items()]
    found.append(Limit("PCIe in", 1 / (FPGA_LINK.latency_s + jpeg_bytes / FPGA_LINK.to_device)))
    found.append(Limit("PCIe out", 1 / (FPGA_LINK.latency_s + tensor_bytes / FPGA_LINK.from_device)))
    return sorted(found, key=lambda limit: limit.images_s)
