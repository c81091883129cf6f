"""Measure how a batch changes the results of a network: its kernels may be others, and sums may have another order."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from headrace.batching import Request, Task
from headrace.host.memory.slots import SlotArena
from headrace.host.workers.executors.step_network import StepNetwork
from headrace.host.workers.networks.models import LoadedModel
from headrace.host.workers.networks.split.network import SplitNetwork, split_at
from headrace.host.workers.networks.step_models import LoadedSteps
from headrace.host.workers.networks.steps import DECODED, longest_input


def batch_difference(loaded: LoadedModel, nodes: Sequence[str], batches: Sequence[int]) -> dict[str, Any]:
    """Measure on the CPU how the results of a request change when it runs in a batch.

    Returns:
        `largest` is the largest difference of an output from that of the request alone, relative to the output's
            largest value. `first_node` is the first node after which bits differ, or None.
    """
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


def step_difference(loaded: LoadedSteps, batch: int) -> dict[str, Any]:
    """Measure the same for a step model on the CPU, for a batch of inputs of random lengths.

    Returns:
        `largest` is of the states at the end. `first_node` is the first step that appends to a state that differs, or
            the first step of all, or None.
    """
    signature = loaded.signature
    arena = SlotArena({signature.name: (signature.inputs, signature.outputs)}, 2 * batch)
    views, chance = arena.views[signature.name], np.random.default_rng(0)
    network = StepNetwork(loaded, views, torch.device("cpu"), arena.slots)

    def run(slots: Sequence[int], lengths: Sequence[int]) -> None:
        requests = tuple(
            Request(
                slot, signature.name, 0.0, input_len=length, output_len=min(length, DECODED, signature.longest_output)
            )
            for slot, length in zip(slots, lengths, strict=True)
        )
        network.run(Task(0, signature.name, requests, 0, len(signature.graph.nodes)), slots, lambda: False)

    lengths = []
    for place in range(batch):
        length = int(chance.integers(1, longest_input(signature) + 1))
        words = chance.integers(0, signature.vocabulary, length)
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
            if together[name].shape != alone.shape:  # the decoder chose other tokens, and the output ended elsewhere
                largest = math.inf
                differing.add(name)
            elif not np.array_equal(together[name], alone):
                largest = max(largest, float(np.abs(together[name] - alone).max()) / scale)
                differing.add(name)
    arena.close()
    appending = [step.name for step in signature.steps if differing & set(step.appends)]
    first = (appending or [signature.steps[0].name])[0] if differing else None
    return {"largest": largest, "first_node": first}
