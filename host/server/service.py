"""The service that both transports use: models by name, which may be loaded and unloaded, and records.

`inference` holds the way of one request through its model."""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from headrace.batching import HeadraceError, UsageError
from headrace.host.dpu.driver import Dpu
from headrace.host.network.access import Access
from headrace.host.server.group import Group, OnStage, Preprocessors, ServedModel, groups_of, open_group
from headrace.host.server.inference import Counted, Inferences
from headrace.host.server.observe.dashboard import Dashboard
from headrace.host.server.observe.metrics import Metrics
from headrace.host.server.observe.watch import RequestTrace, Snapshot, Watcher, Watchers
from headrace.host.server.outputs import placed
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.messages import (
    Draining,
    InferRequest,
    Output,
    served,
)
from headrace.host.server.repository import Repository
from headrace.host.server.rows import Row
from headrace.host.server.settings import ModelSettings

DRAIN_CHECK_S = 0.02  # time between two checks whether all requests are answered
LOOP_CHECK_S = 0.05  # time between two measurements of the event loop's delay
MEND_CHECK_S = 0.1  # time between two checks for a stopped runtime, and at first between attempts to replace it
MAX_MEND_PAUSE_S = 6.0
NO_CU_ASKED = "NO_CU_ASKED"  # the reason of inputs that no CU was asked for, beside the status codes
RECOVERY_S = 60.0  # a server that has not replaced a stopped runtime after this time is not live

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
        self._watchers = Watchers(self.metrics, self.dashboard, *watchers)
        self.repository = repository
        self._preprocessors = preprocessors
        self._drain_s = drain_s
        self._on_stage = on_stage
        self._inferences = Inferences(limits or Limits())
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
            group = await open_group(together, self._preprocessors, self._on_stage, self._watchers.executed, suffix)
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
    def draining(self) -> bool:
        """Return whether the service refuses new requests because it ends."""
        return self._inferences.draining

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
        self._inferences.draining = True
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

    def counted(self, trace: RequestTrace) -> Counted:
        """Return a context that reports its request to the watchers when it ends, with its outcome."""
        return Counted(trace, self._watchers)

    def infer(self, request: InferRequest, trace: RequestTrace) -> Coroutine[Any, Any, list[Output]]:
        """Return a run of a request, which returns its outputs.

        Raises UnknownModel; the run raises the errors that `messages.outcome` knows. If the caller of the run is
        cancelled, rows that have not begun are withdrawn."""
        return self._inferences.run(self.model(request.model, request.version), request, trace)

    async def stream(self, request: InferRequest, trace: RequestTrace) -> AsyncIterator[list[Output]]:
        """Yield the outputs of a request, one answer for each token.

        Only a request with one row, for a model that decodes, is answered token by token. Any other request gets one
        answer."""
        model = self.model(request.model, request.version)
        trace.id = request.id
        requests = self._inferences
        requested = requests.requested(model, request)
        rows = requests.rows(model, request) if model.streams else []
        if len(rows) != 1 or any(output.classes for output in requested):
            yield await self.infer(request, trace)
            return
        tokens: asyncio.Queue[int | None] = asyncio.Queue()
        row = Row(rows[0].value, {**rows[0].options, "on_token": tokens.put_nowait})
        requests.admit(model, 1)
        try:
            running = asyncio.ensure_future(requests.all(model, [row], request, trace, None))
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
