#!/usr/bin/env python3
"""What the live runtime adds to the hardware: live beside simulated, turn-round, requests/s of an empty network, cells.

    .venv/bin/python scripts/bench_runtime.py [--rounds 3] [--seconds 4] [--only live|empty|cells] [--json FILE]

- Live beside simulated: one real worker process with a network that takes 1.052 + 0.3051 b ms by the clock, Poisson
  arrivals at 0.3, 0.6 and 0.9 of what each policy can serve; the simulator gets the same arrivals. Latency counts from
  the planned arrival; how late arrivals were is told apart. Turn-round is from the worker's end of a batch to its
  beginning of the next one, where a request was waiting at that end.
- Empty network: 64 callers, each asking again as soon as it is answered; inputs of 1 and of 150,528 floats.
- Cells: LSTM of 24 steps, 64 callers.

All is interleaved in each round, so that a slow moment of the machine meets all alike; medians of the rounds. It wants
two cores of its own: one for this process, one for the worker. Real-time priority is no help: Linux stops it for 50 ms
of every second that it fills.
"""

import argparse
import asyncio
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from headrace.batching import ModelGraph, NodeTimes, Policy, Profile, ProfilePoint, Served, make_policy, percentiles_ms
from headrace.batching.policies.cellular import CellularBatching
from headrace.host.live.machine.precise_timer import PreciseTimer
from headrace.host.live.results import Execution
from headrace.host.live.runtime import Runtime
from headrace.host.live.settings import RuntimeSettings
from headrace.host.live.tasks.cells import CellTasks
from headrace.host.live.tasks.whole import WholeTasks
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import WholeModel
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import processes
from headrace.host.workers.profiling.batches import machine
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import Fixed
from headrace.sim.workload.traffic import generate, poisson

ALPHA_S, TAU0_S = 0.3051e-3, 1.052e-3
MAX_BATCH = 32
POLICIES = ("serial", "graph", "preba", "smdp", "work-conserving")
LOADS = (0.3, 0.6, 0.9)
CALLERS = 64


def whole_tasks(source: str, max_batch: int, slots: int) -> WholeTasks:
    loaded = load_model(source)
    return WholeTasks([WholeModel("net", source, loaded.inputs, loaded.outputs, max_batch)], slots)


# ---- live beside simulated ----


def timed_profile() -> Profile:
    points = []
    for batch in (1, 2, 4, 8, 16, 32):
        latency_s = ALPHA_S * batch + TAU0_S
        points.append(ProfilePoint(batch, latency_s, batch / latency_s))
    return Profile("net", 1, tuple(points))


def policy_of(name: str, times: dict[str, NodeTimes], profile: Profile) -> Policy:
    profiles = {"net": profile}
    return make_policy(name, times, workers=1, window_s=0.002, max_batch=MAX_BATCH, profiles=profiles)


async def open_loop(
    runtime: Runtime,
    model: str,
    value: Callable[[int], tuple[Any, Mapping[str, Any]]],
    arrivals: np.ndarray,
    sla_s: float = math.inf,
) -> tuple[list[Served], list[float]]:
    """Requests at the times `arrivals` (s), from a moment after now, each of the value and with the options that
    `value` has for its number: those served, as they were, and how late each was sent (s). Latency counts from the
    planned arrival."""
    served: list[Served] = []
    late: list[float] = []
    done = asyncio.Event()
    begin = time.monotonic() + 0.05
    calls = set()

    async def call(number: int, planned: float) -> None:
        arrival = planned - runtime.origin
        given, options = value(number)
        inference = await runtime.infer(model, given, arrival=arrival, deadline=arrival + sla_s, **options)
        served.append(inference.served)
        if len(served) == len(arrivals):
            done.set()

    def ring() -> None:
        now = time.monotonic()
        while len(late) < len(arrivals) and begin + arrivals[len(late)] <= now:
            planned = begin + float(arrivals[len(late)])
            calls.add(asyncio.ensure_future(call(len(late), planned)))
            late.append(now - planned)
        if len(late) < len(arrivals):
            alarm.set(begin + float(arrivals[len(late)]))

    alarm = PreciseTimer(ring)
    alarm.set(begin + float(arrivals[0]))
    await asyncio.wait_for(done.wait(), float(arrivals[-1]) + 30)
    alarm.close()
    return served, late


