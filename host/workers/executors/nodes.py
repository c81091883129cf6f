"""The executor of networks node by node, in a worker process.

A task is a sub-batch of requests, in slots, and a run of nodes. Between two tasks the worker keeps the tensors of a
sub-batch. A task may take requests of several sub-batches, which are joined then. A request that starts at node 0
starts anew, whatever the worker keeps for its slot.
"""

import mmap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from headrace.batching import Task
from headrace.host.memory.slots import SlotViews
from headrace.host.workers.executors.cuda_graphs import CapturedNodes
from headrace.host.workers.executors.serving import Interrupts, TaskRecord, check_batch, work
from headrace.host.workers.executors.step_network import StepNetwork
from headrace.host.workers.messages import answer_nodes, read_nodes
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import (
    NodeModel,
    NodeSettings,
    StepNodes,
    read_model,
    read_network,
    tensor_specs,
)
from headrace.host.workers.networks.split.network import SplitNetwork, Unsplit, split_at
from headrace.host.workers.networks.split.operators import Live
from headrace.host.workers.networks.step_models import load_steps


class TaskRan(NamedTuple):
    """The outcome of a task.

    Args:
        task: The task as it ended.
        gathered: When its tensors were together (`time.monotonic()` seconds).
        nans: Number of its requests with NaN in an output.
        lengths: Lengths of the variable outputs that were written, by the request's place in the task.
    """

    task: Task
    gathered: float
    nans: int = 0
    lengths: Mapping[int, Sequence[int]] = {}


