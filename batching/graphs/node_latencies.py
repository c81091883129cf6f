"""Measured latency of each node of a network, by batch size and input length: what node-level policies schedule by.

A grid of measured points, linear between them. Measurements scatter, so two things are never read out of them: that a
batch or an input beyond the last measured one takes less than that, or that one below the first takes less than it.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headrace.batching.errors import UsageError
from headrace.batching.graphs.model_graph import ModelGraph, Node, NodeKind

LARGEST_BATCH = 1 << 20  # that a file may tell of: more than any device holds, and little enough to compute with


def latency_at_batch(batches: Sequence[int], latency_s: Sequence[float], batch: int) -> float:
    """Latency (s) of `batch` requests, of which `batches` took `latency_s`: linear between them and beyond the last,
    and in proportion to the batch beyond one alone."""
    if len(batches) == 1:
        return latency_s[0] * max(1.0, batch / batches[0])
    return linear(batches, latency_s, batch)


def linear(points: Sequence[float], values: Sequence[float], at: float) -> float:
    """Between the `points`, which rise, and beyond the last, but never falling there; below the first its value."""
    if at <= points[0] or len(points) == 1:
        return values[0]
    high = min(bisect_left(points, at), len(points) - 1)
    slope = (values[high] - values[high - 1]) / (points[high] - points[high - 1])
    if at > points[high]:
        return values[high] + max(0.0, slope) * (at - points[high])
    return values[high - 1] + slope * (at - points[high - 1])


@dataclass(frozen=True, slots=True)
class NodeLatencies:
    """A `LatencyModel` of the nodes `names`, of these `kinds`, in order of execution.

    `latency_s[node][length][batch]` (s) is of one execution of a node for `batches[batch]` requests whose inputs are
    `lengths[length]` long, in the model's unit. Where all inputs have one size, `lengths` is (1.0,).
    Raises UsageError."""

    names: tuple[str, ...]
    kinds: tuple[NodeKind, ...]
    batches: tuple[int, ...]
    lengths: tuple[float, ...]
    latency_s: tuple[tuple[tuple[float, ...], ...], ...]

    def __post_init__(self) -> None:
        if not self.names or len(self.names) != len(self.kinds):
            raise UsageError(
                f"node latencies of {len(self.names)} names and {len(self.kinds)} kinds; give each node both"
            )
        self.graph("")
        for what, points, limit in (("batch sizes", self.batches, LARGEST_BATCH), ("lengths", self.lengths, math.inf)):
            if not points or not all(0 < point < limit for point in points):
                raise UsageError(f"node latencies have no {what}, or one that is impossible; measure them again")
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
        """See `LatencyModel`. Linear between what was measured and beyond the last of it, by batch and by length."""
        rows = [latency_at_batch(self.batches, row, batch) for row in self.latency_s[node]]
        return linear(self.lengths, rows, length)

    def graph(self, name: str) -> ModelGraph:
        """The nodes as a network called `name`. Raises UsageError."""
        try:
            return ModelGraph(name, tuple(Node(*node) for node in zip(self.names, self.kinds, strict=True)))
        except ValueError as error:
            raise UsageError(f"node latencies: {error}") from error

    def to_body(self) -> dict[str, Any]:
        """For a JSON file."""
        return {
            "names": self.names,
            "kinds": [kind.value for kind in self.kinds],
            "batches": self.batches,
            "lengths": self.lengths,
            "latency_s": self.latency_s,
        }

    @classmethod
    def from_body(cls, body: Any) -> "NodeLatencies":
        """Of what `to_body` made. Raises UsageError, or ValueError, TypeError, KeyError or OverflowError."""
        return cls(
            tuple(str(name) for name in body["names"]),
            tuple(NodeKind(kind) for kind in body["kinds"]),
            tuple(int(batch) for batch in body["batches"]),
            tuple(float(length) for length in body["lengths"]),
            tuple(tuple(tuple(float(s) for s in row) for row in node) for node in body["latency_s"]),
        )
