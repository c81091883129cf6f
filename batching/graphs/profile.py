"""Measured latency and throughput of a model on one kind of worker, by batch size and by input length.

A profile can also hold the latencies of the model's nodes (node_latencies.py).

The knee (Batch_knee and Time_knee of PREBA, Section 4.3) follows from one rule. Walk the profiled batch sizes upwards.
The knee is the last size reached before the first step whose throughput is below `knee_growth` times the throughput
before it. The default of `knee_growth` is KNEE_GROWTH (1.05). If every step grows by at least that factor, the knee is
the largest size profiled.

Rules for lengths between the profiled ones:

- Seconds per batch and seconds per request (1 / throughput) are linear in the length. The batch sizes are those that
  were profiled at either neighbour. A curve that ends at a smaller batch size is continued as `latency_at_batch` does.
- The knee is that of the resulting curve.
- Beyond the last length the lines continue. Below the first length the values stay constant.
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
READ_VERSIONS = (1, 2, 3)  # version 1 has no nodes, version 2 no lengths
MODEL_LENGTHS = tuple(2.0**power for power in range(10))  # input lengths of a profile of modelled hardware


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """One measured point of a profile.

    Args:
        batch: The batch size, in requests.
        latency_s: The time (s) of one batch on one worker.
        throughput_rps: The throughput (requests/s) of all workers together.
        length: The length of the inputs, in the model's unit.
    """

    batch: int
    latency_s: float
    throughput_rps: float
    length: float = 1.0


@dataclass(frozen=True, slots=True)
class Profile:
    """The measurements of one model with all workers busy. The workers are equal.

    Args:
        model: The model's name.
        workers: The number of workers.
        points: Points by rising length and, for one length, by rising batch size. The length is 1 if all inputs have
            one size. Points of a single length are valid for every length.
        machine: A description of the machine.
        nodes: The latencies of the model's nodes, if they were measured.
        step_s: The duration (s) of one unit of length, for audio inputs; else None.
        knee_growth: The factor of the knee rule, at least KNEE_GROWTH.
        joined: Whether a batch joins its inputs, without padding. Its time then depends on the mean length.

    Raises:
        UsageError: There are no points, they are not in order, or a value is impossible.
    """

    model: str
    workers: int
    points: tuple[ProfilePoint, ...]
    machine: Mapping[str, Any] = field(default_factory=dict)
    nodes: NodeLatencies | None = None
    step_s: float | None = None
    knee_growth: float = KNEE_GROWTH
    joined: bool = False

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
            raise UsageError(f"the profile of {self.model!r} has an impossible point; measure it again")
        if any((low.length, low.batch) >= (high.length, high.batch) for low, high in pairwise(self.points)):
            raise UsageError(
                f"the profile of {self.model!r} must list rising lengths, and rising batch sizes for each length"
            )
        if self.step_s is not None and not 0 < self.step_s < math.inf:
            raise UsageError(f"the profile of {self.model!r} has steps of {self.step_s} s; give a time above 0")
        if not KNEE_GROWTH <= self.knee_growth < math.inf:  # curves end where growth falls below KNEE_GROWTH
            raise UsageError(f"--knee-growth {self.knee_growth:g}: give {KNEE_GROWTH:g} or more")

    @property
    def lengths(self) -> tuple[float, ...]:
        """Return the profiled lengths, rising."""
        return tuple(dict.fromkeys(point.length for point in self.points))

    @property
    def typical_length(self) -> float:
        """Return the middle one of the profiled lengths, for callers that need a single length."""
        return self.lengths[len(self.lengths) // 2]

    def curve(self, length: float) -> tuple[ProfilePoint, ...]:
        """Return the points for inputs of this length, by batch size. The head of this file has the interpolation
        rules."""
        curves = self._neighbours(length)
        lengths = [points[0].length for points in curves]
        if length in lengths:
            return curves[lengths.index(length)]
        if len(curves) == 1:
            return curves[0]
        points = []
        for batch in sorted({point.batch for points in curves for point in points}):
            latency_s = linear(lengths, [_latency_s(points, batch) for points in curves], length)
            request_s = linear(lengths, [_request_s(points, batch) for points in curves], length)
            points.append(ProfilePoint(batch, latency_s, 1 / request_s, length))
        return tuple(points)

    def knee(self, length: float | None = None) -> ProfilePoint:
        """Return Batch_knee and Time_knee for inputs of this length, by the rule at the head of this file.

        If `length` is None, it is the typical length. Source: PREBA, Section 4.3."""
        curve = self.curve(self.typical_length if length is None else length)
        for low, high in pairwise(curve):
            if high.throughput_rps < self.knee_growth * low.throughput_rps:
                return low
        return curve[-1]

    def latency(self, node: int, batch: int, length: float) -> float:
        """Return the latency (s) of the whole graph, which counts as one node here (see `LatencyModel`).

        It is linear in batch size and in length, between the points and beyond the last ones. Below the smallest
        profiled batch size or length it is constant."""
        curves = self._neighbours(length)
        return linear([points[0].length for points in curves], [_latency_s(points, batch) for points in curves], length)

    def _neighbours(self, length: float) -> list[tuple[ProfilePoint, ...]]:
        """Return the points of the profiled lengths whose line gives the values at `length`, by rising length.

        There are two such lengths, or only the first one if the values are constant."""
        curves = [tuple(points) for _, points in groupby(self.points, key=lambda point: point.length)]
        lengths = [points[0].length for points in curves]
        upper = min(bisect_left(lengths, length), len(lengths) - 1)
        return curves[max(0, upper - 1) : upper + 1]

    def times(self) -> NodeTimes:
        """Return the times of the model's nodes if they were measured, else of the whole network as one node."""
        if self.nodes is not None:
            return NodeTimes(self.nodes.graph(self.model), self.nodes)
        return NodeTimes(ModelGraph.opaque(self.model), self, joined=self.joined)

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
        """Return the profile of hardware with known node latencies.

        The batch sizes are 1, 2, 4 and so on, until throughput grows by less than KNEE_GROWTH.

        Args:
            model: The model's name.
            times: The node latencies.
            workers: The number of workers.
            max_batch: The largest batch size.
            lengths: The input lengths, rising. Only length 1 is used if the graph does not depend on the length.
            outputs: The number of output steps per input step. An output has at least one step.
            step_s: The duration (s) of one unit of length, for audio inputs.
        """
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
        """Return the profile and its knee as JSON text."""
        knee = self.knee()
        body = {"version": FORMAT_VERSION, **asdict(self), "knee": asdict(knee)}
        body["nodes"] = None if self.nodes is None else self.nodes.to_body()
        return json.dumps(body, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Profile":
        """Return the profile that `to_json` wrote, in this version or an earlier one. Raises UsageError that says what
        is wrong."""
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
                body.get("joined", False) is True,
            )
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise UsageError(f"this is not a profile that `headrace profile` wrote: {error!r}") from error


def _latency_s(curve: Sequence[ProfilePoint], batch: int) -> float:
    return latency_at_batch([point.batch for point in curve], [point.latency_s for point in curve], batch)


def _request_s(curve: Sequence[ProfilePoint], batch: int) -> float:
    """Return the time per request (s), of all workers together."""
    for point in curve:
        if point.batch == batch:
            return 1 / point.throughput_rps
    ended = curve[-1]
    return _latency_s(curve, batch) / batch * ended.batch / (ended.latency_s * ended.throughput_rps)
