"""What a policy is checked on: two small models, their latencies, and how a new policy is made for a number of workers.

Model `a` has three nodes that run once. Model `b` has a node, then an encoder of one node and a decoder of two. For
policies with tasks of cells, `a` is a chain of cells, and `b` is an encoder and a decoder of cells.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.batching.action_tables import RateTables
from headrace.batching.context import PolicyContext
from headrace.batching.graphs.cell_graph import CellModel, lstm, seq2seq
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import ModelGraph, Node, NodeKind
from headrace.batching.graphs.profile import Profile
from headrace.batching.policy import Policy
from headrace.batching.registry import PolicySettings, entry_of

MODELS = ("a", "b")
KINDS = {
    "a": (NodeKind.STATIC, NodeKind.STATIC, NodeKind.STATIC),
    "b": (NodeKind.STATIC, NodeKind.ENCODER, NodeKind.DECODER, NodeKind.DECODER),
}
DECODER_STEPS = 2  # that a policy is told to assume
LENGTHS = (1.0, 2.0, 4.0)  # of inputs, that were profiled
CELLS_BATCH = 4
TABLE_BATCH = 3  # largest batch of the table for `smdp`


class HalfSecond:
    """A node takes half a second, and a tenth of that more for each further request."""

    def latency(self, node: int, batch: int, length: float) -> float:
        """Return the time of a node (s)."""
        return 0.5 + 0.05 * (batch - 1)


@dataclass(frozen=True)
class Bench:
    """A policy to check.

    Args:
        name: The policy's name.
        build: Returns a new policy for so many workers.
        times: Node latencies by model.
        cells: Networks of cells by model; empty unless tasks are of cells."""

    name: str
    build: Callable[[int], Policy]
    times: Mapping[str, NodeTimes]
    cells: Mapping[str, CellModel] = field(default_factory=dict)


def graphs() -> list[ModelGraph]:
    """Return the graphs of both models."""
    return [
        ModelGraph(model, tuple(Node(f"{model}{number}", kind) for number, kind in enumerate(kinds)))
        for model, kinds in KINDS.items()
    ]


def bench_for(settings: PolicySettings) -> Bench:
    """Return the bench for a policy with these settings."""
    entry = entry_of(settings)
    cells: dict[str, CellModel] = {}
    if entry.tasks == "cells":
        cells = {"a": lstm("a", CELLS_BATCH), "b": seq2seq("b", CELLS_BATCH, CELLS_BATCH - 1)}
    known = [model.graph for model in cells.values()] or graphs()
    times = {graph.name: NodeTimes(graph, HalfSecond()) for graph in known}
    limit = min(TABLE_BATCH, int(getattr(settings, "max_batch", TABLE_BATCH)))
    table = RateTables([1.0], [[0] * limit + [limit]], limit, limit)
    profiles: dict[int, dict[str, Profile]] = {}

    def build(workers: int) -> Policy:
        if workers not in profiles:
            profiles[workers] = {
                model: Profile.of(model, known, workers, lengths=LENGTHS) for model, known in times.items()
            }
        return settings.build(
            PolicyContext(
                times,
                workers,
                profiles[workers],
                cells=cells or None,
                steps_of=lambda coverage: dict.fromkeys(MODELS, DECODER_STEPS),
                tables=dict.fromkeys(MODELS, table),
            )
        )

    return Bench(entry.name, build, times, cells)
