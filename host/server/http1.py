"""HTTP/1.1 for answers that come from one asyncio loop: a connection is a protocol, and reads a body where it stays.

Heads are parsed by llhttp (httptools); bodies never pass through it. Of RFC 9112 what clients of this server use:
requests with Content-Length, kept alive, pipelined, with `Expect: 100-continue`; no chunks (411), no upgrade. A body is
received into memory of its own size at once, and never copied: general servers hand it on in pieces, which costs more
than all else where a body is a tensor. Echoes of 602,112 bytes a second on two busy cores, at 1 and at 4 connections:
uvicorn 700 to 1,400 and 1,500 to 2,000, granian (RSGI, its threads beside the loop) 2,300 to 3,500 and 1,400 to 2,400,
this on uvloop 2,800 and 4,000; small bodies 18,000, 15,000, 30,000.

Every state has an end. A head and a body must be here, and an answer taken, within a time that grows with the size;
the sizes of head, body and all bodies together and the number of connections are limited. What a client sends while
its request is answered is read, so that its going away is seen at once, and cancels the request.
"""

import asyncio
import logging
import math
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import cast

import httptools
import numpy as np

from headrace.host.server.limits import BYTES_PER_S, IDLE_S, Limits

LINGER_S = 2.0  # a client that is still sending may read why it was refused
SWEEP_S = 0.5

# Fields that say where something ends or goes: two that differ are an attack, or a mistake.
_ONCE = ("host", "inference-header-content-length")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """Names in `headers` are in lower case. `target` is the path with the query, `peer` the client's address."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: memoryview
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    parts: Sequence[bytes | memoryview] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]
Refusal = Callable[[int, str], Response]


class _Refused(Exception):
    """A request that is not read to its end: status and text."""


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    target: str
    headers: Mapping[str, str]
    length: int
    keep_alive: bool


class HttpServer:
    """Answers by `handler`, which raises nothing; `refusal` makes the answer to what never gets there."""

    def __init__(
        self, handler: Handler, refusal: Refusal, limits: Limits, context: ssl.SSLContext | None = None
    ) -> None:
        """With a `context` all connections are TLS."""
        self._context = context
        self.handler = handler
        self.refusal = refusal
        self.limits = limits
        self.closing = False
        self.connections: set[Connection] = set()
        self.bodies = 0  # bytes that requests have announced, and hold until they are answered

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Returns where it listens. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            lambda: Connection(self), host, port, backlog=1024, ssl=self._context,
            ssl_handshake_timeout=None if self._context is None else self.limits.client_s,
        )  # fmt: skip
        self._sweeper = asyncio.create_task(self._sweep())
        address = self._listening.sockets[0].getsockname()
        return address[0], address[1]

    async def start_at(self, path: Path) -> None:
        """Listens at a Unix socket, without TLS. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_unix_server(lambda: Connection(self), path, backlog=1024)
        self._sweeper = asyncio.create_task(self._sweep())

    async def stop(self, bound_s: float) -> None:
        """Listen no more, answer what has come in whole, and close; what is not answered within `bound_s` is cut."""
        self.closing = True
        self._listening.close()
        for connection in list(self.connections):
            connection.close_if_idle()
        end = asyncio.get_running_loop().time() + bound_s
        while self.connections and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)
        self._sweeper.cancel()
        for connection in list(self.connections):
            connection.abort()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = asyncio.get_running_loop().time()
            for connection in list(self.connections):
                if connection.due < now:
                    connection.expired()


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(self._limits.head))  # of heads, and of what comes behind a body
        self._held = 0  # bytes in it
        self._head: _Head | None = None  # of the request that is received or answered
        self._body = memoryview(b"")
        self._received = 0  # bytes of the body
        self._began = 0.0  # when the first of them could come
        self._answering: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None  # while the client does not take what is written
        self._idle = False  # nothing of the next request is here
        self._discards = False  # the connection is refused; what still comes is not looked at
        self.due = math.inf  # when what it waits for must have come

    # ---- what the transport tells ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peer = str((transport.get_extra_info("peername") or [""])[0])
        self._server.connections.add(self)
        self.due = self._loop.time() + self._limits.client_s
        if len(self._server.connections) > self._limits.connections:
            self._refuse(503, f"{self._limits.connections} connections are open; close one, or try again")

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self.due = math.inf
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._answering is not None:
            self._answering.cancel()
        else:
            self._request_ended()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._discards:
            return self._buffer
        if self._receiving:
            return self._body[self._received :]
        return self._buffer[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._discards:
            return
        if self._receiving:
            self._received += nbytes
            if self._received == len(self._body):
                self._answer()
            else:
                self.due = self._began + self._limits.client_s + self._received / BYTES_PER_S
            return
        self._held += nbytes
        if self._answering is None:
            self._next()
        elif self._held == len(self._buffer):
            self._transport.pause_reading()

    # ---- requests ----

    @property
    def _receiving(self) -> bool:
        return self._head is not None and self._answering is None

    def _next(self) -> None:
        """Begin the request whose head has come, if it has."""
        raw = bytes(self._buffer[: self._held])
        raw = raw.lstrip(b"\r\n") if raw[:1] in b"\r\n" else raw  # RFC 9112, 2.2
        end = raw.find(b"\r\n\r\n")
        if end < 0:
            if self._held == len(self._buffer):
                self._refuse(431, f"the request's head is longer than {self._limits.head} bytes")
            elif not self._held:
                self._idle = True
                self.due = self._loop.time() + IDLE_S
            elif self._idle:  # of the first byte: those that follow give it no more time
                self._idle = False
                self.due = self._loop.time() + self._limits.client_s
            return
        try:
            head = _parsed(raw[: end + 4])
            if head.length > self._limits.body:
                raise _Refused(413, f"the body has {head.length} bytes; this server takes at most {self._limits.body}")
            if self._server.bodies + head.length > self._limits.bodies:
                raise _Refused(503, "there is no room for the body; try again")
        except _Refused as refused:
            self._refuse(*refused.args)
            return
        rest = raw[end + 4 :]
        self._idle = True
        self._head = head
        self._server.bodies += head.length
        # Not zeroed, so that memory is only used by what really comes.
        self._body = np.empty(head.length, np.uint8).data
        self._received = min(len(rest), head.length)
        self._body[: self._received] = rest[: self._received]
        rest = rest[self._received :]
        self._buffer[: len(rest)] = rest
        self._held = len(rest)
        if self._received == head.length:
            self._answer()
            return
        self._began = self._loop.time()
        self.due = self._began + self._limits.client_s
        if head.headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _answer(self) -> None:
        self.due = math.inf
        self._answering = self._loop.create_task(self._answered())
        self._answering.add_done_callback(self._request_ended)

    async def _answered(self) -> None:
        assert self._head is not None
        head = self._head
        response = await self._server.handler(Request(head.method, head.target, head.headers, self._body, self._peer))
        keep_alive = head.keep_alive and not self._server.closing
        self._write(response, keep_alive)
        if not keep_alive:
            self._transport.close()
            self.due = self._loop.time() + self._limits.client_s + self._transport.get_write_buffer_size() / BYTES_PER_S
        elif self._writable is not None:  # the next request waits for this answer's end
            self.due = self._loop.time() + self._limits.client_s + self._transport.get_write_buffer_size() / BYTES_PER_S
            await self._writable

    def _request_ended(self, task: "asyncio.Task[None] | None" = None) -> None:
        if self._head is not None:
            self._server.bodies -= self._head.length
        self._head = self._answering = None
        self._body = memoryview(b"")
        if task is not None and not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an answer ended with an error", exc_info=error)
            self._transport.abort()
        elif not self._transport.is_closing():
            self._transport.resume_reading()
            self.due = math.inf
            self._next()

    def _write(self, response: Response, keep_alive: bool) -> None:
        size = sum(len(part) for part in response.parts)
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}", f"content-length: {size}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        if not keep_alive:
            lines.append("connection: close")
        self._transport.writelines([("\r\n".join(lines) + "\r\n\r\n").encode(), *response.parts])

    # ---- ends ----

    def _refuse(self, status: int, text: str) -> None:
        """Say why, then let the client read it: to close with bytes unread would take the answer away from it."""
        self._discards = True
        self._write(self._server.refusal(status, text), keep_alive=False)
        if self._transport.can_write_eof():  # TLS cannot
            self._transport.write_eof()
        self.due = self._loop.time() + LINGER_S

    def expired(self) -> None:
        if self._discards or self._transport.is_closing() or self._answering is not None:
            self._transport.abort()
        elif self._head is None and not self._held:
            self._transport.close()
        else:
            self._refuse(408, "the request took too long to come")

    def close_if_idle(self) -> None:
        if self._head is None and not self._held:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


