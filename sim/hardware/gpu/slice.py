"""This module models a slice of a GPU (MIG) that runs a network eagerly, as PyTorch does. It gives the latency of every
node by batch and length.

The host launches kernel after kernel, and the slice runs them one after another, so that kernel i ends at

    end[i] = max(end[i - 1], launched[i]) + seconds[i],    launched[i] = launched[i - 1] + launch_s

A node takes the time between the end of its last kernel and that of the node before it. For a small batch the host
determines the time, whatever the slice; for a large one, the slice does. A kernel takes the longer of computing and of
moving its bytes, and a fixed time to begin and to end:

- A matrix product is cut into tiles of its output, which the SMs take in waves. The library chooses the shape of the
  tile, and the number of parts of each sum, from a few. A tile takes its multiply-accumulates and the load of its
  operands from the L2 cache. Plain products hide one behind the other. Convolutions, whose operands are gathered, do
  not. Attention that is one kernel has tiles and constants of its own.
- A convolution whose channels are grouped multiplies no matrices: it runs on the ordinary units, not on tensor cores.
- Bytes move at the slice's share of the memory's bandwidth, or as fast as its SMs ask for them. The latter is slower on
  slices that have much memory for their SMs. Activations that fit the slice's part of the L2 cache stay there.

All this is the same for every network. Its few numbers (`Kernels`, `Host`) are fitted to measurements (kernels.py); the
other numbers stand in datasheets. A larger batch or input never takes less time, nor does a slice with fewer SMs or
less bandwidth.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from headrace.batching.errors import OutOfMemory
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import ATTENTION, CAUSAL, ModelGraph, Node, resolve
from headrace.batching.graphs.node_latencies import linear
from headrace.batching.graphs.profile import Profile, ProfilePoint
from headrace.batching.graphs.traced import Traced
from headrace.sim.hardware.gpu.kernels import (
    AMPERE,
    ELEMENT_BYTES,
    HOPPER,
    Architecture,
    Attention,
    Floats,
    Format,
    Kernels,
    attention_clocks,
    product_clocks,
)
from headrace.sim.hardware.gpu.mig import MEMORY_SLICES, Gpu, InstanceProfile

GIB = 1 << 30
LARGEST_BATCH = 1024  # the largest batch of a profile
LATENCY_KNEE = 2.0
# The memory of CUDA's context and the libraries' workspaces, from the rows of ParvaGPU's BERT. On 10 GB three processes
# fit at batch 256 and four at 64, not four at 128. Weights are 1.34 GB, and an item takes some 4.7 MB.
CONTEXT_BYTES = 0.7e9


_ARCHITECTURES = {"a100-40gb": AMPERE, "a100-80gb": AMPERE, "h100": HOPPER, "h200": HOPPER}


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of a GPU. `sms`, `bandwidth_bytes_s`, `memory_bytes` and `l2_bytes` are the instance's own.

    `kernels` says how well kernels use it."""

    name: str
    sms: int
    bandwidth_bytes_s: float
    memory_bytes: float
    l2_bytes: float
    architecture: Architecture
    kernels: Kernels


def slice_of(gpu: Gpu, profile: InstanceProfile) -> Slice:
    architecture = _ARCHITECTURES[gpu.name]
    return Slice(
        f"{gpu.name} {profile.name}",
        profile.sms,
        gpu.bandwidth_of(profile),
        gpu.memory_gib(profile) * GIB,
        architecture.l2_bytes * profile.memory_slices / MEMORY_SLICES,
        architecture,
        architecture.sliced,
    )


def whole(gpu: Gpu) -> Slice:
    """Return a whole GPU, without MIG, as a slice: all multiprocessors, and all of the memory and its cache."""
    largest = max(gpu.profiles.values(), key=lambda profile: (profile.memory_slices, profile.compute_slices))
    one = slice_of(gpu, largest)
    return replace(
        one,
        name=gpu.name,
        sms=gpu.sms,
        bandwidth_bytes_s=gpu.bandwidth_bytes_s,
        memory_bytes=gpu.slice_gib * MEMORY_SLICES * GIB,
        kernels=one.architecture.whole,
    )


@dataclass(frozen=True, slots=True)
class Precision:
    """The formats in which a framework multiplies: in convolutions, and in all other products.

    Activations lie in memory as fp32 for both fp32 and tf32."""

    convolutions: Format
    products: Format


