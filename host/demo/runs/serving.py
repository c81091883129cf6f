"""One live run: requests arrive at planned times, pass a preprocessor and a runtime, and leave a record each.

A request's latency counts from its planned arrival. The delay until it is really sent is part of the latency, and is
also reported on its own: the demo's process causes it, not the service.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError, Ledger, Request, Served, ServedTimes, percentiles_ms, summarize
from headrace.host.dpu.preprocessor import Preprocessed
from headrace.host.live.machine.precise_timer import PreciseTimer
from headrace.host.live.results import Execution, Overloaded
from headrace.host.live.runtime import Runtime

PARTS = ("sent_late", "cu_wait", "preprocess", "queue", "batch", "execute")


class Progress(Protocol):
    """The demo reports its progress to this interface. The command line shows it."""

    def stage(self, text: str, total: int | None = None) -> None: ...

    def step(self) -> None: ...


class Source(Protocol):
    """The inputs of one network, and how they are compared with their references."""

    def name(self, number: int) -> str:
        """Return the name of the input that request `number` sends."""
        ...

    async def value(self, number: int) -> tuple[Any, Preprocessed | None]:
        """Return the value that the request sends, and how it was preprocessed, or None if it was not."""
        ...

    def options(self, number: int) -> Mapping[str, Any]:
        """Return the options of the request for `Tasks.admit`."""
        ...

    def compare(self, number: int, tensor: NDArray[Any]) -> tuple[bool, float]:
        """Compare a tensor that was preprocessed in this run with its reference.

        Returns whether they agree, and the largest difference."""
        ...


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Request i is for `models[i]` and arrives at `at[i]` (rising, in s from the start of the run)."""

    at: NDArray[np.float64]
    models: Sequence[str]


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a run, without its tensors.

    The planned `arrival`, `sent` and the times in `preprocessed` are `time.monotonic()` seconds. The times in `served`
    count from the runtime's origin."""

    number: int
    model: str
    input: str  # the name of the file or sentence that it sends
    arrival: float
    sent: float | None  # None if the run ended before
    preprocessed: Preprocessed | None
    request_id: int | None  # the runtime's id, if the request was served
    served: Served | None
    execute_s: float
    error: str | None
    max_difference: float | None  # from the reference; None if it was not preprocessed in this run
    equal: bool | None


@dataclass(frozen=True, slots=True)
class Run:
    """The records and results of one live run.

    The times of `executions` count from `origin`, a `time.monotonic()` value."""

    preprocessor: str
    policy: str
    origin: float
    records: tuple[Record, ...]
    executions: tuple[Execution, ...]
    result: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.preprocessor} + {self.policy}"

    def latencies_s(self, *, from_tensor: bool = False) -> NDArray[np.float64]:
        """Return the latencies of the finished requests: from the planned arrival on, or from the tensor on."""
        return np.array(
            [
                record.served.finished - (record.served.queued if from_tensor else record.served.arrival)
                for record in self.records
                if record.served is not None
            ]
        )

    def breakdown_ms(self) -> dict[str, float | None]:
        """Return the mean time that finished requests spend in each of PARTS. The parts add up to the latency.

        sent_late: from the planned arrival until the request is sent.
        cu_wait: until a CU or a CPU thread takes it.
        preprocess: in the CU or thread, and on the way into a slot.
        queue: in the batcher.
        batch: the hand-over of the task and the gathering of its tensors. It includes waits between node-level tasks.
        execute: in the network."""
        parts: dict[str, list[float]] = {part: [] for part in PARTS}
        for record in self.records:
            served = record.served
            if served is None or record.sent is None:
                continue
            begun = record.sent if record.preprocessed is None else record.preprocessed.started
            parts["sent_late"].append(record.sent - record.arrival)
            parts["cu_wait"].append(begun - record.sent)
            parts["preprocess"].append(self.origin + served.queued - begun)
            parts["queue"].append(served.started - served.queued)
            parts["batch"].append(served.finished - served.started - record.execute_s)
            parts["execute"].append(record.execute_s)
        return {name: percentiles_ms(seconds)["mean"] for name, seconds in parts.items()}


class _ArrivalTimes:
    """A future for each request, which is set at the planned arrival `at[i]` (`time.monotonic()` seconds, rising).

    The futures are set a few hundredths of a millisecond late."""

    def __init__(self, at: Sequence[float]) -> None:
        loop = asyncio.get_running_loop()
        self.futures: list[asyncio.Future[None]] = [loop.create_future() for _ in at]
        self._at = at
        self._next = 0
        self._timer = PreciseTimer(self._set_due)
        self._set_due()

    def _set_due(self) -> None:
        now = time.monotonic()
        while self._next < len(self._at) and self._at[self._next] <= now:
            if not self.futures[self._next].done():  # the request may be cancelled
                self.futures[self._next].set_result(None)
            self._next += 1
        if self._next < len(self._at):
            self._timer.set(self._at[self._next])

    def close(self) -> None:
        self._timer.close()


