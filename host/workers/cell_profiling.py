"""`headrace profile --cell`: latency and throughput of one cell by batch size, on this machine's workers all busy."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from headrace.batching import Profile, ProfilePoint, UsageError
from headrace.host.memory.states import CellSettings, StateArena
from headrace.host.workers.networks import KINDS, Network
from headrace.host.workers.process import RunTimes, WorkerDevice, WorkerProcess, start_all, stop_all, worker_devices
from headrace.host.workers.profiling import machine, measure_point

CELLS = {shape.name: (kind, number) for kind, shapes in KINDS.items() for number, shape in enumerate(shapes)}


class _CellWorker(WorkerProcess):
    """Runs one cell on the rows of a batch, again and again."""

    def __init__(self, device: WorkerDevice, network: Network, cell: int, arena: StateArena) -> None:
        settings = CellSettings((network,), device.device, device.threads, arena.fd, arena.layout)
        super().__init__(device, "headrace.host.workers.cells", settings, arena.fd)
        self._cell = cell
        self._reads = network.shapes[cell].reads

    async def run(self, task_id: int, slots: Sequence[int], timeout_s: float) -> RunTimes:
        rows = [slot + 1 for slot in slots]  # row 0 stays zero
        tokens = [row % 2 for row in rows]
        reads = [row for row in rows for _ in range(self._reads)]
        self.send({"task": task_id, "network": 0, "cell": self._cell, "tokens": tokens, "reads": reads, "writes": rows})
        answer = await self.receive(timeout_s)
        return RunTimes(answer["gather_s"], answer["execute_s"])


class _CellPool:
    def __init__(self, workers: Sequence[_CellWorker]) -> None:
        self.workers = workers


async def measure_cell(
    cell: str,
    hidden: int = 1024,
    *,
    vocabulary: int = 30_000,
    weights: str | None = None,
    workers: int | None = None,
    max_batch: int = 512,
    on_point: Callable[[ProfilePoint], None] = lambda _: None,
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
    running = [_CellWorker(device, network, number, arena) for device in devices]
    points: list[ProfilePoint] = []
    try:
        await start_all(running)
        batch = 1
        while batch <= max_batch:
            points.append(await measure_point(_CellPool(running), batch, max_batch))
            on_point(points[-1])
            batch *= 2
    finally:
        await stop_all(running)
        arena.close()
    described = {**machine(), "devices": [device.name for device in devices], "threads": devices[0].threads}
    return Profile(network.name, len(devices), tuple(points), described)
