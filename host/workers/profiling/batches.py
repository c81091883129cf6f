"""Measure latency and throughput by batch size for `headrace profile`, on this machine's workers, all busy at once."""

import asyncio
import logging
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.batching import Profile, ProfilePoint, UsageError
from headrace.batching.graphs.profile import KNEE_GROWTH
from headrace.host.memory.slots import SlotArena, SlotTensors
from headrace.host.workers.devices import WorkerDevice, usable_cores, worker_devices
from headrace.host.workers.inspection.parent import describe
from headrace.host.workers.messages import write_whole
from headrace.host.workers.networks.description import NetworkDescription
from headrace.host.workers.networks.foreign.rules import ANY_FILE, FileRules
from headrace.host.workers.networks.program import WholeModel, whole_program
from headrace.host.workers.networks.tokens import example_grid, is_grid
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import RunTimes, WorkerProcess, processes

ROUNDS = 3  # each round measures every point, so that a pause of the machine shows as a disagreement
TIME_PER_POINT_S = 0.4  # least time of a point in a round
MIN_REPEATS = 3
DISAGREEMENT = 0.2  # relative difference of a point's throughput between rounds that gets a warning
TASK_TIMEOUT_S = 60.0
LIMIT_S = 300.0  # longest measurement of a network at all lengths; PREBA's takes several minutes (Section 4.3)
AUDIO_LENGTHS_S = (2.5, 5.0, 15.0, 25.0, 35.0)  # they include PREBA's three (Fig. 15)

_log = logging.getLogger(__name__)


