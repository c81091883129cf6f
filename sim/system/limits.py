"""How many images a second one Alveo U55C can preprocess, and which limit it reaches first.

The cells of the card (`card.USABLE` of them) or its memory ports limit the number of compute units. Each AXI master of
a unit takes one of the HBM's 32 ports (AMD PG276). An image holds its unit for its clocks. Where the host starts a run
for each image, it also holds it for the launch: 50 to 100 us on a U55C (Xilinx/XRT issue 8687). All units share PCIe,
each direction by itself (pcie.py): files go to the card, tensors from it. The limit of the host's own threads is not
included.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.inputs import IMAGE_TENSOR_BYTES
from headrace.sim.hardware.pcie import FPGA_LINK
from headrace.sim.system.card import HBM_PORTS, U55C, USABLE

LAUNCHES_S: Final = (0.0, 50e-6, 100e-6)  # 0: no launch for an image, as with a queue in device memory
TENSOR_BYTES: Final = {
    "float32": IMAGE_TENSOR_BYTES,
    "float16": IMAGE_TENSOR_BYTES // 2,
    "int8": IMAGE_TENSOR_BYTES // 4,
}


@dataclass(frozen=True, slots=True)
class Other:
    """Another JPEG decoder, with the source of its rate."""

    name: str
    images_s: float
    of: str
    source: str


# Files and sizes differ, and only ours resizes, crops and normalizes. The table shows an order, and no race.
OTHERS: Final = (
    Other("Vitis jpegDecoder, 1 unit", 1148, "512x512, no RGB; 243 MHz, 24.6 k LUT, 39 DSP", "Vitis Libraries, codec"),
    Other("libjpeg-turbo, a core", 860, "Zen 5, files not named", "a figure given to this project, not measured here"),
    Other("A100, its JPEG engine", 5000, "ImageNet, pipeline", "NVIDIA/DALI issue 5362"),
    Other("A100, engine and CUDA", 7000, "ImageNet, pipeline", "NVIDIA/DALI issue 5362"),
)


@dataclass(frozen=True, slots=True)
class Cu:
    """One compute unit: its cells by kind, AXI masters, and clocks from start to start of an image."""

    cells: Mapping[str, float]
    masters: int
    cycles: float
    clock_hz: float

    def images_s(self, launch_s: float) -> float:
        return 1 / (self.cycles / self.clock_hz + launch_s)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of the card. `cus` compute units fit by `name`; it is None where the limit is not one of units."""

    name: str
    images_s: float
    cus: int | None = None


def cus_for(rate: float, cu: Cu, launch_s: float) -> int:
    """Return the number of compute units that reach a rate in images/s. Raises UsageError for a rate of 0 or less."""
    if not 0 < rate < float("inf") or not 0 <= launch_s < float("inf"):
        raise UsageError("a rate in images/s is above 0, and a launch takes 0 s or more")
    # The tolerance is for rounding: a count that misses the rate by the last place of a float reaches it.
    return math.ceil(rate / cu.images_s(launch_s) * (1 - 1e-12))


def limits(cu: Cu, launch_s: float, jpeg_bytes: float, tensor_bytes: float) -> list[Limit]:
    """Return each limit of the card for images and tensors of these sizes. The one that binds comes first."""
    max_cus = {
        kind.upper(): math.floor(USABLE * have / cu.cells[kind]) for kind, have in U55C.items() if cu.cells[kind]
    }
    max_cus["HBM ports"] = HBM_PORTS // cu.masters
    every_limit = [Limit(name, cus * cu.images_s(launch_s), cus) for name, cus in max_cus.items()]
    every_limit.append(Limit("PCIe in", 1 / (FPGA_LINK.latency_s + jpeg_bytes / FPGA_LINK.to_device)))
    every_limit.append(Limit("PCIe out", 1 / (FPGA_LINK.latency_s + tensor_bytes / FPGA_LINK.from_device)))
    return sorted(every_limit, key=lambda limit: limit.images_s)
