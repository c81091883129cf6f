"""The Open Inference Protocol over HTTP: one connection a request in flight, requests as bytes that were made before.

The answer is parsed by llhttp and its body thrown away; only of what is not 200 the first bytes are kept."""

import asyncio
import contextlib
import http.client
import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

import httptools

from headrace.batching import UsageError
from headrace.host.bench.client import (
    ASK_S,
    Now,
    OnAnswer,
    Refused,
    RequestOptions,
    Secure,
    Statistics,
    Status,
    Unreachable,
)
from headrace.host.bench.inputs import BYTES, ModelMetadata, Place, Tensor, TensorMetadata, raw

CONNECT_S = 5.0
READY = 8  # connections that are open before the first request
SAID = 2000  # bytes of an answer's beginning, for its error

_STATUSES = {200: Status.OK, 408: Status.LATE, 429: Status.SHED, 503: Status.UNAVAILABLE, 504: Status.LATE}


@dataclass(frozen=True, slots=True)
class HttpTarget:
    host: str
    port: int
    token: str | None = None
    secure: Secure | None = None

    def metadata(self, model: str) -> ModelMetadata:
        server, found = self._asked("/v2"), self._asked(_path(model))
        try:
            return ModelMetadata(
                model,
                [TensorMetadata(each["name"], each["datatype"], tuple(each["shape"])) for each in found["inputs"]],
                [TensorMetadata(each["name"], each["datatype"], tuple(each["shape"])) for each in found["outputs"]],
                {"binary_tensor_data", "binary_data"} & set(server.get("extensions") or ()) != set(),
            )
        except (LookupError, TypeError, AttributeError) as error:
            raise Unreachable(f"{self}: its metadata are not as the protocol has them: {error!r}") from None

    def models(self) -> list[str]:
        try:
            return [str(each["name"]) for each in self._asked("/v2/repository/index", {"ready": True})]
        except Refused as error:
            raise Unreachable(
                f"{error}; name the model with --model, if this is a server of the Open Inference Protocol"
            ) from None
        except (LookupError, TypeError) as error:
            raise Unreachable(f"{self}: its models are not listed as the protocol has it: {error!r}") from None

    def statistics(self, model: str) -> Statistics | None:
        try:
            (found,) = self._asked(f"{_path(model)}/stats")["model_stats"]
            queue = found["inference_stats"]["queue"]
            return Statistics(found["inference_count"], found["execution_count"], queue.get("ns", 0))
        except (Unreachable, LookupError, TypeError, ValueError):
            return None

    def message(self, model: ModelMetadata, tensors: Sequence[Tensor], asked: RequestOptions) -> bytes:
        """With the tensors' bytes behind the JSON, where the server takes that."""
        inputs, parts = list[dict[str, Any]](), list[bytes]()
        for tensor in tensors:
            entry = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.array.shape)}
            if tensor.place is not None:
                inputs.append({**entry, "parameters": _placed(tensor.place)})
            elif model.takes_binary:
                parts.append(raw(tensor))
                inputs.append({**entry, "parameters": {"binary_data_size": len(parts[-1])}})
            elif tensor.datatype == BYTES:
                raise UsageError(f"{self} takes no binary tensors, and photos are no JSON; send tensors, or use gRPC")
            else:
                inputs.append({**entry, "data": tensor.array.ravel().tolist()})
        parameters: dict[str, Any] = {"timeout": asked.timeout_us} if asked.timeout_us else {}
        if model.takes_binary:
            parameters["binary_data_output"] = True
        body: dict[str, Any] = {"inputs": inputs, "parameters": parameters}
        if asked.classes:
            wanted = {"classification": asked.classes, "binary_data": model.takes_binary}
            body["outputs"] = [{"name": output.name, "parameters": wanted} for output in model.outputs]
        if asked.outputs:
            body["outputs"] = [{"name": name, "parameters": _placed(place)} for name, place in asked.outputs.items()]
        header = json.dumps(body).encode()
        lines = [f"POST {_path(model.name)}/infer HTTP/1.1", f"host: {self}"]
        lines += [f"{name}: {value}" for name, value in self._headers().items()]
        if model.takes_binary:
            lines += ["content-type: application/octet-stream", f"inference-header-content-length: {len(header)}"]
        else:
            lines.append("content-type: application/json")
        lines.append(f"content-length: {len(header) + sum(map(len, parts))}")
        return b"".join([("\r\n".join(lines) + "\r\n\r\n").encode(), header, *parts])

    def register(self, region: str, key: str, size: int) -> None:
        self._asked(f"{_region(region)}/register", {"key": key, "offset": 0, "byte_size": size})

    def unregister(self, region: str) -> None:
        with contextlib.suppress(Unreachable):
            self._asked(f"{_region(region)}/unregister", {})

    def client(self, on_answer: OnAnswer, connections: int, now: Now = time.monotonic) -> "HttpClient":
        return HttpClient(self, on_answer, connections, now)

    def _headers(self) -> dict[str, str]:
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}

    def _asked(self, path: str, value: Any = None) -> Any:
        """The JSON that comes for a GET, or for a POST of `value`; None if nothing does."""
        if self.secure is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=ASK_S)
        else:
            context = self.secure.context()
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=ASK_S, context=context)
        try:
            body = None if value is None else json.dumps(value).encode()
            connection.request("GET" if value is None else "POST", path, body, self._headers())
            answer = connection.getresponse()
            came = answer.read(1 << 20)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{self}: {getattr(error, 'strerror', None) or error!r}; is the server there?") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise Refused(f"{self}{path} answers {answer.status}: {_reason(came)}")
        try:
            return json.loads(came) if came else None
        except ValueError:
            raise Unreachable(f"{self}{path} answers no JSON: is it a server of the Open Inference Protocol?") from None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class HttpClient:
    """Opens a connection for a request where none is idle, up to `connections`; beyond, requests wait for one."""

    def __init__(self, target: HttpTarget, on_answer: OnAnswer, connections: int, now: Now) -> None:
        self.on_answer = on_answer
        self.now = now
        self.buffer = memoryview(bytearray(1 << 18))  # of all connections: what comes is looked at before more comes
        self._target = target
        self._context = None if target.secure is None else target.secure.context()
        self._most = connections
        self._open: set[_Connection] = set()
        self._idle: list[_Connection] = []  # the one used last is used next
        self._opening = 0
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "HttpClient":
        for _ in range(min(READY, self._most)):
            self._connect()
        await asyncio.gather(*self._tasks)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._waiting.clear()
        for task in list(self._tasks):
            task.cancel()
        for connection in list(self._open):
            connection.abort()

    def send(self, number: int, message: bytes) -> None:
        if self._idle:
            self._idle.pop().send(number, message)
            return
        self._waiting.append((number, message))
        self._connect_if_wanted()

    def is_free(self, connection: "_Connection") -> None:
        if self._waiting:
            connection.send(*self._waiting.popleft())
        else:
            self._idle.append(connection)

    def is_lost(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._connect_if_wanted()

    def _connect_if_wanted(self) -> None:
        if self._opening < len(self._waiting) and len(self._open) + self._opening < self._most:
            self._connect()

    def _connect(self) -> None:
        self._opening += 1
        task = asyncio.get_running_loop().create_task(self._connected())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connected(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self), self._target.host, self._target.port, ssl=self._context
                )
        except OSError as error:  # TimeoutError is one
            self._opening -= 1
            if self._waiting:
                number, _ = self._waiting.popleft()
                text = f"no connection to {self._target}: {error.strerror or 'it takes too long'}"
                self.on_answer(number, None, Status.UNANSWERED, text)
            self._connect_if_wanted()
            return
        self._opening -= 1
        self._open.add(connection)
        self.is_free(connection)


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._parser = httptools.HttpResponseParser(self)
        self._number: int | None = None  # of the request that is on its way
        self._sent = 0.0
        self._said = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, number: int, message: bytes) -> None:
        self._number = number
        self._said = b""
        self._sent = self._client.now()
        self._transport.write(message)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._client.buffer

    def buffer_updated(self, nbytes: int) -> None:
        came = self._client.buffer[:nbytes]
        if len(self._said) < SAID:
            self._said += bytes(came[: SAID - len(self._said)])
        try:
            self._parser.feed_data(came)
        except httptools.HttpParserError as error:
            self._end(Status.ERROR, f"what came is no HTTP: {error}", False)

    def on_message_complete(self) -> None:
        code = self._parser.get_status_code()
        if code == 100:
            return
        status = _STATUSES.get(code, Status.ERROR)
        text = "" if code == 200 else self._error(code)
        if code == 503:
            status = _unavailable(self._said)
        self._end(status, text, self._parser.should_keep_alive())

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.is_lost(self)
        self._end(Status.UNANSWERED, f"the connection was lost: {exc or 'the server closed it'}", False)

    def abort(self) -> None:
        self._number = None
        self._transport.abort()

    def _end(self, status: Status, text: str, goes_on: bool) -> None:
        """End the request that is on its way, if one is. The connection takes the next one before the end is told."""
        number, sent, self._number = self._number, self._sent, None
        if not goes_on:
            self._transport.close()
        elif number is not None:
            self._client.is_free(self)
        if number is not None:
            self._client.on_answer(number, sent, status, text)

    def _error(self, code: int) -> str:
        _, _, body = self._said.partition(b"\r\n\r\n")
        return f"{code}: {_reason(body)}"


def _unavailable(said: bytes) -> Status:
    """Return what a 503 means. Headrace says it in a header of its own, because each of its 503s has Retry-After."""
    head = said.partition(b"\r\n\r\n")[0].lower()
    if b"\r\nheadrace-outcome: " in head:
        return Status.SHED if b"\r\nheadrace-outcome: shed" in head else Status.UNAVAILABLE
    return Status.SHED if b"\r\nretry-after: " in head else Status.UNAVAILABLE


def _reason(body: bytes) -> str:
    """Return the text of an error's body, on one line."""
    try:
        text = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError):
        text = body.decode("utf-8", "replace")
    return " ".join(str(text).split())[:300]


def _placed(place: Place) -> dict[str, Any]:
    return {
        "shared_memory_region": place.region,
        "shared_memory_offset": place.offset,
        "shared_memory_byte_size": place.size,
    }


def _path(model: str) -> str:
    return f"/v2/models/{quote(model, safe='')}"


def _region(name: str) -> str:
    return f"/v2/systemsharedmemory/region/{quote(name, safe='')}"
