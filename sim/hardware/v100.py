"""The GPU on which BatchMaker was evaluated (Gao, Yu, Wu, Li, EuroSys 2018), as latencies of batched cells."""

from dataclasses import dataclass

from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import ModelGraph, Node, NodeKind

# An LSTM step of hidden size 1024 on a V100 (Section 2.2 and Fig. 3; Section 7): 185 us up to a batch of 64, 784 us at
# 512, in proportion to the batch beyond; with scheduling and gathering a step of 64 takes about 250 us.
FLAT_BATCH, FLAT_S = 64, 185e-6
FULL_BATCH, FULL_S = 512, 784e-6
OVERHEAD_S = 250e-6 - FLAT_S
# A decoder step, with its projection to 30,000 words, is about three times the work, and is best at a batch of 256.
DECODER_WORK, DECODER_FULL_BATCH = 3.0, 256


def lstm_step_s(batch: int) -> float:
    """Between the paper's two batch sizes on a straight line."""
    if batch <= FLAT_BATCH:
        return FLAT_S
    if batch >= FULL_BATCH:
        return FULL_S * batch / FULL_BATCH
    return FLAT_S + (FULL_S - FLAT_S) * (batch - FLAT_BATCH) / (FULL_BATCH - FLAT_BATCH)


def decoder_step_s(batch: int) -> float:
    """In proportion to the batch from DECODER_FULL_BATCH on."""
    full = min(batch, DECODER_FULL_BATCH)
    return DECODER_WORK * lstm_step_s(full) * max(1.0, batch / full)


@dataclass(frozen=True, slots=True)
class V100Cells:
    """`LatencyModel` by node: `decoders` are the numbers of those that are decoder steps, all others are LSTM steps.

    `overhead_s` is what scheduling and gathering add to every batched cell; a static graph, padded to one length, has
    none of it. A TreeLSTM's cells are taken to be LSTM steps: the paper gives no times of their own."""

    decoders: tuple[int, ...] = ()
    overhead_s: float = OVERHEAD_S

    def latency(self, node: int, batch: int, length: float) -> float:
        return (decoder_step_s if node in self.decoders else lstm_step_s)(batch) + self.overhead_s


def cell_times(model: CellModel, decoders: tuple[int, ...] = (), overhead_s: float = OVERHEAD_S) -> NodeTimes:
    """Of `model` under cellular batching."""
    return NodeTimes(model.graph, V100Cells(decoders, overhead_s))


def padded_graph(name: str, *, decoder: bool) -> ModelGraph:
    """The same network as one graph: an encoder step, and a decoder step, as often as the longest request needs."""
    encoder = Node("encoder", NodeKind.ENCODER)
    return ModelGraph(name, (encoder, Node("decoder", NodeKind.DECODER)) if decoder else (encoder,))


def padded_times(name: str, *, decoder: bool) -> NodeTimes:
    """Of `padded_graph`: without the overhead of scheduling cells."""
    return NodeTimes(padded_graph(name, decoder=decoder), V100Cells((1,) if decoder else (), 0.0))
