"""The service that both transports use: models by name, admission, preprocessing and records.

A request of n rows becomes n requests of the model's runtime and one answer. Admission counts rows, separately for each
model. A request that would exceed `max_queue` is refused at once, as a whole.

The deadline of a request is its arrival plus its `timeout`. Without a timeout it is the arrival plus the model's SLO,
times the `priority` if that is above 1. Priority 1 is the most urgent, and a request without a priority has it.

Example: with an SLO of 100 ms, a request of priority 3 has a deadline 300 ms after its arrival."""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from headrace.batching import BadInput, CorruptInput, HeadraceError, UsageError
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.reference import image_file
from headrace.host.live.results import Execution, Inference, Overloaded, TooLate
from headrace.host.live.tasks.interface import Read
from headrace.host.network.access import Access
from headrace.host.server.group import Group, OnStage, Preprocessors, ServedModel, groups_of, open_group
from headrace.host.server.observe.dashboard import Dashboard
from headrace.host.server.observe.metrics import Metrics
from headrace.host.server.observe.watch import RequestTrace, RowTrace, Snapshot, Watcher
from headrace.host.server.outputs import Outputs, placed
from headrace.host.server.outputs import Row as OutputsOfRow
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.messages import (
    OK,
    Draining,
    InferRequest,
    Output,
    RequestedOutput,
    outcome,
    served,
)
from headrace.host.server.repository import Repository
from headrace.host.server.rows import AUDIO, IMAGE, Row, outputs_by_name
from headrace.host.server.settings import ModelSettings

DRAIN_CHECK_S = 0.02  # time between two checks whether all requests are answered
LATE_S = 1.0  # a request is answered so long after its own timeout, even if a worker hangs
LOOP_CHECK_S = 0.05  # time between two measurements of the event loop's delay
MEND_CHECK_S = 0.1  # time between two checks for a stopped runtime, and at first between attempts to replace it
MAX_MEND_PAUSE_S = 6.0
NO_CU_ASKED = "NO_CU_ASKED"  # the reason of inputs that no CU was asked for, beside the status codes
RECOVERY_S = 60.0  # a server that has not replaced a stopped runtime after this time is not live
INLINE_BYTES = 1 << 20  # bytes of outputs that are joined in the event loop; more are joined in a thread

_log = logging.getLogger(__name__)


