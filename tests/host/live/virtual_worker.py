"""A worker in virtual time, and what a test needs to serve with some of them.

It runs in the test's process and answers after as many virtual seconds as its node times say. The first number of a
request's input commands faults, as for the small networks (small_nets.py): 666 raises, 13 kills the worker, and
1000 + s takes s seconds more. A test may also kill it, hang it, or keep it from starting.
"""

import asyncio
import os
from collections import Counter, deque

import numpy as np
from virtual_time import LoopClock, run

from headrace.batching import Decoding, ModelGraph, Node, NodeKind
from headrace.host.live.runtime import Runtime
from headrace.host.live.settings import RuntimeSettings
from headrace.host.live.tasks.nodes import NodeTasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.messages import ANSWER, DONE, FAILED, answer_nodes, read_nodes
from headrace.host.workers.pool import WorkerPool

STRAIGHT = ModelGraph("net", tuple(Node(letter) for letter in "ABCDEFGH"))
TRANSLATOR = ModelGraph("net", (Node("e", NodeKind.ENCODER), Node("d", NodeKind.DECODER)))
OPAQUE = ModelGraph.opaque("net")


class Flat:
    """Every node takes `node_s` seconds, whatever the batch."""

    def __init__(self, node_s):
        self._node_s = node_s

    def latency(self, node, batch, length):
        return self._node_s


def value(first=0.0):
    return np.array([first, 1.0], np.float32)


class VirtualWorker:
    """It serves `NodeTasks` of models with the node times `times`, by number.

    `completed` counts, by request id, the answers that the runtime took in which the request came to its end. The
    worker takes `ready_s` to start, and does not start while `broken` says why, or is what a start raises."""

    def __init__(self, name, tasks, times, completed, ready_s=0.0):
        self.name = name
        self.broken = None
        self.ready_s = ready_s
        self.starts = []  # when
        self._tasks = tasks
        self._models = list(times)
        self._times = list(times.values())
        self._completed = completed
        self._fd = -1
        self._queue = deque()
        self._answers = deque()
        self._timer = None
        self._dead = self._hangs = False

    @property
    def at_work(self):
        return bool(self._queue)

    @property
    def tasks(self):
        """The number of tasks that it has."""
        return len(self._queue)

    async def start(self):
        await self.stop()
        self._loop = asyncio.get_running_loop()
        self.starts.append(self._loop.time())
        if self.ready_s > 0:
            await asyncio.sleep(self.ready_s)
        if isinstance(self.broken, Exception):
            raise self.broken
        if self.broken is not None:
            raise WorkerLost(f"worker {self.name} did not start: {self.broken}")
        self._decoding = Decoding()
        self._fd = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK)
        self._dead = self._hangs = False

    def fileno(self):
        return self._fd

    def send(self, number, message, files=()):
        assert not files
        model, task, slots = read_nodes(memoryview(message))
        inputs = self._tasks.arena.views[self._models[model]].inputs[0]
        self._queue.append((number, self._times[model], task, [float(inputs.at(slot, 0)[0]) for slot in slots]))
        if len(self._queue) == 1:
            self._begin()

    def _begin(self):
        if self._hangs or self._dead:
            return
        _, times, task, firsts = self._queue[0]
        self._began = self._loop.time()
        self._stop_at = None  # the boundary at which a preemptible task ends
        self._slept_s = 0.0
        for first in firsts:
            if first == 666:
                self._timer = self._loop.call_at(self._began + self._slept_s, self._fail)
                return
            if first == 13:
                self._timer = self._loop.call_at(self._began + self._slept_s, self.die)
                return
            self._slept_s += max(0.0, first - 1000)
        if task.preemptible:
            self._stop_at = self._decoding.stop(task, times.sections)
            self._ends_at(self._stop_at)
        else:
            self._timer = self._loop.call_at(self._began + (self._slept_s + times.whole_task(task)), self._end)

    def _ends_at(self, stop):
        _, times, task, _ = self._queue[0]
        took = times.duration(task.batch_size, times.task_length(task), task.start, stop)
        self._timer = self._loop.call_at(self._began + (self._slept_s + took), self._end)

    def interrupt(self, number):
        if self._hangs or self._dead or not self._queue or self._queue[0][0] != number or self._stop_at is None:
            return
        _, times, task, _ = self._queue[0]
        elapsed = max(0.0, self._loop.time() - self._began - self._slept_s)
        self._stop_at = times.boundary(task.batch_size, times.task_length(task), task.start, self._stop_at, elapsed)
        self._timer.cancel()
        self._ends_at(self._stop_at)

    def _end(self):
        number, times, task, _ = self._queue[0]
        if self._stop_at is not None:
            task = self._decoding.end(task, self._stop_at, times.sections)
        through = task.ended if times.sections.decoder else task.requests if task.stop == times.sections.nodes else ()
        self._answer(DONE, number, answer_nodes(task), [request.id for request in through])

    def _fail(self):
        self._answer(FAILED, self._queue[0][0], b"ValueError: unlucky number", [])

    def _answer(self, kind, number, body, through):
        now = self._loop.time()
        self._answers.append((ANSWER.pack(kind, number, self._began, self._began, now) + body, through))
        os.eventfd_write(self._fd, 1)
        self._queue.popleft()
        if self._queue:
            self._begin()

    def receive(self):
        if self._dead:
            raise WorkerLost(f"worker {self.name} died")
        if not self._answers:
            return None
        os.eventfd_read(self._fd)
        message, through = self._answers.popleft()
        self._completed.update(through)
        return message

    def die(self):
        """As if it were killed: its answers that were not taken are lost."""
        if self._fd >= 0 and not self._dead:
            self._still()
            self._dead = True
            os.eventfd_write(self._fd, 1)

    def hang(self):
        """It does nothing more, and holds its descriptor."""
        self._still()
        self._hangs = True

    def _still(self):
        if self._timer is not None:
            self._timer.cancel()

    async def stop(self):
        self._still()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._queue.clear()
        self._answers.clear()
        return "it said nothing"


