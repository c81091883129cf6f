"""The rows of the runs, which claims and plots read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.sim.experiments.preba.conditions import LAUNCH_US
from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.hardware.settings import PRECISION


@dataclass(frozen=True, slots=True)
class Point:
    """A batch on a slice by itself, at full speed.

    The host takes `launch_us` to launch a kernel. `seconds` is the length of audio, and any number for an image.
    `throughput_rps` is of all slices of the partition. `knee` and `latency_knee` tell whether the batch is the knee of
    throughput, or of latency, at its length (`Profile.knee`, `gpu.slice.latency_knee`)."""

    model: str
    partition: str
    precision: str
    launch_us: float
    seconds: float
    batch: int
    latency_ms: float
    throughput_rps: float
    knee: bool
    latency_knee: bool


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated server at a load. The first fields are those of `conditions.Server`.

    The load is "saturated", "share" or "tail". At "share", it is a share of the greatest throughput of the design `of`,
    which ends with ":2" for cores that are 2 times slower.
    At "tail", it is the greatest rate within `target_ms` at the 95th percentile. That target is `share` times Ideal's,
    with PREBA's batching.

    Latencies are in ms. `execution_ms` is the mean latency without preprocessing and the batcher's queue. `cpu` and
    `gpu` are busy shares of the whole CPU and GPU. `core_ms` is the time of a core for a request. Powers are in W."""

    model: str
    preprocess: str
    policy: str
    partition: str
    lengths: str
    active: int
    slower: float
    pixels: int
    precision: str
    load: str
    of: str
    share: float
    target_ms: float
    rate_rps: float
    throughput_rps: float
    mean_ms: float
    p95_ms: float
    preprocess_ms: float
    queue_ms: float
    batch: float
    cpu: float
    gpu: float
    core_ms: float
    cpu_w: float
    gpu_w: float
    fpga_w: float
    node_w: float
    requests_per_usd: float

    @property
    def execution_ms(self) -> float:
        return self.mean_ms - self.preprocess_ms - self.queue_ms

    @property
    def within_rps(self) -> float:
        """Return the rate within the target of a load "tail"; 0 if no rate meets it."""
        return self.throughput_rps if self.p95_ms <= self.target_ms else 0.0

    @property
    def total_w(self) -> float:
        return self.cpu_w + self.gpu_w + self.fpga_w + self.node_w

    @property
    def requests_per_j(self) -> float:
        return self.throughput_rps / self.total_w


USUAL: Final[Mapping[str, object]] = {"slower": 1.0, "pixels": TYPICAL_PIXELS, "precision": PRECISION}


class Rows:
    """The rows of a figure, found by their fields. Where fields of USUAL are not given, runs have those values."""

    def __init__(self, rows: Iterable[Point | Run]) -> None:
        rows = list(rows)
        self.points = [row for row in rows if isinstance(row, Point)]
        self.runs = [row for row in rows if isinstance(row, Run)]

    def of(self, **fields: object) -> list[Run]:
        wanted = {**USUAL, **fields}
        return [run for run in self.runs if all(getattr(run, name) == value for name, value in wanted.items())]

    def one(self, **fields: object) -> Run:
        runs = self.of(**fields)
        assert len(runs) == 1, f"{len(runs)} runs are {fields}"
        return runs[0]

    def curve(
        self,
        model: str,
        partition: str,
        seconds: float | None = None,
        precision: str = PRECISION,
        launch_us: float = LAUNCH_US,
    ) -> list[Point]:
        """Return the points by batch, of one length in seconds, or of all for None."""
        wanted = (model, partition, precision, launch_us)
        return [
            point
            for point in self.points
            if (point.model, point.partition, point.precision, point.launch_us) == wanted
            and seconds in (None, point.seconds)
        ]


def mean(values: Iterable[float]) -> float:
    """Return the arithmetic mean."""
    return float(np.mean(list(values)))


def knee(curve: Sequence[Point]) -> Point:
    return next(point for point in curve if point.knee)


def latency_knee(curve: Sequence[Point]) -> Point:
    return next(point for point in curve if point.latency_knee)
