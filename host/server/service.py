"""What both transports stand on: models by name, with admission, preprocessing and counting.

A request of n rows is n requests of its model's runtime and one answer. Admission is by model and in rows: beyond
`max_queue` a request is refused at once, as a whole. A deadline is the request's `timeout` from its arrival; without
one it is the model's SLO, times `priority` where that is given: 1 is the most urgent, as everything without a priority
is.
"""

import asyncio
import hmac
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput, CorruptInput, HeadraceError, UsageError
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.reference import image_file
from headrace.host.live.results import Execution, Inference, Overloaded, TooLate
from headrace.host.server.group import Group, OnStage, Preprocessors, ServedModel, groups_of, open_group
from headrace.host.server.observe.dashboard import Live
from headrace.host.server.observe.metrics import Metrics
from headrace.host.server.observe.watch import RequestTrace, RowVisit, Snapshot, Watcher
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.messages import (
    BYTES,
    DATATYPE_OF,
    OK,
    Draining,
    InferRequest,
    Output,
    RequestedOutput,
    classification,
    outcome,
    served,
)
from headrace.host.server.repository import Repository
from headrace.host.server.rows import AUDIO, IMAGE, Row, Tensors, outputs_by_name
from headrace.host.server.settings import ModelSettings

DRAIN_LOOK_S = 0.02
LATE_S = 1.0  # beyond a request's own timeout, after which it is answered even where a worker hangs
LOOP_LOOK_S = 0.05  # between two looks at how late the event loop is
MEND_LOOK_S = 0.1  # between two looks whether a runtime has stopped; at first also between two attempts to replace it
LONGEST_MEND_PAUSE_S = 6.0
RECOVERY_S = 60.0  # after which a server that has not replaced a runtime is not live
AT_ONCE = 1 << 20  # bytes of outputs that are joined while nobody else is served; more in a thread

_log = logging.getLogger(__name__)


