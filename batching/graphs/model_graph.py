"""Model graphs: the view of a network that a scheduler and a simulator need.

A graph is an ordered list of nodes. Static nodes run once, encoder nodes once per input step, and decoder nodes once
per output step. A node lists its matrix products, and an accelerator model derives the node's latency from them. A
scheduler uses only the node's kind.

Source: LazyBatching (Choi, Kim, Rhu, HPCA 2021), Section IV-C, Algorithm 1.
"""

from dataclasses import dataclass
from enum import Enum


class NodeKind(Enum):
    """How often a node runs: once, once per input step (encoder) or once per output step (decoder)."""

    STATIC = "static"
    ENCODER = "encoder"
    DECODER = "decoder"


class Length(Enum):
    """Stands for a dimension that depends on the length of the request's input.

    HALF_INPUT is for a decoder that reads all of its output so far. If the output is as long as the input, it reads
    half the input's length on average."""

    INPUT = "input length"
    HALF_INPUT = "half the input length"


ATTENTION = "_scaled_dot_product"  # the names of kernels that compute attention as a whole begin with this
CAUSAL = ".causal"  # and end with this where a query sees the keys before it alone

LENGTH = Length.INPUT
HALF_LENGTH = Length.HALF_INPUT
Dim = int | Length


def resolve(dim: Dim, length: float) -> int:
    """Return a dimension, in elements, for an input of `length` steps. It is at least 1."""
    if isinstance(dim, int):
        return dim
    return max(1, round(length if dim is LENGTH else length / 2))


@dataclass(frozen=True, slots=True)
class MatMul:
    """Matrix products (m x k) @ (k x n) that a node computes for each request.

    A convolution is lowered to im2col form. There, m is the number of output pixels. A group has n output
    channels, and k is the number of its input channels times the number of kernel pixels.

    Args:
        m, k, n: The dimensions, in elements.
        groups: The number of products.
        weights: Whether the k x n operand is trained. A trained operand is read once for the whole sub-batch, whose
            rows are stacked (batch * m). Otherwise both operands belong to the request, as in attention, and each
            request is a product of its own.
        input_elements: The size of one request's input tensor if it is not groups * m * k. A convolution, for example,
            reads a pixel in several patches. 0 means groups * m * k.
    """

    m: Dim
    k: Dim
    n: Dim
    groups: int = 1
    weights: bool = True
    input_elements: int = 0

    def macs(self, length: float = 1) -> int:
        """Return the multiply-accumulates of one request. The number of FLOPs is twice that."""
        return self.groups * resolve(self.m, length) * resolve(self.k, length) * resolve(self.n, length)


@dataclass(frozen=True, slots=True)
class Kernel:
    """The work that an eager framework launches on a GPU for one operator. Sizes are in elements.

    A kernel that reads no activations runs once for a whole batch. It makes, for example, masks or positions.

    Args:
        name: The operator's name.
        read: Activations that are read for each request of a batch.
        written: Activations that are written for each request of a batch.
        weights: Trained values, and values that follow from these alone. They are read once for a batch.
        products: The matrix products that the kernel computes. A norm, an activation or a copy computes none.
    """

    name: str
    read: int
    written: int
    weights: int = 0
    products: tuple[MatMul, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One schedulable part of a network.

    Args:
        name: The node's name.
        kind: How often the node runs.
        operators: Its matrix products. An accelerator that has all other operators built in spends its time on these.
        parameters: The number of trained values, including those that no product reads (biases, norms, embeddings).
        kernels: All kernels that are launched on a GPU, in order, if they are known. They include the products.
    """

    name: str
    kind: NodeKind = NodeKind.STATIC
    operators: tuple[MatMul, ...] = ()
    parameters: int = 0
    kernels: tuple[Kernel, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelGraph:
    """A network as an ordered list of nodes.

    It has at most one encoder section and one decoder section. Each consists of consecutive nodes, and the encoder
    comes first.

    Raises:
        ValueError: There are no nodes, or the sections are not as described.
    """

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
        """Return the indices from the first to the last node of `kind`. The range is empty if there is none."""
        indices = [index for index, node in enumerate(self.nodes) if node.kind is kind]
        return range(indices[0], indices[-1] + 1) if indices else range(0)

    def parameters(self) -> int:
        """Return the number of trained values of all nodes."""
        return sum(node.parameters for node in self.nodes)

    def macs(self, input_len: float = 1, output_len: int = 1) -> int:
        """Return the multiply-accumulates of one request.

        Args:
            input_len: The number of times that the encoder runs.
            output_len: The number of times that the decoder runs.
        """
        runs = {NodeKind.STATIC: 1.0, NodeKind.ENCODER: input_len, NodeKind.DECODER: float(output_len)}
        return round(sum(runs[node.kind] * op.macs(input_len) for node in self.nodes for op in node.operators))

    @classmethod
    def opaque(cls, name: str) -> "ModelGraph":
        """Return a graph of one node, for a network that only runs as a whole."""
        return cls(name, (Node(name),))
