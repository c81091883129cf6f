"""The order of things in a turn, in virtual time, with workers whose answers the test writes."""

import asyncio
import socket

import numpy as np
from small_nets import graphs
from virtual_time import LoopClock, run

from headrace.batching import (
    GraphBatching,
    LazyBatching,
    ModelGraph,
    Node,
    NodeTimes,
    SerialBatching,
    WorkConservingBatching,
)
from headrace.host.live.runtime import Runtime
from headrace.host.live.tasks.nodes import NodeTasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.messages import ANSWER, DONE, answer_nodes, read_nodes
from headrace.host.workers.pool import WorkerPool

X = np.zeros(2, np.float32)


class Scripted:
    """A worker that does what the test says; `log` has what it was sent, by kind, with the task."""

    def __init__(self, name, log):
        self.name = name
        self.log = log
        self.tasks = []
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)

    def fileno(self):
        return self._ours.fileno()

    async def start(self):
        pass

    def send(self, number, message, files=()):
        self.tasks.append((number, read_nodes(memoryview(message))[1]))
        self.log.append(("task", self.name))

    def interrupt(self, number):
        assert number == self.tasks[0][0]
        self.log.append(("interrupt", self.name))

    def answer(self, stop=None):
        """The first of its tasks has ended, at the node boundary `stop` if it was interrupted."""
        number, task = self.tasks.pop(0)
        task = task if stop is None else task.ended_at(stop)
        now = asyncio.get_running_loop().time()
        self._theirs.send(ANSWER.pack(DONE, number, now, now, now) + answer_nodes(task))

    def receive(self):
        try:
            return self._ours.recv(1 << 16)
        except BlockingIOError:
            return None

    async def stop(self):
        self._ours.close()
        self._theirs.close()
        return ""


class Logged:
    """A policy that sends `ahead` tasks to a worker, and notes each event and question in `log`."""

    def __init__(self, policy, log, ahead):
        self._policy, self._log, self.ahead = policy, log, ahead

    def __getattr__(self, name):
        return getattr(self._policy, name)

    def complete(self, task, now):
        self._log.append(("complete", len(task.requests)))
        return self._policy.complete(task, now)

    def next_task(self, worker, now):
        self._log.append(("asked", worker))
        return self._policy.next_task(worker, now)


class Watched:
    """Tasks that tell in `log` when a result is copied. No class may be derived from a compiled one."""

    def __init__(self, tasks, log):
        self._tasks, self._log = tasks, log

    def __getattr__(self, name):
        return getattr(self._tasks, name)

    def result(self, request, read=None):
        self._log.append(("copied",))
        return self._tasks.result(request, read)


def serve(policy, body, workers=1, graph=None, ahead=1):
    log = []

    async def main():
        spec = (TensorSpec("x", "float32", (2,)),)
        graph_ = graph or graphs(["net"])[0]
        tasks = Watched(NodeTasks({"net": graph_}, {"net": (spec, spec)}, 16), log)
        scripted = [Scripted(str(number), log) for number in range(workers)]
        logged = Logged(policy, log, ahead)
        async with WorkerPool(scripted) as pool, Runtime(logged, pool, tasks, clock=LoopClock()) as runtime:
            await body(runtime, scripted, log)
        tasks.close()

    run(main())


async def turns(count=3):
    for _ in range(count):
        await asyncio.sleep(0.005)


def test_answers_of_two_workers_at_one_instant_are_both_told_before_the_policy_is_asked():
    async def body(runtime, workers, log):
        calls = [asyncio.create_task(runtime.infer("net", X)) for _ in range(4)]
        await turns()
        log.clear()
        for worker in workers:
            worker.answer()
        await turns()
        kinds = [entry[0] for entry in log]
        assert kinds[:2] == ["complete", "complete"] and "complete" not in kinds[2:]
        for worker in workers:
            worker.answer()
        await asyncio.gather(*calls)

    serve(SerialBatching(graphs(["net"])), body, workers=2)


