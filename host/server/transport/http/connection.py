"""HTTP/1.1 for answers that come from one asyncio loop: a connection is a protocol, and reads a body where it stays.

`heads` parses heads, and sees no body. A body with Content-Length is received into memory of its own size at once, and
never copied. General servers hand a body on in pieces, which costs more than all else where it is a tensor. Echoes of
602,112 bytes a second on two busy cores, at 1 and at 4 connections: uvicorn 700 to 1,400 and 1,500 to 2,000, granian
(RSGI, its threads beside the loop) 2,300 to 3,500 and 1,400 to 2,400, this on uvloop 2,800 and 4,000; small bodies
18,000, 15,000, 30,000. A chunked body is copied once. The server upgrades to no other protocol.

Every state has an end. A head and a body must be here, and an answer taken, within a time that grows with the size;
the sizes of head, body and all bodies together and the number of connections are limited. What a client sends while
its request is answered is read, so that its going away is seen at once, and cancels the request.
"""

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import cast

import numpy as np

from headrace.host.server.protocol import codings
from headrace.host.server.protocol.limits import BYTES_PER_S, IDLE_S, SMALL, Limits
from headrace.host.server.transport.http import heads
from headrace.host.server.transport.http.chunks import BadChunk, Chunks
from headrace.host.server.transport.http.heads import Head, Refused

LINGER_S = 2.0  # a client that is still sending may read why it was refused
SWEEP_S = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A request. Names in `headers` are in lower case. `target` is path and query, `peer` the client's address.

    A HEAD arrives with the `method` GET, because the connection drops the content of its response. A handler calls
    `reserve` before it uses more memory than the body. `reserve` raises Refused if there is no room."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: memoryview
    peer: str = ""
    reserve: codings.Reserve = lambda _: None


@dataclass(frozen=True, slots=True)
class Response:
    """A response. The connection compresses it if it is `compressible` and the client accepts a coding."""

    status: int
    parts: Sequence[bytes | memoryview] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    compressible: bool = True


