"""The evaluation of LazyBatching (Choi, Kim, Rhu, HPCA 2021, Sections V and VI) on the NPU model: the runs.

Every run serves `requests` Poisson arrivals, and all policies of a job see the same ones. claims.py compares with the
paper's numbers. conditions.py has the questions that the paper leaves open.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from headrace.batching.context import PolicyContext
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.policies.lazy import LazyBatching, OracleLazyBatching
from headrace.batching.policy import Policy
from headrace.batching.registry import policy_with
from headrace.sim.engine import Arrivals
from headrace.sim.experiments.experiment import Experiment, Report
from headrace.sim.experiments.lazybatching import capacity, further, h100_live
from headrace.sim.experiments.lazybatching.capacity import CapacityJob, CapacityRow
from headrace.sim.experiments.lazybatching.causes import explained
from headrace.sim.experiments.lazybatching.claims import REPORTS, draw
from headrace.sim.experiments.lazybatching.conditions import (
    COLOCATED,
    FURTHER_NETWORKS,
    HIGH_RPS,
    LOW_RPS,
    NETWORKS,
    OF_LAZY,
    OF_NPU,
    READINGS,
    SEQUENCE_NETWORKS,
    TARGETS_MS,
    UNCACHED,
)
from headrace.sim.experiments.lazybatching.further import PAIR_NETWORKS, PAIRS, STATIC_NETWORK, named, serve_as_cells
from headrace.sim.experiments.lazybatching.rows import Row
from headrace.sim.hardware.npu import Npu, npu_times
from headrace.sim.machine import usual_lengths
from headrace.sim.simulation import Simulation, simulate
from headrace.sim.workload.lengths import LENGTHS, Lengths, dec_timesteps
from headrace.sim.workload.traffic import generate, poisson
from headrace.sim.zoo import model_graph

COVERAGE = 0.9


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run: rates in requests/s, windows in ms.

    `live_s` is the length of each live run of Fig. 17. `live_hidden` is the width of its Transformer, and
    `live_max_batch` the largest batch."""

    seeds: int
    requests: int
    rates: tuple[int, ...]
    windows: tuple[int, ...]
    live_s: float = 4.0
    live_hidden: int = 256
    live_max_batch: int = 8


@dataclass(frozen=True, slots=True)
class Job:
    """One set of arrivals and the policies that serve it: `graph` with each of `windows`, and those in `policies`.

    `model` may be several, joined by +, which then share the NPU."""

    model: str
    rate_rps: float
    seed: int
    requests: int
    windows: tuple[int, ...]
    policies: tuple[str, ...] = ("lazy",)
    slo_ms: float = 100.0
    max_batch: int = 64
    dec_timesteps: int | None = None  # None for the steps that COVERAGE of the outputs takes
    reading: str = ""
    pair: str = ""  # the pair of languages, a name in workload/lengths.py; "" for the network's own lengths


@cache
def _times(model: str, npu: Npu) -> NodeTimes:
    return npu_times(model_graph(model), npu)


@cache
def _assumed_steps(model: str, pair: str) -> int:
    return dec_timesteps(LENGTHS[pair] if pair else usual_lengths(model), COVERAGE)


def run_job(job: Job | CapacityJob) -> list[Row | CapacityRow]:
    if isinstance(job, CapacityJob):
        return [*capacity.run(job)]
    times = {model: _times(model, READINGS[job.reading].npu) for model in job.model.split("+")}
    lengths: dict[str, Lengths] = {model: LENGTHS[job.pair] if job.pair else usual_lengths(model) for model in times}
    steps = {
        model: job.dec_timesteps or _assumed_steps(model, job.pair)
        for model, known in times.items()
        if len(known.sections.decoder)
    }
    arrivals = generate(poisson(job.rate_rps, job.requests, job.seed), lengths, job.slo_ms / 1e3, job.seed)
    rows: list[Row | CapacityRow] = []
    for name, window in [*(("graph", window) for window in job.windows), *((name, 0) for name in job.policies)]:
        if name == "cellular":
            done = serve_as_cells(job.model, times[job.model], arrivals, job.max_batch)
        else:
            policy = _policy(job, name, window, times, steps)
            done = simulate(policy, arrivals, times, 1, seed=job.seed)
        rows.append(_row(job, name, window, arrivals, done))
    return rows


