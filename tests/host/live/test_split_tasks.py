"""Node-level scheduling on real worker processes: whoever joins, leaves, raises or is killed, outputs are one's own."""

import asyncio
import functools
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from serving import PerNode, balanced, serve, with_the_networks  # noqa: F401 - a fixture

from headrace.batching import GraphBatching, LazyBatching, NodeTimes, SerialBatching
from headrace.host.live.tasks.nodes import SplitTasks
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.split.network import node_model
from headrace.host.workers.process import ModelError

RESIDUAL, ATTENTION, KILLER = "split_nets:residual", "split_nets:attention", "split_nets:killer"
_models = {}


pytestmark = pytest.mark.usefixtures("with_the_networks")


def made(source, whole=False):
    if (source, whole) not in _models:
        _models[source, whole] = node_model(source, 8, whole=whole)
    return _models[source, whole]


def split_tasks(*sources, slots=64, whole=False):
    models = [made(source, whole) for source in sources]
    return SplitTasks([model for model, _ in models], {model.name: graph for model, graph in models}, slots)


def lazy(*sources, workers=1, whole=False):
    times = {source: NodeTimes(made(source, whole)[1], PerNode()) for source in sources}
    return LazyBatching(times, workers, 8)


def value(source, seed, first=None):
    shape = made(source)[0].inputs[0].shape
    array = np.random.default_rng(seed).standard_normal(shape, np.float32)
    if first is not None:
        array.flat[0] = first
    return array


network = functools.cache(load_model)


def alone(source, array):
    with torch.no_grad():
        return network(source).forward([torch.from_numpy(array)[None].clone()])[0][0].numpy()


async def staggered(runtime, source, seeds, gap_s=0.001):
    """One request after the other, each a little later."""
    values = [value(source, seed) for seed in seeds]

    async def one(number, array):
        await asyncio.sleep(number * gap_s)
        return await runtime.infer(source, array)

    return await asyncio.gather(*(one(number, array) for number, array in enumerate(values)))


@pytest.mark.quick(2)
@pytest.mark.parametrize("workers", (1, 2))
@pytest.mark.parametrize("source", (RESIDUAL, ATTENTION))
def test_requests_join_in_the_middle_of_the_network_and_get_their_own_outputs(source, workers):
    executions, nodes, total = [], len(made(source)[1].nodes), workers + 4  # half of a full batch: all may join

    async def body(runtime, pool):
        pids = [worker.pid for worker in pool.workers]
        # The workers stand still until every request has come: the first ones are then at their first node.
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            calls = []
            for seed in range(workers):  # one for each worker
                calls.append(asyncio.create_task(runtime.infer(source, value(source, seed))))
                async with asyncio.timeout(10):
                    while runtime.statistics().running.get(source, 0) <= seed:
                        await asyncio.sleep(0.001)
            calls += [asyncio.create_task(runtime.infer(source, value(source, seed))) for seed in range(workers, total)]
            async with asyncio.timeout(10):
                while runtime.ledger.in_flight < total:
                    await asyncio.sleep(0.001)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        for seed, inference in enumerate(await asyncio.gather(*calls)):
            np.testing.assert_allclose(inference.output, alone(source, value(source, seed)), atol=1e-5, rtol=1e-4)

    serve(
        lazy(source, workers=workers),
        split_tasks(source, slots=256),
        body,
        workers=workers,
        on_execution=executions.append,
    )
    assert any(each.task.stop < nodes for each in executions)
    joined = [each.task for each in executions if each.task.start > 0 and each.task.reason == "merge"]
    assert joined and max(task.batch_size for task in joined) > 1


@pytest.mark.parametrize("policy", ("graph", "serial"))
def test_whole_graph_policies_run_the_same_networks_without_interruption(policy):
    graph = made(RESIDUAL)[1]
    executions = []

    async def body(runtime, _):
        done = await staggered(runtime, RESIDUAL, range(20))
        for seed, inference in enumerate(done):
            np.testing.assert_allclose(inference.output, alone(RESIDUAL, value(RESIDUAL, seed)), atol=1e-5, rtol=1e-4)

    chosen = GraphBatching([graph], 0.002, 8) if policy == "graph" else SerialBatching([graph])
    serve(chosen, split_tasks(RESIDUAL), body, on_execution=executions.append)
    assert {(e.task.start, e.task.stop) for e in executions} == {(0, len(graph.nodes))}


