"""The supervision of workers: each worker of the pool is started, watched, given up, and started again.

Rules:

- A worker is in service from its start until it dies, or exceeds `task_timeout_s` with one task. Then `Supervision`
  kills it, hands its tasks back (`on_lost`), and starts it again.
- Starts that fail are repeated for as long as the runtime lives. The pauses double from FIRST_PAUSE_S to
  LONGEST_PAUSE_S.
- Once no worker at all has been in service for `outage_s`, `on_outage` is called in each round of the watch.
- A worker hangs if its task takes HANG_MARGIN_S more than twice the longest task so far. It stays in service.

The life of a worker:

    start --> up --> lost --> stop --> tasks handed back --> start ... (pause) ... start --> up
"""

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.batching import CheckedPolicy, PolicyError, Task
from headrace.host.live.requests import InFlight
from headrace.host.live.results import Execution, NoWorker, WorkerState
from headrace.host.live.settings import RuntimeSettings
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.pool import Worker
from headrace.host.workers.process import STOP_TIMEOUT_S

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 6.0  # between two starts of a worker
WATCH_S = 0.1  # between two rounds of the watch
HANG_MARGIN_S = 1.0

_log = logging.getLogger(__name__)


class DispatchedTask:
    """A task that was sent to a worker at `handed` and has not ended.

    `policy` is the policy that made it. `interrupt_sent` is set when the worker was told to end it early.
    """

    __slots__ = ("handed", "interrupt_sent", "number", "policy", "task")

    def __init__(self, number: int, task: Task, policy: CheckedPolicy, handed: float) -> None:
        self.number = number
        self.task = task
        self.policy = policy
        self.handed = handed
        self.interrupt_sent = False


@dataclass(slots=True, eq=False)
class WorkerSlot:
    """The place of one worker of the pool, whether the worker is in service (`up`) or not.

    `dispatched` holds its tasks that have not ended, in the order in which they were sent; the worker runs the first.
    `ended_early` is the interrupted task that ended last, until the next turn looks at it. `free_since` is when the
    worker ended its last task. `isolated` is the policy of the group of suspects that the worker runs, and `suspects`
    are the requests of that group (isolation.py).
    """

    index: int
    worker: Worker
    up: bool = False
    dispatched: deque[DispatchedTask] = field(default_factory=deque)
    ended_early: Task | None = None
    free_since: float = 0.0
    busy_s: float = 0.0
    isolated: CheckedPolicy | None = None
    suspects: dict[int, InFlight] = field(default_factory=dict)
    suspects_next: bool = True  # suspects and all other requests take turns

    def running_s(self, now: float) -> float:
        """Return for how many seconds the worker has been at its first task; 0 if it has none."""
        return now - max(self.dispatched[0].handed, self.free_since) if self.dispatched else 0.0


