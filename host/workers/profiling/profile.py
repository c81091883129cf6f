"""Profiles from Python: measure a network on this machine's workers."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

from headrace.batching import Profile, UsageError
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.inspection.parent import is_step_model, node_model, step_nodes
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.profiling.batches import measure_curve
from headrace.host.workers.profiling.nodes import measure_nodes, measure_steps

LIMIT_S = 300.0


def profile(
    model: str = "mobilenet_v3_small",
    *,
    weights: str | None = None,
    input_shape: str | None = None,
    nodes: bool = False,
    workers: int | None = None,
    max_batch: int = 128,
    lengths: Sequence[float] | None = None,
    limit_s: float = LIMIT_S,
) -> Profile:
    """Measure a network's latency by batch size, with all workers busy, until throughput grows by less than 5 %.

    Args:
        model: A torchvision network by name, module:function, a .pt2 file, or with `nodes` a step model.
        weights: A file of weights; without it the weights are random.
        input_shape: "3x299x299" for instance; what the network says of itself if not given.
        nodes: Measure every node of the network, for policies that schedule nodes.
        workers: How many workers; one for each MIG device or core if not given.
        max_batch: The largest batch to try.
        lengths: Lengths of inputs to measure, in seconds of audio or in the unit of the input.
        limit_s: Longest time for measuring several lengths (s).

    Returns the profile; `Profile.to_json()` is what `headrace profile` writes. May be called where an event loop runs.
    Raises UsageError, and WorkerLost if no worker can be started."""
    if nodes and lengths is not None:
        raise UsageError("lengths are for networks as a whole: leave out nodes, or lengths")
    count = len(worker_devices(workers))
    if nodes and is_step_model(model):
        steps, graph = step_nodes(Network(model, model, weights=weights), max_batch)
        return _finished(measure_steps(steps, graph, workers=count))
    if nodes:
        split, graph = node_model(model, max_batch, weights, input_shape)
        return _finished(measure_nodes(split, graph, workers=count))
    return _finished(
        measure_curve(
            model,
            weights,
            input_shape=input_shape,
            workers=count,
            max_batch=max_batch,
            lengths=None if lengths is None else tuple(lengths),
            limit_s=limit_s,
        )
    )


def _finished(measuring: Coroutine[Any, Any, Profile]) -> Profile:
    """Run a coroutine to its end: in a thread of its own, because an event loop may run in this one (Jupyter)."""
    found: list[Profile] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(asyncio.run(measuring))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="profile")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]
