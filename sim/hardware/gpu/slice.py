"""A slice of a GPU (MIG) that runs a network eagerly, as PyTorch does: the latency of every node by batch and length.

The host launches kernel after kernel, and the slice runs them one after another, so that kernel i ends at

    end[i] = max(end[i - 1], launched[i]) + seconds[i],    launched[i] = launched[i - 1] + launch_s

and a node takes what lies between the end of its last kernel and that of the node before it. While a batch is small the
host is what takes the time, whatever the slice; beyond, it is the slice. A kernel takes the longer of computing and of
moving its bytes, and a fixed time to begin and to end:

- A matrix product is cut into tiles of its output, which the SMs take in waves. The library chooses the shape of the
  tile, and into how many parts it splits each sum, from a few. A tile takes its multiply-accumulates and the loading
  of its operands from the L2 cache, which plain products hide behind each other and convolutions, whose operands are
  gathered, do not.
- A convolution whose channels are grouped multiplies no matrices: it runs on the ordinary units, not on tensor cores.
- Bytes move at the slice's share of the memory's bandwidth, or as fast as its SMs ask for them, which is slower on
  slices that have much memory for their SMs. Activations that fit the slice's part of the L2 cache stay there.

All this is the same for every network. Its few numbers (`Kernels`, `Host`) are fitted to measurements of some by
scripts/calibrate_gpu_slice.py; the rest stands in datasheets. A batch or an input that is larger never takes less time,
nor does a slice with fewer SMs or less bandwidth.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import OutOfMemory
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import ModelGraph, Node, resolve
from headrace.batching.graphs.node_latencies import linear
from headrace.batching.graphs.profile import Profile, ProfilePoint
from headrace.batching.graphs.traced import Traced
from headrace.sim.hardware.gpu.mig import MEMORY_SLICES, Gpu, InstanceProfile

Floats = NDArray[np.float64]
Format = Literal["fp32", "tf32", "fp16"]
ELEMENT_BYTES: dict[Format, int] = {"fp32": 4, "tf32": 4, "fp16": 2}
GIB = 1 << 30
LARGEST_BATCH = 1024  # of a profile
LATENCY_KNEE = 2.0
# CUDA's context and the libraries' workspaces, from the rows of ParvaGPU's BERT: on 10 GB three processes fit at batch
# 256 and four at 64, not four at 128. Weights are 1.34 GB, and an item takes some 4.7 MB.
CONTEXT_BYTES = 0.7e9


@dataclass(frozen=True, slots=True)
class Architecture:
    """`macs` are the multiply-accumulates that an SM does in a clock, by number format: fp32 on its ordinary units, the
    others, dense, on its tensor cores. `l2_bytes` of the whole GPU."""

    clock_hz: float
    l2_bytes: float
    macs: dict[Format, int]


# NVIDIA A100 Tensor Core GPU Architecture (whitepaper, 2020), Tables 1 to 3: boost clock, 40 MB of L2 cache, and per SM
# and clock 64 FP32, 512 TF32 and 1,024 FP16 fused multiply-adds.
AMPERE = Architecture(1410e6, 40 * (1 << 20), {"fp32": 64, "tf32": 512, "fp16": 1024})
# NVIDIA H100 Tensor Core GPU Architecture (whitepaper, 2022): 50 MB of L2, twice A100's arithmetic per SM and clock;
# the clock follows from its 494.7 dense TF32 TFLOPS of 132 SMs. No measurement of a Hopper slice tests what is made
# of it.
HOPPER = Architecture(1830e6, 50 * (1 << 20), {"fp32": 128, "tf32": 1024, "fp16": 2048})
_ARCHITECTURES = {"a100-40gb": AMPERE, "a100-80gb": AMPERE, "h100": HOPPER, "h200": HOPPER}


@dataclass(frozen=True, slots=True)
class Slice:
    """`sms`, `bandwidth_bytes_s`, `memory_bytes` and `l2_bytes` are the instance's own."""

    name: str
    sms: int
    bandwidth_bytes_s: float
    memory_bytes: float
    l2_bytes: float
    architecture: Architecture