class Service:
    """Serve models, which may be loaded and unloaded at any time. Call `open` before the first request.

    Use it as an async context manager. The owner of the preprocessors closes them.

    Args:
        access: the clients that are served; only its token matters here.
        repository: the models that clients may load; None allows no loads.
        drain_s: time limit for requests in flight when a model is unloaded.
        watchers: receive every record, in addition to the service's own watchers.
        limits: limits on the work of a request."""

    def __init__(
        self,
        preprocessors: Preprocessors,
        *,
        access: Access | None = None,
        repository: Repository | None = None,
        drain_s: float = 30.0,
        on_stage: OnStage = lambda _: None,
        watchers: Sequence[Watcher] = (),
        limits: Limits | None = None,
    ) -> None:
        self.models: dict[str, ServedModel] = {}
        self.groups: list[Group] = []
        self.metrics = Metrics(self.snapshot)
        self.dashboard = Dashboard(self.snapshot)
        self._watchers: tuple[Watcher, ...] = (self.metrics, self.dashboard, *watchers)
        self.draining = False
        self.repository = repository
        self._preprocessors = preprocessors
        self._drain_s = drain_s
        self._on_stage = on_stage
        self._limits = limits or Limits()
        self._changing = asyncio.Lock()  # serializes loads and unloads
        self._changes: set[asyncio.Task[None]] = set()  # loads and unloads that have not ended
        self._broken_since = math.inf  # time since when a stopped runtime is not replaced
        self._loads: dict[str, set[asyncio.Task[None]]] = {}  # loads that an unload of the model cancels, by model
        self._access = access or Access()

    async def __aenter__(self) -> "Service":
        await self.dashboard.__aenter__()
        self._watching = [asyncio.create_task(self._watch_loop()), asyncio.create_task(self._mend())]
        return self

    async def _watch_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOP_CHECK_S
            await asyncio.sleep(LOOP_CHECK_S)
            self.metrics.loop_lag.observe(max(0.0, loop.time() - due))

    async def __aexit__(self, *_: object) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.wait(self._watching)
        await self.dashboard.__aexit__()
        await self.close()

    async def _mend(self) -> None:
        """Replace each group whose runtime stopped on an internal error by one that serves the same models.

        The pause between attempts grows while they fail, and while runtimes keep stopping."""
        pause_s = MEND_CHECK_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                broken = [group for group in self.groups if group.runtime.broken]
                if not broken:
                    self._broken_since = math.inf
                    pause_s = max(MEND_CHECK_S, pause_s / 2)
                    continue
                self._broken_since = min(self._broken_since, time.monotonic())
                pause_s = min(2 * pause_s, MAX_MEND_PAUSE_S)
                for group in broken:
                    await self._change(self._replace(group))
            except Exception as error:  # after any error the next attempt may succeed
                _log.warning("a stopped runtime cannot be replaced yet (%s); next attempt in %g s", error, pause_s)

    async def _replace(self, group: Group) -> None:
        async with self._changing:
            settings = [model.settings for model in group.models.values()]
            await self.open(settings)
            self.groups.remove(group)
            await group.close()
            _log.warning("the runtime of %s stopped and was replaced", ", ".join(own.name for own in settings))

    async def close(self) -> None:
        """End all loads, unloads and groups. Requests in flight are answered with RuntimeClosed."""
        for change in self._changes:
            change.cancel()
        if self._changes:
            await asyncio.wait(self._changes)
        while self.groups:
            await self.groups[-1].close()
            self.groups.pop()

    async def open(self, settings: Sequence[ModelSettings]) -> None:
        """Serve these models. Models whose settings agree share their workers. Raises UsageError and WorkerLost."""
        for together in groups_of(settings):
            names = [model.name for model in together]
            for name in names:
                self.metrics.add(name)
                self.dashboard.add(name)
            suffix = f" ({', '.join(names)})" if self.groups else ""
            group = await open_group(together, self._preprocessors, self._on_stage, self._executed, suffix)
            self.groups.append(group)
            self.models.update(group.models)

    async def load(self, name: str) -> None:
        """Serve this model of the repository on workers of its own.

        A model that is already served is loaded again. The former one serves until the new one is ready. The load
        continues if the caller is cancelled. Raises UnknownModel and UsageError."""
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
                except Exception as error:  # the user's own network may raise anything
                    raise UsageError(f"model {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
            if former is not None:
                await self._retire(former)
        finally:
            self._changing.release()

    @contextmanager
    def _ended_by_unload(self, name: str) -> Iterator[None]:
        """Allow an unload of the model to cancel the current task inside this context."""
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
        """Stop serving this model. Requests in flight are answered if they end within `drain_s`.

        An unload first cancels unfinished loads of the model. It continues if the caller is cancelled. Raises
        UnknownModel and UsageError."""
        self._may_change()
        loads = list(self._loads.get(name, ()))
        for load in loads:
            load.cancel()
        await self._change(self._unload(name, loads))

    async def _unload(self, name: str, loads: Sequence[asyncio.Task[None]]) -> None:
        """Stop serving a model after the cancelled loads of it have ended."""
        if loads:
            await asyncio.wait(loads)
            if name not in self.models:
                return
        async with self._changing:
            model = self.model(name)
            del self.models[name]
            await self._retire(model)

    async def _change(self, change: Coroutine[Any, Any, None]) -> None:
        """Run a load or an unload as a task of the service, and wait for it. A caller that leaves does not stop it.

        Raises UsageError if the change is cancelled."""
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changed)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise UsageError("the load or unload was cancelled by an unload of the model or the server's end") from None

    def _changed(self, task: asyncio.Task[None]) -> None:
        self._changes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:  # the client may be gone
            _log.info("a load or unload of a model failed: %s", error)

    def _may_change(self) -> Repository:
        if self.repository is None:
            raise UsageError("this server cannot load or unload models; start it with --repository FOLDER")
        if self.draining:
            raise Draining("this server is shutting down; load the model on another server")
        return self.repository

    async def _retire(self, model: ServedModel) -> None:
        """Wait for the requests of a model that is no longer served. Its group ends with its last model."""
        await self._idle([model], self._drain_s)
        (group,) = (group for group in self.groups if group.models.get(model.name) is model)
        del group.models[model.name]
        if not group.models:
            await group.close()
            self.groups.remove(group)

    @property
    def live(self) -> bool:
        """Return whether the service works or may recover. It replaces a stopped runtime within RECOVERY_S."""
        return time.monotonic() - self._broken_since < RECOVERY_S

    @property
    def ready(self) -> bool:
        """Return whether the service accepts requests for every model."""
        return not self.draining and all(model.ready for model in self.models.values())

    def authorized(self, authorization: str | None) -> bool:
        """Return whether the header `Authorization` has the token, if there is one."""
        return self._access.authorized(authorization)

    def model(self, name: str, version: str = "") -> ServedModel:
        """Return the model that a client asks for. Raises UnknownModel."""
        return served(self.models, name, version)

    async def drain(self, timeout_s: float) -> bool:
        """Refuse new requests and wait for those in flight. Unfinished loads are cancelled.

        Returns False if requests are still in flight after `timeout_s`."""
        self.draining = True
        for load in [load for loads in self._loads.values() for load in loads]:
            load.cancel()
        return await self._idle([model for group in self.groups for model in group.models.values()], timeout_s)

    async def _idle(self, models: Sequence[ServedModel], timeout_s: float) -> bool:
        end = time.monotonic() + timeout_s
        while any(model.in_flight for model in models):
            if time.monotonic() > end:
                return False
            await asyncio.sleep(DRAIN_CHECK_S)
        return True

    def counted(self, trace: RequestTrace) -> "_Counted":
        """Return a context that reports its request to the watchers when it ends, with its outcome."""
        return _Counted(trace, self._watchers)

    def _executed(self, worker: str, origin: float, execution: Execution) -> None:
        for watcher in self._watchers:
            watcher.executed(worker, origin, execution)

    async def infer(self, request: InferRequest, trace: RequestTrace) -> list[Output]:
        """Return the outputs of a request. Raises the errors that `messages.outcome` knows.

        If the caller is cancelled, rows that have not begun are withdrawn."""
        model = self.model(request.model, request.version)
        trace.id = request.id
        requested = self._requested(model, request)
        rows = _rows(model, request, self._limits)
        pads = model.rows.encoded == AUDIO
        outputs = Outputs(model.specs, requested, len(rows), pads=pads, categories=model.categories)
        self._admit(model, len(rows))
        try:
            done = await self._all(model, rows, request, trace, outputs)
        finally:
            model.in_flight -= len(rows)
        found = [outputs_by_name(model.outputs, inference.outputs) for inference in done]
        if self._answer_bytes(requested, found) <= INLINE_BYTES:
            answer = outputs.joined(found)
        else:
            answer = await asyncio.to_thread(outputs.joined, found)
        return [placed(output) for output in answer]

    async def stream(self, request: InferRequest, trace: RequestTrace) -> AsyncIterator[list[Output]]:
        """Yield the outputs of a request, one answer for each token.

        Only a request with one row, for a model that decodes, is answered token by token. Any other request gets one
        answer."""
        model = self.model(request.model, request.version)
        trace.id = request.id
        requested = self._requested(model, request)
        rows = _rows(model, request, self._limits) if model.streams else []
        if len(rows) != 1 or any(output.classes for output in requested):
            yield await self.infer(request, trace)
            return
        tokens: asyncio.Queue[int | None] = asyncio.Queue()
        row = Row(rows[0].value, {**rows[0].options, "on_token": tokens.put_nowait})
        self._admit(model, 1)
        try:
            running = asyncio.ensure_future(self._all(model, [row], request, trace, None))
            running.add_done_callback(lambda _: tokens.put_nowait(None))
            try:
                while (token := await tokens.get()) is not None:
                    array = np.array([[token]])
                    yield [placed(Output(output, "INT64", array.shape, array)) for output in requested]
                await running
            finally:
                running.cancel()
        finally:
            model.in_flight -= 1

    def _requested(self, model: ServedModel, request: InferRequest) -> Sequence[RequestedOutput]:
        """Return the outputs that the request asks for, all if it names none. Raises BadInput."""
        if not request.outputs:
            return [RequestedOutput(spec.name, binary=request.binary) for spec in model.outputs]
        names = model.specs
        if unknown := [output.name for output in request.outputs if output.name not in names]:
            raise BadInput(f"model {model.name!r} has no output {unknown[0]!r}; ask for {', '.join(sorted(names))}")
        several = len(request.outputs) > 1
        if several and len({output.name for output in request.outputs}) < len(request.outputs):  # each is another copy
            name, count = Counter(output.name for output in request.outputs).most_common(1)[0]
            raise BadInput(f"the request asks for output {name!r} {count} times; ask for it once")
        return request.outputs

    def _answer_bytes(self, requested: Sequence[RequestedOutput], rows: Sequence[OutputsOfRow]) -> int:
        """Return the bytes of all outputs in the answer. Raises BadInput if there are too many."""
        size = sum(outputs[output.name].nbytes for outputs in rows for output in requested)
        if size > self._limits.answer:
            raise BadInput(
                f"the outputs have {size} bytes, over this server's limit of {self._limits.answer} for an answer; send "
                "fewer rows at a time, or ask for fewer outputs"
            )
        return size

    def _admit(self, model: ServedModel, rows: int) -> None:
        """Count rows as in flight. The caller takes them off again. Raises Overloaded and Draining."""
        max_queue = model.settings.max_queue
        if self.draining:
            raise Draining("this server is shutting down; send the request to another server")
        if model.in_flight + rows > max_queue:
            raise Overloaded(
                f"{model.in_flight} rows of model {model.name!r} are in flight, and its limit is {max_queue}; "
                "send fewer at a time"
            )
        model.in_flight += rows

    def _deadline(self, model: ServedModel, request: InferRequest, arrived: float) -> float:
        """Return the deadline of a request in seconds of the runtime's clock."""
        allowed_s = request.timeout_us / 1e6 or model.settings.slo_s * max(1, request.priority)
        return arrived - model.runtime.origin + allowed_s

    def _all(
        self,
        model: ServedModel,
        rows: Sequence[Row],
        request: InferRequest,
        trace: RequestTrace,
        outputs: Outputs | None,
    ) -> Coroutine[Any, Any, list[Inference]]:
        """Return a run of all rows. `outputs` reads their outputs; None copies them. The run raises TooLate."""
        deadline = self._deadline(model, request, trace.arrived)
        if not request.timeout_us:
            return self._all_rows(model, rows, trace, deadline, outputs)
        return self._in_time(model, rows, request, trace, deadline, outputs)

    async def _in_time(
        self,
        model: ServedModel,
        rows: Sequence[Row],
        request: InferRequest,
        trace: RequestTrace,
        deadline: float,
        outputs: Outputs | None,
    ) -> list[Inference]:
        """Run all rows until the timeout of their request. Raises TooLate."""
        left_s = request.timeout_us / 1e6 + LATE_S - (time.monotonic() - trace.arrived)
        try:
            async with asyncio.timeout(left_s):
                return await self._all_rows(model, rows, trace, deadline, outputs)
        except TimeoutError:
            raise TooLate(
                f"the request was not answered within its timeout of {request.timeout_us / 1e3:g} ms plus {LATE_S:g} "
                "s; give it more time, or check whether a worker hangs"
            ) from None

    async def _all_rows(
        self,
        model: ServedModel,
        rows: Sequence[Row],
        trace: RequestTrace,
        deadline: float,
        outputs: Outputs | None,
    ) -> list[Inference]:
        origin = model.runtime.origin
        if len(rows) == 1:
            row_trace = RowTrace(None, None, origin)
            trace.rows = [row_trace]
            read = None if outputs is None else outputs.reader(0)
            return [await self._row(model, rows[0], row_trace, trace.arrived, deadline, read)]
        trace.rows = [RowTrace(None, None, origin) for _ in rows]
        reads = [None if outputs is None else outputs.reader(number) for number in range(len(rows))]
        running = [
            asyncio.ensure_future(self._row(model, row, row_trace, trace.arrived, deadline, read))
            for row, row_trace, read in zip(rows, trace.rows, reads, strict=True)
        ]
        try:
            return await asyncio.gather(*running)
        finally:  # after the first error the other rows are useless
            for task in running:
                task.cancel()

    async def _row(
        self,
        model: ServedModel,
        row: Row,
        row_trace: RowTrace,
        arrived: float,
        deadline: float,
        read: Read | None,
    ) -> Inference:
        value, options = row
        if isinstance(value, bytes):
            assert model.preprocessor is not None
            model.preprocessing += 1
            try:
                row_trace.preprocessed = await model.preprocessor.process(value)
            finally:
                model.preprocessing -= 1
            value = model.rows.preprocessed(row_trace.preprocessed)
        row_trace.inference = await model.runtime.infer(
            model.name, value, arrival=arrived - model.runtime.origin, deadline=deadline, read=read, **options
        )
        row_trace.worker = model.workers[row_trace.inference.execution.worker]
        return row_trace.inference

    def snapshot(self) -> Snapshot:
        """Return the state of the server now."""
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
                if made.counters.refused:
                    fallbacks[NO_CU_ASKED] += made.counters.refused
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


