"""What PREBA's numbers imply that its CPU spends on preprocessing, worked out from those the paper prints.

The paper (arXiv 2411.19114) gives no time for a photo or a clip. What follows from others of its numbers is a
derivation, and each row of `derivation` says which it is.
"""

from dataclasses import dataclass
from typing import Final

from headrace.sim.hardware.cpu import AudioCost, CpuCosts, ImageCost
from headrace.sim.hardware.inputs import HOP, IMAGE_TENSOR_BYTES, MEL_BYTES, MELS, SAMPLE_RATE, TYPICAL_FILE_BYTES

# ---- the paper's numbers ----
CORES: Final = 32  # Section 5: an AMD EPYC 7502
IMAGE_PCIE_BYTES_S: Final = 6.13e9  # Section 4.2, MobileNet, between CPU and DPU
AUDIO_PCIE_BYTES_S: Final = 0.9e9  # Section 4.2, CitriNet
CITRINET_CORES: Final = 393  # Section 3.3: that keep up with 1g.5gb(7x)
CLIP_S: Final = 2.5  # Section 3, "fixed at 2.5 sec"
LOST_BY_CPU: Final = 0.756  # Section 3.3, Fig. 8: of the throughput of 1g.5gb(7x), on average over six models
SERVERS: Final = 7  # of 1g.5gb(7x): processes that launch kernels, for each of which a core is kept
# ---- ours ----
# Samples go to the DPU as float32 at 22,050 Hz, what librosa loads by default (as many bytes as 16 bits at 44.1 kHz).
CLIP_SAMPLE_RATE: Final = 22050
CLIP_SAMPLE_BYTES: Final = 4


def images_per_s() -> float:
    """Each moves its file to the DPU and a float32 tensor back."""
    return IMAGE_PCIE_BYTES_S / (TYPICAL_FILE_BYTES + IMAGE_TENSOR_BYTES)


def clips_per_s(sample_rate: int = CLIP_SAMPLE_RATE, sample_bytes: int = CLIP_SAMPLE_BYTES) -> float:
    """Each moves its samples to the DPU and the float32 mel spectrogram of 16 kHz back."""
    frames = int(CLIP_S * SAMPLE_RATE) // HOP + 1
    return AUDIO_PCIE_BYTES_S / (CLIP_S * sample_rate * sample_bytes + frames * MELS * MEL_BYTES)


def clip_core_s() -> float:
    """Of one core, for a clip: 393 cores keep up with what crosses PCIe."""
    return CITRINET_CORES / clips_per_s()


def image_core_s(taken: int = SERVERS) -> float:
    """Of one core, for a photo. No number of cores is printed for images; so the average loss over six models is taken
    for that of MobileNet, whose rate follows from PCIe, with `taken` of the 32 cores at other work. What this cost says
    of that average is therefore circular."""
    return (CORES - taken) / ((1 - LOST_BY_CPU) * images_per_s())


PAPER_IMPLIED: Final = CpuCosts(
    "paper-implied",
    ImageCost(image_core_s()),
    AudioCost(0.0, clip_core_s() / CLIP_S),
    "derived from numbers of the PREBA paper; see `derivation` in sim/hardware/preba_cpu.py",
)


@dataclass(frozen=True, slots=True)
class Derived:
    """A number with whether the paper prints it, and how it comes about."""

    what: str
    value: float
    unit: str
    printed: bool
    how: str


def derivation() -> tuple[Derived, ...]:
    """From the paper's numbers to PAPER_IMPLIED, in order."""
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
