"""What a recurrent network takes and how one input of it unfolds into cells. No torch here: the runtime plans, and only
worker processes hold weights."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.batching import BadInput, UsageError
from headrace.batching.graphs.cell_graph import CellGraph, CellType

GO = 0  # the first token that a decoder is fed
EOS = 1  # the token that ends its output
FROM_STATE = -1  # in place of an input token: take the one that the step before left in the state row

_CHILDREN_DONE = object()  # on the stack of `post_order`; no value that a caller could give

Tree = int | tuple["Tree", "Tree"]  # a word, or two subtrees


@dataclass(frozen=True, slots=True)
class CellShape:
    """A cell type with how many states (h, c) it reads and whether it answers with the tokens that it chose."""

    name: str
    reads: int
    max_batch: int
    priority: int = 0
    emits: bool = False


# Batch limits of LSTM and Seq2Seq: BatchMaker, Section 7; decoding has priority, as it ends requests. The cells of a
# tree go by the same rule: inner nodes end requests.
KINDS: dict[str, tuple[CellShape, ...]] = {
    "lstm": (CellShape("lstm", 1, 512),),
    "seq2seq": (CellShape("encoder", 1, 512), CellShape("decoder", 1, 256, priority=1, emits=True)),
    "treelstm": (CellShape("leaf", 0, 64), CellShape("inner", 2, 64, priority=1)),
}


@dataclass(frozen=True, slots=True)
class Network:
    """A recurrent network under the name that requests ask for.

    `kind` is one of KINDS. `cells`, `module:function`, names a function of `hidden` and `vocabulary` that returns the
    torch modules of one's own for that kind's cells, in their order (see cells/modules.py for what they take).
    `weights` is a file with the state_dict of these modules in a ModuleList; without it they are random but fixed by
    `seed`. `max_batch` has a limit for each cell type; the kind's own ones if empty. Raises UsageError."""

    name: str
    kind: str = "lstm"
    hidden: int = 1024
    vocabulary: int = 30_000
    weights: str | None = None
    seed: int = 0
    max_batch: tuple[int, ...] = ()
    cells: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"network {self.name!r} of kind {self.kind!r}; give one of {', '.join(KINDS)}")
        if self.hidden < 1 or self.vocabulary <= EOS:
            raise UsageError(
                f"network {self.name!r}: hidden size {self.hidden}, vocabulary {self.vocabulary}; give a hidden size "
                f"of 1 or more and a vocabulary of {EOS + 1} or more words"
            )
        if self.max_batch and len(self.max_batch) != len(KINDS[self.kind]):
            names = ", ".join(shape.name for shape in KINDS[self.kind])
            raise UsageError(f"network {self.name!r}: max_batch {self.max_batch}; give one for each of {names}")

    @property
    def shapes(self) -> tuple[CellShape, ...]:
        return KINDS[self.kind]

    @property
    def types(self) -> tuple[CellType, ...]:
        limits = self.max_batch or [shape.max_batch for shape in self.shapes]
        return tuple(
            CellType(shape.name, limit, priority=shape.priority)
            for shape, limit in zip(self.shapes, limits, strict=True)
        )


class Plan:
    """One input, unfolded: its cell graph, the input token of each cell and the cells whose states each one reads.

    `rows` is how many states it needs to keep at a time. `limit` is the most tokens that it decodes."""

    def __init__(
        self, graph: CellGraph, tokens: Sequence[int], sources: Sequence[Sequence[int]] | None, rows: int, limit: int
    ) -> None:
        self.graph = graph
        self.rows = rows
        self.limit = limit
        self._tokens = tokens
        self._sources = sources

    def token(self, cell: int) -> int:
        return self._tokens[cell] if cell < len(self._tokens) else FROM_STATE

    def sources(self, cell: int) -> Sequence[int]:
        if self._sources is not None:
            return self._sources[cell]
        return (cell - 1,) if cell > 0 else ()


