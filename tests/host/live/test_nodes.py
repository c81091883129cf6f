"""Simulated accelerators under the live runtime: the schedule of the simulator, in real time. test_virtual.py has all
else that both must agree on, in virtual time."""

import asyncio
import time

import numpy as np
import pytest

from headrace.batching import GraphBatching, LazyBatching, ModelGraph, Node, NodeKind, NodeTimes
from headrace.host.live.results import RuntimeClosed
from headrace.host.live.runtime import Runtime
from headrace.host.live.settings import RuntimeSettings
from headrace.host.live.tasks.nodes import NodeTasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.simulated import simulated_workers
from headrace.sim.engine import Arrivals, run

UNIT = 0.15  # s a node. The schedule is the same while a busy machine is less than half of it late.

CLOCK_S = 2e-3  # asyncio's timers are whole milliseconds


class Unit:
    def latency(self, node, batch, length):
        return UNIT


EIGHT = ModelGraph("net", tuple(Node(letter) for letter in "ABCDEFGH"))
TRANSLATOR = ModelGraph("net", (Node("e", NodeKind.ENCODER), Node("d", NodeKind.DECODER)))


def node_tasks(times, slots=8):
    tensors = (TensorSpec("x", "float32", (2,)),), (TensorSpec("output", "float32", (3,)),)
    return NodeTasks({"net": times.graph}, {"net": tensors}, slots)


def live(policy, times, at, *, workers=1, lengths=None):
    """Requests at the times `at` through a live runtime: (inferences, executions)."""
    executions = []

    async def body():
        tasks = node_tasks(times, len(at))
        async with (
            WorkerPool(simulated_workers("npu", workers, {"net": times})) as pool,
            Runtime(policy, pool, tasks, RuntimeSettings(task_timeout_s=10), on_execution=executions.append) as runtime,
        ):

            async def request(number):
                await asyncio.sleep(runtime.origin + at[number] - time.monotonic())
                inputs, outputs = (lengths or [(1, 1)] * len(at))[number]
                return await runtime.infer("net", np.zeros(2, np.float32), input_len=inputs, output_len=outputs)

            done = await asyncio.gather(*(request(number) for number in range(len(at))))
            runtime.ledger.check()
            assert runtime.ledger.finished == len(at)
            return done, executions

    return asyncio.run(body())


def simulated(policy, times, at, workers=1, lengths=None):
    lengths = lengths or [(1, 1)] * len(at)
    load = Arrivals(
        ["net"] * len(at), at, [float("inf")] * len(at), [float(i) for i, _ in lengths], [o for _, o in lengths]
    )
    return run(policy, load, {"net": times}, workers, True)


def schedule(tasks):
    return [(task.start, task.stop, {request.id for request in task.requests}) for task in tasks]


@pytest.mark.timed  # a machine that is half a UNIT late has another schedule
@pytest.mark.parametrize(
    ("graph", "at", "lengths"),
    [
        (EIGHT, [0.0, 1.5, 2.5], None),  # LazyBatching's Fig. 10
        (TRANSLATOR, [0.0, 1.5, 7.5], [(3, 4), (5, 2), (1, 3)]),
    ],
)
def test_what_is_simulated_is_what_is_served(graph, at, lengths):
    times = NodeTimes(graph, Unit())
    at = [UNIT * t for t in at]
    steps = {"net": 4}
    expected = simulated(LazyBatching({"net": times}, 1, 8, steps), times, at, lengths=lengths)
    done, executions = live(LazyBatching({"net": times}, 1, 8, steps), times, at, lengths=lengths)
    assert schedule(e.task for e in executions) == schedule(ran.task for ran in expected.ran)
    for number, inference in enumerate(done):
        # A busy machine may be late, but nothing can be early. test_virtual.py asks for the exact times.
        assert inference.served.finished > expected.finished[number] - CLOCK_S
        assert inference.served.started > expected.started[number] - CLOCK_S
        assert inference.output.shape == (3,)


def test_a_task_beyond_its_time_limit_loses_the_accelerator_and_its_request():
    class Long:
        def latency(self, node, batch, length):
            return 3600.0

    times = NodeTimes(EIGHT, Long())
    settings = RuntimeSettings(task_timeout_s=0.2)

    async def body():
        async with (
            WorkerPool(simulated_workers("npu", 1, {"net": times})) as pool,
            Runtime(GraphBatching([EIGHT], 0.0), pool, node_tasks(times), settings) as runtime,
        ):
            with pytest.raises(WorkerLost, match=r"npu 0 did not answer within 0\.2 s"):
                await runtime.infer("net", np.zeros(2, np.float32))
            assert runtime.statistics().workers_lost == 2  # with the first of its two attempts, too

    asyncio.run(body())


def test_closing_does_not_wait_for_what_runs():
    class Forever:
        def latency(self, node, batch, length):
            return 3600.0

    times = NodeTimes(EIGHT, Forever())

    async def body():
        async with WorkerPool(simulated_workers("npu", 1, {"net": times})) as pool:
            settings = RuntimeSettings(task_timeout_s=7200)
            runtime = Runtime(GraphBatching([EIGHT], 0.0), pool, node_tasks(times), settings)
            async with runtime:
                request = asyncio.create_task(runtime.infer("net", np.zeros(2, np.float32)))
                await asyncio.sleep(0.05)
                began = time.monotonic()
            with pytest.raises(RuntimeClosed):
                await request
        assert time.monotonic() - began < 6

    asyncio.run(body())