async def live_run(
    policy: Policy, pool: WorkerPool, tasks: WholeTasks, arrivals: np.ndarray, keep_awake: bool
) -> dict[str, Any]:
    executions: list[Execution] = []
    settings = RuntimeSettings(keep_awake=keep_awake)
    async with Runtime(policy, pool, tasks, settings, on_execution=executions.append) as runtime:
        x = np.zeros(1, np.float32)
        served, late = await open_loop(runtime, "net", lambda _: (x, {}), arrivals)
    turns = [
        after.started - before.ended
        for before, after in pairwise(executions)
        if min(request.arrival for request in after.task.requests) < before.ended
    ]
    return {
        "latency_ms": percentiles_ms([one.finished - one.arrival for one in served]),
        "late_ms": percentiles_ms(late),
        "turn_us": {"median": float(np.median(turns)) * 1e6, "p99": float(np.percentile(turns, 99)) * 1e6}
        if len(turns) > 20
        else None,
        "batch_mean": statistics.mean(execution.task.batch_size for execution in executions),
    }


async def live_round(pool: WorkerPool, tasks: WholeTasks, seconds: float, seed: int) -> dict[str, dict[str, Any]]:
    profile = timed_profile()
    times = {"net": NodeTimes(ModelGraph.opaque("net"), profile)}
    found = {}
    for load in LOADS:
        for name in POLICIES:
            capacity = profile.points[0].throughput_rps if name == "serial" else profile.points[-1].throughput_rps
            rate = load * capacity
            arrivals = poisson(rate, max(200, round(rate * seconds)), seed)
            simulated = simulate(
                policy_of(name, times, profile), generate(arrivals, {"net": Fixed()}, 1.0, seed), times, 1
            )
            for keep_awake in (False, True):
                live = await live_run(policy_of(name, times, profile), pool, tasks, arrivals, keep_awake)
                case = f"{name} {load}{', cores awake' if keep_awake else ''}"
                found[case] = {"simulated_ms": simulated.result["latency_ms"], **live}
    return found


# ---- an empty network, and cells ----


async def closed_loop(infer: Callable[[int], Any], seconds: float) -> float:
    """Requests/s of CALLERS callers, after a quarter of the time to warm up."""
    end = time.monotonic() + seconds
    counted_from = end - 0.75 * seconds
    count = 0

    async def caller(number: int) -> None:
        nonlocal count
        while (now := time.monotonic()) < end:
            await infer(number)
            count += now >= counted_from

    await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    return count / (time.monotonic() - counted_from)


async def empty_round(pools: dict[str, tuple[WorkerPool, WholeTasks]], seconds: float) -> dict[str, dict[str, float]]:
    found = {}
    graph = ModelGraph.opaque("net")
    for name, (pool, tasks) in pools.items():
        (spec,) = tasks.models["net"].inputs
        x = np.zeros(spec.shape, np.float32)
        executions: list[Execution] = []
        times = {"net": NodeTimes(graph, timed_profile())}
        policy = make_policy("work-conserving", times, workers=1, window_s=0.0, max_batch=MAX_BATCH)
        async with Runtime(policy, pool, tasks, on_execution=executions.append) as runtime:
            cpu = time.process_time()
            rate = await closed_loop(lambda _, x=x, runtime=runtime: runtime.infer("net", x), seconds)
            finished = runtime.ledger.finished
            cpu = time.process_time() - cpu
        found[name] = {
            "requests_per_s": rate,
            "batch_mean": statistics.mean(execution.task.batch_size for execution in executions),
            "runtime_cpu_us": cpu / finished * 1e6,
            "gather_us": sum(e.gathered - e.started for e in executions) / finished * 1e6,
            "network_and_outputs_us": sum(e.ended - e.gathered for e in executions) / finished * 1e6,
            "turn_us": statistics.median(after.started - before.ended for before, after in pairwise(executions)) * 1e6,
        }
    return found


async def cells_round(pool: WorkerPool, tasks: CellTasks, names: list[str], seconds: float) -> dict[str, float]:
    found = {}
    for name in names:
        policy = CellularBatching(tasks.models, 1)
        async with Runtime(policy, pool, tasks) as runtime:
            value = list(range(2, 26))
            found[name] = await closed_loop(
                lambda _, name=name, value=value, runtime=runtime: runtime.infer(name, value), seconds
            )
    return found


