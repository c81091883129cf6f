"""Routers: they choose the server of the next request by the number of requests that each server has. All take O(1)
time for a request.

This file is compiled (setup.py).
"""

import random
from collections import deque
from typing import Any

from headrace.batching.errors import UsageError, one_line
from headrace.batching.named import installed, is_own, own

GROUP = "headrace.routers"  # the group of entry points
ROUTERS = ("random", "round-robin", "least-outstanding", "power-of-two", "join-idle")


class Router:
    """A router that picks any server that is up, with equal probability. Subclasses override `pick` and the state that
    it needs.

    `outstanding` has the number of requests by server, for servers that are up and for those that are not."""

    def __init__(self, servers: int, seed: int) -> None:
        self.outstanding: list[int] = [0] * servers
        self.up: list[int] = []
        self._place: list[int] = [-1] * servers  # the place of each server in `up`
        self._rng: random.Random = random.Random(seed)

    def add(self, server: int) -> None:
        """Send requests to this server from now on."""
        self._place[server] = len(self.up)
        self.up.append(server)

    def remove(self, server: int) -> None:
        """Send no more requests to this server. It may still have some."""
        place, last = self._place[server], self.up.pop()
        if last != server:
            self.up[place] = last
            self._place[last] = place
        self._place[server] = -1

    def changes(self, server: int, by: int) -> None:
        """Note that a server has this many more requests, or fewer."""
        self.outstanding[server] += by

    def pick(self) -> int:
        """Return a server that is up; at least one must be."""
        return self._any()

    def _any(self) -> int:
        return self.up[int(self._rng.random() * len(self.up))]

    def is_up(self, server: int) -> bool:
        return self._place[server] >= 0


class RoundRobin(Router):
    def __init__(self, servers: int, seed: int) -> None:
        super().__init__(servers, seed)
        self._next: int = 0

    def pick(self) -> int:
        self._next = self._next % len(self.up)
        self._next += 1
        return self.up[self._next - 1]


class LeastOutstanding(Router):
    """Join the shortest queue, and among equally short ones any with equal probability.

    Servers stand in buckets by the number of their requests. That number changes by one at a time, and so does the
    lowest bucket that is not empty."""

    def __init__(self, servers: int, seed: int) -> None:
        super().__init__(servers, seed)
        self._buckets: list[list[int]] = [[]]
        self._at: list[int] = [0] * servers  # the place of each server in its bucket
        self._least: int = 0

    def add(self, server: int) -> None:
        super().add(server)
        self._enter(server)

    def remove(self, server: int) -> None:
        super().remove(server)
        self._leave(server)

    def changes(self, server: int, by: int) -> None:
        if not self.is_up(server):
            super().changes(server, by)
            return
        self._leave(server)
        super().changes(server, by)
        self._enter(server)

    def pick(self) -> int:
        while not self._buckets[self._least]:
            self._least += 1
        bucket = self._buckets[self._least]
        return bucket[int(self._rng.random() * len(bucket))]

    def _enter(self, server: int) -> None:
        count = self.outstanding[server]
        while len(self._buckets) <= count:
            self._buckets.append([])
        bucket = self._buckets[count]
        self._at[server] = len(bucket)
        bucket.append(server)
        self._least = min(self._least, count)

    def _leave(self, server: int) -> None:
        bucket = self._buckets[self.outstanding[server]]
        last = bucket.pop()
        if last != server:
            bucket[self._at[server]] = last
            self._at[last] = self._at[server]


class PowerOfTwo(Router):
    """Draw two servers and pick the one with fewer requests (Mitzenmacher 2001)."""

    def pick(self) -> int:
        one = int(self._rng.random() * len(self.up))
        if len(self.up) == 1:
            return self.up[one]
        other = int(self._rng.random() * (len(self.up) - 1))
        if other >= one:
            other += 1
        first, second = self.up[one], self.up[other]
        return second if self.outstanding[second] < self.outstanding[first] else first


class JoinIdle(Router):
    """Join-idle-queue (Lu et al. 2011) with one dispatcher: pick the server that has been idle longest, or any if none
    is idle."""

    def __init__(self, servers: int, seed: int) -> None:
        super().__init__(servers, seed)
        self._idle: deque[int] = deque()  # it may hold servers that are not idle, or not up
        self._queued: list[bool] = [False] * servers

    def add(self, server: int) -> None:
        super().add(server)
        self._enter(server)

    def changes(self, server: int, by: int) -> None:
        super().changes(server, by)
        self._enter(server)

    def pick(self) -> int:
        while self._idle:
            server = self._idle.popleft()
            self._queued[server] = False
            if self.is_up(server) and self.outstanding[server] == 0:
                return server
        return self._any()

    def _enter(self, server: int) -> None:
        if self.outstanding[server] == 0 and self.is_up(server) and not self._queued[server]:
            self._queued[server] = True
            self._idle.append(server)


class OwnRouter(Router):
    """A router of a user's own: an object with `pick(up, outstanding)`.

    `up` lists the servers that take requests, and `outstanding` has the number of requests of each server."""

    def __init__(self, servers: int, seed: int, name: str) -> None:
        super().__init__(servers, seed)
        self._name: str = name
        try:
            self._own: Any = own("--router", name, GROUP)(servers, seed)
        except TypeError as error:
            raise UsageError(f"--router {name}: it must take servers and seed: {one_line(error)}") from error

    def pick(self) -> int:
        picked = self._own.pick(list(self.up), list(self.outstanding))
        if not isinstance(picked, int) or picked not in self.up:
            raise UsageError(f"--router {self._name} picked {picked!r}; the servers that are up are {self.up}")
        return picked


def make_router(name: str, servers: int, seed: int) -> Router:
    """Return the router of a name, of an entry point, or of module:Class. Raises UsageError."""
    if name not in ROUTERS and is_own(name, GROUP):
        return OwnRouter(servers, seed, name)
    if name == "random":
        return Router(servers, seed)
    if name == "round-robin":
        return RoundRobin(servers, seed)
    if name == "least-outstanding":
        return LeastOutstanding(servers, seed)
    if name == "power-of-two":
        return PowerOfTwo(servers, seed)
    if name == "join-idle":
        return JoinIdle(servers, seed)
    known = (*ROUTERS, *installed(GROUP))
    raise UsageError(f"--router {name!r}: choose from {', '.join(known)}, or give module:Class")
