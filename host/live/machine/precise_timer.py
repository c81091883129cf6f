"""A timer for the event loop that calls back a few hundredths of a millisecond after its time.

The timers of asyncio and uvloop round to whole milliseconds. A batching window of a few milliseconds needs better.
"""

import asyncio
import math
import time
from collections.abc import Callable

from headrace.host.workers.timerfd import TimerFd


class PreciseTimer:
    """A timer of the kernel that calls back in the running event loop, and never before its time."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._timer = TimerFd()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._timer.fileno(), self._expired)
        self.at = math.inf

    def set(self, at: float) -> None:
        """Call back once at `at` (`time.monotonic()` seconds; never if inf). This replaces the time set before."""
        if at != self.at:
            self.at = at
            self._timer.set(at)

    def _expired(self) -> None:
        if time.monotonic() < self.at:  # `set` gave a later time after the loop had seen the timer expire
            return
        self.at = math.inf
        self._timer.set(math.inf)
        self._callback()

    def close(self) -> None:
        """Remove the timer from the event loop and close its descriptor."""
        if self._timer.fileno() >= 0:
            self._loop.remove_reader(self._timer.fileno())
            self._timer.close()
