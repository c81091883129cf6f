"""Cell graphs: what BatchMaker (Gao, Yu, Wu, Li, "Low Latency RNN Inference with Cellular Batching", EuroSys 2018,
Section 4) knows of a recurrent network and of a request to it.

A cell type is a sub-graph with its weights (an LSTM step, the inner node of a TreeLSTM); a request unfolds into a graph
of cells, each of a type, that depend on each other. Cells of one type can be batched whatever requests and places in
them they come from. A cell graph is cut into subgraphs: connected cells of one type, which are scheduled together once
all that they need from outside is there.
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
    """`max_batch` and `min_batch` are what a task of this type has at most, and at least if it is submitted behind
    another one of the same decision. Of several types that qualify, the highest `priority` runs. Raises UsageError."""

    name: str
    max_batch: int
    min_batch: int = 1
    priority: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.min_batch <= self.max_batch:
            raise UsageError(
                f"cell type {self.name!r}: batches of {self.min_batch} to {self.max_batch}; give 1 <= least <= most"
            )


class Subgraph:
    """Cells `first` to `stop` - 1 of a request, of one type. `needs` are the cells outside that must be complete before
    any of it runs. A chain has each cell depend on the one before; an open one has no `stop` known in advance
    (UNTIL_END): the driver tells when its sequence has ended. Otherwise `inner[i]` are the numbers of the cells inside
    that cell `cells[i]` depends on."""

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
        self.missing: list[int] = []  # by place in `cells`: cells inside that it waits for
        self.feeds: list[list[int]] = []  # by place in `cells`: places of those that wait for it
        if inner is not None:
            places = {cell: place for place, cell in enumerate(cells)}
            self.missing = [len(sources) for sources in inner]
            self.feeds = [[] for _ in cells]
            for place, sources in enumerate(inner):
                for source in sources:
                    self.feeds[places[source]].append(place)


class CellGraph:
    """A request's cells, numbered from 0, as subgraphs. `open_from` is the number of the first cell of the open chain
    at its end; -1 if there is none. Use the class methods."""

    def __init__(self, subgraphs: Sequence[Subgraph], cells: int, open_from: int = -1) -> None:
        self.subgraphs: list[Subgraph] = list(subgraphs)
        self.cells: int = cells  # without those of an open chain
        self.open_from: int = open_from

    @classmethod
    def chain(cls, type: int, length: int) -> "CellGraph":
        """`length` cells, each depending on the one before."""
        if length < 1:
            raise UsageError(f"a chain of {length} cells: give at least 1")
        return cls.chains([(type, length)])

    @classmethod
    def encoder_decoder(cls, encoder: int, length: int, decoder: int) -> "CellGraph":
        """A chain of `length` encoder cells, and behind it a chain of decoder cells that ends when its output does."""
        if length < 1:
            raise UsageError(f"an encoder of {length} cells: give at least 1")
        return cls.chains([(encoder, length)], decoder)

    @classmethod
    def chains(cls, chains: Sequence[tuple[int, int]], decoder: int = -1) -> "CellGraph":
        """Chains one behind the other, each (cell type, length of 1 or more), and behind them all, if `decoder` is a
        cell type, a chain of it that ends when its output does."""
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
        """Any acyclic graph: for each cell its type and the numbers of the cells it depends on, all of them lower.

        Connected cells of one type make a subgraph if they are equally deep, by the changes of type on the way to them:
        if a path left the type and came back, what lies behind would wait for itself. Raises UsageError."""
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
                raise UsageError(f"cell {cell} depends on {list(sources)}: list cells behind those that they depend on")
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
    """A network as its cell types and the function that unfolds a request into its cells (types by number).

    `unfold` is called when a request begins and whenever it must begin anew."""

    name: str
    types: tuple[CellType, ...]
    unfold: Callable[[Request], CellGraph]

    @property
    def graph(self) -> ModelGraph:
        """One node a cell type: what a latency model is asked for."""
        return ModelGraph(self.name, tuple(Node(cell_type.name) for cell_type in self.types))

    @property
    def largest_batch(self) -> int:
        """Of all its cell types, in cells."""
        return max(cell_type.max_batch for cell_type in self.types)


def lstm(name: str = "lstm", max_batch: int = 512) -> CellModel:
    """A chain of as many cells as the input is long."""
    chain = lru_cache(maxsize=4096)(CellGraph.chain)
    return CellModel(name, (CellType("lstm", max_batch),), lambda request: chain(0, steps(request.input_len)))


def seq2seq(name: str = "seq2seq", encoder_batch: int = 512, decoder_batch: int = 256) -> CellModel:
    """An encoder chain, and a decoder chain that ends with the output; decoding has priority, as it ends requests."""
    unfolded = lru_cache(maxsize=4096)(lambda length: CellGraph.encoder_decoder(0, length, 1))
    types = (CellType("encoder", encoder_batch, priority=0), CellType("decoder", decoder_batch, priority=1))
    return CellModel(name, types, lambda request: unfolded(steps(request.input_len)))