class _Fields:
    """What llhttp finds in a head."""

    def __init__(self) -> None:
        self.target = ""
        self.headers: dict[str, str] = {}
        self.twice = ""

    def on_url(self, url: bytes) -> None:
        self.target = url.decode("latin-1")

    def on_header(self, raw_name: bytes, raw_value: bytes) -> None:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name in self.headers:
            value = f"{self.headers[name]}, {value}"
            if name in _ONCE:
                self.twice = name
        self.headers[name] = value


def _parsed(raw: bytes) -> _Head:
    """Of a head with its empty line. Raises _Refused."""
    fields = _Fields()
    parser = httptools.HttpRequestParser(fields)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # as it may, this server goes on with HTTP/1.1
    except httptools.HttpParserError as error:
        raise _Refused(400, f"the request's head is no HTTP/1.1: {error}") from None
    method, version, headers = parser.get_method().decode(), parser.get_http_version(), fields.headers
    if version not in ("1.0", "1.1"):
        raise _Refused(400, f"the request is of HTTP/{version}; send HTTP/1.1")
    if fields.twice:
        raise _Refused(400, f"the request has {fields.twice} twice")
    if "transfer-encoding" in headers:
        raise _Refused(411, "send the body in one piece, with Content-Length")
    if version == "1.1" and "host" not in headers:
        raise _Refused(400, "the request names no Host")
    # The parser forgets what the header said when the message ends. A message without a body has ended by now.
    close = "close" in (option.strip() for option in headers.get("connection", "").lower().split(","))
    keep_alive = version == "1.1" and not close
    return _Head(method, fields.target, headers, int(headers.get("content-length", 0)), keep_alive)