# PyTorch's own defaults since 1.12 (its notes on CUDA semantics), on Ampere and later.
PYTORCH = Precision("tf32", "fp32")
# The defaults before that, and in NVIDIA's containers (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, PyTorch's pull request 77114).
# PREBA does not say which it had. It is taken to be these for its Time_knee of 35 ms. For the Conformers that is 24 to
# 44 ms here, and 27 to 104 ms with the other. Swin's Batch_knee, 2 and 16, decides nothing: it is 4 and 32, or 8 and
# 16.
TF32 = Precision("tf32", "tf32")
HALF = Precision("fp16", "fp16")
PRECISIONS = {"fp32": PYTORCH, "tf32": TF32, "fp16": HALF}  # by the format of products


@dataclass(frozen=True, slots=True)
class Host:
    """The program that runs the network.

    `launch_s` is the time from one kernel's launch to the next. `batch_s` is spent once a batch. `copy_bytes_s` is the
    rate at which inputs go to the GPU before the first launch."""

    launch_s: float
    batch_s: float
    copy_bytes_s: float


# The host of ParvaGPU's measurements (scripts/calibrate_gpu_slice.py), with PyTorch 1.11, Python 3.8, and inputs in
# pageable memory.
PARVAGPU = Host(launch_s=26.2e-6, batch_s=0.3e-3, copy_bytes_s=6.8e9)
# PREBA does not give its host's time for a launch; this one was measured. With it, Batch_knee of MobileNet and
# SqueezeNet is PREBA's on both slices (it is from 24 to 40 us a launch), and Swin's is twice PREBA's.
PREBA = PARVAGPU
# A whole network as one CUDA graph, with its inputs on the GPU: the slice alone determines the time.
CAPTURED = Host(launch_s=0.0, batch_s=0.0, copy_bytes_s=math.inf)

# cuDNN's tensor-core convolutions need channels last, and PyTorch has them first. So activations and filters are laid
# out again for each convolution: read, written, and read again.
_RELAYOUT = 3


class Work:
    """The work of a graph, as arrays over its kernels and its products, for an input of `length`."""

    def __init__(self, graph: ModelGraph, length: float) -> None:
        kernels = [kernel for node in graph.nodes for kernel in node.kernels]
        self.name = graph.name
        # the number of kernels up to the end of each node
        self.nodes = np.cumsum([len(node.kernels) for node in graph.nodes])
        self.weights = np.array([kernel.weights for kernel in kernels], dtype=np.float64)
        # A kernel that reads nothing of a request is launched once for the whole batch (`Kernel`).
        self.written_once = np.array([0 if kernel.read else kernel.written for kernel in kernels], dtype=np.float64)
        self.moved = np.array([kernel.read and kernel.read + kernel.written for kernel in kernels], dtype=np.float64)
        self.convolved = np.zeros(len(kernels))  # activations and weights of convolutions on tensor cores
        self.filters = np.zeros(len(kernels))
        self.biased = np.zeros(len(kernels))  # elements to which a separate kernel adds the bias (cuDNN)
        self.grouped = np.zeros(len(kernels))  # multiply-accumulates
        self.attends = np.zeros(len(kernels), dtype=np.bool_)  # kernels that compute attention as a whole
        products: list[tuple[float, ...]] = []
        attention: list[tuple[float, ...]] = []
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
            if kernel.name.startswith(ATTENTION) and kernel.products:
                self.attends[number] = True
                scores = kernel.products[0]
                m, k, n = (resolve(dim, length) for dim in (scores.m, scores.k, scores.n))
                attention.append((m, n, k, scores.groups, kernel.name.endswith(CAUSAL)))
        table = np.array(products, dtype=np.float64).reshape(-1, 7)
        self.kernel = table[:, 0].astype(np.intp)
        self.m, self.k, self.n, self.groups = table[:, 1], table[:, 2], table[:, 3], table[:, 4]
        self.stacked, self.convolves = table[:, 5] > 0, table[:, 6] > 0
        self.multiplies = np.zeros(len(kernels), dtype=np.bool_)  # plain products, and not as a part of attention
        self.multiplies[self.kernel[~self.convolves]] = True
        self.multiplies &= ~self.attends
        self.attention = np.array(attention, dtype=np.float64).reshape(-1, 5).T

    def demands(
        self, batches: Floats, instance: Slice, precision: Precision, kernels: Kernels
    ) -> tuple[Floats, Floats]:
        """Return the seconds that each kernel computes and that it moves bytes, on the slice: two arrays of batches x
        kernels."""
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
        np.add.at(compute_s.T, self.kernel, product_s.T)
        return compute_s, memory_s

    def seconds(self, batches: Floats, instance: Slice, precision: Precision, kernels: Kernels) -> Floats:
        """Return the seconds of each kernel, an array of batches x kernels."""
        compute_s, memory_s = self.demands(batches, instance, precision, kernels)
        seconds = kernels.together(compute_s, memory_s) + kernels.kernel_s * (1 + (self.biased > 0))
        if kernels.products is not None and self.multiplies.any():
            own = self.seconds(batches, instance, precision, kernels.products)
            seconds = np.where(self.multiplies, own, seconds)
        if kernels.attention is not None and self.attends.any():
            seconds[:, self.attends] = self._attention_s(batches[:, None], instance, precision, kernels.attention)
        return seconds

    def _attention_s(self, batch: Floats, instance: Slice, precision: Precision, attention: Attention) -> Floats:
        """Return the seconds of the kernels that compute attention as a whole, batches x these kernels."""
        clock_hz, macs = instance.architecture.clock_hz, instance.architecture.macs[precision.products]
        queries, keys, head, heads, causal = self.attention
        clocks = attention_clocks(
            queries, keys, head, batch * heads, causal > 0, macs, instance.sms, clock_hz, attention
        )
        # Keys and values of earlier steps lie in memory.
        moved = ELEMENT_BYTES[precision.products] * (batch * self.moved + self.weights)[:, self.attends]
        return clocks / clock_hz + moved / (attention.memory * instance.bandwidth_bytes_s) + attention.kernel_s

    def _product_clocks(self, batch: Floats, instance: Slice, precision: Precision, kernels: Kernels) -> Floats:
        """Return the clocks of each product, batches x products."""
        in_convolutions, in_products = precision.convolutions, precision.products
        macs = instance.architecture.macs
        return product_clocks(
            np.where(self.stacked, batch * self.m, self.m),
            self.k,
            self.n,
            np.where(self.stacked, self.groups, batch * self.groups),
            self.convolves,
            np.where(self.convolves, macs[in_convolutions], macs[in_products]),
            np.where(self.convolves, ELEMENT_BYTES[in_convolutions], ELEMENT_BYTES[in_products]),
            instance.sms,
            instance.architecture.clock_hz,
            kernels,
        )

    def ends(self, seconds: Floats, launch_s: float) -> Floats:
        """Return when each node ends, from the first launch on (s): batches x nodes.

        `seconds` has the time of each kernel."""
        total = np.cumsum(seconds, axis=1)
        launched = launch_s * np.arange(1, seconds.shape[1] + 1)
        # This solves the recursion at the head of this file: kernels follow without a gap on the one that waited last.
        ends: Floats = total + np.maximum.accumulate(launched - (total - seconds), axis=1)
        return ends[:, self.nodes - 1]


