"""Arrival processes: arrival times in seconds, rising, shape (requests,). Each is a function of its seed."""

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError

Times = NDArray[np.float64]


def poisson(rate_rps: float, requests: int, seed: int) -> Times:
    """A Poisson process of `rate_rps` requests per second."""
    _check(requests, rate_rps)
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_rps, requests))


def deterministic(rate_rps: float, requests: int) -> Times:
    """One request every 1 / `rate_rps` seconds, the first after that time."""
    _check(requests, rate_rps)
    return np.arange(1, requests + 1) / rate_rps


def mmpp2(rates_rps: tuple[float, float], mean_dwell_s: tuple[float, float], requests: int, seed: int) -> Times:
    """A Markov-modulated Poisson process of two phases: Poisson at `rates_rps[phase]`, and each phase lasts an
    exponential time of mean `mean_dwell_s[phase]`. It begins in the stationary mix of both phases."""
    _check(requests, *rates_rps)
    if not all(np.isfinite(dwell) and dwell > 0 for dwell in mean_dwell_s):
        raise UsageError(f"the phases last {mean_dwell_s} s on average; give two times above 0")
    rng = np.random.default_rng(seed)
    phase = int(rng.random() >= mean_dwell_s[0] / sum(mean_dwell_s))
    begin = 0.0
    chunks: list[Times] = []
    count = 0
    while count < requests:
        end = begin + rng.exponential(mean_dwell_s[phase])
        # Given how many arrivals a Poisson process has in an interval, they lie uniformly in it.
        chunk = np.sort(rng.uniform(begin, end, rng.poisson(rates_rps[phase] * (end - begin))))
        chunks.append(chunk)
        count += len(chunk)
        begin, phase = end, 1 - phase
    return np.concatenate(chunks)[:requests]


def _check(requests: int, *rates_rps: float) -> None:
    for rate_rps in rates_rps:
        if not (np.isfinite(rate_rps) and rate_rps > 0):
            raise UsageError(f"the arrival rate is {rate_rps} requests/s; give a rate above 0")
    if requests < 1:
        raise UsageError(f"{requests} requests asked for; give at least 1")
