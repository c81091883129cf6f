"""The conditions of PREBA's characterization (Section 3) and evaluation (Sections 5 and 6), and the open questions.

Section 3 fixes audio at 2.5 s; Section 6 has utterances of LibriSpeech. Neither gives the loads of its figures, the
number of compute units of the DPU, or the meaning of "a tail latency target". The readings taken here stand below.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.hardware.settings import PRECISION
from headrace.sim.system.system import SERVER
from headrace.sim.workload.lengths import LENGTHS

GPU: Final = "a100-40gb"
SEVENTHS: Final = "1g.5gb:7"  # the default of Section 6
WHOLE: Final = "7g.40gb:1"
PARTITIONS: Final = (SEVENTHS, "2g.10gb:3", WHOLE)  # the partitions of Section 3
SLICES: Final = 7  # the slices of SEVENTHS

# The default here is TF32 for all products (sim/system/system.py). PyTorch 2.0's own default is TF32 for convolutions
# only.
OTHER_PRECISION: Final = "fp32"
# The time to launch a kernel is ParvaGPU's host's. The other one is that of a host which does nothing else.
LAUNCH_US: Final = 1e6 * SERVER.launch_s
OTHER_LAUNCH_US: Final = 10.0

IMAGE_NETWORKS: Final = ("mobilenet_v3_small", "squeezenet1_1", "swin_t")
AUDIO_NETWORKS: Final = ("conformer_small", "conformer", "citrinet")
NETWORKS: Final = IMAGE_NETWORKS + AUDIO_NETWORKS

SHORT: Final = {
    "mobilenet_v3_small": "MobileNet",
    "squeezenet1_1": "SqueezeNet",
    "swin_t": "Swin",
    "conformer": "Conformer",
    "conformer_small": "Conformer small",
    "citrinet": "CitriNet",
}

CLIP_S: Final = 2.5  # Section 3
CLIP: Final = f"{CLIP_S:g}"
UTTERANCES: Final = "librispeech"  # Section 5
TEST_UTTERANCES: Final = "librispeech-test"  # a reading: the paper does not say which of its sets it uses
MEANS_S: Final = {CLIP: CLIP_S} | {
    lengths: float(LENGTHS[lengths].sample(100_000, np.random.default_rng(0))[0].mean())
    for lengths in (UTTERANCES, TEST_UTTERANCES)
}

IDEAL: Final = "ideal"
# The paper does not say how many compute units it has. This number of this project's image units reaches the rate that
# its PCIe traffic implies, 8,600 images/s (preba_cpu.images_per_s). For audio fewer would be enough.
DPU: Final = "dpu:5"
MORE_UNITS: Final = ("dpu:8", "dpu:16")
CPU_CORES: Final = 32  # EPYC 7502
# The costs of the CPU, by label. A result is of one set, never of several. The paper's baseline is OpenCV for images
# and Librosa for audio (Section 5). It gives no release, and its reference for Librosa is LibrosaCpp. librosa resampled
# by kaiser_best up to 0.9.2 (June 2022), and by soxr_hq since 0.10.0 (February 2023). The paper's PyTorch 2.0.0 is of
# March 2023. So the default of its librosa is an open question. The slower one is taken for the paper's, because with
# the other one preprocessing takes no throughput from audio at all.
PAPER_CPU: Final = "librosa-kaiser_best"
IMPLIED: Final = "paper-implied"
TODAY: Final = "librosa"
BASELINES: Final = {costs: f"cpu:{CPU_CORES}:{costs}" for costs in (PAPER_CPU, IMPLIED, TODAY)}
CPU: Final = BASELINES[PAPER_CPU]
# The costs of rows. The cost that follows from the paper's own numbers has rows where it is compared with those
# numbers. Elsewhere a note has it.
ROWS_OF_CPU: Final = (PAPER_CPU, IMPLIED)
# The paper's EPYC 7502 is of 2019, and the costs were measured on a core of 2024. So these are readings of it.
SLOWER: Final = (2.0, 3.0, 4.0)
DESIGNS: Final = (IDEAL, DPU, *BASELINES.values())

# The saturating load. All requests arrive at once, and the throughput is that of the slowest stage.
SATURATING_RPS: Final = 1e6
SAME_SHARE: Final = 0.8  # the load of Fig. 7, of the greatest throughput of the slower partition
LOADS: Final = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # of the greatest throughput, in Figs. 18 and 19
# The tail is the 95th percentile, as in Fig. 6. The target of Fig. 18 is taken to be a multiple of Ideal's tail at this
# share of its greatest throughput; the first multiple stands in the table. The reduction of the tail is taken at such a
# share of the CPU baseline's.
TARGET_SHARE: Final = 0.9
TARGET_SLACKS: Final = (2.0, 1.0)
BASELINE_SHARE: Final = 0.9
LATENCY_CASES: Final = (("squeezenet1_1", ""), ("conformer", UTTERANCES), ("conformer", CLIP))  # Fig. 19
LOW_LOAD: Final = 0.1  # of the CPU's greatest throughput: "a small number of incoming requests"
KNEE_LENGTHS_S: Final = (5.0, 15.0, 25.0)  # Fig. 15
FEWER_UNITS: Final = "dpu:4"
PCIE_CASES: Final = (
    ("mobilenet_v3_small", FEWER_UNITS, ""),
    *(
        (model, design, lengths)
        for model, lengths in (("mobilenet_v3_small", ""), ("citrinet", CLIP), ("citrinet", UTTERANCES))
        for design in (IDEAL, DPU)
    ),
)

STATIC: Final = "static"  # one queue, one Batch_max and one Time_queue for all lengths
# The readings: the limits of the mean length, of Section 3's length, of the longest, of the mean on a whole GPU, and a
# Batch_max of 1.
STATIC_READINGS: Final = ("mean", "clip", "longest", "whole", "single")


@dataclass(frozen=True, slots=True)
class Server:
    """One simulated server.

    `policy` is "preba", or "static" with one of STATIC_READINGS after a colon. `lengths` is "" for images. `active` is
    the number of its slices that serve (Figs. 9 and 17). A core of its CPU takes `slower` times what the label of the
    preprocessing says. Images have `pixels`, and matrix products `precision`."""

    model: str
    preprocess: str = IDEAL
    policy: str = "preba"
    partition: str = SEVENTHS
    lengths: str = ""
    active: int = SLICES
    slower: float = 1.0
    pixels: int = TYPICAL_PIXELS
    precision: str = PRECISION


def server(model: str, preprocess: str = IDEAL, lengths: str = UTTERANCES, **settings: Any) -> Server:
    """Return a server for a model. `lengths` are those of its audio, if it takes audio."""
    return Server(model, preprocess, lengths=lengths if model in AUDIO_NETWORKS else "", **settings)


def designs(model: str, lengths: str = UTTERANCES, active: int = SLICES) -> list[Server]:
    return [server(model, design, lengths, active=active) for design in DESIGNS]


def slower_cores(model: str, lengths: str = UTTERANCES) -> list[Server]:
    return [server(model, CPU, lengths, slower=slower) for slower in SLOWER]


def ablation(model: str) -> list[Server]:
    """Return the servers of Fig. 22: Base, Base+DPU, all of PREBA, and other meanings of "without dynamic batching"."""
    static = [f"{STATIC}:{reading}" for reading in STATIC_READINGS]
    servers = [server(model, design, policy=static[0]) for design in BASELINES.values()]
    servers += [replace(one, policy=static[0]) for one in slower_cores(model)]
    servers += [server(model, DPU, policy=policy) for policy in static]
    servers += [server(model, DPU, TEST_UTTERANCES, policy=policy) for policy in ("preba", *static)]
    return servers + [server(model, design) for design in DESIGNS]
