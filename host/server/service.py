"""What both transports stand on: models by name over one runtime, with admission, preprocessing and counting.

All models share the workers and one policy, and so one runtime: it batches each model's requests by themselves and
gives the workers' time to all of them. (A policy for each model would need workers of its own for each.)

A request of n rows is n requests of the runtime and one answer. Admission is by model and in rows: beyond `max_queue`
a request is refused at once, as a whole. A deadline is the request's `timeout` from its arrival; without one it is the
model's SLO, times `priority` where that is given: 1 is the most urgent, as everything without a priority is.
"""

import asyncio
import hmac
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput, CorruptInput, Policy, UnknownModel
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import Preprocessor
from headrace.host.live.runtime import Inference, Overloaded, Runtime, Tasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.server.metrics import Gauges, Metrics
from headrace.host.server.protocol import (
    BYTES,
    CANCELLED,
    DATATYPE_OF,
    OK,
    VERSION,
    Draining,
    InferRequest,
    Output,
    Wanted,
    classification,
    outcome,
)
from headrace.host.workers.pool import WorkerPool

IMAGE = "IMAGE"  # the input of encoded photos
DRAIN_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class ServedModel:
    """`preprocessor` makes the one input of photos, None where it takes none. `sla_s` is its SLO."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sla_s: float
    categories: Sequence[str] | None = None
    preprocessor: Preprocessor | None = None

    @property
    def takes_photos(self) -> bool:
        return self.preprocessor is not None and all(spec.name != IMAGE for spec in self.inputs)


class Service:
    """Use as an async context manager, around a started pool; the pool, the tasks and the preprocessors are their
    owner's to close. `token`, if there is one, is what requests must bring."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        policy: Policy,
        pool: WorkerPool,
        tasks: Tasks,
        *,
        max_queue: int,
        drop_late: bool = False,
        token: str | None = None,
    ) -> None:
        self.models = {model.name: model for model in models}
        self.max_queue = max_queue
        self.metrics = Metrics(self.models, self._gauges)
        self.runtime = Runtime(policy, pool, tasks, drop_late=drop_late, on_execution=self.metrics.executed)
        self.draining = False
        self._in_flight = dict.fromkeys(self.models, 0)  # rows that are admitted and not answered
        self._token = None if token is None else token.encode()

    async def __aenter__(self) -> "Service":
        await self.runtime.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runtime.close()

    @property
    def ready(self) -> bool:
        """Whether it makes sense to send requests."""
        return not self.draining and self.runtime.statistics().workers_up > 0

    @property
    def needs_token(self) -> bool:
        return self._token is not None

    def authorized(self, authorization: str | None) -> bool:
        """Whether this is what the header `Authorization` must be."""
        if self._token is None:
            return True
        return hmac.compare_digest((authorization or "").encode(), b"Bearer " + self._token)

    def model(self, name: str, version: str = "") -> ServedModel:
        """Raises UnknownModel."""
        found = self.models.get(name)
        if found is None:
            raise UnknownModel.among(name, self.models)
        if version not in ("", VERSION):
            raise UnknownModel(f"model {name!r} has no version {version!r}; its version is {VERSION}")
        return found

    async def drain(self, bound_s: float) -> bool:
        """Take no more requests, and wait for those that are here; False if some are still here after `bound_s`."""
        self.draining = True
        end = time.monotonic() + bound_s
        while any(self._in_flight.values()):
            if time.monotonic() > end:
                return False
            await asyncio.sleep(DRAIN_LOOK_S)
        return True

    @contextmanager
    def counted(self, model: str, transport: str) -> Iterator[None]:
        """Counts the request for which this runs, by how it ends."""
        began = time.monotonic()
        ended = CANCELLED
        try:
            yield
            ended = OK
        except Exception as error:
            ended = outcome(error)
            raise
        finally:
            self.metrics.answered(model, transport, ended, time.monotonic() - began)

    async def infer(self, request: InferRequest) -> list[Output]:
        """Raises what `protocol.outcome` knows. A caller that is cancelled takes out what has not begun."""
        arrived = time.monotonic()
        model = self.model(request.model, request.version)
        wanted = request.outputs or [Wanted(spec.name, binary=request.binary) for spec in model.outputs]
        names = {spec.name for spec in model.outputs}
        if unknown := [output.name for output in wanted if output.name not in names]:
            raise BadInput(f"model {model.name!r} has no output {unknown[0]!r}; it gives {', '.join(sorted(names))}")
        rows = _rows(model, request.inputs)
        self._admit(model, len(rows))
        try:
            done = await self._all(model, rows, request, arrived)
        finally:
            self._in_flight[model.name] -= len(rows)
        return [_joined(model, output, done) for output in wanted]

    def _admit(self, model: ServedModel, rows: int) -> None:
        if self.draining:
            raise Draining("this server is about to end; send the request to another")
        if rows > self.max_queue:
            raise BadInput(f"{rows} rows in a request; this server takes at most {self.max_queue} at a time")
        if self._in_flight[model.name] + rows > self.max_queue:
            raise Overloaded(
                f"{self._in_flight[model.name]} rows of model {model.name!r} are in flight, and at most "
                f"{self.max_queue} may be; send fewer at a time"
            )
        self._in_flight[model.name] += rows

    async def _all(
        self, model: ServedModel, rows: Sequence["Row"], request: InferRequest, arrived: float
    ) -> list[Inference]:
        at = arrived - self.runtime.origin
        deadline = at + (request.timeout_us / 1e6 if request.timeout_us else model.sla_s * max(1, request.priority))
        if len(rows) == 1:
            return [await self._row(model, rows[0], arrived, deadline)]
        running = [asyncio.ensure_future(self._row(model, row, arrived, deadline)) for row in rows]
        try:
            return await asyncio.gather(*running)
        finally:  # of the first error: the others are of no use
            for task in running:
                task.cancel()

    async def _row(self, model: ServedModel, row: "Row", arrived: float, deadline: float) -> Inference:
        value: Any = row
        if isinstance(row, bytes):
            assert model.preprocessor is not None
            done = await model.preprocessor.process(row)
            self.metrics.preprocessed(model.name, arrived, done)
            value = done.tensor
        inference = await self.runtime.infer(
            model.name, value, arrival=arrived - self.runtime.origin, deadline=deadline
        )
        self.metrics.inferred(model.name, inference, time.time_ns() // 10**6)
        return inference

    def _gauges(self) -> Gauges:
        statistics = self.runtime.statistics()
        fallbacks: dict[str, int] = {}
        for dpu in {id(model.preprocessor): model.preprocessor for model in self.models.values()}.values():
            if isinstance(dpu, Dpu):
                for status, count in dpu.counters.unsupported.items():
                    fallbacks[status.name] = fallbacks.get(status.name, 0) + count
        return Gauges(statistics.workers_up, statistics.workers_lost, dict(self._in_flight), fallbacks)


Row = bytes | Mapping[str, NDArray[Any]]  # a photo, or the model's own inputs


def _rows(model: ServedModel, inputs: Mapping[str, NDArray[Any]]) -> list[Row]:
    """What each row of a request gives the model. Raises BadInput and CorruptInput."""
    if not inputs:
        raise BadInput(f"model {model.name!r} was given no input")
    if IMAGE in inputs and model.takes_photos:
        return _photos(inputs)
    counts = {len(array) if array.ndim else 0 for array in inputs.values()}
    if len(counts) > 1 or not min(counts):
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
        raise BadInput(f"the first dimension of every input is the batch, 1 or more and alike; these are {shapes}")
    (count,) = counts
    return [{name: array[row] for name, array in inputs.items()} for row in range(count)]


def _photos(inputs: Mapping[str, NDArray[Any]]) -> list[Row]:
    photos = inputs[IMAGE]
    if len(inputs) > 1 or photos.dtype != object or photos.ndim not in (1, 2) or photos.shape[1:] not in ((), (1,)):
        raise BadInput(f"{IMAGE} is {BYTES} of shape [photos] or [photos, 1], and needs no other input")
    found: list[Row] = photos.ravel().tolist()
    if not found:
        raise BadInput(f"{IMAGE} holds no photo")
    for photo in found:
        assert isinstance(photo, bytes)
        # A library that reads dozens of formats shall see only these.
        if not (
            photo[:3] == b"\xff\xd8\xff" or photo[:8] == b"\x89PNG\r\n\x1a\n" or photo[:4] + photo[8:12] == b"RIFFWEBP"
        ):
            raise CorruptInput(f"{IMAGE} holds {len(photo)} bytes that are no JPEG, PNG or WebP file")
    return found


def _joined(model: ServedModel, wanted: Wanted, done: Sequence[Inference]) -> Output:
    arrays = [inference.outputs[wanted.name] for inference in done]
    if len({array.shape for array in arrays}) > 1:
        raise BadInput(f"output {wanted.name!r} is not as long for every row; send rows of one length together")
    array = np.stack(arrays) if len(arrays) > 1 else arrays[0][None]
    if wanted.classes:
        return Output(wanted, BYTES, classification(array, wanted.classes, model.categories))
    return Output(wanted, DATATYPE_OF[str(array.dtype)], array)
