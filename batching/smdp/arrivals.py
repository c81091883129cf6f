"""The number of requests that arrive while a batch is served.

The arrival process is a Poisson process, or a two-phase Markov-modulated Poisson process.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.batching.smdp import kernel
from headrace.batching.smdp.service import Floats


def room_for(mean: float) -> int:
    """Return a count above which the Poisson probability with this mean is below 1e-19."""
    return int(mean + 11 * sqrt(mean) + 40)


def poisson_counts(means: Floats) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
    """Return the probabilities of 0, 1, ... arrivals for each mean, and the range of counts that matters.

    Returns:
        The probabilities, of shape (means, counts); for each mean the first and the last count with a probability above
            1e-19.
    """
    pmf = np.zeros((len(means), room_for(float(means.max()))))
    first, last = np.zeros(len(means), np.intp), np.zeros(len(means), np.intp)
    kernel.poisson(means, pmf, first, last)
    return pmf, first, last


@dataclass(frozen=True, slots=True)
class Mmpp2:
    """A two-phase Markov-modulated Poisson process.

    Args:
        rates: The arrival rate in each phase.
        dwell: The mean duration of each phase. The duration is exponential.

    Raises:
        UsageError: There are not two phases, or a value is out of range.
    """

    rates: Floats
    dwell: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "rates", np.asarray(self.rates, np.float64))
        object.__setattr__(self, "dwell", np.asarray(self.dwell, np.float64))
        if self.rates.shape != (2,) or self.dwell.shape != (2,):
            raise UsageError("a two-phase process needs two rates and two mean times")
        if not (np.isfinite(self.rates).all() and (self.rates >= 0).all() and self.rates.any()):
            raise UsageError(f"rates {self.rates} of the phases: give two numbers of 0 or more, not both 0")
        if not (np.isfinite(self.dwell).all() and (self.dwell > 0).all()):
            raise UsageError(f"mean times {self.dwell} in the phases: give two numbers above 0")

    @property
    def leave(self) -> Floats:
        """Return the rate of leaving each phase."""
        leave: Floats = 1.0 / self.dwell
        return leave

    @property
    def rate(self) -> float:
        """Return the mean arrival rate."""
        return float(self.rates @ self.dwell / self.dwell.sum())

    def request_time(self, span: Floats) -> Floats:
        """Return the expected time in the system, at the end of a span, of the arrivals in the span.

        The result has shape (spans, 2), by span and first phase. The expected rate at time u from phase f is rate +
        (rates[f] - rate) exp(-d u), where d is the sum of the rates of leaving. The result is the integral of this rate
        times (span - u)."""
        decay = self.leave.sum()
        span = span[:, None]
        memory = span / decay - (1.0 - np.exp(-decay * span)) / decay**2
        spent: Floats = self.rate * span**2 / 2 + (self.rates - self.rate) * memory
        return spent

    def counts(self, spans: Floats) -> Floats:
        """Return the probability of k arrivals and last phase t, given first phase f: shape (spans, f, t, k).

        The method is uniformization. Events come at the rate theta = max(rates + leave). Each event is an arrival, a
        change of phase, or neither. The number of events in a span is Poisson. A recursion in n gives the distribution
        of (k, phase) after n events."""
        theta = float((self.rates + self.leave).max())
        events, _, _ = poisson_counts(theta * spans)
        steps = events.shape[1]
        stay = (
            np.eye(2) + (np.diag(-self.rates - self.leave) + np.array([[0, self.leave[0]], [self.leave[1], 0]])) / theta
        )
        arrive = np.diag(self.rates) / theta
        made = np.zeros((steps + 1, 2, 2))  # [k, f, t] after n events
        made[0] = np.eye(2)
        counts = np.zeros((len(spans), steps + 1, 2, 2))
        for n in range(steps):
            counts[:, : n + 1] += events[:, n, None, None, None] * made[: n + 1]
            following = made @ stay
            following[1:] += made[:-1] @ arrive
            made = following
        return np.ascontiguousarray(counts.transpose(0, 2, 3, 1))
