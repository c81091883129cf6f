"""`headrace demo`: the main job on real input, CPU beside DPU preprocessing and each batching policy beside the others.

Photos -> check that every DPU tensor is OpenCV's -> profile of the network and its knee -> one live run for each
preprocessor and policy, all with the same Poisson arrivals. The network runs on this machine's workers or, in modelled
time, on simulated NPUs, which node-level policies can interrupt at every node.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from numpy.typing import NDArray

from headrace.batching import (
    CorruptInput,
    ModelGraph,
    NodeTimes,
    Policy,
    Profile,
    SmdpBatching,
    UsageError,
    make_policy,
)
from headrace.batching.graphs.torch_graph import from_torch
from headrace.batching.smdp import BatchService, Weights
from headrace.batching.smdp.tables import rate_tables
from headrace.bitstreams.build import CLOCK_MHZ
from headrace.host.demo.photos import Photo
from headrace.host.demo.run import Run, compare, run_arrivals
from headrace.host.dpu import image
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.image import ImageSpec
from headrace.host.dpu.preprocessor import CpuPreprocessor
from headrace.host.live.runtime import Runtime
from headrace.host.memory.slots import TensorArena
from headrace.host.workers.models import LoadedModel, load_model
from headrace.host.workers.process import WorkerPool, worker_devices
from headrace.host.workers.profiling import machine, measure_curve
from headrace.host.workers.simulated import SimulatedPool
from headrace.sim.hardware.npu import npu_times
from headrace.sim.load.traffic import poisson

AUTO_LOAD = 0.6  # of the slowest set-up's estimated capacity: loaded, and still stable on a noisy machine
REQUESTS, HW_EMU_REQUESTS = 300, 24  # of each run, if not told; an emulated clock takes microseconds
MAX_IN_FLIGHT = 4096  # beyond this requests are shed; 2.4 GiB of tensors


@dataclass(frozen=True, slots=True)
class DemoOptions:
    photos: Sequence[Photo]
    xclbin: Path
    model: str = "mobilenet_v3_small"
    weights: str | None = None
    requests: int = REQUESTS
    rate_rps: float | None = None  # None: AUTO_LOAD of what this machine can do
    workers: int | None = None
    npus: int = 0  # simulated NPUs instead of workers
    policies: Sequence[str] = ("serial", "graph", "preba")
    preprocessors: Sequence[str] = ("cpu", "dpu")
    window_s: float = 0.005
    max_batch: int = 32
    sla_s: float = 0.5
    seed: int = 0
    profile: Profile | None = None


@dataclass(frozen=True, slots=True)
class Equality:
    """How the DPU's tensors compare with OpenCV's and numpy's, over the distinct photos that it could take."""

    photos: int
    on_dpu: int
    equal: int
    max_difference: float
    unsupported: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Clocks:
    """What a clocked DPU took for the photos that it compared, one at a time; `cycles` from start to done of a CU."""

    images: int
    cycles: int
    pixels: int
    counters: dict[str, int]  # sums over the images

    @property
    def cycles_per_pixel(self) -> float:
        return self.cycles / self.pixels

    @property
    def images_per_s(self) -> float:
        """Of one CU at the card's clock."""
        return self.images * CLOCK_MHZ * 1e6 / self.cycles


@dataclass(frozen=True, slots=True)
class DemoReport:
    options: DemoOptions
    machine: dict[str, Any]
    workers: int
    simulated: bool
    cus: int
    rate_rps: float
    preprocess_rps: dict[str, float]  # one image at a time, in this process: "cpu" and "dpu"
    profile: Profile
    skipped: dict[str, str]  # photos that could not be used, with the reason
    equality: Equality
    clocks: Clocks | None  # None: the DPU has no clock to tell of
    runs: Sequence[Run]


class Progress(Protocol):
    """What the demo tells while it works; the command line draws it."""

    def stage(self, text: str, total: int | None = None) -> None: ...

    def step(self) -> None: ...


