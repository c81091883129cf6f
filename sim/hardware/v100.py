"""The GPU on which BatchMaker was evaluated (Gao, Yu, Wu, Li, EuroSys 2018), as latencies of batched cells, and its
workloads. Every number of the paper that is used stands here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.graphs.cell_graph import CellGraph, CellModel, CellType, lstm, seq2seq
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import ModelGraph, Node, NodeKind
from headrace.batching.request import Request
from headrace.sim.load.lengths import LogNormalPair, Steps

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


# WMT-15 Europarl, German to English: mean 24 words, at most 330, 99 % below 100 (Section 7.1). A log-normal with the
# first and the last of these has the median and sigma below. Of output lengths it says nothing: they are taken to be
# distributed as the inputs, and to go with them as TRANSLATION's do.
WMT15 = LogNormalPair(input_median=18.43, output_median=18.43, sigma=0.727, correlation=0.9, longest=330)


@dataclass(frozen=True, slots=True)
class Clipped:
    """WMT15 with every length cut to `longest` (Section 7.3). Raises UsageError."""

    longest: int

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise UsageError(f"lengths clipped to {self.longest}: give at least 1")

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Steps, Steps]:
        inputs, outputs = WMT15.sample(requests, rng)
        return np.minimum(inputs, self.longest), np.minimum(outputs, self.longest)


@dataclass(frozen=True, slots=True)
class Sentences:
    """Leaves of a binary parse tree of the Stanford Sentiment TreeBank: 215,154 phrases in 11,855 sentences, so 19.1
    words a sentence on average (Socher et al., EMNLP 2013). That they are normal with a deviation of 9, cut to 2 to 56
    (which leaves a mean of 19.6), is our choice."""

    mean: float = 19.1
    deviation: float = 9.0
    longest: int = 56

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Steps, Steps]:
        leaves = np.empty(0, np.int64)
        while len(leaves) < requests:
            drawn = np.rint(rng.normal(self.mean, self.deviation, requests)).astype(np.int64)
            leaves = np.append(leaves, drawn[(drawn >= 2) & (drawn <= self.longest)])
        return leaves[:requests], np.ones(requests, np.int64)


LEAF, INNER = 0, 1


def random_tree(leaves: int, seed: int) -> CellGraph:
    """A binary tree whose inner nodes split their leaves anywhere, each place as likely as the others: between the
    balanced tree and a chain, as parse trees are."""
    rng = np.random.default_rng((seed, leaves))
    cells: list[tuple[int, Sequence[int]]] = [(LEAF, ()) for _ in range(leaves)]

    def grow(first: int, stop: int) -> int:
        if stop - first == 1:
            return first
        middle = int(rng.integers(first + 1, stop))
        children = (grow(first, middle), grow(middle, stop))
        cells.append((INNER, children))
        return len(cells) - 1

    grow(0, leaves)
    return CellGraph.of(cells)


def complete_tree(leaves: int) -> CellGraph:
    """`leaves` is a power of two."""
    cells: list[tuple[int, Sequence[int]]] = [(LEAF, ()) for _ in range(leaves)]
    level = list(range(leaves))
    while len(level) > 1:
        above = range(len(cells), len(cells) + len(level) // 2)
        cells += [(INNER, (level[2 * n], level[2 * n + 1])) for n in range(len(level) // 2)]
        level = list(above)
    return CellGraph.of(cells)


def read_trees(path: Path) -> list[CellGraph]:
    """Binary parse trees, one a line, bracketed as in the Stanford Sentiment TreeBank: (3 (2 good) (2 film)). A node
    with one child is that child. Raises UsageError that names file and line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    trees = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                trees.append(_parse_tree(line.replace("(", " ( ").replace(")", " ) ").split()))
            except ValueError as error:
                raise UsageError(f"{path}, line {number}: {error}; give trees such as (3 (2 good) (2 film))") from error
    if not trees:
        raise UsageError(f"{path} has no trees; give one a line, such as (3 (2 good) (2 film))")
    return trees


def _parse_tree(parts: Sequence[str]) -> CellGraph:
    """The words are leaves; cells are numbered children first."""
    cells: list[tuple[int, Sequence[int]]] = []
    open_nodes: list[list[int | str]] = []  # of each open bracket its label or word, and its children's cells
    root: int | None = None
    for part in parts:
        if root is not None:
            raise ValueError("something stands behind the tree")
        if part == "(":
            open_nodes.append([])
        elif part != ")":
            if not open_nodes:
                raise ValueError("a word stands outside all brackets")
            open_nodes[-1].append(part)
        else:
            if not open_nodes:
                raise ValueError("a bracket is closed that was not opened")
            node = open_nodes.pop()
            children = [child for child in node if isinstance(child, int)]
            if not children:
                if len(node) != 2:
                    raise ValueError("a leaf has a label and one word")
                cells.append((LEAF, ()))
                cell = len(cells) - 1
            elif len(children) > 2:
                raise ValueError(f"a node has {len(children)} children; make the trees binary")
            elif len(children) == 1:
                cell = children[0]
            else:
                cells.append((INNER, children))
                cell = len(cells) - 1
            if open_nodes:
                open_nodes[-1].append(cell)
            else:
                root = cell
    if root is None:
        raise ValueError("a bracket is not closed" if open_nodes else "it is empty")
    return CellGraph.of(cells)


def tree_lstm(
    name: str = "tree", max_batch: int = 64, complete: int = 0, trees: Sequence[CellGraph] | None = None
) -> CellModel:
    """Every request has a tree of its own with as many leaves as its input is long; or, with `complete`, the complete
    tree of so many leaves; or the next one of `trees`, over and over. Inner nodes have priority over leaves: they end
    requests (Section 7.5: batches of 64)."""
    types = (CellType("leaf", max_batch), CellType("inner", max_batch, priority=1))
    if trees is not None:
        given = list(trees)
        return CellModel(name, types, lambda request: given[request.id % len(given)])
    if complete:
        tree = complete_tree(complete)
        return CellModel(name, types, lambda request: tree)
    # Shapes repeat after 64 requests of a length, so that a run does not spend its time on growing trees.
    grown = lru_cache(maxsize=1 << 14)(random_tree)

    def unfold(request: Request) -> CellGraph:
        return grown(max(2, round(request.input_len)), request.id % 64)

    return CellModel(name, types, unfold)


CELL_NETWORKS = ("lstm", "seq2seq", "treelstm")


def cell_network(name: str, max_batch: int, trees: Sequence[CellGraph] | None = None) -> tuple[CellModel, NodeTimes]:
    """One of CELL_NETWORKS with the paper's batch limits, or `max_batch` where that is less, and its latencies."""
    match name:
        case "lstm":
            model = lstm(name, min(max_batch, FULL_BATCH))
        case "seq2seq":
            model = seq2seq(name, min(max_batch, FULL_BATCH), min(max_batch, DECODER_FULL_BATCH))
        case _:
            model = tree_lstm(name, min(max_batch, FLAT_BATCH), trees=trees)
    return model, cell_times(model, (1,) if name == "seq2seq" else ())
