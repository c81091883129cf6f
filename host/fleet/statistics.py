"""The statistics of a fleet: the answers of its front to /v2/models/stats and ModelStatistics.

Each replica counts only its own requests, so an answer of any one replica would be incomplete. Clients use the
difference of two answers, as Triton's perf_analyzer does around each of its windows. So the sums here never fall:
the counts of a replica that ended stay in them. HAProxy passes requests that have the token to two sockets of
this process."""

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
from headrace.host.network.browsers import BrowserGuard
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.messages import served
from headrace.host.server.transport.grpc.endpoints import SERVICE, abort, on_messages
from headrace.host.server.transport.http.connection import HttpServer, Request, Response
from headrace.host.server.transport.http.endpoints import as_json, error_response, refusal

# Time between two queries of the replicas without a request. If a replica is killed, its counts since the last query
# are lost.
QUERY_S: Final = 5.0
ASK_S: Final = 2.0  # time limit for the answer of a replica; without an answer its last counts remain
QUERIED_S: Final = 3 * ASK_S  # time limit of `query`, which may have to wait for an earlier query
START_S: Final = 10.0
THREADS: Final = 32  # replicas that are queried at a time

# One life of a replica's server: its supervisor's run, and the number of the state in which it was ready.
Life = tuple[str, int]
Model = dict[str, Any]  # an entry of model_stats, as `describe.model_statistics` makes it

_log = logging.getLogger(__name__)


class Counts:
    """Add up the counts of all lives, including those that have ended."""

    def __init__(self) -> None:
        self._now: dict[Life, Sequence[Model]] = {}
        self._ended: list[Model] = []

    def take(self, life: Life, models: Sequence[Model]) -> None:
        """Replace the counts of a life by newer ones."""
        self._now[life] = models

    def end(self, life: Life) -> None:
        """Move the counts of a life that has ended to the sum of ended ones."""
        self._ended = _summed((*self._ended, *self._now.pop(life, ())))

    def total(self) -> dict[str, Model]:
        """Return the sums of the models that are served now, by name."""
        names = {model["name"] for models in self._now.values() for model in models}
        sums = _summed(model for models in (*self._now.values(), self._ended) for model in models)
        return {model["name"]: model for model in sums if model["name"] in names}


def _summed(models: Iterable[Model]) -> list[Model]:
    sums: dict[str, Model] = {}
    for model in models:
        name = model["name"]
        sums[name] = _added(sums[name], model) if name in sums else model
    return list(sums.values())


def _added(one: Model, other: Model) -> Model:
    total = {**one, **other}
    for name in one.keys() & other.keys():
        match one[name]:
            case list(batches):
                by_size: dict[int, Model] = {}
                for batch in (*batches, *other[name]):
                    size = batch.get("batch_size", 0)
                    by_size[size] = _added(by_size[size], batch) if size in by_size else batch
                total[name] = [by_size[size] for size in sorted(by_size)]
            case dict(durations):
                total[name] = _added(durations, other[name])
            case int(number) if isinstance(other[name], int) and name != "batch_size":
                total[name] = max(number, other[name]) if name == "last_inference" else number + other[name]
    return total


def _checked(answer: Any) -> list[Model]:
    """Return the models in an answer to /v2/models/stats.

    Raises ValueError for any other answer. Another program may have taken the port of a replica that ended."""
    if not isinstance(answer, dict):
        raise ValueError("the answer is no JSON object")
    try:
        json_format.ParseDict(answer, pb.ModelStatisticsResponse())
    except json_format.ParseError as error:
        raise ValueError(str(error)) from None
    models: list[Model] = answer.get("model_stats", [])
    if not all("name" in model for model in models):
        raise ValueError("a model of the answer has no name")
    return models


class Statistics:
    """Query the replicas at each request and every QUERY_S, and answer with the sums.

    Its sockets lie in `folder` and are `sockets`, by transport. It has a thread of its own. Use it as a context
    manager.

    Args:
        token: the token of the replicas.
        secure: reach the replicas by TLS, without checking their certificates.
        guard: refuses requests of other sites' pages."""

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
        self._announced: Mapping[Life, str] = {}  # the lives that the other thread announced last
        self._begun = 0  # number of queries that have begun
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> "Statistics":
        """Start the thread and its servers. Raises HeadraceError if they cannot listen."""
        self._thread.start()
        try:
            self._started.result(START_S)
        except (OSError, RuntimeError, TimeoutError) as error:
            raise HeadraceError(f"{self.sockets['http'].parent}: {error}; set TMPDIR to another folder") from None
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has already ended
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(START_S)

    def replicas(self, lives: Mapping[Life, str]) -> None:
        """Announce the HTTP addresses, HOST:PORT, of all replicas that are ready now."""
        if lives != self._announced:
            self._announced = lives
            self._loop.call_soon_threadsafe(self._set, lives)

    def query(self) -> "concurrent.futures.Future[None]":
        """Query all replicas. The future is done within QUERIED_S."""
        return asyncio.run_coroutine_threadsafe(self._query(), self._loop)

    # ---- methods of its own thread ----

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._querying = asyncio.Lock()
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
                await self._query()
            except Exception:
                _log.exception("the statistics of the replicas cannot be queried")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUERY_S):
                    await self._end.wait()
        await by_http.stop(0.0)
        await by_grpc.stop(0.0)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _set(self, lives: Mapping[Life, str]) -> None:
        for life in self._lives.keys() - lives.keys():
            self._counts.end(life)
        self._lives = lives

    async def _query(self) -> None:
        """Query all replicas. The query begins after this method is called, but several callers may share one."""
        begun = self._begun
        async with self._querying:
            if self._begun > begun:  # another caller that also waited has made a query since
                return
            self._begun += 1
            queries = {
                asyncio.ensure_future(self._loop.run_in_executor(self._pool, self._ask, address)): life
                for life, address in self._lives.items()
            }
            if not queries:
                return
            done, late = await asyncio.wait(queries, timeout=ASK_S)
            for task in late:
                task.cancel()
            for task in done:
                if (models := task.result()) is not None and queries[task] in self._lives:
                    self._counts.take(queries[task], models)

    def _ask(self, address: str) -> list[Model] | None:
        """Return the counts of one replica, or None if it does not answer."""
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
            return _checked(json.loads(answer.read()))
        except (OSError, http.client.HTTPException, ValueError) as error:
            _log.debug("the replica at %s does not give its statistics: %s", address, error)
            return None
        finally:
            connection.close()

    async def _of(self, name: str, version: str) -> dict[str, Any]:
        """Return the statistics of the named model, or of all models without a name.

        Raises UnknownModel, and NoWorker if no replica has answered yet."""
        await self._query()
        models = self._counts.total()
        if not models:
            raise NoWorker("no replica is ready; try again")
        return {"model_stats": [served(models, name, version)] if name else list(models.values())}

    async def _by_http(self, request: Request) -> Response:
        try:
            if self._guard is not None:
                self._guard.check(request.method, request.headers)
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
