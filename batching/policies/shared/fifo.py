"""The waiting line of one model, first in, first out."""

import math
from collections.abc import Iterable
from typing import Final

from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.request import Request

_KEEP = 64  # places of entries that have left, before they are given up; few, as a fleet has many lines
_GONE: Final = Request(-1, "", 0.0)  # stands where a request was removed


class Fifo:
    """Entries before `head`, which is never a removed one, have left. `since` is when each request entered, as
    preprocessing lies between its arrival and then. (Lists with a head, because compiled code reads these much faster
    than a deque.)

    Whatever waits, each call takes constant time on average, but for `put_back` and `peek`. Where a request stands is
    looked up, and the look-up is made when one is first removed and kept until the line is empty: most lines never need
    it."""

    def __init__(self, graph: ModelGraph) -> None:
        self.model: str = graph.name
        self.nodes: int = len(graph.nodes)
        self.requests: list[Request] = []
        self.since: list[float] = []
        self.head: int = 0
        self._gone: int = 0  # removed entries behind `head`
        self._places: dict[int, int] | None = None  # by request id, counted on over what was given up
        self._given_up: int = 0

    def size(self) -> int:
        return len(self.requests) - self.head - self._gone

    def oldest(self) -> float:
        """When the first request entered; inf if nothing waits."""
        return self.since[self.head] if self.head < len(self.since) else math.inf

    def first(self) -> Request:
        """The request that entered first; something must wait."""
        return self.requests[self.head]

    def peek(self, most: int) -> list[Request]:
        """The first `most` requests, or all if there are fewer. Takes time for the removed ones between them too."""
        found: list[Request] = []
        place = self.head
        while len(found) < most and place < len(self.requests):
            if self.requests[place] is not _GONE:
                found.append(self.requests[place])
            place += 1
        return found

    def append(self, request: Request, now: float) -> None:
        if self._places is not None:
            self._places[request.id] = self._given_up + len(self.requests)
        self.requests.append(request)
        self.since.append(now)

    def take(self, most: int) -> tuple[Request, ...]:
        """Remove and return the first `most` requests, or all if there are fewer."""
        if self._places is not None:
            return self._take_looked_up(most)
        stop = min(self.head + most, len(self.requests))
        if stop == self.head + 1:  # `serial` lives on this
            batch: tuple[Request, ...] = (self.requests[self.head],)
        else:
            batch = tuple(self.requests[self.head : stop])
        self.head = stop
        if stop >= _KEEP and 2 * stop >= len(self.requests):
            self._give_up()
        return batch

    def drop_first(self) -> None:
        """Remove the first request, which another line may get. Nothing of it stays here, not even before `head`."""
        if self._places is not None:
            self._forget(self.requests[self.head])
        else:
            self.requests[self.head] = _GONE
            self.take(1)

    def _take_looked_up(self, most: int) -> tuple[Request, ...]:
        batch: list[Request] = []
        while len(batch) < most and self.head < len(self.requests):
            request = self.requests[self.head]
            batch.append(request)
            self._forget(request)
        return tuple(batch)

    def remove(self, request: Request) -> bool:
        """Remove `request` wherever it stands; False if it does not wait here."""
        if self.size() == 0:
            return False
        if self._places is None:
            self._places = {self.requests[place].id: place for place in range(self.head, len(self.requests))}
            self._given_up = 0
        return self._forget(request)

    def _forget(self, request: Request) -> bool:
        """It leaves from where it stands; False if it does not wait here."""
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
        """The places before `head`."""
        del self.requests[: self.head]
        del self.since[: self.head]
        self._given_up += self.head
        self.head = 0
        if not self.requests:
            self._places = None

    def put_back(self, requests: Iterable[Request]) -> None:
        """In order of entry, as if they had entered on arrival."""
        self._rebuild([(request.arrival, request) for request in requests])

    def _rebuild(self, again: list[tuple[float, Request]]) -> None:
        entries = again
        for place in range(self.head, len(self.requests)):
            if self.requests[place] is not _GONE:
                entries.append((self.since[place], self.requests[place]))
        entries.sort(key=lambda entry: entry[0])  # stable: those put back come before their equals
        self.since = [since for since, _ in entries]
        self.requests = [request for _, request in entries]
        self.head = 0
        self._gone = 0
        self._places = None
