"""The evaluation of PREBA (Yeo, Kim, Choi, Rhu, Sections 3 and 6) on models of its server: the runs.

claims.py compares with the paper's numbers. conditions.py has its conditions, and the questions that it leaves open.
Figs. 5, 6, 14 and 15 are of the slice model alone. The others are simulated, from the arrival to the last node.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headrace.batching.errors import UsageError
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.profile import Profile, ProfilePoint
from headrace.batching.policies.preba import preba_limits
from headrace.batching.policies.shared.window import BatchLimits
from headrace.sim.experiments.experiment import Experiment, Report
from headrace.sim.experiments.preba.claims import NOTES, REPORTS
from headrace.sim.experiments.preba.conditions import (
    AUDIO_NETWORKS,
    BASELINE_SHARE,
    BASELINES,
    CLIP,
    CLIP_S,
    CPU_CORES,
    DPU,
    GPU,
    IDEAL,
    IMAGE_NETWORKS,
    KNEE_LENGTHS_S,
    LATENCY_CASES,
    LAUNCH_US,
    LOADS,
    LOW_LOAD,
    MEANS_S,
    MORE_UNITS,
    NETWORKS,
    OTHER_LAUNCH_US,
    OTHER_PRECISION,
    PARTITIONS,
    PCIE_CASES,
    SAME_SHARE,
    SATURATING_RPS,
    SEVENTHS,
    SLICES,
    STATIC,
    TARGET_SHARE,
    TARGET_SLACKS,
    WHOLE,
    Server,
    ablation,
    designs,
    server,
    slower_cores,
)
from headrace.sim.experiments.preba.crossover import Case, Map, Served, cases, served
from headrace.sim.experiments.preba.map_page import draw, page
from headrace.sim.experiments.preba.rows import Point, Rows, Run
from headrace.sim.experiments.preba.sensitivity import readings, servers, table
from headrace.sim.experiments.preba.table1 import cells
from headrace.sim.hardware.gpu.slice import PRECISIONS, latency_knee, slice_of, slice_times
from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.hardware.settings import PRECISION
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
from headrace.sim.system.preprocessors import COSTS
from headrace.sim.system.system import SERVER, System
from headrace.sim.workload.lengths import LIBRISPEECH
from headrace.sim.zoo.traced import traced

BATCHES = tuple(2**power for power in range(9))
FINE_BATCHES = tuple(sorted({*BATCHES, *(3 * 2**power for power in range(7))}))


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run.

    Attributes:
        requests: Requests of a run.
        active: Numbers of active slices (Figs. 9 and 17).
        loads: Shares of the greatest throughput (Figs. 18 and 19).
        lengths_s: Lengths in seconds (Fig. 14).
        resolution: The precision of the greatest rate within a target, as a share of the greatest throughput.
        map_requests: Requests of a run of the map.
        map_every: The map has every such cost of a core.
    """

    requests: int
    active: tuple[int, ...]
    loads: tuple[float, ...]
    lengths_s: tuple[float, ...]
    resolution: float
    map_requests: int
    map_every: int


@dataclass(frozen=True, slots=True)
class Curves:
    """Batches on the slices of a partition, without a server around them, for audio of these lengths (s)."""

    model: str
    partition: str
    lengths: tuple[float, ...]
    batches: tuple[int, ...] = BATCHES
    precision: str = PRECISION
    launch_us: float = LAUNCH_US


@dataclass(frozen=True, slots=True)
class Saturated:
    server: Server
    requests: int


@dataclass(frozen=True, slots=True)
class Share:
    """A run at `share` of the greatest throughput of the slowest design in `of`."""

    server: Server
    of: tuple[Server, ...]
    share: float
    requests: int


@dataclass(frozen=True, slots=True)
class Tail:
    """A run at the greatest rate whose 95th percentile is within `slack` times Ideal's.

    Ideal batches as PREBA does, at TARGET_SHARE of its greatest throughput. The rate is found to within `resolution` of
    the design's own."""

    server: Server
    requests: int
    slack: float
    resolution: float


Job = Curves | Saturated | Share | Tail | Case
Row = Point | Run | Served


