"""The conditions of LazyBatching's evaluation, and the questions that its text leaves open."""

from dataclasses import dataclass, field

from headrace.sim.hardware.npu import Npu

NETWORKS = ("resnet50", "gnmt", "transformer")  # Table II
UNCACHED = "transformer_uncached"  # a reading of the third: the paper does not say whether it keeps keys and values
SEQUENCE_NETWORKS = ("gnmt", "transformer", UNCACHED)
FURTHER_NETWORKS = ("vgg16", "mobilenet_v1", "las", "bert_base")  # Fig. 16
# Section VI-C says that there are four models, and does not name them
COLOCATED = "resnet50+gnmt+transformer+mobilenet_v1"
TARGETS_MS = (20, 40, 60, 80, 100)
LOW_RPS, HIGH_RPS = 16, 1000  # Fig. 14 to 16


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer to a question that the paper leaves open, other than the default: the NPU, or a setting of `lazy` and
    `oracle`."""

    npu: Npu = field(default_factory=Npu)
    slack_scope: str = "table"
    equal_timesteps: bool = False


# Ways to read Table I, which says neither how products run nor how fast weights enter the array.
# scripts/npu_readings.py compares each of them with all numbers of the paper.
NPUS = {
    "os + vector": Npu(),
    "os + vector of 1024": Npu(vector_lanes=1024),
    "os + vector of 256": Npu(vector_lanes=256),
    "os": Npu(vector_lanes=0),
    "ws + vector": Npu(dataflow="ws"),
    "ws": Npu(dataflow="ws", vector_lanes=0),
    "ws, single-buffered + vector": Npu(dataflow="ws", double_buffered_weights=False),
    "ws, single-buffered": Npu(dataflow="ws", double_buffered_weights=False, vector_lanes=0),
}
READINGS = {
    "": Reading(),
    "ws": Reading(NPUS["ws"]),
    "single-buffered": Reading(NPUS["ws, single-buffered + vector"]),
    "active": Reading(slack_scope="active"),
    "equal-timesteps": Reading(equal_timesteps=True),
}
OF_NPU = ("ws", "single-buffered")  # readings of Table I that differ most from the default
OF_LAZY = ("active", "equal-timesteps")  # readings in which GraphB is the same
WORDS = {
    "uncached": "decoder without cached keys and values",
    "ws": "weight-stationary NPU without a vector unit",
    "single-buffered": "weight-stationary NPU, weights not double-buffered, with a vector unit",
    "active": "slack of the active batch only",
    "equal-timesteps": "merging at equal timesteps only",
}
