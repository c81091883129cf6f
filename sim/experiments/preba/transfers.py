"""The time that a tensor takes from the DPU over the host to the GPU (PREBA, Section 4.2).

The paper says that this way takes tens of microseconds, and an inference milliseconds. Both hops are those of
sim/hardware/pcie.py. Nothing waits for the link.
"""

import numpy as np

from headrace.sim.experiments.preba.conditions import MEANS_S
from headrace.sim.experiments.report import Claim
from headrace.sim.hardware.inputs import TYPICAL_PIXELS, usual
from headrace.sim.hardware.pcie import A100_LINK, FPGA_LINK, from_device, peer_to_peer, to_device

CASES = {"image": float(TYPICAL_PIXELS), **{f"clip of {name}": seconds for name, seconds in MEANS_S.items()}}


def way_to_gpu_us(kind: str, size: float) -> tuple[float, float, float]:
    """Return the microseconds of both hops of a tensor over the host, and of the one hop from device to device."""
    tensor_bytes = usual(kind).tensor_bytes
    steps = (
        from_device("dpu to host", FPGA_LINK, tensor_bytes),
        to_device("host to gpu", A100_LINK, tensor_bytes),
        to_device("dpu to gpu", peer_to_peer(FPGA_LINK, A100_LINK), tensor_bytes),
    )
    first, second, direct = (1e6 * float(step.service_s(np.array([size]))[0]) for step in steps)
    return first, second, direct


def transfers() -> list[Claim]:
    """Return two bounds for each kind of input: more than 10 us, and less than 100."""
    claims = []
    for case, size in CASES.items():
        first, second, direct = way_to_gpu_us("image" if case == "image" else "audio", size)
        note = (
            f"DPU to host {first:.1f} us and host to GPU {second:.1f} us, each with 10 us of set-up; the paper says "
            f"tens of microseconds. From device to device {direct:.1f} us"
        )
        what = f"PCIe, DPU to CPU to GPU, {case}"
        claims += [Claim("4.2", what, limit, first + second, "us", note, way) for limit, way in ((10, ">"), (100, "<"))]
    return claims