def test_workers_are_at_work_again_before_results_are_copied_and_callers_answered():
    async def body(runtime, workers, log):
        async def caller():
            await runtime.infer("net", X)
            log.append(("answered",))

        calls = [asyncio.create_task(caller()) for _ in range(2)]
        await turns()
        log.clear()
        workers[0].answer()
        await turns()
        assert [entry[0] for entry in log if entry[0] != "asked"] == ["complete", "task", "copied", "answered"]
        workers[0].answer()
        await asyncio.gather(*calls)

    serve(SerialBatching(graphs(["net"])), body)


def test_a_worker_gets_as_many_tasks_in_a_turn_as_the_policy_sends_ahead():
    async def body(runtime, workers, log):
        calls = [asyncio.create_task(runtime.infer("net", X)) for _ in range(5)]
        await turns()
        assert [len(worker.tasks) for worker in workers] == [3, 2], "in turn, so that none waits after another's"
        for _ in range(5):
            for worker in workers:
                if worker.tasks:
                    worker.answer()
            await turns()
        await asyncio.gather(*calls)

    serve(SerialBatching(graphs(["net"])), body, workers=2, ahead=3)


def test_requests_of_one_turn_are_told_before_the_policy_is_asked():
    async def body(runtime, workers, log):
        calls = [asyncio.create_task(runtime.infer("net", X)) for _ in range(5)]
        await turns()
        assert [task.batch_size for _, task in workers[0].tasks] == [5]
        workers[0].answer()
        await asyncio.gather(*calls)

    serve(WorkConservingBatching(graphs(["net"]), 8), body)


class Unit:
    def latency(self, node, batch, length):
        return 1.0


def test_a_preemptible_task_is_told_to_end_once_and_again_the_next_one():
    graph = ModelGraph("net", (Node("a"), Node("b")))

    async def body(runtime, workers, log):
        calls = [asyncio.create_task(runtime.infer("net", X))]
        await turns()
        assert log[-1] == ("task", "0")
        for _ in range(3):
            calls.append(asyncio.create_task(runtime.infer("net", X)))
            await turns()
        assert [entry[0] for entry in log].count("interrupt") == 1
        workers[0].answer()  # at its end; the three others are next
        await turns()
        calls.append(asyncio.create_task(runtime.infer("net", X)))
        await turns()
        assert [entry[0] for entry in log].count("interrupt") == 2
        while not all(call.done() for call in calls):
            workers[0].answer()
            await turns()

    serve(LazyBatching({"net": NodeTimes(graph, Unit())}, 1, 8), body, graph=graph)


def test_a_batch_that_goes_on_as_it_was_interrupts_no_other_worker():
    graph = ModelGraph("net", tuple(Node(letter) for letter in "abc"))

    async def body(runtime, workers, log):
        calls = [asyncio.create_task(runtime.infer("net", X))]
        await turns()
        calls.append(asyncio.create_task(runtime.infer("net", X)))
        await turns()
        assert [entry for entry in log if entry[0] in ("interrupt", "task")][-2:] == [("interrupt", "0"), ("task", "1")]
        log.clear()
        workers[0].answer(stop=1)
        await turns()
        assert [entry for entry in log if entry[0] in ("interrupt", "task")] == [("task", "0")]
        workers[1].answer()  # at its end, which is something that happened to worker 0
        await turns()
        assert [entry for entry in log if entry[0] in ("interrupt", "task")] == [("task", "0"), ("interrupt", "0")]
        workers[0].answer()
        await asyncio.gather(*calls)

    serve(LazyBatching({"net": NodeTimes(graph, Unit())}, 2, 8), body, workers=2, graph=graph)


def test_a_task_of_a_whole_network_is_never_interrupted():
    async def body(runtime, workers, log):
        calls = [asyncio.create_task(runtime.infer("net", X))]
        await turns()
        calls.append(asyncio.create_task(runtime.infer("net", X)))
        await turns()
        assert ("interrupt", "0") not in log
        workers[0].answer()
        await turns()
        workers[0].answer()
        await asyncio.gather(*calls)

    serve(GraphBatching(graphs(["net"]), 0.0, 1), body)


def test_an_idle_runtime_does_nothing():
    async def body(runtime, workers, log):
        await asyncio.sleep(60.0)
        assert log == []

    serve(GraphBatching(graphs(["net"]), 0.01, 4), body)
