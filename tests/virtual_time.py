"""An event loop in virtual time: a test that waits for an hour ends in milliseconds, the same way each time.

The loop's selector never waits. When no file descriptor is ready, it moves the loop's clock to the next timer. So code
that takes its time from `loop.time()`, `asyncio.sleep`, `loop.call_at` and `asyncio.timeout` runs unchanged, and all
that is due at one instant runs before the clock moves on.

Sockets and pipes within the process work: what is written is ready at once. TCP over loopback is not always so quick.
Therefore a connection to a server of the same loop goes through a pair of sockets. Threads and other processes do not
work: the clock would move on while they do.
"""

import asyncio
import math
import selectors
import socket
from collections.abc import Callable, Coroutine
from typing import Any

HORIZON_S = 24 * 3600.0
MAX_TURNS = 1_000_000  # of the loop at one instant; the longest test has some thousands


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: the code under test waits for ever."""


class BeyondHorizon(RuntimeError):
    """The clock would pass the horizon: a timer is set again and again, and what the test waits for never comes."""


class Endless(RuntimeError):
    """The loop never leaves one instant: callbacks call each other for ever, or a timer is always due."""


class _JumpingSelector(selectors.EpollSelector):
    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            raise Deadlock("nothing is ready, and no timer is set")
        self.loop.jump()
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0.0 seconds and moves only when nothing else can run. Raises BeyondHorizon past `horizon_s`
    seconds, Deadlock, and Endless."""

    def __init__(self, horizon_s: float = HORIZON_S) -> None:
        self._now = 0.0
        self._turns = 0  # since the clock moved
        self._horizon_s = horizon_s
        self._servers: dict[Any, tuple[asyncio.Server, Callable[[], asyncio.BaseProtocol]]] = {}  # by address
        selector = _JumpingSelector()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self._now

    def jump(self) -> None:
        """Move the clock to the next timer."""
        at = self._scheduled[0].when()
        if at > self._horizon_s:
            raise BeyondHorizon(f"the next timer is at {at} s, beyond the horizon of {self._horizon_s} s")
        if at > self._now:
            self._now, self._turns = at, 0

    def _run_once(self) -> None:
        self._turns += 1
        if self._turns > MAX_TURNS:
            self._turns = 0  # closing the loop takes some turns, too
            raise Endless(f"{MAX_TURNS} turns of the loop at {self._now} s")
        super()._run_once()

    async def create_server(self, factory: Any, *address: Any, **options: Any) -> Any:
        """Listen at a port of the machine, too, so that the server has an address of its own."""
        server = await super().create_server(factory, *address, **options)
        if options.get("ssl") is None:
            self._servers |= {each.getsockname()[:2]: (server, factory) for each in server.sockets}
        return server

    async def create_connection(self, factory: Any, *address: Any, **options: Any) -> Any:
        """Connect a pair of sockets where a server of this loop listens at the address, without TLS."""
        server, accepted = self._servers.get(address, (None, None))
        if server is None or not server.is_serving():
            return await super().create_connection(factory, *address, **options)
        ours, theirs = socket.socketpair()
        await self.connect_accepted_socket(accepted, theirs)
        return await super().create_connection(factory, sock=ours, **options)

    @property
    def _clock_resolution(self) -> float:
        """asyncio runs every timer that is due before now plus this. One ulp runs the timers that are due now, and no
        later one."""
        return math.ulp(self._now)

    @_clock_resolution.setter
    def _clock_resolution(self, _: float) -> None:
        """asyncio sets the resolution of the system's clock, which does not matter here."""


def run(main: Coroutine[Any, Any, Any], *, horizon_s: float = HORIZON_S) -> Any:
    """Run `main` to its end on a new `VirtualLoop`, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(horizon_s)) as runner:
        return runner.run(main)


class VirtualTimer:
    """Rings by the timers of the running loop, which are exact in virtual time."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        self.close()
        if at < math.inf:
            self._timer = self._loop.call_at(at, self._callback)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LoopClock:
    """The running loop's time as the `Clock` of a live runtime."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def timer(self, callback: Callable[[], None]) -> VirtualTimer:
        return VirtualTimer(callback)