class Service:
    """The models that are served, which come and go: `open` them before the first request. Use as an async context
    manager around that; the preprocessors are their owner's to close. `token`, if there is one, is what requests must
    bring; `repository` has the models that may be loaded, None where none may; `limits` bound the
    work of a request; `watchers` are told of all, beside the service's own."""

    def __init__(
        self,
        preprocessors: Preprocessors,
        *,
        token: str | None = None,
        repository: Repository | None = None,
        drain_s: float = 30.0,
        on_stage: OnStage = lambda _: None,
        watchers: Sequence[Watcher] = (),
        limits: Limits | None = None,
    ) -> None:
        self.models: dict[str, ServedModel] = {}
        self.groups: list[Group] = []
        self.metrics = Metrics(self.standing)
        self.live_page = Live(self.standing)
        self._watchers: tuple[Watcher, ...] = (self.metrics, self.live_page, *watchers)
        self.draining = False
        self.repository = repository
        self._preprocessors = preprocessors
        self._drain_s = drain_s
        self._on_stage = on_stage
        self._limits = limits or Limits()
        self._changing = asyncio.Lock()  # models are loaded and unloaded one after the other
        self._changes: set[asyncio.Task[None]] = set()  # the loads and unloads that were asked for and have not ended
        self._broken_since = math.inf  # of a runtime that has stopped and is not replaced
        self._loads: dict[str, set[asyncio.Task[None]]] = {}  # those of them that an unload ends, by model
        self._token = None if token is None else token.encode()

    async def __aenter__(self) -> "Service":
        await self.live_page.__aenter__()
        self._watching = [asyncio.create_task(self._watch_loop()), asyncio.create_task(self._mend())]
        return self

    async def _watch_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOP_LOOK_S
            await asyncio.sleep(LOOP_LOOK_S)
            self.metrics.loop_lag.observe(max(0.0, loop.time() - due))

    async def __aexit__(self, *_: object) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.wait(self._watching)
        await self.live_page.__aexit__()
        await self.close()

    async def _mend(self) -> None:
        """Replace each group whose runtime has stopped on an error of its own by one that serves the same models.

        Attempts become rarer while they fail, or while runtimes go on to stop."""
        pause_s = MEND_LOOK_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                broken = [group for group in self.groups if group.runtime.broken]
                if not broken:
                    self._broken_since = math.inf
                    pause_s = max(MEND_LOOK_S, pause_s / 2)
                    continue
                self._broken_since = min(self._broken_since, time.monotonic())
                pause_s = min(2 * pause_s, LONGEST_MEND_PAUSE_S)
                for group in broken:
                    await self._change(self._replace(group))
            except Exception as error:  # whatever it is, the next attempt may find the machine well
                _log.warning("a runtime that stopped is not replaced yet (%s); tried again in %g s", error, pause_s)

    async def _replace(self, group: Group) -> None:
        async with self._changing:
            settings = [model.settings for model in group.models.values()]
            await self.open(settings)
            self.groups.remove(group)
            await group.close()
            _log.warning("the runtime of %s stopped, and another one serves", ", ".join(own.name for own in settings))

    async def close(self) -> None:
        """Requests that are in flight are answered with RuntimeClosed, and loads and unloads end where they are."""
        for change in self._changes:
            change.cancel()
        if self._changes:
            await asyncio.wait(self._changes)
        while self.groups:
            await self.groups[-1].close()
            self.groups.pop()

    async def open(self, settings: Sequence[ModelSettings]) -> None:
        """Serve these models; those that agree share their workers. Raises UsageError and WorkerLost."""
        for together in groups_of(settings):
            names = [model.name for model in together]
            for name in names:
                self.metrics.add(name)
                self.live_page.add(name)
            suffix = f" ({', '.join(names)})" if self.groups else ""
            group = await open_group(together, self._preprocessors, self._on_stage, self._executed, suffix)
            self.groups.append(group)
            self.models.update(group.models)

    async def load(self, name: str) -> None:
        """Serve this model of the repository, on workers of its own; one that is served already is loaded anew, and
        serves as it was until that is done. When the caller is cancelled the load goes on. Raises UnknownModel and
        UsageError."""
        await self._change(self._load(self._may_change(), name))

    async def _load(self, repository: Repository, name: str) -> None:
        with self._ended_by_unload(name):
            await self._changing.acquire()
        try:
            with self._ended_by_unload(name):
                settings = await asyncio.to_thread(repository.settings, name)
                former = self.models.get(name)
                try:
                    await self.open([settings])
                except HeadraceError:
                    raise
                except Exception as error:  # of a user's own network
                    raise UsageError(f"model {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
            if former is not None:
                await self._retire(former)
        finally:
            self._changing.release()

    @contextmanager
    def _ended_by_unload(self, name: str) -> Iterator[None]:
        """Let an unload of the model cancel the current task while this lasts."""
        task = asyncio.current_task()
        assert task is not None
        loads = self._loads.setdefault(name, set())
        loads.add(task)
        try:
            yield
        finally:
            loads.discard(task)
            if not loads:
                self._loads.pop(name, None)

    async def unload(self, name: str) -> None:
        """Serve this model no more; answers what is in flight, within the bound of `drain`. A load of it that has not
        ended is ended first. When the caller is cancelled it goes on. Raises UnknownModel and UsageError."""
        self._may_change()
        loads = list(self._loads.get(name, ()))
        for load in loads:
            load.cancel()
        await self._change(self._unload(name, loads))

    async def _unload(self, name: str, loads: Sequence[asyncio.Task[None]]) -> None:
        """Serve a model no more, when the loads of it that were ended have ended."""
        if loads:
            await asyncio.wait(loads)
            if name not in self.models:
                return
        async with self._changing:
            model = self.model(name)
            del self.models[name]
            await self._retire(model)

    async def _change(self, change: Coroutine[Any, Any, None]) -> None:
        """Run a load or an unload as the service's own task, and wait for it. A caller that leaves does not stop it.
        Raises UsageError if the change is ended."""
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changed)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise UsageError("this was ended before it was done, by an unload or by the server's end") from None

    def _changed(self, task: asyncio.Task[None]) -> None:
        self._changes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:  # who asked for it may be gone
            _log.info("a change of the models failed: %s", error)

    def _may_change(self) -> Repository:
        if self.repository is None:
            raise UsageError("this server loads and unloads no models; start it with --repository FOLDER")
        if self.draining:
            raise Draining("this server is about to end; load the model on another")
        return self.repository

    async def _retire(self, model: ServedModel) -> None:
        """The model has no name any more. Its workers end with the last model that they serve."""
        await self._idle([model], self._drain_s)
        (group,) = (group for group in self.groups if group.models.get(model.name) is model)
        del group.models[model.name]
        if not group.models:
            await group.close()
            self.groups.remove(group)

    @property
    def live(self) -> bool:
        """Tell whether the service works, or may recover: a runtime that stopped is replaced within RECOVERY_S."""
        return time.monotonic() - self._broken_since < RECOVERY_S

    @property
    def ready(self) -> bool:
        """Whether it makes sense to send requests."""
        return not self.draining and all(model.ready for model in self.models.values())

    def authorized(self, authorization: str | None) -> bool:
        """Return whether the header `Authorization` has the token. The scheme may be in any case (RFC 9110, 11.1)."""
        if self._token is None:
            return True
        scheme, _, token = (authorization or "").partition(" ")
        return hmac.compare_digest(token.lstrip(" ").encode(), self._token) and scheme.lower() == "bearer"

    def model(self, name: str, version: str = "") -> ServedModel:
        """Raises UnknownModel."""
        return served(self.models, name, version)

    async def drain(self, bound_s: float) -> bool:
        """Take no more requests, and wait for those that are here; False if some are still here after `bound_s`. Loads
        that have not ended are ended."""
        self.draining = True
        for load in [load for loads in self._loads.values() for load in loads]:
            load.cancel()
        return await self._idle([model for group in self.groups for model in group.models.values()], bound_s)

    async def _idle(self, models: Sequence[ServedModel], bound_s: float) -> bool:
        end = time.monotonic() + bound_s
        while any(model.in_flight for model in models):
            if time.monotonic() > end:
                return False
            await asyncio.sleep(DRAIN_LOOK_S)
        return True

    @contextmanager
    def counted(self, visit: RequestTrace) -> Iterator[RequestTrace]:
        """Tells the watchers of the request for which this runs, by how it ends."""
        try:
            yield visit
            visit.outcome = OK
        except Exception as error:
            visit.outcome = outcome(error)
            visit.error = str(error) if isinstance(error, HeadraceError) else repr(error)
            raise
        finally:
            visit.answered = time.monotonic()
            visit.cut()
            for watcher in self._watchers:
                watcher.answered(visit)

    def _executed(self, worker: str, origin: float, execution: Execution) -> None:
        for watcher in self._watchers:
            watcher.executed(worker, origin, execution)

    async def infer(self, request: InferRequest, visit: RequestTrace) -> list[Output]:
        """Raises what `protocol.outcome` knows. A caller that is cancelled takes out what has not begun."""
        model = self.model(request.model, request.version)
        visit.id = request.id
        wanted = self._wanted(model, request)
        rows = _rows(model, request, self._limits)
        with self._admitted(model, len(rows)):
            done = await self._all(model, rows, request, visit)
        found = [outputs_by_name(model.outputs, inference.outputs) for inference in done]
        if self._answer_bytes(wanted, found) <= AT_ONCE:
            return _joined(model, wanted, found)
        return await asyncio.to_thread(_joined, model, wanted, found)

    async def stream(self, request: InferRequest, visit: RequestTrace) -> AsyncIterator[list[Output]]:
        """The same, where the model decodes and the request has one row: each token as it comes. All in one, else."""
        model = self.model(request.model, request.version)
        visit.id = request.id
        wanted = self._wanted(model, request)
        rows = _rows(model, request, self._limits) if model.streams else []
        if len(rows) != 1 or any(output.classes for output in wanted):
            yield await self.infer(request, visit)
            return
        tokens: asyncio.Queue[int | None] = asyncio.Queue()
        row = Row(rows[0].value, {**rows[0].options, "on_token": tokens.put_nowait})
        with self._admitted(model, 1):
            running = asyncio.ensure_future(self._all(model, [row], request, visit))
            running.add_done_callback(lambda _: tokens.put_nowait(None))
            try:
                while (token := await tokens.get()) is not None:
                    yield [Output(output, "INT64", np.array([[token]])) for output in wanted]
                await running
            finally:
                running.cancel()

    def _wanted(self, model: ServedModel, request: InferRequest) -> Sequence[RequestedOutput]:
        names = {spec.name for spec in model.outputs}
        if unknown := [output.name for output in request.outputs if output.name not in names]:
            raise BadInput(f"model {model.name!r} has no output {unknown[0]!r}; it gives {', '.join(sorted(names))}")
        asked = Counter(output.name for output in request.outputs)
        if twice := [name for name, count in asked.items() if count > 1]:  # each would be a copy of its own
            raise BadInput(f"output {twice[0]!r} was asked for {asked[twice[0]]} times; ask for it once")
        return request.outputs or [RequestedOutput(spec.name, binary=request.binary) for spec in model.outputs]

    def _answer_bytes(self, wanted: Sequence[RequestedOutput], rows: Sequence[Tensors]) -> int:
        """Return the bytes of all outputs that the answer is made of. Raises BadInput if they are too many."""
        size = sum(outputs[output.name].nbytes for outputs in rows for output in wanted)
        if size > self._limits.answer:
            raise BadInput(
                f"the outputs have {size} bytes; this server takes at most {self._limits.answer} for an answer: send "
                "fewer rows at a time, or ask for fewer outputs"
            )
        return size

    @contextmanager
    def _admitted(self, model: ServedModel, rows: int) -> Iterator[None]:
        """Raises Overloaded and Draining."""
        most = model.settings.max_queue
        if self.draining:
            raise Draining("this server is about to end; send the request to another")
        if model.in_flight + rows > most:
            raise Overloaded(
                f"{model.in_flight} rows of model {model.name!r} are in flight, and at most "
                f"{most} may be; send fewer at a time"
            )
        model.in_flight += rows
        try:
            yield
        finally:
            model.in_flight -= rows

    def _deadline(self, model: ServedModel, request: InferRequest, arrived: float) -> float:
        """In seconds of the runtime's clock."""
        bound_s = request.timeout_us / 1e6 or model.settings.slo_s * max(1, request.priority)
        return arrived - model.runtime.origin + bound_s

    async def _all(
        self, model: ServedModel, rows: Sequence[Row], request: InferRequest, visit: RequestTrace
    ) -> list[Inference]:
        deadline = self._deadline(model, request, visit.arrived)
        left_s = request.timeout_us / 1e6 + LATE_S - (time.monotonic() - visit.arrived) if request.timeout_us else None
        try:
            async with asyncio.timeout(left_s):
                return await self._all_rows(model, rows, request, visit, deadline)
        except TimeoutError:
            raise TooLate(
                f"the request was not answered within its timeout of {request.timeout_us / 1e3:g} ms and {LATE_S:g} s "
                "beyond; give it more time, or see whether a worker hangs"
            ) from None

    async def _all_rows(
        self, model: ServedModel, rows: Sequence[Row], request: InferRequest, visit: RequestTrace, deadline: float
    ) -> list[Inference]:
        visit.rows = [RowVisit(origin=model.runtime.origin) for _ in rows]
        if len(rows) == 1:
            return [await self._row(model, rows[0], visit.rows[0], visit.arrived, deadline)]
        running = [
            asyncio.ensure_future(self._row(model, row, told, visit.arrived, deadline))
            for row, told in zip(rows, visit.rows, strict=True)
        ]
        try:
            return await asyncio.gather(*running)
        finally:  # of the first error: the others are of no use
            for task in running:
                task.cancel()

    async def _row(self, model: ServedModel, row: Row, told: RowVisit, arrived: float, deadline: float) -> Inference:
        value = row.value
        if isinstance(value, bytes):
            assert model.preprocessor is not None
            model.preprocessing += 1
            try:
                told.preprocessed = await model.preprocessor.process(value)
            finally:
                model.preprocessing -= 1
            value = model.rows.preprocessed(told.preprocessed.tensor)
        told.inference = await model.runtime.infer(
            model.name, value, arrival=arrived - model.runtime.origin, deadline=deadline, **row.options
        )
        told.worker = model.workers[told.inference.execution.worker]
        return told.inference

    def standing(self) -> Snapshot:
        workers, waiting, running = [], Counter[str](), Counter[str]()
        arena: dict[str, tuple[int, int]] = {}
        lost = 0
        for group in self.groups:
            statistics = group.runtime.statistics()
            lost += statistics.workers_lost
            waiting.update(statistics.waiting)
            running.update(statistics.running)
            arena.update(group.tasks.arena_use())
            states = zip(group.workers, group.runtime.worker_states(), strict=True)
            workers += [state._replace(name=name) for name, state in states]
        fallbacks = Counter[str]()
        for made in self._preprocessors.all():
            if isinstance(made, Dpu):
                fallbacks.update({status.name: count for status, count in made.counters.unsupported.items()})
        damaged = sum(made.damaged for made in self._preprocessors.all())
        models = self.models.items()
        return Snapshot(
            workers,
            lost,
            self._preprocessors.states(),
            {name: model.in_flight for name, model in models},
            {name: model.preprocessing for name, model in models},
            waiting,
            running,
            arena,
            fallbacks,
            damaged,
        )


