"""Study three questions about a GPU in slices that the PREBA paper leaves open, with Poisson arrivals.

- `preparing`: on which GPUs does a DPU pay? PREBA argues that slices have no JPEG decoders. That is so on an A100,
  while each of Hopper's slices has one.
- `scheduling`: every policy on seven equal slices and on the whole GPU. `preba-lazy` is among them, because the paper
  says that node-level batching can be employed on top of its own.
- `cutting`: equal slices, unequal ones, and the whole GPU.

Policies are compared on the same arrivals. Policies with one limit for all lengths receive those of the profile as
well: Batch_max and Time_queue of the mean length.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.batching.policies.preba import preba_limits
from headrace.sim.experiments.experiment import Experiment, Report
from headrace.sim.experiments.slices import tables
from headrace.sim.experiments.slices.plots import plot_policies, plot_preparing
from headrace.sim.experiments.slices.rows import Capacity, Served, Server, UnitCount
from headrace.sim.hardware.gpu.mig import GPUS
from headrace.sim.hardware.inputs import TYPICAL_PIXELS, UNITS
from headrace.sim.hardware.settings import PRECISION
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
from headrace.sim.system.system import System
from headrace.sim.workload.lengths import LIBRISPEECH

IMAGES: Final = ("mobilenet_v3_small", "squeezenet1_1", "swin_t")
AUDIO: Final = ("conformer_small", "conformer", "citrinet")
A100: Final = "a100-40gb"
SEVENTHS: Final = "1g.5gb:7"  # seven slices of an A100
WHOLE: Final = "7g.40gb:1"
# The target of the 99th percentile (ms), by the lengths of inputs. It is about twice the worst latency of these
# networks and partitions at half of the slices' capacity.
TARGET_MS: Final = {"": 60.0, "2.5": 200.0, "25": 250.0, "librispeech": 400.0}
CPU: Final = {"cpu, measured": "cpu:32", "cpu, paper-implied": "cpu:32:paper-implied"}
DESIGNS: Final = (*CPU, "dpu", "nvjpg", "ideal")
POLICIES: Final = ("graph", "lazy", "smdp", "preba", "preba-lazy")
LOADS: Final = (0.3, 0.6, 0.9, 1.2)
SCHEDULED: Final = (
    ("mobilenet_v3_small", ""),
    ("swin_t", ""),
    ("conformer", "librispeech"),
    ("citrinet", "librispeech"),
)
STAGES: Final = ((SEVENTHS, "ideal"), (SEVENTHS, "dpu"), (WHOLE, "ideal"))
CUT: Final = (
    *((model, "") for model in ("mobilenet_v3_small", "swin_t")),
    *product(("conformer", "citrinet"), ("2.5", "25", "librispeech")),
)
CUTS: Final = (SEVENTHS, "2g.10gb:3", "3g.20gb:2", "4g.20gb:1,3g.20gb:1", "1g.5gb:3,4g.20gb:1", WHOLE)
ALL_AT_ONCE_RPS: Final = 1e6
HALVINGS: Final = 7  # the halvings in the search for the rate within a target
MAX_CUS: Final = 64

Averaged = TypeVar("Averaged", Capacity, Served)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run.

    A saturated run has as many requests as the server serves in `saturated` times the target. A run at a load has as
    many as come in `loaded` times the target. Both have at least `fewest`. `only` are the networks and GPUs that are
    studied; all if it is empty."""

    saturated: float
    loaded: float
    fewest: int
    seeds: int
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measure:
    """A job that measures the capacity of a server."""

    server: Server
    design: str
    seed: int
    scale: Scale


@dataclass(frozen=True, slots=True)
class Load:
    """A job that runs a policy at a share of the slices' throughput."""

    server: Server
    policy: str
    load: float
    seed: int
    scale: Scale


# ---- numbers of a server without a run ----


