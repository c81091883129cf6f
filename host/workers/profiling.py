"""`headrace profile`: latency and throughput of a network by batch size, on this machine's workers all busy at once."""

import asyncio
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.batching import Profile, ProfilePoint
from headrace.batching.graphs.profile import KNEE_GROWTH
from headrace.host.memory.slots import TensorArena
from headrace.host.workers.models import load_model
from headrace.host.workers.process import Worker, WorkerPool, usable_cores, worker_devices

TIME_PER_POINT_S = 1.0  # at least, over all repeats
MIN_REPEATS = 5
TASK_TIMEOUT_S = 60.0


def machine() -> dict[str, Any]:
    """What a measurement must name: processor, usable cores, memory, system and torch versions."""
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


async def measure_curve(
    model: str,
    weights: str | None = None,
    *,
    workers: int | None = None,
    max_batch: int = 128,
    on_point: Callable[[ProfilePoint], None] = lambda _: None,
) -> Profile:
    """Batch 1, 2, 4 ... up to `max_batch`, until throughput grows by less than 5 %; that last point is included.

    A point's latency is the median over all repeats of all workers, each of which always has a batch to run; the
    throughput is the sum over the workers of batch / median latency. Medians, because shared machines pause now and
    then, and one pause would move the knee. Raises UsageError and WorkerLost."""
    devices = worker_devices(workers)
    loaded = load_model(model, weights)
    arena = TensorArena(len(devices) * max_batch, loaded.input_shape, "float32", (loaded.classes,), "float32")
    noise = np.random.default_rng(0)
    for slot in range(arena.layout.slots):
        arena.input(slot)[...] = noise.standard_normal(loaded.input_shape, np.float32)
    points: list[ProfilePoint] = []
    try:
        async with WorkerPool(model, weights, devices, arena, max_batch=max_batch) as pool:
            batch = 1
            while batch <= max_batch:
                points.append(await measure_point(pool, batch, max_batch))
                on_point(points[-1])
                if len(points) > 1 and points[-1].throughput_rps < KNEE_GROWTH * points[-2].throughput_rps:
                    break
                batch *= 2
    finally:
        arena.close()
    described = {**machine(), "devices": [device.name for device in devices], "threads": devices[0].threads}
    return Profile(model, len(devices), tuple(points), described)


async def measure_point(pool: WorkerPool, batch: int, max_batch: int) -> ProfilePoint:
    async def load(worker: Worker, first_slot: int) -> list[float]:
        slots = range(first_slot, first_slot + batch)
        await worker.run(0, slots, TASK_TIMEOUT_S)  # the shape's first run is not counted
        latencies: list[float] = []
        end = time.monotonic() + TIME_PER_POINT_S
        while len(latencies) < MIN_REPEATS or time.monotonic() < end:
            started = time.monotonic()
            await worker.run(0, slots, TASK_TIMEOUT_S)
            latencies.append(time.monotonic() - started)
        return latencies

    latencies = await asyncio.gather(*(load(worker, n * max_batch) for n, worker in enumerate(pool.workers)))
    throughput = sum(batch / statistics.median(times) for times in latencies)
    return ProfilePoint(batch, statistics.median(t for times in latencies for t in times), throughput)
