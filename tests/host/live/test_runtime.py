"""The live runtime on real worker processes: right outputs, and each way to fail once. What the runtime does at which
instant is in test_in_virtual_time.py."""

import asyncio
import os
import signal

import numpy as np
import pytest
import torch
from serving import serve
from small_nets import NET, OTHER, graphs, models, small, tasks, tensor  # noqa: F401 - a fixture

from headrace.batching import (
    BadInput,
    GraphBatching,
    SerialBatching,
    UsageError,
    WorkConservingBatching,
)
from headrace.host.live.results import RuntimeClosed
from headrace.host.live.runtime import Runtime
from headrace.host.live.tasks.whole import WholeTasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import WholeModel
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import ModelError, processes

pytestmark = pytest.mark.usefixtures("small")


def graph(window_s=0.02, max_batch=4):
    return GraphBatching(graphs(), window_s, max_batch)


async def until(condition, timeout_s=20.0):
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def test_every_request_gets_its_own_output_whatever_batch_it_ran_in():
    inputs = [tensor(seed=seed) for seed in range(12)]
    served = tasks()

    async def body(runtime, _):
        done = await asyncio.gather(*(runtime.infer(NET, value) for value in inputs))
        module = load_model(NET).module
        with torch.inference_mode():
            for value, inference in zip(inputs, done, strict=True):
                np.testing.assert_allclose(inference.output, module(torch.from_numpy(value)[None])[0], atol=1e-6)
        times = [inference.served for inference in done]
        assert {t.batch for t in times} == {4}
        assert all(0 <= t.arrival <= t.queued <= t.started <= t.finished for t in times)
        assert (runtime.ledger.finished, runtime.ledger.submitted) == (12, 12)
        assert served.arena.free(NET) == 16

    serve(graph(), served, body, workers=2)


def test_an_output_is_the_callers_own_though_its_slot_is_used_again():
    async def body(runtime, _):
        first = await runtime.infer(NET, tensor(seed=1))
        kept = first.output.copy()
        for seed in range(2, 6):  # one slot: each takes the place of the one before
            await runtime.infer(NET, tensor(seed=seed))
        np.testing.assert_array_equal(first.output, kept)

    serve(graph(0.0), tasks(slots=1), body)


def test_a_readers_result_is_the_callers_and_so_is_its_error():
    served = tasks()

    def refuses(_):
        raise BadInput("there is no room for the outputs")

    async def body(runtime, _):
        whole = (await runtime.infer(NET, tensor())).output
        done = await runtime.infer(NET, tensor(), read=lambda outputs: outputs["output"].sum())
        assert done.outputs == pytest.approx(whole.sum(), rel=1e-5)
        with pytest.raises(BadInput, match="no room"):
            await runtime.infer(NET, tensor(), read=refuses)
        assert (await runtime.infer(NET, tensor())).output.tolist() == whole.tolist()
        assert runtime.ledger.submitted == runtime.ledger.finished == 4
        assert served.arena.free(NET) == 16

    serve(graph(0.0), served, body)


def test_two_models_are_served_at_once_each_with_its_own_tensors():
    async def body(runtime, _):
        pairs = [np.array([n, 2 * n], np.float32) for n in range(8, 16)]
        done = await asyncio.gather(
            *(runtime.infer(NET, tensor(seed=n)) for n in range(8)), *(runtime.infer(OTHER, pair) for pair in pairs)
        )
        assert [inference.output.shape for inference in done[:8]] == [(5,)] * 8
        for pair, inference in zip(pairs, done[8:], strict=True):
            np.testing.assert_array_equal(inference.output, [*pair, pair.sum()])
        with pytest.raises(BadInput, match=r"float32\(2,\)"):
            await runtime.infer(OTHER, tensor())

    sources = (NET, OTHER)
    serve(GraphBatching(graphs(sources), 0.01, 4), tasks(sources=sources), body, workers=2)


def test_requests_of_a_killed_worker_run_again_and_the_worker_comes_back():
    async def body(runtime, pool):
        requests = [asyncio.create_task(runtime.infer(NET, tensor(1000.7))) for _ in range(4)]
        await asyncio.sleep(0.3)
        os.kill(pool.workers[0].pid, signal.SIGKILL)
        done = await asyncio.gather(*requests)
        assert runtime.statistics().workers_lost == 1 and len(done) == 4
        await until(lambda: runtime.statistics().workers_up == 2)
        pair = await asyncio.gather(*(runtime.infer(NET, tensor(1000.2)) for _ in range(2)))
        assert {inference.execution.worker for inference in pair} == {0, 1}

    serve(SerialBatching(graphs()), tasks(), body, workers=2)


def test_a_request_that_kills_fails_with_its_second_kill_and_takes_nobody_along():
    async def body(runtime, _):
        good = [asyncio.create_task(runtime.infer(NET, tensor(seed=n))) for n in range(5)]
        bad = asyncio.create_task(runtime.infer(NET, tensor(13)))
        good += [asyncio.create_task(runtime.infer(NET, tensor(seed=n))) for n in range(5, 8)]
        assert len(await asyncio.gather(*good)) == 8
        with pytest.raises(WorkerLost, match="died"):
            await bad
        assert (runtime.ledger.finished, runtime.ledger.failed, runtime.statistics().workers_lost) == (8, 1, 2)

    serve(WorkConservingBatching(graphs(), 8), tasks(), body)


