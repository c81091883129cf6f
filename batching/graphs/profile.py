"""Measured latency of a model on one kind of worker, by batch size, and its knee; of its nodes, too, if they were
measured (node_latencies.py).

The knee rule, exactly: walk the profiled batch sizes upwards; the knee is the last one reached before the first step
whose throughput is less than `KNEE_GROWTH` (1.05) times the throughput before it. If every step grows by at
least that, the knee is the largest batch size profiled.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from headrace.batching.errors import UsageError
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.graphs.node_latencies import LARGEST_BATCH, NodeLatencies, latency_at_batch

KNEE_GROWTH = 1.05
FORMAT_VERSION = 2
READ_VERSIONS = (1, 2)  # 1 had no nodes


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """`latency_s`: time of one batch on one worker; `throughput_rps`: requests/s of all workers together."""

    batch: int
    latency_s: float
    throughput_rps: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The curve of `model` measured with `workers` equal workers all busy, on the machine that `machine` describes.

    `nodes` has the latencies of its nodes, if they were measured."""

    model: str
    workers: int
    points: tuple[ProfilePoint, ...]
    machine: Mapping[str, Any] = field(default_factory=dict)
    nodes: NodeLatencies | None = None

    def __post_init__(self) -> None:
        if not self.points:
            raise UsageError(f"the profile of {self.model!r} has no points; measure it again")
        if any(
            not (
                0 < point.batch < LARGEST_BATCH
                and 0 < point.latency_s < math.inf
                and 0 < point.throughput_rps < math.inf
            )
            for point in self.points
        ):
            raise UsageError(f"the profile of {self.model!r} has a point that is impossible; measure it again")
        if any(low.batch >= high.batch for low, high in pairwise(self.points)):
            raise UsageError(f"the profile of {self.model!r} must list batch sizes in rising order")

    def knee(self) -> ProfilePoint:
        """Batch_knee and Time_knee (PREBA), by the rule at the head of this file."""
        for low, high in pairwise(self.points):
            if high.throughput_rps < KNEE_GROWTH * low.throughput_rps:
                return low
        return self.points[-1]

    def latency(self, node: int, batch: int, length: float) -> float:
        """`LatencyModel` of the whole graph as one node (s): linear between the points and beyond the last.

        Below the smallest profiled batch it is that batch's latency."""
        return latency_at_batch(
            [point.batch for point in self.points], [point.latency_s for point in self.points], batch
        )

    def times(self) -> NodeTimes:
        """Of its nodes if they were measured, else of the whole network as one node."""
        if self.nodes is not None:
            return NodeTimes(self.nodes.graph(self.model), self.nodes)
        return NodeTimes(ModelGraph.opaque(self.model), self)

    @classmethod
    def of(cls, model: str, times: NodeTimes, workers: int, max_batch: int = 128) -> "Profile":
        """The curve of hardware whose node latencies are known: batch 1, 2, 4 ... until throughput grows by less than
        `KNEE_GROWTH`, for inputs and outputs of length 1."""
        points: list[ProfilePoint] = []
        batch = 1
        while batch <= max_batch:
            latency_s = times.whole(batch, 1.0, 1)
            points.append(ProfilePoint(batch, latency_s, workers * batch / latency_s))
            if len(points) > 1 and points[-1].throughput_rps < KNEE_GROWTH * points[-2].throughput_rps:
                break
            batch *= 2
        return cls(model, workers, tuple(points))

    def to_json(self) -> str:
        knee = self.knee()
        body = {"version": FORMAT_VERSION, **asdict(self), "knee": asdict(knee)}
        body["nodes"] = None if self.nodes is None else self.nodes.to_body()
        return json.dumps(body, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Profile":
        """Read what `to_json` wrote, in this version or an earlier one. Raises UsageError that names what is wrong."""
        try:
            body = json.loads(text)
            if body["version"] not in READ_VERSIONS:
                raise UsageError(f"profile version {body['version']!r} is none of {READ_VERSIONS}; measure it again")
            points = tuple(
                ProfilePoint(int(p["batch"]), float(p["latency_s"]), float(p["throughput_rps"])) for p in body["points"]
            )
            nodes = body.get("nodes")
            return cls(
                str(body["model"]), int(body["workers"]), points, dict(body["machine"]),
                None if nodes is None else NodeLatencies.from_body(nodes),
            )  # fmt: skip
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise UsageError(f"this is not a profile that `headrace profile` wrote: {error!r}") from error
