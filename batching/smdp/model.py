"""The semi-Markov decision process of a batch-service queue.

A decision is due when a server becomes idle. While a server is idle, a decision is also due at each arrival and at each
change of phase. The state is the number of waiting requests s, and the phase of the arrivals. Action 0 waits for the
next event. Action a serves a batch of a. Then s changes to s - a + (arrivals during the sojourn).

By Little's law the mean latency is the mean number of requests in the system divided by the arrival rate. So an action
costs

    c(s, a) = w1 / rate * (expected request-time in the system during the sojourn) + w2 * energy

This is affine in s for every action: base[a] + slope[a] * s. All states above s_max form one state S_o. It behaves like
s_max (Eq. 12), and each unit of time in it costs an additional abstract cost c_o (Eq. 13).

Source: Xu, Sun, Zhou, Niu, "SMDP-Based Dynamic Batching for Efficient Inference on GPU-Based Platforms", ICC 2023, Eqs.
1 to 22.

Beyond the paper
----------------
The paper has one server. Here m identical slices count as one server that is ready again after tau(a) / m. If all m
serve batches of a, one becomes idle as often as that. A batch keeps its requests in the system for its whole tau(a).
For m = 1 this is exact. For more it is an approximation: it assumes that servers become idle at even spacing, and it
ignores that a second server may be idle already. The spacing is even where the policy waits for full batches, and the
results are close to simulation there. It is uneven where the policy serves all waiting requests at once, and the
computed latency is then too high. The bounds are tested in tests/batching/smdp/test_smdp_extensions.py, where two
servers are also solved exactly (pair.py).
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
    """The process without its truncation.

    All arrays are by action (0 is to wait) and phase, of shape (actions, phases).

    Args:
        service: Service times and energies by batch size.
        weights: The weights of latency and power.
        rate: The mean arrival rate.
        servers: The number of servers.
        sojourn: The expected time until the next decision.
        energy: The energy of an action.
        requests_base, requests_slope: requests_base + requests_slope * s is the expected request-time in the system
            during the sojourn.
        counts: counts[a, f, t, k] is the probability that k requests arrive and the phase goes from f to t.
        first, last: counts is zero for k outside first[a] to last[a].
    """

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
        """Return the part of the cost that does not depend on the state."""
        return self.requests_base * (self.weights.latency / self.rate) + self.energy * self.weights.power

    @property
    def slope(self) -> Floats:
        """Return the cost per waiting request."""
        return self.requests_slope * (self.weights.latency / self.rate)

    @property
    def load(self) -> float:
        """Return the arrival rate as a share of the rate that the servers can serve."""
        return self.rate / (self.servers * self.service.capacity)


def build(service: BatchService, arrivals: float | Mmpp2, weights: Weights, servers: int = 1) -> Smdp:
    """Return the process of a queue.

    Args:
        service: Service times and energies by batch size.
        arrivals: The rate of a Poisson process, or a Markov-modulated process.
        weights: The weights of latency and power.
        servers: The number of servers.

    Raises:
        UsageError: An argument is out of range.
        Unstable: More requests arrive than the servers can serve under any policy.
    """
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
    gap = service.latency / servers  # time until the next decision
    shape = (service.max_batch + 1, phases)
    sojourn, energy = np.zeros(shape), np.zeros(shape)
    base, slope = np.zeros(shape), np.zeros(shape)
    sojourn[1:] = gap[:, None]
    energy[1:] = service.energy[:, None]
    # All s requests stay for the time `gap`. The served ones stay for the rest of their service, too.
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
