"""The statistics of a fleet: what its front answers to /v2/models/stats and ModelStatistics.

Every replica counts for itself, and whichever answered would tell of itself alone. Clients take the difference of two
answers, as Triton's perf_analyzer does around each of its windows, so sums here never fall: what a replica has counted
stays when it ends. HAProxy sends these questions to two sockets of this process, and lets pass who has the token.
"""

import asyncio
import concurrent.futures
import contextlib
import http.client
import json
import logging
import ssl
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import grpc
from google.protobuf import json_format
from grpc import aio
from tritonclient.grpc import service_pb2 as pb

from headrace.batching import HeadraceError
from headrace.host.live.results import NoWorker
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.messages import served
from headrace.host.server.transport.grpc.endpoints import SERVICE, abort, on_messages
from headrace.host.server.transport.http.browsers import BrowserGuard
from headrace.host.server.transport.http.connection import HttpServer, Request, Response
from headrace.host.server.transport.http.endpoints import as_json, error_response, refusal

LOOK_S: Final = 5.0  # between looks that nobody has asked for: what a killed replica counted since the last one is lost
ASK_S: Final = 2.0  # for a replica to tell; then what it told before counts
LOOKED_S: Final = 3 * ASK_S  # for a look at all of them, behind one that has begun
START_S: Final = 10.0
THREADS: Final = 32  # replicas that are asked at a time

Life = tuple[str, int]  # of a replica's server: its supervisor's run, and the number of the state in which it was ready
Model = dict[str, Any]  # an entry of model_stats, as `describe.model_statistics` makes it

_log = logging.getLogger(__name__)


class Counts:
    """Sums over all lives, of those that have ended too."""

    def __init__(self) -> None:
        self._now: dict[Life, Sequence[Model]] = {}
        self._ended: list[Model] = []

    def take(self, life: Life, models: Sequence[Model]) -> None:
        """What it has counted up to now."""
        self._now[life] = models

    def end(self, life: Life) -> None:
        self._ended = _summed((*self._ended, *self._now.pop(life, ())))

    def total(self) -> dict[str, Model]:
        """By name, of the models that are served now."""
        names = {model["name"] for models in self._now.values() for model in models}
        found = _summed(model for models in (*self._now.values(), self._ended) for model in models)
        return {model["name"]: model for model in found if model["name"] in names}


def _summed(models: Iterable[Model]) -> list[Model]:
    found: dict[str, Model] = {}
    for model in models:
        name = model["name"]
        found[name] = _added(found[name], model) if name in found else model
    return list(found.values())


def _added(one: Model, other: Model) -> Model:
    found = {**one, **other}
    for name in one.keys() & other.keys():
        match one[name]:
            case list(batches):
                by_size: dict[int, Model] = {}
                for batch in (*batches, *other[name]):
                    size = batch.get("batch_size", 0)
                    by_size[size] = _added(by_size[size], batch) if size in by_size else batch
                found[name] = [by_size[size] for size in sorted(by_size)]
            case dict(durations):
                found[name] = _added(durations, other[name])
            case int(number) if isinstance(other[name], int) and name != "batch_size":
                found[name] = max(number, other[name]) if name == "last_inference" else number + other[name]
    return found


def _checked(found: Any) -> list[Model]:
    """Raises ValueError for what is no answer to /v2/models/stats, as of a stranger who has the port by now."""
    if not isinstance(found, dict):
        raise ValueError("no object")
    try:
        json_format.ParseDict(found, pb.ModelStatisticsResponse())
    except json_format.ParseError as error:
        raise ValueError(str(error)) from None
    models: list[Model] = found.get("model_stats", [])
    if not all("name" in model for model in models):
        raise ValueError("a model without a name")
    return models