class NodeNetwork(Protocol):
    """A kind of network that can run node by node."""

    def warm_up(self) -> None:
        """Run the first batches, which are slow, so that no request has to."""
        ...

    def run(self, task: Task, slots: Sequence[int], interrupt_sent: Callable[[], bool]) -> TaskRan:
        """Run the nodes of a task. A preemptible task ends early at the first boundary at which `interrupt_sent`
        returns True."""
        ...

    def drop(self) -> None:
        """Forget all kept requests, as a preemptible task has failed. They all start anew."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _SubBatch:
    """Requests that stand at the same boundary, with the tensors alive there."""

    boundary: int
    slots: tuple[int, ...]
    live: Live


class SplitRequests:
    """A `SplitNetwork` with the requests that are in the middle of it."""

    def __init__(self, model: NodeModel, views: SlotViews, device: torch.device) -> None:
        loaded = load_model(model.source, model.weights, model.input_shape, model.rules)
        self._views = views
        self._device = device
        self._max_batch = model.max_batch
        self._network = split_at(loaded, model.nodes, device) if model.nodes else Unsplit(loaded, device)
        self._last = len(self._network.nodes)
        self._run: Callable[[int, int, Live], Live] = self._network.run
        self._keep: Callable[[Live], Live] = lambda live: live
        self._kept: dict[int, tuple[_SubBatch, int]] = {}  # slot -> sub-batch, place in it

    @torch.inference_mode()
    def warm_up(self) -> None:
        for size in sorted({1, self._max_batch}):
            inputs = [
                torch.zeros(size, *tensors.spec.shape, dtype=getattr(torch, tensors.spec.dtype), device=self._device)
                for tensors in self._views.inputs
            ]
            self._network.whole(inputs)
        if self._device.type == "cuda" and isinstance(self._network, SplitNetwork):
            captured = CapturedNodes(self._network, inputs, self._max_batch)
            self._run, self._keep = captured.run, captured.keep

    @torch.inference_mode()
    def run(self, task: Task, slots: Sequence[int], interrupt_sent: Callable[[], bool]) -> TaskRan:
        batch, node = len(slots), task.start
        check_batch(batch, self._max_batch)
        live = self._begin(slots) if node == 0 else self._take_up(node, slots)
        gathered = time.monotonic()
        while True:
            live = self._run(node, batch, live)
            node += 1
            if node == task.stop or (task.preemptible and interrupt_sent()):
                break
        if node < self._last:
            held = _SubBatch(node, tuple(slots), self._keep(live))
            for place, slot in enumerate(slots):
                self._kept[slot] = held, place
            return TaskRan(task if node == task.stop else task.ended_at(node), gathered)
        nans, lengths = self._views.write_outputs(slots, [tensor.cpu().numpy() for tensor in live])
        written = {place: lengths for place in range(batch)} if lengths else {}
        return TaskRan(task, gathered, nans, written)

    def _begin(self, slots: Sequence[int]) -> Live:
        """Return the inputs of requests that start.

        The tensors have memory of their own, as they may be alive for as long as the sub-batch is."""
        live = []
        for tensors in self._views.inputs:
            batch = np.empty((len(slots), *tensors.spec.shape), tensors.spec.dtype)
            for row, slot in enumerate(slots):
                batch[row] = tensors.at(slot)
            live.append(torch.from_numpy(batch).to(self._device))
        for slot in slots:
            self._kept.pop(slot, None)
        return tuple(live)

    def _take_up(self, boundary: int, slots: Sequence[int]) -> Live:
        assert isinstance(self._network, SplitNetwork)
        parts: list[tuple[_SubBatch, int, int]] = []  # sub-batch, first of its requests, number of consecutive requests
        for slot in slots:
            held, place = self._kept.pop(slot, (None, 0))
            if held is None or held.boundary != boundary:
                raise RuntimeError(f"slot {slot} does not stand before node {boundary}")
            if parts and parts[-1][0] is held and parts[-1][1] + parts[-1][2] == place:
                parts[-1] = held, parts[-1][1], parts[-1][2] + 1
            else:
                parts.append((held, place, 1))
        lives = [
            held.live if count == len(held.slots) else self._network.take(boundary, held.live, first, count)
            for held, first, count in parts
        ]
        return self._network.join(boundary, lives)

    def drop(self) -> None:
        self._kept.clear()


class StepRequests:
    """A step model with the requests that are between its steps."""

    def __init__(self, model: StepNodes, views: SlotViews, device: torch.device, slots: int) -> None:
        self._network = StepNetwork(load_steps(model.network), views, device, slots)
        self._max_batch = model.max_batch

    def warm_up(self) -> None:
        self._network.warm_up(self._max_batch)

    def run(self, task: Task, slots: Sequence[int], interrupt_sent: Callable[[], bool]) -> TaskRan:
        check_batch(len(slots), self._max_batch)
        gathered = time.monotonic()
        ran = self._network.run(task, slots, interrupt_sent)
        lengths = zip(*self._network.output_lengths(task), strict=True)
        return TaskRan(ran, gathered, 0, dict(enumerate(lengths)))

    def drop(self) -> None:
        self._network.drop()


class NodeExecutor:
    def __init__(self, settings: NodeSettings, device: str, threads: int, at: Callable[[str], None]) -> None:
        torch.set_num_threads(threads)
        layouts = settings.layouts()
        memory = mmap.mmap(settings.memory_fd, max(layout.end for layout in layouts.values()))
        self.networks: list[NodeNetwork] = []
        for model in settings.models:
            at(f"splitting {model.source}")
            network = SplitRequests(model, SlotViews(layouts[model.name], memory), torch.device(device))
            at(f"running {model.source} on its first batches")
            network.warm_up()
            self.networks.append(network)
        for steps in settings.step_models:
            at(f"loading {steps.name} and running its first steps")
            views = SlotViews(layouts[steps.name], memory)
            requests = StepRequests(steps, views, torch.device(device), settings.slots)
            requests.warm_up()
            self.networks.append(requests)

    def run(self, message: memoryview, interrupts: Interrupts) -> TaskRecord:
        model, task, slots = read_nodes(message)
        try:
            task, gathered, nans, lengths = self.networks[model].run(task, slots, interrupts.interrupt_sent)
        except Exception:
            if task.preemptible:
                for network in self.networks:
                    network.drop()
            raise
        return TaskRecord(gathered, answer_nodes(task, nans, lengths))


def node_executor(kind: type[NodeExecutor], body: dict[str, Any], at: Callable[[str], None]) -> NodeExecutor:
    models = tuple(read_model(NodeModel, model) for model in body["models"])
    step_models = tuple(
        StepNodes(
            **model
            | {key: tensor_specs(model[key]) for key in ("inputs", "outputs")}
            | {"network": read_network(model["network"])}
        )
        for model in body["step_models"]
    )
    settings = NodeSettings(models, step_models, body["slots"], body["memory_fd"])
    return kind(settings, body["device"], body["threads"], at)


def main(arguments: Sequence[str]) -> None:
    work(arguments, lambda body, at: node_executor(NodeExecutor, body, at))
