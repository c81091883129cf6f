"""An encoder of images or audio on a device of its own, which requests pass before they come to the replica.

The device takes the items that wait, first come first served, up to `max_tokens` tokens in one batch. It takes the next
batch when the one before has ended. A request is ready when its last item is encoded. A request without items is ready
when it comes, and so it may pass others. Requests come when they arrive, or when they are preprocessed (front_end.py).

An encoder that shares the replica's device is no such stage: there, the step policy says what each step encodes
(batching/steps/policy.py).

Source: the disaggregation of encoding from prefill and decoding, as in "Efficiently Serving Large Multimodal Models
Using EPD Disaggregation" (Singh et al., ICML 2025).
"""

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.batching.errors import UsageError
from headrace.batching.steps.policy import EncoderLatencyModel
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding.front_end import ready_at


@dataclass(frozen=True, slots=True)
class EncoderStage:
    """A device that encodes items in batches.

    Args:
        latency: The duration of a batch.
        max_tokens: The largest number of tokens of a batch. A larger item is encoded alone.

    Raises:
        UsageError: `max_tokens` is below 1.
    """

    latency: EncoderLatencyModel
    max_tokens: int = 16384

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UsageError(f"an encoder with batches of {self.max_tokens} tokens: give at least 1")

    def encoded(self, requests: Iterable[StepRequest]) -> Iterator[StepRequest]:
        """Yield the requests in the order in which they are ready, without their items.

        The requests are given in the order in which they come, and are read as they come. Raises UsageError if the
        duration of a batch is not a number of 0 or more."""
        coming = iter(requests)
        following = next(coming, None)
        waiting: deque[tuple[StepRequest, int]] = deque()  # requests, and the next item of each
        ready: list[tuple[float, int, StepRequest]] = []
        order, free_s = 0, 0.0
        while following is not None or waiting:
            start_s = max(free_s, waiting[0][0].ready) if waiting else math.inf
            ended: list[tuple[float, StepRequest]] = []
            if following is not None and following.ready <= start_s:
                if following.items:
                    waiting.append((following, 0))
                else:
                    ended.append((following.ready, following))
                following = next(coming, None)
            else:
                items, whole = self._batch(waiting)
                seconds = self.latency.seconds(items)
                if not 0.0 <= seconds < math.inf:
                    raise UsageError(f"a batch takes {seconds} s by the encoder's latency; give a time of 0 or more")
                free_s = start_s + seconds
                ended = [(free_s, request) for request in whole]
            for at, request in ended:
                heapq.heappush(ready, (at, order, request))
                order += 1
            # Nothing is ready before the next arrival and before the end of the next batch.
            comes_s = math.inf if following is None else following.ready
            until_s = min(comes_s, max(free_s, waiting[0][0].ready) if waiting else math.inf)
            while ready and ready[0][0] <= until_s:
                at, _, request = heapq.heappop(ready)
                yield ready_at(request, at, ())

    def _batch(self, waiting: deque[tuple[StepRequest, int]]) -> tuple[list[int], list[StepRequest]]:
        """Take the next batch. Return the tokens of its items, and the requests whose last item is in it."""
        items: list[int] = []
        whole: list[StepRequest] = []
        tokens = 0
        while waiting:
            request, place = waiting[0]
            if items and tokens + request.items[place] > self.max_tokens:
                break
            items.append(request.items[place])
            tokens += request.items[place]
            if place + 1 < len(request.items):
                waiting[0] = request, place + 1
            else:
                waiting.popleft()
                whole.append(request)
        return items, whole