def plan(network: Network, value: Any, max_steps: int) -> Plan:
    """Unfold `value`: a sequence of tokens, or a Tree for a treelstm; `max_steps` limits what a decoder decodes.
    Raises BadInput."""
    if network.kind == "treelstm":
        return _plan_tree(network, value)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise BadInput(f"network {network.name!r} takes a list of token ids, not a {type(value).__name__}")
    if not value:
        raise BadInput(f"network {network.name!r} was given an empty sequence; give at least one token")
    tokens = [_token(network, token) for token in value]
    if network.kind == "lstm":
        return Plan(CellGraph.chain(0, len(tokens)), tokens, None, 1, 0)
    try:
        limit = operator.index(max_steps)
    except TypeError:
        limit = 0
    if limit < 1:
        raise BadInput(
            f"max_steps is {max_steps}: let network {network.name!r} decode a whole number of tokens, 1 or more"
        )
    return Plan(CellGraph.encoder_decoder(0, len(tokens), 1), [*tokens, GO], None, 1, limit)


def _plan_tree(network: Network, tree: Tree) -> Plan:
    cells: list[tuple[int, Sequence[int]]] = []
    tokens: list[int] = []
    for token, children in post_order(tree):
        cells.append((1 if children else 0, children))
        tokens.append(token if children else _token(network, token))
    return Plan(CellGraph.of(cells), tokens, [sources for _, sources in cells], (len(cells) + 1) // 2, 0)


def post_order(tree: Tree) -> list[tuple[int, tuple[int, ...]]]:
    """The nodes, children before parents: (token, ()) of a leaf, (0, numbers of the two children) of an inner node.

    Iterative, as trees may be deeper than Python's stack. Raises BadInput."""
    nodes: list[tuple[int, tuple[int, ...]]] = []
    done: list[int] = []  # roots of finished subtrees
    stack: list[Any] = [tree]
    while stack:
        top = stack.pop()
        if top is _CHILDREN_DONE:
            right, left = done.pop(), done.pop()
            nodes.append((0, (left, right)))
        elif isinstance(top, tuple | list):
            if len(top) != 2:
                raise BadInput(f"a tree node with {len(top)} children; give two, or a token id for a leaf")
            stack += [_CHILDREN_DONE, top[1], top[0]]
            continue
        else:
            nodes.append((top, ()))
        done.append(len(nodes) - 1)
    return nodes


def tree_of(words: Sequence[int], parents: Sequence[int]) -> Tree:
    """The tree from a parent list as the Stanford Sentiment Treebank's STree.txt has it: `parents[i]` is the number,
    from 1, of node i + 1's parent, 0 for the root's; the first nodes are the words, in the order of the sentence,
    which tells left from right. Raises BadInput."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents, 1):
        children.setdefault(parent, []).append(node)
    roots = children.pop(0, [])
    if len(roots) != 1 or not 1 <= len(words) <= len(parents):
        raise BadInput(
            f"{len(words)} words and a parent list of {len(parents)} nodes with {len(roots)} roots; give one"
        )
    built: dict[int, Any] = {}
    first: dict[int, int] = {}  # the first word below a node
    stack = [roots[0]]
    while stack:
        node = stack[-1]
        waiting = [child for child in children.get(node, []) if child not in built]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if node <= len(words):
            built[node], first[node] = words[node - 1], node
        elif len(children.get(node, [])) == 2:
            left, right = sorted(children[node], key=first.__getitem__)
            built[node], first[node] = (built[left], built[right]), first[left]
        else:
            raise BadInput(f"node {node} has {len(children.get(node, []))} children; an inner node has two")
    if len(built) != len(parents):
        raise BadInput("the parent list has a cycle; every node must lead to the root")
    return built[roots[0]]


def _token(network: Network, token: Any) -> int:
    try:
        number = operator.index(token)  # numpy's integers too, which JSON does not take
    except TypeError:
        number = -1
    if not 0 <= number < network.vocabulary:
        raise BadInput(
            f"token {token!r} is not one of network {network.name!r}; give integers from 0 to {network.vocabulary - 1}"
        )
    return number