def partitions(gpu: str) -> tuple[str, str]:
    """Return two partitions: as many of the smallest slice as fit, and the largest."""
    profiles = list(GPUS[gpu].profiles.values())
    return f"{profiles[0].name}:{profiles[0].max_count}", f"{profiles[-1].name}:1"


def sizes(lengths: str) -> NDArray[np.float64]:
    """Return sizes of requests, by which preprocessing takes its time."""
    if lengths == "librispeech":
        return np.asarray(LIBRISPEECH.sample(2000, np.random.default_rng(0))[0], np.float64)
    return np.array([float(lengths) if lengths else float(TYPICAL_PIXELS)])


@cache
def system(server: Server) -> System:
    return System.of(
        server.gpu,
        [server.model],
        parts=server.partition,
        preprocess=server.preprocess,
        image_sizes=TYPICAL_PIXELS,
        precision=PRECISION,
    )


@cache
def slices_rps(server: Server) -> float:
    """Return the rate of the slices in the best batches, each of requests of one length."""
    known = system(server)
    step_s = known.networks[0].step_s
    lengths, counts = np.unique(np.rint(sizes(server.lengths) / step_s) if step_s else 1.0, return_counts=True)
    profiles = known.profiles()
    total = 0.0
    for each in [profiles] if isinstance(profiles, dict) else profiles:
        rates = [max(point.throughput_rps for point in each[server.model].curve(length)) for length in lengths]
        total += 1 / float(np.average([1 / rate for rate in rates], weights=counts))
    return total


def steps_rps(server: Server) -> dict[str, float]:
    of = sizes(server.lengths)
    return {step.name: step.servers / float(np.mean(step.service_s(of))) for step in system(server).preprocessor.steps}


@cache
def unit_count(server: Server) -> UnitCount:
    alone = steps_rps(replace(server, preprocess="dpu:1"))
    links = {name: rate for name, rate in alone.items() if name not in UNITS}
    link = min(links, key=links.__getitem__)
    slices = slices_rps(replace(server, preprocess="ideal"))
    least = min(slices, links[link])
    count = {}
    for start in ("kernel", "queue"):
        rates = steps_rps(replace(server, preprocess="dpu:1" if start == "kernel" else f"dpu:1:{start}"))
        slowest = min(rate for name, rate in rates.items() if name in UNITS)
        count[start] = min(MAX_CUS, int(np.ceil(least / slowest)))
    return UnitCount(
        server.gpu,
        server.partition,
        server.model,
        server.lengths,
        slices,
        link,
        links[link],
        count["kernel"],
        count["queue"],
    )


def with_design(server: Server, design: str) -> Server:
    """Return the server with a design of preprocessing. A DPU has as many CUs as keep up."""
    if design == "dpu":
        return replace(server, preprocess=f"dpu:{unit_count(server).kernel}")
    return replace(server, preprocess=CPU.get(design, design))


def possible(server: Server, design: str) -> bool:
    """Return whether every slice has a JPEG engine, if the design needs one."""
    if design != "nvjpg":
        return True
    names = [part.split(":")[0] for part in server.partition.split(",")]
    return not server.lengths and all(GPUS[server.gpu].profiles[name].jpeg_engines for name in names)


# ---- runs ----


def simulated(server: Server, rate_rps: float, requests: int, seed: int, **settings: Any) -> dict[str, Any]:
    scenario = Scenario.of(
        accelerator=server.gpu,
        partition=server.partition,
        model=server.model,
        lengths=server.lengths or None,
        preprocess=server.preprocess,
        rate_rps=rate_rps,
        requests=requests,
        seed=seed,
        slo_ms=TARGET_MS[server.lengths],
        **{"policy": "preba", "slack": "eq2", **settings},  # the paper's rule, for policies that have it
    )
    return run_scenario(scenario)[0].result