class SliceTimes:
    """The `LatencyModel` of a traced network's nodes on a slice.

    The latency of a node is the time between its end and that of the node before it, so that sums over nodes are the
    network's times. Between traced lengths times are linear. Beyond the last they are in proportion to the length,
    which keeps a larger batch from taking less. Below the first they are constant.

    `kernels` are those of the slice if they are not given. `latency` raises OutOfMemory for a batch that does not fit
    the slice's memory."""

    def __init__(
        self,
        network: Traced,
        instance: Slice,
        host: Host = PREBA,
        precision: Precision = TF32,
        kernels: Kernels | None = None,
    ) -> None:
        self.network, self.instance, self.host, self.precision = network, instance, host, precision
        self.kernels = instance.kernels if kernels is None else kernels
        self._lengths = tuple(network.graphs)
        self._works = [
            (Work(graph, length), ELEMENT_BYTES[precision.products] * network.input_elements[length])
            for length, graph in network.graphs.items()
        ]
        self._ends: dict[int, Floats] = {}  # arrays of nodes x traced lengths, by batch
        # the last batch and length; callers ask all its nodes one after another
        self._asked: tuple[int, float] = (0, 0.0)
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
        """Return the seconds of whole batches where this many `processes`, all of them busy, share the slice (MPS).

        Their kernels take turns. So each process waits for the others where the slice, and not its host, has no time
        left."""
        sizes = np.array(batches, dtype=np.float64)
        by_length = []
        for work in self._works:
            ends, seconds = self._run(*work, sizes)
            by_length.append(np.maximum(ends[:, -1], processes * seconds.sum(axis=1)))
        return self._at(np.stack(by_length, axis=1), length)

    def _at(self, seconds: Floats, length: float) -> Floats:
        """Return the seconds at `length`, from those at the traced lengths: nodes or batches x lengths."""
        lengths = self._lengths
        if length >= lengths[-1]:
            return seconds[:, -1] * (length / lengths[-1])
        if length <= lengths[0]:
            return seconds[:, 0]
        above = bisect_right(lengths, length)
        low, high = seconds[:, above - 1], seconds[:, above]
        return low + (high - low) / (lengths[above] - lengths[above - 1]) * (length - lengths[above - 1])

    def kernel_seconds(self, work: Work, batches: Floats) -> Floats:
        """Return the seconds of each kernel of a graph, an array of batches x kernels."""
        return work.seconds(batches, self.instance, self.precision, self.kernels)

    def _run(self, work: Work, input_bytes: int, batches: Floats) -> tuple[Floats, Floats]:
        """Return when each node ends after the host received the batch (batches x nodes), and the seconds of each
        kernel (batches x kernels)."""
        seconds = self.kernel_seconds(work, batches)
        given_s = self.host.batch_s + batches * input_bytes / self.host.copy_bytes_s
        return given_s[:, None] + work.ends(seconds, self.host.launch_s), seconds


