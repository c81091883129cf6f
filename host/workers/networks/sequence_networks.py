"""Networks over sequences and trees, and how one input of a network unfolds into cells.

This module does not import torch: the runtime plans with it, and only worker processes hold weights.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.batching import BadInput, UsageError
from headrace.batching.graphs.cell_graph import CellGraph
from headrace.batching.graphs.model_graph import NodeKind
from headrace.host.workers.networks.foreign.rules import ANY_FILE, FileRules
from headrace.host.workers.networks.steps import EOS, GO, Signature

FROM_STATE = -1  # instead of an input token: take the token that the step before left in the state row
KINDS = ("lstm", "seq2seq", "treelstm", "transformer")

_CHILDREN_DONE = object()  # a mark on the stack of `post_order`; a caller cannot pass this value

Tree = int | tuple["Tree", "Tree"]  # a word, or two subtrees


@dataclass(frozen=True, slots=True)
class Network:
    """A network over sequences or trees under the name that requests use.

    Args:
        kind: One of KINDS, or `module:function`, which names a function without arguments that returns a user's own
            step model (see steps.py).
        hidden, vocabulary, heads, norm_first: Settings of KINDS.
        layers: Encoder layers, and as many decoder layers, of KINDS.
        weights: File with the state_dict of the steps' modules in a ModuleList. Without it the weights are random but
            fixed by `seed`.
        max_batch: A limit for each step. Empty means the model's own limits.
        longest_input, longest_output: Tokens, see `Signature`.
        rules: The user's rules for reading the file of `weights`.

    Raises:
        UsageError: A value is outside its range.
    """

    name: str
    kind: str = "lstm"
    hidden: int = 1024
    vocabulary: int = 30_000
    weights: str | None = None
    seed: int = 0
    max_batch: tuple[int, ...] = ()
    heads: int = 8
    layers: int = 2
    norm_first: bool = False
    longest_input: int = 128
    longest_output: int = 128
    rules: FileRules = ANY_FILE

    def __post_init__(self) -> None:
        if self.kind not in KINDS and ":" not in self.kind:
            raise UsageError(
                f"network {self.name!r} of kind {self.kind!r}; give one of {', '.join(KINDS)}, or module:function"
            )
        if self.hidden < 1 or self.vocabulary <= EOS:
            raise UsageError(
                f"network {self.name!r}: hidden size {self.hidden}, vocabulary {self.vocabulary}; give a hidden size "
                f"of 1 or more and a vocabulary of {EOS + 1} or more words"
            )
        if self.kind == "transformer" and (self.layers < 1 or self.heads < 1 or self.hidden % self.heads):
            raise UsageError(
                f"network {self.name!r}: {self.layers} layers of {self.heads} heads, hidden size {self.hidden}; give 1 "
                "or more layers, and heads that divide the hidden size"
            )
        if self.longest_input < 1 or self.longest_output < 1:
            raise UsageError(
                f"network {self.name!r}: longest input {self.longest_input}, output {self.longest_output}; give 1 or "
                "more tokens"
            )


class Plan:
    """One unfolded input: its cell graph, the input token of each cell, and the cells whose states each cell reads.

    Args:
        rows: Number of states that it needs at the same time.
        limit: Most tokens that it decodes.
        input: The tokens that a STATIC step takes.
    """

    def __init__(
        self,
        graph: CellGraph,
        tokens: Sequence[int],
        sources: Sequence[Sequence[int]] | None,
        rows: int,
        limit: int,
        input: Sequence[int] = (),
    ) -> None:
        self.graph = graph
        self.rows = rows
        self.limit = limit
        self.input = input
        self._tokens = tokens
        self._sources = sources

    def token(self, cell: int) -> int:
        return self._tokens[cell] if cell < len(self._tokens) else FROM_STATE

    def sources(self, cell: int) -> Sequence[int]:
        if self._sources is not None:
            return self._sources[cell]
        return (cell - 1,) if cell > 0 else ()


def plan(signature: Signature, value: Any, max_steps: int) -> Plan:
    """Unfold `value`: a sequence of tokens, or a Tree for a network over trees.

    A STATIC step is one cell, whose token is the length of the input. An ENCODER step is a chain of one cell for each
    token. `max_steps` limits how many tokens a decoder decodes. Raises BadInput."""
    if signature.tree:
        return _plan_tree(signature, value)
    tokens = tokens_of(signature, value)
    limit = limit_of(signature, max_steps) if signature.decodes else 0
    signature.check_lengths(len(tokens), limit)
    cells: list[int] = []
    chains: list[tuple[int, int]] = []
    for number, step in enumerate(signature.steps):
        if step.kind is NodeKind.ENCODER:
            cells += tokens
            chains.append((number, len(tokens)))
        elif step.kind is NodeKind.STATIC:
            cells.append(len(tokens))
            chains.append((number, 1))
        else:
            cells.append(GO)
    decoder = len(signature.steps) - 1 if signature.decodes else -1
    return Plan(CellGraph.chains(chains, decoder), cells, None, 1, limit, tokens)


def tokens_of(signature: Signature, value: Any) -> list[int]:
    """Return the input as tokens of the vocabulary. Raises BadInput."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise BadInput(f"network {signature.name!r} takes a list of token ids, not a {type(value).__name__}")
    if not value:
        raise BadInput(f"network {signature.name!r} was given an empty sequence; give at least one token")
    return [_token(signature, token) for token in value]


def limit_of(signature: Signature, max_steps: Any) -> int:
    """Return `max_steps` as an integer of 1 or more. Raises BadInput."""
    try:
        limit = operator.index(max_steps)
    except TypeError:
        limit = 0
    if limit < 1:
        raise BadInput(
            f"max_steps is {max_steps}: let network {signature.name!r} decode a whole number of tokens, 1 or more"
        )
    return limit


def _plan_tree(signature: Signature, tree: Tree) -> Plan:
    leaf, inner = sorted(range(2), key=lambda number: signature.steps[number].reads)
    cells: list[tuple[int, Sequence[int]]] = []
    tokens: list[int] = []
    for token, children in post_order(tree):
        cells.append((inner if children else leaf, children))
        tokens.append(token if children else _token(signature, token))
    return Plan(CellGraph.of(cells), tokens, [sources for _, sources in cells], (len(cells) + 1) // 2, 0)


def post_order(tree: Tree) -> list[tuple[int, tuple[int, ...]]]:
    """Return the nodes, children before parents: (token, ()) for a leaf, (0, numbers of the two children) for an inner
    node.

    It is iterative, as trees may be deeper than Python's stack. Raises BadInput."""
    nodes: list[tuple[int, tuple[int, ...]]] = []
    done: list[int] = []  # numbers of the roots of finished subtrees
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
    """Return the tree of a parent list, as in the Stanford Sentiment Treebank's STree.txt.

    `parents[i]` is the number, from 1, of the parent of node i + 1, or 0 for the root. The first nodes are the words in
    the order of the sentence, which defines left and right. Raises BadInput."""
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


def _token(signature: Signature, token: Any) -> int:
    try:
        number = operator.index(token)  # also converts numpy's integers, which JSON does not take
    except TypeError:
        number = -1
    if not 0 <= number < signature.vocabulary:
        raise BadInput(
            f"token {token!r} is not one of network {signature.name!r}; give integers from 0 to "
            f"{signature.vocabulary - 1}"
        )
    return number
