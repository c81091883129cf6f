"""A whole GPU with measured kernels: the latency of every node of a network by batch and length.

Products and attention take what NVIDIA's tables say (tables.py), in bf16. The tables lack all other kernels, so the
slice model gives those (slice.py):

- Kernels that only move bytes, as norms and activations do, take the memory's time for the bytes.
- Convolutions, recurrent cells, products of two activations, and attention of other sizes are modelled.

`node_shares` tells for each node how much of its time comes from which.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import (
    Kernel,
    Length,
    MatMul,
    ModelGraph,
    Node,
    resolve,
)
from headrace.batching.graphs.traced import Traced
from headrace.sim.hardware.gpu.kernels import Floats
from headrace.sim.hardware.gpu.mig import gpu_named
from headrace.sim.hardware.gpu.slice import HALF, Host, SliceTimes, Work, whole
from headrace.sim.hardware.gpu.tables import (
    CONTEXT,
    ENCODER,
    GENERATION,
    Flags,
    attention_table,
    product_table,
)

LENGTHS: Final = (1.0, *(float(1 << power) for power in range(4, 12)))  # at which a graph of one's own is laid out


@dataclass(frozen=True, slots=True)
class NodeShare:
    """The seconds of a node's kernels, by where they come from.

    Attributes:
        name: The node's name.
        tables_s: Products and attention that were measured.
        bytes_s: Kernels that only move bytes.
        modelled_s: All other kernels, from the slice model.
    """

    name: str
    tables_s: float
    bytes_s: float
    modelled_s: float


class MeasuredTimes(SliceTimes):
    """The `LatencyModel` of a traced network's nodes on a whole GPU with tables, one of `tables.FOLDERS`.

    Args:
        network: The network.
        gpu: The GPU's name in mig.py.
        launch_s: The host's time from one kernel's launch to the next; 0 for a captured graph.

    Raises UsageError if the tables are not installed."""

    def __init__(self, network: Traced, gpu: str, launch_s: float = 0.0) -> None:
        super().__init__(network, whole(gpu_named(gpu)), Host(launch_s, 0.0, np.inf), HALF)
        self.gpu = gpu
        product_table(gpu)  # raises here, and not at the first batch

    def kernel_seconds(self, work: Work, batches: Floats) -> Floats:
        return self.kernels_and_sources(work, batches)[0]

    def kernels_and_sources(self, work: Work, batches: Floats) -> tuple[Floats, Flags]:
        """Return the seconds of each kernel, batches x kernels, and whether they come from a table."""
        seconds = super().kernel_seconds(work, batches)
        measured = np.zeros(seconds.shape, dtype=np.bool_)
        self._set_products(work, batches, seconds, measured)
        self._set_attention(work, batches, seconds, measured)
        return seconds, measured

    def _set_products(self, work: Work, batches: Floats, seconds: Floats, measured: Flags) -> None:
        """Replace the seconds of kernels all of whose products are in the table."""
        table = product_table(self.gpu)
        inside = work.stacked & (work.groups == 1) & table.covers(work.n, work.k)
        chosen = work.multiplies.copy()
        chosen[work.kernel[~inside]] = False
        wanted = chosen[work.kernel]
        if not wanted.any():
            return
        rows, n, k = np.broadcast_arrays(batches[:, None] * work.m[wanted], work.n[wanted], work.k[wanted])
        found = np.zeros(seconds.shape)
        np.add.at(found.T, work.kernel[wanted], table.seconds(rows, n, k).T)
        seconds[:, chosen] = found[:, chosen]
        measured[:, chosen] = True

    def _set_attention(self, work: Work, batches: Floats, seconds: Floats, measured: Flags) -> None:
        """Replace the seconds of attention whose heads and keys are in a table."""
        places = np.flatnonzero(work.attends)
        for place, (queries, keys, head, heads, causal) in zip(places, work.attention.T, strict=True):
            kind = GENERATION if queries == 1 else CONTEXT if causal else ENCODER
            table = attention_table(self.gpu, kind, int(head))
            if table is not None and table.covers(keys) and queries in (1, keys):
                seconds[:, place] = table.seconds(batches * heads, keys)
                measured[:, place] = True


def measured_times(network: Traced, gpu: str, launch_s: float = 0.0) -> NodeTimes:
    """Return the node times of a network on a whole GPU, one of `tables.FOLDERS`. Raises UsageError."""
    graph = next(iter(network.graphs.values()))
    nodes = graph.nodes
    if len(network.graphs) > 1:  # the shapes of one length would say that the time does not depend on it
        nodes = tuple(Node(node.name, node.kind, parameters=node.parameters) for node in nodes)
    return NodeTimes(ModelGraph(network.name, nodes), MeasuredTimes(network, gpu, launch_s))


def node_shares(network: Traced, gpu: str, batch: int, length: float) -> list[NodeShare]:
    """Return where the time of each node comes from, at the traced length next to `length`. Raises UsageError."""
    times = MeasuredTimes(network, gpu)
    at = min(network.graphs, key=lambda traced: abs(traced - length))
    graph = network.graphs[at]
    work = Work(graph, at)
    seconds, measured = (found[0] for found in times.kernels_and_sources(work, np.array([float(batch)])))
    kernels = [kernel for node in graph.nodes for kernel in node.kernels]
    moves = np.array([not kernel.products for kernel in kernels])
    shares = []
    for node, (first, after) in zip(graph.nodes, pairwise((0, *work.nodes.tolist())), strict=True):
        part, from_table, from_bytes = seconds[first:after], measured[first:after], moves[first:after]
        modelled = ~from_table & ~from_bytes
        shares.append(
            NodeShare(node.name, *(float(part[chosen].sum()) for chosen in (from_table, from_bytes, modelled)))
        )
    return shares


def laid_out(graph: ModelGraph) -> Traced:
    """Return a graph that lists products and perhaps no kernels as a network of kernels, at some lengths.

    A node without kernels launches one kernel for each product, and nothing for norms or activations. A node without
    products launches one kernel that moves nothing to speak of."""
    dims = [dim for node in graph.nodes for product in node.operators for dim in (product.m, product.k, product.n)]
    lengths = LENGTHS if any(isinstance(dim, Length) for dim in dims) else (1.0,)
    graphs = {
        length: ModelGraph(graph.name, tuple(_with_kernels(node, length) for node in graph.nodes)) for length in lengths
    }
    return Traced(graph.name, None, dict.fromkeys(lengths, 0), graphs)


def _with_kernels(node: Node, length: float) -> Node:
    kernels = node.kernels or tuple(_kernel(product, length) for product in node.operators) or (Kernel("copy", 1, 1),)
    return Node(node.name, node.kind, node.operators, node.parameters, kernels)


def _kernel(product: MatMul, length: float) -> Kernel:
    m, k, n = (resolve(dim, length) for dim in (product.m, product.k, product.n))
    own = MatMul(m, k, n, product.groups, product.weights, product.input_elements)
    read = product.input_elements or product.groups * m * k
    written, right = product.groups * m * n, product.groups * k * n
    if product.input_elements:
        return Kernel("convolution", read, written, right, (own,))
    if product.weights:
        return Kernel("mm", read, written, right, (own,))
    return Kernel("bmm", read + right, written, 0, (own,))