async def bench(options: argparse.Namespace) -> dict[str, list[Any]]:
    rounds: dict[str, list[Any]] = {"live": [], "empty": [], "cells": []}
    timed = whole_tasks("bench_nets:timed", MAX_BATCH, 4096)
    empty = {
        "1 float": whole_tasks("bench_nets:empty_small", MAX_BATCH, 2 * CALLERS),
        "150,528 floats": whole_tasks("bench_nets:empty_image", MAX_BATCH, 2 * CALLERS),
    }
    networks = [Network("lstm 64", "lstm", 64, 100), Network("lstm 1024", "lstm", 1024, 100)]
    cells = CellTasks(networks, 1)
    device = worker_devices(1)
    for number in range(options.rounds):
        if options.only in (None, "live"):
            async with WorkerPool(processes(timed.program(), device)) as pool:
                rounds["live"].append(await live_round(pool, timed, options.seconds, number))
        if options.only in (None, "empty"):
            found = {}
            for name, tasks in empty.items():
                async with WorkerPool(processes(tasks.program(), device)) as pool:
                    found |= await empty_round({name: (pool, tasks)}, options.seconds)
            rounds["empty"].append(found)
        if options.only in (None, "cells"):
            async with WorkerPool(processes(cells.program(), device)) as pool:
                rounds["cells"].append(await cells_round(pool, cells, [n.name for n in networks], options.seconds))
        print(f"round {number + 1} of {options.rounds} done")
    return rounds


def median(values: list[float]) -> float:
    return statistics.median(values)


def print_tables(rounds: dict[str, list[Any]]) -> None:
    if rounds["live"]:
        print(
            "\n| policy, load | simulated mean, p95 ms | live mean, p95 ms | ratios | arrivals late median, p99 ms "
            "| turn-round median, p99 us |\n| --- | --- | --- | --- | --- | --- |"
        )
        for case in rounds["live"][0]:
            runs = [one[case] for one in rounds["live"]]
            cells = {
                key: median([run[where][what] for run in runs])
                for key, where, what in (
                    ("sim_mean", "simulated_ms", "mean"),
                    ("sim_p95", "simulated_ms", "p95"),
                    ("mean", "latency_ms", "mean"),
                    ("p95", "latency_ms", "p95"),
                    ("late", "late_ms", "p50"),
                    ("late99", "late_ms", "p99"),
                )
            }
            ratios = [
                median([run["latency_ms"][what] / run["simulated_ms"][what] for run in runs])
                for what in ("mean", "p95")
            ]
            turns = [run["turn_us"] for run in runs if run["turn_us"]]
            turn = (
                f"{median([t['median'] for t in turns]):.0f}, {median([t['p99'] for t in turns]):.0f}" if turns else "-"
            )
            print(
                f"| {case} | {cells['sim_mean']:.2f}, {cells['sim_p95']:.2f} "
                f"| {cells['mean']:.2f}, {cells['p95']:.2f} | {ratios[0]:.2f}, {ratios[1]:.2f} "
                f"| {cells['late']:.3f}, {cells['late99']:.3f} | {turn} |"
            )
    if rounds["empty"]:
        print(
            "\n| an empty network of | requests/s | mean batch | us a request: runtime's CPU | gather "
            "| network, outputs | turn-round us |\n| --- | --- | --- | --- | --- | --- | --- |"
        )
        for case in rounds["empty"][0]:
            value = {key: median([one[case][key] for one in rounds["empty"]]) for key in rounds["empty"][0][case]}
            print(
                f"| {case} | {value['requests_per_s']:,.0f} | {value['batch_mean']:.1f} "
                f"| {value['runtime_cpu_us']:.0f} | {value['gather_us']:.1f} "
                f"| {value['network_and_outputs_us']:.1f} | {value['turn_us']:.0f} |"
            )
    for case in rounds["cells"][0] if rounds["cells"] else ():
        print(f"cells, {case}, 24 steps: {median([one[case] for one in rounds['cells']]):,.0f} requests/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run")
    parser.add_argument("--only", choices=("live", "empty", "cells"))
    parser.add_argument("--json", type=Path, help="write all rounds here")
    options = parser.parse_args()
    folder = Path(__file__).resolve().parent
    os.chdir(folder)  # where the workers find bench_nets
    rounds = asyncio.run(bench(options))
    print_tables(rounds)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), **rounds}, indent=2) + "\n")


if __name__ == "__main__":
    main()
