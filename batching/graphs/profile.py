"""Measured latency of a model on one kind of worker, by batch size and, where inputs vary in length, by length; and the
knee at a length. Of its nodes, too, if they were measured (node_latencies.py).

The knee rule, exactly: walk the profiled batch sizes upwards; the knee is the last one reached before the first step
whose throughput is less than `knee_growth` times the throughput before it, KNEE_GROWTH (1.05) if nothing else is said.
If every step grows by at least that, the knee is the largest batch size profiled.

Between two profiled lengths, seconds a batch and seconds a request (1 / throughput) are linear in the length; the knee
there is the rule's on the curve that this gives, over the batch sizes profiled at either. A curve that ends sooner than
the other goes on as its latencies do (`latency_at_batch`). Beyond the last length both go on in the same line, below
the first they stay.
"""

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, pairwise
from typing import Any

from headrace.batching.errors import UsageError
from headrace.batching.graphs.execution import NodeTimes, steps
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.graphs.node_latencies import LARGEST_BATCH, NodeLatencies, latency_at_batch, linear

KNEE_GROWTH = 1.05
FORMAT_VERSION = 3
READ_VERSIONS = (1, 2, 3)  # 1 had no nodes, 2 no lengths
MODEL_LENGTHS = tuple(2.0**power for power in range(10))  # of inputs, on hardware that is a model of it


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """`latency_s`: time of one batch on one worker, whose inputs are `length` long, in the model's unit;
    `throughput_rps`: requests/s of all workers together."""

    batch: int
    latency_s: float
    throughput_rps: float
    length: float = 1.0


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured of `model` with `workers` equal workers all busy, on the machine that `machine` describes.

    `points` go by length and, of one length, by batch size; where all inputs have one size, the length is 1. Points of
    one length are taken to be of any. `step_s` is what one unit of length is in seconds, for inputs that are sound.
    `nodes` has the latencies of its nodes, if they were measured; `knee_growth` is of the knee rule. Raises
    UsageError."""

    model: str
    workers: int
    points: tuple[ProfilePoint, ...]
    machine: Mapping[str, Any] = field(default_factory=dict)
    nodes: NodeLatencies | None = None
    step_s: float | None = None
    knee_growth: float = KNEE_GROWTH

    def __post_init__(self) -> None:
        if not self.points:
            raise UsageError(f"the profile of {self.model!r} has no points; measure it again")
        if any(
            not (
                0 < point.batch < LARGEST_BATCH
                and 0 < point.latency_s < math.inf
                and 0 < point.throughput_rps < math.inf
                and 0 < point.length < math.inf
            )
            for point in self.points
        ):
            raise UsageError(f"the profile of {self.model!r} has a point that is impossible; measure it again")
        if any((low.length, low.batch) >= (high.length, high.batch) for low, high in pairwise(self.points)):
            raise UsageError(f"the profile of {self.model!r} must list lengths, and the batch sizes of each, rising")
        if self.step_s is not None and not 0 < self.step_s < math.inf:
            raise UsageError(f"the profile of {self.model!r} has steps of {self.step_s} s; give a time above 0")
        if not KNEE_GROWTH <= self.knee_growth < math.inf:  # a curve ends where it grows by less
            raise UsageError(f"--knee-growth {self.knee_growth:g}: give {KNEE_GROWTH:g} or more")

    @property
    def lengths(self) -> tuple[float, ...]:
        """Rising."""
        return tuple(dict.fromkeys(point.length for point in self.points))

    @property
    def typical_length(self) -> float:
        """The middle one, where one must do for all."""
        return self.lengths[len(self.lengths) // 2]

    def curve(self, length: float) -> tuple[ProfilePoint, ...]:
        """By batch size, for inputs of that length; see the head of this file."""
        curves = self._curves()
        lengths = [points[0].length for points in curves]
        if length in lengths:
            return curves[lengths.index(length)]
        if length < lengths[0] or len(lengths) == 1:
            return curves[0]
        upper = min(bisect_left(lengths, length), len(lengths) - 1)
        points = []
        for batch in sorted({point.batch for points in curves[upper - 1 : upper + 1] for point in points}):
            latency_s = linear(lengths, [_latency_s(points, batch) for points in curves], length)
            request_s = linear(lengths, [_request_s(points, batch) for points in curves], length)
            points.append(ProfilePoint(batch, latency_s, 1 / request_s, length))
        return tuple(points)

    def knee(self, length: float | None = None) -> ProfilePoint:
        """Batch_knee and Time_knee (PREBA, Section 4.3) for inputs of that length, the typical one if None, by the rule
        at the head of this file."""
        curve = self.curve(self.typical_length if length is None else length)
        for low, high in pairwise(curve):
            if high.throughput_rps < self.knee_growth * low.throughput_rps:
                return low
        return curve[-1]

    def latency(self, node: int, batch: int, length: float) -> float:
        """`LatencyModel` of the whole graph as one node (s): linear between the points and beyond the last, by
        batch and by length.

        Below the smallest profiled batch or length it is that one's latency."""
        curves = self._curves()
        return linear([points[0].length for points in curves], [_latency_s(points, batch) for points in curves], length)

    def _curves(self) -> list[tuple[ProfilePoint, ...]]:
        """By length."""
        return [tuple(points) for _, points in groupby(self.points, key=lambda point: point.length)]

    def times(self) -> NodeTimes:
        """Of its nodes if they were measured, else of the whole network as one node."""
        if self.nodes is not None:
            return NodeTimes(self.nodes.graph(self.model), self.nodes)
        return NodeTimes(ModelGraph.opaque(self.model), self)

    @classmethod
    def of(
        cls,
        model: str,
        times: NodeTimes,
        workers: int,
        max_batch: int = 128,
        lengths: Sequence[float] = MODEL_LENGTHS,
        outputs: float = 1.0,
        step_s: float | None = None,
    ) -> "Profile":
        """The curves of hardware whose node latencies are known: batch 1, 2, 4 ... until throughput grows by less than
        `KNEE_GROWTH`, for inputs of each of the `lengths`, rising, and outputs of `outputs` steps for each of the
        input's, 1 at least. Where the graph does not depend on the length, for one length alone."""
        points: list[ProfilePoint] = []
        for length in lengths if times.by_length or len(times.sections.encoder) > 0 else (1.0,):
            before = 0.0
            batch = 1
            while batch <= max_batch:
                latency_s = times.whole(batch, length, steps(outputs * length))
                points.append(ProfilePoint(batch, latency_s, workers * batch / latency_s, length))
                if points[-1].throughput_rps < KNEE_GROWTH * before:
                    break
                before = points[-1].throughput_rps
                batch *= 2
        return cls(model, workers, tuple(points), step_s=step_s)

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
                ProfilePoint(
                    int(p["batch"]), float(p["latency_s"]), float(p["throughput_rps"]), float(p.get("length", 1.0))
                )
                for p in body["points"]
            )
            nodes, step_s = body.get("nodes"), body.get("step_s")
            return cls(
                str(body["model"]),
                int(body["workers"]),
                points,
                dict(body["machine"]),
                None if nodes is None else NodeLatencies.from_body(nodes),
                None if step_s is None else float(step_s),
                float(body.get("knee_growth", KNEE_GROWTH)),
            )
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise UsageError(f"this is not a profile that `headrace profile` wrote: {error!r}") from error


def _latency_s(curve: Sequence[ProfilePoint], batch: int) -> float:
    return latency_at_batch([point.batch for point in curve], [point.latency_s for point in curve], batch)


def _request_s(curve: Sequence[ProfilePoint], batch: int) -> float:
    """Seconds a request, of all workers together."""
    for point in curve:
        if point.batch == batch:
            return 1 / point.throughput_rps
    ended = curve[-1]
    return _latency_s(curve, batch) / batch * ended.batch / (ended.latency_s * ended.throughput_rps)
