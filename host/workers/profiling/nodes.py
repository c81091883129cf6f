"""Measure the latency of every node by batch size for `headrace profile --nodes`, on this machine's workers, all
busy."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headrace.batching import ModelGraph, NodeKind, NodeLatencies, Profile, ProfilePoint, Request, Task
from headrace.batching.graphs.execution import Sections
from headrace.batching.request import UNTIL_END
from headrace.host.memory.slots import SlotArena
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.inspection.parent import batch_difference, signature, step_difference
from headrace.host.workers.messages import write_nodes
from headrace.host.workers.networks.program import NodeModel, Program, StepNodes, node_program
from headrace.host.workers.networks.steps import DECODED, GO, longest_input
from headrace.host.workers.process import RunTimes, processes
from headrace.host.workers.profiling.batches import OnPoint, described, doubling, fill_with_noise, measure_points

FINE = 8  # every batch size of a step model up to this one is measured


async def measure_nodes(
    model: NodeModel,
    graph: ModelGraph,
    *,
    workers: int | None = None,
    on_point: OnPoint = lambda _: None,
) -> Profile:
    """Measure a split network (`node_model`) with batches of 1, 2, 4 ... up to its largest.

    It ends when throughput grows by less than 5 %; see `measure_points`. A node's latency is the median over all
    repeats of all workers. The profile's `machine` also says how a batch changes the results
    (`batch_differences.batch_difference`). Raises UsageError and WorkerLost."""
    devices = worker_devices(workers)
    arena = SlotArena({model.name: (model.inputs, model.outputs)}, len(devices) * model.max_batch)
    fill_with_noise(arena.views[model.name].inputs)
    node_times = _NodeTimes(graph)

    def batch_of(number: int, batch: int) -> list[bytes]:
        slots = range(number * model.max_batch, number * model.max_batch + batch)
        requests = tuple(Request(slot, model.name, 0.0) for slot in slots)
        # Preemptible, as only such a task stops at its boundaries to look.
        return [write_nodes(0, Task(0, model.name, requests, 0, len(graph.nodes), True), slots)]

    def on_run(batch: int, ran: Sequence[RunTimes]) -> None:
        node_times.see(1.0, batch, 0, ran[0].answer)

    program = _timed(node_program((model,), (), arena))
    try:
        running = processes(program, devices)
        sizes = doubling(model.max_batch)
        points = await measure_points(running, batch_of, sizes, on_point, to_the_knee=True, on_run=on_run)
    finally:
        arena.close()
    batches = tuple(point.batch for point in points)
    latencies = node_times.latencies(batches, (1.0,))
    where = described(devices)
    if model.nodes:
        where["batch_difference"] = batch_difference(model, batches[1:4])
    return Profile(model.name, len(devices), points, where, latencies)


async def measure_steps(
    model: StepNodes,
    graph: ModelGraph,
    *,
    workers: int | None = None,
    on_point: OnPoint = lambda _: None,
) -> Profile:
    """Measure a step model (`step_nodes`) with batches up to its largest, each for inputs of three lengths.

    The longest input is among them. The largest batch is the one at which throughput at the middle length grows by less
    than 5 %. A decoder's latency is the median of its first steps. The points of the profile are of the middle length,
    with as many decoder steps, at most DECODED. `machine` also says how a batch changes the results
    (`batch_differences.step_difference`). Raises UsageError and WorkerLost."""
    devices = worker_devices(workers)
    arena = SlotArena({model.name: (model.inputs, model.outputs)}, len(devices) * model.max_batch)
    ((tokens,), sections) = arena.views[model.name].inputs, Sections(graph)
    model_signature = signature(model.network)
    longest = longest_input(model_signature)
    lengths = sorted({max(1, longest // 16), max(1, longest // 4), longest})
    middle = lengths[len(lengths) // 2]
    node_times = _NodeTimes(graph)
    points: dict[int, tuple[ProfilePoint, ...]] = {}
    try:
        sizes, to_the_knee = _fine(model.max_batch), True
        for length in sorted(
            lengths, key=lambda length: length != middle
        ):  # the middle first, as it sets the largest batch
            decoded = min(length, DECODED, model_signature.longest_output)
            for slot in range(arena.slots):
                tokens.at(slot, length)[:] = GO  # every network has this token

            def batch_of(number: int, batch: int, length: int = length, decoded: int = decoded) -> list[bytes]:
                slots = range(number * model.max_batch, number * model.max_batch + batch)
                requests = tuple(Request(slot, model.name, 0.0, input_len=length, output_len=decoded) for slot in slots)
                tasks = [Task(0, model.name, requests, 0, len(graph.nodes), True)]
                if encoder := graph.section(NodeKind.ENCODER):  # a preemptible task does not leave a section by itself
                    stop = encoder.start + length * len(encoder)
                    tasks = [Task(0, model.name, requests, 0, stop, True)]
                if (decoder := graph.section(NodeKind.DECODER)) and encoder:
                    tasks.append(Task(0, model.name, requests, encoder.stop, UNTIL_END, True))
                elif decoder:
                    tasks = [Task(0, model.name, requests, 0, UNTIL_END, True)]
                return [write_nodes(0, task, slots) for task in tasks]

            def on_run(batch: int, ran: Sequence[RunTimes], length: int = length) -> None:
                for start, part in zip((0, sections.encoder.stop), ran, strict=False):
                    node_times.see(float(length), batch, start, part.answer)

            running = processes(_timed(node_program((), (model,), arena)), devices)
            points[length] = await measure_points(
                running, batch_of, sizes, on_point, to_the_knee=to_the_knee, on_run=on_run
            )
            sizes, to_the_knee = [point.batch for point in points[length]], False
    finally:
        arena.close()
    where = described(devices)
    where["batch_difference"] = step_difference(model.network, sizes[-1])
    latencies = node_times.latencies(sizes, tuple(map(float, lengths)))
    curve = tuple(point for point in points[middle] if point.batch in doubling(model.max_batch))
    return Profile(model.name, len(devices), curve, where, latencies)


def _fine(max_batch: int) -> list[int]:
    """Return all batch sizes up to FINE, the powers of two, and sizes between them.

    Joining makes batches of all sizes, and a product of 3 or 7 rows may take a fifth longer than the sizes around it
    suggest."""
    return sorted(
        {*range(1, min(FINE, max_batch) + 1), *doubling(max_batch), *(3 * half for half in doubling(max_batch // 3))}
    )


class _NodeTimes:
    """The times of each node, by batch and length."""

    def __init__(self, graph: ModelGraph) -> None:
        self._graph = graph
        self._sections = Sections(graph)
        self._times: dict[tuple[int, float, int], list[float]] = {}

    def see(self, length: float, batch: int, start: int, answer: bytes) -> None:
        """Add the times in the answer of a run from node `start`."""
        first, after = self._sections.first[start], self._sections.after[start]
        for boundary, took in enumerate(np.diff(np.frombuffer(answer)).tolist(), start):
            node = boundary if boundary < after else first + (boundary - first) % (after - first)
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
    return replace(program, main="headrace.host.workers.executors.node_timing")