def test_two_models_share_a_worker():
    async def body(runtime, _):
        left, right = await asyncio.gather(
            staggered(runtime, RESIDUAL, range(40)), staggered(runtime, ATTENTION, range(40))
        )
        for source, done in ((RESIDUAL, left), (ATTENTION, right)):
            for seed, inference in enumerate(done):
                expected = alone(source, value(source, seed))
                np.testing.assert_allclose(inference.output, expected, atol=1e-5, rtol=1e-4)

    serve(lazy(RESIDUAL, ATTENTION), split_tasks(RESIDUAL, ATTENTION, slots=128), body)


def test_a_network_that_is_not_split_is_one_node():
    async def body(runtime, _):
        for seed, inference in enumerate(await staggered(runtime, RESIDUAL, range(12))):
            np.testing.assert_allclose(inference.output, alone(RESIDUAL, value(RESIDUAL, seed)), atol=1e-5, rtol=1e-4)

    serve(lazy(RESIDUAL, whole=True), split_tasks(RESIDUAL, whole=True), body)


def test_a_request_that_raises_in_the_middle_fails_alone():
    async def body(runtime, _):
        good = asyncio.create_task(staggered(runtime, KILLER, range(40)))
        await asyncio.sleep(0.005)
        with pytest.raises(ModelError, match="unlucky number"):
            await runtime.infer(KILLER, value(KILLER, 1, first=1e35))
        for seed, inference in enumerate(await good):
            np.testing.assert_allclose(inference.output, alone(KILLER, value(KILLER, seed)), atol=1e-5, rtol=1e-4)
        assert balanced(runtime)

    serve(lazy(KILLER), split_tasks(KILLER), body)


def test_a_request_that_kills_in_the_middle_takes_nobody_along():
    async def body(runtime, _):
        good = asyncio.create_task(staggered(runtime, KILLER, range(40)))
        await asyncio.sleep(0.005)
        with pytest.raises(WorkerLost):
            await runtime.infer(KILLER, value(KILLER, 1, first=1e25))
        assert len(await good) == 40
        assert runtime.statistics().workers_lost == 2 and balanced(runtime)

    serve(lazy(KILLER, workers=2), split_tasks(KILLER), body, workers=2)


def test_a_worker_killed_in_the_middle_costs_nobody_an_answer():
    async def body(runtime, pool):
        calls = asyncio.create_task(staggered(runtime, RESIDUAL, range(200)))
        for _ in range(2):
            await asyncio.sleep(0.02)
            os.kill(killed := pool.workers[0].pid, signal.SIGKILL)
            async with asyncio.timeout(60):  # its death is noticed a little later
                while runtime.statistics().workers_up < 1 or pool.workers[0].pid in (None, killed):
                    await asyncio.sleep(0.01)
        for seed, inference in enumerate(await calls):
            np.testing.assert_allclose(inference.output, alone(RESIDUAL, value(RESIDUAL, seed)), atol=1e-5, rtol=1e-4)
        assert balanced(runtime)

    serve(lazy(RESIDUAL), split_tasks(RESIDUAL, slots=256), body, attempts=4)


@pytest.mark.slow
def test_the_memory_of_a_worker_does_not_grow_with_the_requests():
    def resident(pid):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()

    async def body(runtime, pool):
        array = value(RESIDUAL, 1)

        async def caller(count):
            for _ in range(count):
                await runtime.infer(RESIDUAL, array)

        await asyncio.gather(*(caller(100) for _ in range(20)))
        before = resident(pool.workers[0].pid), resident(os.getpid())
        await asyncio.gather(*(caller(5000) for _ in range(20)))
        after = resident(pool.workers[0].pid), resident(os.getpid())
        assert runtime.ledger.finished == 102_000
        for early, late in zip(before, after, strict=True):
            assert late < early + (24 << 20), (before, after)

    serve(lazy(RESIDUAL), split_tasks(RESIDUAL), body)