def _policy(job: Job, name: str, window_ms: int, times: Mapping[str, NodeTimes], steps: Mapping[str, int]) -> Policy:
    """Return a new policy for one run.

    This is the only place where the experiment makes policies. The reading sets the research settings of `lazy` and
    `oracle` here (lazy.py)."""
    reading = READINGS[job.reading]
    if name in ("lazy", "oracle"):
        lazy = LazyBatching if name == "lazy" else OracleLazyBatching
        return lazy(
            times,
            1,
            job.max_batch,
            steps,
            slack_scope=reading.slack_scope,
            equal_timesteps=reading.equal_timesteps,
            strict=True,  # models share the NPU as in Section VI-C
        )
    context = PolicyContext(times, 1, steps_of=lambda coverage: steps)
    return policy_with(name, window_ms=float(window_ms), max_batch=job.max_batch).build(context)


def _row(job: Job, policy: str, window: int, arrivals: Arrivals, done: Simulation) -> Row:
    latencies = done.latencies() * 1e3
    quantiles = np.quantile(latencies, np.linspace(0, 1, 101))
    return Row(
        named(job.model, job.pair),
        job.reading,
        job.rate_rps,
        job.seed,
        policy,
        window,
        job.slo_ms,
        job.max_batch,
        job.dec_timesteps,
        float(latencies.mean()),
        float(quantiles[99]),
        len(latencies) / (max(done.outcome.finished) - arrivals.arrival[0]),
        float((latencies > job.slo_ms).mean()),
        done.outcome.request_node_runs / done.outcome.node_runs,
        tuple(float((latencies > target).mean()) for target in TARGETS_MS),
        tuple(float(quantile) for quantile in quantiles),
    )


def _jobs(scale: Scale, models: Iterable[str], rates: Iterable[float], **settings: object) -> list[Job]:
    settings = {"windows": scale.windows, **settings}
    return [
        Job(model, rate, seed, scale.requests, **settings)  # type: ignore[arg-type]
        for model, rate, seed in product(models, rates, range(scale.seeds))
    ]


def _by_load(scale: Scale, rates: Sequence[int]) -> list[Job]:
    """Return the jobs of Figures 12 to 14: every network in the readings that matter for it."""
    jobs = _jobs(scale, (*NETWORKS, UNCACHED), rates, policies=("serial", "lazy", "oracle"))
    for reading in OF_NPU:
        jobs += _jobs(scale, NETWORKS, rates, reading=reading)
    for reading in OF_LAZY:
        jobs += _jobs(scale, SEQUENCE_NETWORKS, rates, windows=(), reading=reading)
    return jobs


def _lower_targets(
    scale: Scale, models: Iterable[str], reading: str = "", rates: Sequence[int] = (HIGH_RPS,)
) -> list[Job]:
    """Return jobs of lazy and oracle for each target below the default of 100 ms."""
    jobs = []
    policies = ("lazy", "oracle") if reading == "" else ("lazy",)
    for target in TARGETS_MS[:-1]:
        settings = {"windows": (), "policies": policies, "slo_ms": target, "reading": reading}
        jobs += _jobs(scale, models, rates, **settings)
    return jobs


def _sensitivity(scale: Scale) -> list[Job]:
    """Return the jobs of Section VI-C's text: dec_timesteps, the maximum batch, co-location."""
    jobs = []
    for steps in (10, 20, 32, 50):
        some = [rate for rate in scale.rates if rate >= 500]
        settings = {"windows": (), "slo_ms": 60, "dec_timesteps": steps}
        jobs += _jobs(scale, ("transformer", UNCACHED), some, **settings)
        jobs += _jobs(scale, ("transformer", UNCACHED), some, reading="equal-timesteps", **settings)
    for max_batch in (16, 32):
        jobs += _jobs(scale, NETWORKS, scale.rates, max_batch=max_batch)
    jobs += _jobs(scale, [COLOCATED], scale.rates, policies=("serial", "lazy", "oracle"))
    jobs += _jobs(scale, [COLOCATED], scale.rates, windows=(), reading="active")
    return jobs + [job for reading in OF_NPU for job in _jobs(scale, [COLOCATED], scale.rates, reading=reading)]


