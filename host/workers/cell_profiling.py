"""`headrace profile --cell`: latency and throughput of one cell by batch size, on this machine's workers all busy."""

from dataclasses import replace

import numpy as np

from headrace.batching import Profile, UsageError
from headrace.host.memory.states import StateArena
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.messages import write_cells
from headrace.host.workers.networks import KINDS, Network
from headrace.host.workers.process import processes
from headrace.host.workers.profiling import OnPoint, machine, measure_points
from headrace.host.workers.program import cell_program

CELLS = {shape.name: (kind, number) for kind, shapes in KINDS.items() for number, shape in enumerate(shapes)}


async def measure_cell(
    cell: str,
    hidden: int = 1024,
    *,
    vocabulary: int = 30_000,
    weights: str | None = None,
    workers: int | None = None,
    max_batch: int = 512,
    on_point: OnPoint = lambda _: None,
) -> Profile:
    """Batch 1, 2, 4 ... up to `max_batch`, all of them: a CPU's matrix product may gain nothing from 2 to 4 rows and
    ten times as much beyond, so that the first step that does not pay tells little.

    `cell` is lstm, encoder, decoder, leaf or inner; the profile's model is named such as "lstm-1024". A point has what
    the runtime sees: the message, gathering the states, the cell and scattering. Raises UsageError and WorkerLost."""
    if cell not in CELLS:
        raise UsageError(f"there is no cell {cell!r}; give one of {', '.join(CELLS)}")
    if max_batch < 1:
        raise UsageError(f"max_batch is {max_batch}: give 1 or more")
    kind, number = CELLS[cell]
    network = Network(f"{cell}-{hidden}", kind, hidden, vocabulary, weights)
    network = replace(network, max_batch=tuple(max_batch if n == number else 1 for n in range(len(network.shapes))))
    devices = worker_devices(workers)
    arena = StateArena(len(devices) * max_batch, hidden)
    arena.states[1:] = np.random.default_rng(0).uniform(-1, 1, arena.states[1:].shape)
    reads_each = network.shapes[number].reads

    def batch_of(worker: int, batch: int) -> bytes:
        rows = range(worker * max_batch + 1, worker * max_batch + 1 + batch)  # row 0 stays zero
        reads = [row for row in rows for _ in range(reads_each)]
        return write_cells(0, number, [row % 2 for row in rows], rows, reads)

    try:
        running = processes(cell_program((network,), arena), devices)
        points = await measure_points(running, batch_of, max_batch, on_point, to_the_knee=False)
    finally:
        arena.close()
    described = {**machine(), "devices": [device.name for device in devices], "threads": devices[0].threads}
    return Profile(network.name, len(devices), points, described)