class Statistics:
    """Asks the replicas, each time that somebody asks here and every LOOK_S. Its sockets are `sockets`, by transport,
    in `folder`, one of its own; `token` is the replicas'. With `secure` they are reached by TLS, and whose certificate
    they show is not looked at. `guard` keeps pages of other sites out. Use as a context manager; it has a thread of its
    own."""

    def __init__(self, folder: Path, token: str | None, secure: bool, guard: BrowserGuard | None = None) -> None:
        self.sockets = {name: folder / f"statistics-{name}.sock" for name in ("http", "grpc")}
        self._guard = guard
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._context: ssl.SSLContext | None = None
        if secure:
            self._context = ssl.create_default_context()
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE
        self._counts = Counts()
        self._lives: Mapping[Life, str] = {}
        self._told: Mapping[Life, str] = {}  # by the other thread
        self._begun = 0  # looks
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> "Statistics":
        """Raises HeadraceError if it cannot listen."""
        self._thread.start()
        try:
            self._started.result(START_S)
        except (OSError, RuntimeError, TimeoutError) as error:
            raise HeadraceError(f"{self.sockets['http'].parent}: {error}; set TMPDIR to another folder") from None
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(START_S)

    def replicas(self, lives: Mapping[Life, str]) -> None:
        """HOST:PORT, for HTTP, of all that are ready now."""
        if lives != self._told:
            self._told = lives
            self._loop.call_soon_threadsafe(self._set, lives)

    def look(self) -> "concurrent.futures.Future[None]":
        """Asks all of them. Done within LOOKED_S."""
        return asyncio.run_coroutine_threadsafe(self._look(), self._loop)

    # ---- on its own thread ----

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._looking = asyncio.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="statistics")
        by_http = HttpServer(self._by_http, refusal, Limits())
        by_grpc = aio.server()
        call = on_messages(self._by_grpc, pb.ModelStatisticsRequest)
        handlers = {"ModelStatistics": grpc.unary_unary_rpc_method_handler(_aborting(call))}
        by_grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        try:
            await by_http.start_at(self.sockets["http"])
            by_grpc.add_insecure_port(f"unix:{self.sockets['grpc']}")
            await by_grpc.start()
        except Exception as error:
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        while not self._end.is_set():
            try:
                await self._look()
            except Exception:
                _log.exception("the replicas' statistics are not to be had")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._end.wait()
        await by_http.stop(0.0)
        await by_grpc.stop(0.0)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _set(self, lives: Mapping[Life, str]) -> None:
        for life in self._lives.keys() - lives.keys():
            self._counts.end(life)
        self._lives = lives

    async def _look(self) -> None:
        """Returns behind a look at all replicas that began after this was called."""
        begun = self._begun
        async with self._looking:
            if self._begun > begun:  # somebody's who waited, too
                return
            self._begun += 1
            asked = {
                asyncio.ensure_future(self._loop.run_in_executor(self._pool, self._ask, address)): life
                for life, address in self._lives.items()
            }
            if not asked:
                return
            done, late = await asyncio.wait(asked, timeout=ASK_S)
            for task in late:
                task.cancel()
            for task in done:
                if (models := task.result()) is not None and asked[task] in self._lives:
                    self._counts.take(asked[task], models)

    def _ask(self, address: str) -> list[Model] | None:
        """None from one that does not tell."""
        host, _, port = address.rpartition(":")
        where = (host.strip("[]"), int(port))
        connection = (
            http.client.HTTPConnection(*where, timeout=ASK_S)
            if self._context is None
            else http.client.HTTPSConnection(*where, timeout=ASK_S, context=self._context)
        )
        try:
            connection.request("GET", "/v2/models/stats", headers=self._headers)
            answer = connection.getresponse()
            came = answer.read()
            return _checked(json.loads(came))
        except (OSError, http.client.HTTPException, ValueError) as error:
            _log.debug("%s does not tell its statistics: %s", address, error)
            return None
        finally:
            connection.close()

    async def _of(self, name: str, version: str) -> dict[str, Any]:
        """Of all models, where none is named. Raises UnknownModel, and NoWorker where no replica has told anything."""
        await self._look()
        found = self._counts.total()
        if not found:
            raise NoWorker("no replica is ready; try again")
        return {"model_stats": [served(found, name, version)] if name else list(found.values())}

    async def _by_http(self, request: Request) -> Response:
        try:
            if self._guard is not None:
                self._guard.check(request)
            match [unquote(part) for part in request.target.partition("?")[0].strip("/").split("/")]:
                case ["v2", "models", name, "versions", version, "stats"]:
                    return as_json(await self._of(name, version))
                case ["v2", "models", name, "stats"]:
                    return as_json(await self._of(name, ""))
                case _:
                    return as_json(await self._of("", ""))
        except Exception as error:
            return error_response(error)

    async def _by_grpc(self, request: Any) -> Any:
        return json_format.ParseDict(await self._of(request.name, request.version), pb.ModelStatisticsResponse())


def _aborting(call: Any) -> Any:
    async def run(message: bytes, context: Any) -> bytes | None:
        try:
            return bytes(await call(message, context))
        except Exception as error:
            await abort(context, error)
            return None

    return run
