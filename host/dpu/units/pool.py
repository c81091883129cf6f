"""A pool of CUs of one kind. Each run goes to one CU, in the order in which callers ask.

A CU that does not answer in time goes out of service, and its run goes to another CU. After the second such CU the pool
gives the run up, because the run itself may be at fault.

The pool looks after a CU that is out of service while requests go on. While its last run is under way, the pool starts
nothing on it. Once that run has ended, the pool opens the CU anew, with a new kernel and new buffers. The CU is back in
service when it does a small job right. Each probe that fails makes the interval to the next one longer.
"""

import asyncio
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from headrace.host.dpu.fair_pool import FairPool, UnitState
from headrace.host.dpu.preprocessor import CuRun, PreprocessorUnavailable
from headrace.host.dpu.units.cu import Cu, CuLost

AnyCu = TypeVar("AnyCu", bound=Cu)


class Named(Protocol):
    @property
    def name(self) -> str: ...


Held = TypeVar("Held", bound=Named)
Result = TypeVar("Result")

_log = logging.getLogger(__name__)

MAX_LOST = 2  # CUs that one run may lose
LONGEST_BETWEEN_PROBES = 64  # times the first interval; each interval is twice the one before


class DpuUnavailable(PreprocessorUnavailable):
    """No CU of a kind that is needed is left in service, or the driver was closed."""


class OpenPool(Protocol):
    """A function that opens all CUs of a kind in the container, with arguments for that kind."""

    def __call__(self, kind: type[AnyCu], /, *arguments: Any) -> "CuPool[Any]": ...


@dataclass(slots=True)
class Probing:
    """The state of a CU that is out of service.

    Args:
        last: The CU as it was last opened.
        reason: Why it was lost.
        interval_s: Seconds until the next probe.
        still_runs: The last probe found that its last run has not ended.
        probe: The probe under way.
    """

    last: Cu
    reason: str
    interval_s: float
    still_runs: bool = False
    timer: asyncio.TimerHandle | None = None
    probe: "asyncio.Future[Cu | None] | None" = None


