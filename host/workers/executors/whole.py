"""The executor of whole networks, in a worker process.

A task is a batch of requests of one model, in slots. Inputs that differ in length are padded with zeros to the longest
of the batch, or joined (memory/layout.py).
"""

import math
import mmap
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.host.memory.files import MappedFiles
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.slots import SlotTensors, SlotViews
from headrace.host.workers.executors.serving import Interrupts, TaskRecord, check_batch, work
from headrace.host.workers.messages import answer_whole, read_whole
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import WholeModel, WholeSettings, read_model
from headrace.host.workers.networks.tokens import example_batch, example_grid


class _Network:
    """One loaded network with its slots and its batch tensors."""

    def __init__(self, model: WholeModel, views: SlotViews, device: torch.device) -> None:
        self.model = model
        self._views = views
        self._device = device
        self._inference = torch.inference_mode()  # the decorator would make another one for each batch
        loaded = load_model(model.source, model.weights, model.input_shape, model.rules)
        loaded.module.to(device)
        self._call = loaded.call
        # Inputs of one shape are gathered into kept tensors. numpy copies them, as its copies wake no other threads.
        self._batches = [
            None if spec.variable is not None else _batch(spec, model.max_batch, 0, device) for spec in model.inputs
        ]
        self._variable = [place for place, spec in enumerate(model.inputs) if spec.variable is not None]

    def warm_up(self, size: int) -> None:
        """Run a batch of zeros, as the first run of a shape is slow.

        Where lengths vary, the batch has as much input as the longest request. A larger one may exceed any batch of a
        policy."""
        if joined := [spec for spec in self.model.inputs if spec.joined]:
            tokens = math.prod(example_grid(max(1, joined[0].longest // size)))
            self.forward(example_batch(self.model.inputs, [tokens] * size))
            return
        inputs = [
            _batch(spec, size, max(1, spec.longest // size), self._device) if batch is None else batch
            for spec, batch in zip(self.model.inputs, self._batches, strict=True)
        ]
        self.forward([batch[:size] for batch in inputs])

    def forward(self, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the outputs, in the model's order, for batched arrays in the order of the model's inputs."""
        with self._inference:
            tensors = [torch.from_numpy(batch).to(self._device, non_blocking=True) for batch in inputs]
            return [output.cpu().numpy() for output in self._call(tensors)]

    def run(self, slots: list[int], variable: list[list[int]], files: MappedFiles) -> TaskRecord:
        """Run a batch. `variable` holds the lengths of each variable input, by request.

        `files` are those in which tensors of the requests may lie."""
        count = len(slots)
        check_batch(count, self.model.max_batch)
        lengths = dict(zip(self._variable, variable, strict=True))
        inputs, tokens = [], []
        for place, tensors in enumerate(self._views.inputs):
            batch = self._batches[place]
            if batch is not None:
                for row, slot in enumerate(slots):
                    if not files.in_use or not self._views.places.read(slot, place, files, batch[row]):
                        batch[row] = tensors.at(slot)
                inputs.append(batch[:count])
                continue
            if tensors.spec.joined:
                tokens = lengths[place]
                inputs.append(self._joined(tensors, slots, tokens))
                continue
            longest = max(lengths[place])
            padded = _batch(tensors.spec, count, longest, self._device)
            assert tensors.variable is not None
            where = (slice(None),) * tensors.variable
            for row, (slot, length) in enumerate(zip(slots, lengths[place], strict=True)):
                padded[row][(*where, slice(length))] = tensors.at(slot, length)
            inputs.append(padded)
        gathered = time.monotonic()
        nans, written = self._views.write_outputs(slots, self.forward(inputs), tokens, files)
        return TaskRecord(gathered, answer_whole(nans, written))

    def _joined(self, tensors: SlotTensors, slots: list[int], lengths: list[int]) -> NDArray[Any]:
        """Return the rows of all requests, one request after another."""
        rows = _batch(tensors.spec, len(slots), sum(lengths), self._device)
        first = 0
        for slot, length in zip(slots, lengths, strict=True):
            rows[first : first + length] = tensors.at(slot, length)
            first += length
        return rows


def _batch(spec: TensorSpec, size: int, length: int, device: torch.device) -> NDArray[Any]:
    """Return zeros, in memory that a GPU can read directly if there is one."""
    shape = spec.batched(size, length)
    kind = getattr(torch, np.dtype(spec.dtype).name)
    return torch.zeros(shape, dtype=kind, pin_memory=device.type == "cuda").numpy()


class WholeExecutor:
    def __init__(self, settings: WholeSettings, device: str, threads: int, at: Callable[[str], None]) -> None:
        torch.set_num_threads(threads)
        layouts = settings.layouts()
        memory = mmap.mmap(settings.memory_fd, max(layout.end for layout in layouts.values()))
        self._networks = []
        for model in settings.models:
            at(f"loading {model.source}")
            network = _Network(model, SlotViews(layouts[model.name], memory), torch.device(device))
            for size in sorted({1, model.max_batch}):
                at(f"running {model.source} on a first batch of {size}")
                network.warm_up(size)
            self._networks.append(network)

    def run(self, message: memoryview, interrupts: Interrupts) -> TaskRecord:
        model, slots, lengths = read_whole(message)
        return self._networks[model].run(slots, lengths, interrupts.files)


def _executor(body: dict[str, Any], at: Callable[[str], None]) -> WholeExecutor:
    models = tuple(read_model(WholeModel, model) for model in body["models"])
    settings = WholeSettings(models, body["slots"], body["memory_fd"])
    return WholeExecutor(settings, body["device"], body["threads"], at)


def main(arguments: Sequence[str]) -> None:
    work(arguments, _executor)
