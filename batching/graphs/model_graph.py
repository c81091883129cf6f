"""Model graphs: what a scheduler and a simulator need to know of a network.

A graph is an ordered list of nodes. Feed-forward nodes run once, encoder nodes once per input step and decoder nodes
once per output step (LazyBatching, HPCA 2021, Section IV-B, Algorithm 1). A node lists the matrix products that it
computes, from which an accelerator model derives its latency; a scheduler looks at its kind alone.
"""

from dataclasses import dataclass
from enum import Enum


class NodeKind(Enum):
    """How often a node runs: once, once for each step of the input, or once for each step of the output."""

    STATIC = "static"
    ENCODER = "encoder"
    DECODER = "decoder"


class Length(Enum):
    """Stands for a dimension that is the length of the request's input, or half of it: what a decoder that goes over
    all of its output so far has on average, if the output is as long as the input."""

    INPUT = "input length"
    HALF_INPUT = "half the input length"


LENGTH = Length.INPUT
HALF_LENGTH = Length.HALF_INPUT
Dim = int | Length


def resolve(dim: Dim, length: float) -> int:
    """The dimension in elements for an input of `length` steps; at least 1."""
    if isinstance(dim, int):
        return dim
    return max(1, round(length if dim is LENGTH else length / 2))


@dataclass(frozen=True, slots=True)
class MatMul:
    """`groups` products (m x k) @ (k x n) for each request, such as a convolution lowered to im2col form:
    m = output pixels, k = input channels of a group * kernel pixels, n = output channels of a group.

    With `weights` the k x n operand is trained: it is read once for the whole sub-batch, whose rows are stacked
    (batch * m). Without, both operands belong to the request (attention), so each request is a product of its own.
    `input_elements` is the size of the input tensor of one request where it is not groups * m * k (a convolution
    reads its pixels in several patches); 0 means groups * m * k."""

    m: Dim
    k: Dim
    n: Dim
    groups: int = 1
    weights: bool = True
    input_elements: int = 0

    def macs(self, length: float = 1) -> int:
        """Multiply-accumulates of one request; a FLOP count is twice that."""
        return self.groups * resolve(self.m, length) * resolve(self.k, length) * resolve(self.n, length)


@dataclass(frozen=True, slots=True)
class Kernel:
    """What an eager framework launches for one operator. In elements: activations `read` and `written` for each request
    of a batch, `weights` (and what follows from weights alone) read once for all of it. `products` are the matrix
    products that it computes; a norm, an activation or a copy computes none. One that reads no activations does all
    that it does once for a batch: masks, positions."""

    name: str
    read: int
    written: int
    weights: int = 0
    products: tuple[MatMul, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """`operators` are its matrix products, which are all that an accelerator with the rest built in is slow at;
    `kernels`, where known, all that is launched on a GPU, in order, these products included. `parameters` counts all
    trained values, also those that no product reads (biases, norms, embeddings)."""

    name: str
    kind: NodeKind = NodeKind.STATIC
    operators: tuple[MatMul, ...] = ()
    parameters: int = 0
    kernels: tuple[Kernel, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelGraph:
    """At most one section of encoder nodes and one of decoder nodes, each of consecutive nodes, encoder first."""

    name: str
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError(f"model graph {self.name!r} has no nodes")
        encoder, decoder = self.section(NodeKind.ENCODER), self.section(NodeKind.DECODER)
        for kind, section in ((NodeKind.ENCODER, encoder), (NodeKind.DECODER, decoder)):
            if any(self.nodes[index].kind is not kind for index in section):
                raise ValueError(f"the {kind.value} nodes of model graph {self.name!r} must follow each other directly")
        if encoder and decoder and decoder.start < encoder.stop:
            raise ValueError(f"model graph {self.name!r} must list its encoder before its decoder")

    def section(self, kind: NodeKind) -> range:
        """Indices from the first to the last node of `kind`; empty if there is none."""
        indices = [index for index, node in enumerate(self.nodes) if node.kind is kind]
        return range(indices[0], indices[-1] + 1) if indices else range(0)

    def parameters(self) -> int:
        return sum(node.parameters for node in self.nodes)

    def macs(self, input_len: float = 1, output_len: int = 1) -> int:
        """Multiply-accumulates of one request with its encoder run `input_len` times and its decoder `output_len`."""
        runs = {NodeKind.STATIC: 1.0, NodeKind.ENCODER: input_len, NodeKind.DECODER: float(output_len)}
        return round(sum(runs[node.kind] * op.macs(input_len) for node in self.nodes for op in node.operators))

    @classmethod
    def opaque(cls, name: str) -> "ModelGraph":
        """A network that a scheduler sees as one node: it runs whole, or not at all."""
        return cls(name, (Node(name),))
