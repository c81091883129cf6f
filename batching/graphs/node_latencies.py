"""Measured latencies of a network's nodes by batch size and input length. Node-level policies schedule by them.

The measured points form a grid, with linear interpolation between them. Measurements scatter, so two rules hold outside
the grid. A batch or an input above the last point never takes less time than that point. One below the first point
takes the time of that point.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headrace.batching.errors import UsageError
from headrace.batching.graphs.model_graph import ModelGraph, Node, NodeKind

LARGEST_BATCH = 1 << 20  # limit for batch sizes in files: above any device's, and small enough to compute with


def latency_at_batch(batches: Sequence[int], latency_s: Sequence[float], batch: int) -> float:
    """Return the latency (s) of a batch.

    It is linear between the measured batch sizes and beyond the last one. If only one size was measured, the latency
    beyond it is proportional to the batch.

    Args:
        batches: The measured batch sizes, rising.
        latency_s: The latency (s) at each of them.
        batch: The batch size.
    """
    if len(batches) == 1:
        return latency_s[0] * max(1.0, batch / batches[0])
    return linear(batches, latency_s, batch)


def linear(points: Sequence[float], values: Sequence[float], at: float) -> float:
    """Return the value at `at`, by linear interpolation between points.

    Beyond the last point the line continues, but never falls. Below the first point the value is that of the first.

    Args:
        points: The points, rising.
        values: The value at each point.
        at: The place of the wanted value.
    """
    if at <= points[0] or len(points) == 1:
        return values[0]
    high = min(bisect_left(points, at), len(points) - 1)
    slope = (values[high] - values[high - 1]) / (points[high] - points[high - 1])
    if at > points[high]:
        return values[high] + max(0.0, slope) * (at - points[high])
    return values[high - 1] + slope * (at - points[high - 1])


@dataclass(frozen=True, slots=True)
class NodeLatencies:
    """A `LatencyModel` from measured node latencies.

    Args:
        names: The nodes' names, in the order of execution.
        kinds: The nodes' kinds.
        batches: The measured batch sizes, rising.
        lengths: The measured input lengths in the model's unit, rising; (1.0,) if all inputs have one size.
        latency_s: `latency_s[node][length][batch]` is the time (s) of one execution of a node, by the indices of these
            lists.

    Raises:
        UsageError: The lists do not fit each other, or hold an impossible value.
    """

    names: tuple[str, ...]
    kinds: tuple[NodeKind, ...]
    batches: tuple[int, ...]
    lengths: tuple[float, ...]
    latency_s: tuple[tuple[tuple[float, ...], ...], ...]

    def __post_init__(self) -> None:
        if not self.names or len(self.names) != len(self.kinds):
            raise UsageError(
                f"node latencies have {len(self.names)} names and {len(self.kinds)} kinds; give each node one of both"
            )
        self.graph("")
        for what, points, limit in (("batch sizes", self.batches, LARGEST_BATCH), ("lengths", self.lengths, math.inf)):
            if not points or not all(0 < point < limit for point in points):
                raise UsageError(f"node latencies have no {what}, or an impossible one; measure them again")
            if any(low >= high for low, high in pairwise(points)):
                raise UsageError(f"node latencies must list their {what} in rising order")
        rows = [row for node in self.latency_s for row in node]
        shape = (len(self.names), len(self.lengths), len(self.batches))
        if (
            len(self.latency_s) != shape[0]
            or any(len(node) != shape[1] for node in self.latency_s)
            or any(len(row) != shape[2] for row in rows)
        ):
            raise UsageError(
                f"node latencies must be of {shape[0]} nodes x {shape[1]} lengths x {shape[2]} batch sizes"
            )
        if not all(0 < latency < math.inf for row in rows for latency in row):
            raise UsageError("node latencies have one that is not positive; measure them again")

    def latency(self, node: int, batch: int, length: float) -> float:
        """Return the latency (s) of one execution of a node.

        It is linear in batch size and in length, between the measured points and beyond the last ones."""
        rows = [latency_at_batch(self.batches, row, batch) for row in self.latency_s[node]]
        return linear(self.lengths, rows, length)

    def graph(self, name: str) -> ModelGraph:
        """Return a graph of these nodes, called `name`. Raises UsageError."""
        try:
            return ModelGraph(name, tuple(Node(*node) for node in zip(self.names, self.kinds, strict=True)))
        except ValueError as error:
            raise UsageError(f"node latencies: {error}") from error

    def to_body(self) -> dict[str, Any]:
        """Return the values for a JSON file."""
        return {
            "names": self.names,
            "kinds": [kind.value for kind in self.kinds],
            "batches": self.batches,
            "lengths": self.lengths,
            "latency_s": self.latency_s,
        }

    @classmethod
    def from_body(cls, body: Any) -> "NodeLatencies":
        """Return the node latencies that `to_body` wrote.

        Raises:
            UsageError: The values do not fit each other.
            ValueError, TypeError, KeyError, OverflowError: The body has another form.
        """
        return cls(
            tuple(str(name) for name in body["names"]),
            tuple(NodeKind(kind) for kind in body["kinds"]),
            tuple(int(batch) for batch in body["batches"]),
            tuple(float(length) for length in body["lengths"]),
            tuple(tuple(tuple(float(s) for s in row) for row in node) for node in body["latency_s"]),
        )