def test_a_request_that_raises_takes_nobody_along():
    async def body(runtime, _):
        calls = [runtime.infer(NET, tensor(666 if n in (3, 11) else 0, n)) for n in range(16)]
        done = await asyncio.gather(*calls, return_exceptions=True)
        for n, one in enumerate(done):
            if n in (3, 11):
                assert isinstance(one, ModelError) and "unlucky number" in str(one)
            else:
                assert one.output.shape == (5,)
        assert (runtime.ledger.finished, runtime.ledger.failed, runtime.statistics().workers_lost) == (14, 2, 0)

    serve(WorkConservingBatching(graphs(), 8), tasks(), body)


def test_a_stopped_worker_is_killed_and_started_again():
    async def body(runtime, pool):
        os.kill(pool.workers[0].pid, signal.SIGSTOP)
        assert (await runtime.infer(NET, tensor())).output.shape == (5,)
        assert runtime.statistics().workers_lost == 1

    serve(graph(), tasks(), body, task_timeout_s=1.0)


def test_a_pool_serves_one_runtime_after_the_other_even_if_the_first_left_a_task_at_work():
    served = tasks(slots=4)

    async def run():
        async with WorkerPool(processes(served.program(), worker_devices(1))) as pool:
            async with Runtime(graph(0.0), pool, served) as first:
                call = asyncio.create_task(first.infer(NET, tensor(1020.0)))
                await asyncio.sleep(0.2)
                with pytest.raises(UsageError, match="another runtime"):
                    async with Runtime(graph(), pool, served):
                        pass
            with pytest.raises(RuntimeClosed):
                await call
            async with Runtime(graph(0.0), pool, served) as second:
                assert (await second.infer(NET, tensor())).output.shape == (5,)
                assert served.arena.free(NET) == 4

    asyncio.run(run())


def test_starts_and_stops_leave_nothing_behind():
    served = tasks()

    async def run():
        async with WorkerPool(processes(served.program(), worker_devices(1))) as pool:
            before = len(os.listdir("/proc/self/fd"))
            for n in range(6):
                async with Runtime(graph(0.001), pool, served) as runtime:
                    await asyncio.gather(*(runtime.infer(NET, tensor(seed=n)) for _ in range(3)))
            assert len(os.listdir("/proc/self/fd")) <= before and len(asyncio.all_tasks()) <= 2

    asyncio.run(run())


VARIABLE = """
import torch

class Rows(torch.nn.Module):
    def forward(self, rows, scale):
        return {"sums": rows.sum(2) * scale[:, None], "mean": rows.mean((1, 2))}

def net():
    return Rows()
"""


def test_several_inputs_and_outputs_and_one_variable_dimension(tmp_path):
    (tmp_path / "rowsnet.py").write_text(VARIABLE)
    inputs = (TensorSpec("rows", "float32", (-1, 3), 10), TensorSpec("scale", "float32", ()))
    outputs = (TensorSpec("sums", "float32", (-1,), 10), TensorSpec("mean", "float32", ()))
    model = WholeModel("rows", "rowsnet:net", inputs, outputs, 4, input_shape="rows=1..10x3,scale=scalar")
    served = WholeTasks([model], 8)

    async def body(runtime, _):
        values = [np.arange(3 * length, dtype=np.float32).reshape(length, 3) for length in (2, 10, 5)]
        done = await asyncio.gather(
            *(runtime.infer("rows", {"rows": rows, "scale": np.float32(n)}) for n, rows in enumerate(values))
        )
        for n, (rows, inference) in enumerate(zip(values, done, strict=True)):
            sums = inference.outputs["sums"]
            assert sums.shape == (10,)  # padded to the longest of the batch
            np.testing.assert_allclose(sums[: len(rows)], rows.sum(1) * n)
            assert not sums[len(rows) :].any()
            np.testing.assert_allclose(inference.outputs["mean"], rows.sum() / 30, rtol=1e-6)
        alone = await runtime.infer("rows", {"rows": values[0], "scale": np.float32(1)})
        assert alone.outputs["sums"].shape == (2,)
        with pytest.raises(BadInput, match="at most 10"):
            await runtime.infer("rows", {"rows": np.zeros((11, 3), np.float32), "scale": np.float32(1)})
        with pytest.raises(BadInput, match="give a mapping with rows, scale"):
            await runtime.infer("rows", values[0])

    serve(GraphBatching(graphs(["rows"]), 0.01, 3), served, body)


def test_batches_that_no_message_holds_are_refused_at_start():
    (model,) = models(max_batch=20_000)
    with pytest.raises(UsageError, match=r"batches of 20000; give 1 to \d+"):
        WholeTasks([model], 4)
