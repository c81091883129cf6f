"""The preprocessing stage: the steps that a request passes between its arrival and the policy, and when it is ready.

The stage is a chain of stations, one for each step. A station has some equal servers with one queue. A request comes to
the first station a fixed delay after its arrival; the default delay is zero. A free server takes the request that came
to the station first. Requests that come at one instant are taken by number, the lowest first. Where service times vary,
requests overtake each other between stations. The policy does not act on this stage: all times follow from the
arrivals.

Arrivals may come in blocks. A station serves a request only when it is certain that no other one will come before it.
For this it knows a time, its horizon, before which no further request comes. No request leaves the station before the
horizon, nor before the first server is free. The later of the two is the horizon of the next station. So the requests
that wait for certainty are at most those of all servers, and those that share one instant. The output of blocks equals,
to the bit, the output of all arrivals together.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapreplace

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.batching.results import PreprocessTotals, percentiles_ms
from headrace.sim.engine import Arrivals, Durations

FEW = 1 << 11  # the number of requests whose times stay in the cache as Python's numbers

Times = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of preprocessing.

    Args:
        name: The name that results report.
        servers: How many requests the step handles at once, at least 1.
        service_s: Returns the seconds that one server takes for each request, by its size: pixels of an image, seconds
            of audio.

    Raises:
        UsageError: There is no server.
    """

    name: str
    servers: int
    service_s: Callable[[Times], Times]

    def __post_init__(self) -> None:
        if self.servers < 1:
            raise UsageError(f"{self.servers} servers for preprocessing step {self.name!r}: give at least 1")


@dataclass(frozen=True, slots=True)
class Preprocessor:
    """A device that preprocesses requests, such as "cpu:32".

    Each request comes to it `delay_s` after its arrival and passes the `steps` in turn. Without steps it takes no time.
    Raises UsageError for a delay below 0, and for two steps of one name."""

    name: str
    steps: tuple[Step, ...]
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.delay_s < math.inf:
            raise UsageError(f"preprocessor {self.name!r} has a delay of {self.delay_s:g} s; give 0 or more")
        names = [step.name for step in self.steps]
        if len(set(names)) < len(names):
            raise UsageError(f"preprocessor {self.name!r} has two steps of one name among {', '.join(names)}")