def slice_of(gpu: Gpu, profile: InstanceProfile) -> Slice:
    architecture = _ARCHITECTURES[gpu.name]
    return Slice(
        f"{gpu.name} {profile.name}",
        profile.sms,
        gpu.bandwidth_of(profile),
        gpu.memory_gib(profile) * GIB,
        architecture.l2_bytes * profile.memory_slices / MEMORY_SLICES,
        architecture,
    )


@dataclass(frozen=True, slots=True)
class Precision:
    """The formats in which a framework multiplies: in convolutions, and in all other products. Activations lie in
    memory as fp32 for either of fp32 and tf32."""

    convolutions: Format
    products: Format


# PyTorch's own defaults since 1.12 (its notes on CUDA semantics), on Ampere and later.
PYTORCH = Precision("tf32", "fp32")
# Those before, and of NVIDIA's containers (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, PyTorch's pull request 77114). PREBA does
# not tell which it had. It is taken to be these for its Time_knee of 35 ms: of the Conformers it is 24 to 44 ms here,
# and 27 to 104 ms with the other. Swin's Batch_knee, 2 and 16, decides nothing: it is 4 and 32, or 8 and 16.
TF32 = Precision("tf32", "tf32")
HALF = Precision("fp16", "fp16")
PRECISIONS = {"fp32": PYTORCH, "tf32": TF32, "fp16": HALF}  # by that of products


@dataclass(frozen=True, slots=True)
class Host:
    """The program that runs the network. `launch_s`: from one kernel's launch to the next; `batch_s`: once a batch;
    `copy_bytes_s`: inputs to the GPU, before the first launch."""

    launch_s: float
    batch_s: float
    copy_bytes_s: float


@dataclass(frozen=True, slots=True)
class Kernels:
    """What the framework's kernels make of the hardware.

    `grouped`: multiply-accumulates of an SM a clock, in a grouped convolution. `memory`: of the memory's bandwidth.
    `sm_bytes`: that an SM moves to and from memory a clock. `kernel_s`: to begin and to end."""

    grouped: float
    memory: float
    sm_bytes: float
    kernel_s: float


# scripts/calibrate_gpu_slice.py: fitted to what ParvaGPU measured on slices of an A100-80GB, and its host there, with
# PyTorch 1.11, Python 3.8, and inputs in pageable memory.
FITTED = Kernels(grouped=3.1, memory=0.87, sm_bytes=14.5, kernel_s=3.4e-6)
PARVAGPU = Host(launch_s=26.2e-6, batch_s=0.3e-3, copy_bytes_s=6.8e9)
# PREBA tells nothing of what its host takes to launch; this is the one that was measured. With it, Batch_knee of
# MobileNet and SqueezeNet is PREBA's on both slices (it is from 24 to 40 us a launch), and Swin's is twice PREBA's.
PREBA = PARVAGPU

_TILES = np.array([(256, 128), (128, 128), (128, 64), (64, 64)], dtype=np.float64)  # as in cuBLAS
_SPLITS = np.array([1, 2, 4], dtype=np.float64)
_STEP = 32  # of a tile's sum
# cuDNN's tensor-core convolutions want channels last. PyTorch has them first, so activations and filters are laid out
# anew for each convolution: read, written, and read again.
_RELAYOUT = 3
_L2_BYTES = 5120 / 108  # that an SM reads from the L2 cache a clock: A100's whitepaper; Hopper is taken to be alike


