"""The NPU on which LazyBatching was evaluated (HPCA 2021, Table I): a systolic array with double-buffered memories.

Compute cycles are SCALE-Sim's, in output-stationary and in weight-stationary dataflow, with two additions. A vector
unit takes products of few rows (`Npu.vector_lanes`), and a weight-stationary array may load its next weights while it
computes (`Npu.double_buffered_weights`).
"""

from dataclasses import dataclass
from math import ceil, isfinite

from headrace.batching.errors import UsageError
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import MatMul, ModelGraph, resolve


def output_stationary_cycles(m: int, k: int, n: int, rows: int, columns: int) -> int:
    """Return the cycles of (m x k) @ (k x n) where each processing element keeps one output (SCALE-Sim).

    Every fold takes k cycles, and the skew of both operands through the array."""
    return ceil(m / rows) * ceil(n / columns) * (k + rows + columns - 2) - 1


def weight_stationary_cycles(
    m: int, k: int, n: int, rows: int, columns: int, *, products: int = 1, load_cycles: float | None = None
) -> float:
    """Return the cycles of `products` (m x k) @ (k x n) where each processing element keeps one weight.

    A fold is one tile of rows x columns weights. A tile that k or n does not fill takes as long as a full one.

    Without `load_cycles` the count is SCALE-Sim's. Every fold is filled with weights in `rows` cycles and streams m
    rows of input. It ends with the skew and the drain of the array, before the next fold begins.

    With `load_cycles` each processing element has a second weight register. The tile of the next fold is loaded into it
    in this many cycles while the current one streams. Rows of the next fold then follow without a gap. So a fold takes
    max(m, load_cycles), the last one m, and the array is filled and drained once. A single fold takes the same time as
    without `load_cycles`."""
    folds = products * ceil(k / rows) * ceil(n / columns)
    fill_and_drain = 2 * rows + columns - 2
    if load_cycles is None:
        return folds * (m + fill_and_drain) - 1
    return (folds - 1) * max(m, load_cycles) + m + fill_and_drain - 1


