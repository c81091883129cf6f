"""Service times and energies by batch size, and the weights of latency and power.

This package has no fixed units. Times have one unit, energies another, and rates and powers follow from them. The paper
uses ms and mJ, so powers are in W. Policies that serve use s and J.
"""

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError, check_max_batch
from headrace.batching.graphs.execution import NodeTimes

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BatchService:
    """The deterministic service time and energy of each batch size.

    Args:
        latency: latency[b - 1] is the service time of a batch of b.
        energy: energy[b - 1] is the energy of a batch of b.

    Raises:
        UsageError: The arrays do not fit each other, or hold an impossible value.
    """

    latency: Floats
    energy: Floats

    def __post_init__(self) -> None:
        if len(self.latency) < 1 or self.latency.shape != self.energy.shape:
            raise UsageError("give a latency and an energy for each batch size from 1")
        if not (np.isfinite(self.latency).all() and (self.latency > 0).all()):
            raise UsageError("the latency of every batch size must be a number above 0")
        if not (np.isfinite(self.energy).all() and (self.energy >= 0).all()):
            raise UsageError("the energy of every batch size must be a number of 0 or more")

    @classmethod
    def linear(cls, tau: tuple[float, float], zeta: tuple[float, float], max_batch: int) -> "BatchService":
        """Return a service with tau(b) = alpha b + tau_0 and zeta(b) = beta b + zeta_0.

        Args:
            tau: (alpha, tau_0) of the service time.
            zeta: (beta, zeta_0) of the energy.
            max_batch: The largest batch size.
        """
        check_max_batch(max_batch)
        sizes = np.arange(1, max_batch + 1, dtype=np.float64)
        return cls(tau[0] * sizes + tau[1], zeta[0] * sizes + zeta[1])

    @classmethod
    def of_times(
        cls,
        times: NodeTimes,
        max_batch: int,
        lengths: tuple[float, int] = (1.0, 1),
        busy_power: float = 0.0,
    ) -> "BatchService":
        """Return the service of hardware with known node latencies, for example from a profile. Units are s and J.

        Args:
            times: The node latencies (s).
            max_batch: The largest batch size.
            lengths: The input length and the number of output steps that are assumed.
            busy_power: The power (W) of a busy server.
        """
        latency = np.array([times.whole(size, *lengths) for size in range(1, max_batch + 1)])
        return cls(latency, busy_power * latency)

    @property
    def max_batch(self) -> int:
        """Return the largest batch size."""
        return len(self.latency)

    @property
    def rates(self) -> Floats:
        """Return, for each batch size, the requests per unit of time of batches that run one after another."""
        rates: Floats = np.arange(1, self.max_batch + 1) / self.latency
        return rates

    @property
    def best_batch(self) -> int:
        """Return the batch size with the highest throughput."""
        return int(self.rates.argmax()) + 1

    @property
    def capacity(self) -> float:
        """Return the largest number of requests per unit of time that one server can serve."""
        return float(self.rates.max())

    def arrival_rate(self, load: float) -> float:
        """Return the arrival rate for a load rho. As in the paper, rho is the share of the rate at the largest batch
        size."""
        return load * float(self.rates[-1])


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights w1 and w2 of the objective w1 * (mean latency) + w2 * (mean power).

    Args:
        latency: The cost per unit of time; above 0.
        power: The cost per unit of power.

    Raises:
        UsageError: A weight is out of range.
    """

    latency: float = 1.0
    power: float = 0.0

    def __post_init__(self) -> None:
        if not all(isfinite(weight) and weight >= 0 for weight in (self.latency, self.power)):
            raise UsageError(f"weights {self.latency} and {self.power}: give two numbers of 0 or more")
        if self.latency == 0:
            raise UsageError("the weight of latency is 0, so it is best never to serve; give a number above 0")
