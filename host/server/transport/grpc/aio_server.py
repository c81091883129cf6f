"""Serve gRPC by grpc.aio, and admit calls and messages within its limits."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import grpc
from grpc import aio

from headrace.batching import BadInput, HeadraceError
from headrace.host.live.results import Overloaded, TooLate
from headrace.host.server.protocol.limits import BYTES_PER_S, IDLE_S, SMALL, Limits
from headrace.host.server.protocol.messages import Unauthorized
from headrace.host.server.protocol.shared_memory import Regions
from headrace.host.server.service import Service
from headrace.host.server.transport.grpc.endpoints import SERVICE, Call, abort, endpoints, joined, trace_of
from headrace.host.server.transport.grpc.server import GrpcServer
from headrace.host.server.transport.grpc.wire import Bytes
from headrace.host.server.transport.tls import Tls


def aio_server(service: Service, limits: Limits, regions: Regions | None, tls: Tls | None) -> GrpcServer:
    """Return a server of the protocol that is not started yet."""
    options = [
        ("grpc.max_receive_message_length", limits.body),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", limits.head),
        ("grpc.absolute_max_metadata_size", limits.head),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", int(limits.client_s * 1e3)),
        ("grpc.max_connection_idle_ms", int(IDLE_S * 1e3)),
        ("grpc.keepalive_time_ms", int(IDLE_S * 1e3)),  # detects a peer that left without closing
        ("grpc.keepalive_timeout_ms", int(limits.client_s * 1e3)),
        ("grpc.so_reuseport", 0),  # a port that is in use is an error
    ]
    entrance = _Entrance(service, limits)
    unary, streams = endpoints(service, limits, regions, entrance.room)
    handlers = {name: entrance.unary(call) for name, call in unary.items()}
    handlers |= {name: grpc.stream_stream_rpc_method_handler(call) for name, call in streams.items()}

    def make() -> aio.Server:
        server = aio.server(interceptors=[entrance], options=options, maximum_concurrent_rpcs=limits.connections)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        return server

    def bind(server: aio.Server, address: str) -> int:
        if tls is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, tls.credentials()))

    return GrpcServer(make, bind)


class _Entrance(aio.ServerInterceptor):
    """Admit calls that have the token, and messages for which there is room.

    gRPC reports the size of a message only when it is complete. So every message counts with the largest size: the
    server receives at most `limits.bodies` / `limits.body` messages at a time.

    gRPC itself may receive half of these messages, which saves 0.05 ms a call. But gRPC cannot end a call whose message
    never arrives. So this class receives all further messages itself, with a time limit. They also pass when stalled
    clients use up gRPC's half.

    Messages that have arrived, and answers that the client has not received, may take as much memory again. The
    messages of a stream arrive one at a time and are not limited here."""

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service = service
        self._limits = limits
        places = limits.bodies // limits.body
        self._max_by_grpc = max(1, places // 2)
        self._by_grpc: set[asyncio.Task[Any]] = set()  # calls whose messages gRPC is receiving
        self._places = asyncio.Semaphore(max(1, places - self._max_by_grpc))
        self._held = 0

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        if not self._service.authorized(dict(details.invocation_metadata).get("authorization")):
            return grpc.stream_stream_rpc_method_handler(self._unauthorized)  # answers without waiting for a message
        if handler.request_streaming:
            return handler
        if len(self._by_grpc) < self._max_by_grpc:
            task = _current_task()
            self._by_grpc.add(task)
            task.add_done_callback(self._by_grpc.discard)  # in case the message never arrives
            return handler
        answer = handler.unary_unary

        async def read(_: Any, context: Any) -> bytes | None:
            try:
                message = await self._message(context)
            except Exception as error:
                await abort(context, error)
            return await answer(message, context)  # type: ignore[no-any-return]

        return grpc.stream_unary_rpc_method_handler(read)

    def unary(self, call: Call) -> Any:
        """Return the handler of a call with one message and one answer, both as bytes."""

        async def run(message: bytes, context: Any) -> bytes | None:
            self._by_grpc.discard(_current_task())
            try:
                with self.room(message, context):
                    made = await call(message, context)
                    answer = made if isinstance(made, bytes) else await joined(made)
                self._hold(answer)
                return answer
            except Exception as error:
                await abort(context, error)
                return None

        return grpc.unary_unary_rpc_method_handler(run)

    async def _unauthorized(self, _: Any, context: Any) -> None:
        try:
            token = "send the metadata authorization: Bearer TOKEN with this server's token"
            self._refuse(context, Unauthorized(token))
        except Unauthorized as error:
            await abort(context, error)

    @contextmanager
    def room(self, message: Bytes | None, context: Any) -> Iterator[None]:
        """Reserve room for a message inside this context. Raises Overloaded if there is none."""
        assert message is not None  # only a front that counts bytes by itself has none
        if self._held + len(message) > self._limits.bodies:
            self._refuse(context, Overloaded("the server has no room for the message; try again later"))
        self._held += len(message)
        try:
            yield
        finally:
            self._held -= len(message)

    def _hold(self, answer: bytes) -> None:
        """Reserve room for the answer until its call's task ends, which is when the client has received it. Raises
        Overloaded."""
        if len(answer) > SMALL and self._held + len(answer) > self._limits.bodies:
            raise Overloaded("the server has no room for the answer; try again later")
        self._held += len(answer)
        _current_task().add_done_callback(lambda _: self._release(len(answer)))

    def _release(self, size: int) -> None:
        self._held -= size

    def _refuse(self, context: Any, error: HeadraceError) -> NoReturn:
        """Raise the error, and count the refused call."""
        with self._service.counted(trace_of(context, "")):
            raise error

    async def _message(self, context: Any) -> bytes:
        """Receive the message of a call within the time limit. Raises Overloaded, TooLate and BadInput."""
        limits = self._limits
        try:
            async with asyncio.timeout(limits.client_s):
                await self._places.acquire()
        except TimeoutError:
            self._refuse(context, Overloaded("the server has no room for the message; try again later"))
        try:
            async with asyncio.timeout(limits.client_s + limits.body / BYTES_PER_S):
                message: bytes = await context.read()
        except TimeoutError:
            self._refuse(context, TooLate("the message did not arrive within the time limit; send it again"))
        finally:
            self._places.release()
        if message is aio.EOF:
            self._refuse(context, BadInput("the call has no message"))
        return message


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
