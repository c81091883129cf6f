"""A server of HTTP/1.1 on one asyncio loop. Each connection is a protocol that receives a body where it stays.

`heads` parses heads and does not see bodies. A body with Content-Length is received directly into memory of its own
size and is never copied. The tensor at its end is received into a slot of the model's arena, if there is one for it.
General HTTP servers pass a body on in pieces, which costs more than everything else for a tensor. A chunked body is
copied once. The server does not upgrade to other protocols.

Every state has a time limit. A head and a body must arrive, and an answer must be received, within a time that grows
with the size. There are limits on the size of a head and a body, on the total size of all bodies, and on the number of
connections. The server also reads while it answers a request. So it notices at once when the client leaves, and cancels
the request."""

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from headrace.host.server.protocol import codings
from headrace.host.server.protocol.limits import BYTES_PER_S, IDLE_S, SMALL, Limits
from headrace.host.server.transport.http import heads
from headrace.host.server.transport.http.body_slots import BodySlot
from headrace.host.server.transport.http.chunks import BadChunk, Chunks
from headrace.host.server.transport.http.heads import Head, Refused

LINGER_S = 2.0  # time for a refused client, which may still be sending, to read the reason
JOINED_BYTES = 4096  # a response of up to this size is written in one piece
SWEEP_S = 0.5  # time between two checks of the connections' time limits

_log = logging.getLogger(__name__)


