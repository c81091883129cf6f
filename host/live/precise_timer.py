"""Calls back at a time, a few hundredths of a millisecond late; asyncio's own timers are whole milliseconds."""

import asyncio
import math
import time
from collections.abc import Callable

from headrace.host.workers.timerfd import TimerFd


class PreciseTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        """`callback` is called in the running event loop, never before the time that was set."""
        self._callback = callback
        self._timer = TimerFd()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._timer.fileno(), self._ring)
        self.at = math.inf

    def set(self, at: float) -> None:
        """Ring once at `at` (`time.monotonic()` seconds; never if inf), in place of what was set before."""
        if at != self.at:
            self.at = at
            self._timer.set(at)

    def _ring(self) -> None:
        if time.monotonic() < self.at:  # it was set anew since the loop saw it ring
            return
        self.at = math.inf
        self._timer.set(math.inf)
        self._callback()

    def close(self) -> None:
        if self._timer.fileno() >= 0:
            self._loop.remove_reader(self._timer.fileno())
            self._timer.close()
