"""The data that ParvaGPU's authors published with the paper: scenarios, measured profiles, deployments (README.md
here).
"""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from headrace.batching.graphs.profile import Profile, ProfilePoint
from headrace.sim.hardware.gpu.mig import gpu_named
from headrace.sim.hardware.gpu.slice import LARGEST_BATCH, PARVAGPU, TF32, SliceTimes, memory_bytes, slice_of
from headrace.sim.zoo.traced import traced

GPU = "a100-80gb"
SLICES = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb", 4: "4g.40gb", 7: "7g.80gb"}  # MIG profiles by GPCs
GPCS = 7  # the GPCs of a GPU
SCENARIOS = (1, 2, 3, 4, 5, 6)
# The networks to which the slice model was fitted, and BERT. The project has had their profiles from its beginning.
SIX = ("bert", "densenet121", "mobilenetv2", "resnet152", "resnet50", "vgg16")
# The names of our traced networks. The artifact's bert/large.json is BERT-large. Inception is traced at 299 x 299 and
# was measured at 224 x 224, which is less work.
TRACED = {"bert": "bert_large", "inceptionv3": "inception_v3", "mobilenetv2": "mobilenet_v2"}
LENGTHS = {"bert": 128.0}


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand for a model: its rate, and the latency within which its requests must end."""

    model: str
    rate_rps: float
    slo_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A slice with its processes, each of which runs batches of up to `batch`. Segment is ParvaGPU's word.

    `profile` is of as many workers as the segment has processes, all of them busy. Each segment exists once in a
    process, and is equal only to itself."""

    gpcs: int
    batch: int
    profile: Profile

    @property
    def model(self) -> str:
        return self.profile.model

    @property
    def procs(self) -> int:
        return self.profile.workers

    @property
    def latency_s(self) -> float:
        return self._point().latency_s

    @property
    def throughput_rps(self) -> float:
        return self._point().throughput_rps

    def _point(self) -> ProfilePoint:
        return next(point for point in self.profile.points if point.batch == self.batch)


Profiles = Mapping[str, tuple[Segment, ...]]  # by model, in the order of GPCs, batches, processes


def _read(name: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(resources.files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines())


@cache
def wanted(scenario: int) -> tuple[Demand, ...]:
    return tuple(
        Demand(row["model"], float(row["rate_rps"]), float(row["slo_ms"]) / 1e3)
        for row in _read("scenarios.csv")
        if int(row["scenario"]) == scenario
    )


@cache
def measured() -> Profiles:
    points: dict[tuple[str, int, int], list[ProfilePoint]] = defaultdict(list)
    for row in _read("profiles.csv"):
        batch, procs, rate = int(row["batch"]), int(row["procs"]), float(row["throughput_per_proc_s"])
        # Latencies are rounded to 1 ms. The items that a process does a second give them more precisely.
        points[row["model"], int(row["gpcs"]), procs].append(ProfilePoint(batch, batch / rate, procs * rate))
    return _segments(points)


@cache
def modelled() -> Profiles:
    """Return the profiles of the slice model, with one process a slice, up to the batches that were measured."""
    gpu = gpu_named(GPU)
    max_batch = {model: max(segment.batch for segment in segments) for model, segments in measured().items()}
    points: dict[tuple[str, int, int], list[ProfilePoint]] = {}
    for model in measured():
        network, length = traced(TRACED.get(model, model)), LENGTHS.get(model, 1.0)
        for gpcs, name in SLICES.items():
            instance = slice_of(gpu, gpu.profiles[name])
            batches = [
                batch
                for batch in (2**power for power in range(LARGEST_BATCH.bit_length()))
                if batch <= max_batch[model] and memory_bytes(network, batch, length) <= instance.memory_bytes
            ]
            seconds = SliceTimes(network, instance, PARVAGPU, TF32).batch_s(batches, length)
            points[model, gpcs, 1] = [
                ProfilePoint(batch, float(s), batch / float(s)) for batch, s in zip(batches, seconds, strict=True)
            ]
    return _segments(points)


def _segments(points: Mapping[tuple[str, int, int], list[ProfilePoint]]) -> Profiles:
    by_model: dict[str, list[Segment]] = defaultdict(list)
    for (model, gpcs, procs), of_batches in points.items():
        profile = Profile(model, procs, tuple(sorted(of_batches, key=lambda point: point.batch)))
        by_model[model] += [Segment(gpcs, point.batch, profile) for point in profile.points]
    return {
        model: tuple(sorted(segments, key=lambda each: (each.gpcs, each.batch, each.procs)))
        for model, segments in by_model.items()
    }


@cache
def deployed(scenario: int) -> tuple[tuple[Segment, ...], ...]:
    """Return the published deployment: the segments of each GPU."""
    known = {(s.model, s.gpcs, s.batch, s.procs): s for segments in measured().values() for s in segments}
    gpus: dict[int, list[Segment]] = defaultdict(list)
    for row in _read("deployments.csv"):
        if int(row["scenario"]) == scenario:
            key = row["model"], int(row["gpcs"]), int(row["batch"]), int(row["procs"])
            gpus[int(row["gpu"])].append(known[key])
    return tuple(tuple(gpus[number]) for number in sorted(gpus))
