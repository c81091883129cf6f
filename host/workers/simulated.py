"""A simulated accelerator as a live worker: it takes as long as the hardware would, in real time, and computes nothing.

Requests, queues, policy, messages and clock are real; only the outputs of the network are zeros. It runs tasks of
nodes, including whole graphs, and ends them at any node boundary. So it serves node-level policies as the accelerator
would.
"""

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence

from headrace.batching import Decoding, NodeTimes
from headrace.host.memory.files import SharedFile
from headrace.host.workers.channel import Channel
from headrace.host.workers.executors.serving import Interrupts, TaskRecord, serve
from headrace.host.workers.messages import ANSWER, READY, answer_nodes, read_nodes
from headrace.host.workers.process import STOP_TIMEOUT_S


class SimulatedExecutor:
    def __init__(self, times: Sequence[NodeTimes]) -> None:
        self._times = times  # by number of the model
        self._decoding = Decoding()

    def run(self, message: memoryview, interrupts: Interrupts) -> TaskRecord:
        model, task, _ = read_nodes(message)
        times = self._times[model]
        began = time.monotonic()
        if not task.preemptible:
            interrupts.sleep(began + times.whole_task(task))
            return TaskRecord(began, answer_nodes(task))
        length = times.task_length(task)
        stop = self._decoding.stop(task, times.sections)
        end = began + times.duration(task.batch_size, length, task.start, stop)
        if interrupts.wait(end):
            stop = times.boundary(task.batch_size, length, task.start, stop, time.monotonic() - began)
            interrupts.sleep(began + times.duration(task.batch_size, length, task.start, stop))
        return TaskRecord(began, answer_nodes(self._decoding.end(task, stop, times.sections)))


class SimulatedWorker:
    """One accelerator, in a thread of its own. `times` holds the node latencies of the models, by number."""

    def __init__(self, name: str, times: Sequence[NodeTimes]) -> None:
        self.name = name
        self._times = times
        self._thread: threading.Thread | None = None
        self._channel: Channel | None = None

    async def start(self) -> None:
        """Make the worker ready for its next task, without anything of an earlier one."""
        await self.stop()
        self._channel = channel = Channel()
        executor = SimulatedExecutor(self._times)
        self._thread = threading.Thread(target=self._run, args=(channel, executor), name=self.name, daemon=True)
        self._thread.start()
        while (ready := channel.receive(self.name)) is None:  # comes at once, as there is nothing to load
            await asyncio.sleep(0.001)
        assert ANSWER.unpack_from(ready)[0] == READY

    @staticmethod
    def _run(channel: Channel, executor: SimulatedExecutor) -> None:
        with channel.theirs:
            serve(channel.theirs, channel.interrupted, executor)

    def fileno(self) -> int:
        return self._channel.ours.fileno() if self._channel is not None else -1

    def send(self, number: int, message: bytes, files: Sequence[SharedFile] = ()) -> None:
        assert self._channel is not None
        self._channel.send(number, message, files)

    def interrupt(self, number: int) -> None:
        assert self._channel is not None
        self._channel.interrupt(number)
        self._channel.wake()

    def receive(self) -> bytes | None:
        assert self._channel is not None
        return self._channel.receive(self.name)

    async def stop(self) -> str:
        """Close the channel, which ends the thread: it waits for nothing else."""
        thread, channel = self._thread, self._channel
        self._thread = self._channel = None
        if channel is not None:
            channel.close()
        if thread is not None:
            thread.join(STOP_TIMEOUT_S)
        return "it said nothing"


def simulated_workers(kind: str, count: int, times: Mapping[str, NodeTimes]) -> list[SimulatedWorker]:
    """Return `count` equal accelerators with the node latencies `times`, in the order in which a `NodeTasks` has the
    models."""
    return [SimulatedWorker(f"{kind} {number}", list(times.values())) for number in range(count)]
