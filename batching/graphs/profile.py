"""Measured latency of a model on one kind of worker, by batch size, and its knee.

The knee rule, exactly: walk the profiled batch sizes upwards; the knee is the last one reached before the first step
whose throughput is less than `KNEE_GROWTH` (1.05) times the throughput before it. If every step grows by at
least that, the knee is the largest batch size profiled.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from headrace.batching.errors import UsageError
from headrace.batching.graphs.execution import NodeTimes

KNEE_GROWTH = 1.05
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """`latency_s`: time of one batch on one worker; `throughput_rps`: requests/s of all workers together."""

    batch: int
    latency_s: float
    throughput_rps: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The curve of `model` measured with `workers` equal workers all busy, on the machine that `machine` describes."""

    model: str
    workers: int
    points: tuple[ProfilePoint, ...]
    machine: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.points:
            raise UsageError(f"the profile of {self.model!r} has no points; measure it again")
        if any(point.batch < 1 or not point.latency_s > 0 or not point.throughput_rps > 0 for point in self.points):
            raise UsageError(f"the profile of {self.model!r} has a point that is not positive; measure it again")
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
        points = self.points
        if batch <= points[0].batch or len(points) == 1:
            return points[0].latency_s * max(1.0, batch / points[0].batch)
        low, high = next((pair for pair in pairwise(points) if batch <= pair[1].batch), (points[-2], points[-1]))
        slope = (high.latency_s - low.latency_s) / (high.batch - low.batch)
        return low.latency_s + slope * (batch - low.batch)

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
        return json.dumps(body, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Profile":
        """Read what `to_json` wrote. Raises UsageError that names what is wrong."""
        try:
            body = json.loads(text)
            if body["version"] != FORMAT_VERSION:
                raise UsageError(f"profile version {body['version']} is not {FORMAT_VERSION}; measure it again")
            points = tuple(
                ProfilePoint(int(p["batch"]), float(p["latency_s"]), float(p["throughput_rps"])) for p in body["points"]
            )
            return cls(str(body["model"]), int(body["workers"]), points, dict(body["machine"]))
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise UsageError(f"this is not a profile that `headrace profile` wrote: {error!r}") from error
