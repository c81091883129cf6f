"""What batching costs: service time and energy by batch size, and the weights by which the two are traded.

Everything in this package is free of units: times in one unit, energies in another, rates and powers accordingly. The
paper has ms and mJ (and so W); policies that serve have s and J.
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
    """`latency[b - 1]` and `energy[b - 1]` of a batch of b requests, deterministic. Raises UsageError."""

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
        """tau(b) = alpha b + tau_0 and zeta(b) = beta b + zeta_0; `tau` is (alpha, tau_0)."""
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
        """Of hardware whose node latencies are known (s; so a profile, too), for inputs and outputs of these `lengths`.
        A busy server is taken to draw `busy_power` (W)."""
        latency = np.array([times.whole(size, *lengths) for size in range(1, max_batch + 1)])
        return cls(latency, busy_power * latency)

    @property
    def max_batch(self) -> int:
        return len(self.latency)

    @property
    def rates(self) -> Floats:
        """Requests per unit of time with batches of 1, 2, ... one after the other."""
        rates: Floats = np.arange(1, self.max_batch + 1) / self.latency
        return rates

    @property
    def best_batch(self) -> int:
        """The batch size that serves most."""
        return int(self.rates.argmax()) + 1

    @property
    def capacity(self) -> float:
        """Requests per unit of time that one server can serve at most."""
        return float(self.rates.max())

    def arrival_rate(self, load: float) -> float:
        """The arrival rate at which rho is `load`, a share of what the largest batch serves (as in the paper)."""
        return load * float(self.rates[-1])


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the objective w1 * (mean latency) + w2 * (mean power): cost per unit of time and per unit of power."""

    latency: float = 1.0
    power: float = 0.0

    def __post_init__(self) -> None:
        if not all(isfinite(weight) and weight >= 0 for weight in (self.latency, self.power)):
            raise UsageError(f"weights {self.latency} and {self.power}: give two numbers of 0 or more")
        if self.latency == 0:
            raise UsageError("the weight of latency is 0: then it is best never to serve; give a number above 0")
