"""The semi-Markov decision process of a batch-service queue (Xu, Sun, Zhou, Niu, "SMDP-Based Dynamic Batching for
Efficient Inference on GPU-Based Platforms", ICC 2023, Eqs. 1 to 22).

A decision is due when a server falls idle, and while it is idle whenever a request arrives (or, with bursty arrivals,
when their phase changes). The state is the number of waiting requests s and the phase. Action 0 waits for the next
event; action a serves a batch of a. From s the queue goes to s - a + (arrivals during the sojourn).

By Little's law the mean latency is the mean number of requests in the system by the arrival rate, so an action costs

    c(s, a) = w1 / rate * (expected request-time in the system during the sojourn) + w2 * energy,

which is affine in s for every action: base[a] + slope[a] * s. The states above s_max are one, S_o: it behaves as s_max
does (Eq. 12), and each unit of time in it costs an abstract cost c_o more.

Several servers (m identical slices) are taken together as one that is ready again after tau(a) / m: with all m busy
with batches of a, one falls idle as often as that. A batch keeps its requests in the system for its whole tau(a). This
is exact for m = 1. It takes the times at which servers fall idle to be evenly spaced, and leaves out that a second one
may be idle already. Where the policy waits for batches, latency and power come out within 2 % of simulation with seven
slices; where it serves whatever waits, the spacing is uneven, and the latency is up to 10 % higher than said here
(tests/batching/test_smdp_extensions.py, where two servers are also solved exactly, see pair.py).
"""

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import Unstable, UsageError
from headrace.batching.smdp.arrivals import Mmpp2, poisson_counts
from headrace.batching.smdp.service import BatchService, Floats, Weights

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Smdp:
    """The process without its truncation. All arrays are by action (0 is to wait) and phase: shape (actions, phases).

    `requests_base` + `requests_slope` * s is the expected request-time in the system during the `sojourn`.
    `counts[a, f, t, k]`: probability that k requests arrive and the phase goes from f to t; zero outside
    first[a] <= k <= last[a]."""

    service: BatchService
    weights: Weights
    rate: float
    servers: int
    sojourn: Floats
    energy: Floats
    requests_base: Floats
    requests_slope: Floats
    counts: Floats
    first: Indices
    last: Indices

    @property
    def base(self) -> Floats:
        return self.requests_base * (self.weights.latency / self.rate) + self.energy * self.weights.power

    @property
    def slope(self) -> Floats:
        return self.requests_slope * (self.weights.latency / self.rate)

    @property
    def load(self) -> float:
        """Arrivals as a share of what the servers can serve at most."""
        return self.rate / (self.servers * self.service.capacity)


def build(service: BatchService, arrivals: float | Mmpp2, weights: Weights, servers: int = 1) -> Smdp:
    """`arrivals` is the rate of a Poisson process, or a Markov-modulated one. Raises UsageError, also for a system that
    is unstable whatever the policy."""
    bursty = arrivals if isinstance(arrivals, Mmpp2) else None
    rate = bursty.rate if bursty is not None else float(arrivals)  # type: ignore[arg-type]
    if not (isfinite(rate) and rate > 0):
        raise UsageError(f"the arrival rate is {rate}: give a number above 0")
    if servers < 1:
        raise UsageError(f"{servers} servers: give at least 1")
    capacity = servers * service.capacity
    if rate >= capacity:
        raise Unstable(
            f"unstable: {rate:.6g} requests arrive per unit of time and {capacity:.6g} can be served "
            f"(rho = {rate / capacity:.4g}); lower the rate to below that, or give more servers or larger batches"
        )
    phases = 1 if bursty is None else 2
    gap = service.latency / servers  # until the next decision
    shape = (service.max_batch + 1, phases)
    sojourn, energy = np.zeros(shape), np.zeros(shape)
    base, slope = np.zeros(shape), np.zeros(shape)
    sojourn[1:] = gap[:, None]
    energy[1:] = service.energy[:, None]
    # All s are there for the time `gap`, and those served for the rest of their service.
    slope[1:] = gap[:, None]
    base[1:] = (np.arange(1, len(gap) + 1) * (service.latency - gap))[:, None]
    if bursty is None:
        sojourn[0] = slope[0] = 1.0 / rate
        base[1:, 0] += 0.5 * rate * gap**2
        pmf, first, last = poisson_counts(rate * gap)
        counts = np.zeros((shape[0], 1, 1, max(2, pmf.shape[1])))
        counts[1:, 0, 0, : pmf.shape[1]] = pmf
        counts[0, 0, 0, 1] = 1.0
        first, last = np.concatenate(([1], first)), np.concatenate(([1], last))
    else:
        leave = bursty.leave
        sojourn[0] = slope[0] = 1.0 / (bursty.rates + leave)
        base[1:] += bursty.request_time(gap)
        pmf = bursty.counts(gap)
        counts = np.zeros((shape[0], 2, 2, pmf.shape[3]))
        counts[1:] = pmf
        for phase in (0, 1):
            counts[0, phase, phase, 1] = bursty.rates[phase] * sojourn[0, phase]
            counts[0, phase, 1 - phase, 0] = leave[phase] * sojourn[0, phase]
        last = np.full(shape[0], pmf.shape[3] - 1)
        last[0] = 1
        first = np.zeros(shape[0], np.intp)
    return Smdp(service, weights, rate, servers, sojourn, energy, base, slope, counts, first, last)
