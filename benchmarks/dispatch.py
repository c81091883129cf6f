"""Measure the dispatch of batches by the live runtime beside the simulator, for every policy at three loads.

    .venv/bin/python -m benchmarks.dispatch [--rounds 3] [--seconds 2] [--policies serial,lazy] [--keep-awake]
        [--json [FILE]]

A real worker process serves a network that takes 1.052 + 0.3051 b ms by the clock. Policies of whole graphs run it as
one piece. Policies of nodes and of cells run it in 4 steps. Poisson arrivals come at 0.3, 0.6 and 0.9 of what batches
of 32 sustain by the clock, or single requests for `serial`. The simulator gets the same arrivals twice: with the
latencies that `headrace profile` measures at the start, as users simulate, and with those of the clock, which contain
nothing but the network. Requests have a target of 100 ms, for which `deferred` waits.

- dispatch: the time of a batch outside its worker: from the decision until the worker begins, and from its end until
  the runtime reads its answer. The simulator has none. The share is that of dispatch in the latency of all requests.
- turn-round: from the worker's end of a batch until it begins the next one, where a request waited at that end.
- CPU: processor time of the runtime and of the client, which share a process, for a batch and for a request. It hardly
  depends on other load of the machine.
- machine: the time of the batches in the worker, divided by what the profile says of them.

Latency counts from the planned arrival. The benchmark needs two cores of its own: one for the runtime, one for the
worker.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import Report, arguments, main, measure_async, median, progress, spread, table
from benchmarks.networks import ALPHA_S, TAU0_S
from benchmarks.timed_steps import STEPS, step_s
from headrace.batching import (
    ModelGraph,
    NodeTimes,
    Policy,
    PolicyContext,
    Profile,
    Task,
    UsageError,
    percentiles_ms,
    policy_with,
)
from headrace.batching.graphs.cell_graph import CellModel, lstm
from headrace.batching.policies import BUILT_IN
from headrace.batching.registry import find_policy
from headrace.host.live.machine.process_tuning import awake_cores
from headrace.host.live.results import Execution
from headrace.host.live.tasks.cells import CellTasks
from headrace.host.live.tasks.interface import Tasks
from headrace.host.live.tasks.nodes import SplitTasks
from headrace.host.live.tasks.whole import WholeTasks
from headrace.host.validation.live import LOADS, run_live, turn_us
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.inspection.parent import step_nodes
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import WholeModel
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import processes
from headrace.host.workers.profiling.batches import measure_curve
from headrace.host.workers.profiling.nodes import measure_steps
from headrace.sim.engine import Arrivals
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import Fixed
from headrace.sim.workload.traffic import generate, poisson

MAX_BATCH = 32
SLO_S = 0.1
LEAST_REQUESTS = 320  # of a run
SLOTS = 4096
TIMED = "benchmarks.networks:timed"
STEP_NETWORK = Network(
    "net", "benchmarks.timed_steps:timed_steps", max_batch=(MAX_BATCH,), longest_input=STEPS, longest_output=STEPS
)
SIMULATED, MEAN = ("profile", "clock"), ("latency_ms", "mean")


class WholeClock:
    """The latency of the whole network by the clock."""

    def latency(self, node: int, batch: int, length: float) -> float:
        return ALPHA_S * batch + TAU0_S


class StepClock:
    """The latency of a step by the clock."""

    def latency(self, node: int, batch: int, length: float) -> float:
        return step_s(batch)


@dataclass(frozen=True, slots=True)
class Kind:
    """The network for one kind of task: its latencies, the value of a request, and the cells, if it has any.

    `times` are measured, and `clock` are those of the network alone. `make` returns new tasks, with the cells that live
    requests unfold into."""

    profile: Profile
    times: NodeTimes
    clock: NodeTimes
    make: Callable[[], tuple[Tasks, Mapping[str, CellModel] | None]]
    value: Any
    steps: int
    simulated_cells: Mapping[str, CellModel] | None = None

    def policy(self, name: str, cells: Mapping[str, CellModel] | None) -> Policy:
        """Return a new policy by name, with a window of 2 ms if it has one. It knows the profile."""
        context = PolicyContext({"net": self.times}, 1, {"net": self.profile}, cells=cells, slo_s=SLO_S)
        return policy_with(name, window_ms=2.0, max_batch=MAX_BATCH).build(context)

    def simulated(self, name: str, arrivals: Arrivals, times: NodeTimes) -> dict[str, Any]:
        """Return the result of the simulator."""
        cells = self.simulated_cells
        return dict(simulate(self.policy(name, cells), arrivals, {"net": times}, 1, cell_models=cells).result)

    def batch_s(self, task: Task) -> float:
        """Return the time of a task by the profile."""
        if task.cells or task.preemptible:
            return self.times.duration(task.batch_size, float(self.steps), task.start, task.stop)
        return self.times.whole(task.batch_size, float(self.steps), 1)


async def kinds(needed: set[str]) -> dict[str, Kind]:
    """Measure the network for each kind of task that is needed."""
    found: dict[str, Kind] = {}
    if "graph" in needed:
        progress("profile of the whole network")
        curve = await measure_curve(TIMED, workers=1, max_batch=MAX_BATCH)
        loaded = load_model(TIMED)
        model = WholeModel("net", TIMED, loaded.inputs, loaded.outputs, MAX_BATCH)
        times, clock = (NodeTimes(ModelGraph.opaque("net"), known) for known in (curve, WholeClock()))
        x = np.zeros(1, np.float32)
        found["graph"] = Kind(curve, times, clock, lambda: (WholeTasks([model], SLOTS), None), x, 1)
    if needed - {"graph"}:
        progress("profile of the network in steps")
        nodes, graph = step_nodes(STEP_NETWORK, MAX_BATCH)
        profile = await measure_steps(nodes, graph, workers=1)
        value = [0] * STEPS
        both_times = profile.times(), NodeTimes(graph, StepClock())
        found["nodes"] = Kind(
            profile, *both_times, lambda: (SplitTasks([], {"net": graph}, SLOTS, [nodes]), None), value, STEPS
        )

        def of_cells() -> tuple[Tasks, Mapping[str, CellModel] | None]:
            tasks = CellTasks([STEP_NETWORK], 1)
            return tasks, {model.name: model for model in tasks.models}

        found["cells"] = Kind(profile, *both_times, of_cells, value, STEPS, {"net": lstm("net", MAX_BATCH)})
    return found


def capacity_rps(kind: Kind, policy: str) -> float:
    """Return what the policy can serve by the clock: batches of the largest size, or single requests."""
    batch = 1 if policy == "serial" else MAX_BATCH
    return batch / kind.clock.whole(batch, float(kind.steps), 1)


async def both(kind: Kind, policy: str, load: float, seconds: float, seed: int, keep_awake: bool) -> dict[str, Any]:
    """Run one policy at one load, simulated and live, on a worker of its own."""
    rate = load * capacity_rps(kind, policy)
    count = max(LEAST_REQUESTS, round(rate * seconds / MAX_BATCH) * MAX_BATCH)  # `static` waits for whole batches
    arrivals = generate(poisson(rate, count, seed), {"net": Fixed(kind.steps)}, SLO_S, seed)
    simulated = {
        name: kind.simulated(policy, arrivals, of) for name, of in zip(SIMULATED, (kind.times, kind.clock), strict=True)
    }
    tasks, cells = kind.make()
    try:
        async with WorkerPool(processes(tasks.program(), worker_devices(1))) as pool:  # type: ignore[attr-defined]
            run = await run_live(
                kind.policy(policy, cells),
                pool,
                tasks,
                lambda _: (kind.value, {}),
                arrivals,
                SLO_S,
                seed=seed,
                around=awake_cores() if keep_awake else None,
            )
    finally:
        tasks.close()
    return {
        "rate_rps": rate,
        "simulated": simulated,
        "live": run.result,
        "late_ms": percentiles_ms(run.late_s),
        "cpu_us_batch": run.cpu_s * 1e6 / len(run.executions),
        "cpu_us_request": run.cpu_s * 1e6 / count,
        "machine": sum(each.ended - each.started for each in run.executions)
        / sum(kind.batch_s(each.task) for each in run.executions),
        **dispatch_of(run.executions, sum(each.finished - each.arrival for each in run.served)),
    }


def dispatch_of(executions: Sequence[Execution], latency_s: float) -> dict[str, Any]:
    """Return the times outside the worker for a batch, their share of `latency_s` of all requests, and the turn-round.

    A task that is sent ahead waits for the one before it, which is no dispatch: it counts from that one's end."""
    begins, ends, share_s = [], [], 0.0
    before_ended = 0.0
    for each in executions:
        begins.append(each.started - max(each.handed, before_ended))
        ends.append(each.finished - each.ended)
        share_s += (begins[-1] + ends[-1]) * each.task.batch_size
        before_ended = each.ended
    us = {"to_worker": begins, "to_runtime": ends, "both": [sum(pair) for pair in zip(begins, ends, strict=True)]}
    return {
        "dispatch_us": {
            name: {"median": 1e6 * statistics.median(of), "mean": 1e6 * statistics.fmean(of)} for name, of in us.items()
        },
        "share": share_s / latency_s,
        "batches": len(executions),
        "turn_us": turn_us(executions),
    }


