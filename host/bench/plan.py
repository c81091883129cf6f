"""Send times of an open loop, in which requests are sent at planned times and do not wait for answers."""

from pathlib import Path

import numpy as np

from headrace.batching import UsageError
from headrace.sim.workload import traffic
from headrace.sim.workload.replay import read_trace
from headrace.sim.workload.traffic import Times

POISSON, BURSTS = "poisson", "bursts"
BURST_S = 1.0  # mean length of a burst, and of the pause after it
MAX_REQUESTS = 10_000_000  # limit for one run; a request takes some tens of bytes


def requests_in(duration_s: float, rate_rps: float) -> int:
    """Return the mean number of requests in `duration_s`, at least 1. Raises UsageError for more than MAX_REQUESTS."""
    count = max(1, round(duration_s * rate_rps)) if duration_s * rate_rps < 1e12 else MAX_REQUESTS + 1
    if count > MAX_REQUESTS:
        raise UsageError(
            f"{duration_s:g} s at {rate_rps:g} requests/s are too many requests for a run; "
            f"ask for at most {MAX_REQUESTS} requests a run"
        )
    return count


def planned(arrivals: str, rate_rps: float, requests: int, seed: int) -> Times:
    """Return send times in seconds from the start of the run, in rising order. Raises UsageError.

    The times of BURSTS come from a two-state Markov-modulated Poisson process, those of other `arrivals` from a Poisson
    process."""
    if arrivals == BURSTS:
        return traffic.mmpp2(traffic.burst_rates(rate_rps), (BURST_S, BURST_S), requests, seed)
    return traffic.poisson(rate_rps, requests, seed)


def replayed(path: Path, model: str, requests: int | None) -> Times:
    """Return the times of a trace (see sim/workload/replay.py), or of its first `requests`. Raises UsageError."""
    return np.array(read_trace(path, [model], float("inf")).arrival[:requests])