class Supervision:
    """The lives of the workers in `slots`. Use `open`, then `stop`, then `close`.

    Args:
        now: Returns the seconds since the runtime's origin.
        on_readable: Called when a worker in service has a message.
        on_lost: Called with the tasks of a lost worker still in its slot. It must take them out.
        on_change: Called when the policy shall be asked again, because a worker came or went.
        on_outage: Called with the error for all requests in flight.
        on_error: Called with an unexpected error, or an error of the policy. It must stop the runtime.
    """

    def __init__(
        self,
        slots: Sequence[WorkerSlot],
        settings: RuntimeSettings,
        now: Callable[[], float],
        *,
        on_readable: Callable[[WorkerSlot], None],
        on_lost: Callable[[WorkerSlot, WorkerLost], None],
        on_change: Callable[[], None],
        on_outage: Callable[[NoWorker, float], None],
        on_error: Callable[[Exception], object],
    ) -> None:
        self.workers_lost = 0
        self._longest_task_s = 0.0  # of the tasks that ended well
        self._slots = slots
        self._settings = settings
        self._now = now
        self._on_readable = on_readable
        self._on_lost = on_lost
        self._on_change = on_change
        self._on_outage = on_outage
        self._on_error = on_error
        self._none_up_since = math.inf
        self._why_none = "it was never started"
        self._background: set[asyncio.Task[None]] = set()
        self._stopped = False

    def open(self) -> None:
        """Take the workers into service, and begin the watch. Needs the running event loop."""
        self._loop = asyncio.get_running_loop()
        for slot in self._slots:
            if slot.worker.fileno() >= 0:
                self._up(slot)
            else:  # the runtime that used the pool before has lost it
                self._spawn(self._revive(slot))
        self._note_outage()
        self._watcher = self._loop.call_later(WATCH_S, self._watch)

    def stop(self) -> None:
        """End the watch, and hear no worker any more. Tasks at workers run on until `close`."""
        self._stopped = True
        self._watcher.cancel()
        for task in self._background:
            task.cancel()
        for slot in self._slots:
            if slot.up:
                self._loop.remove_reader(slot.worker.fileno())

    async def close(self) -> None:
        """End all that runs in the background, and kill the workers that are at a task. Takes a few seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.gather(*(slot.worker.stop() for slot in self._slots if slot.dispatched or not slot.up))

    def outage(self, now: float) -> NoWorker | None:
        """Return the error for requests if no worker has been in service for `outage_s`, else None."""
        if now - self._none_up_since <= self._settings.outage_s:
            return None
        return NoWorker(f"no worker has been in service for {now - self._none_up_since:.1f} s: {self._why_none}")

    def hanging(self, now: float) -> int:
        """Return how many workers in service take much longer for a task than any has taken before."""
        limit = HANG_MARGIN_S + 2 * self._longest_task_s
        return sum(slot.up and slot.running_s(now) > limit for slot in self._slots)

    def states(self, now: float) -> list[WorkerState]:
        """Return the state of every worker, in the pool's order."""
        states = []
        for slot in self._slots:
            task = slot.dispatched[0].task if slot.dispatched else None
            states.append(WorkerState(slot.worker.name, slot.up, slot.busy_s + slot.running_s(now), task))
        return states

    def note_execution(self, execution: Execution) -> None:
        """Add a task that ended to its worker's time."""
        took_s = execution.ended - execution.started
        self._slots[execution.worker].busy_s += took_s
        if execution.error is None:
            self._longest_task_s = max(self._longest_task_s, took_s)

    def lose(self, slot: WorkerSlot, error: WorkerLost) -> None:
        """Take a worker out of service, and start it again in the background. Does nothing if it is not in service."""
        if not slot.up:
            return
        slot.up = False
        self._loop.remove_reader(slot.worker.fileno())
        self.workers_lost += 1
        self._note_outage()
        self._spawn(self._recover(slot, error))

    async def _recover(self, slot: WorkerSlot, error: WorkerLost) -> None:
        try:
            last_words = await slot.worker.stop()
        except Exception as failure:  # the next start ends what is left of it
            last_words = repr(failure)
        lost = WorkerLost(f"{error}: {last_words}")
        self._why_none = str(lost)
        self._on_lost(slot, lost)
        self._on_change()
        await self._revive(slot)

    async def _revive(self, slot: WorkerSlot) -> None:
        """Start the worker again and again, until it is in service."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                await slot.worker.start()
                break
            except Exception as error:  # any error may be gone at the next start
                self._why_none = str(error) if isinstance(error, WorkerLost) else repr(error)
                _log.warning("%s; it is started again in %g s", self._why_none, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        self._up(slot)
        self._on_change()

    def _up(self, slot: WorkerSlot) -> None:
        slot.up = True
        slot.free_since = self._now()
        self._loop.add_reader(slot.worker.fileno(), self._on_readable, slot)
        self._note_outage()

    def _note_outage(self) -> None:
        """Keep the time since which no worker has been in service."""
        if any(slot.up for slot in self._slots):
            self._none_up_since = math.inf
        else:
            self._none_up_since = min(self._none_up_since, self._now())

    def _watch(self) -> None:
        """Look for tasks that exceed their time, and for an outage. Comes again after WATCH_S."""
        if self._stopped:
            return
        self._watcher = self._loop.call_later(WATCH_S, self._watch)
        now, limit_s = self._now(), self._settings.task_timeout_s
        for slot in self._slots:
            if slot.up and slot.running_s(now) > limit_s:
                text = f"worker {slot.worker.name} did not answer within {limit_s} s and was killed"
                self.lose(slot, WorkerLost(text))
        try:
            if (error := self.outage(now)) is not None:
                self._on_outage(error, now)
        except PolicyError as error:
            self._on_error(error)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not self._stopped:
            self._on_error(error)
