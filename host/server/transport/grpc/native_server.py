"""This server stands on the native front. It runs the endpoints' handlers in the event loop, and carries bytes.

The front (`native/`) receives messages and sends answers in its own thread. It enforces the limits on sizes, times and
connections, and tells this class of calls that it refuses. So each refused call is counted here, like all others."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import grpc

from headrace.batching import BadInput, HeadraceError
from headrace.host.live.results import Overloaded, TooLate
from headrace.host.memory.slots import MIN_BYTES
from headrace.host.server.protocol import codings
from headrace.host.server.protocol.limits import BYTES_PER_S, IDLE_S, SMALL, Limits
from headrace.host.server.protocol.messages import TooLarge, Unauthorized
from headrace.host.server.protocol.shared_memory import Regions
from headrace.host.server.service import Service
from headrace.host.server.transport.grpc.endpoints import SERVICE, endpoints, status_of
from headrace.host.server.transport.grpc.lent_slots import LentSlots
from headrace.host.server.transport.grpc.tensor_calls import trace_of
from headrace.host.server.transport.grpc.wire import Bytes, Placed
from headrace.host.server.transport.tls import Tls

# Kinds of events and reasons of refusals, as native/call.hpp numbers them.
CALL, OPEN, MESSAGE, END, CLOSED, SENT, REFUSED = range(7)
TOO_LARGE, NO_ROOM, TOO_LATE, NO_MESSAGE, MALFORMED, LARGE_HEAD, TOO_MANY = range(1, 8)

BACKLOG = 1024  # connections that the system accepts before the front does
SENDS_AHEAD = 16  # answers of a stream that the front holds at a time
STOP_CHECK_S = 0.01  # time between two checks whether all calls have ended
EXHAUSTED = "RESOURCE_EXHAUSTED"
INFER = f"/{SERVICE}/ModelInfer"

_ENDLESS = nullcontext()  # in place of a time limit

_log = logging.getLogger(__name__)


class Head(NamedTuple):
    """Hold what a call says before its message. A `timeout_s` of 0 is not given."""

    path: str
    peer_address: str
    authorization: str
    traceparent: str
    encoding: str
    timeout_s: float

    def peer(self) -> str:
        """Return the address of the client, as the context of grpc.aio does."""
        return self.peer_address

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata that the handlers read."""
        return (("traceparent", self.traceparent),)


class Refused(HeadraceError):
    """A call ends with this status of gRPC. `cause` is the error that is counted."""

    def __init__(self, status: str, cause: HeadraceError) -> None:
        super().__init__(str(cause))
        self.status = status
        self.cause = cause


