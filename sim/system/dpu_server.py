"""The DPU as a server of requests: an Alveo card in the host, with compute units (CUs) by the cycle models.

A request's file crosses PCIe into the card's memory, and a CU takes it. Its tensor goes to the host and from there to
the GPU (PREBA, Section 4.2), or straight to the GPU. One CU does all of an image. Audio passes CU A (resample and mel)
and CU B (normalize), each with its own start, so that A has the next request while B finishes this one.

A run of a CU has to be started. With "kernel", the runtime starts it when it knows that the run before has ended, and
the CU stands still meanwhile. That takes 50 to 100 us on an Alveo U55C with XRT 2022.1 (Xilinx/XRT issue 8687); the
model takes the middle. All CUs of this project have `ap_ctrl_chain`, which takes the arguments of the next run during
the current one. With "queue", starts are queued in that way. One write to a register over PCIe is left, some 5 us (XRT
issue 6590). It is charged to each run although a busy CU hides it.
"""

from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.inputs import Inputs
from headrace.sim.hardware.pcie import A100_LINK, FPGA_LINK, Link, from_device, peer_to_peer, to_device
from headrace.sim.preprocessing import Preprocessor, Step

CLOCK_HZ: Final = 300e6  # XRT's default for kernels on these cards; nothing here is placed or routed
START_S: Final = {"kernel": 75e-6, "queue": 5e-6}
MAX_CUS: Final = 64


def dpu_preprocessor(
    inputs: Inputs,
    cus: int,
    norm_cus: int | None = None,
    *,
    clock_hz: float = CLOCK_HZ,
    start: str = "kernel",
    to_gpu: str = "host",
    link: Link = FPGA_LINK,
    gpu_link: Link = A100_LINK,
) -> Preprocessor:
    """Return a preprocessor of compute units on a card, with the transfers before and after them.

    Args:
        inputs: The inputs.
        cus: The number of image CUs, or of CUs A for audio.
        norm_cus: The number of CUs B for audio; None for as many as CUs A.
        clock_hz: The clock of the CUs.
        start: How a run is started, one of START_S.
        to_gpu: The way of tensors: through the "host", or peer to peer ("p2p").
        link: The PCIe link of the card.
        gpu_link: The PCIe link of the GPU.

    Raises:
        UsageError: A setting is out of range.
    """
    clocks = inputs.clocks
    if len(clocks) == 1 and norm_cus is not None:
        raise UsageError("image CUs do all of an image: give one number of CUs")
    counts = (cus, cus if norm_cus is None else norm_cus)[: len(clocks)]
    if not all(1 <= count <= MAX_CUS for count in counts):
        raise UsageError(f"{' and '.join(map(str, counts))} CUs; give 1 to {MAX_CUS} of each kind")
    if not 1e6 <= clock_hz <= 1e9:
        raise UsageError(f"a clock of {clock_hz:g} Hz; give 1e6 to 1e9")
    if start not in START_S:
        raise UsageError(f"start {start!r} of a CU; choose from {', '.join(START_S)}")
    if to_gpu not in ("host", "p2p"):
        raise UsageError(f"way to the GPU {to_gpu!r}; choose host or p2p")

    def unit(name: str, count: int) -> Step:
        return Step(name, count, lambda sizes: START_S[start] + clocks[name](sizes) / clock_hz)

    units = tuple(map(unit, clocks, counts))
    if to_gpu == "p2p":
        last: tuple[Step, ...] = (to_device("dpu to gpu", peer_to_peer(link, gpu_link), inputs.tensor_bytes),)
    else:
        last = (
            from_device("dpu to host", link, inputs.tensor_bytes),
            to_device("host to gpu", gpu_link, inputs.tensor_bytes),
        )
    name = f"dpu:{cus}" if norm_cus is None else f"dpu:{cus},{norm_cus}"
    settings = [word for word in (start, to_gpu) if word not in ("kernel", "host")]
    return Preprocessor(":".join([name, *settings]), (to_device("host to dpu", link, inputs.file_bytes), *units, *last))