def run_job(job: Job) -> list[Row]:
    match job:
        case Curves():
            return list(points(job))
        case Saturated(server, requests):
            return [saturated(server, requests)]
        case Share(server, of, share, requests):
            slowest = min(of, key=lambda one: saturated(one, requests).throughput_rps)
            rate = share * saturated(slowest, requests).throughput_rps
            of_design = slowest.preprocess if slowest.slower == 1 else f"{slowest.preprocess}:{slowest.slower:g}"
            return [simulated(server, rate, requests, "share", of_design, share)]
        case Tail():
            return [within_tail(job)]
        case Case():
            return [served(job)]


# ---- the slice model alone ----


def points(job: Curves) -> Iterable[Point]:
    """Yield the points of the curves. A curve ends at the first batch that the slice's memory does not hold."""
    network, system = traced(job.model), slices_of(job.model, job.partition, job.precision)
    where = slice_of(system.gpu, system.slices[0].profile)
    host = replace(SERVER, launch_s=job.launch_us / 1e6)
    times = slice_times(network, where, host, PRECISIONS[job.precision])
    for seconds in job.lengths:
        length = seconds / network.step_s if network.step_s else 1.0
        curve: list[ProfilePoint] = []
        for batch in job.batches:
            if not _fits(times, batch, length):
                break
            latency_s = times.whole(batch, length, 1)
            curve.append(ProfilePoint(batch, latency_s, len(system.slices) * batch / latency_s, length))
        doubled = tuple(point for point in curve if point.batch in BATCHES)
        profile = Profile(job.model, len(system.slices), doubled)
        for point in curve:
            yield Point(
                job.model,
                job.partition,
                job.precision,
                job.launch_us,
                seconds,
                point.batch,
                1e3 * point.latency_s,
                point.throughput_rps,
                point.batch == profile.knee().batch,
                point.batch == latency_knee(profile).batch,
            )


def slices_of(model: str, parts: str, precision: str = PRECISION) -> System:
    return System.of(GPU, [model], parts=parts, image_sizes=TYPICAL_PIXELS, precision=precision)


# ---- simulated servers ----


def simulated(
    server: Server, rate_rps: float, requests: int, load: str, of: str = "", share: float = 0.0, target_ms: float = 0.0
) -> Run:
    with costs_file(server.preprocess, server.slower) as costs:
        done, _ = run_scenario(scenario(server, rate_rps, requests, costs))
    result: dict[str, Any] = done.result
    power, used = result["power_w"], result["part_utilization"]
    # A core is kept for each slice's server; the others preprocess.
    cores = (result["preprocess_utilization"] or {}).get("cpu", 0.0) * (CPU_CORES - server.active)
    return Run(
        server.model,
        server.preprocess,
        server.policy,
        server.partition,
        server.lengths,
        server.active,
        server.slower,
        server.pixels,
        server.precision,
        load,
        of,
        share,
        target_ms,
        rate_rps,
        result["throughput_rps"],
        result["latency_ms"]["mean"],
        result["latency_ms"]["p95"],
        (result["preprocess_ms"] or {}).get("mean", 0.0),
        result["queue_ms"],
        result["batch_size_mean"],
        used["cpu"],
        used["gpu"],
        1e3 * cores / result["throughput_rps"],
        power["cpu"],
        power["gpu"],
        power.get("fpga", 0.0),
        power["node"],
        result["cost"]["requests_per_usd"],
    )


@contextmanager
def costs_file(preprocess: str, slower: float) -> Iterator[str | None]:
    """Yield a file with the costs of a CPU that is `slower` times slower than its label says; None if it is not."""
    if slower == 1:
        yield None
        return
    label = preprocess.split(":")[2]
    costs = next(costs for costs in COSTS if costs.label == label).scaled(slower)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "costs.json"
        path.write_text(costs.to_json())
        yield str(path)


