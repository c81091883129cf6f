"""The GPU on which BatchMaker was evaluated (Gao, Yu, Wu, Li, EuroSys 2018), as latencies of batched cells.

The paper prints few latencies. What it does not print follows from others of its numbers, as is said where it stands;
nothing is fitted to what a simulation gives.
"""

from dataclasses import dataclass

from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import ModelGraph, Node, NodeKind

# An LSTM step of hidden size 1024: 185 us at 64 rows and about as much at fewer (Sections 7.2 and 7.3), 784 us at 512
# (Section 7.3), in proportion beyond (Section 2.2). At 256 rows it follows that it takes 470 us, as a batch of 512 has
# 20 % more throughput (Section 7.4).
FLAT_BATCH, FLAT_S = 64, 185e-6
HALF_BATCH, HALF_S = 256, 1.2 * 784e-6 * 256 / 512
FULL_BATCH, FULL_S = 512, 784e-6
# What scheduling and gathering add to a task: 65 us at 64 rows, where a step takes 250 us (Section 7.3). With it,
# batches of 512 reach 87 % of the ideal (Section 7.3, lengths of 24), so it is 784 us / 0.87 - 784 us there.
FLAT_OVERHEAD_S = 250e-6 - FLAT_S
FULL_OVERHEAD_S = FULL_S / 0.87 - FULL_S
# A decoder step, with its projection to 30,000 words, is three quarters of the work of an encoder and a decoder step,
# and best at a batch of 256 (Section 7.4).
DECODER_WORK, DECODER_FULL_BATCH = 3.0, 256
# Where lengths vary, the paper's own peak is less: 20,000/s of 24 steps on average (Section 7.2) make 1,067 us a batch
# of 512. What it is that varying lengths cost is not told, and nothing but a run beside others uses this.
VARIED_OVERHEAD_S = FULL_BATCH / (20_000 * 24) - FULL_S
# A TreeLSTM's cell, of which the paper prints nothing, from two peaks at batches of 64: 3,100 trees/s (Section 7.5,
# TreeBank), whose 19.1 words on average (Socher et al., EMNLP 2013) make 2 x 19.1 - 1 cells, so a task takes 555 us;
# and 70 % of the ideal that has no overhead (Section 7.5), so the cell takes 70 % of that and overhead 30 %. It is
# taken to be in proportion to the rows, as those of two children are gathered from wherever they are. With fewer rows
# the cell takes as long, with more it grows as an LSTM step does.
TREE_TASK_S = FLAT_BATCH / (3100 * (2 * 19.1 - 1))
TREE_CELL_S = 0.70 * TREE_TASK_S
TREE_ROW_OVERHEAD_S = 0.30 * TREE_TASK_S / FLAT_BATCH


def lstm_step_s(batch: int) -> float:
    """Between the batch sizes above on straight lines."""
    if batch <= FLAT_BATCH:
        return FLAT_S
    if batch <= HALF_BATCH:
        return FLAT_S + (HALF_S - FLAT_S) * (batch - FLAT_BATCH) / (HALF_BATCH - FLAT_BATCH)
    if batch <= FULL_BATCH:
        return HALF_S + (FULL_S - HALF_S) * (batch - HALF_BATCH) / (FULL_BATCH - HALF_BATCH)
    return FULL_S * batch / FULL_BATCH


def decoder_step_s(batch: int) -> float:
    """In proportion to the batch from DECODER_FULL_BATCH on."""
    full = min(batch, DECODER_FULL_BATCH)
    return DECODER_WORK * lstm_step_s(full) * max(1.0, batch / full)


def tree_cell_s(batch: int) -> float:
    return TREE_CELL_S * lstm_step_s(batch) / FLAT_S


def overhead_s(batch: int, full_s: float = FULL_OVERHEAD_S) -> float:
    """Of scheduling and gathering: a straight line through what it is at FLAT_BATCH, and `full_s` at FULL_BATCH."""
    slope = (full_s - FLAT_OVERHEAD_S) / (FULL_BATCH - FLAT_BATCH)
    return FLAT_OVERHEAD_S + slope * (batch - FLAT_BATCH)


@dataclass(frozen=True, slots=True)
class V100Cells:
    """`LatencyModel` by node: `decoders` are the numbers of those that are decoder steps, all others are LSTM steps.

    `scheduled` is whether cells are scheduled one by one, which adds `overhead_s` to each, `full_overhead_s` at a batch
    of 512; a static graph has none of that."""

    decoders: tuple[int, ...] = ()
    scheduled: bool = True
    full_overhead_s: float = FULL_OVERHEAD_S

    def latency(self, node: int, batch: int, length: float) -> float:
        step = decoder_step_s if node in self.decoders else lstm_step_s
        return step(batch) + (overhead_s(batch, self.full_overhead_s) if self.scheduled else 0.0)


@dataclass(frozen=True, slots=True)
class V100TreeCells:
    """`LatencyModel` of a TreeLSTM, whose leaves and inner nodes are taken to cost the same. `scheduled` as above."""

    scheduled: bool = True

    def latency(self, node: int, batch: int, length: float) -> float:
        return tree_cell_s(batch) + (TREE_ROW_OVERHEAD_S * batch if self.scheduled else 0.0)


def cell_times(model: CellModel, decoders: tuple[int, ...] = (), full_overhead_s: float = FULL_OVERHEAD_S) -> NodeTimes:
    """Of `model` under cellular batching."""
    return NodeTimes(model.graph, V100Cells(decoders, full_overhead_s=full_overhead_s))


def tree_times(model: CellModel, *, scheduled: bool = True) -> NodeTimes:
    return NodeTimes(model.graph, V100TreeCells(scheduled))


def padded_graph(name: str, *, decoder: bool) -> ModelGraph:
    """The same network as one graph: an encoder step, and a decoder step, as often as the longest request needs."""
    encoder = Node("encoder", NodeKind.ENCODER)
    return ModelGraph(name, (encoder, Node("decoder", NodeKind.DECODER)) if decoder else (encoder,))


def padded_times(name: str, *, decoder: bool) -> NodeTimes:
    """Of `padded_graph`: without the overhead of scheduling cells."""
    return NodeTimes(padded_graph(name, decoder=decoder), V100Cells((1,) if decoder else (), scheduled=False))
