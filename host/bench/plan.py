"""When requests are to be sent: an open loop, which asks at its own times however slow the answers are."""

from pathlib import Path

import numpy as np

from headrace.batching import UsageError
from headrace.sim.workload import traffic
from headrace.sim.workload.replay import read_trace
from headrace.sim.workload.traffic import Times

POISSON, BURSTS = "poisson", "bursts"
BURST_S = 1.0  # mean length of a burst, and of the lull behind it
MAX_REQUESTS = 10_000_000  # of a run; a request takes some tens of bytes


def requests_in(duration_s: float, rate_rps: float) -> int:
    """How many requests come in a time, on average; at least 1. Raises UsageError for more than MAX_REQUESTS."""
    count = max(1, round(duration_s * rate_rps)) if duration_s * rate_rps < 1e12 else MAX_REQUESTS + 1
    if count > MAX_REQUESTS:
        raise UsageError(f"{duration_s:g} s at {rate_rps:g} requests/s; ask for at most {MAX_REQUESTS} requests a run")
    return count


def planned(arrivals: str, rate_rps: float, requests: int, seed: int) -> Times:
    """Times in s from the run's start, rising. Raises UsageError."""
    if arrivals == BURSTS:
        return traffic.mmpp2(traffic.burst_rates(rate_rps), (BURST_S, BURST_S), requests, seed)
    return traffic.poisson(rate_rps, requests, seed)


def replayed(path: Path, model: str, requests: int | None) -> Times:
    """The times of a trace (see sim/workload/replay.py), or of its first `requests`. Raises UsageError."""
    return np.array(read_trace(path, [model], float("inf")).arrival[:requests])
