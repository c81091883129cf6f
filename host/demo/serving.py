"""One live run: timed arrivals of photos through a preprocessor and a runtime, with every request's times kept.

A request's latency counts from when it was planned to arrive. How late it was really sent is part of that, and told
apart: it is the demo's own slowness and nobody's service time.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError, Ledger, Request, Served, ServedTimes, percentiles_ms, summarize
from headrace.host.demo.equality import Prepared, compare
from headrace.host.dpu.preprocessor import Preprocessed, Preprocessor
from headrace.host.dpu.reference.image import ImageSpec
from headrace.host.live.machine.precise_timer import PreciseTimer
from headrace.host.live.results import Execution, Overloaded
from headrace.host.live.runtime import Runtime

PARTS = ("sent_late", "cu_wait", "preprocess", "queue", "batch", "execute")


class Progress(Protocol):
    """What the demo tells while it works; the command line draws it."""

    def stage(self, text: str, total: int | None = None) -> None: ...

    def step(self) -> None: ...


class Source(Protocol):
    """Where a network's inputs come from."""

    def name(self, number: int) -> str:
        """Of what request `number` sends."""
        ...

    async def value(self, number: int) -> tuple[Any, Preprocessed | None]:
        """What the request sends, and how it was preprocessed, if it was."""
        ...

    def options(self, number: int) -> Mapping[str, Any]:
        """Of `Tasks.admit`."""
        ...

    def compare(self, number: int, tensor: NDArray[Any]) -> tuple[bool, float]:
        """What was preprocessed, with its reference: whether they are equal, and the largest difference."""
        ...


@dataclass(frozen=True, slots=True)
class Photos:
    """Photo number i mod len(photos), through `preprocessor` or, without one, as the tensor that was made of it
    beforehand."""

    prepared: Prepared
    preprocessor: Preprocessor[ImageSpec] | None

    def _place(self, number: int) -> int:
        return number % len(self.prepared.photos)

    def name(self, number: int) -> str:
        return self.prepared.photos[self._place(number)].name

    async def value(self, number: int) -> tuple[Any, Preprocessed | None]:
        if self.preprocessor is None:
            return self.prepared.tensors[self._place(number)], None
        preprocessed = await self.preprocessor.process(self.prepared.photos[self._place(number)].jpeg)
        return preprocessed.tensor, preprocessed

    def options(self, number: int) -> Mapping[str, Any]:
        return {}

    def compare(self, number: int, tensor: NDArray[Any]) -> tuple[bool, float]:
        return compare(tensor, self.prepared.references[self._place(number)])


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Request i is for `models[i]` and arrives at `at[i]` (s from the run's begin, rising)."""

    at: NDArray[np.float64]
    models: Sequence[str]


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a run, without its tensors. `arrival`, as planned, `sent` and the times in `preprocessed` are
    `time.monotonic()` seconds, those in `served` count from the runtime's origin."""

    number: int
    model: str
    input: str  # the photo's name, or what else it sends
    arrival: float
    sent: float | None  # None: the run's end came first
    preprocessed: Preprocessed | None
    request_id: int | None  # the runtime's, of a request that was served
    served: Served | None
    execute_s: float
    error: str | None
    max_difference: float | None  # of the tensor from the reference; None if it was not preprocessed in this run
    equal: bool | None


@dataclass(frozen=True, slots=True)
class Run:
    """`origin` is the `time.monotonic()` value that the executions' times count from."""

    preprocessor: str
    policy: str
    origin: float
    records: tuple[Record, ...]
    executions: tuple[Execution, ...]
    result: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.preprocessor} + {self.policy}"

    def breakdown_ms(self) -> dict[str, float | None]:
        """Mean time of a finished request in each of PARTS, which add up to its latency.

        sent_late: until it was sent; cu_wait: until a CU or a CPU thread took it; preprocess: there, and into a slot;
        queue: in the batcher; batch: handing the task over, gathering its tensors and, between node-level tasks,
        standing back; execute: in the network."""
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


class _Gates:
    """Opens gate i at `at[i]` (`time.monotonic()` seconds, rising), a few hundredths of a millisecond late."""

    def __init__(self, at: Sequence[float]) -> None:
        loop = asyncio.get_running_loop()
        self.gates: list[asyncio.Future[None]] = [loop.create_future() for _ in at]
        self._at = at
        self._next = 0
        self._alarm = PreciseTimer(self._open)
        self._open()

    def _open(self) -> None:
        now = time.monotonic()
        while self._next < len(self._at) and self._at[self._next] <= now:
            if not self.gates[self._next].done():  # the one who waited may have gone
                self.gates[self._next].set_result(None)
            self._next += 1
        if self._next < len(self._at):
            self._alarm.set(self._at[self._next])

    def close(self) -> None:
        self._alarm.close()


async def run_arrivals(
    preprocessor: str,
    policy: str,
    runtime: Runtime,
    executions: Sequence[Execution],
    sources: Mapping[str, Source],
    arrivals: Arrivals,
    *,
    seed: int,
    sla_s: float,
    drain_timeout_s: float,
    on_answer: Callable[[str, str, Any], None],
    on_done: Callable[[], None],
) -> Run:
    """Send what its model's source has for request i at `arrivals.at[i]` from now, and wait for all answers.

    A request that fails is recorded with its error and the others go on; so is one that has no answer
    `drain_timeout_s` after the last arrival. A tensor that was made here is compared with its reference after its
    request has ended, so off its latency. `executions` is where `runtime` puts them; `on_answer` is called with model,
    name of the input and outputs."""
    origin = time.monotonic()
    planned = [origin + float(at) for at in arrivals.at]
    end = planned[-1] + drain_timeout_s
    gates = _Gates(planned)
    ledger = Ledger()  # of whole requests; the runtime's own starts after preprocessing

    async def request(number: int) -> Record:
        model, arrival = arrivals.models[number], planned[number]
        source = sources[model]
        name = source.name(number)
        at = arrival - runtime.origin
        whole = Request(number, model, at, at + sla_s)
        ledger.submit(whole)
        sent = preprocessed = inference = error = None
        try:
            async with asyncio.timeout_at(end):  # asyncio's clock is time.monotonic
                await gates.gates[number]
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
            preprocessed = replace(preprocessed, tensor=np.empty(0))  # a few hundred are hundreds of megabytes
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
        gates.close()
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
    """Over node executions."""
    nodes = sum(execution.nodes for execution in executions)
    return sum(e.nodes * e.task.batch_size for e in executions) / nodes if nodes else None
