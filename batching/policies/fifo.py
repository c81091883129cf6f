"""The waiting line of one model, first in, first out."""

import math
from collections.abc import Iterable

from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.request import Request

_KEEP = 1024  # places of entries that have left, before they are given up


class Fifo:
    """Entries before `head` have left. `since` is when each request entered, as preprocessing lies between its arrival
    and then. (Lists with a head, because compiled code reads these much faster than a deque.)"""

    def __init__(self, graph: ModelGraph) -> None:
        self.model: str = graph.name
        self.nodes: int = len(graph.nodes)
        self.requests: list[Request] = []
        self.since: list[float] = []
        self.head: int = 0

    def size(self) -> int:
        return len(self.requests) - self.head

    def oldest(self) -> float:
        """When the first request entered; inf if nothing waits."""
        return self.since[self.head] if self.head < len(self.since) else math.inf

    def first(self) -> Request:
        """The request that entered first; something must wait."""
        return self.requests[self.head]

    def append(self, request: Request, now: float) -> None:
        self.requests.append(request)
        self.since.append(now)

    def take(self, most: int) -> tuple[Request, ...]:
        """Remove and return the first `most` requests, or all if there are fewer."""
        stop = min(self.head + most, len(self.requests))
        if stop == self.head + 1:  # `serial` lives on this
            batch: tuple[Request, ...] = (self.requests[self.head],)
        else:
            batch = tuple(self.requests[self.head : stop])
        self.head = stop
        if stop >= _KEEP and 2 * stop >= len(self.requests):
            del self.requests[:stop]
            del self.since[:stop]
            self.head = 0
        return batch

    def remove(self, request: Request) -> bool:
        """Remove `request` wherever it stands; False if it does not wait here."""
        for place in range(self.head, len(self.requests)):
            if self.requests[place].id == request.id:
                del self.requests[place]
                del self.since[place]
                return True
        return False

    def put_back(self, requests: Iterable[Request]) -> None:
        """In order of entry, as if they had entered on arrival."""
        again = [(request.arrival, request) for request in requests]
        waiting = list(zip(self.since[self.head :], self.requests[self.head :], strict=True))
        entries = sorted([*again, *waiting], key=lambda entry: entry[0])
        self.since = [since for since, _ in entries]
        self.requests = [request for _, request in entries]
        self.head = 0
