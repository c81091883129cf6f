"""The policies at shares of capacity, on the NPU and on a whole H100.

The paper gives rates in requests/s. On other hardware, and on the NPU for another network, the same rate is another
load. So this figure has the loads 0.3, 0.6, 0.9 and 1.2 of capacity, and the paper's rates as shares of it. Capacity is
the throughput of `work-conserving` when all requests come at once, in batches of at most 64.

The H100 is the slice model of a whole GPU, which runs each network as CUDA graphs (sim/hardware/gpu/slice.py). BERT and
ResNet-50 are traced. The zoo has no trace of GNMT and the Transformer. Their kernels are taken to be the matrix
products of their graphs, one kernel each, so norms and activations cost nothing (`laid_out`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np

from headrace.batching.context import PolicyContext
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.registry import policy_with
from headrace.sim.experiments.lazybatching import plots
from headrace.sim.experiments.lazybatching.conditions import HIGH_RPS, LOW_RPS
from headrace.sim.hardware.gpu.measured import laid_out
from headrace.sim.hardware.gpu.mig import gpu_named
from headrace.sim.hardware.gpu.slice import CAPTURED, TF32, slice_times, whole
from headrace.sim.hardware.npu import npu_times
from headrace.sim.machine import usual_lengths
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import dec_timesteps
from headrace.sim.workload.traffic import generate, poisson
from headrace.sim.zoo import model_graph
from headrace.sim.zoo.traced import TRACED, traced

NETWORKS = ("transformer", "gnmt", "bert_base", "resnet50")
NPU, H100 = "npu", "h100"
HARDWARE = (NPU, H100)
LOADS = (0.3, 0.6, 0.9, 1.2)
SLOS_MS = (20.0, 100.0, 200.0)
WINDOWS = (0.0, 1.0, 5.0)  # of `graph`, times the latency of a request of mean length alone
MAX_BATCH = 64
COVERAGE = 0.9
PAPER_RPS = (LOW_RPS, 250, HIGH_RPS, 2000)
SATURATING = 100 * MAX_BATCH  # requests that come at once
SLACKS = ("eq2", "batched", "least-delay")  # of `lazy`
MAX_SEEDS = 10
RUNS = len(WINDOWS) + 1 + len(SLOS_MS) * (len(SLACKS) + 1)  # of a job
WORST = 1.05  # the largest mean latency of the default rule, by that of its best rival
DRAWN_MS = 100.0  # the target of the picture
DRAWN = (*(f"lazy {slack}" for slack in SLACKS), "oracle")
LATER = 0.01  # the largest share of late requests beyond `oracle`


@dataclass(frozen=True, slots=True)
class CapacityJob:
    """One set of arrivals, which all policies serve."""

    model: str
    hardware: str
    load: float
    seed: int
    requests: int


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """One run. `policy` is a policy with its setting, and `late` the share of requests later than `slo_ms`."""

    model: str
    hardware: str
    load: float
    rate_rps: float
    capacity_rps: float
    seed: int
    slo_ms: float
    policy: str
    mean_ms: float
    late: float


def jobs(seeds: int, requests: int) -> list[CapacityJob]:
    """Return a job for each network, hardware, load and seed; at most MAX_SEEDS seeds."""
    return [
        CapacityJob(model, hardware, load, seed, requests)
        for model in NETWORKS
        for hardware in HARDWARE
        for load in LOADS
        for seed in range(min(seeds, MAX_SEEDS))
    ]


@cache
def times_of(model: str, hardware: str) -> NodeTimes:
    """Return the node latencies of a network on NPU or H100."""
    if hardware == NPU:
        return npu_times(model_graph(model))
    network = traced(model) if model in TRACED else laid_out(model_graph(model))
    return slice_times(network, whole(gpu_named("h100")), CAPTURED, TF32)


@cache
def _context(model: str, hardware: str) -> PolicyContext:
    times = times_of(model, hardware)
    decodes = len(times.sections.decoder) > 0
    steps: Mapping[str, int] = {model: dec_timesteps(usual_lengths(model), COVERAGE)} if decodes else {}
    return PolicyContext({model: times}, 1, steps_of=lambda coverage: steps)


@cache
def capacity_rps(model: str, hardware: str) -> float:
    """Return the throughput of `work-conserving` if all requests come at once (1/s)."""
    at_once = generate(np.full(SATURATING, 0.0), {model: usual_lengths(model)}, math.inf, 0)
    policy = policy_with("work-conserving", max_batch=MAX_BATCH).build(_context(model, hardware))
    done = simulate(policy, at_once, {model: times_of(model, hardware)}, 1)
    return SATURATING / max(done.outcome.finished)


@cache
def alone_s(model: str, hardware: str) -> float:
    """Return the latency of a request of mean length alone (s)."""
    inputs, outputs = usual_lengths(model).sample(2000, np.random.default_rng(0))
    return times_of(model, hardware).whole(1, float(inputs.mean()), round(float(outputs.mean())))


def run(job: CapacityJob) -> list[CapacityRow]:
    """Serve the arrivals with each policy. Policies that look at deadlines run once for each of SLOS_MS."""
    model, hardware = job.model, job.hardware
    capacity = capacity_rps(model, hardware)
    at = poisson(job.load * capacity, job.requests, job.seed)
    rows = []

    def serve(name: str, policy: str, slo_ms: float, counted: Sequence[float], **settings: object) -> None:
        arrivals = generate(at, {model: usual_lengths(model)}, slo_ms / 1e3, job.seed)
        built = policy_with(policy, max_batch=MAX_BATCH, **settings).build(_context(model, hardware))
        latencies = simulate(built, arrivals, {model: times_of(model, hardware)}, 1, seed=job.seed).latencies() * 1e3
        for target in counted:
            late = float((latencies > target).mean())
            head = (model, hardware, job.load, job.load * capacity, capacity, job.seed, target)
            rows.append(CapacityRow(*head, name, float(latencies.mean()), late))

    for window in WINDOWS:
        window_ms = 1e3 * window * alone_s(model, hardware)
        serve(f"graph {window:g}", "graph", SLOS_MS[0], SLOS_MS, window_ms=window_ms)
    serve("work-conserving", "work-conserving", SLOS_MS[0], SLOS_MS)
    for slo_ms in SLOS_MS:
        for slack in SLACKS:
            serve(f"lazy {slack}", "lazy", slo_ms, [slo_ms], slack=slack)
        serve("oracle", "oracle", slo_ms, [slo_ms])
    return rows


Point = tuple[str, str, float, float]  # network, hardware, load, target (ms)
Found = Mapping[Point, Mapping[str, tuple[float, float]]]  # by point and policy: mean latency (ms), share late


def averaged(rows: Sequence[CapacityRow]) -> Found:
    """Return mean latency (ms) and share of late requests, averaged over seeds, by point and policy."""
    found: dict[Point, dict[str, tuple[float, float]]] = {}

    def key(row: CapacityRow) -> tuple[str, str, float, float, str]:
        return (row.model, row.hardware, row.load, row.slo_ms, row.policy)

    for (model, hardware, load, slo_ms, policy), group in groupby(sorted(rows, key=key), key=key):
        own = list(group)
        means = float(np.mean([row.mean_ms for row in own])), float(np.mean([row.late for row in own]))
        found.setdefault((model, hardware, load, slo_ms), {})[policy] = means
    return found


def best_rival_ms(policies: Mapping[str, tuple[float, float]]) -> float:
    """Return the least mean latency of the graph windows and `work-conserving` (ms)."""
    return min(mean for name, (mean, _) in policies.items() if name.startswith("graph") or name == "work-conserving")


def tables(rows: Sequence[CapacityRow]) -> list[str]:
    """Return the figure as Markdown: mean latency (ms) and late requests (%) of each policy, and the paper's rates."""
    found = averaged(rows)
    columns = [f"graph {window:g}" for window in WINDOWS] + [
        "work-conserving",
        *(f"lazy {s}" for s in SLACKS),
        "oracle",
    ]
    lines = [
        "Mean latency, ms, and late requests, %, by share of capacity. Windows of `graph` are in latencies of a "
        "request alone.",
        "",
        f"| network | on | load | within | {' | '.join(columns)} | least-delay, by best rival |",
        "| --- " * (len(columns) + 5) + "|",
    ]
    for model in NETWORKS:
        for hardware in HARDWARE:
            for load in LOADS:
                for slo_ms in SLOS_MS:
                    policies = found[model, hardware, load, slo_ms]
                    cells = [f"{policies[name][0]:.2f}, {100 * policies[name][1]:.1f}" for name in columns]
                    ratio = policies["lazy least-delay"][0] / best_rival_ms(policies)
                    head = f"| {model} | {hardware} | {load:g} | {slo_ms:g} ms "
                    lines.append(f"{head}| {' | '.join(cells)} | {ratio:.2f} |")
    capacity = {(row.model, row.hardware): row.capacity_rps for row in rows}
    lines += [
        "",
        "The paper's rates as shares of capacity.",
        "",
        f"| network | on | capacity, requests/s | {' | '.join(f'{rate}/s' for rate in PAPER_RPS)} |",
        "| --- " * (len(PAPER_RPS) + 3) + "|",
    ]
    for (model, hardware), full_rps in capacity.items():
        shares = " | ".join(f"{rate / full_rps:.2f}" for rate in PAPER_RPS)
        lines.append(f"| {model} | {hardware} | {full_rps:.0f} | {shares} |")
    return [*lines, ""]


