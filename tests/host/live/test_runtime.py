"""The live runtime on real worker processes: right outputs, accounting, and every way a worker can fail."""

import asyncio
import os
import signal

import numpy as np
import pytest
import torch
from test_workers import tiny  # noqa: F401 - a fixture

from headrace.batching import GraphBatching, ModelGraph, Serial, UnknownModel
from headrace.host.live.runtime import Overloaded, Runtime, RuntimeClosed
from headrace.host.memory.slots import TensorArena
from headrace.host.workers.models import load_model
from headrace.host.workers.process import ModelError, WorkerLost, WorkerPool, worker_devices

NET = "tinynet:net"


def serve(policy, body, *, workers=1, slots=16, **settings):
    async def run():
        arena = TensorArena(slots, (3, 224, 224), "float32", (5,), "float32")
        async with (
            WorkerPool(NET, None, worker_devices(workers), arena, max_batch=8) as pool,
            Runtime(policy, pool, arena, **settings) as runtime,
        ):
            result = await body(runtime, pool)
            runtime.ledger.check()
            assert runtime.ledger.in_flight == 0 and arena.free == slots
            return result

    return asyncio.run(run())


def tensor(first: float = 0.0, seed: int = 0) -> np.ndarray:
    value = np.random.default_rng(seed).standard_normal((3, 224, 224), np.float32)
    value[0, 0, 0] = first
    return value


def graph(window_s=0.02, max_batch=4):
    return GraphBatching([ModelGraph.opaque(NET)], window_s, max_batch)


def test_every_request_gets_its_own_output_whatever_batch_it_ran_in(tiny):  # noqa: F811
    inputs = [tensor(seed=seed) for seed in range(12)]

    async def body(runtime, _):
        done = await asyncio.gather(*(runtime.infer(NET, value) for value in inputs))
        module = load_model(NET).module
        with torch.inference_mode():
            for value, inference in zip(inputs, done, strict=True):
                np.testing.assert_allclose(inference.output, module(torch.from_numpy(value)[None])[0], atol=1e-6)
        served = [inference.served for inference in done]
        assert {s.batch for s in served} == {4}
        assert all(0 <= s.arrival <= s.queued <= s.started <= s.finished for s in served)
        assert (runtime.ledger.finished, runtime.ledger.submitted) == (12, 12)

    serve(graph(), body, workers=2)


def test_a_lone_request_starts_when_its_window_ends(tiny):  # noqa: F811
    async def body(runtime, _):
        served = (await runtime.infer(NET, tensor())).served
        assert 0.1 <= served.started - served.queued < 1

    serve(graph(window_s=0.1), body)


def test_requests_of_a_killed_worker_run_again_and_the_worker_comes_back(tiny):  # noqa: F811
    async def body(runtime, pool):
        requests = [asyncio.create_task(runtime.infer(NET, tensor(1000.7))) for _ in range(4)]
        await asyncio.sleep(0.3)
        os.kill(pool.workers[0].pid, signal.SIGKILL)
        done = await asyncio.gather(*requests)
        assert runtime.workers_lost == 1 and len(done) == 4
        for _ in range(200):  # until the lost worker is back and takes its share
            await asyncio.sleep(0.05)
            pair = await asyncio.gather(*(runtime.infer(NET, tensor(1000.2)) for _ in range(2)))
            if {inference.execution.worker for inference in pair} == {0, 1}:
                return
        raise AssertionError("worker 0 never came back")

    serve(Serial([ModelGraph.opaque(NET)]), body, workers=2)


def test_a_request_that_kills_every_worker_fails_after_its_attempts_and_the_others_finish(tiny):  # noqa: F811
    async def body(runtime, pool):
        poison = asyncio.create_task(runtime.infer(NET, tensor(1050.0)))  # hangs: each attempt ends in a time-out
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(runtime.infer(NET, tensor(seed=n))) for n in range(3)]
        with pytest.raises(WorkerLost, match=r"within 1\.0 s"):
            await poison
        await asyncio.gather(*others)
        assert (runtime.ledger.finished, runtime.ledger.failed, runtime.workers_lost) == (3, 1, 2)

    serve(Serial([ModelGraph.opaque(NET)]), body, task_timeout_s=1.0, attempts=2)


def test_an_exception_of_the_network_fails_its_batch_only(tiny):  # noqa: F811
    async def body(runtime, _):
        bad = asyncio.create_task(runtime.infer(NET, tensor(666)))
        await asyncio.sleep(0.1)
        good = asyncio.create_task(runtime.infer(NET, tensor()))
        with pytest.raises(ModelError, match="unlucky"):
            await bad
        await good
        assert (runtime.ledger.finished, runtime.ledger.failed) == (1, 1)

    serve(graph(window_s=0.0), body)


def test_more_requests_than_slots_are_shed_with_a_clear_error(tiny):  # noqa: F811
    async def body(runtime, _):
        done = await asyncio.gather(*(runtime.infer(NET, tensor()) for _ in range(6)), return_exceptions=True)
        assert sum(isinstance(one, Overloaded) for one in done) == 2
        assert (runtime.ledger.finished, runtime.ledger.shed) == (4, 2)

    serve(graph(), body, slots=4)


def test_an_unknown_model_or_a_wrong_tensor_is_refused_and_costs_nothing(tiny):  # noqa: F811
    async def body(runtime, _):
        with pytest.raises(UnknownModel):
            await runtime.infer("other", tensor())
        with pytest.raises(ValueError, match="tensor"):
            await runtime.infer(NET, np.zeros((3, 10, 10), np.float32))
        with pytest.raises(ValueError, match="tensor"):
            await runtime.infer(NET, np.zeros((3, 224, 224), np.float64))
        await runtime.infer(NET, tensor())

    serve(graph(), body)


def test_closing_fails_what_is_in_flight_in_bounded_time(tiny):  # noqa: F811
    async def body(runtime, _):
        waiting = asyncio.create_task(runtime.infer(NET, tensor(1030.0)))
        await asyncio.sleep(0.2)
        async with asyncio.timeout(8):
            await runtime.close()
        with pytest.raises(RuntimeClosed):
            await waiting
        with pytest.raises(RuntimeClosed):
            await runtime.infer(NET, tensor())

    serve(graph(), body)


def test_a_caller_that_gives_up_leaves_the_accounts_in_order(tiny):  # noqa: F811
    async def body(runtime, _):
        caller = asyncio.create_task(runtime.infer(NET, tensor(1000.3)))
        await asyncio.sleep(0.1)
        caller.cancel()
        await runtime.infer(NET, tensor())
        assert runtime.ledger.finished == 2

    serve(Serial([ModelGraph.opaque(NET)]), body)


def test_a_worker_that_was_down_when_the_runtime_began_is_brought_back(tiny):  # noqa: F811
    async def body(runtime, pool):
        await pool.workers[0].stop()
        await runtime.infer(NET, tensor())
        assert runtime.workers_lost == 1 and pool.workers[0].pid is not None

    serve(Serial([ModelGraph.opaque(NET)]), body)