def slice_times(
    network: Traced,
    instance: Slice,
    host: Host = PREBA,
    precision: Precision = TF32,
    kernels: Kernels | None = None,
) -> NodeTimes:
    """Return the node times of a network on a slice. Their sum is the time of the network."""
    nodes = next(iter(network.graphs.values())).nodes
    if len(network.graphs) > 1:  # the shapes of one length would say that the time does not depend on it
        nodes = tuple(Node(node.name, node.kind, parameters=node.parameters) for node in nodes)
    return NodeTimes(ModelGraph(network.name, nodes), SliceTimes(network, instance, host, precision, kernels))


def slice_profile(
    network: Traced,
    instance: Slice,
    workers: int,
    host: Host = PREBA,
    precision: Precision = TF32,
    kernels: Kernels | None = None,
) -> Profile:
    """Return the profile of `workers` such slices, at the traced lengths.

    Batches are 1, 2, 4 ... until throughput grows by less than the knee rule's factor, or until memory ends. Raises
    UsageError if a batch of one does not fit."""
    times = slice_times(network, instance, host, precision, kernels)
    points: list[ProfilePoint] = []
    for length in network.graphs:
        check_fits(network, 1, length, instance, precision)
        max_batch = 1
        while (
            max_batch < LARGEST_BATCH
            and memory_bytes(network, 2 * max_batch, length, precision) <= instance.memory_bytes
        ):
            max_batch *= 2
        points += Profile.of(network.name, times, workers, max_batch=max_batch, lengths=(length,)).points
    return Profile(network.name, workers, tuple(points), step_s=network.step_s)


def latency_knee(profile: Profile, length: float | None = None) -> ProfilePoint:
    """Return the knee of the latency curve: the largest batch that takes at most LATENCY_KNEE times as long as a batch
    of one.

    PREBA (Section 3.2) reads its knee off that curve without a rule. `Profile.knee` is the knee of throughput."""
    curve = profile.curve(profile.typical_length if length is None else length)
    return max(
        (point for point in curve if point.latency_s <= LATENCY_KNEE * curve[0].latency_s),
        key=lambda point: point.batch,
    )


def memory_bytes(network: Traced, batch: int, length: float, precision: Precision = TF32) -> float:
    """Return the memory that a process takes of a slice.

    It holds the context, weights, inputs, and the activations that the largest kernel reads and writes. A join of
    branches reads them all."""
    element = ELEMENT_BYTES[precision.products]
    weights, live = _held(network)
    return CONTEXT_BYTES + element * (weights + batch * linear(tuple(network.graphs), live, length))


@cache
def _held(network: Traced) -> tuple[int, list[int]]:
    """Return the elements of weights, and those of a request at each traced length."""
    live = [
        network.input_elements[at]
        + max(kernel.read + kernel.written for node in graph.nodes for kernel in node.kernels)
        for at, graph in network.graphs.items()
    ]
    return next(iter(network.graphs.values())).parameters(), live


def check_fits(network: Traced, batch: int, length: float, instance: Slice, precision: Precision = TF32) -> None:
    """Raise OutOfMemory that says what to change if a batch does not fit the slice."""
    needed = memory_bytes(network, batch, length, precision)
    if needed > instance.memory_bytes:
        advice = "choose a smaller batch or a larger slice" if batch > 1 else "choose a larger slice"
        raise OutOfMemory(
            f"{network.name} takes {needed / GIB:.1f} GiB at batch {batch}, more than the "
            f"{instance.memory_bytes / GIB:.1f} GiB of {instance.name}; {advice}"
        )
