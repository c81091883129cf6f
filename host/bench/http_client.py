"""The Open Inference Protocol over HTTP/1.1, with one connection for each request in flight and prepared requests.

llhttp parses the answers. The client discards their bodies and keeps only the first bytes of an answer for an error
text."""

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
READY = 8  # connections that are opened before the first request
MAX_ERROR_BYTES = 2000  # bytes from the start of an answer that are kept for an error text

_STATUSES = {200: Status.OK, 408: Status.LATE, 429: Status.SHED, 503: Status.UNAVAILABLE, 504: Status.LATE}


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A server that is reached over HTTP or HTTPS; see Target."""

    host: str
    port: int
    token: str | None = None
    secure: Secure | None = None

    def metadata(self, model: str) -> ModelMetadata:
        server, metadata = self._ask("/v2"), self._ask(_path(model))
        try:
            return ModelMetadata(
                model,
                [TensorMetadata(each["name"], each["datatype"], tuple(each["shape"])) for each in metadata["inputs"]],
                [TensorMetadata(each["name"], each["datatype"], tuple(each["shape"])) for each in metadata["outputs"]],
                {"binary_tensor_data", "binary_data"} & set(server.get("extensions") or ()) != set(),
            )
        except (LookupError, TypeError, AttributeError) as error:
            raise Unreachable(f"{self}: the metadata do not follow the protocol: {error!r}") from None

    def models(self) -> list[str]:
        try:
            return [str(each["name"]) for each in self._ask("/v2/repository/index", {"ready": True})]
        except Refused as error:
            raise Unreachable(
                f"{error}; give the model's name with --model if the server has the Open Inference Protocol"
            ) from None
        except (LookupError, TypeError) as error:
            raise Unreachable(f"{self}: the list of models does not follow the protocol: {error!r}") from None

    def statistics(self, model: str) -> Statistics | None:
        try:
            (counters,) = self._ask(f"{_path(model)}/stats")["model_stats"]
            queue = counters["inference_stats"]["queue"]
            return Statistics(counters["inference_count"], counters["execution_count"], queue.get("ns", 0))
        except (Unreachable, LookupError, TypeError, ValueError):
            return None

    def message(self, model: ModelMetadata, tensors: Sequence[Tensor], options: RequestOptions) -> bytes:
        """Return the request. The tensors' bytes follow the JSON if the server has the binary tensor data extension."""
        inputs, parts = list[dict[str, Any]](), list[bytes]()
        for tensor in tensors:
            entry = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.array.shape)}
            if tensor.place is not None:
                inputs.append({**entry, "parameters": _placed(tensor.place)})
            elif model.takes_binary:
                parts.append(raw(tensor))
                inputs.append({**entry, "parameters": {"binary_data_size": len(parts[-1])}})
            elif tensor.datatype == BYTES:
                raise UsageError(
                    f"{self} takes no binary tensors, and JSON cannot hold images; send tensors, or use gRPC"
                )
            else:
                inputs.append({**entry, "data": tensor.array.ravel().tolist()})
        parameters: dict[str, Any] = {"timeout": options.timeout_us} if options.timeout_us else {}
        if model.takes_binary:
            parameters["binary_data_output"] = True
        body: dict[str, Any] = {"inputs": inputs, "parameters": parameters}
        if options.classes:
            labels = {"classification": options.classes, "binary_data": model.takes_binary}
            body["outputs"] = [{"name": output.name, "parameters": labels} for output in model.outputs]
        if options.outputs:
            body["outputs"] = [{"name": name, "parameters": _placed(place)} for name, place in options.outputs.items()]
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
        self._ask(f"{_region(region)}/register", {"key": key, "offset": 0, "byte_size": size})

    def unregister(self, region: str) -> None:
        with contextlib.suppress(Unreachable):
            self._ask(f"{_region(region)}/unregister", {})

    def client(self, on_answer: OnAnswer, connections: int, now: Now = time.monotonic) -> "HttpClient":
        return HttpClient(self, on_answer, connections, now)

    def _headers(self) -> dict[str, str]:
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}

    def _ask(self, path: str, value: Any = None) -> Any:
        """Send a GET, or a POST of `value`, and return the JSON of the answer; None if its body is empty.

        Raises Unreachable; Refused for an answer other than 200."""
        if self.secure is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=ASK_S)
        else:
            context = self.secure.context()
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=ASK_S, context=context)
        try:
            body = None if value is None else json.dumps(value).encode()
            connection.request("GET" if value is None else "POST", path, body, self._headers())
            answer = connection.getresponse()
            content = answer.read(1 << 20)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or repr(error)
            raise Unreachable(f"{self}: {reason}; check the address, and that the server runs") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise Refused(f"{self}{path} answers {answer.status}: {_reason(content)}")
        try:
            return json.loads(content) if content else None
        except ValueError:
            raise Unreachable(
                f"{self}{path} answers without JSON; give a server with the Open Inference Protocol"
            ) from None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class HttpClient:
    """Send requests over a pool of connections.

    A request uses an idle connection. If none is idle the client opens another, up to `connections`. Beyond that,
    requests wait for a connection."""

    def __init__(self, target: HttpTarget, on_answer: OnAnswer, connections: int, now: Now) -> None:
        self.on_answer = on_answer
        self.now = now
        # One read buffer serves all connections, because each read is parsed before the next one.
        self.buffer = memoryview(bytearray(1 << 18))
        self._target = target
        self._context = None if target.secure is None else target.secure.context()
        self._max_connections = connections
        self._open: set[_Connection] = set()
        self._idle: list[_Connection] = []  # the connection that was used last is used first
        self._opening = 0
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "HttpClient":
        for _ in range(min(READY, self._max_connections)):
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
        self._connect_if_needed()

    def on_free(self, connection: "_Connection") -> None:
        """Send the next waiting request over a connection that has become free."""
        if self._waiting:
            connection.send(*self._waiting.popleft())
        else:
            self._idle.append(connection)

    def on_lost(self, connection: "_Connection") -> None:
        """Forget a connection that has closed."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._connect_if_needed()

    def _connect_if_needed(self) -> None:
        if self._opening < len(self._waiting) and len(self._open) + self._opening < self._max_connections:
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
        except OSError as error:  # TimeoutError is a subclass
            self._opening -= 1
            if self._waiting:
                number, _ = self._waiting.popleft()
                text = f"no connection to {self._target}: {error.strerror or f'timeout after {CONNECT_S:g} s'}"
                self.on_answer(number, None, Status.UNANSWERED, text)
            self._connect_if_needed()
            return
        self._opening -= 1
        self._open.add(connection)
        self.on_free(connection)


class _Connection(asyncio.BufferedProtocol):
    """One connection, which carries one request at a time."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._parser = httptools.HttpResponseParser(self)
        self._number: int | None = None  # the request in flight
        self._sent = 0.0
        self._head = b""  # the first bytes of the answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, number: int, message: bytes) -> None:
        self._number = number
        self._head = b""
        self._sent = self._client.now()
        self._transport.write(message)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._client.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._client.buffer[:nbytes]
        if len(self._head) < MAX_ERROR_BYTES:
            self._head += bytes(data[: MAX_ERROR_BYTES - len(self._head)])
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(Status.ERROR, f"the answer is not HTTP: {error}", False)

    def on_message_complete(self) -> None:
        code = self._parser.get_status_code()
        if code == 100:
            return
        status = _STATUSES.get(code, Status.ERROR)
        text = "" if code == 200 else self._error(code)
        if code == 503:
            status = _unavailable(self._head)
        self._end(status, text, self._parser.should_keep_alive())

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.on_lost(self)
        self._end(Status.UNANSWERED, f"the connection was lost: {exc or 'the server closed it'}", False)

    def abort(self) -> None:
        self._number = None
        self._transport.abort()

    def _end(self, status: Status, text: str, keep_alive: bool) -> None:
        """End the request in flight, if there is one. The connection takes its next request before on_answer is called.

        `keep_alive` says whether the connection stays open."""
        number, sent, self._number = self._number, self._sent, None
        if not keep_alive:
            self._transport.close()
        elif number is not None:
            self._client.on_free(self)
        if number is not None:
            self._client.on_answer(number, sent, status, text)

    def _error(self, code: int) -> str:
        _, _, body = self._head.partition(b"\r\n\r\n")
        return f"{code}: {_reason(body)}"


def _unavailable(answer: bytes) -> Status:
    """Return the status that a 503 stands for.

    Every 503 of Headrace has Retry-After, so Headrace sends a header of its own to tell the two cases apart."""
    head = answer.partition(b"\r\n\r\n")[0].lower()
    if b"\r\nheadrace-outcome: " in head:
        return Status.SHED if b"\r\nheadrace-outcome: shed" in head else Status.UNAVAILABLE
    return Status.SHED if b"\r\nretry-after: " in head else Status.UNAVAILABLE


def _reason(body: bytes) -> str:
    """Return the text of an error's body on one line."""
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
