"""Who gets a unit of a preprocessor next: strictly in the order of asking.

A unit goes from hand to hand: one that becomes free while callers wait belongs to the first of them at once, so nobody
who asks later comes before. Nothing is polled: a waiter wakes when its unit is there, when it is known that none will
come, or when its caller gives up.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Unit = TypeVar("Unit")


class Units(Generic[Unit]):
    """For one event loop. A wait lasts as long as callers keep the units, which is their owner's to bound."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self._free = deque(units)  # nobody waits while there are any
        self._waiters: OrderedDict[asyncio.Future[Unit], None] = OrderedDict()
        self._refusal: Callable[[], Exception] | None = None

    async def acquire(self, *, again: bool = False) -> Unit:
        """The caller has the unit until it is released. `again` is for one whose unit was lost: it asked before all who
        wait now, and is before them. Raises what `refuse` was given."""
        if self._refusal is not None:
            raise self._refusal()
        if self._free:
            return self._free.popleft()
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
        if self._refusal is not None:
            return  # what nobody may have is let go of
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():  # else its caller has just given up
                waiter.set_result(unit)
                return
        self._free.append(unit)

    def refuse(self, refusal: Callable[[], Exception]) -> None:
        """Nobody gets a unit any more: to all who wait and all who will ask, what `refusal` makes is raised."""
        self._refusal = refusal
        self._free.clear()
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_exception(refusal())