@cache
def saturated(server: Server, seed: int, scale: Scale) -> dict[str, Any]:
    """Return the result of a run in which all requests come at once."""
    rate = min([slices_rps(server), *steps_rps(server).values()])
    requests = max(scale.fewest, int(rate * scale.saturated * TARGET_MS[server.lengths] / 1e3))
    return simulated(server, ALL_AT_ONCE_RPS, requests, seed)


def arriving(server: Server, rate_rps: float, seed: int, scale: Scale, **settings: Any) -> dict[str, Any]:
    requests = max(scale.fewest, int(rate_rps * scale.loaded * TARGET_MS[server.lengths] / 1e3))
    return simulated(server, rate_rps, requests, seed, **settings)


def largest(meets: Callable[[float], bool], limit: float) -> float:
    """Return the largest number up to `limit` that `meets` accepts, or 0, by halving.

    A larger number is taken to be accepted less."""
    low, high = 0.0, limit
    if meets(high):
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def measure(job: Measure) -> Capacity:
    server, target_ms = job.server, TARGET_MS[job.server.lengths]
    full = saturated(server, job.seed, job.scale)

    def within(rate_rps: float) -> bool:
        p99: float = arriving(server, rate_rps, job.seed, job.scale)["latency_ms"]["p99"]
        return p99 <= target_ms

    used = {"slices": full["utilization"], **full["preprocess_utilization"]}
    binds = max(used, key=used.__getitem__)
    return Capacity(
        server.gpu,
        server.partition,
        server.model,
        server.lengths,
        job.design,
        server.preprocess,
        full["throughput_rps"],
        binds,
        used[binds],
        target_ms,
        largest(within, full["throughput_rps"]),
        0.0,
        full["power_w"]["total"],
        full["energy_per_request_j"],
        full["cost"]["requests_per_usd"],
    )


@cache
def limits(server: Server) -> dict[str, Any]:
    """Return Batch_max and Time_queue of `preba` at the mean length, for a policy that has one of each."""
    known = system(server)
    step_s, profiles = known.networks[0].step_s, known.profiles()
    assert isinstance(profiles, dict)
    mean = float(sizes(server.lengths).mean()) / step_s if step_s else None
    best = preba_limits(profiles[server.model], len(known.slices), mean)
    return {"max_batch": best.max_batch, "window_ms": 1e3 * best.window_s}


def serve(job: Load) -> Served:
    full = saturated(replace(job.server, preprocess="ideal"), 0, job.scale)["throughput_rps"]
    settings = {"policy": job.policy, **limits(job.server)}
    result = arriving(job.server, job.load * full, job.seed, job.scale, **settings)
    return Served(
        job.server.partition,
        job.server.model,
        job.server.lengths,
        job.server.preprocess,
        job.policy,
        job.load,
        result["latency_ms"]["mean"],
        result["latency_ms"]["p99"],
        1 - result["sla_violation_rate"],
        result["batch_size_mean"],
        0.0,
    )


def averaged_capacities(rows: Sequence[Capacity]) -> list[Capacity]:
    """Return one row for each server and design: the mean over its seeds."""
    names = (
        "throughput_rps",
        "binds_utilization",
        "within_rps",
        "power_w",
        "energy_per_request_j",
        "requests_per_usd",
    )
    groups: dict[tuple[str, ...], list[Capacity]] = {}
    for row in rows:
        groups.setdefault((row.gpu, row.partition, row.model, row.lengths, row.design), []).append(row)
    return [_averaged(group, names, [row.within_rps for row in group]) for group in groups.values()]


def averaged_served(rows: Sequence[Served]) -> list[Served]:
    """Return one row for each server, policy and load: the mean over its seeds."""
    groups: dict[tuple[object, ...], list[Served]] = {}
    for row in rows:
        key = (row.partition, row.model, row.lengths, row.preprocess, row.policy, row.load)
        groups.setdefault(key, []).append(row)
    names = ("mean_ms", "p99_ms", "in_time", "batch")
    return [_averaged(group, names, [row.mean_ms for row in group]) for group in groups.values()]


