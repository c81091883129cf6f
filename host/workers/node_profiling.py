"""`headrace profile --nodes`: the latency of every node by batch size, on this machine's workers all busy at once."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from headrace.batching import ModelGraph, NodeKind, NodeLatencies, Profile, ProfilePoint, Request, Task
from headrace.batching.graphs.execution import Sections
from headrace.batching.request import UNTIL_END
from headrace.host.memory.slots import SlotArena
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.messages import write_nodes
from headrace.host.workers.models import LoadedModel, load_model
from headrace.host.workers.process import RunTimes, processes
from headrace.host.workers.profiling import OnPoint, described, doubling, fill_with_noise, measure_points
from headrace.host.workers.program import NodeModel, Program, StepNodes, node_program
from headrace.host.workers.split import SplitNetwork, one_thread, split_at
from headrace.host.workers.step_models import LoadedSteps, load_steps, signature
from headrace.host.workers.step_network import StepNetwork
from headrace.host.workers.steps import GO, Signature

STEPS = 16  # of a decoder, at most: enough for a median
FINE = 8  # up to here every batch size of a step model is measured


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
    fill_with_noise(arena.views[model.name].inputs)
    found = _NodeTimes(graph)

    def batch_of(number: int, batch: int) -> list[bytes]:
        slots = range(number * model.max_batch, number * model.max_batch + batch)
        requests = tuple(Request(slot, model.name, 0.0) for slot in slots)
        # Preemptible, as only such a task is asked to look at its boundaries.
        return [write_nodes(0, Task(0, model.name, requests, 0, len(graph.nodes), True), slots)]

    def on_run(batch: int, ran: Sequence[RunTimes]) -> None:
        found.see(1.0, batch, 0, ran[0].answer)

    program = _timed(node_program((model,), (), arena))
    try:
        running = processes(program, devices)
        sizes = doubling(model.max_batch)
        points = await measure_points(running, batch_of, sizes, on_point, to_the_knee=True, on_run=on_run)
    finally:
        arena.close()
    batches = tuple(point.batch for point in points)
    latencies = found.latencies(batches, (1.0,))
    where = described(devices)
    loaded = load_model(model.source, model.weights, model.input_shape)
    if model.nodes:
        with one_thread():
            where["batch_difference"] = batch_difference(loaded, model.nodes, batches[1:4])
    return Profile(model.name, len(devices), points, where, latencies)


async def measure_steps(
    model: StepNodes,
    graph: ModelGraph,
    *,
    workers: int | None = None,
    on_point: OnPoint = lambda _: None,
) -> Profile:
    """Of a step model (`step_nodes`), batches up to its largest, each for inputs of three lengths, the longest among
    them; the batches are those until throughput at the middle one grows by less than 5 %. A decoder's latency is the
    median of its first steps. The points of the profile are of the middle length, with as many decoder steps, STEPS at
    most. `machine` has what a batch changes in the results (`step_difference`). Raises UsageError and WorkerLost."""
    devices = worker_devices(workers)
    arena = SlotArena({model.name: (model.inputs, model.outputs)}, len(devices) * model.max_batch)
    ((tokens,), sections) = arena.views[model.name].inputs, Sections(graph)
    told = signature(model.network)
    longest = _longest(told)
    lengths = sorted({max(1, longest // 16), max(1, longest // 4), longest})
    middle = lengths[len(lengths) // 2]
    found = _NodeTimes(graph)
    points: dict[int, tuple[ProfilePoint, ...]] = {}
    try:
        sizes, to_the_knee = _fine(model.max_batch), True
        for length in sorted(lengths, key=lambda length: length != middle):  # it says how far batches are measured
            decoded = min(length, STEPS, told.longest_output)
            for slot in range(arena.slots):
                tokens.at(slot, length)[:] = GO  # a token that every network has

            def batch_of(number: int, batch: int, length: int = length, decoded: int = decoded) -> list[bytes]:
                slots = range(number * model.max_batch, number * model.max_batch + batch)
                requests = tuple(Request(slot, model.name, 0.0, input_len=length, output_len=decoded) for slot in slots)
                tasks = [Task(0, model.name, requests, 0, len(graph.nodes), True)]
                if encoder := graph.section(NodeKind.ENCODER):  # a preemptible run does not leave a section by itself
                    stop = encoder.start + length * len(encoder)
                    tasks = [Task(0, model.name, requests, 0, stop, True)]
                if (decoder := graph.section(NodeKind.DECODER)) and encoder:
                    tasks.append(Task(0, model.name, requests, encoder.stop, UNTIL_END, True))
                elif decoder:
                    tasks = [Task(0, model.name, requests, 0, UNTIL_END, True)]
                return [write_nodes(0, task, slots) for task in tasks]

            def on_run(batch: int, ran: Sequence[RunTimes], length: int = length) -> None:
                for start, part in zip((0, sections.encoder.stop), ran, strict=False):
                    found.see(float(length), batch, start, part.answer)

            running = processes(_timed(node_program((), (model,), arena)), devices)
            points[length] = await measure_points(
                running, batch_of, sizes, on_point, to_the_knee=to_the_knee, on_run=on_run
            )
            sizes, to_the_knee = [point.batch for point in points[length]], False
    finally:
        arena.close()
    where = described(devices)
    with one_thread():
        where["batch_difference"] = step_difference(load_steps(model.network), sizes[-1])
    latencies = found.latencies(sizes, tuple(map(float, lengths)))
    curve = tuple(point for point in points[middle] if point.batch in doubling(model.max_batch))
    return Profile(model.name, len(devices), curve, where, latencies)


def step_difference(loaded: LoadedSteps, batch: int) -> dict[str, Any]:
    """As `batch_difference`, of a step model on the CPU, for a batch of inputs of random lengths: `largest` is of the
    states at the end, `first_node` the first step that appends to one that differs, or the first one at all."""
    told = loaded.signature
    arena = SlotArena({told.name: (told.inputs, told.outputs)}, 2 * batch)
    views, chance = arena.views[told.name], np.random.default_rng(0)
    network = StepNetwork(loaded, views, torch.device("cpu"), arena.slots)

    def run(slots: Sequence[int], lengths: Sequence[int]) -> None:
        requests = tuple(
            Request(slot, told.name, 0.0, input_len=length, output_len=min(length, STEPS, told.longest_output))
            for slot, length in zip(slots, lengths, strict=True)
        )
        network.run(Task(0, told.name, requests, 0, len(told.graph.nodes)), slots, lambda: False)

    lengths = []
    for place in range(batch):
        length = int(chance.integers(1, _longest(told) + 1))
        words = chance.integers(0, told.vocabulary, length)
        for slot in (place, batch + place):
            views.inputs[0].at(slot, length)[:] = words
        lengths.append(length)
    run(range(batch), lengths)
    largest, differing = 0.0, set()
    for place, length in enumerate(lengths):
        run([batch + place], [length])
        together = network.states(place)
        for name, alone in network.states(batch + place).items():
            scale = float(np.abs(alone).max(initial=0.0)) or 1.0
            if together[name].shape != alone.shape:  # other tokens were chosen, and the output ended elsewhere
                largest = math.inf
                differing.add(name)
            elif not np.array_equal(together[name], alone):
                largest = max(largest, float(np.abs(together[name] - alone).max()) / scale)
                differing.add(name)
    arena.close()
    appending = [step.name for step in told.steps if differing & set(step.appends)]
    first = (appending or [told.steps[0].name])[0] if differing else None
    return {"largest": largest, "first_node": first}


def _longest(told: Signature) -> int:
    """The longest input, halved until it fits with as many decoder steps."""
    longest = told.longest_input
    while longest > 1 and not told.fits(longest, min(longest, STEPS)):
        longest //= 2
    return longest


def _fine(max_batch: int) -> list[int]:
    """Batch sizes between the powers of two, too: joining makes all of them, and a product of 3 or 7 rows may take a
    fifth longer than what lies between those of 2 and 4, or 4 and 8."""
    return sorted(
        {*range(1, min(FINE, max_batch) + 1), *doubling(max_batch), *(3 * half for half in doubling(max_batch // 3))}
    )


class _NodeTimes:
    """How long each node took, by batch and length."""

    def __init__(self, graph: ModelGraph) -> None:
        self._graph = graph
        self._sections = Sections(graph)
        self._times: dict[tuple[int, float, int], list[float]] = {}

    def see(self, length: float, batch: int, start: int, answer: bytes) -> None:
        """The times that a run from node `start` has answered."""
        first, behind = self._sections.first[start], self._sections.behind[start]
        for boundary, took in enumerate(np.diff(np.frombuffer(answer)).tolist(), start):
            node = boundary if boundary < behind else first + (boundary - first) % (behind - first)
            self._times.setdefault((node, length, batch), []).append(took)

    def latencies(self, batches: Sequence[int], lengths: Sequence[float]) -> NodeLatencies:
        return NodeLatencies(
            tuple(node.name for node in self._graph.nodes),
            tuple(node.kind for node in self._graph.nodes),
            tuple(batches),
            tuple(lengths),
            tuple(
                tuple(
                    tuple(statistics.median(self._times[node, length, batch]) for batch in batches)
                    for length in lengths
                )
                for node in range(len(self._graph.nodes))
            ),
        )


def _timed(program: Program) -> Program:
    return replace(program, main="headrace.host.workers.node_timing")


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
