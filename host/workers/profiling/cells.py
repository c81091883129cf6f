"""Measure one cell by batch size for `headrace profile --cell`, on this machine's workers, all busy at once."""

from itertools import chain

import numpy as np

from headrace.batching import Profile, UsageError
from headrace.batching.graphs.model_graph import NodeKind
from headrace.host.memory.states import ZERO, StateArena
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.inspection.parent import signature
from headrace.host.workers.messages import write_cells
from headrace.host.workers.networks.foreign.rules import ANY_FILE, FileRules
from headrace.host.workers.networks.program import cell_program
from headrace.host.workers.networks.sequence_networks import KINDS, Network
from headrace.host.workers.process import processes
from headrace.host.workers.profiling.batches import OnPoint, described, doubling, measure_points


async def measure_cell(
    cell: str,
    hidden: int = 1024,
    *,
    vocabulary: int = 30_000,
    weights: str | None = None,
    workers: int | None = None,
    max_batch: int = 512,
    on_point: OnPoint = lambda _: None,
    rules: FileRules = ANY_FILE,
) -> Profile:
    """Measure batches of 1, 2, 4 ... up to `max_batch`, all of them.

    A CPU's matrix product may gain nothing from 2 to 4 rows and ten times as much beyond, so the first batch that does
    not pay says little. States that grow are at their longest, and so is the input of a step that takes all of it. A
    point includes all that the runtime sees: the message, gathering the states, the cell, and scattering.

    Args:
        cell: A step of one of KINDS: lstm, encoder, decoder, leaf, inner, transformer-encoder or transformer-decoder.
            The profile's model gets a name such as "lstm-1024".

    Raises:
        UsageError, WorkerLost: There is no such cell, or a worker died.
    """
    kinds = {kind: [step.name for step in signature(Network("", kind, 8, 2)).steps] for kind in KINDS}
    kind = next((kind for kind, names in kinds.items() if cell in names), None)
    if kind is None:
        raise UsageError(f"there is no cell {cell!r}; give one of {', '.join(chain.from_iterable(kinds.values()))}")
    if max_batch < 1:
        raise UsageError(f"max_batch is {max_batch}: give 1 or more")
    number = kinds[kind].index(cell)
    limits = tuple(max_batch if name == cell else 1 for name in kinds[kind])
    network = Network(f"{cell}-{hidden}", kind, hidden, vocabulary, weights, max_batch=limits, rules=rules)
    model_signature = signature(network)
    step = model_signature.steps[number]
    devices = worker_devices(workers)
    arena = StateArena({network.name: model_signature.row}, len(devices) * max_batch)
    views = arena.views[network.name]
    for spec in model_signature.states:
        if spec.variable is None:
            block = views.states[spec.name][1:]
            block[...] = np.random.default_rng(0).uniform(-1, 1, block.shape)
        else:
            views.lengths[spec.name][1:] = spec.longest

    def batch_of(worker: int, batch: int) -> list[bytes]:
        rows = range(worker * max_batch + 1, worker * max_batch + 1 + batch)  # row 0 stays zero
        if step.kind is NodeKind.STATIC:
            return [write_cells(0, number, [model_signature.longest_input] * batch, rows, [ZERO] * batch)]
        reads = [row for row in rows for _ in range(step.reads)]
        return [write_cells(0, number, [row % 2 for row in rows], rows, reads)]

    try:
        running = processes(cell_program((network,), arena), devices)
        points = await measure_points(running, batch_of, doubling(max_batch), on_point, to_the_knee=False)
    finally:
        arena.close()
    return Profile(network.name, len(devices), points, described(devices))