def _averaged(rows: Sequence[Averaged], names: Sequence[str], spread_over: Sequence[float]) -> Averaged:
    """Return the first row with the means of these fields, and with the spread of these values."""
    means: dict[str, Any] = {name: fmean(getattr(row, name) for row in rows) for name in names}
    return replace(rows[0], spread=spread(spread_over), **means)


def spread(values: Sequence[float]) -> float:
    mean = fmean(values)
    return (max(values) - min(values)) / mean if mean else 0.0


# ---- the study ----


def wanted(names: Iterable[str], scale: Scale) -> list[str]:
    return [name for name in names if not scale.only or name in scale.only]


def stages(scale: Scale) -> list[Server]:
    """Return each GPU in its smallest slices and whole, with each network, and with inputs ready."""
    sent = [(model, "") for model in wanted(IMAGES, scale)] + [(model, "2.5") for model in wanted(AUDIO, scale)]
    return [
        Server(gpu, parts, model, lengths, "ideal")
        for (model, lengths), gpu in product(sent, wanted(GPUS, scale))
        for parts in partitions(gpu)
    ]


def preparing(scale: Scale) -> list[Measure]:
    return [
        Measure(with_design(server, design), design, seed, scale)
        for server, design in product(stages(scale), DESIGNS)
        if possible(server, design)
        for seed in range(scale.seeds)
    ]


def cutting(scale: Scale) -> list[Measure]:
    return [
        Measure(Server(A100, parts, model, lengths, "ideal"), "ideal", seed, scale)
        for (model, lengths), parts in product(CUT, CUTS)
        if model in wanted((model,), scale)
        for seed in range(scale.seeds)
    ]


def scheduling(scale: Scale) -> list[Load]:
    return [
        Load(with_design(Server(A100, parts, model, lengths, "ideal"), design), policy, load, seed, scale)
        for (parts, design), (model, lengths), load, policy in product(STAGES, SCHEDULED, LOADS, POLICIES)
        if model in wanted((model,), scale)
        for seed in range(scale.seeds)
    ]


def run_job(job: Measure | Load) -> list[Capacity | Served]:
    return [measure(job) if isinstance(job, Measure) else serve(job)]


def jobs_for(figure: str, scale: Scale) -> Sequence[Measure | Load]:
    match figure:
        case "preparing":
            return preparing(scale)
        case "scheduling":
            return scheduling(scale)
        case _:
            return cutting(scale)


def report(figure: str, rows: Sequence[Capacity | Served], folder: Path) -> Report:
    capacities = averaged_capacities([row for row in rows if isinstance(row, Capacity)])
    served = averaged_served([row for row in rows if isinstance(row, Served)])
    match figure:
        case "preparing":
            ready = [row for row in capacities if row.design == "ideal"]
            counts = [unit_count(Server(row.gpu, row.partition, row.model, row.lengths, "ideal")) for row in ready]
            plot_preparing(folder / "preparing.png", capacities)
            return Report({"units": counts, "preparing": capacities}, tables=tables.of_preparing(capacities, counts))
        case "scheduling":
            plot_policies(folder / "policies.png", served)
            return Report({"scheduling": served}, tables=tables.of_scheduling(served))
        case _:
            return Report({"cutting": capacities}, tables=tables.of_cutting(capacities))


EXPERIMENT = Experiment(
    name="slices",
    source="a study of this project",
    figures=("preparing", "scheduling", "cutting"),
    full=Scale(saturated=20, loaded=10, fewest=2000, seeds=3),
    quick=Scale(saturated=2, loaded=1, fewest=200, seeds=1, only=("swin_t", "citrinet", A100, "h100")),
    jobs=jobs_for,
    run=run_job,
    row_types=(Capacity, Served),
    report=report,
    describe=lambda jobs: f"{len(jobs)} simulated servers",
)