async def run_arrivals(
    preprocessor: str,
    policy: str,
    runtime: Runtime,
    executions: Sequence[Execution],
    sources: Mapping[str, Source],
    arrivals: Arrivals,
    *,
    seed: int,
    slo_s: float,
    drain_timeout_s: float,
    on_answer: Callable[[str, str, Any], None],
    on_done: Callable[[], None],
) -> Run:
    """Send request i at `arrivals.at[i]` from now, with the input that its model's source has for it, and wait for all
    answers.

    A request that fails leaves a record with its error, and the others go on. A request without an answer
    `drain_timeout_s` after the last arrival has failed. A tensor that was made in this run is compared with its
    reference after the request has ended, so that its latency does not contain the comparison.

    Args:
        executions: the list that `runtime` appends its executions to.
        on_answer: called with the model, the name of the input and the outputs of each finished request.
        on_done: called at the end of each request."""
    origin = time.monotonic()
    planned = [origin + float(at) for at in arrivals.at]
    end = planned[-1] + drain_timeout_s
    arrival_times = _ArrivalTimes(planned)
    ledger = Ledger()  # counts whole requests; the runtime's own ledger starts after preprocessing

    async def request(number: int) -> Record:
        model, arrival = arrivals.models[number], planned[number]
        source = sources[model]
        name = source.name(number)
        at = arrival - runtime.origin
        whole = Request(number, model, at, at + slo_s)
        ledger.submit(whole)
        sent = preprocessed = inference = error = None
        try:
            async with asyncio.timeout_at(end):  # asyncio's clock is time.monotonic
                await arrival_times.futures[number]
                sent = time.monotonic()
                value, preprocessed = await source.value(number)
                inference = await runtime.infer(
                    model, value, arrival=at, deadline=whole.deadline, **source.options(number)
                )
            ledger.finish(whole)
            on_answer(model, name, inference.outputs)
        except TimeoutError:
            error = f"not answered within {drain_timeout_s:g} s of the last arrival"
            ledger.fail(whole)
        except Overloaded as raised:
            error = f"shed: {raised}"
            ledger.turn_away(whole)
        except HeadraceError as raised:
            error = f"{type(raised).__name__}: {raised}"
            ledger.fail(whole)
        equal = difference = None
        if preprocessed is not None:
            equal, difference = source.compare(number, preprocessed.tensor)
            preprocessed = replace(preprocessed, tensor=np.empty(0))  # a few hundred tensors take hundreds of megabytes
        on_done()
        return Record(
            number=number,
            model=model,
            input=name,
            arrival=arrival,
            sent=sent,
            preprocessed=preprocessed,
            request_id=None if inference is None else inference.request_id,
            served=None if inference is None else inference.served,
            execute_s=0.0 if inference is None else inference.execute_s,
            error=error,
            max_difference=difference,
            equal=equal,
        )

    tasks = [asyncio.create_task(request(number)) for number in range(len(planned))]
    try:
        records = await asyncio.gather(*tasks)
    finally:
        arrival_times.close()
        for task in tasks:
            task.cancel()
    ledger.check()
    statistics = runtime.statistics()
    result = summarize(
        ServedTimes.of([record.served for record in records if record.served is not None]),
        ledger,
        batch_size_mean=_mean_batch(executions),
        busy_s=statistics.busy_s,
        workers=runtime.workers,
        wall_s=time.monotonic() - origin,
        seed=seed,
    )
    result["arrival_late_ms"] = percentiles_ms([r.sent - r.arrival for r in records if r.sent is not None])
    result["reasons"] = dict(statistics.reasons)
    result["workers_lost"] = statistics.workers_lost
    result["models"] = {
        model: _of_model([r for r in records if r.model == model], [e for e in executions if e.task.model == model])
        for model in sources
    }
    return Run(preprocessor, policy, runtime.origin, tuple(records), tuple(executions), result)


def _of_model(records: Sequence[Record], executions: Sequence[Execution]) -> dict[str, object]:
    served = [record.served for record in records if record.served is not None]
    return {
        "requests": len(records),
        "finished": len(served),
        "latency_ms": percentiles_ms([times.finished - times.arrival for times in served]),
        "queue_ms": percentiles_ms([times.started - times.queued for times in served])["mean"],
        "batch_size_mean": _mean_batch(executions),
    }


def _mean_batch(executions: Sequence[Execution]) -> float | None:
    """Return the mean over node executions."""
    nodes = sum(execution.nodes for execution in executions)
    return sum(e.nodes * e.task.batch_size for e in executions) / nodes if nodes else None
