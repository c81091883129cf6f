"""The recurrent networks of BatchMaker's evaluation (EuroSys 2018, Section 7), as cells with their latencies."""

from collections.abc import Sequence
from functools import lru_cache

from headrace.batching.graphs.cell_graph import CellGraph, CellModel, CellType, lstm, seq2seq
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.request import Request
from headrace.sim.hardware.v100 import DECODER_FULL_BATCH, FLAT_BATCH, FULL_BATCH, cell_times, tree_times
from headrace.sim.workload.trees import complete_tree, random_tree

# Shapes repeat after 64 requests of a length, so that runs do not spend their time on making trees.
_grown = lru_cache(maxsize=1 << 14)(random_tree)

CELL_NETWORKS = ("lstm", "seq2seq", "treelstm")


def tree_lstm(
    name: str = "tree", max_batch: int = 64, complete: int = 0, trees: Sequence[CellGraph] | None = None
) -> CellModel:
    """Return a TreeLSTM. Every request has a tree of its own with as many leaves as its input is long.

    Inner nodes have priority over leaves, because they end requests (Section 7.5: batches of 64).

    Args:
        name: The name of the model.
        max_batch: The maximum batch of both types of cells.
        complete: Give every request the complete tree of this many leaves; 0 for random trees.
        trees: Give requests these trees in turn.
    """
    types = (CellType("leaf", max_batch), CellType("inner", max_batch, priority=1))
    if trees is not None:
        given = list(trees)
        return CellModel(name, types, lambda request: given[request.id % len(given)])
    if complete:
        tree = complete_tree(complete)
        return CellModel(name, types, lambda request: tree)

    def unfold(request: Request) -> CellGraph:
        return _grown(max(2, round(request.input_len)), request.id % 64)

    return CellModel(name, types, unfold)


def cell_network(name: str, max_batch: int, trees: Sequence[CellGraph] | None = None) -> tuple[CellModel, NodeTimes]:
    """Return one of CELL_NETWORKS and its latencies. Its batch limits are the paper's, or `max_batch` where that is
    less."""
    match name:
        case "lstm":
            model = lstm(name, min(max_batch, FULL_BATCH))
        case "seq2seq":
            model = seq2seq(name, min(max_batch, FULL_BATCH), min(max_batch, DECODER_FULL_BATCH))
        case _:
            model = tree_lstm(name, min(max_batch, FLAT_BATCH), trees=trees)
            return model, tree_times(model)
    return model, cell_times(model, (1,) if name == "seq2seq" else ())
