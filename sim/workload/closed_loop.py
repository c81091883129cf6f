"""`Arrivals` gives the requests of a run in the order in which they come, and limits how many are in flight.

With a limit, the run is a closed loop: so many users take the next request of a list, wait for all its tokens, and take
the next one. Benchmarks with a fixed concurrency do the same: vLLM's `vllm bench serve --max-concurrency`, SGLang's
`bench_serving --max-concurrency` and AIPerf's `--concurrency`. A request that comes while all users wait is sent when
one of them is free. Its times count from then, as in these benchmarks.

    two users                 0         10        20 s
    request A, comes at 0     |---------------|                sent at 0
    request B, comes at 0     |-------|                        sent at 0
    request C, comes at 0             |---------|              sent at 8, when B ends
    request D, comes at 21                       |-----        sent at 21: a user is free then

This file is compiled (setup.py).
"""

import math
from collections.abc import Iterator

from headrace.batching.errors import UsageError
from headrace.batching.steps.request import StepRequest

UNLIMITED = 1 << 62


class Arrivals:
    """The requests that come. They are read one at a time.

    Args:
        requests: The requests, in the order in which they are ready.
        users: The largest number of requests in flight; None for no limit.

    Raises UsageError if `users` is below 1."""

    def __init__(self, requests: Iterator[StepRequest], users: int | None) -> None:
        if users is not None and users < 1:
            raise UsageError(f"{users} users: give at least 1")
        self._requests: Iterator[StepRequest] = requests
        self._users: int = UNLIMITED if users is None else users
        self._coming: StepRequest | None = next(requests, None)
        self._idle: int = self._users  # the users that nothing occupied when `take` last returned None

    def next_at(self, in_flight: int) -> float:
        """Return when the next request comes (s) if none of those in flight ends; inf if none does."""
        coming = self._coming
        return math.inf if coming is None or in_flight >= self._users else coming.ready

    def take(self, now: float, in_flight: int) -> StepRequest | None:
        """Return the next request that has come and that a user can send; None if there is none.

        Raises UsageError if the requests are not in order."""
        coming = self._coming
        if coming is None or coming.ready > now or in_flight >= self._users:
            self._idle = self._users - in_flight
            return None
        following = next(self._requests, None)
        if following is not None and following.ready < coming.ready:
            raise UsageError(
                f"request {following.id} comes at {following.ready} s, before request {coming.id}; give the "
                "requests in the order in which they come"
            )
        self._coming = following
        if self._idle > 0:
            self._idle -= 1
            return coming
        return coming if coming.ready == now else coming.sent_at(now)
