"""`headrace profile --nodes`: the latency of every node by batch size, on this machine's workers all busy at once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from headrace.batching import ModelGraph, NodeLatencies, Profile, Request, Task
from headrace.host.memory.slots import SlotArena
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.messages import write_nodes
from headrace.host.workers.models import LoadedModel, load_model
from headrace.host.workers.process import RunTimes, processes
from headrace.host.workers.profiling import OnPoint, machine, measure_points
from headrace.host.workers.program import NodeModel, node_program
from headrace.host.workers.split import SplitNetwork, one_thread, split_at


async def measure_nodes(
    model: NodeModel,
    graph: ModelGraph,
    *,
    workers: int | None = None,
    on_point: OnPoint = lambda _: None,
) -> Profile:
    """Of a split network (`node_model`), batch 1, 2, 4 ... up to its largest, until throughput grows by less than 5 %;
    see `profiling.measure_points`. A node's latency is the median over all repeats of all workers.

    What is measured too, and stands in `machine`, is what a batch changes in the results (`batch_difference`). Raises
    UsageError and WorkerLost."""
    devices = worker_devices(workers)
    arena = SlotArena({model.name: (model.inputs, model.outputs)}, len(devices) * model.max_batch)
    noise = np.random.default_rng(0)
    for tensors in arena.views[model.name].inputs:
        for slot in range(arena.slots):
            array = tensors.at(slot)
            if array.dtype.kind == "f":
                array[...] = noise.standard_normal(array.shape)
    times: dict[int, list[np.ndarray[Any, np.dtype[np.float64]]]] = {}

    def batch_of(number: int, batch: int) -> bytes:
        slots = range(number * model.max_batch, number * model.max_batch + batch)
        requests = tuple(Request(slot, model.name, 0.0) for slot in slots)
        # Preemptible, as only such a task is asked to look at its boundaries.
        return write_nodes(0, Task(0, model.name, requests, 0, len(graph.nodes), True), slots)

    def on_run(batch: int, ran: RunTimes) -> None:
        times.setdefault(batch, []).append(np.diff(np.frombuffer(ran.answer)))

    program = replace(node_program((model,), (), arena), main="headrace.host.workers.node_timing")
    try:
        running = processes(program, devices)
        points = await measure_points(running, batch_of, model.max_batch, on_point, to_the_knee=True, on_run=on_run)
    finally:
        arena.close()
    batches = tuple(point.batch for point in points)
    medians = {batch: np.median(np.stack(times[batch]), 0) for batch in batches}
    latencies = NodeLatencies(
        tuple(node.name for node in graph.nodes),
        tuple(node.kind for node in graph.nodes),
        batches,
        (1.0,),
        tuple((tuple(float(medians[batch][node]) for batch in batches),) for node in range(len(graph.nodes))),
    )
    described = {**machine(), "devices": [device.name for device in devices], "threads": devices[0].threads}
    loaded = load_model(model.source, model.weights, model.input_shape)
    if model.nodes:
        with one_thread():
            described["batch_difference"] = batch_difference(loaded, model.nodes, batches[1:4])
    return Profile(model.name, len(devices), points, described, latencies)


def batch_difference(loaded: LoadedModel, nodes: Sequence[str], batches: Sequence[int]) -> dict[str, Any]:
    """What it changes that a request runs in a batch, on the CPU: kernels may be others, and sums in another order.

    `largest` is the largest difference of an output from that of the request alone, beside the output's largest value;
    `first_node` is where the first bits differ, None if none do."""
    network = split_at(loaded, nodes, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    largest, first = 0.0, len(nodes)
    with torch.no_grad():
        for batch in batches:
            inputs = []
            for spec in loaded.inputs:
                kind = getattr(torch, spec.dtype)
                tensor = torch.randn(batch, *spec.shape, generator=generator)
                inputs.append(tensor.to(kind) if kind.is_floating_point else torch.zeros(tensor.shape, dtype=kind))
            alone = [tuple(tensor[row : row + 1].clone() for tensor in inputs) for row in range(batch)]
            together = tuple(tensor.clone() for tensor in inputs)
            for node in range(len(nodes)):
                alone = [network.run(node, 1, live) for live in alone]
                together = network.run(node, batch, together)
                if node < first and not _equal(network, node + 1, alone, together):
                    first = node
            for row, outputs in enumerate(alone):
                for own, other in zip(outputs, network.take(len(nodes), together, row, 1), strict=True):
                    scale = float(own.abs().max()) or 1.0
                    largest = max(largest, float((own - other).abs().max()) / scale)
    return {"largest": largest, "first_node": nodes[first] if first < len(nodes) else None}


def _equal(network: SplitNetwork, boundary: int, alone: Sequence[Any], together: Any) -> bool:
    joined = network.join(boundary, alone)
    return all(torch.equal(own, other) for own, other in zip(joined, together, strict=True))