async def run_demo(options: DemoOptions, progress: Progress) -> DemoReport:
    """Raises UsageError for options that cannot be met, and WorkerLost if no worker can be started."""
    if options.profile is not None and options.profile.model != options.model:
        raise UsageError(
            f"the profile is of {options.profile.model!r} and the model is {options.model!r}; "
            f"run `headrace profile --model {options.model}`"
        )
    spec = ImageSpec()
    model = load_model(options.model, options.weights)
    progress.stage("OpenCV reference tensors", len(options.photos))
    usable, skipped, cpu_rps = _references(options.photos, spec, progress.step)
    photos, references = [photo for photo, _ in usable], [tensor for _, tensor in usable]
    hardware = _SimulatedNpus(model, options) if options.npus else _RealWorkers(options)
    async with Dpu(options.xclbin, spec) as dpu, CpuPreprocessor(spec, machine()["cores"]) as cpu:
        progress.stage("DPU tensors against OpenCV's", len(photos))
        equality, clocks, dpu_rps = await _compare(dpu, photos, references, progress.step)
        profile = options.profile
        if profile is None:
            progress.stage(f"profile of {options.model} on {hardware.count} {hardware.kind}")
            profile = await hardware.profile()
        preprocess_rps = {"cpu": cpu_rps, "dpu": dpu_rps}
        rate = options.rate_rps
        if rate is None:
            rate = _auto_rate(options, profile, preprocess_rps)
        times = {options.model: hardware.times(profile)}
        measured = min(options.max_batch, profile.points[-1].batch)  # beyond it latencies are only extrapolated
        service = BatchService.of_times(times[options.model], measured)
        arrivals = poisson(rate, options.requests, options.seed)
        arena = TensorArena(
            slots=min(options.requests, MAX_IN_FLIGHT),
            input_shape=spec.tensor_shape,
            input_dtype=spec.dtype,
            output_shape=(model.classes,),
            output_dtype="float32",
        )
        runs = []
        max_batch = max(options.max_batch, profile.knee().batch)
        async with hardware.pool(arena, max_batch) as pool:
            for preprocessor in options.preprocessors:
                for name in options.policies:
                    policy = make_policy(
                        name,
                        times,
                        workers=hardware.count,
                        window_s=options.window_s,
                        max_batch=options.max_batch,
                        profiles={options.model: profile},
                        tables={},
                    )
                    progress.stage(f"{preprocessor} + {name}", options.requests)
                    async with Runtime(policy, pool, arena) as runtime, _tables_beside(policy, service, hardware.count):
                        runs.append(
                            await run_arrivals(
                                f"{preprocessor} + {name}",
                                options.model,
                                runtime,
                                dpu if preprocessor == "dpu" else cpu,
                                photos,
                                arrivals,
                                seed=options.seed,
                                sla_s=options.sla_s,
                                references=references,
                                on_done=progress.step,
                            )
                        )
    return DemoReport(
        options,
        machine(),
        hardware.count,
        bool(options.npus),
        len(dpu.cus),
        rate,
        preprocess_rps,
        profile,
        skipped,
        equality,
        clocks,
        tuple(runs),
    )


@contextlib.asynccontextmanager
async def _tables_beside(policy: Policy, service: BatchService, workers: int) -> AsyncIterator[None]:
    """`smdp` gets its tables while it already serves: they are solved in a thread, for the least mean latency, as
    nothing here measures energy."""
    if not isinstance(policy, SmdpBatching):
        yield
        return

    async def solve() -> None:
        tables = await asyncio.to_thread(rate_tables, service, Weights(), workers)
        for model in policy.models:
            policy.install(model, tables)

    solving = asyncio.create_task(solve())
    try:
        yield
        await solving
    finally:
        solving.cancel()


