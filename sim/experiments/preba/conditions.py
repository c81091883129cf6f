"""The conditions of PREBA's characterization (Section 3) and evaluation (Sections 5 and 6), and what they leave open.

Section 3 fixes the sounds at 2.5 s; Section 6 has utterances of LibriSpeech. Neither tells the loads of its figures,
nor how many compute units the DPU has, nor what "a tail latency target" is: the readings taken here stand below.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headrace.sim.workload.lengths import LENGTHS

GPU: Final = "a100-40gb"
SEVENTHS: Final = "1g.5gb:7"  # the default of Section 6
WHOLE: Final = "7g.40gb:1"
PARTITIONS: Final = (SEVENTHS, "2g.10gb:3", WHOLE)  # of Section 3
SLICES: Final = 7  # of SEVENTHS

# Products in TF32 are the default here (sim/system/system.py); PyTorch 2.0's own is that only convolutions are.
OTHER_PRECISION: Final = "fp32"

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
# Buckets are half-open: one of 2.5 s would leave these clips to the next, which has the Batch_max of 5 s.
CLIP_BUCKET_S: Final = 2.51
UTTERANCES: Final = "librispeech"  # Section 5
TEST_UTTERANCES: Final = "librispeech-test"  # a reading: which of its sets is not told
MEANS_S: Final = {
    sounds: float(LENGTHS[sounds].sample(100_000, np.random.default_rng(0))[0].mean())
    for sounds in (UTTERANCES, TEST_UTTERANCES)
}

IDEAL: Final = "ideal"
# The paper does not tell how many compute units it has. So many of this project's image units do what its PCIe traffic
# implies, 8,600 images/s (preba_cpu.images_per_s); for sounds fewer would do.
DPU: Final = "dpu:6"
MORE_UNITS: Final = ("dpu:8", "dpu:16")
CPU_CORES: Final = 32  # EPYC 7502
# What the CPU is taken to spend, by label; a result is of one, never of both.
BASELINES: Final = {costs: f"cpu:{CPU_CORES}:{costs}" for costs in ("paper-implied", "measured")}
DESIGNS: Final = (IDEAL, DPU, *BASELINES.values())

# A saturating load: all arrive at once, and what is served a second is what the slowest stage can do.
SATURATING_RPS: Final = 1e6
SAME_SHARE: Final = 0.8  # the load of Fig. 7, of the greatest throughput of the slower partition
LOADS: Final = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # of the greatest throughput, in Figs. 18 and 19
# The tail is the 95th percentile, as in Fig. 6. The target of Fig. 18 is taken to be some times what Ideal has at this
# share of its greatest throughput (the first stands in the table); the reduction of the tail to be that at such a share
# of the CPU baseline's.
TARGET_SHARE: Final = 0.9
TARGET_SLACKS: Final = (2.0, 1.0)
BASELINE_SHARE: Final = 0.9
LATENCY_CASES: Final = (("squeezenet1_1", ""), ("conformer", UTTERANCES), ("conformer", CLIP))  # Fig. 19
LOW_LOAD: Final = 0.1  # of the CPU's greatest throughput: "a small number of incoming requests"
KNEE_LENGTHS_S: Final = (5.0, 15.0, 25.0)  # Fig. 15
PCIE_CASES: Final = tuple(
    (model, design, sounds)
    for model, sounds in (("mobilenet_v3_small", ""), ("citrinet", CLIP), ("citrinet", UTTERANCES))
    for design in (IDEAL, DPU)
)

STATIC: Final = "static"  # one queue, one Batch_max and one Time_queue for all lengths
# Which: those of the mean length, of Section 3's, or of the longest; of the mean on a whole GPU; or a
# Batch_max of 1.
STATIC_READINGS: Final = ("mean", "clip", "longest", "whole", "single")


@dataclass(frozen=True, slots=True)
class Server:
    """One server as it is simulated. `policy` is "preba", or "static" with one of STATIC_READINGS behind a colon;
    `lengths` is "" for images; `active` how many of its slices serve (Figs. 9 and 17)."""

    model: str
    preprocess: str = IDEAL
    policy: str = "preba"
    partition: str = SEVENTHS
    lengths: str = ""
    active: int = SLICES


def server(model: str, preprocess: str = IDEAL, sounds: str = UTTERANCES, **settings: Any) -> Server:
    """`sounds` are what it is sent if it takes sounds."""
    return Server(model, preprocess, lengths=sounds if model in AUDIO_NETWORKS else "", **settings)


def designs(model: str, sounds: str = UTTERANCES, active: int = SLICES) -> list[Server]:
    return [server(model, design, sounds, active=active) for design in DESIGNS]


def ablation(model: str) -> list[Server]:
    """Fig. 22: Base, Base+DPU and all of PREBA; and what else "without dynamic batching" may mean."""
    static = [f"{STATIC}:{reading}" for reading in STATIC_READINGS]
    found = [server(model, design, policy=static[0]) for design in BASELINES.values()]
    found += [server(model, DPU, policy=policy) for policy in static]
    found += [server(model, DPU, TEST_UTTERANCES, policy=policy) for policy in ("preba", *static)]
    return found + [server(model, design) for design in DESIGNS]