class Work:
    """What a graph has to do, as arrays over its kernels and its products, for an input of `length`."""

    def __init__(self, graph: ModelGraph, length: float) -> None:
        kernels = [kernel for node in graph.nodes for kernel in node.kernels]
        self.name = graph.name
        self.nodes = np.cumsum([len(node.kernels) for node in graph.nodes])  # kernels up to the end of each node
        self.weights = np.array([kernel.weights for kernel in kernels], dtype=np.float64)
        # One that reads nothing of a request is launched for all of a batch alike (`Kernel`).
        self.written_once = np.array([0 if kernel.read else kernel.written for kernel in kernels], dtype=np.float64)
        self.moved = np.array([kernel.read and kernel.read + kernel.written for kernel in kernels], dtype=np.float64)
        self.convolved = np.zeros(len(kernels))  # activations and weights of convolutions on tensor cores
        self.filters = np.zeros(len(kernels))
        self.biased = np.zeros(len(kernels))  # elements to which a kernel of its own adds the bias (cuDNN)
        self.grouped = np.zeros(len(kernels))  # multiply-accumulates
        products: list[tuple[float, ...]] = []
        for number, kernel in enumerate(kernels):
            convolves = kernel.name == "convolution"
            if convolves and kernel.weights > sum(
                p.groups * resolve(p.k, length) * resolve(p.n, length) for p in kernel.products if p.weights
            ):
                self.biased[number] = 2 * kernel.written
            if convolves and all(product.groups > 1 for product in kernel.products):
                self.grouped[number] = sum(product.macs(length) for product in kernel.products)
                continue
            if convolves:
                self.convolved[number] = kernel.read + kernel.written
                self.filters[number] = kernel.weights
            for p in kernel.products:
                m, k, n = (resolve(dim, length) for dim in (p.m, p.k, p.n))
                products.append((number, m, k, n, p.groups, p.weights, convolves))
        table = np.array(products, dtype=np.float64).reshape(-1, 7)
        self.kernel = table[:, 0].astype(np.intp)
        self.m, self.k, self.n, self.groups = table[:, 1], table[:, 2], table[:, 3], table[:, 4]
        self.stacked, self.convolves = table[:, 5] > 0, table[:, 6] > 0

    def demands(
        self, batches: Floats, instance: Slice, precision: Precision, kernels: Kernels
    ) -> tuple[Floats, Floats]:
        """Seconds that each kernel computes and that it moves bytes, on the slice: two arrays of batches x kernels."""
        architecture = instance.architecture
        sm_clocks = instance.sms * architecture.clock_hz
        batch = batches[:, None]
        element = float(ELEMENT_BYTES[precision.products])
        relaid = _RELAYOUT - 1 if precision.convolutions != "fp32" else 0
        activations = element * batch * (self.moved + relaid * self.convolved + self.biased)
        once = element * (self.weights + self.written_once + relaid * self.filters)
        from_memory = once + np.clip(2 * (activations - instance.l2_bytes), 0, activations)
        memory_s = np.maximum(
            from_memory / (kernels.memory * instance.bandwidth_bytes_s),
            (once + activations) / (kernels.sm_bytes * sm_clocks),
        )
        compute_s = batch * self.grouped / (kernels.grouped * sm_clocks)
        product_s = self._product_clocks(batch, instance, precision, kernels) / architecture.clock_hz
        for column, kernel in enumerate(self.kernel):
            compute_s[:, kernel] += product_s[:, column]
        return compute_s, memory_s

    def seconds(self, batches: Floats, instance: Slice, precision: Precision, kernels: Kernels) -> Floats:
        """Of each kernel: batches x kernels."""
        longer: Floats = np.maximum(*self.demands(batches, instance, precision, kernels))
        return longer + kernels.kernel_s * (1 + (self.biased > 0))

    def _product_clocks(self, batch: Floats, instance: Slice, precision: Precision, kernels: Kernels) -> Floats:
        """Batches x products. A product takes the tile and the number of parts of a sum with which it is fastest."""
        rows = np.where(self.stacked, batch * self.m, self.m)
        count = np.where(self.stacked, self.groups, batch * self.groups)
        macs = np.where(
            self.convolves,
            instance.architecture.macs[precision.convolutions],
            instance.architecture.macs[precision.products],
        )
        element = np.where(self.convolves, ELEMENT_BYTES[precision.convolutions], ELEMENT_BYTES[precision.products])
        best = np.full(rows.shape, np.inf)
        for height, width in _TILES:
            tiles = count * np.ceil(rows / height) * np.ceil(self.n / width)
            compute, load = height * width / macs, element * (height + width) / _L2_BYTES
            step = np.where(self.convolves, compute + load, np.maximum(compute, load))
            for splits in _SPLITS:
                clocks = np.ceil(tiles * splits / instance.sms) * _STEP * np.ceil(self.k / (_STEP * splits)) * step
                if splits > 1:  # the parts are written, read and added
                    clocks = clocks + 2 * element * splits * count * rows * self.n / (kernels.sm_bytes * instance.sms)
                best = np.minimum(best, clocks)
        return best

    def ends(self, seconds: Floats, launch_s: float) -> Floats:
        """When each node ends, from the first launch on (s): batches x nodes, from the `seconds` of each kernel."""
        total = np.cumsum(seconds, axis=1)
        launched = launch_s * np.arange(1, seconds.shape[1] + 1)
        # The recursion at the head of this file, solved: kernels follow without a gap on the one that waited last.
        ends: Floats = total + np.maximum.accumulate(launched - (total - seconds), axis=1)
        return ends[:, self.nodes - 1]