@dataclass(frozen=True, slots=True)
class Npu:
    """The NPU of Table I, with a vector unit as Google's TPUs have one. Elements are one byte.

    The paper gives the array, its clock and the memories, and names neither a dataflow nor a vector unit. Each answer
    is a setting here. `scripts/npu_readings.py` compares answers with all numbers of the paper. The default agrees with
    the most of them.

    `dataflow` is "os" (output-stationary) or "ws" (weight-stationary). `double_buffered_weights` is for "ws" alone: the
    array loads its next tile of weights while it computes, as Google's TPU does (Jouppi et al., ISCA 2017, Section 2).
    The array then takes weights as fast as memory gives them. That is 514 bytes or four rows a cycle, and 32 cycles a
    tile. The load is part of the operator's memory time (`NpuLatency`) and not added to it, with two exceptions. One is
    padded tiles. The other is products whose second operand lies in the activation memory (attention).

    `vector_lanes` is the number of multipliers of a vector unit next to the array, 0 for none. Each lane multiplies one
    pair of elements a cycle. A product of few rows then need not fill and drain the array. The default takes as many
    weights a cycle as the memory delivers (514 bytes). Google's TPUs have such a unit, of 8 sublanes by 128 lanes (JAX,
    pallas.tpu.TpuInfo).

    The bandwidth is that of all 8 memory channels. The 4 MB weight memory does not appear: it holds the current tile
    and the next, and weights stream through it once for a sub-batch of any size.

    A batch never takes longer than its parts. Its throughput falls a little where its rows begin a new fold of the
    array; with "ws" and double-buffered weights it never falls while activations fit their memory."""

    rows: int = 128
    columns: int = 128
    frequency_hz: float = 700e6
    activation_sram_bytes: int = 8 << 20
    bandwidth_bytes_per_s: float = 360e9
    access_latency_cycles: int = 100
    dataflow: str = "os"
    double_buffered_weights: bool = True
    vector_lanes: int = 512

    def __post_init__(self) -> None:
        for name in ("rows", "columns", "activation_sram_bytes"):
            if getattr(self, name) < 1:
                raise UsageError(f"an NPU with {name} = {getattr(self, name)}: give 1 or more")
        for name in ("frequency_hz", "bandwidth_bytes_per_s"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise UsageError(f"an NPU with {name} = {getattr(self, name)}: give a number above 0")
        if self.vector_lanes < 0:
            raise UsageError(f"an NPU with vector_lanes = {self.vector_lanes}: give 0 or more")
        if self.access_latency_cycles < 0:
            raise UsageError(f"an NPU with access_latency_cycles = {self.access_latency_cycles}: give 0 or more")
        if self.dataflow not in ("ws", "os"):
            raise UsageError(f'an NPU with dataflow {self.dataflow!r}: choose "ws" or "os"')

    @property
    def load_cycles(self) -> float:
        """Return the cycles in which a tile of weights is loaded: at the memory's rate, or a row a cycle where that is
        faster."""
        tile_bytes = self.rows * self.columns
        return min(self.rows, tile_bytes * self.frequency_hz / self.bandwidth_bytes_per_s)

    def compute_cycles(self, m: int, k: int, n: int, products: int = 1) -> float:
        """Return the cycles of `products` independent (m x k) @ (k x n), one after the other.

        They run on the array or on the vector unit, wherever they take fewer cycles."""
        if self.dataflow == "os":
            array = float(products * output_stationary_cycles(m, k, n, self.rows, self.columns))
        else:
            load = self.load_cycles if self.double_buffered_weights else None
            array = weight_stationary_cycles(m, k, n, self.rows, self.columns, products=products, load_cycles=load)
        return min(array, products * m * k * n / self.vector_lanes) if self.vector_lanes else array


class NpuLatency:
    """The `LatencyModel` of `graph` on `npu`. The time of a node is the sum of its operators.

    Memories are double-buffered, so each operator takes the longer of computing and of moving its bytes. Weights move
    once for the sub-batch. Inputs and outputs move if they do not fit the activation memory. Moving takes the access
    latency, plus bytes by bandwidth. The work between products (activations, pooling, norms) is done on the way to
    memory and takes no time of its own."""

    def __init__(self, graph: ModelGraph, npu: Npu = Npu()) -> None:
        self.graph = graph
        self.npu = npu

    def latency(self, node: int, batch: int, length: float) -> float:
        cycles = sum(self._operator_cycles(operator, batch, length) for operator in self.graph.nodes[node].operators)
        return cycles / self.npu.frequency_hz

    def _operator_cycles(self, op: MatMul, batch: int, length: float) -> float:
        npu = self.npu
        m, k, n = (resolve(dim, length) for dim in (op.m, op.k, op.n))
        # Small groups lie next to each other on the array's diagonal, as many as fit.
        packed = min(op.groups, max(1, min(npu.rows // k, npu.columns // n)))
        products = ceil(op.groups / packed)
        # Trained weights are shared, so the rows of the sub-batch are stacked. Without weights, each request has
        # products of its own.
        stacked, products = (batch, products) if op.weights else (1, products * batch)
        compute = npu.compute_cycles(m * stacked, k * packed, n * packed, products)
        weights = op.groups * k * n
        activations = batch * ((op.input_elements or op.groups * m * k) + op.groups * m * n)
        if not op.weights:
            activations += batch * weights
            weights = 0
        moved = weights + (activations if activations > npu.activation_sram_bytes else 0)
        memory = npu.access_latency_cycles + moved * npu.frequency_hz / npu.bandwidth_bytes_per_s if moved else 0.0
        return max(compute, memory)


def npu_times(graph: ModelGraph, npu: Npu = Npu()) -> NodeTimes:
    return NodeTimes(graph, NpuLatency(graph, npu))
