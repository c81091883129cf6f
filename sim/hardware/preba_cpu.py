"""The seconds that PREBA's CPU spends on preprocessing, derived from the numbers that the paper prints.

The paper (arXiv 2411.19114) gives no time for an image or a clip. Each row of `derivation` says whether the paper
prints a number, or how it follows from others.
"""

from dataclasses import dataclass
from typing import Final

from headrace.sim.hardware.cpu import AudioCost, CpuCosts, ImageCost
from headrace.sim.hardware.dpu.audio import HOP
from headrace.sim.hardware.inputs import IMAGE_TENSOR_BYTES, MEL_BYTES, MELS, SAMPLE_RATE, TYPICAL_FILE_BYTES

# ---- the paper's numbers ----
CORES: Final = 32  # Section 5: an AMD EPYC 7502
IMAGE_PCIE_BYTES_S: Final = 6.13e9  # Section 4.2, MobileNet, between CPU and DPU
AUDIO_PCIE_BYTES_S: Final = 0.9e9  # Section 4.2, CitriNet
CITRINET_CORES: Final = 393  # Section 3.3: the cores that keep up with 1g.5gb(7x)
CLIP_S: Final = 2.5  # Section 3, "fixed at 2.5 sec"
LOST_BY_CPU: Final = 0.756  # Section 3.3, Fig. 8: the lost share of 1g.5gb(7x)'s throughput, on average over six models
SERVERS: Final = 7  # the processes of 1g.5gb(7x) that launch kernels; a core is kept for each
# ---- ours ----
# Samples go to the DPU as float32 at 22,050 Hz, as librosa loads them by default. These are as many bytes as 16 bits at
# 44.1 kHz.
CLIP_SAMPLE_RATE: Final = 22050
CLIP_SAMPLE_BYTES: Final = 4


def images_per_s() -> float:
    """Return the images/s of Section 4.2's traffic. Each image moves its file to the DPU and a float32 tensor back."""
    return IMAGE_PCIE_BYTES_S / (TYPICAL_FILE_BYTES + IMAGE_TENSOR_BYTES)


def clips_per_s(sample_rate: int = CLIP_SAMPLE_RATE, sample_bytes: int = CLIP_SAMPLE_BYTES) -> float:
    """Return the clips/s of Section 4.2's traffic. Each clip moves its samples to the DPU and the float32 mel
    spectrogram of 16 kHz back."""
    frames = int(CLIP_S * SAMPLE_RATE) // HOP + 1
    return AUDIO_PCIE_BYTES_S / (CLIP_S * sample_rate * sample_bytes + frames * MELS * MEL_BYTES)


def clip_core_s() -> float:
    """Return the seconds of one core for a clip: 393 cores keep up with the clips that cross PCIe."""
    return CITRINET_CORES / clips_per_s()


def image_core_s(taken: int = SERVERS) -> float:
    """Return the seconds of one core for an image, with `taken` of the 32 cores at other work.

    The paper prints no number of cores for images. So the average loss over six models is taken for that of MobileNet,
    whose rate follows from PCIe. What this cost says of that average is therefore circular."""
    return (CORES - taken) / ((1 - LOST_BY_CPU) * images_per_s())


PAPER_IMPLIED: Final = CpuCosts(
    "paper-implied",
    ImageCost(image_core_s()),
    AudioCost(0.0, clip_core_s() / CLIP_S),
    "derived from numbers of the PREBA paper; see `derivation` in sim/hardware/preba_cpu.py",
)


@dataclass(frozen=True, slots=True)
class Derived:
    """A number of the derivation: whether the paper prints it, and how it follows."""

    what: str
    value: float
    unit: str
    printed: bool
    how: str


def derivation() -> tuple[Derived, ...]:
    """Return the steps from the paper's numbers to PAPER_IMPLIED, in order."""
    int16 = clips_per_s(SAMPLE_RATE, 2)
    return (
        Derived("PCIe, MobileNet", IMAGE_PCIE_BYTES_S / 1e9, "GB/s", True, "Section 4.2"),
        Derived("PCIe, CitriNet", AUDIO_PCIE_BYTES_S / 1e9, "GB/s", True, "Section 4.2"),
        Derived("cores for CitriNet", CITRINET_CORES, "cores", True, "Section 3.3, Fig. 8"),
        Derived("lost by CPU preprocessing", 100 * LOST_BY_CPU, "%", True, "Section 3.3, Fig. 8, mean of six models"),
        Derived(
            "images",
            images_per_s(),
            "images/s",
            False,
            f"PCIe / ({TYPICAL_FILE_BYTES / 1e3:.0f} KB of file + {IMAGE_TENSOR_BYTES / 1e3:.0f} KB of float32)",
        ),
        Derived(
            "clips of 2.5 s",
            clips_per_s(),
            "clips/s",
            False,
            f"PCIe / (float32 at {CLIP_SAMPLE_RATE} Hz + 80 x 251 float32); with 16 bits at 16 kHz it were {int16:.0f}",
        ),
        Derived("CPU, a clip of 2.5 s", 1e3 * clip_core_s(), "ms", False, "cores / clips a second"),
        Derived(
            "CPU, a photo",
            1e3 * image_core_s(),
            "ms",
            False,
            f"{CORES} cores, less {SERVERS} for server processes, / {100 - 100 * LOST_BY_CPU:.1f} % of the images a "
            "second: the six models' average loss taken for MobileNet's",
        ),
    )
