"""Share the units of a preprocessor between callers, strictly in the order in which they ask.

A unit that becomes free while callers wait goes to the first of them at once, so a later caller never overtakes.
Nothing polls. A waiting caller wakes when it gets a unit, when the pool refuses all callers, or when the caller itself
gives up.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

Unit = TypeVar("Unit")


class UnitState(NamedTuple):
    """The state of one unit.

    Args:
        name: Name of the unit.
        busy_s: Seconds for which callers have had the unit, up to now.
        busy: Whether a caller has the unit now.
        lost: Reason why the unit is out of service, or "".
        returned: How often the unit came back into service.
    """

    name: str
    busy_s: float
    busy: bool
    lost: str = ""
    returned: int = 0


class FairPool(Generic[Unit]):
    """Units that callers acquire and release, for one event loop.

    A caller waits as long as other callers keep the units. The owner of the pool has to bound that time."""

    def __init__(self, units: Iterable[Unit], name: Callable[[Unit], str] = str) -> None:
        self._free = deque(units)  # no caller waits while there are any
        self._name = name
        self._busy_s = dict.fromkeys(map(name, self._free), 0.0)  # by name, so that the pool keeps no lost unit alive
        self._since: dict[str, float] = {}  # when callers got the units that they have now
        self._waiters: OrderedDict[asyncio.Future[Unit], None] = OrderedDict()
        self._refusal: Callable[[], Exception] | None = None

    async def acquire(self, *, again: bool = False) -> Unit:
        """Wait for a unit and return it. The caller has the unit until it releases it.

        `again` is for a caller whose unit was lost. It asked before all callers that wait now, so it goes before them.
        Raises the error that `refuse` was given."""
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
                self.release(waiter.result())  # the unit came in the same turn in which the caller gave up
            raise

    def release(self, unit: Unit) -> None:
        """Give the unit to the first waiting caller, or keep it as a free one."""
        name = self._name(unit)
        since = self._since.pop(name, None)
        if since is None:
            return  # the unit was lost meanwhile
        self._busy_s[name] += time.monotonic() - since
        if self._refusal is not None:
            return  # the pool gives out no units any more
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():  # a caller that has just given up gets nothing
                waiter.set_result(self._given(unit))
                return
        self._free.append(unit)

    def lose(self, name: str) -> None:
        """Take a unit out of service, whether it is free or a caller found that it does not work."""
        if name in self._since:
            self._busy_s[name] += time.monotonic() - self._since.pop(name)
        else:
            self._free = deque(free for free in self._free if self._name(free) != name)

    def join(self, unit: Unit) -> None:
        """Take a unit back into service under a name that was lost. The pool refuses no caller any more."""
        self._refusal = None
        self._since[self._name(unit)] = time.monotonic()
        self.release(unit)

    def refuse(self, refusal: Callable[[], Exception]) -> None:
        """Give out no units any more. All waiting and all later callers get the error that `refusal` makes."""
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
        """Return the state of every unit that the pool ever had, in their order."""
        now = time.monotonic()
        return [
            UnitState(name, busy_s + now - self._since.get(name, now), name in self._since)
            for name, busy_s in self._busy_s.items()
        ]
