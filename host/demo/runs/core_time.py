"""Measure the processor time that work takes on one core of this machine."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

ROUNDS: Final = 10
MEASURING_S: Final = 1.0  # no round begins later than this


def core_seconds(work: Sequence[Callable[[], object]]) -> list[float]:
    """Return the processor time of each piece of work: the least of ROUNDS, or of as many as MEASURING_S allows.

    The first round loads libraries and caches. On a busy machine other processes slow all rounds but the fastest."""
    rounds: list[list[float]] = []
    began = time.monotonic()
    with _one_blas_thread():
        while not rounds or (len(rounds) < ROUNDS and time.monotonic() - began < MEASURING_S):
            seconds = []
            for each in work:
                started = time.thread_time()
                each()
                seconds.append(time.thread_time() - started)
            rounds.append(seconds)
    least: list[float] = np.min(rounds, axis=0).tolist()
    return least


def _one_blas_thread() -> contextlib.AbstractContextManager[object]:
    """Limit BLAS to one thread. The first of two threads would wait for the other, actively, if its core is busy. That
    time would count as work."""
    try:
        from threadpoolctl import threadpool_limits  # scikit-learn, of the extra "demo", installs it
    except ImportError:
        return contextlib.nullcontext()
    return threadpool_limits(1, "blas")
