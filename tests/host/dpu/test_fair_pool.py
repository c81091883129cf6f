"""Units go to callers in the order in which they asked, even if some give up. No unit is lost or given twice."""

import asyncio
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from headrace.host.dpu.fair_pool import FairPool


class Refused(Exception):
    pass


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Callers:
    """Numbered callers that ask for units, get, keep and return them. `served` holds the callers that got one, in
    order."""

    def __init__(self, units: FairPool[str]) -> None:
        self.units = units
        self.tasks: list[asyncio.Task[None]] = []
        self.served: list[int] = []
        self.held: dict[int, str] = {}

    def ask(self) -> None:
        self.tasks.append(asyncio.create_task(self._get(len(self.tasks))))

    async def _get(self, number: int) -> None:
        unit = await self.units.acquire()
        assert unit not in self.held.values()
        self.served.append(number)
        self.held[number] = unit

    def check(self) -> None:
        """Check that no waiting caller asked before one that was served, and that no caller waits while a unit is
        free."""
        waiting = [number for number, task in enumerate(self.tasks) if not task.done()]
        assert not waiting or (max(self.served) < waiting[0] and self.held)

    def give_back(self) -> None:
        if self.held:
            self.units.release(self.held.pop(next(iter(self.held))))


ACTIONS = st.one_of(
    st.sampled_from(["ask", "ask", "give back", "turn", "turns"]), st.tuples(st.just("give up"), st.integers(0, 30))
)


@examples(120, 300)
@given(st.integers(1, 3), st.lists(ACTIONS, max_size=60))
def test_units_are_served_in_order_and_none_is_lost(count, actions):
    async def body():
        names = [f"unit {number}" for number in range(count)]
        units = FairPool(names)
        callers = Callers(units)
        for action in actions:
            match action:
                case "ask":
                    callers.ask()
                case "give back":
                    callers.give_back()
                case "turn":
                    await turns(1)
                case "turns":
                    await turns()
                    callers.check()
                case (_, number) if number < len(callers.tasks):
                    callers.tasks[number].cancel()
        await turns()
        callers.check()
        while callers.held:
            callers.give_back()
            await turns()
            callers.check()
        assert all(task.done() for task in callers.tasks)
        async with asyncio.timeout(1):
            assert sorted([await units.acquire() for _ in names]) == names

    asyncio.run(body())


def test_who_asks_when_a_unit_comes_back_is_behind_all_who_waited():
    async def body():
        units = FairPool(["one"])
        callers = Callers(units)
        for _ in range(3):
            callers.ask()
        await turns()
        callers.give_back()
        callers.ask()  # before the waiter has run
        for _ in range(3):
            await turns()
            callers.give_back()
        assert callers.served == [0, 1, 2, 3]

    asyncio.run(body())


def test_a_unit_handed_to_one_who_gave_up_in_the_same_turn_goes_to_the_next():
    async def body():
        units = FairPool(["one"])
        callers = Callers(units)
        for _ in range(4):
            callers.ask()
        await turns()
        callers.give_back()  # to 1
        callers.tasks[1].cancel()
        callers.tasks[2].cancel()
        await turns()
        assert callers.served == [0, 3]

    asyncio.run(body())


def test_who_lost_a_unit_comes_before_all_who_wait():
    async def body():
        units = FairPool(["one"])
        await units.acquire()
        order = []

        async def ask(name, again):
            await units.acquire(again=again)
            order.append(name)

        async with asyncio.timeout(1), asyncio.TaskGroup() as group:
            for name, again in (("first", False), ("second", False), ("lost", True)):
                group.create_task(ask(name, again))
            await turns()
            for _ in range(3):
                units.release("one")
                await turns()
        assert order == ["lost", "first", "second"]

    asyncio.run(body())


def test_refusing_wakes_all_who_wait_and_stops_all_who_come():
    async def body():
        units = FairPool(["one"])
        kept = await units.acquire()
        waiting = [asyncio.create_task(units.acquire()) for _ in range(5)]
        await turns()
        waiting[2].cancel()
        units.refuse(Refused)
        async with asyncio.timeout(1):
            ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in ended] == [Refused, Refused, asyncio.CancelledError, Refused, Refused]
        units.release(kept)
        errors = []
        for _ in range(3):
            with pytest.raises(Refused) as raised:
                await units.acquire()
            errors.append(raised.value)
        assert len({id(error) for error in errors}) == 3  # one raised again and again would keep every traceback

    asyncio.run(body())


def test_after_the_refusal_units_are_let_go_of():
    class Device:
        pass

    async def body():
        units = FairPool([Device(), Device()])
        gone = [weakref.ref(units._free[0]), weakref.ref(units._free[1])]
        kept = await units.acquire()
        units.refuse(Refused)
        units.release(kept)
        del kept
        assert [one() for one in gone] == [None, None]

    asyncio.run(body())


def test_one_who_was_handed_a_unit_before_the_refusal_keeps_it():
    async def body():
        units = FairPool(["one"])
        await units.acquire()
        waiting = asyncio.create_task(units.acquire())
        await turns()
        units.release("one")
        units.refuse(Refused)
        assert await waiting == "one"

    asyncio.run(body())


def test_those_who_gave_up_are_forgotten():
    async def body():
        units = FairPool(["one"])
        await units.acquire()
        for _ in range(100):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await units.acquire()
        assert not units._waiters

    asyncio.run(body())


def test_the_time_that_callers_have_a_unit_is_told_by_name():
    async def run():
        units = FairPool(range(2), "unit {}".format)
        assert units.states() == [("unit 0", 0.0, False, "", 0), ("unit 1", 0.0, False, "", 0)]
        first, second = await units.acquire(), await units.acquire()
        waiter = asyncio.ensure_future(units.acquire())
        await asyncio.sleep(0.02)
        units.release(second)
        units.release(first)  # to the waiter at once
        (_, busy_0, at_0, *_), (_, busy_1, at_1, *_) = units.states()
        assert {at_0, at_1} == {False, True} and min(busy_0, busy_1) >= 0.02
        held = await waiter
        await asyncio.sleep(0.01)
        again = units.states()[held]
        assert again.busy and again.busy_s >= (busy_0, busy_1)[held] + 0.01
        units.refuse(lambda: RuntimeError("closed"))
        units.release(held)
        assert not units.states()[held].busy

    asyncio.run(run())
