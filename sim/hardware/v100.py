"""The GPU on which BatchMaker was evaluated (Gao, Yu, Wu, Li, EuroSys 2018), as latencies of batched cells.

The paper prints few latencies. The others follow from its numbers, as the comments say. No time is fitted to a
simulation; two shares of tasks are counted in one.
"""

from dataclasses import dataclass
from enum import StrEnum

from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import Copying, NodeTimes
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
# Both are means over tasks, of which only some gather (Section 4.3): those whose members are not the members of the
# task before. Two shares are counted in runs of the schedule (tests/sim/hardware/test_v100_locality.py): 0.76 of the
# tasks gather at 5,000/s, where the paper has its 250 us, and 0.41 where all requests have 24 steps and 28,000/s come.
# They split the two totals: the scheduling of a task takes 49 us, and the gathering of a row 0.32 us.
LOW_LOAD_SHARE, EQUAL_LENGTHS_SHARE = 0.76, 0.41
GATHER_ROW_S = (FULL_OVERHEAD_S - FLAT_OVERHEAD_S) / (EQUAL_LENGTHS_SHARE * FULL_BATCH - LOW_LOAD_SHARE * FLAT_BATCH)
SCHEDULING_S = FLAT_OVERHEAD_S - LOW_LOAD_SHARE * FLAT_BATCH * GATHER_ROW_S
# A state is h and c of hidden size 1024 in float32 (Section 7.1). The four GPUs are connected by NVLink (Section 7.1).
# Between two of four V100-SXM2, each with two links to each other one, p2pBandwidthLatencyTest measures 47.9 GB/s (Dell
# EMC, Ready Solutions for HPC, on the PowerEdge C4130). No source was found for the set-up of a copy. It is assumed to
# take as long as one over PCIe (sim/hardware/pcie.py).
STATE_BYTES = 2 * 1024 * 4
NVLINK_BYTES_S, NVLINK_SETUP_S = 47.9e9, 10e-6
LOCALITY = Copying(GATHER_ROW_S, STATE_BYTES, NVLINK_SETUP_S, NVLINK_BYTES_S)
# A decoder step with its projection to 30,000 words is three quarters of the work of an encoder and a decoder step. It
# is best at a batch of 256 (Section 7.4).
DECODER_WORK, DECODER_FULL_BATCH = 3.0, 256
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


@dataclass(frozen=True, slots=True)
class TreeReading:
    """A reading of what the paper leaves open of a TreeLSTM's cell.

    Args:
        least_s: The time (s) of a cell without rows. From there the time rises in a straight line to TREE_CELL_S at
            FLAT_BATCH rows.
        fixed_overhead: Whether a task of at most FLAT_BATCH rows pays the overhead of FLAT_BATCH rows.
        slower: A factor of the cell's time.
    """

    least_s: float = TREE_CELL_S
    fixed_overhead: bool = False
    slower: float = 1.0


def tree_cell_s(batch: int, reading: TreeReading = TreeReading()) -> float:
    """Return the seconds of a TreeLSTM's cell. Beyond FLAT_BATCH rows it grows as an LSTM step does."""
    if batch < FLAT_BATCH:
        return reading.slower * (reading.least_s + (TREE_CELL_S - reading.least_s) * batch / FLAT_BATCH)
    return reading.slower * TREE_CELL_S * lstm_step_s(batch) / FLAT_S


def mean_overhead_s(batch: int) -> float:
    """Return the seconds of scheduling and gathering for a task if every task pays the mean.

    They lie on a straight line through the overheads at FLAT_BATCH and at FULL_BATCH."""
    slope = (FULL_OVERHEAD_S - FLAT_OVERHEAD_S) / (FULL_BATCH - FLAT_BATCH)
    return FLAT_OVERHEAD_S + slope * (batch - FLAT_BATCH)


class Overhead(StrEnum):
    """Says what a task pays beyond its step.

    NONE: Nothing, as in a static graph.
    SCHEDULING: The scheduling of its cells. Gathering comes on top, where its members changed.
    MEAN: The mean of scheduling and gathering, whether its members changed or not."""

    NONE = "none"
    SCHEDULING = "scheduling"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class V100Cells:
    """The `LatencyModel` of cells. `decoders` are the numbers of the nodes that are decoder steps; all others are LSTM
    steps."""

    decoders: tuple[int, ...] = ()
    overhead: Overhead = Overhead.SCHEDULING

    def latency(self, node: int, batch: int, length: float) -> float:
        step = decoder_step_s(batch) if node in self.decoders else lstm_step_s(batch)
        match self.overhead:
            case Overhead.SCHEDULING:
                return step + SCHEDULING_S
            case Overhead.MEAN:
                return step + mean_overhead_s(batch)
            case _:
                return step


@dataclass(frozen=True, slots=True)
class V100TreeCells:
    """The `LatencyModel` of a TreeLSTM. Leaves and inner nodes are taken to cost the same.

    With `scheduled`, cells are scheduled one by one. Every task then gathers, because an inner cell has two children
    that no task left side by side."""

    scheduled: bool = True
    reading: TreeReading = TreeReading()

    def latency(self, node: int, batch: int, length: float) -> float:
        rows = max(batch, FLAT_BATCH) if self.reading.fixed_overhead else batch
        return tree_cell_s(batch, self.reading) + (TREE_ROW_OVERHEAD_S * rows if self.scheduled else 0.0)


def cell_times(model: CellModel, decoders: tuple[int, ...] = (), *, locality: bool = True) -> NodeTimes:
    """Return the node times of a network of chains under cellular batching.

    With `locality`, a task gathers only where its members changed, and copies between GPUs cost time. Without, every
    task pays the mean overhead."""
    if not locality:
        return NodeTimes(model.graph, V100Cells(decoders, Overhead.MEAN))
    return NodeTimes(model.graph, V100Cells(decoders), LOCALITY)


def tree_times(model: CellModel, *, scheduled: bool = True, reading: TreeReading = TreeReading()) -> NodeTimes:
    return NodeTimes(model.graph, V100TreeCells(scheduled, reading))


def padded_graph(name: str, *, decoder: bool) -> ModelGraph:
    """Return the same network as one graph: an encoder step and a decoder step, each as often as the longest request
    needs."""
    encoder = Node("encoder", NodeKind.ENCODER)
    return ModelGraph(name, (encoder, Node("decoder", NodeKind.DECODER)) if decoder else (encoder,))


def padded_times(name: str, *, decoder: bool) -> NodeTimes:
    """Return the node times of `padded_graph`, without the overhead of scheduling cells."""
    return NodeTimes(padded_graph(name, decoder=decoder), V100Cells((1,) if decoder else (), Overhead.NONE))
