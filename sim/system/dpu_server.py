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

from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np

from headrace.batching.errors import UsageError
from headrace.sim.hardware.dpu.audio import mel_cu_cycles, norm_cycles
from headrace.sim.hardware.inputs import HOP, MELS, Inputs, KnownImage, Values
from headrace.sim.hardware.pcie import A100_LINK, FPGA_LINK, Link, from_device, peer_to_peer, to_device
from headrace.sim.preprocessing import Preprocessor, Step

CLOCK_HZ: Final = 300e6  # XRT's default for kernels on these cards; nothing here is placed or routed
START_S: Final = {"kernel": 75e-6, "queue": 5e-6}
MAX_CUS: Final = 64
UNITS: Final = ("image cu", "mel cu", "norm cu")  # the steps that are on the card
SHORT_HOPS: Final = 10  # with more hops, only the number of samples changes the clocks of mel


def dpu_preprocessor(
    kind: str,
    cus: int,
    norm_cus: int | None = None,
    *,
    clock_hz: float = CLOCK_HZ,
    start: str = "kernel",
    to_gpu: str = "host",
    images: tuple[KnownImage, ...] = (),
    link: Link = FPGA_LINK,
    gpu_link: Link = A100_LINK,
) -> Preprocessor:
    """Return a preprocessor of compute units on a card, with the transfers before and after them.

    Args:
        kind: "image" or "audio".
        cus: The number of image CUs, or of CUs A for audio.
        norm_cus: The number of CUs B for audio; None for as many as CUs A.
        clock_hz: The clock of the CUs.
        start: How a run is started, one of START_S.
        to_gpu: The way of tensors: through the "host", or peer to peer ("p2p").
        images: Images at hand, if sizes are numbers of these.
        link: The PCIe link of the card.
        gpu_link: The PCIe link of the GPU.

    Raises:
        UsageError: A setting is out of range.
    """
    inputs = Inputs(kind, images)
    if kind == "image" and norm_cus is not None:
        raise UsageError("image CUs do all of an image: give one number of CUs")
    norms = cus if norm_cus is None else norm_cus
    counts = (cus,) if kind == "image" else (cus, norms)
    if not all(1 <= count <= MAX_CUS for count in counts):
        raise UsageError(f"{' and '.join(map(str, counts))} CUs; give 1 to {MAX_CUS} of each kind")
    if not 1e6 <= clock_hz <= 1e9:
        raise UsageError(f"a clock of {clock_hz:g} Hz; give 1e6 to 1e9")
    if start not in START_S:
        raise UsageError(f"start {start!r} of a CU; choose from {', '.join(START_S)}")
    if to_gpu not in ("host", "p2p"):
        raise UsageError(f"way to the GPU {to_gpu!r}; choose host or p2p")
    start_s = START_S[start]

    def image_cu(sizes: Values) -> Values:
        return start_s + inputs.image_clocks(sizes) / clock_hz

    def mel_cu(sizes: Values) -> Values:
        return start_s + mel_clocks(inputs, sizes) / clock_hz

    def norm_cu(sizes: Values) -> Values:
        return start_s + norm_clocks(inputs, sizes) / clock_hz

    if kind == "image":
        units: tuple[Step, ...] = (Step(UNITS[0], cus, image_cu),)
    else:
        units = (Step(UNITS[1], cus, mel_cu), Step(UNITS[2], norms, norm_cu))
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


def mel_clocks(inputs: Inputs, sizes: Values) -> Values:
    """Return the clocks of audio_mel_cu by seconds of audio at 16 kHz.

    They equal `mel_cu_cycles` exactly. There, every further hop adds one clock for each sample, so that few lengths
    have to be computed."""
    samples = inputs.samples(sizes)
    short = np.minimum(samples, SHORT_HOPS * HOP + samples % HOP)
    return _each(_mel_clocks, short) + samples - short


def norm_clocks(inputs: Inputs, sizes: Values) -> Values:
    """Return the clocks of audio_norm_cu by seconds of audio: `norm_cycles`, kept for each number of frames."""
    return _each(_norm_clocks, inputs.frames(sizes))


@cache
def _mel_clocks(samples: int) -> int:
    return mel_cu_cycles(samples)


@cache
def _norm_clocks(frames: int) -> int:
    return norm_cycles(frames, MELS)


def _each(clocks: Callable[[int], int], counts: Values) -> Values:
    different, places = np.unique(counts, return_inverse=True)
    return np.array([clocks(int(count)) for count in different], np.float64)[places]