def scenario(server: Server, rate_rps: float, requests: int, costs: str | None = None) -> Scenario:
    limits: dict[str, Any] = {}
    policy, _, reading = server.policy.partition(":")
    if policy == "preba":
        limits = {"strict": True}
    if policy == STATIC:
        static = static_limits(server, reading)
        policy, limits = "graph", {"max_batch": static.max_batch, "window_ms": 1e3 * static.window_s}
    return Scenario.of(
        model=server.model,
        accelerator=GPU,
        partition=server.partition,
        active_slices=server.active,
        preprocess=server.preprocess,
        cpu_costs=costs,
        image_pixels=server.pixels,
        precision=server.precision,
        lengths=server.lengths if server.model in AUDIO_NETWORKS else None,
        policy=policy,
        rate_rps=rate_rps,
        requests=requests,
        **limits,
    )


def static_limits(server: Server, reading: str) -> BatchLimits:
    """Return Batch_max and Time_queue that are right for audio of one length, for use at all lengths; see
    STATIC_READINGS.

    Batch_max is halved until a slice's memory holds as many of the longest clips."""
    if reading == "single":
        return BatchLimits(1, 0.0)
    parts = WHOLE if reading == "whole" else server.partition
    profiles = slices_of(server.model, parts, server.precision).profiles()
    assert isinstance(profiles, dict)
    profile, step_s = profiles[server.model], traced(server.model).step_s
    assert step_s is not None
    seconds = {"clip": CLIP_S, "longest": LIBRISPEECH.longest}.get(reading, MEANS_S[server.lengths])
    limits = preba_limits(profile, profile.workers, seconds / step_s)
    times = slices_of(server.model, server.partition, server.precision).slowest_times()[server.model]
    while not _fits(times, limits.max_batch, LIBRISPEECH.longest / step_s):
        limits = replace(limits, max_batch=limits.max_batch // 2)
    return limits


def _fits(times: NodeTimes, batch: int, length: float) -> bool:
    try:
        times.whole(batch, length, 1)
    except UsageError:
        return False
    return True


@cache
def saturated(server: Server, requests: int) -> Run:
    return simulated(server, SATURATING_RPS, requests, "saturated")


def within_tail(job: Tail) -> Run:
    """Return the run at the greatest rate within the target, by bisection down from the greatest throughput.

    The arrivals are always the same, only closer together or further apart. A lower rate may miss the target where a
    batch waits longer for others to join it. If no rate of at least `resolution` of the greatest meets the target, the
    run is one that misses it."""
    server, requests = job.server, job.requests
    ideal = replace(server, preprocess=IDEAL, policy="preba", slower=1.0)
    at = TARGET_SHARE * saturated(ideal, requests).throughput_rps
    target_ms = job.slack * simulated(ideal, at, requests, "share").p95_ms
    peak = saturated(server, requests).throughput_rps
    low, high = 0.0, peak
    while high - low > job.resolution * peak:
        middle = (low + high) / 2
        within = simulated(server, middle, requests, "tail").p95_ms <= target_ms
        low, high = (middle, high) if within else (low, middle)
    rate = max(low, job.resolution * peak)
    return simulated(server, rate, requests, "tail", share=job.slack, target_ms=target_ms)


# ---- figures ----


def jobs_for(figure: str, scale: Scale) -> list[Job]:
    requests = scale.requests
    jobs: list[Job]

    def greatest(servers: Iterable[Server]) -> list[Job]:
        return [Saturated(server, requests) for server in servers]

    match figure:
        case "5":
            return [Curves(model, parts, (CLIP_S,)) for model in NETWORKS for parts in PARTITIONS]
        case "6":
            slower = [Curves(m, parts, (CLIP_S,), precision=OTHER_PRECISION) for m in NETWORKS for parts in PARTITIONS]
            return [*jobs_for("5", scale), *slower]
        case "7":
            partitions = ((SEVENTHS, SLICES), (WHOLE, 1))
            both = [
                [server(model, lengths=CLIP, partition=parts, active=count) for parts, count in partitions]
                for model in NETWORKS
            ]
            return [Share(one, tuple(pair), SAME_SHARE, requests) for pair in both for one in pair]
        case "8":
            return greatest(one for model in NETWORKS for one in (*designs(model, CLIP), *slower_cores(model, CLIP)))
        case "9":
            cpus = [server(model, cpu, CLIP) for model in NETWORKS for cpu in BASELINES.values()]
            every_one = [replace(cpu, active=active) for cpu in cpus for active in scale.active]
            return greatest([*every_one, *(one for model in NETWORKS for one in slower_cores(model, CLIP))])
        case "14":
            return [Curves("conformer", parts, scale.lengths_s, FINE_BATCHES) for parts in (SEVENTHS, WHOLE)]
        case "15":
            readings = ((PRECISION, LAUNCH_US), (OTHER_PRECISION, LAUNCH_US), (PRECISION, OTHER_LAUNCH_US))
            return [
                Curves(model, SEVENTHS, KNEE_LENGTHS_S, FINE_BATCHES, *reading)
                for model in AUDIO_NETWORKS
                for reading in readings
            ]
        case "17":
            found = [one for model in NETWORKS for active in scale.active for one in designs(model, active=active)]
            found += [server(model, units) for model in IMAGE_NETWORKS for units in MORE_UNITS]
            return greatest([*found, *(one for model in NETWORKS for one in slower_cores(model))])
        case "18":
            jobs = []
            for model in NETWORKS:
                every = designs(model)
                jobs += [Share(one, (one,), share, requests) for one in every for share in scale.loads]
                jobs += [Tail(one, requests, slack, scale.resolution) for one in every for slack in TARGET_SLACKS]
                for base in (*(server(model, cpu) for cpu in BASELINES.values()), *slower_cores(model)):
                    three = (server(model), server(model, DPU), base)
                    jobs += [Share(one, (base,), BASELINE_SHARE, requests) for one in three]
            return list(dict.fromkeys(jobs))
        case "19":
            every = [one for model, lengths in LATENCY_CASES for one in designs(model, lengths)]
            others = [one for model, lengths in LATENCY_CASES for one in slower_cores(model, lengths)]
            jobs = [Share(one, (one,), share, requests) for one in every for share in scale.loads]
            return jobs + [Share(one, (one,), LOW_LOAD, requests) for one in others]
        case "20" | "21":
            return greatest(one for model in NETWORKS for one in (*designs(model), *slower_cores(model)))
        case "22":
            found = [one for model in AUDIO_NETWORKS for one in ablation(model)]
            return [*greatest(found), *(Tail(one, requests, TARGET_SLACKS[0], scale.resolution) for one in found)]
        case "pcie":
            return greatest(server(*case) for case in PCIE_CASES)
        case "sensitivity":
            return greatest(servers())
        case "map":
            return list(cases(scale.map_requests, scale.map_every))
        case _:  # Table 1 compares the paper's own numbers
            return []


def report(figure: str, rows: Sequence[Row], folder: Path) -> Report:
    if figure == "map":
        found = Map(row for row in rows if isinstance(row, Served))
        draw(folder / "map.png", found)
        (folder / "does_a_dpu_pay.md").write_text(page(found))
        return Report({"map": found.rows})
    if figure == "sensitivity":
        moved = readings(Rows(row for row in rows if isinstance(row, Run)))
        (folder / "sensitivity.md").write_text(table(moved))
        return Report({"sensitivity": moved})
    found_rows = {"table1": cells()} if figure == "table1" else {f"figure{figure}": rows}
    of_paper = Rows(row for row in rows if not isinstance(row, Served))
    return Report(found_rows, REPORTS[figure](of_paper, folder), NOTES.get(figure, ()))


EXPERIMENT = Experiment(
    name="preba",
    source="Yeo, Kim, Choi, Rhu, PREBA",
    figures=(
        *("5", "6", "7", "8", "9", "14", "15", "17", "18", "19", "20", "21", "22", "pcie", "table1"),
        *("sensitivity", "map"),
    ),
    full=Scale(
        20_000, tuple(range(1, SLICES + 1)), LOADS, tuple(2.5 * number for number in range(1, 11)), 0.01, 4_000, 1
    ),
    quick=Scale(1_500, (1, 3, SLICES), (0.1, 0.5, 0.9), (2.5, 12.5, 25.0), 0.05, 1_000, 6),
    jobs=jobs_for,
    run=run_job,
    row_types=(Point, Run, Served),
    report=report,
    describe=lambda jobs: f"{len(jobs)} slices and servers",
    order=lambda job: not isinstance(job, Tail),
)
