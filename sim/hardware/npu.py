"""The NPU on which LazyBatching was evaluated (HPCA 2021, Table I): a systolic array with double-buffered memories.

Compute cycles are SCALE-Sim's, in output-stationary and in weight-stationary dataflow, with one addition: fill and
drain of consecutive tiles overlap (`Npu.overlap_rows`).
"""

from dataclasses import dataclass
from math import ceil, isfinite

from headrace.batching.errors import UsageError
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import MatMul, ModelGraph, resolve


def output_stationary_cycles(m: int, k: int, n: int, rows: int, columns: int) -> int:
    """Cycles of (m x k) @ (k x n) where each processing element keeps one output: every fold takes k cycles and the
    skew of both operands through the array (SCALE-Sim)."""
    return ceil(m / rows) * ceil(n / columns) * (k + rows + columns - 2) - 1


def weight_stationary_cycles(
    m: int, k: int, n: int, rows: int, columns: int, overlap_rows: int = 0, products: int = 1
) -> int:
    """Cycles of `products` (m x k) @ (k x n) where each processing element keeps one weight: every fold is filled with
    weights in `rows` cycles, takes m cycles, and as many more as the skew and the drain of the array (SCALE-Sim).

    While at most `overlap_rows` input rows are in flight, consecutive folds run as one pass that is filled and drained
    once; with 0 none do, and for one product the formula is SCALE-Sim's."""
    folds = products * ceil(k / rows) * ceil(n / columns)
    passes = ceil(folds / max(1, overlap_rows // m))
    return folds * m + passes * (2 * rows + columns - 2) - 1


@dataclass(frozen=True, slots=True)
class Npu:
    """Table I; elements are one byte. `dataflow` is "ws" or "os".

    The bandwidth is that of all 8 memory channels. The 4 MB weight memory does not appear: it holds the tiles of now
    and next, and weights stream through it once for a sub-batch however many there are.

    `overlap_rows` is how many input rows may be in flight in weight-stationary dataflow (`weight_stationary_cycles`);
    by default as many as the array has rows. Without it each fold of a matrix-vector product pays 382 cycles to fill
    and drain the array for a single row: an input step and an output step of GNMT then take 4.2 ms, where the paper's
    whole single-input latency of 7.2 ms (Table II) is that of reading its weights 20 times from memory. So the paper's
    NPU hides fill and drain on such work. With 128, matrix-vector products of up to 8 requests run at the speed of
    memory. Convolutions change where an image has few rows left (ResNet-50 alone: 1.00 ms, without 1.31), in batches
    hardly. The number of folds that share a pass is a whole number, so it falls by steps as the rows grow; `NpuLatency`
    therefore runs a sub-batch in parts where that is faster."""

    rows: int = 128
    columns: int = 128
    frequency_hz: float = 700e6
    activation_sram_bytes: int = 8 << 20
    bandwidth_bytes_per_s: float = 360e9
    access_latency_cycles: int = 100
    dataflow: str = "ws"
    overlap_rows: int = 128

    def __post_init__(self) -> None:
        for name in ("rows", "columns", "activation_sram_bytes"):
            if getattr(self, name) < 1:
                raise UsageError(f"an NPU with {name} = {getattr(self, name)}: give 1 or more")
        for name in ("frequency_hz", "bandwidth_bytes_per_s"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise UsageError(f"an NPU with {name} = {getattr(self, name)}: give a number above 0")
        if self.access_latency_cycles < 0 or self.overlap_rows < 0:
            raise UsageError("an NPU's access_latency_cycles and overlap_rows cannot be negative")
        if self.dataflow not in ("ws", "os"):
            raise UsageError(f'an NPU with dataflow {self.dataflow!r}: choose "ws" or "os"')

    def compute_cycles(self, m: int, k: int, n: int, products: int = 1) -> int:
        """Cycles of `products` independent (m x k) @ (k x n), one after the other."""
        if self.dataflow == "os":
            return products * output_stationary_cycles(m, k, n, self.rows, self.columns)
        return weight_stationary_cycles(m, k, n, self.rows, self.columns, self.overlap_rows, products)


class NpuLatency:
    """`LatencyModel` of `graph` on `npu`. A node is the sum of its operators. Memories are double-buffered, so each
    takes the longer of computing and of moving its bytes: weights once for the sub-batch, and inputs and outputs if
    they do not fit the activation memory; latency plus bytes by bandwidth. What a node does between products
    (activations, pooling, norms) is done on the way to memory and takes no time of its own."""

    def __init__(self, graph: ModelGraph, npu: Npu = Npu()) -> None:
        self.graph = graph
        self.npu = npu
        self._parts: dict[tuple[int, int, int, int], list[int]] = {}

    def latency(self, node: int, batch: int, length: float) -> float:
        cycles = sum(self._operator_cycles(operator, batch, length) for operator in self.graph.nodes[node].operators)
        return cycles / self.npu.frequency_hz

    def _operator_cycles(self, op: MatMul, batch: int, length: float) -> float:
        npu = self.npu
        m, k, n = (resolve(dim, length) for dim in (op.m, op.k, op.n))
        # Trained weights are shared: the sub-batch's rows are stacked. Otherwise each request has products of its own.
        products = op.groups if op.weights else op.groups * batch
        # Small groups stand side by side on the array's diagonal, as many as fit.
        packed = min(products, max(1, min(npu.rows // k, npu.columns // n)))
        shape = (m, k * packed, n * packed, ceil(products / packed))
        compute = self._stacked_cycles(batch, *shape) if op.weights else npu.compute_cycles(*shape)
        weights = op.groups * k * n
        activations = batch * ((op.input_elements or op.groups * m * k) + op.groups * m * n)
        if not op.weights:
            activations += batch * weights
            weights = 0
        moved = weights + (activations if activations > npu.activation_sram_bytes else 0)
        memory = npu.access_latency_cycles + moved * npu.frequency_hz / npu.bandwidth_bytes_per_s if moved else 0.0
        return max(compute, memory)

    def _stacked_cycles(self, batch: int, m: int, k: int, n: int, products: int) -> int:
        """Compute cycles of `batch` requests whose rows share weights: stacked whole, or in parts where that is faster,
        so that a batch is never slower than its parts. (Tile by tile, so the weights are still read from memory once.)
        """
        best = self._parts.setdefault((m, k, n, products), [0])
        for size in range(len(best), batch + 1):
            whole = self.npu.compute_cycles(m * size, k, n, products)
            parts = (best[part] + best[size - part] for part in range(1, size // 2 + 1))
            best.append(min(whole, *parts) if size > 1 else whole)
        return best[batch]


def npu_times(graph: ModelGraph, npu: Npu = Npu()) -> NodeTimes:
    return NodeTimes(graph, NpuLatency(graph, npu))