class _RealWorkers:
    """The network on this machine's GPU slices or cores, as one piece: a profile tells its latency."""

    kind = "workers"

    def __init__(self, options: DemoOptions) -> None:
        self._options = options
        self._devices = worker_devices(options.workers)
        self.count = len(self._devices)

    async def profile(self) -> Profile:
        return await measure_curve(self._options.model, self._options.weights, workers=self.count)

    def times(self, profile: Profile) -> NodeTimes:
        return NodeTimes(ModelGraph.opaque(self._options.model), profile)

    def pool(self, arena: TensorArena, max_batch: int) -> WorkerPool:
        return WorkerPool(self._options.model, self._options.weights, self._devices, arena, max_batch=max_batch)


class _SimulatedNpus:
    """The network's own graph on the NPU model: it takes the modelled time and computes nothing."""

    kind = "simulated NPUs"

    def __init__(self, model: LoadedModel, options: DemoOptions) -> None:
        graph = from_torch(model.module, torch.zeros(1, *model.input_shape), name=options.model)
        self._times = npu_times(graph)
        self._model = options.model
        self.count = options.npus

    async def profile(self) -> Profile:
        return Profile.of(self._model, self._times, self.count)

    def times(self, profile: Profile) -> NodeTimes:
        return self._times

    def pool(self, arena: TensorArena, max_batch: int) -> SimulatedPool:
        return SimulatedPool("npu", self.count, {self._model: self._times})


def _references(
    photos: Sequence[Photo], spec: ImageSpec, step: Callable[[], None]
) -> tuple[list[tuple[Photo, NDArray[Any]]], dict[str, str], float]:
    """The photos with their tensors by OpenCV and numpy; the reasons why some have none, by name; and how many images/s
    that took on one thread. Raises UsageError if none has one."""
    usable: list[tuple[Photo, NDArray[Any]]] = []
    skipped: dict[str, str] = {}
    started = time.monotonic()
    for photo in photos:
        try:
            usable.append((photo, image.preprocess(photo.jpeg, spec)))
        except (CorruptInput, UsageError) as error:
            skipped[photo.name] = str(error)
        step()
    if not usable:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(skipped.items())[:3])
        raise UsageError(f"none of the {len(photos)} photos can be used ({reasons})")
    return usable, skipped, len(usable) / (time.monotonic() - started)


async def _compare(
    dpu: Dpu, photos: Sequence[Photo], references: Sequence[NDArray[Any]], step: Callable[[], None]
) -> tuple[Equality, Clocks | None, float]:
    on_dpu = equal = clocked = pixels = 0
    worst = busy = 0.0
    counters: Counter[str] = Counter()
    for photo, reference in zip(photos, references, strict=True):
        done = await dpu.process(photo.jpeg)
        step()
        if done.unit == "cpu":
            continue
        on_dpu += 1
        busy += done.finished - done.started
        if done.counters is not None and done.source_pixels:
            clocked += 1
            pixels += done.source_pixels
            counters.update(done.counters)
        same, difference = compare(done.tensor, reference)
        equal += same
        worst = max(worst, difference)
    unsupported = {status.name: count for status, count in dpu.counters.unsupported.items()}
    clocks = Clocks(clocked, counters["cycles"], pixels, dict(counters)) if clocked else None
    return Equality(len(photos), on_dpu, equal, worst, unsupported), clocks, on_dpu / busy if busy else 0.0


def _auto_rate(options: DemoOptions, profile: Profile, preprocess_rps: dict[str, float]) -> float:
    """AUTO_LOAD of the requests/s that the slowest set-up sustains, if all of it shares this machine's cores."""
    cores = machine()["cores"]
    measured = [preprocess_rps[name] for name in options.preprocessors if preprocess_rps[name] > 0]
    slowest = min(measured, default=preprocess_rps["cpu"])  # none: the DPU takes none of the photos, the CPU does
    serial_rps = profile.points[0].throughput_rps  # with all cores on the network, or on NPUs beside them
    if options.npus:
        return AUTO_LOAD * min(slowest * cores, serial_rps)
    return AUTO_LOAD / (1 / (slowest * cores) + 1 / serial_rps)


def demo(options: DemoOptions, progress: Progress) -> DemoReport:
    return asyncio.run(run_demo(options, progress))