def _rows(model: ServedModel, request: InferRequest, limits: Limits) -> list[Row]:
    """Return the rows of a request, after a check of how many they are: few bytes can claim any number.

    Raises BadInput and CorruptInput."""
    rows = max((len(array) for array in request.inputs.values() if array.ndim), default=0)
    most = model.settings.max_queue
    if rows > most:
        raise BadInput(f"{rows} rows in a request; model {model.name!r} takes at most {most} at a time")
    found = model.rows.of(request)
    if model.rows.encoded == IMAGE:
        pixels = sum(_pixels(row.value) for row in found if isinstance(row.value, bytes))
        if pixels > limits.megapixels * 10**6:
            raise BadInput(
                f"{len(found)} photos of {pixels / 1e6:.0f} megapixels together; send at most {limits.megapixels}"
            )
    return found


def _pixels(file: bytes) -> int:
    """Return the pixels that the file's header names, or 0 without a header. Decoding reports such a file."""
    try:
        return math.prod(image_file.size(file))
    except CorruptInput:
        return 0


def _as_long_as_the_longest(arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """With zeros behind those that are shorter."""
    shape = np.max([array.shape for array in arrays], 0)
    return [
        np.pad(array, [(0, most - size) for most, size in zip(shape, array.shape, strict=True)]) for array in arrays
    ]


def _joined(model: ServedModel, wanted: Sequence[RequestedOutput], rows: Sequence[Tensors]) -> list[Output]:
    return [_output(model, each, [outputs[each.name] for outputs in rows]) for each in wanted]


def _output(model: ServedModel, wanted: RequestedOutput, arrays: list[NDArray[Any]]) -> Output:
    """Return one output of all rows. Raises BadInput for rows that do not fit together."""
    if len({array.shape for array in arrays}) > 1:
        if model.rows.encoded != AUDIO:
            raise BadInput(f"output {wanted.name!r} is not as long for every row; send rows of one length together")
        arrays = _as_long_as_the_longest(arrays)  # such models tell beside it how much of each counts
    array = np.stack(arrays) if len(arrays) > 1 else arrays[0][None]
    if wanted.classes:
        return Output(wanted, BYTES, classification(array, wanted.classes, model.categories))
    return Output(wanted, DATATYPE_OF[str(array.dtype)], array)