def ratios_of(runs: Sequence[Mapping[str, Any]], times: str, key: str = "mean") -> list[float]:
    """Return live over simulated latency in each round, simulated with the latencies `times`."""
    return [run["live"]["latency_ms"][key] / run["simulated"][times]["latency_ms"][key] for run in runs]


def rows_of(found: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    for case, runs in found.items():
        turns = [run["turn_us"] for run in runs if run["turn_us"]]
        batches = median(runs, "simulated", "profile", "batch_size_mean"), median(runs, "live", "batch_size_mean")
        yield " | ".join(
            (
                case,
                *(f"{median(runs, 'simulated', name, *MEAN):.2f}" for name in SIMULATED),
                f"{median(runs, 'live', *MEAN):.2f}",
                *(spread(ratios_of(runs, name), ".2f") for name in SIMULATED),
                f"{statistics.median(ratios_of(runs, 'profile', 'p95')):.2f}",
                *(f"{batch:.2f}" for batch in batches),
                ", ".join(f"{median(runs, 'dispatch_us', 'both', key):.0f}" for key in ("median", "mean")),
                f"{100 * median(runs, 'share'):.1f}",
                f"{median(turns, 'median'):.0f}, {median(turns, 'p99'):.0f}" if turns else "-",
                f"{median(runs, 'cpu_us_batch'):.0f}, {median(runs, 'cpu_us_request'):.0f}",
                f"{median(runs, 'machine'):.2f}",
            )
        )


HEAD = (
    "policy, load | simulated mean ms, profile | clock | live mean ms | live / simulated, profile | clock"
    " | p95, profile | simulated batch | live batch | dispatch us, median, mean | share % | turn-round us, median, p99"
    " | CPU us a batch, a request | machine"
)


async def run(options: argparse.Namespace) -> Report:
    if unknown := set(options.policies) - {*BUILT_IN}:
        raise UsageError(f"--policies: there is no {min(unknown)}; choose from {', '.join(BUILT_IN)}")
    by_policy = {name: find_policy(name).tasks for name in options.policies}
    measured = await kinds(set(by_policy.values()))
    cases = {
        f"{policy} {load}": lambda seed, policy=policy, load=load: both(
            measured[by_policy[policy]], policy, load, options.seconds, seed, options.keep_awake
        )
        for load in LOADS
        for policy in options.policies
    }
    began = os.getloadavg()[0]
    found = await measure_async(cases, options.rounds)
    points = {
        kind: {point.batch: point.latency_s for point in measured[kind].profile.points}
        for kind in measured
        if kind != "cells"
    }
    figures = {"load_average": [began, os.getloadavg()[0]], "latency_s": points, "cases": found}
    return Report(figures, table(HEAD, rows_of(found)))


if __name__ == "__main__":
    parser = arguments(__doc__, rounds=3, seconds=2.0)
    parser.add_argument(
        "--policies", type=lambda text: text.split(","), default=[*BUILT_IN], help=f"of {', '.join(BUILT_IN)}"
    )
    parser.add_argument("--keep-awake", action="store_true", help="cores do not sleep")
    main(parser, run)
