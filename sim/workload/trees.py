"""Trees as cell graphs, drawn at random or read from a file. A TreeLSTM serves them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.graphs.cell_graph import CellGraph
from headrace.sim.text_files import read_text

LEAF, INNER = 0, 1  # types of cells


def random_tree(leaves: int, seed: int) -> CellGraph:
    """Return a binary tree whose inner nodes split their leaves at any place with equal probability.

    Such trees lie between the balanced tree and a chain, as parse trees do."""
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
    """Return the complete binary tree of `leaves` leaves, a power of two."""
    cells: list[tuple[int, Sequence[int]]] = [(LEAF, ()) for _ in range(leaves)]
    level = list(range(leaves))
    while len(level) > 1:
        above = range(len(cells), len(cells) + len(level) // 2)
        cells += [(INNER, (level[2 * n], level[2 * n + 1])) for n in range(len(level) // 2)]
        level = list(above)
    return CellGraph.of(cells)


def read_trees(path: Path) -> list[CellGraph]:
    """Read binary parse trees, one for each line, bracketed as in the Stanford Sentiment TreeBank: (3 (2 good) (2
    film)).

    A node with one child counts as that child. Raises UsageError that names file and line."""
    lines = read_text(str(path), path).split("\n")
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
    """Return the tree of the parts of a line. Words are leaves, and children have lower numbers than their parents."""
    cells: list[tuple[int, Sequence[int]]] = []
    open_nodes: list[list[int | str]] = []  # for each open bracket, its label or word, and its children's cells
    root: int | None = None
    for part in parts:
        if root is not None:
            raise ValueError("text follows the tree")
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
