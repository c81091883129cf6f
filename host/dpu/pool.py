"""CUs of one kind, any of which does a run: one of them a run, in the order of asking.

A CU that does not answer in time is taken out of service, and its run goes to another one; behind the second it is
given up, as it may be the run that is at fault.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from headrace.host.dpu.cu import Cu, CuLost
from headrace.host.dpu.preprocessor import CuRun, PreprocessorUnavailable
from headrace.host.dpu.units import Units, UnitState

AnyCu = TypeVar("AnyCu", bound=Cu)


class Named(Protocol):
    @property
    def name(self) -> str: ...


Held = TypeVar("Held", bound=Named)
Result = TypeVar("Result")

_log = logging.getLogger(__name__)

MOST_LOST = 2  # CUs for one run


class DpuUnavailable(PreprocessorUnavailable):
    """No CU of a kind that is needed is left in service, or the driver was closed."""


class OpenPool(Protocol):
    """Opens all CUs of a kind that the container has, with the arguments of their own. The pool has their lanes, which
    for most are the CUs themselves."""

    def __call__(self, kind: type[AnyCu], *arguments: Any) -> "CuPool[Any]": ...


class CuPool(Generic[Held]):
    """For one event loop. `lost` has the reasons of those that are out of service by name; `retried` counts the runs
    that were moved off them."""

    def __init__(self, cus: Sequence[Held], closing: threading.Event) -> None:
        """`closing` is set when the driver gives up waiting."""
        self.names = tuple(cu.name for cu in cus)
        self.lost: dict[str, str] = {}
        self.retried = 0
        self._closing = closing
        self._units: Units[Held] = Units(cus, attrgetter("name"))
        self._threads = ThreadPoolExecutor(len(cus), thread_name_prefix="dpu")

    def close(self) -> None:
        """After `closing` is set: what waits and what comes later is refused; takes at most a slice of waiting."""
        self._units.refuse(lambda: DpuUnavailable("the driver was closed"))
        self._threads.shutdown()

    def states(self) -> list[UnitState]:
        return [
            state._replace(busy=state.busy and state.name not in self.lost, lost=self.lost.get(state.name, ""))
            for state in self._units.states()
        ]

    async def run(self, work: Callable[[Held], Result]) -> tuple[CuRun, Result]:
        """`work` in a thread, with a CU of its own; it is called again with another one if it raises CuLost.

        Raises DpuUnavailable, also when it has lost MOST_LOST, and what else `work` raises."""

        def timed(cu: Held) -> tuple[CuRun, Result]:
            started = time.monotonic()
            result = work(cu)
            return CuRun(cu.name, started, time.monotonic()), result

        loop = asyncio.get_running_loop()
        lost = 0
        while True:
            cu = await self._units.acquire(again=lost > 0)
            run = loop.run_in_executor(self._threads, timed, cu)
            run.add_done_callback(partial(self._release, cu))
            try:
                # A caller that gives up does not stop the CU, which is not free before its run has ended.
                return await asyncio.shield(run)
            except CuLost as error:
                lost += 1
                if lost == MOST_LOST and not self._closing.is_set():
                    reason = f"a run is given up that {lost} CUs did not do; of the last one: {error}"
                    raise DpuUnavailable(reason) from error
                self.retried += not self._closing.is_set()

    def _release(self, cu: Held, run: "asyncio.Future[Any]") -> None:
        error = run.exception()
        if not isinstance(error, CuLost):
            self._units.release(cu)
        elif not self._closing.is_set():
            self.lost[cu.name] = reason = str(error)
            _log.warning("a CU goes out of service: %s", reason)  # not the exception: its frames hold the device
            if len(self.lost) == len(self.names):
                reasons = "; ".join(self.lost.values())
                self._units.refuse(lambda: DpuUnavailable(f"no CU is in service ({reasons}); load the bitstream again"))