class CuPool(Generic[Held]):
    """CUs of one kind, for one event loop.

    Callers acquire the lanes of the CUs. For most kinds the CU itself is its only lane.

    Attributes:
        lost: The reason for each lane that is out of service, by name.
        retried: How many runs moved off such a CU.
        returned: How often a CU came back, by its name."""

    def __init__(
        self,
        cus: Sequence[Cu],
        closing: threading.Event,
        reopen: Callable[[str], Cu],
        probe_after_s: float,
        probe_timeout_s: float,
    ) -> None:
        """Make the pool.

        Args:
            closing: The driver sets it when it gives up waiting.
            reopen: Opens the CU of a name anew.
            probe_after_s: Seconds from the loss of a CU to its first probe. Infinity means no probes.
            probe_timeout_s: Longest time of a probe, in seconds.
        """
        self.cus = {cu.name: cu for cu in cus}
        lanes: list[Held] = []
        self._cu_of: dict[str, str] = {}
        for cu in cus:
            own = cu.lanes()
            lanes += own
            self._cu_of |= {lane.name: cu.name for lane in own}
        self.names = tuple(self._cu_of)
        self.lost: dict[str, str] = {}
        self.retried = 0
        self.returned: Counter[str] = Counter()
        self._closing = closing
        self._reopen = reopen
        self._probe_after_s = probe_after_s
        self._probe_timeout_s = probe_timeout_s
        self._probing: dict[str, Probing] = {}  # by name of the CU
        self._held: set[str] = set()  # names of the lanes that callers have
        self._units: FairPool[Held] = FairPool(lanes, attrgetter("name"))
        self._threads = ThreadPoolExecutor(len(lanes), thread_name_prefix="dpu")
        self._prober = ThreadPoolExecutor(1, thread_name_prefix="dpu-probe")  # one probe at a time

    def close(self) -> None:
        """Refuse waiting and later callers, and end the threads. The caller has set `closing`, so it takes at most a
        wait slice."""
        self._units.refuse(lambda: DpuUnavailable("the driver was closed"))
        for probing in self._probing.values():
            if probing.timer is not None:
                probing.timer.cancel()
        self._threads.shutdown()
        self._prober.shutdown(cancel_futures=True)

    def states(self) -> list[UnitState]:
        return [
            state._replace(lost=self.lost.get(state.name, ""), returned=self.returned[self._cu_of[state.name]])
            for state in self._units.states()
        ]

    async def run(self, work: Callable[[Held], Result]) -> tuple[CuRun, Result]:
        """Run `work` in a thread with a CU of its own. If it raises CuLost, run it again with another CU.

        Returns:
            The run of the CU that succeeded, and the result of `work`.

        Raises:
            DpuUnavailable: No CU is left, or the run has lost MAX_LOST CUs. Other errors of `work` pass through.
        """

        def timed(cu: Held) -> tuple[CuRun, Result]:
            started = time.monotonic()
            result = work(cu)
            return CuRun(cu.name, started, time.monotonic()), result

        loop = asyncio.get_running_loop()
        lost = 0
        while True:
            cu = await self._units.acquire(again=lost > 0)
            self._held.add(cu.name)
            run = loop.run_in_executor(self._threads, timed, cu)
            run.add_done_callback(partial(self._release, cu))
            try:
                # A caller that gives up does not stop the CU. The CU is free when its run has ended.
                return await asyncio.shield(run)
            except CuLost as error:
                lost += 1
                if lost == MAX_LOST and not self._closing.is_set():
                    reason = f"the run is given up, as {lost} CUs did not do it; the last one: {error}"
                    raise DpuUnavailable(reason) from error
                self.retried += not self._closing.is_set()

    def _release(self, cu: Held, run: "asyncio.Future[Any]") -> None:
        error = run.exception()
        self._held.discard(cu.name)
        if cu.name in self.lost:  # another lane of the same CU has lost it
            self._units.lose(cu.name)
        elif not isinstance(error, CuLost):
            self._units.release(cu)
        elif not self._closing.is_set():
            reason = str(error)
            for lane in self._lanes_of(self._cu_of[cu.name]):
                self.lost[lane] = reason
                if lane not in self._held:
                    self._units.lose(lane)
            _log.warning("a CU goes out of service: %s", reason)  # the exception's frames would keep the device open
            self._probe_later(self._cu_of[cu.name])
            if len(self.lost) == len(self.names):
                reasons = "; ".join(dict.fromkeys(self.lost.values()))
                self._units.refuse(lambda: DpuUnavailable(f"no CU is in service ({reasons}); load the bitstream again"))

    # ---- Bringing back ----

    def _probe_later(self, name: str) -> None:
        if math.isinf(self._probe_after_s) or self._closing.is_set():
            return
        if name not in self._probing:
            self._probing[name] = self._new_probing(name)
        probing = self._probing[name]
        if probing.timer is None:
            probing.timer = asyncio.get_running_loop().call_later(probing.interval_s, self._begin_probe, name)

    def _new_probing(self, name: str) -> Probing:
        return Probing(self.cus[name], self.lost[self._lanes_of(name)[0]], self._probe_after_s)

    async def reset(self) -> None:
        """Probe all CUs that are out of service now, whatever their interval. A CU whose last run hangs stays out."""
        for name in dict.fromkeys(self._cu_of[lane] for lane in self.lost):
            if self._lanes_of(name)[0] not in self.lost:  # a probe has brought the CU back meanwhile
                continue
            if name not in self._probing:
                self._probing[name] = self._new_probing(name)
            probing = self._probing[name]
            if probing.timer is not None:
                probing.timer.cancel()
            if self._held.intersection(self._lanes_of(name)) or self._closing.is_set():
                continue
            await asyncio.wait([self._probe_now(name)])

    def _lanes_of(self, name: str) -> list[str]:
        return [lane for lane, cu in self._cu_of.items() if cu == name]

    def _begin_probe(self, name: str) -> None:
        if self._closing.is_set():
            return
        if self._held.intersection(self._lanes_of(name)):  # callers still have lanes of it
            self._probing[name].timer = None
            self._probe_later(name)
        else:
            self._probe_now(name)

    def _probe_now(self, name: str) -> "asyncio.Future[Cu | None]":
        """Return the probe that is under way, or a new one."""
        probing = self._probing[name]
        if probing.probe is None:
            probing.probe = asyncio.get_running_loop().run_in_executor(self._prober, self._probe, probing)
            probing.probe.add_done_callback(partial(self._end_probe, name))
        return probing.probe

    def _probe(self, probing: Probing) -> Cu | None:
        """Open the CU anew and return it if it does a known job right, else None. Runs in a thread."""
        probing.still_runs = probing.last.hangs()
        if probing.still_runs:
            return None
        probing.last = cu = self._reopen(probing.last.name)
        return cu if cu.probe(self._probe_timeout_s) else None

    def _end_probe(self, name: str, probe: "asyncio.Future[Cu | None]") -> None:
        if probe.cancelled():
            return
        error = probe.exception()  # after any error the next probe may succeed
        if self._closing.is_set():
            return
        probing = self._probing[name]
        probing.timer = probing.probe = None
        if error is not None:
            reason = f"{probing.reason}; its last probe: {type(error).__name__}: {error}"
            self.lost |= dict.fromkeys(self._lanes_of(name), reason)
            _log.info("a CU stays out of service: %s", reason)
        cu = None if error is not None else probe.result()
        if cu is None:
            if not probing.still_runs:  # a CU that still runs may only be slow, and this probe cost nothing
                longest_s = LONGEST_BETWEEN_PROBES * self._probe_after_s
                probing.interval_s = min(2 * probing.interval_s, longest_s)
            self._probe_later(name)
            return
        del self._probing[name]
        self.cus[name] = cu
        self.returned[name] += 1
        _log.warning("a CU is back in service: %s", name)
        for lane in cu.lanes():
            del self.lost[lane.name]
            self._units.join(lane)
