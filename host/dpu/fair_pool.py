"""Who gets a unit of a preprocessor next: strictly in the order of asking.

A unit goes from hand to hand: one that becomes free while callers wait belongs to the first of them at once, so nobody
who asks later comes before. Nothing is polled: a waiter wakes when its unit is there, when it is known that none will
come, or when its caller gives up.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

Unit = TypeVar("Unit")


class UnitState(NamedTuple):
    """`busy_s` is how long callers have had it, up to now; `lost` why it is out of service, if it is;
    `returned` how often it came back."""

    name: str
    busy_s: float
    busy: bool
    lost: str = ""
    returned: int = 0


class FairPool(Generic[Unit]):
    """For one event loop. A wait lasts as long as callers keep the units, which is their owner's to bound."""

    def __init__(self, units: Iterable[Unit], name: Callable[[Unit], str] = str) -> None:
        self._free = deque(units)  # nobody waits while there are any
        self._name = name
        self._busy_s = dict.fromkeys(map(name, self._free), 0.0)  # by name: a unit that is let go of is held by nobody
        self._since: dict[str, float] = {}  # when those that callers have were given to them
        self._waiters: OrderedDict[asyncio.Future[Unit], None] = OrderedDict()
        self._refusal: Callable[[], Exception] | None = None

    async def acquire(self, *, again: bool = False) -> Unit:
        """The caller has the unit until it is released. `again` is for one whose unit was lost: it asked before all who
        wait now, and is before them. Raises what `refuse` was given."""
        if self._refusal is not None:
            raise self._refusal()
        if self._free:
            return self._given(self._free.popleft())
        waiter: asyncio.Future[Unit] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        if again:
            self._waiters.move_to_end(waiter, last=False)
        try:
            return await waiter
        except asyncio.CancelledError:
            self._waiters.pop(waiter, None)
            if not waiter.cancelled() and waiter.exception() is None:
                self.release(waiter.result())  # it came in the same turn in which the caller gave up
            raise

    def release(self, unit: Unit) -> None:
        """Hand it to the first who waits."""
        name = self._name(unit)
        since = self._since.pop(name, None)
        if since is None:
            return  # it was lost since it was given
        self._busy_s[name] += time.monotonic() - since
        if self._refusal is not None:
            return  # what nobody may have is let go of
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():  # else its caller has just given up
                waiter.set_result(self._given(unit))
                return
        self._free.append(unit)

    def lose(self, name: str) -> None:
        """Nobody gets it any more, whether it is free or its caller found that it does not work."""
        if name in self._since:
            self._busy_s[name] += time.monotonic() - self._since.pop(name)
        else:
            self._free = deque(free for free in self._free if self._name(free) != name)

    def join(self, unit: Unit) -> None:
        """It is there again, under a name that was lost; what was refused before is not any more."""
        self._refusal = None
        self._since[self._name(unit)] = time.monotonic()
        self.release(unit)

    def refuse(self, refusal: Callable[[], Exception]) -> None:
        """Nobody gets a unit any more: to all who wait and all who will ask, what `refusal` makes is raised."""
        self._refusal = refusal
        self._free.clear()
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_exception(refusal())

    def _given(self, unit: Unit) -> Unit:
        self._since[self._name(unit)] = time.monotonic()
        return unit

    def states(self) -> list[UnitState]:
        """Of all there ever were, in their order."""
        now = time.monotonic()
        return [
            UnitState(name, busy_s + now - self._since.get(name, now), name in self._since)
            for name, busy_s in self._busy_s.items()
        ]
