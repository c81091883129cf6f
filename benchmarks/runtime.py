"""Throughput of the live runtime where the hardware costs next to nothing: an empty network, and cells.

    .venv/bin/python -m benchmarks.runtime [--rounds 3] [--seconds 4] [--only empty|cells] [--json [FILE]]

- empty: a network that does nothing, and 64 callers, each asking again as soon as it is answered; inputs of 1 and of
  150,528 floats.
- cells: LSTM of 24 steps, 64 callers.

The benchmark needs two cores of its own: one for this process, one for the worker. Real-time priority does not help,
because Linux stops such a process for 50 ms of every second that it fills.
"""

import argparse
import statistics
import time
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.harness import Report, arguments, closed_loop, main, measure_async, median, table
from benchmarks.networks import ALPHA_S, TAU0_S
from headrace.batching import (
    ModelGraph,
    NodeTimes,
    PolicyContext,
    Profile,
    ProfilePoint,
    policy_with,
)
from headrace.batching.policies.cellular import CellularBatching
from headrace.host.live.results import Execution
from headrace.host.live.runtime import Runtime
from headrace.host.live.tasks.cells import CellTasks
from headrace.host.live.tasks.whole import WholeTasks
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import WholeModel
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import processes

MAX_BATCH = 32
CALLERS = 64
SLOTS = {"empty_small": 2 * CALLERS, "empty_image": 2 * CALLERS}
EMPTY = {"1 float": "empty_small", "150,528 floats": "empty_image"}
CELLS = [Network("lstm 64", "lstm", 64, 100), Network("lstm 1024", "lstm", 1024, 100)]


def timed_profile(name: str) -> Profile:
    """Return the profile of `benchmarks.networks:timed` under a name."""
    latencies = {batch: ALPHA_S * batch + TAU0_S for batch in (1, 2, 4, 8, 16, 32)}
    return Profile(name, 1, tuple(ProfilePoint(batch, s, batch / s) for batch, s in latencies.items()))


PROFILE = timed_profile("net")
TIMES = {"net": NodeTimes(ModelGraph.opaque("net"), PROFILE)}


def whole_tasks(network: str) -> WholeTasks:
    source = f"benchmarks.networks:{network}"
    loaded = load_model(source)
    return WholeTasks([WholeModel("net", source, loaded.inputs, loaded.outputs, MAX_BATCH)], SLOTS[network])


def worker_pool(tasks: WholeTasks | CellTasks) -> WorkerPool:
    return WorkerPool(processes(tasks.program(), worker_devices(1)))


# ---- an empty network, and cells ----


async def empty_round(seconds: float, _: int) -> dict[str, dict[str, float]]:
    found = {}
    for name, network in EMPTY.items():
        tasks = whole_tasks(network)
        x = np.zeros(tasks.models["net"].inputs[0].shape, np.float32)
        executions: list[Execution] = []
        policy = policy_with("work-conserving", max_batch=MAX_BATCH).build(PolicyContext(TIMES, 1))
        async with worker_pool(tasks) as pool, Runtime(policy, pool, tasks, on_execution=executions.append) as runtime:
            cpu = time.process_time()
            rate = await closed_loop(
                lambda _, x=x, runtime=runtime: runtime.infer("net", x), CALLERS, seconds, 0.25 * seconds
            )
            finished = runtime.ledger.finished
            cpu = time.process_time() - cpu
        tasks.close()
        found[name] = {
            "requests_per_s": rate,
            "batch_mean": statistics.mean(execution.task.batch_size for execution in executions),
            "runtime_cpu_us": cpu / finished * 1e6,
            "gather_us": sum(e.gathered - e.started for e in executions) / finished * 1e6,
            "network_and_outputs_us": sum(e.ended - e.gathered for e in executions) / finished * 1e6,
            "turn_us": statistics.median(after.started - before.ended for before, after in pairwise(executions)) * 1e6,
        }
    return found


def empty_table(rounds: list[dict[str, Any]]) -> str:
    head = "an empty network of | requests/s | mean batch | us a request: runtime's CPU | gather | network, outputs"
    forms = (",.0f", ".1f", ".0f", ".1f", ".1f", ".0f")
    rows = []
    for case, one in rounds[0].items():
        cells = (f"{median(rounds, case, key):{form}}" for key, form in zip(one, forms, strict=True))
        rows.append(" | ".join([case, *cells]))
    return table(f"{head} | turn-round us", rows)


async def cells_round(seconds: float, _: int) -> dict[str, float]:
    found, tasks = {}, CellTasks(CELLS, 1)
    value = list(range(2, 26))
    async with worker_pool(tasks) as pool:
        for name in (network.name for network in CELLS):
            async with Runtime(CellularBatching(tasks.models, 1), pool, tasks) as runtime:
                found[name] = await closed_loop(
                    lambda _, name=name, runtime=runtime: runtime.infer(name, value), CALLERS, seconds, 0.25 * seconds
                )
    tasks.close()
    return found


def cells_table(rounds: list[dict[str, float]]) -> str:
    return table("cells, 24 steps | requests/s", (f"{case} | {median(rounds, case):,.0f}" for case in rounds[0]))


PARTS = {"empty": (empty_round, empty_table), "cells": (cells_round, cells_table)}


async def run(options: argparse.Namespace) -> Report:
    parts = [options.only] if options.only else PARTS
    cases = {name: lambda number, turn=PARTS[name][0]: turn(options.seconds, number) for name in parts}
    rounds = await measure_async(cases, options.rounds)
    return Report(rounds, "\n\n".join(PARTS[name][1](each) for name, each in rounds.items()))


if __name__ == "__main__":
    main(arguments(__doc__, only=tuple(PARTS), rounds=3, seconds=4.0), run)
