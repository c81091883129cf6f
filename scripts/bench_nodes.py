#!/usr/bin/env python3
"""What it costs to run a network node by node, and what LazyBatching gains by it, on real worker processes.

    .venv/bin/python scripts/bench_nodes.py [--rounds 3] [--seconds 4] [--json FILE] [--input-shape 3x112x112]
        [--only whole|joins|interrupts|live] [--networks resnet50,bert_base]

- whole: throughput of a network split into nodes beside the same run as one piece, each in a worker process, batches
  in turn; and what a batch changes in the results (`batch_difference`).
- joins: `SplitNetwork.join` of two sub-batches and `take` of the first, at each boundary, beside what a node takes.
- interrupts: from the word that interrupts to the boundary, the rest of the node that runs, which is nobody's loss; and
  from there to the worker's answer, which is.
- live: ResNet-50 on one worker at 0.3, 0.6 and 0.9 of its throughput at the knee, and a Transformer (2 + 2 layers of
  256, lengths of translations) at these shares of what padded batches sustain, under `lazy` and under `graph` with
  windows relative to the latency of a request alone. Poisson arrivals, tensors made beforehand; the simulator gets the
  same arrivals and the measured latencies of the nodes. The comparison is LazyBatching's Fig. 17, a prototype on a GPU:
  1.4 to 56 times the latency, 1.3 times fewer violations.

All is interleaved in each round; medians of the rounds, and of ratios their range, which is the machine's noise.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_runtime import open_loop

from headrace.batching import Policy, Profile, Request, ServedTimes, Task, make_policy
from headrace.batching.results import summarize
from headrace.host.live.runtime import Execution, Runtime
from headrace.host.live.tasks.nodes import SplitTasks
from headrace.host.memory.slots import SlotArena
from headrace.host.workers.devices import WorkerDevice
from headrace.host.workers.inspection.batch_differences import batch_difference
from headrace.host.workers.messages import write_nodes, write_whole
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import NodeModel, WholeModel, node_program, whole_program
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.networks.split.network import node_model, one_thread, split_at
from headrace.host.workers.networks.split.operators import Live
from headrace.host.workers.networks.step_models import step_nodes
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import ENVIRONMENT, WorkerProcess
from headrace.host.workers.profiling.batches import fill_with_noise, machine
from headrace.host.workers.profiling.nodes import measure_nodes, measure_steps
from headrace.sim.engine import Arrivals
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import TRANSLATION, Fixed, Lengths, dec_timesteps
from headrace.sim.workload.traffic import generate, poisson

NETWORKS = {
    "resnet50": "resnet50",
    "mobilenet_v3_large": "mobilenet_v3_large",
    "swin_t": "swin_t",
    "bert_base": "bench_nets:bert_base",
}
BATCHES = (1, 4, 8)
LONGEST_PAIR_S = 4.0  # of a batch run both ways; larger batches are left out
CPU = WorkerDevice("cpu 0")
TIMEOUT_S = 60.0

MAX_BATCH = 8
LOADS = (0.3, 0.6, 0.9)
WINDOWS = (0.0, 0.5, 1.0, 2.5, 5.0)  # of `graph`, times the latency of a request alone
SLA = 1.5  # times the latency of a batch of MAX_BATCH


def median(values: list[float]) -> float:
    return statistics.median(values)


# ---- a network split, and whole ----


def of_nodes(model: NodeModel, batch: int) -> bytes:
    """A task of all nodes; preemptible, as only such a task is asked at each boundary whether it is to end."""
    requests = tuple(Request(slot, model.name, 0.0) for slot in range(batch))
    return write_nodes(0, Task(0, model.name, requests, 0, len(model.nodes), True), range(batch))


def slots_of_noise(model: WholeModel) -> SlotArena:
    arena = SlotArena({model.name: (model.inputs, model.outputs)}, model.max_batch)
    fill_with_noise(arena.views[model.name].inputs)
    return arena


async def whole_part(model: NodeModel, rounds: int, seconds: float) -> dict[str, Any]:
    """By batch size, the seconds of a batch, whole and split, in each round; `difference` as `batch_difference`."""
    arena = slots_of_noise(model)
    same = WholeModel(model.name, model.source, model.inputs, model.outputs, model.max_batch)
    whole = WorkerProcess(CPU, whole_program((same,), arena))
    split = WorkerProcess(CPU, node_program((model,), arena))
    found: dict[str, Any] = {}
    async with WorkerPool((whole, split)):
        for _ in range(rounds):
            for batch in BATCHES:
                times: dict[str, list[float]] = {"whole": [], "split": []}
                both = (
                    ("whole", whole, write_whole(0, range(batch))),
                    ("split", split, of_nodes(model, batch)),
                )
                began = time.monotonic()
                while len(times["split"]) < 3 or time.monotonic() < began + seconds / len(BATCHES):
                    for name, worker, message in both if len(times["split"]) % 2 else reversed(both):
                        ran = await worker.run(message, TIMEOUT_S)
                        times[name].append(ran.ended - ran.began)
                    if sum(max(of) for of in times.values()) > LONGEST_PAIR_S:
                        break
                for name, of in times.items():
                    found.setdefault(str(batch), {}).setdefault(name, []).append(median(of))
    arena.close()
    with one_thread():
        difference = batch_difference(load_model(model.source), model.nodes, [batch for batch in BATCHES if batch > 1])
    return {"batches": found, "difference": difference}


# ---- joins, and interrupts ----


@torch.inference_mode()
def joins_part(model: NodeModel, rounds: int) -> dict[str, Any]:
    """By size of the two sub-batches and by boundary, medians of the rounds: seconds of `join`, of `take`, and of the
    node behind it with both together."""
    loaded = load_model(model.source)
    network = split_at(loaded, model.nodes, torch.device("cpu"))
    found = {}
    with one_thread():
        for size in (1, 4):
            seconds: dict[str, list[list[float]]] = {"join": [], "take": [], "node": []}
            for number in range(rounds + 1):  # the first run of a shape is slow
                taken: dict[str, list[float]] = {what: [] for what in seconds}
                live: Live = tuple(
                    torch.randn(2 * size, *spec.shape)
                    if spec.dtype == "float32"
                    else torch.zeros(2 * size, *spec.shape, dtype=getattr(torch, spec.dtype))
                    for spec in loaded.inputs
                )
                for node in range(len(model.nodes)):
                    at = time.perf_counter()
                    left = network.take(node, live, 0, size)
                    taken["take"].append(time.perf_counter() - at)
                    right = network.take(node, live, size, size)
                    left, right = (tuple(tensor.clone() for tensor in part) for part in (left, right))
                    at = time.perf_counter()
                    live = network.join(node, (left, right))
                    taken["join"].append(time.perf_counter() - at)
                    at = time.perf_counter()
                    live = network.run(node, 2 * size, live)
                    taken["node"].append(time.perf_counter() - at)
                if number:
                    for what, times in taken.items():
                        seconds[what].append(times)
            found[f"{size} + {size}"] = {
                what: np.median(np.array(times), 0).tolist() for what, times in seconds.items()
            }
    return found


async def interrupts_part(model: NodeModel, seconds: float) -> dict[str, list[float]]:
    """Seconds, of each interruption, from the word to the boundary, from there until the worker is done with the task,
    and from the boundary until its answer is here."""
    arena = slots_of_noise(model)
    worker = WorkerProcess(
        CPU, replace(node_program((model,), arena), main="headrace.host.workers.executors.node_timing")
    )
    found: dict[str, list[float]] = {"to_boundary": [], "to_done": [], "to_answer": []}
    chance = np.random.default_rng(0)
    message = of_nodes(model, 1)
    async with WorkerPool((worker,)):
        ran = await worker.run(message, TIMEOUT_S)
        whole_s = ran.ended - ran.gathered
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            running = asyncio.create_task(worker.run(message, TIMEOUT_S))
            await asyncio.sleep(float(chance.uniform(0.1, 0.9)) * whole_s)
            told = time.monotonic()
            worker.interrupt(0)
            ran = await running
            answered = time.monotonic()
            boundary, done = np.frombuffer(ran.answer)[-2:].tolist()
            if told < boundary:  # else it had passed the last one
                found["to_boundary"].append(boundary - told)
                found["to_done"].append(done - boundary)
                found["to_answer"].append(answered - boundary)
            worker.interrupt(-1)  # all tasks have the number 0: the next one is not meant
    arena.close()
    return found


# ---- lazy and graph windows, live and simulated ----


@dataclass(frozen=True, slots=True)
class Served:
    """A network with its measured latencies, the lengths of its requests and the value of one of `input_len`; the
    latency of a usual request alone, what batches of MAX_BATCH sustain, and until when a request is in time."""

    name: str
    tasks: SplitTasks
    profile: Profile
    lengths: Lengths
    value: Callable[[int], Any]
    dec_timesteps: Mapping[str, int]
    alone_s: float
    capacity_rps: float
    sla_s: float


async def split_network(source: str, input_shape: str) -> Served:
    model, graph = node_model(source, MAX_BATCH, input_shape=input_shape)
    profile = await measure_nodes(model, graph, workers=1)
    value = np.random.default_rng(0).standard_normal(model.inputs[0].shape, np.float32)
    tasks = SplitTasks([model], {model.name: graph}, 1024)
    sla_s = SLA * profile.times().whole(MAX_BATCH, 1.0, 1)
    capacity = profile.knee().throughput_rps
    return Served(source, tasks, profile, Fixed(), lambda _: value, {}, profile.points[0].latency_s, capacity, sla_s)


async def transformer() -> Served:
    """A padded batch of MAX_BATCH takes as long as the longest of them: the length that 90 % do not exceed, here."""
    network = Network("transformer", "transformer", hidden=256, vocabulary=8000, heads=4)
    model, graph = step_nodes(network, MAX_BATCH)
    profile = await measure_steps(model, graph, workers=1)
    times = profile.times()
    inputs, outputs = TRANSLATION.sample(10_000, np.random.default_rng(0))
    alone_s = times.whole(1, float(inputs.mean()), round(outputs.mean()))
    padded_s = times.whole(MAX_BATCH, float(np.quantile(inputs, 0.9)), round(np.quantile(outputs, 0.9)))
    tasks = SplitTasks([], {model.name: graph}, 4096, [model])
    return Served(
        network.name,
        tasks,
        profile,
        TRANSLATION,
        lambda length: [2] * length,
        {network.name: dec_timesteps(TRANSLATION)},
        alone_s,
        MAX_BATCH / padded_s,
        SLA * padded_s,
    )


def policies(served: Served) -> Iterator[tuple[str, Callable[[], Policy]]]:
    times = {served.name: served.profile.times()}
    alone_s = served.alone_s

    def maker(name: str, window_s: float = 0.0) -> Callable[[], Policy]:
        return lambda: make_policy(
            name, times, workers=1, window_s=window_s, max_batch=MAX_BATCH, dec_timesteps=served.dec_timesteps
        )

    yield "lazy", maker("lazy")
    for window in WINDOWS:
        yield f"graph {window:g}", maker("graph", window * alone_s)


async def live_run(policy: Policy, pool: WorkerPool, served: Served, arrivals: Arrivals) -> dict[str, Any]:
    times = served.profile.times()
    step_model = bool(served.dec_timesteps)

    def value(number: int) -> tuple[Any, dict[str, Any]]:
        options = {"output_len": arrivals.output_len[number]} if step_model else {}
        return served.value(int(arrivals.input_len[number])), options

    measured_s = profiled_s = 0.0

    def on_execution(execution: Execution) -> None:
        nonlocal measured_s, profiled_s
        task = execution.task
        measured_s += execution.execute_s
        profiled_s += (
            times.duration(task.batch_size, times.task_length(task), task.start, task.stop)
            if task.preemptible
            else times.whole_task(task)
        )

    async with Runtime(policy, pool, served.tasks, on_execution=on_execution) as runtime:
        done, late = await open_loop(runtime, served.name, value, np.array(arrivals.arrival), served.sla_s)
        counts = runtime.statistics()
    result = summarize(
        ServedTimes.of(done),
        runtime.ledger,
        batch_size_mean=counts.request_node_runs / counts.node_runs,
        busy_s=counts.busy_s,
        workers=1,
        wall_s=0.0,
        seed=None,
    )
    return {**result, "late_ms": 1e3 * median(late), "tasks": counts.tasks, "machine": measured_s / profiled_s}


async def live_part(served: Served, rounds: int, seconds: float) -> dict[str, list[dict[str, Any]]]:
    """By load and policy, the live and the simulated results of each round. `machine` is the time that the nodes took,
    as a multiple of what the profile says of the same nodes and batches: how much slower the machine was then."""
    times = {served.name: served.profile.times()}
    found: dict[str, list[dict[str, Any]]] = {}
    async with WorkerPool([WorkerProcess(CPU, served.tasks.program())]) as pool:
        for number in range(rounds):
            for load in LOADS:
                rate = load * served.capacity_rps
                at = poisson(rate, max(50, round(rate * seconds)), number)
                arrivals = generate(at, {served.name: served.lengths}, served.sla_s, number)
                for name, policy in policies(served):
                    simulated = simulate(policy(), arrivals, times, 1)
                    live = await live_run(policy(), pool, served, arrivals)
                    found.setdefault(f"{load} {name}", []).append({"simulated": simulated.result, "live": live})
    served.tasks.close()
    return found


# ---- all of it, and its tables ----


async def bench(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in NETWORKS if options.only != "live" else ():
        if name not in options.networks:
            continue
        model, _ = node_model(NETWORKS[name], max(BATCHES))
        if options.only in (None, "whole"):
            found.setdefault("whole", {})[name] = await whole_part(model, options.rounds, options.seconds)
        if options.only in (None, "joins"):
            found.setdefault("joins", {})[name] = joins_part(model, options.rounds)
        if options.only in (None, "interrupts"):
            found.setdefault("interrupts", {})[name] = await interrupts_part(model, options.seconds)
        print(f"{name} done", file=sys.stderr)
    if options.only in (None, "live"):
        wanted = {"resnet50": split_network("resnet50", options.input_shape), "transformer": transformer()}
        for name, made in wanted.items():
            if name not in options.networks:
                made.close()
                continue
            served = await made
            found.setdefault("profiles", {})[name] = json.loads(served.profile.to_json())
            found.setdefault("live", {})[name] = await live_part(served, options.rounds, options.seconds)
            print(f"{name} live done", file=sys.stderr)
    return found


def print_whole(found: dict[str, Any]) -> None:
    print(
        "\n| network, batch | whole ms | split ms | throughput split / whole (range) | largest difference in a batch "
        "| from node |\n| --- | --- | --- | --- | --- | --- |"
    )
    for name, of in found.items():
        for batch, times in of["batches"].items():
            ratios = [whole / split for whole, split in zip(times["whole"], times["split"], strict=True)]
            largest, first = of["difference"]["largest"], of["difference"]["first_node"]
            print(
                f"| {name} {batch} | {1e3 * median(times['whole']):.1f} | {1e3 * median(times['split']):.1f} "
                f"| {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) "
                f"| {'exact' if first is None else f'{largest:.1e}'} | {first or '-'} |"
            )


def print_joins(found: dict[str, Any]) -> None:
    print(
        "\n| network, sub-batches | join us, median and largest | take us, median and largest | node us, median "
        "| join / node, medians |\n| --- | --- | --- | --- | --- |"
    )
    for name, of in found.items():
        for sizes, seconds in of.items():
            join, take, node = (np.array(seconds[what]) * 1e6 for what in ("join", "take", "node"))
            print(
                f"| {name} {sizes} | {np.median(join):.0f}, {join.max():.0f} "
                f"| {np.median(take):.1f}, {take.max():.1f} | {np.median(node):.0f} "
                f"| {np.median(join) / np.median(node):.3f} |"
            )


def print_interrupts(found: dict[str, Any]) -> None:
    print(
        "\n| network | word to boundary us, median and p95 | boundary to worker's end | boundary to answer | n |"
        "\n| --- | --- | --- | --- | --- |"
    )
    for name, of in found.items():
        cells = [f"{np.median(times) * 1e6:.0f}, {np.percentile(times, 95) * 1e6:.0f}" for times in of.values()]
        print(f"| {name} | {' | '.join(cells)} | {len(of['to_answer'])} |")


def _at(result: Any, *keys: str) -> float:
    for key in keys:
        result = result[key]
    return float(result)


def print_live(name: str, found: dict[str, list[dict[str, Any]]], profile: dict[str, Any]) -> None:
    points = ", ".join(f"{point['batch']}: {1e3 * point['latency_s']:.1f}" for point in profile["points"])
    print(f"\n{name}, ms by batch: {points}; at the knee {profile['knee']['throughput_rps']:.1f} requests/s")
    print(
        "\n| load, policy (window x latency alone) | live mean, p95 ms | requests/s | late % | mean batch "
        "| simulated mean, p95 ms | late % | live / simulated mean (range), p95 "
        "| nodes live / profile |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for case, runs in found.items():

        def of(side: str, *keys: str, runs: list[dict[str, Any]] = runs) -> float:
            return median([_at(run[side], *keys) for run in runs])

        mean, p95 = (
            [run["live"]["latency_ms"][key] / run["simulated"]["latency_ms"][key] for run in runs]
            for key in ("mean", "p95")
        )
        print(
            f"| {case} | {of('live', 'latency_ms', 'mean'):.0f}, {of('live', 'latency_ms', 'p95'):.0f} "
            f"| {of('live', 'throughput_rps'):.1f} | {100 * of('live', 'sla_violation_rate'):.1f} "
            f"| {of('live', 'batch_size_mean'):.2f} "
            f"| {of('simulated', 'latency_ms', 'mean'):.0f}, {of('simulated', 'latency_ms', 'p95'):.0f} "
            f"| {100 * of('simulated', 'sla_violation_rate'):.1f} "
            f"| {median(mean):.2f} ({min(mean):.2f} to {max(mean):.2f}), {median(p95):.2f} "
            f"| {of('live', 'machine'):.2f} |"
        )
    for load in LOADS:
        for what, keys in (("mean latency, ms", ("latency_ms", "mean")), ("late, of all", ("sla_violation_rate",))):
            of_policy = {}
            for case, runs in found.items():
                if case.startswith(f"{load} "):
                    of_policy[case.split()[-1]] = median([_at(run["live"], *keys) for run in runs])
            lazy = of_policy.pop("lazy")
            best, worst = min(of_policy, key=of_policy.__getitem__), max(of_policy, key=of_policy.__getitem__)
            print(
                f"load {load}, {what}: lazy {lazy:.3g}; best window {of_policy[best]:.3g} ({best}), "
                f"worst {of_policy[worst]:.3g} ({worst})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement in a round")
    parser.add_argument("--only", choices=("whole", "joins", "interrupts", "live"))
    parser.add_argument("--networks", type=lambda text: text.split(","), default=[*NETWORKS, "transformer"])
    parser.add_argument("--input-shape", default="3x112x112", help="of ResNet-50 in the part live")
    parser.add_argument("--json", type=lambda text: Path(text).resolve(), help="write all that was measured here")
    options = parser.parse_args()
    if unknown := set(options.networks) - {*NETWORKS, "transformer"}:
        parser.error(f"--networks: there is no {min(unknown)}; choose from {', '.join(NETWORKS)}, transformer")
    script = Path(__file__).resolve()
    os.chdir(script.parent)  # where the workers find bench_nets
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        # Joins are measured in this process, whose memory must be kept as that of workers is.
        os.execve(sys.executable, [sys.executable, str(script), *sys.argv[1:]], {**os.environ, **ENVIRONMENT})
    found = asyncio.run(bench(options))
    for name, show in (("whole", print_whole), ("joins", print_joins), ("interrupts", print_interrupts)):
        if name in found:
            show(found[name])
    if "live" in found:
        for name, runs in found["live"].items():
            print_live(name, runs, found["profiles"][name])
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