class SliceTimes:
    """`LatencyModel` of a traced network's nodes: of each, what lies between its end and that of the node before it, so
    that sums over nodes are the network's times. Between traced lengths times are linear, beyond the last in proportion
    to the length (which keeps a larger batch from taking less), and below the first they stay.

    `latency` raises UsageError for a batch that does not fit the slice's memory."""

    def __init__(
        self,
        network: Traced,
        instance: Slice,
        host: Host = PREBA,
        precision: Precision = TF32,
        kernels: Kernels = FITTED,
    ) -> None:
        self.network, self.instance, self.host, self.precision, self.kernels = (
            network,
            instance,
            host,
            precision,
            kernels,
        )
        self._lengths = tuple(network.graphs)
        self._works = [
            (Work(graph, length), ELEMENT_BYTES[precision.products] * network.input_elements[length])
            for length, graph in network.graphs.items()
        ]
        self._ends: dict[int, Floats] = {}  # by batch: nodes x traced lengths
        self._asked: tuple[int, float] = (0, 0.0)  # the last, of which all nodes are asked, one after the other
        self._nodes: list[float] = []

    def latency(self, node: int, batch: int, length: float) -> float:
        if (batch, length) != self._asked:
            check_fits(self.network, batch, length, self.instance, self.precision)
            if batch not in self._ends:
                one = np.array([float(batch)])
                self._ends[batch] = np.stack([self._run(*work, one)[0][0] for work in self._works], axis=1)
            self._nodes = np.diff(self._at(self._ends[batch], length), prepend=0.0).tolist()
            self._asked = batch, length
        return self._nodes[node]

    def batch_s(self, batches: Sequence[int], length: float, processes: int = 1) -> Floats:
        """Seconds of whole batches where as many `processes` share the slice (MPS), all of them busy: their kernels
        take turns, so that each waits for the others' where the slice, and not its host, has no time left."""
        sizes = np.array(batches, dtype=np.float64)
        found = []
        for work in self._works:
            ends, seconds = self._run(*work, sizes)
            found.append(np.maximum(ends[:, -1], processes * seconds.sum(axis=1)))
        return self._at(np.stack(found, axis=1), length)

    def _at(self, seconds: Floats, length: float) -> Floats:
        """From those at the traced lengths, nodes or batches x lengths."""
        lengths = self._lengths
        if length >= lengths[-1]:
            return seconds[:, -1] * (length / lengths[-1])
        if length <= lengths[0]:
            return seconds[:, 0]
        above = bisect_right(lengths, length)
        low, high = seconds[:, above - 1], seconds[:, above]
        return low + (high - low) / (lengths[above] - lengths[above - 1]) * (length - lengths[above - 1])

    def _run(self, work: Work, input_bytes: int, batches: Floats) -> tuple[Floats, Floats]:
        """When each node ends, from when the batch was given to the host on (batches x nodes), and the seconds of each
        kernel (batches x kernels)."""
        seconds = work.seconds(batches, self.instance, self.precision, self.kernels)
        given_s = self.host.batch_s + batches * input_bytes / self.host.copy_bytes_s
        return given_s[:, None] + work.ends(seconds, self.host.launch_s), seconds


