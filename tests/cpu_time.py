"""CPU times that tests compare with each other, on machines that may be busy.

A test compares the same work at two sizes. No test compares a CPU time with a constant alone."""

import gc
import time
from collections.abc import Callable


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU time that this thread spends on `work`, in seconds.

    Other threads and processes do not count. The garbage collector rests meanwhile, because its cost depends on
    all objects of the process."""
    collects = gc.isenabled()
    gc.disable()
    try:
        began = time.thread_time()
        work()
        return time.thread_time() - began
    finally:
        if collects:
            gc.enable()


def least_s(*measures: Callable[[], float], rounds: int) -> list[float]:
    """Return the least result of each measure over several rounds.

    The measures take turns, so that a time in which the machine is slow meets all of them."""
    results = [[measure() for measure in measures] for _ in range(rounds)]
    return [min(column) for column in zip(*results, strict=True)]
