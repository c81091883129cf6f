"""Goodput by load and policy, simulated: the same Poisson arrivals for all policies, on one NPU.

At a load of 1, the rate is the NPU's in batches of MAX_BATCH, for inputs and outputs of mean length. A request is
dropped if it has not begun in time for its deadline. Where the load exceeds the NPU's capacity, goodput shows how a
policy handles the overload.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from headrace.sim.experiments.experiment import Experiment, Report
from headrace.sim.experiments.goodput.plots import plot
from headrace.sim.experiments.goodput.rows import Row
from headrace.sim.hardware.npu import npu_times
from headrace.sim.machine import usual_lengths
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
from headrace.sim.zoo import model_graph

MODELS = ("resnet50", "transformer", "resnet50,transformer,mobilenet_v1")
POLICIES = ("graph", "preba", "smdp", "lazy", "earliest-deadline", "deferred")
LOADS = (0.3, 0.6, 0.9, 1.2, 1.5)
SLO_MS = (20.0, 100.0)
MAX_BATCH = 64


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run: requests of each run, and seeds of each setting."""

    requests: int
    seeds: int


@dataclass(frozen=True, slots=True)
class Job:
    model: str
    slo_ms: float
    load: float
    policy: str
    requests: int
    seed: int


@cache
def capacity_rps(models: tuple[str, ...]) -> float:
    """Return the rate of requests for each model in turn, in full batches of inputs and outputs of mean length."""
    seconds = 0.0
    for model in models:
        inputs, outputs = usual_lengths(model).sample(2000, np.random.default_rng(0))
        whole = npu_times(model_graph(model)).whole(MAX_BATCH, float(inputs.mean()), round(float(outputs.mean())))
        seconds += whole / MAX_BATCH
    return len(models) / seconds


def simulated(job: Job) -> dict[str, Any]:
    """Run one simulation and return its result."""
    rate = job.load * capacity_rps(tuple(job.model.split(",")))
    scenario = Scenario.of(
        model=job.model,
        policy=job.policy,
        rate_rps=rate,
        requests=job.requests,
        slo_ms=job.slo_ms,
        drop_late=True,
        max_batch=MAX_BATCH,
        slack="eq2",  # of `lazy`: the paper's rule
        seed=job.seed,
    )
    return run_scenario(scenario)[0].result


def run_job(job: Job) -> list[Row]:
    result = simulated(job)
    in_time = 1.0 - result["sla_violation_rate"]
    latency_ms, batch = result["latency_ms"]["mean"], result["batch_size_mean"]
    return [Row(job.model, job.slo_ms, job.load, job.policy, in_time, in_time * job.load, latency_ms, batch)]


def averaged(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each setting: the mean over its seeds."""
    groups: dict[tuple[str, float, float, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.slo_ms, row.load, row.policy), []).append(row)
    means = []
    for (model, slo_ms, load, policy), group in groups.items():
        in_time = fmean(row.in_time for row in group)
        latency_ms, batch = fmean(row.latency_ms for row in group), fmean(row.batch for row in group)
        means.append(Row(model, slo_ms, load, policy, in_time, in_time * load, latency_ms, batch))
    return means


def table(rows: Sequence[Row]) -> list[str]:
    """Return a table in Markdown: share in time (%) at each load, and mean latency and mean batch at 0.6."""
    lines = [
        f"| network | within | policy | {' | '.join(f'at {load:g}' for load in LOADS)} | ms, batch at 0.6 |",
        "| --- " * (len(LOADS) + 4) + "|",
    ]
    for model, slo_ms, policy in product(MODELS, SLO_MS, POLICIES):
        mine = {row.load: row for row in rows if (row.model, row.slo_ms, row.policy) == (model, slo_ms, policy)}
        shares = " | ".join(f"{100 * mine[load].in_time:.1f} %" for load in LOADS)
        at = mine[0.6]
        served = f"{at.latency_ms:.1f}, {at.batch:.1f}"
        lines.append(f"| {model.replace(',', ', ')} | {slo_ms:g} ms | {policy} | {shares} | {served} |")
    return lines


def jobs_for(figure: str, scale: Scale) -> list[Job]:
    settings = product(MODELS, SLO_MS, LOADS, POLICIES)
    return [Job(*setting, scale.requests, seed) for setting in settings for seed in range(scale.seeds)]


def report(figure: str, rows: Sequence[Row], folder: Path) -> Report:
    means = averaged(rows)
    plot(folder / "goodput.png", means)
    return Report({"goodput": means}, tables=table(means))


EXPERIMENT = Experiment(
    name="goodput",
    source="a study of this project",
    figures=("goodput",),
    full=Scale(requests=10_000, seeds=3),
    quick=Scale(requests=500, seeds=1),
    jobs=jobs_for,
    run=run_job,
    row_types=(Row,),
    report=report,
    describe=lambda jobs: f"{len(jobs)} simulated runs",
)
