"""The queue of one model, first in, first out."""

import math
from collections.abc import Iterable
from typing import Final

from headrace.batching.errors import BadInput
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.request import Request

_KEEP = 64  # entries that have left are kept up to this number; it is small, because a fleet has many queues
_GONE: Final = Request(-1, "", 0.0)  # marks the entry of a request that was removed


class Fifo:
    """The waiting requests of one model in order of entry.

    Entries before `head` have left, and `head` is never a removed entry. `since` holds the time (s) at which each
    request entered. That can be later than its arrival, because preprocessing lies between. The lists have a head index
    because compiled code reads lists much faster than a deque.

    The requests of one batch have at most `max_tokens` tokens together: the sum of their input lengths. A request that
    has more alone is refused. This is where the bound is applied for all policies with such queues.

    Each call takes constant time on average, except `put_back` and `peek`, and `fits` and `full` with such a bound. To
    remove a request, the queue needs the places of all requests by id. It makes this look-up at the first removal and
    keeps it until the queue is empty. Most queues never need it."""

    def __init__(self, graph: ModelGraph, max_tokens: float = math.inf) -> None:
        self.model: str = graph.name
        self.nodes: int = len(graph.nodes)
        self.requests: list[Request] = []
        self.since: list[float] = []
        self.head: int = 0
        self.max_tokens: float = max_tokens
        self._bounded: bool = max_tokens < math.inf  # kept, because compiled code looks `math.inf` up each time
        self._gone: int = 0  # the number of removed entries after `head`
        self._places: dict[int, int] | None = None  # by request id; places count from before `_given_up`
        self._given_up: int = 0  # entries deleted at the front since `_places` was made

    def size(self) -> int:
        """Return the number of waiting requests."""
        return len(self.requests) - self.head - self._gone

    def oldest(self) -> float:
        """Return the time (s) at which the first request entered; inf if no request waits."""
        return self.since[self.head] if self.head < len(self.since) else math.inf

    def first(self) -> Request:
        """Return the request that entered first. At least one request must wait."""
        return self.requests[self.head]

    def peek(self, max_count: int) -> list[Request]:
        """Return the first `max_count` requests, or all if there are fewer. Removed entries between them take time
        too."""
        first_requests: list[Request] = []
        place = self.head
        while len(first_requests) < max_count and place < len(self.requests):
            if self.requests[place] is not _GONE:
                first_requests.append(self.requests[place])
            place += 1
        return first_requests

    def fits(self, max_count: int, used: float = 0.0) -> int:
        """Return how many of the first requests one batch may have: at most `max_count`, and no more tokens than
        `max_tokens` together with `used` tokens of other requests."""
        count = min(max_count, self.size())
        if not self._bounded:
            return count
        tokens = used
        fit = 0
        place = self.head
        while fit < count:
            request = self.requests[place]
            place += 1
            if request is _GONE:
                continue
            tokens += request.input_len
            if tokens > self.max_tokens:
                break
            fit += 1
        return fit

    def full(self, max_count: int) -> bool:
        """Return whether a batch would gain nothing by waiting: it has `max_count` requests, or all tokens."""
        return self.size() >= max_count or self.full_of_tokens()

    def full_of_tokens(self) -> bool:
        """Return whether all tokens of a batch wait."""
        if not self._bounded:
            return False
        tokens = 0.0
        for place in range(self.head, len(self.requests)):
            if self.requests[place] is not _GONE:
                tokens += self.requests[place].input_len
        return tokens >= self.max_tokens

    def append(self, request: Request, now: float) -> None:
        """Add a request that enters at `now` (s). Raises BadInput if no batch may have it."""
        if request.input_len > self.max_tokens:
            raise BadInput.too_many_tokens(request.id, request.input_len, self.max_tokens)
        if self._places is not None:
            self._places[request.id] = self._given_up + len(self.requests)
        self.requests.append(request)
        self.since.append(now)

    def take(self, max_count: int, used: float = 0.0) -> tuple[Request, ...]:
        """Remove and return the first requests that `fits` counts."""
        if self._bounded:
            max_count = self.fits(max_count, used)
        if self._places is not None:
            return self._take_looked_up(max_count)
        stop = min(self.head + max_count, len(self.requests))
        if stop == self.head + 1:  # the fast path of `serial`
            batch: tuple[Request, ...] = (self.requests[self.head],)
        else:
            batch = tuple(self.requests[self.head : stop])
        self._leave(stop)
        return batch

    def _leave(self, stop: int) -> None:
        """Let the entries before `stop` leave."""
        self.head = stop
        if stop >= _KEEP and 2 * stop >= len(self.requests):
            self._give_up()

    def drop_first(self) -> None:
        """Remove the first request, which another queue may get. Nothing of it stays here, not even before `head`."""
        if self._places is not None:
            self._forget(self.requests[self.head])
        else:
            self.requests[self.head] = _GONE
            self._leave(self.head + 1)

    def _take_looked_up(self, max_count: int) -> tuple[Request, ...]:
        batch: list[Request] = []
        while len(batch) < max_count and self.head < len(self.requests):
            request = self.requests[self.head]
            batch.append(request)
            self._forget(request)
        return tuple(batch)

    def remove(self, request: Request) -> bool:
        """Remove `request` wherever it stands. Return False if it does not wait here."""
        if self.size() == 0:
            return False
        if self._places is None:
            self._places = {self.requests[place].id: place for place in range(self.head, len(self.requests))}
            self._given_up = 0
        return self._forget(request)

    def _forget(self, request: Request) -> bool:
        """Remove `request` by its place in the look-up. Return False if it does not wait here."""
        places = self._places
        assert places is not None
        place = places.pop(request.id, -1)
        if place < 0:
            return False
        self.requests[place - self._given_up] = _GONE
        self._gone += 1
        while self.head < len(self.requests) and self.requests[self.head] is _GONE:
            self.head += 1
            self._gone -= 1
        if not places or (self.head >= _KEEP and 2 * self.head >= len(self.requests)):
            self._give_up()
        elif self._gone >= _KEEP and 2 * self._gone >= len(places):
            self._rebuild([])
        return True

    def _give_up(self) -> None:
        """Delete the entries before `head`."""
        del self.requests[: self.head]
        del self.since[: self.head]
        self._given_up += self.head
        self.head = 0
        if not self.requests:
            self._places = None

    def put_back(self, requests: Iterable[Request]) -> None:
        """Add requests that were taken before, in order of entry, as if they had entered on arrival."""
        self._rebuild([(request.arrival, request) for request in requests])

    def _rebuild(self, again: list[tuple[float, Request]]) -> None:
        entries = again
        for place in range(self.head, len(self.requests)):
            if self.requests[place] is not _GONE:
                entries.append((self.since[place], self.requests[place]))
        entries.sort(
            key=lambda entry: entry[0]
        )  # the sort is stable, so requests that are put back come before others of the same time
        self.since = [since for since, _ in entries]
        self.requests = [request for _, request in entries]
        self.head = 0
        self._gone = 0
        self._places = None
