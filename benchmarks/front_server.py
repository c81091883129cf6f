"""`headrace` whose fronts answer each inference as they answered the first one like it: `benchmarks.server` starts it.

A request is still received, and its answer is sent. It does not go to the runtime or to a worker, and nothing checks
it. So this server is as fast as any server with these fronts can be, beside the same client on the same machine."""

import sys
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

from headrace.host.server import serve
from headrace.host.server.transport.grpc.native_server import INFER, NativeServer
from headrace.host.server.transport.grpc.wire import Placed
from headrace.host.server.transport.http.connection import HttpServer, Request, Response

LIKE_BYTES = 1024  # the first bytes of two messages that are alike
Answer = TypeVar("Answer")


class Repeated(Generic[Answer]):
    """Call a handler once for all requests with the same key, and return a copy of its answer to each of them."""

    def __init__(
        self,
        handler: Callable[..., Awaitable[Answer]],
        key: Callable[..., Hashable],
        copied: Callable[[Answer], Answer],
    ) -> None:
        """`key` returns None for a request whose answer is not repeated. `copied` returns an answer that stays."""
        self._handler = handler
        self._key = key
        self._copied = copied
        self._known: dict[Hashable, Answer] = {}

    async def __call__(self, *given: Any) -> Answer:
        key = self._key(*given)
        if key is None:
            return await self._handler(*given)
        if key not in self._known:
            self._known[key] = self._copied(await self._handler(*given))
        return self._known[key]


def http_key(request: Request) -> Hashable:
    return (request.target, bytes(request.body[:LIKE_BYTES])) if request.target.endswith("/infer") else None


def copied_response(response: Response) -> Response:
    return Response(response.status, [bytes(part) for part in response.parts], response.headers, response.compressible)


def grpc_key(message: Any, _: Any) -> Hashable:
    return bytes((message.fields if isinstance(message, Placed) else message)[:LIKE_BYTES])


def main() -> None:
    """Change the fronts, and run Headrace's command."""
    make_grpc = serve.grpc_server

    def http_server(handler: Callable[[Request], Awaitable[Response]], *given: Any) -> HttpServer:
        return HttpServer(Repeated(handler, http_key, copied_response), *given)

    def grpc_server(*given: Any) -> Any:
        server = make_grpc(*given)
        if not isinstance(server, NativeServer):
            raise SystemExit("the native front of gRPC is not installed")
        server._unary[INFER] = Repeated(server._unary[INFER], grpc_key, lambda parts: [bytes(part) for part in parts])
        return server

    serve.HttpServer = http_server  # type: ignore[assignment, misc]
    serve.grpc_server = grpc_server
    from headrace.host.cli.main import main as command

    sys.argv[0] = "headrace"
    command()