def machine() -> dict[str, Any]:
    """Return the machine of a measurement: processor, usable cores, memory, system and Python version."""
    with open("/proc/cpuinfo") as lines:
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu or platform.machine(),
        "cores": usable_cores(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def described(devices: Sequence[WorkerDevice]) -> dict[str, Any]:
    """Return the machine and the devices of a profile."""
    return {**machine(), "devices": [device.name for device in devices], "threads": devices[0].threads}


def fill_with_noise(tensors: Iterable[SlotTensors]) -> None:
    """Fill every slot at its longest with noise. Integers may be indices, and stay 0, which is an index of any
    table."""
    noise = np.random.default_rng(0)
    for each in tensors:
        for slot in range(each.slots):
            array = each.at(slot, each.spec.longest)
            if array.dtype.kind == "f":
                array[...] = noise.standard_normal(array.shape)


OnPoint = Callable[[ProfilePoint], None]


async def measure_curve(
    model: str,
    weights: str | None = None,
    *,
    input_shape: str | None = None,
    workers: int | None = None,
    max_batch: int = 128,
    lengths: Sequence[float] | None = None,
    limit_s: float = LIMIT_S,
    on_point: OnPoint = lambda _: None,
    rules: FileRules = ANY_FILE,
    max_batch_tokens: int | None = None,
) -> Profile:
    """Measure a whole network with batches of 1, 2, 4 ... up to `max_batch`, until throughput grows by less than 5 %.

    The last point is included. See `measure_points`. A network whose inputs vary in length is measured at each length.
    No batch begins that would end more than `limit_s` seconds after the first, but each length is measured at batch 1.

    Args:
        lengths: Seconds for a network that takes audio, else the lengths of its inputs. None means some lengths up to
            its longest.
        max_batch_tokens: The most tokens of a batch of a network with joined inputs.

    Raises:
        UsageError, WorkerLost: The network cannot be loaded, or a worker died.
    """
    network = describe(model, weights, input_shape, rules)
    audio, sizes = network.audio_spec, _lengths(network, lengths)
    joined = any(spec.joined for spec in network.inputs)
    if joined:
        max_tokens = max_batch_tokens or max_batch * max(sizes)
        sizes = sorted({math.prod(example_grid(min(size, max_tokens))) for size in sizes})
    varies = any(spec.variable is not None for spec in network.inputs)
    devices = worker_devices(workers)
    arena = SlotArena({model: (network.inputs, network.outputs)}, len(devices) * max_batch)
    if not joined:  # zeros take as long, and the longest patches of all slots would fill the memory
        fill_with_noise(arena.views[model].inputs)
    spec = WholeModel(model, model, network.inputs, network.outputs, max_batch, weights, input_shape, rules)
    points: list[ProfilePoint] = []
    try:
        running = processes(whole_program((spec,), arena), devices)
        async with WorkerPool(running):
            began = time.monotonic()
            for place, length in enumerate(sizes, 1):
                if audio is not None:
                    _say_length(arena.views[model].inputs, length)
                elif joined:
                    _write_grids(arena.views[model].inputs, length)

                def batch_of(number: int, batch: int, length: int = length) -> list[bytes]:
                    slots = range(number * max_batch, number * max_batch + batch)
                    variable = [min(length, spec.longest) for spec in network.inputs if spec.variable is not None]
                    return [write_whole(0, slots, [[each] * batch for each in variable])]

                points += await _measure_points(
                    running,
                    batch_of,
                    doubling(min(max_batch, max_tokens // length) if joined else max_batch),
                    on_point,
                    to_the_knee=True,
                    length=length,
                    until=began + limit_s * place / len(sizes) if varies else math.inf,
                )
    finally:
        arena.close()
    step_s = None if audio is None else audio.hop / audio.rate
    return Profile(model, len(devices), tuple(points), described(devices), step_s=step_s, joined=joined)


def _lengths(network: NetworkDescription, given: Sequence[float] | None) -> list[int]:
    """Return the lengths to measure at, rising, in the network's own units. Raises UsageError."""
    longest = max((spec.longest for spec in network.inputs if spec.variable is not None), default=0)
    if not longest:
        if given is not None:
            raise UsageError(f"model {network.name!r} takes inputs of one length: leave --lengths out")
        return [1]
    audio = network.audio_spec
    if given is None:
        given = AUDIO_LENGTHS_S if audio is not None else [max(1, longest // part) for part in (16, 4, 1)]
        given = [length for length in given if audio is None or length <= audio.longest_s]
    sizes = {int(each) if audio is None else audio.frames(int(each * audio.rate)) for each in given if each > 0}
    if not sizes or len(sizes) < len(set(given)) or max(sizes) > longest:
        limit = f"{longest:g}" if audio is None else f"{audio.longest_s:g} s"
        raise UsageError(f"--lengths: give lengths above 0 and up to {limit}, the longest input of {network.name!r}")
    return sorted(sizes)


def _say_length(tensors: Iterable[SlotTensors], frames: int) -> None:
    """Write the number of frames for a network that takes features and their number."""
    for each in tensors:
        if each.spec.variable is None:
            for slot in range(each.slots):
                each.at(slot)[...] = frames


def _write_grids(tensors: Iterable[SlotTensors], tokens: int) -> None:
    """Write the grid of a request with so many tokens into every slot."""
    for each in tensors:
        if is_grid(each.spec):
            for slot in range(each.slots):
                each.at(slot)[...] = example_grid(tokens)


def doubling(max_batch: int) -> list[int]:
    """Return 1, 2, 4 ... up to `max_batch`."""
    return [1 << power for power in range(max_batch.bit_length()) if 1 << power <= max_batch]


def _is_power(batch: int) -> bool:
    return batch & (batch - 1) == 0


async def measure_points(
    workers: Sequence[WorkerProcess],
    batch_of: Callable[[int, int], Sequence[bytes]],
    sizes: Iterable[int],
    on_point: OnPoint,
    *,
    to_the_knee: bool,
    on_run: Callable[[int, Sequence[RunTimes]], None] = lambda batch, ran: None,
) -> tuple[ProfilePoint, ...]:
    """Measure latency and throughput for batches of these sizes, with all workers busy.

    A point's latency is the median over all repeats of all workers, each of which always has a batch to run. The
    throughput is the sum over the workers of batch / median latency. The medians over ROUNDS rounds of all points keep
    a pause of a shared machine from moving the knee. The log warns of rounds that disagree.

    Args:
        workers: They are started and ended here.
        batch_of: Returns the messages of a batch's tasks, from the number of the worker and the batch size.
        sizes: Batch sizes in rising order.
        to_the_knee: Stop when a power of two brings too little over the one before.
        on_run: Gets each batch size and the times of its tasks.

    Raises:
        WorkerLost: A worker died or did not answer.
    """
    async with WorkerPool(workers):
        return await _measure_points(workers, batch_of, sizes, on_point, to_the_knee=to_the_knee, on_run=on_run)


async def _measure_points(
    workers: Sequence[WorkerProcess],
    batch_of: Callable[[int, int], Sequence[bytes]],
    sizes: Iterable[int],
    on_point: OnPoint,
    *,
    to_the_knee: bool,
    on_run: Callable[[int, Sequence[RunTimes]], None] = lambda batch, ran: None,
    length: float = 1.0,
    until: float = math.inf,
) -> tuple[ProfilePoint, ...]:
    """Measure the points of `measure_points` on running workers, for inputs of one length.

    Except for the first, no point begins that would end after `until` (`time.monotonic()` seconds) if a batch takes as
    long as it has, or twice the one before."""
    rounds: dict[int, list[ProfilePoint]] = {}

    async def measure(batch: int) -> ProfilePoint:
        point = replace(await _measure(workers, batch_of, batch, on_run), length=length)
        rounds.setdefault(batch, []).append(point)
        on_point(point)
        return point

    def fits(latency_s: float) -> bool:
        taken = max(TIME_PER_POINT_S, MIN_REPEATS * latency_s) + latency_s
        return latency_s < TASK_TIMEOUT_S / 2 and time.monotonic() + taken <= until

    last: ProfilePoint | None = None
    for batch in sizes:
        if last is not None and not fits(last.latency_s * batch / last.batch):
            _log.warning(
                "length %g: no time left for batches above %d, where the knee may be; allow more", length, last.batch
            )
            break
        last = await measure(batch)
        half = rounds[batch // 2][0].throughput_rps if batch > 1 and _is_power(batch) else 0.0
        if to_the_knee and last.throughput_rps < KNEE_GROWTH * half:
            break
    for _ in range(ROUNDS - 1):
        for batch, points in list(rounds.items()):
            if fits(points[0].latency_s):
                await measure(batch)
    for batch, points in rounds.items():
        rates = [point.throughput_rps for point in points]
        if max(rates) - min(rates) > DISAGREEMENT * statistics.median(rates):
            _log.warning(
                "length %g, batch %d: %.1f to %.1f requests/s in different rounds; is the machine busy with something "
                "else? Measure again when it is not",
                length,
                batch,
                min(rates),
                max(rates),
            )
    return tuple(
        ProfilePoint(
            batch,
            statistics.median(point.latency_s for point in points),
            statistics.median(point.throughput_rps for point in points),
            length,
        )
        for batch, points in rounds.items()
    )


async def _measure(
    workers: Sequence[WorkerProcess],
    batch_of: Callable[[int, int], Sequence[bytes]],
    batch: int,
    on_run: Callable[[int, Sequence[RunTimes]], None],
) -> ProfilePoint:
    async def load(number: int, worker: WorkerProcess) -> list[float]:
        messages = batch_of(number, batch)

        async def run() -> list[RunTimes]:
            return [await worker.run(message, TASK_TIMEOUT_S) for message in messages]

        await run()  # the first run of a shape does not count
        latencies: list[float] = []
        end = time.monotonic() + TIME_PER_POINT_S
        while len(latencies) < MIN_REPEATS or time.monotonic() < end:
            started = time.monotonic()
            ran = await run()
            latencies.append(time.monotonic() - started)
            on_run(batch, ran)
        return latencies

    latencies = await asyncio.gather(*(load(number, worker) for number, worker in enumerate(workers)))
    throughput = sum(batch / statistics.median(times) for times in latencies)
    return ProfilePoint(batch, statistics.median(t for times in latencies for t in times), throughput)
