"""The clock of a runtime: the present time, and alarms that ring by it.

The runtime itself calls no clock of the machine. Its pauses and bounds go by the event loop's timers, which must follow
the same time. With a loop in virtual time and a clock of that loop, a runtime thus serves an hour in seconds, the same
way each time.

The event loop's own time is not enough to serve by: uvloop counts whole milliseconds and keeps a value for a whole turn
of the loop.
"""

import time
from collections.abc import Callable
from typing import Protocol

from headrace.host.live.precise_timer import PreciseTimer


class Rings(Protocol):
    """An alarm that rings once at the time that was set last, and never before it."""

    def set(self, at: float) -> None:
        """Ring at `at` (seconds of the clock; never if inf), in place of what was set before."""
        ...

    def close(self) -> None: ...


class Clock(Protocol):
    """The workers' answers must have their times from the same clock."""

    def now(self) -> float:
        """Return the time in seconds; only differences have a meaning."""
        ...

    def alarm(self, callback: Callable[[], None]) -> Rings:
        """Return an alarm that calls `callback` in the running event loop."""
        ...


class MonotonicClock:
    """The clock that all processes of a machine share: `time.monotonic()`, with alarms of the kernel's timers."""

    def now(self) -> float:
        return time.monotonic()

    def alarm(self, callback: Callable[[], None]) -> Rings:
        return PreciseTimer(callback)
