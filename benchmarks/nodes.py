"""Cost of running a network node by node, and what LazyBatching gains by it, on real worker processes.

    .venv/bin/python -m benchmarks.nodes [--rounds 3] [--seconds 4] [--json [FILE]] [--input-shape 3x112x112]
        [--only whole|joins|interrupts|live] [--networks resnet50,bert_base]

- whole: throughput of a network split into nodes, and of the same network in one piece, each in a worker process,
  batches in turn; and how much a batch changes the results (`batch_difference`).
- joins: `SplitNetwork.join` of two sub-batches and `take` of the first, at each boundary, and the time of a node.
- interrupts: the time from the interrupt to the boundary, which is the rest of the node that runs and is not lost; and
  the time from there to the worker's answer, which is lost.
- live: ResNet-50 on one worker at 0.3, 0.6 and 0.9 of its throughput at the knee, and a Transformer (2 + 2 layers of
  256, lengths of translations) at these shares of what padded batches sustain. Both run under `lazy` and under `graph`
  with windows relative to the latency of a request alone. Arrivals are Poisson, and tensors are made beforehand. The
  simulator gets the same arrivals and the measured latencies of the nodes. "machine" says how much slower the machine
  was during the run than during the profile: the time of the nodes, divided by their time in the profile.
  LazyBatching's Fig. 17 compares the same with a prototype on a GPU: 1.4 to 56 times the latency, and 1.3 times fewer
  violations.

Tables have medians of the rounds, and of ratios their range, which is the machine's noise.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Report, arguments, main, measure_async, median, progress, spread, table
from headrace.batching import Request, Task, UsageError
from headrace.host.memory.slots import SlotArena
from headrace.host.validation.live import (
    LOADS,
    WINDOWS,
    ServedNetwork,
    live_round,
    served_split,
    served_transformer,
    worker_of,
)
from headrace.host.workers.devices import WorkerDevice
from headrace.host.workers.inspection.batch_differences import batch_difference
from headrace.host.workers.messages import write_nodes, write_whole
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import NodeModel, WholeModel, node_program, whole_program
from headrace.host.workers.networks.split.network import node_model, one_thread, split_at
from headrace.host.workers.networks.split.operators import Live
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import ENVIRONMENT, WorkerProcess
from headrace.host.workers.profiling.batches import fill_with_noise

NETWORKS = {name: name for name in ("resnet50", "mobilenet_v3_large", "swin_t")} | {
    "bert_base": "benchmarks.networks:bert_base"
}
NAMES = (*NETWORKS, "transformer")
BATCHES = (1, 4, 8)
LONGEST_PAIR_S = 4.0  # of a batch run both ways; larger batches are left out
CPU = WorkerDevice("cpu 0")
TIMEOUT_S = 60.0
KEYS = ("mean", "p95")  # of the latencies in tables


# ---- a network split, and whole ----


def of_nodes(model: NodeModel, batch: int) -> bytes:
    """Return the message of a task of all nodes.

    It is preemptible, because only such a task is asked at each boundary whether it is to end."""
    requests = tuple(Request(slot, model.name, 0.0) for slot in range(batch))
    return write_nodes(0, Task(0, model.name, requests, 0, len(model.nodes), True), range(batch))


def slots_of_noise(model: WholeModel) -> SlotArena:
    arena = SlotArena({model.name: (model.inputs, model.outputs)}, model.max_batch)
    fill_with_noise(arena.views[model.name].inputs)
    return arena


async def whole_part(model: NodeModel, rounds: int, seconds: float) -> dict[str, Any]:
    """Return by batch size the seconds of a batch, whole and split, in each round, and the `batch_difference`."""
    arena = slots_of_noise(model)
    same = WholeModel(model.name, model.source, model.inputs, model.outputs, model.max_batch)
    whole = WorkerProcess(CPU, whole_program((same,), arena))
    split = WorkerProcess(CPU, node_program((model,), (), arena))

    async def one(batch: int) -> dict[str, float]:
        times: dict[str, list[float]] = {"whole": [], "split": []}
        both = (("whole", whole, write_whole(0, range(batch))), ("split", split, of_nodes(model, batch)))
        began = time.monotonic()
        while len(times["split"]) < 3 or time.monotonic() < began + seconds / len(BATCHES):
            for name, worker, message in both if len(times["split"]) % 2 else reversed(both):
                ran = await worker.run(message, TIMEOUT_S)
                times[name].append(ran.ended - ran.began)
            if sum(max(of) for of in times.values()) > LONGEST_PAIR_S:
                break
        return {name: median(of) for name, of in times.items()}

    async with WorkerPool((whole, split)):
        found = await measure_async({str(batch): lambda _, batch=batch: one(batch) for batch in BATCHES}, rounds)
    arena.close()
    with one_thread():
        difference = batch_difference(load_model(model.source), model.nodes, [batch for batch in BATCHES if batch > 1])
    return {"batches": found, "difference": difference}


def whole_table(found: dict[str, Any]) -> str:
    rows = []
    for name, of in found.items():
        for batch, rounds in of["batches"].items():
            largest, first = of["difference"]["largest"], of["difference"]["first_node"]
            ratios = spread([each["whole"] / each["split"] for each in rounds], ".3f")
            times = " | ".join(f"{1e3 * median(rounds, which):.1f}" for which in ("whole", "split"))
            rows.append(
                f"{name} {batch} | {times} | {ratios} | {f'{largest:.1e}' if first else 'exact'} | {first or '-'}"
            )
    head = "network, batch | whole ms | split ms | throughput split / whole (range) | largest difference in a batch"
    head += " | from node"
    return table(head, rows)


# ---- joins, and interrupts ----


@torch.inference_mode()
def joins_part(model: NodeModel, rounds: int) -> dict[str, Any]:
    """Return seconds of `join`, of `take`, and of the node after it with both together.

    They are medians of the rounds, by size of the two sub-batches and by boundary."""
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


def joins_table(found: dict[str, Any]) -> str:
    rows = []
    for name, of in found.items():
        for sizes, seconds in of.items():
            join, take, node = (np.array(seconds[what]) * 1e6 for what in ("join", "take", "node"))
            rows.append(
                f"{name} {sizes} | {np.median(join):.0f}, {join.max():.0f} | {np.median(take):.1f}, {take.max():.1f}"
                f" | {np.median(node):.0f} | {np.median(join) / np.median(node):.3f}"
            )
    head = "network, sub-batches | join us, median and largest | take us, median and largest | node us, median"
    head += " | join / node, medians"
    return table(head, rows)


async def interrupts_part(model: NodeModel, seconds: float) -> dict[str, list[float]]:
    """Return three times of each interrupt in seconds: from the interrupt to the boundary, from there until the worker
    is done with the task, and from the boundary until its answer is here."""
    arena = slots_of_noise(model)
    worker = WorkerProcess(
        CPU, replace(node_program((model,), (), arena), main="headrace.host.workers.executors.node_timing")
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
            interrupted = time.monotonic()
            worker.interrupt(0)
            ran = await running
            answered = time.monotonic()
            boundary, done = np.frombuffer(ran.answer)[-2:].tolist()
            if interrupted < boundary:  # else it had passed the last one
                found["to_boundary"].append(boundary - interrupted)
                found["to_done"].append(done - boundary)
                found["to_answer"].append(answered - boundary)
            worker.interrupt(-1)  # all tasks have the number 0: the next one is not meant
    arena.close()
    return found


def interrupts_table(found: dict[str, Any]) -> str:
    rows = []
    for name, of in found.items():
        us = (f"{np.median(times) * 1e6:.0f}, {np.percentile(times, 95) * 1e6:.0f}" for times in of.values())
        rows.append(f"{name} | {' | '.join(us)} | {len(of['to_answer'])}")
    head = "network | interrupt to boundary us, median and p95 | boundary to worker's end | boundary to answer | n"
    return table(head, rows)


# ---- lazy and graph windows, live and simulated ----


async def live_part(served: ServedNetwork, rounds: int, seconds: float) -> dict[str, list[dict[str, Any]]]:
    """Return by load and policy the live and the simulated results of each round."""
    policies = {"lazy": ("lazy", 0.0)} | {f"graph {window:g}": ("graph", window) for window in WINDOWS}
    async with worker_of(served) as pool:
        cases = {
            f"{load} {case}": lambda seed, setup=(*policy, load, seconds): live_round(served, pool, *setup, seed)
            for load in LOADS
            for case, policy in policies.items()
        }
        return await measure_async(cases, rounds)


def live_text(name: str, found: dict[str, list[dict[str, Any]]], profile: dict[str, Any]) -> str:
    points = ", ".join(f"{point['batch']}: {1e3 * point['latency_s']:.1f}" for point in profile["points"])
    lines = [f"{name}, ms by batch: {points}; at the knee {profile['knee']['throughput_rps']:.1f} requests/s\n"]
    rows = []
    for case, runs in found.items():

        def latency(side: str, runs: list[dict[str, Any]] = runs) -> str:
            return ", ".join(f"{median(runs, side, 'latency_ms', key):.0f}" for key in KEYS)

        ratios = [
            [run["live"]["latency_ms"][key] / run["simulated"]["latency_ms"][key] for run in runs] for key in KEYS
        ]
        late = {side: f"{100 * median(runs, side, 'sla_violation_rate'):.1f}" for side in ("live", "simulated")}
        rows.append(
            f"{case} | {latency('live')} | {median(runs, 'live', 'throughput_rps'):.1f} | {late['live']}"
            f" | {median(runs, 'live', 'batch_size_mean'):.2f} | {latency('simulated')} | {late['simulated']}"
            f" | {spread(ratios[0], '.2f')}, {median(ratios[1]):.2f} | {median(runs, 'live', 'machine'):.2f}"
        )
    head = "load, policy (window x latency alone) | live mean, p95 ms | requests/s | late % | mean batch"
    head += " | simulated mean, p95 ms | late % | live / simulated mean (range), p95 | machine"
    lines.append(table(head, rows) + "\n")
    for load in LOADS:
        for what, keys in (("mean latency, ms", ("latency_ms", "mean")), ("late, of all", ("sla_violation_rate",))):
            of = {
                case.split()[-1]: median(runs, "live", *keys)
                for case, runs in found.items()
                if case.startswith(f"{load} ")
            }
            lazy = of.pop("lazy")
            (best, low), (worst, high) = (least(of.items(), key=lambda item: item[1]) for least in (min, max))
            lines.append(
                f"load {load}, {what}: lazy {lazy:.3g}; best window {low:.3g} ({best}), worst {high:.3g} ({worst})"
            )
    return "\n".join(lines)


# ---- all of it ----


async def run(options: argparse.Namespace) -> Report:
    if unknown := set(options.networks) - {*NAMES}:
        raise UsageError(f"--networks: there is no {min(unknown)}; choose from {', '.join(NAMES)}")
    found: dict[str, dict[str, Any]] = {}
    parts = [options.only] if options.only else ["whole", "joins", "interrupts", "live"]
    for name in (name for name in NETWORKS if name in options.networks and parts != ["live"]):
        progress(name)
        model, _ = node_model(NETWORKS[name], max(BATCHES))
        if "whole" in parts:
            found.setdefault("whole", {})[name] = await whole_part(model, options.rounds, options.seconds)
        if "joins" in parts:
            found.setdefault("joins", {})[name] = joins_part(model, options.rounds)
        if "interrupts" in parts:
            found.setdefault("interrupts", {})[name] = await interrupts_part(model, options.seconds)
    for name in (name for name in ("resnet50", "transformer") if name in options.networks and "live" in parts):
        progress(f"{name}, live")
        served = await (served_transformer() if name == "transformer" else served_split(name, options.input_shape))
        found.setdefault("profiles", {})[name] = json.loads(served.profile.to_json())
        found.setdefault("live", {})[name] = await live_part(served, options.rounds, options.seconds)
    tables = {"whole": whole_table, "joins": joins_table, "interrupts": interrupts_table}
    texts = [show(found[part]) for part, show in tables.items() if part in found]
    texts += [live_text(name, runs, found["profiles"][name]) for name, runs in found.get("live", {}).items()]
    return Report(found, "\n\n".join(texts))


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        # Joins are measured in this process, whose memory must be kept as that of workers is.
        again = [sys.executable, "-m", "benchmarks.nodes", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, **ENVIRONMENT})
    parser = arguments(__doc__, only=("whole", "joins", "interrupts", "live"), rounds=3, seconds=4.0)
    parser.add_argument("--networks", type=lambda text: text.split(","), default=NAMES, help=f"of {', '.join(NAMES)}")
    parser.add_argument("--input-shape", default="3x112x112", help="of ResNet-50 in the part live")
    main(parser, run)
