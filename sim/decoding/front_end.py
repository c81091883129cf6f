"""Simulate preprocessing in front of a model that decodes: images and audio become tensors before they are encoded.

Each item of a request is preprocessed by itself: the cores of a CPU or the compute units of a DPU take the items of all
requests, first come first served (sim/preprocessing.py). A request comes to the encoder when its last item is ready. A
request without items comes when it arrives, and so it may pass others.

Example
-------
Two cores take a second for each item. R1 to R3 have one item each and arrive at 0, 0.25 and 0.5 s. R3 waits for half a
second.

    time (s)   0     0.25  0.5   1     1.25  2
    core 1     R1 .............| R3 .........|
    core 2           R2 .............|
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.steps.request import StepRequest
from headrace.sim.engine import Durations
from headrace.sim.preprocessing import Numbers, Preprocessor, Stations, Times

BLOCK = 1 << 10  # requests that are read together


@dataclass(frozen=True, slots=True)
class PreprocessStage:
    """A device that preprocesses the items of requests.

    Args:
        device: The cores or compute units, with the way of tensors to the GPU.
        sizes: Returns the size of each item of a request, as the steps of the device take it. That is pixels of an
            image, seconds of audio, or the number of an image that is known.
        elsewhere: Tells whether a request goes to another replica that shares the device. Its items take their turn,
            and it never comes to the replica that is simulated. None if no other replica shares it.
    """

    device: Preprocessor
    sizes: Callable[[StepRequest], Sequence[float]]
    elsewhere: Callable[[StepRequest], bool] | None = None


class FrontEnd:
    """One run of a PreprocessStage, and its figures.

    Memory is bounded by the requests in the stage, and a block of them."""

    def __init__(self, stage: PreprocessStage) -> None:
        self._stage = stage
        self._stations = Stations(stage.device)
        self._durations = Durations()
        self._items = 0
        self._inside_s = 0.0  # the sum of the times that items spent in the stage
        self._owners: dict[int, _Inside] = {}  # by the number of an item that is in the stage
        self._ready: list[tuple[float, int, StepRequest]] = []
        self._order = 0
        self._last = 0.0

    def preprocessed(self, requests: Iterable[StepRequest]) -> Iterator[StepRequest]:
        """Yield the requests in the order in which they are ready. They come in the order of their arrivals.

        Raises UsageError if they do not, or if a request has not one size for each item."""
        coming = iter(requests)
        latest = 0.0
        while block := list(islice(coming, BLOCK)):
            arrivals: list[float] = []
            sizes: list[float] = []
            for request in block:
                if request.arrival < latest:
                    raise UsageError(
                        f"request {request.id} arrives at {request.arrival} s, and the one before it at {latest} s; "
                        "give the requests in the order of their arrivals"
                    )
                latest = request.arrival
                if not request.items:
                    self._passes(request, request.arrival)
                    continue
                own = self._stage.sizes(request)
                if len(own) != len(request.items):
                    raise UsageError(
                        f"request {request.id} has {len(request.items)} items and {len(own)} sizes to preprocess; "
                        "give one for each"
                    )
                inside = _Inside(request, len(own))
                for size in own:
                    self._owners[self._items] = inside
                    self._items += 1
                    arrivals.append(request.arrival)
                    sizes.append(size)
            self._end(*self._stations.take(np.array(arrivals, np.float64), np.array(sizes, np.float64)))
            self._end(*self._stations.until(latest))
            yield from self._until(latest)
        self._end(*self._stations.end())
        yield from self._until(math.inf)

    def _end(self, numbers: Numbers, ready: Times) -> None:
        """Note that items left the stage."""
        for number, at in zip(numbers.tolist(), ready.tolist(), strict=True):
            inside = self._owners.pop(number)
            self._inside_s += at - inside.request.arrival
            inside.left -= 1
            if inside.left == 0:
                self._durations.add(at - inside.request.arrival)
                self._passes(inside.request, at)

    def _passes(self, request: StepRequest, at: float) -> None:
        if self._stage.elsewhere is not None and self._stage.elsewhere(request):
            self._last = max(self._last, at)
            return
        heapq.heappush(self._ready, (at, self._order, request))
        self._order += 1

    def _until(self, at: float) -> Iterator[StepRequest]:
        """Yield the requests that are ready by a time before which no other one will be."""
        while self._ready and self._ready[0][0] <= at:
            ready, _, request = heapq.heappop(self._ready)
            self._last = max(self._last, ready)
            yield ready_at(request, ready, request.items)

    def latency_ms(self) -> dict[str, float | None]:
        """Return mean, percentiles and maximum (ms) of the time in the stage, of each request with items."""
        return self._durations.percentiles_ms()

    def wait_ms(self) -> float | None:
        """Return the mean time (ms) that an item waits for a free core, compute unit or link; None without items."""
        if self._items == 0:
            return None
        served = sum(self._stations.busy_s.values()) + self._items * self._stage.device.delay_s
        return 1e3 * max(0.0, self._inside_s - served) / self._items

    def utilization(self, first: float, last: float) -> dict[str, float | None]:
        """Return the busy share of each step's servers from the first arrival to the last end (s) of a run."""
        span_s = max(last, self._last) - first
        servers = {step.name: step.servers for step in self._stage.device.steps}
        return {
            name: busy_s / (servers[name] * span_s) if span_s > 0 else None
            for name, busy_s in self._stations.busy_s.items()
        }


class _Inside:
    """A request in the stage, and how many of its items are not out yet."""

    __slots__ = ("left", "request")

    def __init__(self, request: StepRequest, left: int) -> None:
        self.request = request
        self.left = left


def ready_at(request: StepRequest, at: float, items: tuple[int, ...]) -> StepRequest:
    """Return the request as it comes to the next device, or to the replica, at a time (s) with the `items` left."""
    return StepRequest(
        request.id,
        request.arrival,
        request.prompt_tokens,
        request.output_len,
        request.max_output_tokens,
        items,
        request.first_token_by,
        request.tpot_s,
        request.model,
        at,
        request.contents,
    )
