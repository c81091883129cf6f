"""Goodput by load and policy, simulated: the same Poisson arrivals for all policies, on one NPU.

A load of 1 is what the NPU does in batches of MAX_BATCH, of inputs and outputs of mean length. Whatever has not begun
in time for its deadline is dropped. Where the load is more than the NPU can do, goodput tells what a policy makes of
the overload.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from headrace.sim.experiments.goodput.plots import plot
from headrace.sim.experiments.goodput.rows import Row
from headrace.sim.experiments.report import write_rows
from headrace.sim.hardware.npu import npu_times
from headrace.sim.machine import usual_lengths
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
from headrace.sim.sweeps.sweep import Progress, sweep
from headrace.sim.zoo import model_graph

MODELS = ("resnet50", "transformer", "resnet50,transformer,mobilenet_v1")
POLICIES = ("graph", "preba", "smdp", "lazy", "earliest-deadline", "deferred")
LOADS = (0.3, 0.6, 0.9, 1.2, 1.5)
SLA_MS = (20.0, 100.0)
MAX_BATCH = 64


@dataclass(frozen=True, slots=True)
class Job:
    model: str
    sla_ms: float
    load: float
    policy: str
    requests: int
    seed: int


@cache
def capacity_rps(models: tuple[str, ...]) -> float:
    """Of requests for each of them in turn, in full batches of inputs and outputs of mean length."""
    seconds = 0.0
    for model in models:
        inputs, outputs = usual_lengths(model).sample(2000, np.random.default_rng(0))
        whole = npu_times(model_graph(model)).whole(MAX_BATCH, float(inputs.mean()), round(float(outputs.mean())))
        seconds += whole / MAX_BATCH
    return len(models) / seconds


def run_job(job: Job) -> dict[str, Any]:
    rate = job.load * capacity_rps(tuple(job.model.split(",")))
    scenario = Scenario.of(
        model=job.model,
        policy=job.policy,
        rate_rps=rate,
        requests=job.requests,
        slo_ms=job.sla_ms,
        drop_late=True,
        max_batch=MAX_BATCH,
        seed=job.seed,
    )
    return run_scenario(scenario)[0].result


def averaged(model: str, sla_ms: float, load: float, policy: str, results: Sequence[dict[str, Any]]) -> Row:
    in_time = fmean(1.0 - result["sla_violation_rate"] for result in results)
    return Row(
        model,
        sla_ms,
        load,
        policy,
        in_time,
        in_time * load,
        fmean(result["latency_ms"]["mean"] for result in results),
        fmean(result["batch_size_mean"] for result in results),
    )


def table(rows: Sequence[Row]) -> list[str]:
    """In time (%) at each load, mean latency of what was served and mean batch at 0.6."""
    lines = [
        f"| network | within | policy | {' | '.join(f'at {load:g}' for load in LOADS)} | ms, batch at 0.6 |",
        "| --- " * (len(LOADS) + 4) + "|",
    ]
    for model, sla_ms, policy in product(MODELS, SLA_MS, POLICIES):
        mine = {row.load: row for row in rows if (row.model, row.sla_ms, row.policy) == (model, sla_ms, policy)}
        shares = " | ".join(f"{100 * mine[load].in_time:.1f} %" for load in LOADS)
        at = mine[0.6]
        served = f"{at.latency_ms:.1f}, {at.batch:.1f}"
        lines.append(f"| {model.replace(',', ', ')} | {sla_ms:g} ms | {policy} | {shares} | {served} |")
    return lines


def run(requests: int, seeds: int, out: Path, progress: Progress) -> list[Row]:
    """Every setting, averaged over the seeds; writes goodput.csv and goodput.png into `out`."""
    settings = list(product(MODELS, SLA_MS, LOADS, POLICIES))
    jobs = [Job(*setting, requests, seed) for setting in settings for seed in range(seeds)]
    progress.stage("simulated runs", len(jobs))
    results = sweep(run_job, jobs, progress.step)
    by_setting = [results[at : at + seeds] for at in range(0, len(results), seeds)]
    rows = [averaged(*setting, found) for setting, found in zip(settings, by_setting, strict=True)]
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / "goodput.csv", rows)
    plot(out / "goodput.png", rows)
    return rows
