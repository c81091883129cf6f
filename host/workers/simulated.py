"""A simulated accelerator as a live worker: it takes as long as the hardware would, in real time, and computes nothing.

Requests, queues, policy and clock are real; only the network's outputs are zeros. Unlike a worker process that runs a
whole network, it can be interrupted at every node boundary, so node-level policies are served as on the accelerator.
"""

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace.batching import Decoding, NodeTimes, Task
from headrace.host.workers.process import RunTimes, WorkerLost


class SimulatedWorker:
    """One accelerator. It waits in a thread of its own: an event loop's timers are only good to a millisecond."""

    def __init__(self, name: str, times: Mapping[str, NodeTimes]) -> None:
        self.name = name
        self._times = times
        self._decoding = Decoding()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._wake = threading.Condition()
        self._interrupted = False
        self._closed = False

    async def execute(self, task: Task, slots: Sequence[int], timeout_s: float) -> tuple[Task, RunTimes]:
        """Returns the task as it ended, after the time that it takes. Raises WorkerLost beyond `timeout_s`."""
        with self._wake:
            self._interrupted = False
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, task, timeout_s)

    def interrupt(self) -> None:
        """End the running task, if it is preemptible, at its next node boundary."""
        with self._wake:
            self._interrupted = True
            self._wake.notify_all()

    def _run(self, task: Task, timeout_s: float) -> tuple[Task, RunTimes]:
        times = self._times[task.model]
        batch = task.batch_size
        started = time.monotonic()
        if not task.preemptible:
            seconds = times.whole_task(task)
            self._wait(started + seconds, started + timeout_s, until_interrupted=False)
            return task, RunTimes(0.0, time.monotonic() - started)
        length = times.task_length(task)
        stop = self._decoding.stop(task, times.sections)
        end = started + times.duration(batch, length, task.start, stop)
        if self._wait(end, started + timeout_s, until_interrupted=True):
            stop = times.boundary(batch, length, task.start, stop, time.monotonic() - started)
            end = started + times.duration(batch, length, task.start, stop)
            self._wait(end, started + timeout_s, until_interrupted=False)
        return self._decoding.end(task, stop, times.sections), RunTimes(0.0, time.monotonic() - started)

    def _wait(self, end: float, limit: float, *, until_interrupted: bool) -> bool:
        """Sleep until the time `end`; True if interrupted before."""
        with self._wake:
            while (now := time.monotonic()) < end:
                if self._closed or now >= limit:
                    raise WorkerLost(f"{self.name} was closed" if self._closed else f"{self.name}: the task timed out")
                if until_interrupted and self._interrupted:
                    return True
                self._wake.wait(min(end, limit) - now)
        return False

    async def restart(self) -> None:
        """Ready for the next task; nothing of an earlier one is left."""
        self._decoding = Decoding()

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self._thread.shutdown(wait=False, cancel_futures=True)


class SimulatedPool:
    """`count` equal accelerators, on which the models have the node latencies `times`. An async context manager."""

    def __init__(self, kind: str, count: int, times: Mapping[str, NodeTimes]) -> None:
        self.workers = tuple(SimulatedWorker(f"{kind} {number}", times) for number in range(count))

    async def __aenter__(self) -> "SimulatedPool":
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()
