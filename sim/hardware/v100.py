"""The GPU on which BatchMaker was evaluated (Gao, Yu, Wu, Li, EuroSys 2018), as latencies of batched cells.

The paper prints few latencies. The others follow from its numbers, as the comments say; nothing is fitted to a
simulation.
"""

from dataclasses import dataclass

from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import ModelGraph, Node, NodeKind

# An LSTM step of hidden size 1024 takes 185 us at 64 rows and about as much at fewer (Sections 7.2 and 7.3). It takes
# 784 us at 512 (Section 7.3), and is in proportion beyond (Section 2.2). At 256 rows it takes 470 us, because a batch
# of 512 has 20 % more throughput (Section 7.4).
FLAT_BATCH, FLAT_S = 64, 185e-6
HALF_BATCH, HALF_S = 256, 1.2 * 784e-6 * 256 / 512
FULL_BATCH, FULL_S = 512, 784e-6
# Scheduling and gathering add 65 us to a task at 64 rows, where a step takes 250 us (Section 7.3). With them, batches
# of 512 reach 87 % of the ideal (Section 7.3, lengths of 24), so they add 784 us / 0.87 - 784 us there.
FLAT_OVERHEAD_S = 250e-6 - FLAT_S
FULL_OVERHEAD_S = FULL_S / 0.87 - FULL_S
# A decoder step with its projection to 30,000 words is three quarters of the work of an encoder and a decoder step. It
# is best at a batch of 256 (Section 7.4).
DECODER_WORK, DECODER_FULL_BATCH = 3.0, 256
# Where lengths vary, the paper's own peak is lower: 20,000/s of 24 steps on average (Section 7.2) make 1,067 us a batch
# of 512. The paper does not say why varying lengths cost that. Only a separate run for comparison uses this number.
VARIED_OVERHEAD_S = FULL_BATCH / (20_000 * 24) - FULL_S
# The paper prints nothing of a TreeLSTM's cell. Its time follows from two peaks at batches of 64. The first is 3,100
# trees/s (Section 7.5, TreeBank). Trees of 19.1 words on average (Socher et al., EMNLP 2013) have 2 x 19.1 - 1 cells,
# so a task takes 555 us. The second is 70 % of the ideal without overhead (Section 7.5), so the cell takes 70 % of that
# and overhead 30 %. The overhead is taken to be in proportion to the rows, because the rows of two children are
# gathered from any place. With fewer rows the cell takes as long; with more it grows as an LSTM step does.
TREE_TASK_S = FLAT_BATCH / (3100 * (2 * 19.1 - 1))
TREE_CELL_S = 0.70 * TREE_TASK_S
TREE_ROW_OVERHEAD_S = 0.30 * TREE_TASK_S / FLAT_BATCH


def lstm_step_s(batch: int) -> float:
    """Return the seconds of an LSTM step. Between the batch sizes above it lies on straight lines."""
    if batch <= FLAT_BATCH:
        return FLAT_S
    if batch <= HALF_BATCH:
        return FLAT_S + (HALF_S - FLAT_S) * (batch - FLAT_BATCH) / (HALF_BATCH - FLAT_BATCH)
    if batch <= FULL_BATCH:
        return HALF_S + (FULL_S - HALF_S) * (batch - HALF_BATCH) / (FULL_BATCH - HALF_BATCH)
    return FULL_S * batch / FULL_BATCH


def decoder_step_s(batch: int) -> float:
    """Return the seconds of a decoder step. It is in proportion to the batch from DECODER_FULL_BATCH on."""
    full = min(batch, DECODER_FULL_BATCH)
    return DECODER_WORK * lstm_step_s(full) * max(1.0, batch / full)


def tree_cell_s(batch: int) -> float:
    return TREE_CELL_S * lstm_step_s(batch) / FLAT_S


def overhead_s(batch: int, full_s: float = FULL_OVERHEAD_S) -> float:
    """Return the seconds of scheduling and gathering for a task.

    They lie on a straight line through the overhead at FLAT_BATCH and `full_s` at FULL_BATCH."""
    slope = (full_s - FLAT_OVERHEAD_S) / (FULL_BATCH - FLAT_BATCH)
    return FLAT_OVERHEAD_S + slope * (batch - FLAT_BATCH)


@dataclass(frozen=True, slots=True)
class V100Cells:
    """The `LatencyModel` of cells. `decoders` are the numbers of the nodes that are decoder steps; all others are LSTM
    steps.

    With `scheduled`, cells are scheduled one by one, which adds `overhead_s` to each, `full_overhead_s` at a batch of
    512. A static graph has none of that."""

    decoders: tuple[int, ...] = ()
    scheduled: bool = True
    full_overhead_s: float = FULL_OVERHEAD_S

    def latency(self, node: int, batch: int, length: float) -> float:
        step = decoder_step_s if node in self.decoders else lstm_step_s
        return step(batch) + (overhead_s(batch, self.full_overhead_s) if self.scheduled else 0.0)


@dataclass(frozen=True, slots=True)
class V100TreeCells:
    """The `LatencyModel` of a TreeLSTM. Leaves and inner nodes are taken to cost the same. `scheduled` is as in
    V100Cells."""

    scheduled: bool = True

    def latency(self, node: int, batch: int, length: float) -> float:
        return tree_cell_s(batch) + (TREE_ROW_OVERHEAD_S * batch if self.scheduled else 0.0)


def cell_times(model: CellModel, decoders: tuple[int, ...] = (), full_overhead_s: float = FULL_OVERHEAD_S) -> NodeTimes:
    """Return the node times of `model` under cellular batching."""
    return NodeTimes(model.graph, V100Cells(decoders, full_overhead_s=full_overhead_s))


def tree_times(model: CellModel, *, scheduled: bool = True) -> NodeTimes:
    return NodeTimes(model.graph, V100TreeCells(scheduled))


def padded_graph(name: str, *, decoder: bool) -> ModelGraph:
    """Return the same network as one graph: an encoder step and a decoder step, each as often as the longest request
    needs."""
    encoder = Node("encoder", NodeKind.ENCODER)
    return ModelGraph(name, (encoder, Node("decoder", NodeKind.DECODER)) if decoder else (encoder,))


def padded_times(name: str, *, decoder: bool) -> NodeTimes:
    """Return the node times of `padded_graph`, without the overhead of scheduling cells."""
    return NodeTimes(padded_graph(name, decoder=decoder), V100Cells((1,) if decoder else (), scheduled=False))
