"""Cell graphs: a recurrent network as cellular batching sees it.

A cell type is a sub-graph with its weights, such as an LSTM step or the inner node of a TreeLSTM. A request unfolds
into a graph of cells. Each cell has a type and depends on other cells. Cells of one type can form a batch, also if they
belong to different requests, or stand at different places in their requests.

A cell graph is cut into subgraphs, which are connected cells of one type. The cells of a subgraph are scheduled
together, once all cells outside that they need are complete.

Source: BatchMaker (Gao, Yu, Wu, Li, "Low Latency RNN Inference with Cellular Batching", EuroSys 2018), Section 4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from headrace.batching.errors import UsageError
from headrace.batching.graphs.execution import steps
from headrace.batching.graphs.model_graph import ModelGraph, Node
from headrace.batching.request import UNTIL_END, Request


@dataclass(frozen=True, slots=True)
class CellType:
    """One kind of cell.

    Args:
        name: The type's name.
        max_batch: The largest batch of a task, in cells.
        min_batch: The smallest batch of a task that is not the first of its scheduling decision.
        priority: Of several types that qualify, the one with the highest priority runs.

    Raises:
        UsageError: The limits are not 1 <= min_batch <= max_batch.
    """

    name: str
    max_batch: int
    min_batch: int = 1
    priority: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.min_batch <= self.max_batch:
            raise UsageError(
                f"cell type {self.name!r}: batches of {self.min_batch} to {self.max_batch}; "
                "give 1 <= min_batch <= max_batch"
            )


class Subgraph:
    """Cells `first` to `stop` - 1 of a request, all of one type.

    Args:
        type: The number of the cell type.
        cells: The numbers of the cells; of a chain, only the first and the last are used.
        needs: The cells outside that must be complete before any cell of the subgraph runs.
        inner: `inner[i]` lists the cells inside on which `cells[i]` depends. None makes a chain, in which each cell
            depends on the one before.
        open: Whether the length of the chain is unknown. `stop` is then UNTIL_END, and the driver tells when the
            sequence has ended.
    """

    def __init__(
        self, type: int, cells: Sequence[int], needs: Sequence[int], inner: Sequence[Sequence[int]] | None, open: bool
    ) -> None:
        self.type: int = type
        self.chain: bool = inner is None
        self.first: int = cells[0]
        self.stop: int = UNTIL_END if open else cells[-1] + 1
        self.cells: list[int] = list(cells)
        self.needs: list[int] = list(needs)
        self.open: bool = open
        self.missing: list[int] = []  # by place in `cells`: the number of inner cells that it waits for
        self.feeds: list[list[int]] = []  # by place in `cells`: the places of the cells that wait for it
        if inner is not None:
            places = {cell: place for place, cell in enumerate(cells)}
            self.missing = [len(sources) for sources in inner]
            self.feeds = [[] for _ in cells]
            for place, sources in enumerate(inner):
                for source in sources:
                    self.feeds[places[source]].append(place)


class CellGraph:
    """The cells of a request, numbered from 0, in subgraphs. Make one with the class methods.

    Args:
        subgraphs: The subgraphs.
        cells: The number of cells, without those of an open chain.
        open_from: The number of the first cell of the open chain at the end; -1 if there is none.
    """

    def __init__(self, subgraphs: Sequence[Subgraph], cells: int, open_from: int = -1) -> None:
        self.subgraphs: list[Subgraph] = list(subgraphs)
        self.cells: int = cells
        self.open_from: int = open_from

    @classmethod
    def chain(cls, type: int, length: int) -> "CellGraph":
        """Return a chain of `length` cells, each of which depends on the one before. Raises UsageError."""
        if length < 1:
            raise UsageError(f"a chain of {length} cells: give at least 1")
        return cls.chains([(type, length)])

    @classmethod
    def encoder_decoder(cls, encoder: int, length: int, decoder: int) -> "CellGraph":
        """Return a chain of `length` encoder cells, followed by a decoder chain that ends when its output ends.

        Raises UsageError."""
        if length < 1:
            raise UsageError(f"an encoder of {length} cells: give at least 1")
        return cls.chains([(encoder, length)], decoder)

    @classmethod
    def chains(cls, chains: Sequence[tuple[int, int]], decoder: int = -1) -> "CellGraph":
        """Return chains in sequence.

        Args:
            chains: For each chain, its cell type and its length of 1 or more.
            decoder: The cell type of an open chain at the end, which ends when its output ends; -1 for none.
        """
        subgraphs: list[Subgraph] = []
        first = 0
        for type, length in chains:
            needs = [first - 1] if first > 0 else []
            subgraphs.append(Subgraph(type, [first, first + length - 1], needs, None, False))
            first += length
        if decoder < 0:
            return cls(subgraphs, first)
        subgraphs.append(Subgraph(decoder, [first], [first - 1], None, True))
        return cls(subgraphs, first, first)

    @classmethod
    def of(cls, cells: Sequence[tuple[int, Sequence[int]]]) -> "CellGraph":
        """Return any acyclic graph of cells.

        Connected cells of one type form a subgraph if their depth is equal. A cell's depth is the number of changes of
        type on the way to it. Depth matters because a path can leave a type and come back. If its two ends were in one
        subgraph, the subgraph would wait for itself.

        Args:
            cells: For each cell, its type and the numbers of the cells on which it depends. These are lower than its
                own.

        Raises:
            UsageError: There is no cell, or a cell depends on one that is not before it.
        """
        if not cells:
            raise UsageError("a cell graph needs at least one cell")
        depth: list[int] = []
        group = list(range(len(cells)))  # union-find

        def root(cell: int) -> int:
            while group[cell] != cell:
                group[cell] = group[group[cell]]
                cell = group[cell]
            return cell

        for cell, (kind, sources) in enumerate(cells):
            if any(not 0 <= source < cell for source in sources):
                raise UsageError(f"cell {cell} depends on {list(sources)}: list cells after those that they depend on")
            depth.append(max((depth[s] + (cells[s][0] != kind) for s in sources), default=0))
            for source in sources:
                if cells[source][0] == kind and depth[source] == depth[cell]:
                    group[root(source)] = root(cell)
        members: dict[int, list[int]] = {}
        for cell in range(len(cells)):
            members.setdefault(root(cell), []).append(cell)
        subgraphs = []
        for connected in members.values():
            inside = set(connected)
            needs = sorted({source for cell in connected for source in cells[cell][1]} - inside)
            inner = [sorted(inside.intersection(cells[cell][1])) for cell in connected]
            subgraphs.append(
                Subgraph(cells[connected[0]][0], connected, needs, inner if len(connected) > 1 else None, False)
            )
        return cls(subgraphs, len(cells))


@dataclass(frozen=True)
class CellModel:
    """A network as its cell types, and the function that unfolds a request into cells.

    `unfold` is called when a request begins, and again whenever it must begin anew. Cell types are given by number."""

    name: str
    types: tuple[CellType, ...]
    unfold: Callable[[Request], CellGraph]

    @property
    def graph(self) -> ModelGraph:
        """Return a graph with one node for each cell type. A latency model is asked by these nodes."""
        return ModelGraph(self.name, tuple(Node(cell_type.name) for cell_type in self.types))

    @property
    def largest_batch(self) -> int:
        """Return the largest batch of all cell types, in cells."""
        return max(cell_type.max_batch for cell_type in self.types)


def lstm(name: str = "lstm", max_batch: int = 512) -> CellModel:
    """Return a network that is a chain of as many cells as the input has steps."""
    chain = lru_cache(maxsize=4096)(CellGraph.chain)
    return CellModel(name, (CellType("lstm", max_batch),), lambda request: chain(0, steps(request.input_len)))


def seq2seq(name: str = "seq2seq", encoder_batch: int = 512, decoder_batch: int = 256) -> CellModel:
    """Return a network of an encoder chain and a decoder chain. The decoder has priority, because it ends requests."""
    unfolded = lru_cache(maxsize=4096)(lambda length: CellGraph.encoder_decoder(0, length, 1))
    types = (CellType("encoder", encoder_batch, priority=0), CellType("decoder", decoder_batch, priority=1))
    return CellModel(name, types, lambda request: unfolded(steps(request.input_len)))