class _Station:
    """The servers of a step, and the requests that have come to it and are not served yet.

    The requests are in any order. `free` is a heap of the times at which the servers fall free."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.free = [0.0] * step.servers
        self.busy_s = 0.0
        self.numbers: Numbers = np.empty(0, np.int64)
        self.come: Times = np.empty(0)
        self.sizes: Times = np.empty(0)

    def serve(self, numbers: Numbers, come: Times, sizes: Times, horizon: float) -> tuple[Numbers, Times, Times, float]:
        """Add the requests that have come and serve all that are certain to be next.

        Args:
            numbers: The numbers of the requests.
            come: When each comes to the station (s).
            sizes: The size of each.
            horizon: No request that comes before this time (s) is still missing.

        Returns:
            Of the requests that were served: numbers, the times at which they leave (s), and sizes. The last value is
                the time before which no later request leaves.
        """
        numbers = np.concatenate((self.numbers, numbers))
        come = np.concatenate((self.come, come))
        sizes = np.concatenate((self.sizes, sizes))
        now, later = _until(horizon, numbers, come)
        self.numbers, self.come, self.sizes = numbers[later], come[later], sizes[later]
        numbers, sizes = numbers[now], sizes[now]
        seconds = np.asarray(self.step.service_s(sizes), dtype=np.float64)
        if seconds.shape != sizes.shape or not (np.isfinite(seconds).all() and (seconds >= 0).all()):
            raise UsageError(f"preprocessing step {self.step.name!r} must take a time of 0 s or more for each request")
        self.busy_s += float(seconds.sum())
        come = come[now]
        ends = np.empty(len(come))
        for start in range(0, len(come), FEW):
            few = slice(start, start + FEW)
            ends[few] = self._ends(come[few].tolist(), seconds[few].tolist())
        return numbers, ends, sizes, max(horizon, self.free[0])

    def _ends(self, come: list[float], seconds: list[float]) -> list[float]:
        """Return when requests leave that come in this order and take these seconds."""
        free = self.free
        last = free[0]
        if len(free) == 1:  # this gives the same in half the time
            ends = [last := (at if at > last else last) + taken for at, taken in zip(come, seconds, strict=True)]
            free[0] = last
            return ends
        ends = []
        for at, taken in zip(come, seconds, strict=True):
            first = free[0]
            end = (at if at > first else first) + taken
            heapreplace(free, end)
            ends.append(end)
        return ends


def _until(horizon: float, numbers: Numbers, times: Times) -> tuple[Numbers, Numbers]:
    """Return the places of requests before `horizon`, in order of time and number, and the places of the others.

    A request at the horizon itself is one of the others: one with a lower number may still come at that instant."""
    early = times < horizon
    places = np.flatnonzero(early)
    if not (np.diff(times[places]) > 0).all():
        places = places[np.lexsort((numbers[places], times[places]))]
    return places, np.flatnonzero(~early)


class Stations:
    """The state of a chain of stations. Requests are numbered from 0 in order of arrival."""

    def __init__(self, preprocessor: Preprocessor) -> None:
        self._stations = [_Station(step) for step in preprocessor.steps]
        self._delay_s = preprocessor.delay_s
        self._count = 0
        self._numbers: Numbers = np.empty(0, np.int64)  # requests that have passed, but maybe not before all others
        self._ready: Times = np.empty(0)

    @property
    def busy_s(self) -> dict[str, float]:
        """Return the seconds of service that each step has given so far, for all its servers together."""
        return {station.step.name: station.busy_s for station in self._stations}

    @property
    def waiting(self) -> int:
        """Return how many requests have come and are not out yet."""
        return len(self._numbers) + sum(len(station.numbers) for station in self._stations)

    def take(self, arrival: Times, sizes: Times) -> tuple[Numbers, Times]:
        """Take the next requests, in order of arrival.

        Args:
            arrival: Arrival times (s), shape (requests,).
            sizes: The size of each request, of the same shape.

        Returns:
            The numbers of requests that are out for certain, earlier ones among them, and when each is ready (s). Both
                are in order of that time and of number.

        Raises:
            UsageError: There is not one size for each request.
        """
        if arrival.shape != sizes.shape:
            raise UsageError(f"{len(arrival)} requests to preprocess have {len(sizes)} sizes; give one for each")
        numbers = np.arange(self._count, self._count + len(arrival))
        self._count += len(arrival)
        come = arrival + self._delay_s
        return self._advance(numbers, come, sizes, float(come[-1]) if len(come) else 0.0)

    def end(self) -> tuple[Numbers, Times]:
        """Return the same for all requests that are left; no further one arrives."""
        return self.until(math.inf)

    def until(self, arrival: float) -> tuple[Numbers, Times]:
        """Return the same, knowing that no further request arrives before this time (s)."""
        return self._advance(np.empty(0, np.int64), np.empty(0), np.empty(0), arrival + self._delay_s)

    def _advance(self, numbers: Numbers, times: Times, sizes: Times, horizon: float) -> tuple[Numbers, Times]:
        for station in self._stations:
            numbers, times, sizes, horizon = station.serve(numbers, times, sizes, horizon)
        numbers = np.concatenate((self._numbers, numbers))
        times = np.concatenate((self._ready, times))
        out, later = _until(horizon, numbers, times)
        self._numbers, self._ready = numbers[later], times[later]
        return numbers[out], times[out]


Sizes = Callable[[Arrivals], Times]  # it returns the shape (requests,)


def input_lengths(arrivals: Arrivals) -> Times:
    """Return the input lengths as sizes, shape (requests,)."""
    return np.array(arrivals.input_len)


class Stage:
    """The way of one run's arrivals to the policy, and the report of it.

    `sizes` returns the sizes by which the steps take their time, for all arrivals at once or for each block in turn."""

    def __init__(self, preprocessor: Preprocessor, sizes: Sizes) -> None:
        self._servers = {step.name: step.servers for step in preprocessor.steps}
        self._stations = Stations(preprocessor)
        self._sizes = sizes
        self._durations = Durations()  # the durations of a run in blocks
        self._first = 0.0
        self._last = 0.0
        self._held = Arrivals([], [], [], [], [])  # the requests that are not ready for certain, by number
        self._held_numbers: Numbers = np.empty(0, np.int64)
        self._count = 0

    def whole(self, arrivals: Arrivals) -> Arrivals:
        """Return the arrivals with the time at which each is ready, in order of that time."""
        taken, left = self._take(arrivals), self._release(*self._stations.end())
        return _joined(taken, left)

    def blocks(self, arrivals: Iterator[Arrivals]) -> Iterator[Arrivals]:
        """Yield the same for arrivals in blocks."""
        for block in arrivals:
            if block.arrival:
                yield self._tallied(self._take(block))
        yield self._tallied(self._release(*self._stations.end()))

    def _take(self, block: Arrivals) -> Arrivals:
        if self._count == 0 and block.arrival:
            self._first = block.arrival[0]
        numbers = np.arange(self._count, self._count + len(block.arrival))
        self._count += len(numbers)
        self._held = _joined(self._held, block)
        self._held_numbers = np.concatenate((self._held_numbers, numbers))
        return self._release(*self._stations.take(block.arrays()[0], self._sizes(block)))

    def _release(self, numbers: Numbers, ready: Times) -> Arrivals:
        places = np.searchsorted(self._held_numbers, numbers)
        stay = np.ones(len(self._held_numbers), bool)
        stay[places] = False
        out = _picked(self._held, places, ready.tolist())
        self._held = _picked(self._held, np.flatnonzero(stay))
        self._held_numbers = self._held_numbers[stay]
        if out.ready:
            self._last = out.ready[-1]
        return out

    def _tallied(self, out: Arrivals) -> Arrivals:
        self._durations.add_all([ready - arrival for ready, arrival in zip(out.ready, out.arrival, strict=True)])
        return out

    def totals(self, arrivals: Arrivals, span_s: float) -> PreprocessTotals:
        """Return the totals of a run whose last request ended `span_s` after the first arrival.

        Some requests may have been dropped after that. `arrivals` are those that `whole` returned, and empty for a run
        in blocks."""
        arrival, ready, _ = arrivals.arrays()
        span_s = max(span_s, self._last - self._first)
        return PreprocessTotals(
            percentiles_ms(ready - arrival) if len(ready) else self._durations.percentiles_ms(),
            {
                name: busy_s / (self._servers[name] * span_s) if span_s > 0 else None
                for name, busy_s in self._stations.busy_s.items()
            },
        )


def _picked(arrivals: Arrivals, places: Numbers, ready: list[float] | None = None) -> Arrivals:
    these = places.tolist()
    return Arrivals(
        list(map(arrivals.models.__getitem__, these)),
        list(map(arrivals.arrival.__getitem__, these)),
        list(map(arrivals.deadline.__getitem__, these)),
        list(map(arrivals.input_len.__getitem__, these)),
        list(map(arrivals.output_len.__getitem__, these)),
        ready,
    )


def _joined(one: Arrivals, other: Arrivals) -> Arrivals:
    return Arrivals(
        one.models + other.models,
        one.arrival + other.arrival,
        one.deadline + other.deadline,
        one.input_len + other.input_len,
        one.output_len + other.output_len,
        one.ready + other.ready if one.preprocessed else None,
    )