class NativeServer:
    """Serve until `stop`."""

    def __init__(
        self, front: Any, service: Service, limits: Limits, regions: Regions | None, tls: Tls | None = None
    ) -> None:
        """Prepare the server. `front` is the class `native.http2.Front`."""
        self._make_front = front
        self._service = service
        self._limits = limits
        self._tls = tls
        self._endpoints = endpoints(service, limits, regions, self._room)
        self._unary = {f"/{SERVICE}/{name}": call for name, call in self._endpoints.unary.items()}
        self._streaming = {f"/{SERVICE}/{name}": call for name, call in self._endpoints.streams.items()}
        self._front: Any = None
        self._slots: LentSlots | None = None
        self._has_token = not service.authorized(None)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._streams: dict[int, _Stream] = {}
        self._inflated = 0  # bytes of decompressed messages

    def _room(self, message: Bytes | None, head: Head) -> AbstractContextManager[None]:
        """Return an empty context, because the front has counted the message. Raises Overloaded if it had no room."""
        if message is None:
            raise self._counted(head, Overloaded("the server has no room for the message; try again later"))
        return nullcontext()

    async def start(self, host: str, port: int) -> int:
        """Open the port and return its number. Raises OSError if the port cannot be opened."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()  # as grpc.aio listens
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
        listener.setblocking(False)
        number: int = listener.getsockname()[1]
        limits = self._limits
        self._front = self._make_front(
            listener=listener.detach(),
            streams=tuple(self._streaming),
            placed=INFER,
            early=self._has_token,
            body=limits.body,
            bodies=limits.bodies,
            head=limits.head,
            connections=limits.connections,
            client_s=limits.client_s,
            idle_s=IDLE_S,
            bytes_per_s=float(BYTES_PER_S),
            certificate=None if self._tls is None else self._tls.certificate,
            key=None if self._tls is None else self._tls.key,
        )
        self._slots = LentSlots(self._front, self._service)
        asyncio.get_running_loop().add_reader(self._front.fileno(), self._on_events)
        return number

    async def stop(self, timeout_s: float) -> None:
        """Stop the server. Calls in progress have `timeout_s` to end."""
        if self._front is None:
            return
        loop = asyncio.get_running_loop()
        self._front.drain()
        end = loop.time() + timeout_s
        while (self._tasks or self._front.calls) and loop.time() < end:
            await asyncio.sleep(STOP_CHECK_S)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        loop.remove_reader(self._front.fileno())
        self._front.close()
        self._front = None

    def _on_events(self) -> None:
        for kind, call, head, message, place, number in self._front.events():
            if kind == CALL:
                self._begin(call, self._answer(call, Head(*head), message, place, bool(number)))
            elif kind == OPEN:
                self._open(call, Head(*head))
            elif kind == REFUSED:
                self._refused(call, head, number)
            elif kind == CLOSED:
                if task := self._tasks.get(call):
                    task.cancel()
            elif stream := self._streams.get(call):
                stream.tell(kind, message, bool(number))

    def _begin(self, call: int, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[call] = task
        task.add_done_callback(lambda _: self._tasks.pop(call, None))

    def _open(self, call: int, head: Head) -> None:
        """Begin a stream. Refuse any call without the token before its message arrives."""
        if not self._service.authorized(head.authorization or None):
            self._end(call, self._counted(head, _unauthorized()))
        elif head.path in self._streaming:
            stream = self._streams[call] = _Stream(self._front, call)
            self._begin(call, self._answer_stream(call, head, stream))

    def _refused(self, call: int, head: Any, reason: int) -> None:
        error = _refusal(reason, self._limits)
        if stream := self._streams.get(call):
            stream.fail(error)
        elif head is not None:
            self._end(call, self._counted(Head(*head), error))

    def _counted(self, head: Head, error: HeadraceError) -> HeadraceError:
        """Count a refused call. Returns the error."""
        try:
            with self._service.counted(trace_of(head, "")):
                raise error.cause if isinstance(error, Refused) else error
        except HeadraceError:
            return error

    def _end(self, call: int, error: Exception) -> None:
        """End a call with the status of an error."""
        if isinstance(error, Refused):
            status, text = error.status, str(error)
        else:
            result, text = status_of(error)
            status = result.grpc
        code = grpc.StatusCode[status].value[0]
        self._front.answer(call, None, True, code, text.encode(errors="replace"))

    async def _answer(self, call: int, head: Head, message: Any, place: Any, compressed: bool) -> None:
        if self._has_token and not self._service.authorized(head.authorization or None):
            return  # `_open` has answered it
        try:
            handler = self._unary.get(head.path)
            if handler is None:
                raise Refused("UNIMPLEMENTED", BadInput("this server does not have the method"))
            async with asyncio.timeout(head.timeout_s) if head.timeout_s else _ENDLESS:
                if compressed:
                    message = await self._inflate_or_count(message, head)
                whole = self._whole(message, place, head)
                message = place = None  # the handler alone holds the bytes
                running = handler(whole, head)
                whole = None
                answer = await running
            size = len(answer) if isinstance(answer, bytes) else sum(map(len, answer))
            if size > SMALL and self._front.held + self._inflated + size > self._limits.bodies:
                raise Overloaded("the server has no room for the answer; try again later")
            self._front.answer(call, [answer] if isinstance(answer, bytes) else answer, True)
        except TimeoutError:
            self._end(call, _too_late())
        except Exception as error:
            self._end(call, error)
        except asyncio.CancelledError:  # of `stop`; no client waits after its own cancellation
            self._end(call, Refused("CANCELLED", BadInput("the server ends")))
            raise

    def _whole(self, message: Any, place: Any, head: Head) -> Any:
        """Return what the handler takes: the bytes of the message, or a Placed one."""
        view = memoryview(message)
        assert self._slots is not None
        if place is not None:
            return Placed(view, self._slots.filled(place))
        if len(view) >= MIN_BYTES and head.path == INFER:
            self._slots.borrow()  # of models that have been loaded meanwhile
        return view

    async def _answer_stream(self, call: int, head: Head, stream: "_Stream") -> None:
        messages = _Messages(self, stream, head)
        try:
            async with asyncio.timeout(head.timeout_s or None):
                async for answer in self._streaming[head.path](messages, head):
                    await stream.room.acquire()
                    self._front.answer(call, [answer])
            self._front.answer(call, None, True)
        except TimeoutError:
            self._end(call, _too_late())
        except Exception as error:
            self._end(call, error)
        except asyncio.CancelledError:
            self._end(call, Refused("CANCELLED", BadInput("the server ends")))
            raise
        finally:
            messages.close()
            del self._streams[call]

    async def _inflate_or_count(self, message: Any, head: Head) -> Bytes:
        try:
            inflated = await self.inflate(message, head.encoding)
        except HeadraceError as error:
            raise self._counted(head, error) from None
        task = asyncio.current_task()
        assert task is not None
        size = len(inflated)
        task.add_done_callback(lambda _: self.deflated(size))
        return inflated

    async def inflate(self, message: Any, encoding: str) -> memoryview:
        """Return a decompressed message, whose bytes count in `_inflated` until the caller takes them off.

        Raises Refused, BadInput and Overloaded. Nothing counts then."""
        if encoding not in codings.CODINGS:
            error = BadInput("the message is compressed, and grpc-encoding is neither gzip nor deflate")
            raise Refused("UNIMPLEMENTED", error)
        size = 0

        def reserve(more: int) -> None:
            nonlocal size
            size += more
            self._inflated += more
            if size > self._limits.body:
                raise _too_large(self._limits)
            if self._front.held + self._inflated > self._limits.bodies:
                raise Overloaded("the server has no room for the message; try again later")

        try:
            return await codings.decoded(memoryview(message), encoding, reserve)
        except BaseException:
            self._inflated -= size
            raise

    def deflated(self, size: int) -> None:
        self._inflated -= size


class _Stream:
    """The messages of a stream that have arrived, and the room for its answers."""

    def __init__(self, front: Any, call: int) -> None:
        self._front = front
        self._call = call
        self._arrived: deque[tuple[Any, bool] | HeadraceError | None] = deque()
        self._changed = asyncio.Event()
        self.room = asyncio.Semaphore(SENDS_AHEAD)

    def tell(self, kind: int, message: Any, compressed: bool) -> None:
        if kind == SENT:
            self.room.release()
            return
        self._arrived.append((message, compressed) if kind == MESSAGE else None)
        self._changed.set()

    def fail(self, error: HeadraceError) -> None:
        self._arrived.append(error)
        self._changed.set()

    async def next(self) -> tuple[Any, bool] | None:
        """Return the next message, and whether it is compressed; None at the end of the stream.

        Raises the error of a refused message."""
        while not self._arrived:
            self._changed.clear()
            await self._changed.wait()
        found = self._arrived.popleft()
        if isinstance(found, HeadraceError):
            raise found
        if found is not None:
            self._front.taken(self._call)
        return found


class _Messages:
    """Iterate over the messages of a stream. None stands for a message without room.

    A decompressed message counts in the server's bytes until the next one is wanted, or the stream has ended."""

    def __init__(self, server: NativeServer, stream: _Stream, head: Head) -> None:
        self._server = server
        self._stream = stream
        self._head = head
        self._inflated = 0  # bytes of the last message

    def __aiter__(self) -> "_Messages":
        return self

    async def __anext__(self) -> Bytes | None:
        self.close()
        found = await self._stream.next()
        if found is None:
            raise StopAsyncIteration
        message, compressed = found
        if message is None:
            return None
        if not compressed:
            return memoryview(message)
        inflated = await self._server.inflate(message, self._head.encoding)
        self._inflated = len(inflated)
        return inflated

    def close(self) -> None:
        """Take off the bytes of the last message."""
        self._server.deflated(self._inflated)
        self._inflated = 0


def _unauthorized() -> HeadraceError:
    return Unauthorized("send the metadata authorization: Bearer TOKEN with this server's token")


def _too_late() -> HeadraceError:
    return TooLate("the call was not answered within its time limit (grpc-timeout)")


def _too_large(limits: Limits) -> HeadraceError:
    text = f"the message is larger than max_receive_message_length ({limits.body} bytes)"
    return Refused(EXHAUSTED, TooLarge(text))


def _refusal(reason: int, limits: Limits) -> HeadraceError:
    """Return the error for a reason of the front."""
    return {
        TOO_LARGE: _too_large(limits),
        NO_ROOM: Overloaded("the server has no room for the message; try again later"),
        TOO_LATE: TooLate("the message did not arrive within the time limit; send it again"),
        NO_MESSAGE: BadInput("the call has no message"),
        MALFORMED: BadInput("the call's bytes are not gRPC's messages: prefixes of 5 bytes, and as many as these say"),
        LARGE_HEAD: Refused(EXHAUSTED, TooLarge(f"the metadata have more than {limits.head} bytes; send fewer")),
        TOO_MANY: Overloaded(f"{limits.connections} calls are open, the limit; try again later"),
    }[reason]