Handler = Callable[[Request], Awaitable[Response]]
Refusal = Callable[[int, str], Response]


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
        self.bodies = 0  # bytes that requests have announced and answers have, until these are taken

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Returns where it listens. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            lambda: Connection(self),
            host,
            port,
            backlog=1024,
            ssl=self._context,
            ssl_handshake_timeout=None if self._context is None else self.limits.client_s,
        )
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

    def make_room(self, newcomer: "Connection") -> bool:
        """Close the connection that has been idle longest, other than the newcomer. Return whether there was one."""
        idle = [each for each in self.connections if each.is_idle and each is not newcomer]
        if idle:
            min(idle, key=lambda each: each.idle_since).close_if_idle()
        return bool(idle)

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
        self._head: Head | None = None  # of the request that is received or answered
        self._body = memoryview(b"")
        self._chunks: Chunks | None = None  # of a body whose length is not known
        self._received = 0  # bytes of the body
        self._reserved = 0  # bytes of the server's `bodies` that this request has
        self._began = 0.0  # when the first of them could come
        self._answering: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None  # while the client does not take what is written
        self._idle = False  # nothing of the next request is here
        self._discards = False  # the connection is refused; what still comes is not looked at
        self.idle_since = 0.0
        self.due = math.inf  # when what it waits for must have come

    # ---- what the transport tells ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peer = str((transport.get_extra_info("peername") or [""])[0])
        self._server.connections.add(self)
        self.idle_since = self._loop.time()
        self.due = self._loop.time() + self._limits.client_s
        if len(self._server.connections) > self._limits.connections and not self._server.make_room(self):
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
        if self._receiving and self._chunks is None:
            return self._body[self._received :]
        return self._buffer[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._discards:
            return
        if self._receiving and self._chunks is None:
            self._received += nbytes
            self._body_grew(self._received == len(self._body))
            return
        self._held += nbytes
        if self._receiving:
            self._next_chunks()
        elif self._answering is None:
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
                self.idle_since = self._loop.time()
                self.due = self.idle_since + IDLE_S
            elif self._idle:  # of the first byte: those that follow give it no more time
                self._idle = False
                self.due = self._loop.time() + self._limits.client_s
            return
        try:
            head = heads.parsed(raw[: end + 4])
            if head.length is not None:
                self._reserve_body(head.length)
        except Refused as refused:
            self._refuse(*refused.args)
            return
        rest = raw[end + 4 :]
        self._idle = True
        self._head = head
        self._began = self._loop.time()
        if head.length is None:
            self._chunks = Chunks()
            self._hold(rest)
            self._next_chunks()
        else:
            # Not zeroed, so that memory is only used by what really comes.
            self._body = np.empty(head.length, np.uint8).data
            self._received = min(len(rest), head.length)
            self._body[: self._received] = rest[: self._received]
            self._hold(rest[self._received :])
            self._body_grew(self._received == head.length)
        if self._receiving and not self._discards and head.awaits_continue and not self._received:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _hold(self, rest: bytes) -> None:
        self._buffer[: len(rest)] = rest
        self._held = len(rest)

    def _next_chunks(self) -> None:
        """Decode the bytes that have come of a chunked body."""
        chunks = self._chunks
        assert chunks is not None
        try:
            taken = chunks.feed(self._buffer[: self._held])
            self._reserve_body(len(chunks.body) - self._received)
        except BadChunk as error:
            self._refuse(400, f"the body is not in chunks: {error}")
            return
        except Refused as refused:
            self._refuse(*refused.args)
            return
        self._hold(bytes(self._buffer[taken : self._held]))
        self._received = len(chunks.body)
        if chunks.ended:
            self._body = memoryview(chunks.body)
            self._chunks = None
        self._body_grew(chunks.ended)

    def _body_grew(self, whole: bool) -> None:
        if whole:
            self._answer()
        else:
            self.due = self._began + self._limits.client_s + self._received / BYTES_PER_S

    def _reserve_body(self, size: int) -> None:
        """Reserve room for bytes of the request. Raises Refused if there is none."""
        if self._reserved + size > self._limits.body:
            raise Refused(413, f"the body has more bytes than the {self._limits.body} that this server takes")
        if self._server.bodies + size > self._limits.bodies:
            raise Refused(503, "there is no room for the body; try again")
        self._reserved += size
        self._server.bodies += size

    def _answer(self) -> None:
        self.due = math.inf
        self._answering = self._loop.create_task(self._answered())
        self._answering.add_done_callback(self._request_ended)

    async def _answered(self) -> None:
        assert self._head is not None
        head = self._head
        method = "GET" if head.method == "HEAD" else head.method
        request = Request(method, head.target, head.headers, self._body, self._peer, self._reserve_body)
        response = await _coded(await self._server.handler(request), head.headers.get("accept-encoding", ""))
        response = self._with_room(response)
        keep_alive = head.keep_alive and not self._server.closing
        self._write(response, keep_alive, content=head.method != "HEAD", old=head.old)
        if not keep_alive:
            self._transport.close()
            self.due = self._loop.time() + self._limits.client_s + self._transport.get_write_buffer_size() / BYTES_PER_S
        elif self._writable is not None:  # the next request waits for this answer's end
            self.due = self._loop.time() + self._limits.client_s + self._transport.get_write_buffer_size() / BYTES_PER_S
            await self._writable

    def _with_room(self, response: Response) -> Response:
        """Reserve room for the response until the client has taken it. Return a 503 instead if there is none."""
        size = sum(map(len, response.parts))
        if size > SMALL and self._server.bodies + size > self._limits.bodies:
            return self._server.refusal(503, "there is no room for the answer; try again")
        self._reserved += size
        self._server.bodies += size
        return response

    def _request_ended(self, task: "asyncio.Task[None] | None" = None) -> None:
        self._server.bodies -= self._reserved
        self._reserved = 0
        self._head = self._answering = self._chunks = None
        self._body = memoryview(b"")
        if task is not None and not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an answer ended with an error", exc_info=error)
            self._transport.abort()
        elif not self._transport.is_closing():
            self._transport.resume_reading()
            self.due = math.inf
            self._next()

    def _write(self, response: Response, keep_alive: bool, *, content: bool, old: bool = False) -> None:
        """Write a response, without its content for a HEAD."""
        size = sum(len(part) for part in response.parts)
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}", f"content-length: {size}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        lines.append(f"date: {_date(int(time.time()))}")
        if not keep_alive:
            lines.append("connection: close")
        elif old:
            lines.append("connection: keep-alive")
        self._transport.writelines([("\r\n".join(lines) + "\r\n\r\n").encode(), *(response.parts if content else ())])

    # ---- ends ----

    def _refuse(self, status: int, text: str) -> None:
        """Say why, then let the client read it: to close with bytes unread would take the answer away from it."""
        self._discards = True
        is_head = self._head.method == "HEAD" if self._head else bytes(self._buffer[:64]).lstrip().startswith(b"HEAD ")
        self._write(self._server.refusal(status, text), keep_alive=False, content=not is_head)
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

    @property
    def is_idle(self) -> bool:
        """Whether the connection waits for the first byte of a request."""
        return self._head is None and not self._held and not self._discards and not self._transport.is_closing()

    def close_if_idle(self) -> None:
        if self.is_idle:
            self._transport.close()
            self.due = self._loop.time() + LINGER_S  # for what the client has not taken yet of the last answer

    def abort(self) -> None:
        self._transport.abort()


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


async def _coded(response: Response, accept: str) -> Response:
    """Return the response in the coding that the client prefers, unless it is too small to gain by that."""
    if not accept or sum(map(len, response.parts)) < codings.LEAST or not response.compressible:
        return response
    headers = {**response.headers, "vary": "accept-encoding"}
    if not (coding := codings.accepted(accept)):
        return Response(response.status, response.parts, headers)
    return Response(
        response.status, [await codings.encoded(response.parts, coding)], {**headers, "content-encoding": coding}
    )
