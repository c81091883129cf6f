"""Power of a server by the utilization of its parts, and the energy of a run.

A part takes `idle_w` when it does nothing and `busy_w` at full utilization, with a straight line between the two. The
power of servers follows utilization in this way (Fan, Weber, Barroso, ISCA 2007). As it is a line, the energy of a run
follows from each part's average utilization.

Sources of the watts (idle, busy):

- EPYC 7502: a package of its generation idles at 65 W (AnandTech, review of EPYC 7003, which compares); TDP of 180 W.
- GPUs: idle is the power that nvidia-smi shows of a GPU on which nothing runs, in listings in public repositories. A
  CUDA context adds 26 to 50 W on HBM GPUs (arXiv 2605.23918, which has an A100 and an H100; the lower is taken to be
  the A100's). A100-40GB on PCIe 31 W (MIG on), on SXM 43 W, H100 70 W, H200 75 W; A100-80GB as that of 40 GB on SXM.
  Busy is the board power of NVIDIA's data sheets. The paper does not say which A100 it has; "a100-40gb" is on PCIe.
- Alveo U55C: 115 W is the typical power of AMD's product page, 150 W the maximum. Idle is an assumption: twice the 17.4
  W that a U50 shows (XRT pull request 5184), whose FPGA has some half of the logic.
- The rest of the node, 80 W always, is an assumption: eight DIMMs at 4 W, fans, drives, network, and the loss of power
  supplies.

Networks of this size do not take a GPU to its board power, even when it is always at work. So the energy of a busy GPU
is rather too much.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.gpu.mig import Gpu, Instance


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a server with its power (W) when idle and when busy. Raises UsageError unless 0 <= idle <= busy."""

    name: str
    idle_w: float
    busy_w: float

    def __post_init__(self) -> None:
        if not 0 <= self.idle_w <= self.busy_w < 1e6:
            raise UsageError(f"{self.name}: {self.idle_w:g} W idle and {self.busy_w:g} W busy; give 0 <= idle <= busy")

    def power_w(self, utilization: float) -> float:
        """Return the power at a utilization of 0 to 1. Raises UsageError for any other."""
        if not 0 <= utilization <= 1:
            raise UsageError(f"{self.name} is used to {utilization:g}; utilization is 0 to 1")
        return self.idle_w + (self.busy_w - self.idle_w) * utilization


CPU: Final = Part("cpu", 65, 180)
FPGA: Final = Part("fpga", 35, 115)
NODE: Final = Part("node", 80, 80)
GPU_PARTS: Final[Mapping[str, Part]] = {
    "a100-40gb": Part("gpu", 57, 250),
    "a100-40gb-sxm": Part("gpu", 69, 400),
    "a100-80gb": Part("gpu", 69, 400),
    "h100": Part("gpu", 120, 700),
    "h200": Part("gpu", 125, 700),
}


@dataclass(frozen=True, slots=True)
class Server:
    """The parts of a server. No two have the same name. Raises UsageError."""

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if not names or len(set(names)) < len(names):
            raise UsageError("a server needs one part or more, each with a different name")

    def power_w(self, utilization: Mapping[str, float]) -> dict[str, float]:
        """Return the power of each part at its `utilization`. Parts that are not named are idle.

        Raises UsageError for a part that the server does not have."""
        unknown = sorted(set(utilization) - {part.name for part in self.parts})
        if unknown:
            raise UsageError(f"no part {', '.join(unknown)}; there are {', '.join(part.name for part in self.parts)}")
        return {part.name: part.power_w(utilization.get(part.name, 0.0)) for part in self.parts}

    def energy_j(self, utilization: Mapping[str, float], seconds: float) -> dict[str, float]:
        """Return the energy of each part over `seconds`, by its average `utilization`. Raises UsageError for a negative
        time."""
        if not 0 <= seconds < float("inf"):
            raise UsageError(f"energy over {seconds:g} s; give 0 or more")
        return {name: watts * seconds for name, watts in self.power_w(utilization).items()}


def server(gpu: str, *, fpga: bool, cpus: int = 1) -> Server:
    """Return PREBA's server (Section 5) with a GPU of GPU_PARTS, this many CPUs, and a DPU or none.

    Raises UsageError for a GPU whose power is not known."""
    if gpu not in GPU_PARTS:
        raise UsageError(f"the power of {gpu!r} is not known; choose from {', '.join(GPU_PARTS)}")
    cpu = Part(CPU.name, cpus * CPU.idle_w, cpus * CPU.busy_w)
    return Server((cpu, GPU_PARTS[gpu], *((FPGA,) if fpga else ()), NODE))


def gpu_utilization(gpu: Gpu, instances: Sequence[Instance], busy: Iterable[float]) -> float:
    """Return the utilization of a whole GPU, by the share of time for which each of its instances is at work.

    Raises UsageError unless there is one share of 0 to 1 for each instance."""
    shares = list(busy)
    if len(shares) != len(instances) or not all(0 <= share <= 1 for share in shares):
        raise UsageError("each instance of a GPU is busy for a share of the time, 0 to 1")
    return sum(each.profile.sms * share for each, share in zip(instances, shares, strict=True)) / gpu.sms


def energy_a_request_j(power_w: Mapping[str, float], throughput_rps: float) -> float:
    """Return the energy of one request. Its reciprocal is the performance per watt. Raises UsageError if nothing was
    served."""
    if not throughput_rps > 0:
        raise UsageError("nothing was served, so there is no energy per request: lower the load or simulate longer")
    return sum(power_w.values()) / throughput_rps
