"""PCIe: the time to move a request's bytes.

A transfer takes a fixed time, in which the driver sets it up and hears of its end, and a time in proportion to its
bytes. This gives the rate of long transfers and the latency of short ones. XRT's own test of an Alveo U280 has 11 to 12
GB/s in large buffers. With 40,960 bytes it has 2.96 to 2.99 GB/s to the card and 2.3 to 3.2 GB/s from it (Xilinx/XRT
issue 6787). At 3.0 GB/s these bytes take 13.7 us, of which the link needs 3.4 to 3.7. An Alveo U55C has the same Gen3
x16 shell (xilinx_u55c_gen3x16_xdma, AMD UG1120). `xrt::bo::sync` of a small buffer takes 19 us on a U25 (XRT issue
6590).

Each device has its own link to the host, because servers with one EPYC have lanes for all of them. A link carries both
directions at once. A direction makes one transfer after the other, set-up included. XDMA's two channels a direction
could overlap one set-up with the bytes of another, so the model is rather slow for short transfers. The whole way of a
tensor to the GPU is here. Where a batch's latency begins with a copy of its own (`Host` of gpu/slice.py), leave that
copy out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.inputs import Values
from headrace.sim.preprocessing import Step


@dataclass(frozen=True, slots=True)
class Link:
    """A link with its set-up time (s) and its rates `to_device` and `from_device` (bytes/s). Raises UsageError for
    values that cannot be."""

    latency_s: float
    to_device: float
    from_device: float

    def __post_init__(self) -> None:
        if not (0 <= self.latency_s < 1 and 0 < self.to_device < float("inf") and 0 < self.from_device < float("inf")):
            raise UsageError("a link takes a latency of 0 to 1 s and rates above 0 bytes/s")


FPGA_LINK: Final = Link(10e-6, 11e9, 12e9)
# PCIe 4.0 x16 to an A100 has 24.8 GB/s each way by nvbandwidth (NVIDIA's developer forum, topic 352186). Its set-up is
# assumed to take as long as XRT's, which is on the safe side. Hopper has Gen5, with twice the rate.
A100_LINK: Final = Link(10e-6, 24.8e9, 24.8e9)
HOPPER_LINK: Final = Link(10e-6, 2 * 24.8e9, 2 * 24.8e9)


def gpu_link(gpu: str) -> Link:
    """Return the link of a GPU, by its name in `mig.GPUS`."""
    return HOPPER_LINK if gpu.startswith("h") else A100_LINK


def peer_to_peer(source: Link, target: Link) -> Link:
    """Return the link from device to device without the host's memory (XRT's P2P maps a card's memory).

    A transfer is made once, as fast as the slower of both links."""
    rate = min(source.from_device, target.to_device)
    return Link(max(source.latency_s, target.latency_s), rate, rate)


def transfer(name: str, latency_s: float, bytes_s: float, size: Callable[[Values], Values]) -> Step:
    """Return the step of one direction of a link. `size` returns the bytes of each request."""

    def seconds(sizes: Values) -> Values:
        return latency_s + size(sizes) / bytes_s

    return Step(name, 1, seconds)


def to_device(name: str, link: Link, size: Callable[[Values], Values]) -> Step:
    return transfer(name, link.latency_s, link.to_device, size)


def from_device(name: str, link: Link, size: Callable[[Values], Values]) -> Step:
    return transfer(name, link.latency_s, link.from_device, size)