def jobs_for(figure: str, scale: Scale) -> Sequence[Job | CapacityJob]:
    match figure:
        case "capacity":
            return capacity.jobs(scale.seeds, scale.requests)
        case "5":
            return _jobs(scale, ["resnet50"], [r for r in (LOW_RPS, 250, 2000) if r in scale.rates], policies=())
        case "12" | "13":
            return _by_load(scale, scale.rates)
        case "14":
            return _by_load(scale, [HIGH_RPS])
        case "15":
            models = (*NETWORKS, UNCACHED)
            jobs = _by_load(scale, [HIGH_RPS]) + _lower_targets(scale, models)
            overload = scale.rates[-1:]
            jobs += _jobs(scale, NETWORKS, overload, policies=("serial", "lazy", "oracle"))
            jobs += _lower_targets(scale, NETWORKS, rates=overload)
            jobs += [job for reading in OF_NPU for job in _lower_targets(scale, NETWORKS, reading)]
            return jobs + [job for reading in OF_LAZY for job in _lower_targets(scale, SEQUENCE_NETWORKS, reading)]
        case "16":
            jobs = _jobs(
                scale, FURTHER_NETWORKS, [LOW_RPS, HIGH_RPS], windows=(95,), policies=("serial", "lazy", "oracle")
            )
            for reading in OF_NPU:
                jobs += _jobs(scale, FURTHER_NETWORKS, [LOW_RPS, HIGH_RPS], windows=(95,), reading=reading)
            return jobs + [job for r in ("", *OF_NPU) for job in _lower_targets(scale, FURTHER_NETWORKS, r)]
        case "sensitivity":
            return _sensitivity(scale)
        case "pairs":
            loads = (LOW_RPS, HIGH_RPS)
            jobs = _jobs(scale, PAIR_NETWORKS, loads, policies=("serial", "lazy", "oracle"))
            return jobs + [job for pair in PAIRS for job in _jobs(scale, PAIR_NETWORKS, loads, pair=pair)]
        case "cellular":
            return _jobs(scale, [STATIC_NETWORK], scale.rates, windows=(0,), policies=("cellular",))
        case _:  # 3 shows latencies alone, 17 is measured
            return []


def report(figure: str, rows: Sequence[Any], folder: Path) -> Report:
    if figure == "capacity":
        capacity.draw(folder / "figurecapacity.png", rows)
        return Report({"figurecapacity": rows}, notes=capacity.notes(rows), tables=capacity.tables(rows))
    compute = {**REPORTS, **further.REPORTS}.get(figure)
    claims = [] if compute is None else compute(rows, folder)
    if rows and isinstance(rows[0], Row):
        draw(figure, rows, folder)
        claims = claims if compute is None else explained(claims, rows, compute, folder)
    return Report({f"figure{figure}": rows}, claims, tables=h100_live.table(rows) if figure == "17" else ())


def describe(jobs: Sequence[Job | CapacityJob]) -> str:
    runs = sum(capacity.RUNS if isinstance(job, CapacityJob) else len(job.windows) + len(job.policies) for job in jobs)
    return f"{runs} simulated runs"


EXPERIMENT: Experiment[Scale, Job | CapacityJob, Row | CapacityRow] = Experiment(
    name="lazybatching",
    source="Choi, Kim, Rhu, LazyBatching, HPCA 2021",
    figures=("3", "5", "12", "13", "14", "15", "16", "17", "sensitivity", "pairs", "cellular", "capacity"),
    full=Scale(20, 2000, (LOW_RPS, 64, 125, 250, 500, HIGH_RPS, 2000), tuple(range(5, 96, 10))),
    quick=Scale(2, 400, (LOW_RPS, 500, HIGH_RPS, 2000), (5, 35, 95), live_s=0.5, live_hidden=64, live_max_batch=2),
    jobs=jobs_for,
    run=run_job,
    row_types=(Row, CapacityRow),
    report=report,
    describe=describe,
    measured=("17",),
)