def slice_times(
    network: Traced,
    instance: Slice,
    host: Host = PREBA,
    precision: Precision = TF32,
    kernels: Kernels = FITTED,
) -> NodeTimes:
    """By node; sums give the network."""
    nodes = next(iter(network.graphs.values())).nodes
    if len(network.graphs) > 1:  # the shapes of one length would say that time does not depend on it
        nodes = tuple(Node(node.name, node.kind, parameters=node.parameters) for node in nodes)
    return NodeTimes(ModelGraph(network.name, nodes), SliceTimes(network, instance, host, precision, kernels))


def slice_profile(
    network: Traced,
    instance: Slice,
    workers: int,
    host: Host = PREBA,
    precision: Precision = TF32,
    kernels: Kernels = FITTED,
) -> Profile:
    """Of `workers` such slices, at the traced lengths: batches 1, 2, 4 ... until throughput grows by less than the knee
    rule's factor or memory ends. Raises UsageError if a batch of one does not fit."""
    times = slice_times(network, instance, host, precision, kernels)
    points: list[ProfilePoint] = []
    for length in network.graphs:
        check_fits(network, 1, length, instance, precision)
        most = 1
        while most < LARGEST_BATCH and memory_bytes(network, 2 * most, length, precision) <= instance.memory_bytes:
            most *= 2
        points += Profile.of(network.name, times, workers, max_batch=most, lengths=(length,)).points
    return Profile(network.name, workers, tuple(points), step_s=network.step_s)


def latency_knee(profile: Profile, length: float | None = None) -> ProfilePoint:
    """The knee of the latency curve: the largest batch that takes no more than LATENCY_KNEE times what a batch of one
    takes. PREBA (Section 3.2) reads its knee off that curve without a rule; `Profile.knee` is of throughput's."""
    curve = profile.curve(profile.typical_length if length is None else length)
    return max(
        (point for point in curve if point.latency_s <= LATENCY_KNEE * curve[0].latency_s),
        key=lambda point: point.batch,
    )


def memory_bytes(network: Traced, batch: int, length: float, precision: Precision = TF32) -> float:
    """What a process takes of a slice: context, weights, the inputs, and the activations that the largest kernel reads
    and writes (a join of branches reads them all)."""
    element = ELEMENT_BYTES[precision.products]
    weights, live = _held(network)
    return CONTEXT_BYTES + element * (weights + batch * linear(tuple(network.graphs), live, length))


@cache
def _held(network: Traced) -> tuple[int, list[int]]:
    """Elements of weights, and of a request at each traced length."""
    live = [
        network.input_elements[at]
        + max(kernel.read + kernel.written for node in graph.nodes for kernel in node.kernels)
        for at, graph in network.graphs.items()
    ]
    return next(iter(network.graphs.values())).parameters(), live


def check_fits(network: Traced, batch: int, length: float, instance: Slice, precision: Precision = TF32) -> None:
    """Raises OutOfMemory that says what to change."""
    needed = memory_bytes(network, batch, length, precision)
    if needed > instance.memory_bytes:
        advice = "choose a smaller batch or a larger slice" if batch > 1 else "choose a larger slice"
        raise OutOfMemory(
            f"{network.name} takes {needed / GIB:.1f} GiB at batch {batch}, more than the "
            f"{instance.memory_bytes / GIB:.1f} GiB of {instance.name}; {advice}"
        )
