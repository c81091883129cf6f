"""One live run: timed arrivals of JPEG bytes through a preprocessor and a runtime, with every request's times kept."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError, Ledger, Request, ServedTimes, percentiles_ms, summarize
from headrace.host.demo.photos import Photo
from headrace.host.dpu.preprocessor import Preprocessed, Preprocessor
from headrace.host.live.runtime import Execution, Inference, Overloaded, Runtime

DRAIN_TIMEOUT_S = 120.0  # after the last arrival; what is in flight by then fails


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a run. `arrival` and the times in `preprocessed` are `time.monotonic()` seconds, those in
    `inference` count from the run's origin."""

    number: int
    photo: str
    arrival: float
    preprocessed: Preprocessed | None
    inference: Inference | None
    error: str | None
    max_difference: float | None  # of the tensor from the reference; None if there is none to compare with
    equal: bool | None

    @property
    def request_id(self) -> int | None:
        if self.inference is None:
            return None
        return self.inference.request_id


@dataclass(frozen=True, slots=True)
class Run:
    """`origin` is the `time.monotonic()` value that the executions' times count from."""

    name: str
    origin: float
    records: tuple[Record, ...]
    executions: tuple[Execution, ...]
    result: dict[str, object]
    workers_lost: int

    def breakdown_ms(self) -> dict[str, float | None]:
        """Mean time of a finished request in each part; the parts add up to its latency.

        cu_wait: until a CU or a CPU thread took it; preprocess: there; queue: in the batcher; batch: handing the task
        over, gathering its tensors and, between node-level tasks, standing back; execute: in the network."""
        parts: dict[str, list[float]] = {"cu_wait": [], "preprocess": [], "queue": [], "batch": [], "execute": []}
        for record in self.records:
            if record.inference is None or record.preprocessed is None:
                continue
            served, execute_s = record.inference.served, record.inference.execute_s
            parts["cu_wait"].append(record.preprocessed.started - record.arrival)
            parts["preprocess"].append(self.origin + served.queued - record.preprocessed.started)
            parts["queue"].append(served.started - served.queued)
            parts["batch"].append(served.finished - served.started - execute_s)
            parts["execute"].append(execute_s)
        return {name: percentiles_ms(seconds)["mean"] for name, seconds in parts.items()}


def compare(tensor: NDArray[Any], reference: NDArray[Any]) -> tuple[bool, float]:
    """Whether the two are equal, and their largest difference."""
    if np.array_equal(tensor, reference):
        return True, 0.0
    return False, float(np.abs(tensor.astype(np.float64) - reference.astype(np.float64)).max())


async def run_arrivals(
    name: str,
    model: str,
    runtime: Runtime,
    preprocessor: Preprocessor,
    photos: Sequence[Photo],
    arrivals: NDArray[np.float64],
    *,
    seed: int,
    sla_s: float,
    references: Sequence[NDArray[Any]],
    on_done: Callable[[], None],
) -> Run:
    """Send photo number i mod len(photos) at arrivals[i] (s from now) and wait for all of them.

    Each tensor is compared with `references[i mod len(photos)]` after its request has ended, so off its latency.
    A request that fails is recorded with its error and the others go on."""
    origin = time.monotonic()
    offset = origin - runtime.origin
    ledger = Ledger()  # of whole requests; the runtime's own starts after preprocessing

    async def request(number: int) -> Record:
        photo, reference = photos[number % len(photos)], references[number % len(photos)]
        arrival = float(arrivals[number])
        await asyncio.sleep(origin + arrival - time.monotonic())
        preprocessed = inference = error = None
        whole = Request(number, model, offset + arrival, offset + arrival + sla_s)
        ledger.submit(whole)
        try:
            preprocessed = await preprocessor.process(photo.jpeg)
            inference = await runtime.infer(model, preprocessed.tensor, arrival=whole.arrival, deadline=whole.deadline)
            ledger.finish(whole)
        except Overloaded as raised:
            error = f"shed: {raised}"
            ledger.turn_away(whole)
        except HeadraceError as raised:
            error = f"{type(raised).__name__}: {raised}"
            ledger.fail(whole)
        equal = difference = None
        if preprocessed is not None:
            equal, difference = compare(preprocessed.tensor, reference)
            # The tensor itself is not kept: a few hundred of them are hundreds of megabytes.
            preprocessed = replace(preprocessed, tensor=np.empty(0))
        on_done()
        return Record(number, photo.name, origin + arrival, preprocessed, inference, error, difference, equal)

    tasks = [asyncio.create_task(request(number)) for number in range(len(arrivals))]
    try:
        async with asyncio.timeout(float(arrivals[-1]) + DRAIN_TIMEOUT_S):
            records = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    ledger.check()
    served = [record.inference.served for record in records if record.inference is not None]
    busy_s = sum(execution.finished - execution.started for execution in runtime.executions)
    node_runs = sum(execution.nodes for execution in runtime.executions)
    request_node_runs = sum(execution.nodes * execution.task.batch_size for execution in runtime.executions)
    result = summarize(
        ServedTimes.of(served),
        ledger,
        batch_size_mean=request_node_runs / node_runs if node_runs else None,
        busy_s=busy_s,
        workers=runtime.workers,
        wall_s=time.monotonic() - origin,
        seed=seed,
    )
    return Run(name, runtime.origin, tuple(records), tuple(runtime.executions), result, runtime.workers_lost)