class Request:
    """Hold a request. Names in `headers` are in lower case. `target` is path and query; `peer` is the client's address.

    A HEAD request has the `method` GET, because the connection drops the content of its response. A handler calls
    `reserve` before it uses more memory than the body. `reserve` raises Refused if there is no room. With a `tensor`
    the body is what comes before it."""

    def __init__(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: memoryview,
        peer: str = "",
        reserve: codings.Reserve = lambda _: None,
        tensor: BodySlot | None = None,
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.peer = peer
        self.reserve = reserve
        self.tensor = tensor


class Response:
    """Hold a response. The connection compresses it if it is `compressible` and the client accepts a coding."""

    def __init__(
        self,
        status: int,
        parts: Sequence[bytes | memoryview] = (),
        headers: Mapping[str, str] = MappingProxyType({}),
        compressible: bool = True,
    ) -> None:
        self.status = status
        self.parts = parts
        self.headers = headers
        self.compressible = compressible


Handler = Callable[[Request], Awaitable[Response]]
Refusal = Callable[[int, str], Response]
Placing = Callable[[Head], BodySlot | None]


class HttpServer:
    """Serve HTTP/1.1 requests.

    `handler` answers a request and raises no error. `refusal` makes the answer to a request that does not reach the
    handler. `place` returns the slot that receives the tensor of a request."""

    def __init__(
        self,
        handler: Handler,
        refusal: Refusal,
        limits: Limits,
        context: ssl.SSLContext | None = None,
        place: Placing = lambda _: None,
    ) -> None:
        """Store the settings. With a `context` all connections use TLS."""
        self._context = context
        self.handler = handler
        self.refusal = refusal
        self.place = place
        self.limits = limits
        self.closing = False
        self.connections: set[Connection] = set()
        self.bodies = 0  # bytes that are reserved for bodies of requests, and for answers until the client has them

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen at a TCP address, and return it. Port 0 takes a free port. Raises OSError."""
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
        listening: Any = self._listening  # its sockets are a list in uvloop, and a tuple in asyncio
        address = listening.sockets[0].getsockname()
        return address[0], address[1]

    async def start_at(self, path: Path) -> None:
        """Listen at a Unix socket, without TLS. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_unix_server(lambda: Connection(self), path, backlog=1024)
        self._sweeper = asyncio.create_task(self._sweep())

    async def stop(self, timeout_s: float) -> None:
        """Stop listening, answer the complete requests, and close.

        Connections that are open after `timeout_s` are aborted."""
        self.closing = True
        self._listening.close()
        for connection in list(self.connections):
            connection.close_if_idle()
        end = asyncio.get_running_loop().time() + timeout_s
        while self.connections and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)
        self._sweeper.cancel()
        for connection in list(self.connections):
            connection.abort()

    def make_room(self, newcomer: "Connection") -> bool:
        """Close the connection that has been idle longest, other than the newcomer. Returns whether there was one."""
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
    """Receive the requests of one client, one after another, and send the answers."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(self._limits.head))  # receives heads, and bytes that follow a body
        self._held = 0  # bytes in the buffer
        self._head: Head | None = None  # head of the request that is being received or answered
        self._body = memoryview(b"")
        self._tensor: BodySlot | None = None  # receives the end of the body
        self._rest: memoryview | None = None  # receives the next bytes of the body; without it, they go to the buffer
        self._chunks: Chunks | None = None  # decoder of a chunked body
        self._received = 0  # received bytes of the body
        self._reserved = 0  # this request's share of the server's `bodies`
        self._began = 0.0  # time when the head was complete
        self._answering: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None  # set while the client does not receive fast enough
        self._idle = False  # no byte of the next request has arrived
        self._paused = False  # the buffer is full, and the transport reads no more
        self._discards = False  # the request is refused, and further bytes are ignored
        self.idle_since = 0.0
        self.due = math.inf  # time limit of the current state

    # ---- callbacks of the transport ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peer = str((transport.get_extra_info("peername") or [""])[0])
        self._server.connections.add(self)
        self.idle_since = self._loop.time()
        self.due = self._loop.time() + self._limits.client_s
        if len(self._server.connections) > self._limits.connections and not self._server.make_room(self):
            self._refuse(
                503, f"{self._limits.connections} connections are open, the limit of this server; try again later"
            )

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
        if self._rest is not None:
            return self._rest
        return self._buffer[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._discards:
            return
        if self._rest is not None:
            self._received += nbytes
            self._rest = self._rest[nbytes:]
            self._body_grew(not self._rest)
            return
        self._held += nbytes
        if self._receiving:
            if self._chunks is not None:
                self._next_chunks()
            else:
                self._begin_body(bytes(self._buffer[: self._held]))
        elif self._answering is None:
            self._next()
        elif self._held == len(self._buffer):
            self._transport.pause_reading()
            self._paused = True

    # ---- requests ----

    @property
    def _receiving(self) -> bool:
        return self._head is not None and self._answering is None

    def _next(self) -> None:
        """Begin the next request if its head is complete."""
        if not self._held:
            self._idle = True
            self.idle_since = self._loop.time()
            self.due = self.idle_since + IDLE_S
            return
        raw = bytes(self._buffer[: self._held])
        raw = raw.lstrip(b"\r\n") if raw[:1] in b"\r\n" else raw  # RFC 9112, 2.2
        end = raw.find(b"\r\n\r\n")
        if end < 0:
            if self._held == len(self._buffer):
                self._refuse(431, f"the request's head is longer than {self._limits.head} bytes; send a shorter one")
            elif self._idle:  # the time limit starts at the first byte; further bytes do not extend it
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
            self._tensor = self._server.place(head)
            self._begin_body(rest)
        if self._receiving and not self._discards and head.awaits_continue and not rest:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _begin_body(self, data: bytes) -> None:
        """Begin a body with its first bytes. A description before a tensor must be whole."""
        assert self._head is not None and self._head.length is not None
        length, tensor = self._head.length, self._tensor
        said = length if tensor is None else length - len(tensor)
        if tensor is not None and len(data) < said:
            self._hold(data)
            self._received = len(data)
            self._body_grew(False)
            return
        if tensor is None:
            # The memory is not zeroed, so the system provides a page only when bytes of the body arrive.
            self._body = rest = np.empty(length, np.uint8).data
            begun = data[:length]
        else:
            self._body, rest = memoryview(data)[:said], tensor.view()
            begun = data[said:length]
        rest[: len(begun)] = begun
        self._rest = rest[len(begun) :]
        self._hold(data[length:])
        self._received = min(len(data), length)
        self._body_grew(not self._rest)

    def _hold(self, rest: bytes) -> None:
        self._buffer[: len(rest)] = rest
        self._held = len(rest)

    def _next_chunks(self) -> None:
        """Decode the received bytes of a chunked body."""
        chunks = self._chunks
        assert chunks is not None
        try:
            taken = chunks.feed(self._buffer[: self._held])
            self._reserve_body(len(chunks.body) - self._received)
        except BadChunk as error:
            self._refuse(400, f"the body is not a valid chunked body: {error}")
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
            raise Refused(413, f"the body is larger than this server's limit of {self._limits.body} bytes")
        if self._server.bodies + size > self._limits.bodies:
            raise Refused(503, "the server has no room for the body; try again later")
        self._reserved += size
        self._server.bodies += size

    def _answer(self) -> None:
        self._rest = None
        self.due = math.inf
        self._answering = self._loop.create_task(self._answered())
        self._answering.add_done_callback(self._request_ended)

    async def _answered(self) -> None:
        assert self._head is not None
        head = self._head
        method = "GET" if head.method == "HEAD" else head.method
        request = Request(method, head.target, head.headers, self._body, self._peer, self._reserve_body, self._tensor)
        response = await self._server.handler(request)
        if accept := head.headers.get("accept-encoding", ""):
            response = await _coded(response, accept)
        response = self._with_room(response)
        keep_alive = head.keep_alive and not self._server.closing
        self._write(response, keep_alive, content=head.method != "HEAD", old=head.old)
        if not keep_alive:
            self._transport.close()
            self.due = self._loop.time() + self._limits.client_s + self._transport.get_write_buffer_size() / BYTES_PER_S
        elif self._writable is not None:  # the next request waits until the client has this answer
            self.due = self._loop.time() + self._limits.client_s + self._transport.get_write_buffer_size() / BYTES_PER_S
            await self._writable

    def _with_room(self, response: Response) -> Response:
        """Reserve room for the response until the client has received it. Returns a 503 instead if there is none."""
        size = sum(map(len, response.parts))
        if size > SMALL and self._server.bodies + size > self._limits.bodies:
            return self._server.refusal(503, "the server has no room for the answer; try again later")
        self._reserved += size
        self._server.bodies += size
        return response

    def _request_ended(self, task: "asyncio.Task[None] | None" = None) -> None:
        self._server.bodies -= self._reserved
        self._reserved = 0
        self._head = self._answering = self._chunks = self._rest = None
        self._body = memoryview(b"")
        if self._tensor is not None:
            self._tensor.release()
            self._tensor = None
        if task is not None and not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an answer could not be sent because of an error", exc_info=error)
            self._transport.abort()
        elif not self._transport.is_closing():
            if self._paused:
                self._paused = False
                self._transport.resume_reading()
            self.due = math.inf
            self._next()

    def _write(self, response: Response, keep_alive: bool, *, content: bool, old: bool = False) -> None:
        """Write a response. `content` is False for a HEAD, and `old` is True for HTTP/1.0."""
        size = sum(map(len, response.parts))
        lines = [_status_line(response.status), f"content-length: {size}", _date(int(time.time()))]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        if not keep_alive:
            lines.append("connection: close")
        elif old:
            lines.append("connection: keep-alive")
        lines.append("\r\n")  # joined, it ends the last line and the head
        head = "\r\n".join(lines).encode()
        if not content:
            self._transport.write(head)
        elif size <= JOINED_BYTES:
            self._transport.write(b"".join((head, *response.parts)))
        else:
            self._transport.writelines((head, *response.parts))

    # ---- ends of the connection ----

    def _refuse(self, status: int, text: str) -> None:
        """Send a refusal and keep the connection open for LINGER_S.

        If it closed with unread bytes, the client's system would discard the answer."""
        self._discards = True
        is_head = self._head.method == "HEAD" if self._head else bytes(self._buffer[:64]).lstrip().startswith(b"HEAD ")
        self._write(self._server.refusal(status, text), keep_alive=False, content=not is_head)
        if self._transport.can_write_eof():  # TLS cannot
            self._transport.write_eof()
        self.due = self._loop.time() + LINGER_S

    def expired(self) -> None:
        """End the connection because its time limit has passed."""
        if self._discards or self._transport.is_closing() or self._answering is not None:
            self._transport.abort()
        elif self._head is None and not self._held:
            self._transport.close()
        else:
            self._refuse(408, "the request did not arrive within the time limit; send it again")

    @property
    def is_idle(self) -> bool:
        """Return whether the connection waits for the first byte of a request."""
        return self._head is None and not self._held and not self._discards and not self._transport.is_closing()

    def close_if_idle(self) -> None:
        """Close the connection unless a request is in progress."""
        if self.is_idle:
            self._transport.close()
            self.due = self._loop.time() + LINGER_S  # time for the client to receive the rest of the last answer

    def abort(self) -> None:
        self._transport.abort()


@lru_cache
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return f"date: {formatdate(second, usegmt=True)}"


async def _coded(response: Response, accept: str) -> Response:
    """Return the response in the coding that the client prefers, unless it is too small to be worth it."""
    if sum(map(len, response.parts)) < codings.MIN_BYTES or not response.compressible:
        return response
    headers = {**response.headers, "vary": "accept-encoding"}
    if not (coding := codings.accepted(accept)):
        return Response(response.status, response.parts, headers)
    return Response(
        response.status, [await codings.encoded(response.parts, coding)], {**headers, "content-encoding": coding}
    )
