"""The clock of a runtime: the present time, and timers that follow the same time.

Rule: the runtime calls no clock of the machine itself. It asks its `Clock`, and the timers of the event loop must
follow the same time. A test may give the runtime a clock and an event loop in virtual time. Such a test serves an hour
in seconds, with the same result each time.

The event loop's own time is too coarse to serve by: uvloop counts whole milliseconds, and it keeps one value for a
whole turn of the loop.
"""

import time
from collections.abc import Callable
from typing import Protocol

from headrace.host.live.machine.precise_timer import PreciseTimer


class Timer(Protocol):
    """A timer that calls back once, at the time that was set last and never before it."""

    def set(self, at: float) -> None:
        """Call back at `at` (seconds of the clock; never if inf). This replaces the time that was set before."""
        ...

    def close(self) -> None:
        """Release the timer. It does not call back any more."""
        ...


class Clock(Protocol):
    """A source of time. The times in the workers' answers must come from the same clock."""

    def now(self) -> float:
        """Return the time in seconds. Only differences between two times have a meaning."""
        ...

    def timer(self, callback: Callable[[], None]) -> Timer:
        """Return a timer that calls `callback` in the running event loop."""
        ...


class MonotonicClock:
    """The clock that all processes of a machine share: `time.monotonic()`, with timers of the kernel."""

    def now(self) -> float:
        return time.monotonic()

    def timer(self, callback: Callable[[], None]) -> Timer:
        return PreciseTimer(callback)