class Served:
    """The records that a test has with the runtime and its pool. Times are those of the loop, which starts at 0.0."""

    def __init__(self, times, slots):
        tensors = (TensorSpec("x", "float32", (2,)),), (TensorSpec("output", "float32", (3,)),)
        self.tasks = NodeTasks({name: of.graph for name, of in times.items()}, dict.fromkeys(times, tensors), slots)
        self.executions = []
        self.completed = Counter()

    @property
    def schedule(self):
        """(worker, first node, boundary, requests) of every task, in the order in which they ended."""
        return [(e.worker, e.task.start, e.task.stop, [r.id for r in e.task.requests]) for e in self.executions]


def balanced(runtime) -> bool:
    """The accounting invariant, at any time."""
    ledger = runtime.ledger
    ended = ledger.finished + ledger.failed + ledger.shed + ledger.dropped + ledger.cancelled
    return ledger.submitted == ended + ledger.in_flight


def serve(policy, times, body, *, workers=1, slots=16, horizon_s=3600.0, origin=None, **settings):
    """Return what `body(runtime, pool.workers, served)` does, in virtual time, with node times by model. Whatever it
    does, nothing is in flight at the end, all memory is free, and no request has come to its end twice."""
    served = Served(times, slots)

    async def main():
        virtual_workers = [
            VirtualWorker(f"npu {number}", served.tasks, times, served.completed) for number in range(workers)
        ]
        async with WorkerPool(virtual_workers) as pool:
            async with Runtime(
                policy,
                pool,
                served.tasks,
                RuntimeSettings(**settings),
                origin=origin,
                on_execution=served.executions.append,
                clock=LoopClock(),
            ) as runtime:
                result = await body(runtime, pool.workers, served)
            assert balanced(runtime) and runtime.ledger.in_flight == 0
            assert all(held == 0 for held, _ in served.tasks.arena_use().values())
            assert not served.completed or max(served.completed.values()) == 1
            return result

    try:
        return run(main(), horizon_s=horizon_s)
    finally:
        served.tasks.close()
