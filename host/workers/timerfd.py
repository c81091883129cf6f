"""Linux's timerfd: a file descriptor that becomes readable at a time of `time.monotonic()`.

It is a few hundredths of a millisecond late. Timers of poll() and asyncio have whole milliseconds. Python has timerfd
from 3.13 on.
"""

import ctypes
import math
import os
import time

_libc = ctypes.CDLL(None, use_errno=True)
_ABSOLUTE = 1


class _Spec(ctypes.Structure):
    """The C struct itimerspec."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


_settime = _libc.timerfd_settime
_settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Spec), ctypes.c_void_p)


class TimerFd:
    def __init__(self) -> None:
        self._fd: int = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._spec = _Spec()
        self._pointer = ctypes.byref(self._spec)

    def fileno(self) -> int:
        return self._fd

    def set(self, at: float) -> None:
        """Make the descriptor readable from `at` on (`time.monotonic()` seconds), or never if `at` is infinite.

        An earlier time does not count any more."""
        if at == math.inf:
            self._spec.value_s = self._spec.value_ns = 0
        else:
            # Rounded up, so that the clock shows at least `at`. The least value is 1 ns, as 0 means never.
            self._spec.value_s, self._spec.value_ns = divmod(max(1, math.ceil(at * 1e9)), 1_000_000_000)
        if _settime(self._fd, _ABSOLUTE, self._pointer, None) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
