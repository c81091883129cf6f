"""The stage before the policy: what a request passes between its arrival and its batcher, and when it has passed it.

It is a chain of stations, one a step, each of some equal servers behind one queue; a request comes to the first a fixed
time after its arrival, at once if nothing else is said. A free server takes who came to the station first (at one
instant, who has the lower number), so where service times vary requests overtake each other from one station to the
next. Nothing flows back from the policy into this stage: all its times follow from the arrivals.

Arrivals may come in blocks. A station serves a request only when it is certain that nobody will come before it: it
knows a time, `horizon`, before which nobody comes any more. Nobody leaves it earlier than that, nor before the first
server falls free, and the later of the two is the horizon of the station behind it. So what waits for certainty is no
more than the servers of all stations, and who shares one instant; and what comes out is, to the bit, what comes out of
all arrivals together.
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

FEW = 1 << 11  # requests, whose times stay in the cache as Python's numbers

Times = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Step:
    """`service_s` gives the seconds that one of the `servers` takes for each request, by its size: pixels of a photo,
    seconds of sound. Raises UsageError."""

    name: str
    servers: int
    service_s: Callable[[Times], Times]

    def __post_init__(self) -> None:
        if self.servers < 1:
            raise UsageError(f"{self.servers} servers for preprocessing step {self.name!r}: give at least 1")


@dataclass(frozen=True, slots=True)
class Preprocessor:
    """What does the preprocessing, "cpu:32" say; each request comes to it `delay_s` after its arrival and passes the
    `steps` in turn. Without steps it takes no time. Raises UsageError."""

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
    """Who has come to it and is not served yet, in any order; `free` is a heap of when each server is."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.free = [0.0] * step.servers
        self.busy_s = 0.0
        self.numbers: Numbers = np.empty(0, np.int64)
        self.come: Times = np.empty(0)
        self.sizes: Times = np.empty(0)

    def serve(self, numbers: Numbers, come: Times, sizes: Times, horizon: float) -> tuple[Numbers, Times, Times, float]:
        """Takes who has come; who of all has been served, when each leaves, its size, and who leaves later will not do
        so before which time. Nobody may come later who comes before `horizon`."""
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
        """When those leave who come in that order and take so long."""
        free = self.free
        last = free[0]
        if len(free) == 1:  # the same, in half the time
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
    """Places of those before `horizon`, in order of time and number; and of the others.

    Who stands at the horizon is not among the first: somebody of a lower number may come to stand there too."""
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
        self._numbers: Numbers = np.empty(0, np.int64)  # who has passed, but maybe not before all others
        self._ready: Times = np.empty(0)

    @property
    def busy_s(self) -> dict[str, float]:
        """Seconds of service that each step has given so far, all its servers together."""
        return {station.step.name: station.busy_s for station in self._stations}

    @property
    def waiting(self) -> int:
        """How many have come and are not out yet."""
        return len(self._numbers) + sum(len(station.numbers) for station in self._stations)

    def take(self, arrival: Times, sizes: Times) -> tuple[Numbers, Times]:
        """The next requests, in order of arrival: their arrivals (s) and sizes, both of shape (requests,).

        Returns the numbers of those that are out for certain, earlier ones among them, and when each is ready, in
        order of that time and of number. Raises UsageError."""
        if arrival.shape != sizes.shape:
            raise UsageError(f"{len(arrival)} requests to preprocess have {len(sizes)} sizes; give one for each")
        numbers = np.arange(self._count, self._count + len(arrival))
        self._count += len(arrival)
        come = arrival + self._delay_s
        return self._advance(numbers, come, sizes, float(come[-1]) if len(come) else 0.0)

    def end(self) -> tuple[Numbers, Times]:
        """The same for all that are left: nobody arrives any more."""
        return self._advance(np.empty(0, np.int64), np.empty(0), np.empty(0), math.inf)

    def _advance(self, numbers: Numbers, times: Times, sizes: Times, horizon: float) -> tuple[Numbers, Times]:
        for station in self._stations:
            numbers, times, sizes, horizon = station.serve(numbers, times, sizes, horizon)
        numbers = np.concatenate((self._numbers, numbers))
        times = np.concatenate((self._ready, times))
        out, later = _until(horizon, numbers, times)
        self._numbers, self._ready = numbers[later], times[later]
        return numbers[out], times[out]


Sizes = Callable[[Arrivals], Times]  # of shape (requests,)


def input_lengths(arrivals: Arrivals) -> Times:
    return np.array(arrivals.input_len)


class Stage:
    """What the arrivals of one run pass on their way to the policy, and what is reported of it. `sizes` tells what the
    steps go by, for all arrivals at once or for each block in turn."""

    def __init__(self, preprocessor: Preprocessor, sizes: Sizes) -> None:
        self._servers = {step.name: step.servers for step in preprocessor.steps}
        self._stations = Stations(preprocessor)
        self._sizes = sizes
        self._durations = Durations()  # of blocks
        self._first = 0.0
        self._last = 0.0
        self._held = Arrivals([], [], [], [], [])  # who is not ready for certain, by number
        self._held_numbers: Numbers = np.empty(0, np.int64)
        self._count = 0

    def whole(self, arrivals: Arrivals) -> Arrivals:
        """The arrivals with when each is ready, in order of that."""
        taken, left = self._take(arrivals), self._release(*self._stations.end())
        return _joined(taken, left)

    def blocks(self, arrivals: Iterator[Arrivals]) -> Iterator[Arrivals]:
        """The same for arrivals in blocks."""
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
        """Of a run whose last request ended `span_s` after the first arrival; some may have been dropped after that.
        `arrivals` are what `whole` made; none of a run in blocks."""
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
