"""The parts of a check, how much each of them measures, and how long it may take.

Rule: this module measures nothing and needs no torch, so that the process that starts the parts stays small."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from headrace.batching.errors import one_line

# The longest time of each part (s). All together are below the nine minutes of a whole check.
LIMITS_S: Final[Mapping[str, float]] = {
    "profiles": 180.0,
    "nodes": 80.0,
    "live": 180.0,
    "copies": 20.0,
    "server": 50.0,
    "decode": 20.0,
}
WHOLE_S: Final = 540.0
NO_GRAPHS: Final = "CUDA graphs need a GPU"
# What the part `profiles` measures: a network that the host launches kernel by kernel, and one that is a single graph.
LAUNCHED: Final = "latency"
CAPTURED: Final = "as one CUDA graph"
SPARE_S: Final = 10.0  # a part begins nothing in its last seconds, so that it ends by itself

# Networks with a trace in the simulator's zoo: how a worker loads them, and the length of their input in the trace.
NETWORKS: Final[Mapping[str, tuple[str, float]]] = {
    "mobilenet_v3_small": ("mobilenet_v3_small", 1.0),
    "squeezenet1_1": ("squeezenet1_1", 1.0),
    "resnet50": ("resnet50", 1.0),
    "densenet121": ("densenet121", 1.0),
    "vgg16": ("vgg16", 1.0),
    "swin_t": ("swin_t", 1.0),
    "bert_base": ("benchmarks.networks:bert_base", 128.0),
    "conformer_small": ("headrace.host.workers.networks.zoo.conformer:conformer_ctc_small", 250.0),  # 10 s of audio
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much each part measures.

    Attributes:
        networks: Networks of the parts `profiles` and `nodes`, from NETWORKS.
        split: Those that `nodes` cuts.
        batches: Batch sizes of `profiles`.
        few_batches: Batch sizes of `nodes`.
        precisions: Precisions of `profiles`, of the slice model's PRECISIONS.
        point_s: The least time of a measured point.
        live: Networks that are served live: "transformer", or one of NETWORKS.
        hidden: The width of the Transformer.
        max_batch: The largest batch of live runs and of the server.
        live_s: The length of a live run.
        policies: The policies of live runs with the windows of `graph`.
        copies: Sizes of copies in bytes.
        served: The network of the part `server`.
        server_s: The length of the load on the server.
        concurrency: Requests in flight at the server.
        images: How many images are decoded at once.
    """

    networks: tuple[str, ...]
    split: tuple[str, ...]
    batches: tuple[int, ...]
    few_batches: tuple[int, ...]
    precisions: tuple[str, ...]
    point_s: float
    live: tuple[str, ...]
    hidden: int
    max_batch: int
    live_s: float
    policies: tuple[tuple[str, float], ...]
    copies: tuple[int, ...]
    served: str
    server_s: float
    concurrency: int
    images: int


FULL: Final = Sizes(
    networks=tuple(NETWORKS),
    split=("resnet50", "bert_base", "mobilenet_v3_small", "swin_t"),
    batches=(1, 2, 4, 8, 16, 32, 64, 128),
    few_batches=(1, 3, 4, 5, 8, 16),
    precisions=("fp32", "tf32", "fp16"),
    point_s=0.1,
    live=("transformer", "resnet50"),
    hidden=256,
    max_batch=8,
    live_s=3.0,
    policies=(("lazy", 0.0), ("graph", 0.0), ("graph", 1.0), ("graph", 5.0), ("preba", 0.0)),
    copies=(150_528, 602_112, 4 << 20, 32 << 20, 256 << 20),
    served="resnet50",
    server_s=8.0,
    concurrency=64,
    images=64,
)
SMALL: Final = Sizes(
    networks=("mobilenet_v3_small", "squeezenet1_1"),
    split=("mobilenet_v3_small",),
    batches=(1, 2),
    few_batches=(1, 2),
    precisions=("fp32",),
    point_s=0.02,
    live=("transformer",),
    hidden=32,
    max_batch=2,
    live_s=0.2,
    policies=(("lazy", 0.0), ("graph", 1.0), ("preba", 0.0)),
    copies=(150_528, 602_112),
    served="mobilenet_v3_small",
    server_s=0.5,
    concurrency=4,
    images=2,
)


@dataclass(frozen=True, slots=True)
class Check:
    """One part's task: the torch device, how much to measure, and the end of its time (`time.monotonic()` seconds).

    `gpu` is the product name of the device, empty on the CPU."""

    device: str
    gpu: str
    sizes: Sizes
    until: float

    def left_s(self) -> float:
        """Return the seconds in which the part may still begin something."""
        return self.until - SPARE_S - time.monotonic()


@dataclass(frozen=True, slots=True)
class Row:
    """A measured number with the number that it is compared with.

    Attributes:
        case: What ran, as in "resnet50, fp16, batch 8".
        quantity: What was measured.
        unit: The unit of both numbers.
        expected: What a model predicts, or what the comparison measured; None if there is nothing to compare.
        measured: The number; None if there is none, and `note` or `error` says why.
        note: What a reader of the row must know.
        details: Further numbers, for the JSON file.
        error: Why the case failed. It is empty where it ran, and where it had no time or no GPU.
    """

    case: str
    quantity: str
    unit: str
    expected: float | None
    measured: float | None
    note: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def ratio(self) -> float | None:
        """Return measured by expected; None if either is missing or zero."""
        return self.measured / self.expected if self.measured and self.expected else None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


def failed(case: str, quantity: str, unit: str, error: BaseException, expected: float | None = None) -> Row:
    """Return the row of a case that failed."""
    return Row(case, quantity, unit, expected, None, error=one_line(error))


def row_of(values: Mapping[str, Any]) -> Row:
    """Return the row that `to_dict` made into `values`."""
    return Row(**{name: value for name, value in values.items() if name != "ratio"})


def last_line(words: str) -> str:
    """Return the last line of what a process wrote to stderr."""
    return (words.strip().splitlines() or ["it said nothing"])[-1]
