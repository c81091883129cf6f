"""The gRPC server, and its replacement when the library's server ends by itself.

grpc.aio ends its server permanently when a request names a call whose name is not UTF-8 (seen in 1.85.3). One such
request would close the port to every client. Here another server opens the port a tenth of a second later. Calls in
progress continue in the old server. Calls that arrive in between may be cancelled. Clients reconnect by themselves."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from grpc import aio

WATCH_S = 0.1  # time between two checks whether the server has ended
MAX_PAUSE_S = 5.0  # longest pause between two attempts to open the port again
DRAIN_S = 60.0  # time limit for the calls in progress of a server that has ended

_log = logging.getLogger(__name__)


class GrpcServer:
    """Serve until `stop`.

    `make` returns a server with all handlers and without a port. `bind` gives it a port and returns the number."""

    def __init__(self, make: Callable[[], Any], bind: Callable[[Any, str], int]) -> None:
        self._make = make
        self._bind = bind
        self._server: Any = None
        self._watching: asyncio.Task[None] | None = None
        self._ended: set[asyncio.Task[None]] = set()  # one task for each former server, until its last call ends

    async def start(self, host: str, port: int) -> int:
        """Open the port and return its number. Raises RuntimeError if the port cannot be opened."""
        asyncio.get_running_loop().set_exception_handler(_on_loop_error)
        number = await self._started(host, port)
        self._watching = asyncio.create_task(self._watch(host, number))
        return number

    async def stop(self, timeout_s: float) -> None:
        """Stop the server. Calls in progress have `timeout_s` to end."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        for task in self._ended:
            task.cancel()
        if self._server is not None:
            await self._server.stop(timeout_s)
        await asyncio.gather(*self._ended, return_exceptions=True)

    async def _started(self, host: str, port: int) -> int:
        server = self._make()
        number = self._bind(server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        await server.start()
        self._server = server
        return number

    async def _watch(self, host: str, port: int) -> None:
        while True:
            try:
                while await self._server.wait_for_termination(WATCH_S):  # True after WATCH_S
                    pass
                return
            except Exception as error:
                _log.warning("the gRPC server ended on a request that it cannot read (%s); it is replaced", error)
            ended = asyncio.create_task(_drained(self._server))
            self._ended.add(ended)
            ended.add_done_callback(self._ended.discard)
            await self._again(host, port)

    async def _again(self, host: str, port: int) -> None:
        pause_s = WATCH_S
        while True:
            try:
                await self._started(host, port)
                return
            except RuntimeError as error:  # the old server has not closed the port yet, or another process has taken it
                _log.warning("the gRPC port %d cannot be opened again yet: %s", port, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report errors that no task awaits, except the error on which a gRPC server ended, which `_watch` reports."""
    error = context.get("exception")
    where = None if error is None else error.__traceback__
    while isinstance(error, UnicodeDecodeError) and where is not None:
        if where.tb_frame.f_code.co_filename.endswith("aio/server.pyx.pxi"):
            return
        where = where.tb_next
    loop.default_exception_handler(context)


async def _drained(server: aio.Server) -> None:
    """Wait until the calls of a server have ended, and then free the server, also if the wait is cancelled."""
    with contextlib.suppress(Exception):  # the server raises again the error on which it ended
        await server.stop(DRAIN_S)