class _Counted:
    """Report a request to the watchers when its context ends, with its outcome."""

    __slots__ = ("_trace", "_watchers")

    def __init__(self, trace: RequestTrace, watchers: Sequence[Watcher]) -> None:
        self._trace = trace
        self._watchers = watchers

    def __enter__(self) -> RequestTrace:
        return self._trace

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        trace = self._trace
        if error is None:
            trace.outcome = OK
        elif isinstance(error, Exception):
            trace.outcome = outcome(error)
            trace.error = str(error) if isinstance(error, HeadraceError) else repr(error)
        trace.answered = time.monotonic()
        trace.cut()
        for watcher in self._watchers:
            watcher.answered(trace)


def _rows(model: ServedModel, request: InferRequest, limits: Limits) -> list[Row]:
    """Return the rows of a request. The number of rows is checked first, because few bytes can claim any number.

    Raises BadInput and CorruptInput."""
    rows = model.rows.count(request.inputs)
    max_rows = model.settings.max_queue
    if rows > max_rows:
        raise BadInput(f"the request has {rows} rows; send model {model.name!r} at most {max_rows} at a time")
    converted = model.rows.of(request)
    if model.rows.encoded == IMAGE:
        pixels = sum(_pixels(row.value) for row in converted if isinstance(row.value, bytes))
        if pixels > limits.megapixels * 10**6:
            raise BadInput(
                f"the {len(converted)} images of the request have {pixels / 1e6:.0f} megapixels together; "
                f"send at most {limits.megapixels}"
            )
    return converted


def _pixels(file: bytes) -> int:
    """Return the number of pixels in the file's header, or 0 without a header. Decoding reports such a file."""
    try:
        return math.prod(image_file.size(file))
    except CorruptInput:
        return 0
