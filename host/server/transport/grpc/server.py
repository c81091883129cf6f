"""The server of gRPC's library, and another one in its place when it ends by itself.

grpc.aio ends its server for good when one request names a call whose name is not UTF-8 (seen in 1.85.3). One request
would then close the port to everybody. Here the next server takes the port a tenth of a second later. Calls that are
under way go on in the old server. Calls that come in between may be cancelled. Clients connect again by themselves."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from grpc import aio

WATCH_S = 0.1  # between two looks whether the server is well
PAUSE_S = 5.0  # at most, between two attempts to have the port again
DRAIN_S = 60.0  # for the calls that an ended server still has

_log = logging.getLogger(__name__)


class GrpcServer:
    """Serves until `stop`. `make` returns a server with all handlers and without a port; `bind` gives it one."""

    def __init__(self, make: Callable[[], Any], bind: Callable[[Any, str], int]) -> None:
        self._make = make
        self._bind = bind
        self._server: Any = None
        self._watching: asyncio.Task[None] | None = None
        self._ended: set[asyncio.Task[None]] = set()  # of the servers before: until their last calls end

    async def start(self, host: str, port: int) -> int:
        """Return the port. Raises RuntimeError where it cannot be had."""
        asyncio.get_running_loop().set_exception_handler(_told)
        found = await self._started(host, port)
        self._watching = asyncio.create_task(self._watch(host, found))
        return found

    async def stop(self, bound_s: float) -> None:
        """End within `bound_s`: calls that are under way may end until then."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        for task in self._ended:
            task.cancel()
        if self._server is not None:
            await self._server.stop(bound_s)
        await asyncio.gather(*self._ended, return_exceptions=True)

    async def _started(self, host: str, port: int) -> int:
        server = self._make()
        found = self._bind(server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        await server.start()
        self._server = server
        return found

    async def _watch(self, host: str, port: int) -> None:
        while True:
            try:
                while await self._server.wait_for_termination(WATCH_S):  # true where the time has passed
                    pass
                return
            except Exception as error:
                _log.warning("gRPC's server ended on a request that it cannot read (%s); the next one begins", error)
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
            except RuntimeError as error:  # the old server lets go of the port in a moment, or somebody has taken it
                _log.warning("gRPC's port %d cannot be had again yet: %s", port, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S)


def _told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell of errors that nobody awaits, but not of those on which gRPC's server ended: `_watch` has told of them."""
    error = context.get("exception")
    where = None if error is None else error.__traceback__
    while isinstance(error, UnicodeDecodeError) and where is not None:
        if where.tb_frame.f_code.co_filename.endswith("aio/server.pyx.pxi"):
            return
        where = where.tb_next
    loop.default_exception_handler(context)


async def _drained(server: aio.Server) -> None:
    """Let the calls of a server end, and then free it, also when the wait is cancelled."""
    with contextlib.suppress(Exception):  # the server raises once more what it ended on
        await server.stop(DRAIN_S)
