"""Model graphs: what a scheduler needs to know of a network.

A graph is an ordered list of nodes. Feed-forward nodes run once, encoder nodes once per input step and decoder nodes
once per output step (LazyBatching, HPCA 2021, Section IV-B, Algorithm 1).
"""

from dataclasses import dataclass
from enum import Enum


class NodeKind(Enum):
    STATIC = "static"
    ENCODER = "encoder"
    DECODER = "decoder"


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    kind: NodeKind = NodeKind.STATIC


@dataclass(frozen=True, slots=True)
class ModelGraph:
    name: str
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError(f"model graph {self.name!r} has no nodes")

    @classmethod
    def opaque(cls, name: str) -> "ModelGraph":
        """A network that a scheduler sees as one node: it runs whole, or not at all."""
        return cls(name, (Node(name),))