def draw(path: Path, rows: Sequence[CapacityRow]) -> None:
    """Draw the mean latency by load within DRAWN_MS, with a panel for each hardware and network."""
    found = averaged(rows)
    panels = []
    for model in NETWORKS:
        for hardware in HARDWARE:
            at = [found[model, hardware, load, DRAWN_MS] for load in LOADS]
            lines = {"best rival": [best_rival_ms(policies) for policies in at]}
            lines |= {name: [policies[name][0] for policies in at] for name in DRAWN}
            panels.append((f"{model} on {hardware}", lines))
    plots.capacity(path, LOADS, panels, len(HARDWARE))


def notes(rows: Sequence[CapacityRow]) -> list[str]:
    """Return what the figure shows below capacity, and where the default rule misses its goal."""
    below = {point: policies for point, policies in averaged(rows).items() if point[2] < 1}

    def ratio(policies: Mapping[str, tuple[float, float]], name: str) -> float:
        return policies[name][0] / best_rival_ms(policies)

    worst = {name: max(ratio(policies, name) for policies in below.values()) for name in ("lazy eq2", "lazy batched")}
    ours = {point: ratio(policies, "lazy least-delay") for point, policies in below.items()}
    slower = [point for point, by in ours.items() if by > WORST]
    later = {
        point: policies["lazy least-delay"][1] - policies["oracle"][1]
        for point, policies in below.items()
        if policies["lazy least-delay"][1] - policies["oracle"][1] > LATER
    }
    misses = "; ".join(
        f"{m} on {h}, load {x:g}, {s:g} ms: {100 * by:+.1f} points" for (m, h, x, s), by in later.items()
    )
    return [
        "Mean latency below capacity, by the best graph window or work-conserving: least-delay has "
        f"{min(ours.values()):.2f} to {max(ours.values()):.2f}. The largest ratio is {worst['lazy eq2']:.2f} with eq2 "
        f"and {worst['lazy batched']:.2f} with batched. Points above {WORST}: {len(slower)} of {len(below)}.",
        f"More than {100 * LATER:g} point later than oracle: {misses or 'none'}.",
    ]
