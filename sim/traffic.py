"""Arrival processes. Every one is a function of its seed."""

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError


def poisson(rate_rps: float, requests: int, seed: int) -> NDArray[np.float64]:
    """Arrival times (s, rising, shape (requests,)) of a Poisson process of `rate_rps` requests per second."""
    if not (np.isfinite(rate_rps) and rate_rps > 0):
        raise UsageError(f"the arrival rate is {rate_rps} requests/s; give a rate above 0")
    if requests < 1:
        raise UsageError(f"{requests} requests asked for; give at least 1")
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_rps, requests))
