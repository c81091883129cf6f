"""The live runtime on real worker processes: right outputs, accounting, and each way to fail."""

import asyncio
import logging
import math
import os
import signal
import time

import numpy as np
import pytest
import torch
from serving import balanced, serve
from small_nets import NET, OTHER, graphs, models, small, tasks, tensor  # noqa: F401 - a fixture

from headrace.batching import (
    BadInput,
    EarliestDeadline,
    GraphBatching,
    Profile,
    ProfilePoint,
    Serial,
    UnknownModel,
    UsageError,
    WorkConserving,
)
from headrace.host.live import runtime as runtime_module
from headrace.host.live.runtime import NoWorker, Overloaded, Runtime, RuntimeClosed, TooLate
from headrace.host.live.whole import WholeTasks
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.models import load_model
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import ModelError, processes
from headrace.host.workers.program import WholeModel

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


def test_a_lone_request_starts_when_its_window_ends_and_says_so():
    executions = []

    async def body(runtime, _):
        served = (await runtime.infer(NET, tensor())).served
        assert 0.1 <= served.started - served.queued < 0.2
        (execution,) = executions
        assert execution.task.reason == "window"
        assert runtime.statistics().reasons == {"window": 1}

    serve(graph(window_s=0.1), tasks(), body, on_execution=executions.append)


def test_what_happens_in_one_turn_is_told_before_the_policy_is_asked():
    """Eight requests at one instant make one batch, as in the simulator; asked at each, they would make two."""

    async def body(runtime, _):
        done = await asyncio.gather(*(runtime.infer(NET, tensor(seed=n)) for n in range(8)))
        assert {inference.served.batch for inference in done} == {8}
        assert runtime.statistics().tasks == 1

    serve(WorkConserving(graphs(), 8), tasks(), body)


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

    serve(Serial(graphs()), tasks(), body, workers=2)


def test_both_workers_killed_at_once_cost_nobody_an_answer():
    async def body(runtime, pool):
        requests = [asyncio.create_task(runtime.infer(NET, tensor(1000.5, n))) for n in range(8)]
        await asyncio.sleep(0.3)
        for worker in pool.workers:
            os.kill(worker.pid, signal.SIGKILL)
        assert len(await asyncio.gather(*requests)) == 8
        assert runtime.statistics().workers_lost == 2

    serve(Serial(graphs()), tasks(), body, workers=2)


def test_a_request_that_kills_fails_with_its_second_kill_and_takes_nobody_along():
    async def body(runtime, _):
        good = [asyncio.create_task(runtime.infer(NET, tensor(seed=n))) for n in range(5)]
        bad = asyncio.create_task(runtime.infer(NET, tensor(13)))
        good += [asyncio.create_task(runtime.infer(NET, tensor(seed=n))) for n in range(5, 8)]
        assert len(await asyncio.gather(*good)) == 8
        with pytest.raises(WorkerLost, match="died"):
            await bad
        assert (runtime.ledger.finished, runtime.ledger.failed, runtime.statistics().workers_lost) == (8, 1, 2)

    serve(WorkConserving(graphs(), 8), tasks(), body)


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

    serve(WorkConserving(graphs(), 8), tasks(), body)


def test_suspects_do_not_hold_up_the_others():
    """While sixteen suspects are looked for one by one, newcomers take turns with them."""

    async def body(runtime, _):
        slow = [asyncio.create_task(runtime.infer(NET, tensor(1000.1, n))) for n in range(7)]
        bad = asyncio.create_task(runtime.infer(NET, tensor(13)))
        await until(lambda: runtime.statistics().workers_lost == 1)
        newcomer = await runtime.infer(NET, tensor())
        assert sum(task.done() for task in slow) <= 2
        await asyncio.gather(*slow)
        with pytest.raises(WorkerLost):
            await bad
        assert newcomer.output.shape == (5,)

    serve(WorkConserving(graphs(), 8), tasks(), body)


def test_a_hanging_request_fails_after_its_attempts_and_the_others_finish():
    async def body(runtime, _):
        poison = asyncio.create_task(runtime.infer(NET, tensor(1050.0)))  # hangs: each attempt ends in a time-out
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(runtime.infer(NET, tensor(seed=n))) for n in range(3)]
        with pytest.raises(WorkerLost, match=r"within 1\.0 s"):
            await poison
        await asyncio.gather(*others)
        assert (runtime.ledger.finished, runtime.ledger.failed, runtime.statistics().workers_lost) == (3, 1, 2)

    serve(Serial(graphs()), tasks(), body, task_timeout_s=1.0, attempts=2)


def test_a_stopped_worker_is_killed_and_started_again():
    async def body(runtime, pool):
        os.kill(pool.workers[0].pid, signal.SIGSTOP)
        assert (await runtime.infer(NET, tensor())).output.shape == (5,)
        assert runtime.statistics().workers_lost == 1

    serve(graph(), tasks(), body, task_timeout_s=1.0)


def test_twelve_kills_in_a_row_lose_no_request():
    async def body(runtime, pool):
        calls = [asyncio.create_task(runtime.infer(NET, tensor(1000.02, n))) for n in range(200)]
        for _ in range(12):
            await until(lambda: any(worker.pid for worker in pool.workers))
            os.kill(next(worker.pid for worker in pool.workers if worker.pid), signal.SIGKILL)
            await asyncio.sleep(0.1)
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, WorkerLost) or one.output.shape == (5,) for one in done)
        await until(lambda: runtime.statistics().workers_up == 2)
        await runtime.infer(NET, tensor())
        assert balanced(runtime) and runtime.ledger.submitted == 201

    serve(WorkConserving(graphs(), 4), tasks(slots=256), body, workers=2)


def test_without_any_worker_requests_are_answered_in_bounded_time_and_served_when_one_is_back(monkeypatch):
    monkeypatch.setattr(runtime_module, "LONGEST_PAUSE_S", 0.2)

    async def body(runtime, pool):
        broken = asyncio.create_task(runtime.infer(NET, tensor(1000.5)))
        await asyncio.sleep(0.2)
        os.rename("smallnet.py", "gone.py")
        os.kill(pool.workers[0].pid, signal.SIGKILL)
        waiting = asyncio.create_task(runtime.infer(NET, tensor()))
        started = time.monotonic()
        for call in (broken, waiting):
            with pytest.raises(NoWorker, match="smallnet"):  # and why it does not start
                await call
        assert time.monotonic() - started < 6
        with pytest.raises(NoWorker):
            await runtime.infer(NET, tensor())
        assert time.monotonic() - started < 6.5
        os.rename("gone.py", "smallnet.py")
        await until(lambda: runtime.statistics().workers_up == 1)
        await runtime.infer(NET, tensor())
        assert balanced(runtime)

    serve(graph(), tasks(), body, outage_s=4.0)


def test_more_requests_than_slots_are_shed_with_a_clear_error():
    async def body(runtime, _):
        done = await asyncio.gather(*(runtime.infer(NET, tensor()) for _ in range(6)), return_exceptions=True)
        assert sum(isinstance(one, Overloaded) for one in done) == 2
        assert (runtime.ledger.finished, runtime.ledger.shed) == (4, 2)

    serve(graph(), tasks(slots=4), body)


def test_ten_times_the_load_that_can_be_served_is_answered_or_shed():
    async def body(runtime, _):
        calls = []
        for n in range(400):  # 2000/s; a worker serves 4 in 20 ms, 200/s
            calls.append(asyncio.create_task(runtime.infer(NET, tensor(1000.005, n))))
            await asyncio.sleep(0.0005)
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, Overloaded) or one.output.shape == (5,) for one in done)
        assert runtime.ledger.shed > 100 and runtime.ledger.finished >= 16
        assert balanced(runtime)

    serve(graph(0.001), tasks(slots=16), body)


def test_a_bad_input_is_refused_and_costs_nothing():
    served = tasks()

    async def body(runtime, _):
        with pytest.raises(UnknownModel):
            await runtime.infer("other", tensor())
        for value, options, text in [
            (np.zeros((3, 10, 10), np.float32), {}, r"float32\(3, 10, 10\)"),
            (tensor().astype(np.float64), {}, "float64"),
            ({"y": tensor()}, {}, "has no input 'y'"),
            ({}, {}, "no input"),
            (tensor(), {"arrival": math.nan}, "arrival is nan"),
            (tensor(), {"deadline": math.nan}, "deadline nan"),
        ]:
            with pytest.raises(BadInput, match=text):
                await runtime.infer(NET, value, **options)
        assert runtime.ledger.submitted == 0 and served.arena.free(NET) == 16
        await runtime.infer(NET, tensor())

    serve(graph(), served, body)


def test_a_caller_that_gives_up_before_its_request_began_takes_it_out_again():
    served = tasks(slots=2)

    async def body(runtime, _):
        running = asyncio.create_task(runtime.infer(NET, tensor(1000.3)))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(runtime.infer(NET, tensor()))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert served.arena.free(NET) == 1 and runtime.ledger.cancelled == 1
        await running
        assert runtime.statistics().tasks == 1  # it never ran
        assert balanced(runtime)

    serve(Serial(graphs()), served, body)


def test_a_caller_that_gives_up_later_leaves_the_accounts_in_order():
    async def body(runtime, _):
        caller = asyncio.create_task(runtime.infer(NET, tensor(1000.3)))
        await asyncio.sleep(0.1)
        caller.cancel()
        await runtime.infer(NET, tensor())
        assert (runtime.ledger.finished, runtime.ledger.cancelled) == (2, 0)

    serve(graph(0.0), tasks(), body)


def test_callers_that_give_up_at_any_time_lose_nothing():
    rng = np.random.default_rng(3)

    async def body(runtime, _):
        calls = []
        for n in range(300):
            calls.append(asyncio.create_task(runtime.infer(NET, tensor(1000.005, n))))  # most still wait
            await asyncio.sleep(0)
            if n % 3 == 0:
                calls[int(rng.integers(len(calls)))].cancel()
            if n % 20 == 0:
                await asyncio.sleep(0.01)
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(one, asyncio.CancelledError) for one in done) > 50
        await until(lambda: runtime.ledger.in_flight == 0)
        assert balanced(runtime) and runtime.ledger.cancelled > 0

    serve(graph(0.002), tasks(slots=400), body, workers=2)


def test_what_has_not_begun_by_its_deadline_is_dropped_only_if_asked_for():
    for drop in (True, False):

        async def body(runtime, _, drop=drop):
            running = asyncio.create_task(runtime.infer(NET, tensor(1000.4)))
            await asyncio.sleep(0.1)
            started = time.monotonic()
            late = asyncio.create_task(runtime.infer(NET, tensor(), deadline=runtime.now() + 0.1))
            if drop:
                with pytest.raises(TooLate, match="by its deadline"):
                    await late
                assert time.monotonic() - started < 0.2  # at its deadline, not when a worker is idle
                assert runtime.ledger.dropped == 1 and not running.done()
            else:
                await late
            await running
            assert balanced(runtime)

        serve(Serial(graphs()), tasks(), body, drop_late=drop)


def test_what_a_policy_knows_to_be_hopeless_is_dropped_before_its_deadline():
    points = (ProfilePoint(1, 0.2, 5.0), ProfilePoint(2, 0.2, 10.0))
    times = {model: Profile(model, 1, points).times() for model in (NET, OTHER)}

    async def body(runtime, _):
        running = asyncio.create_task(runtime.infer(NET, tensor(1000.4)))
        await asyncio.sleep(0.1)
        started = time.monotonic()
        with pytest.raises(TooLate, match=r"by its deadline, in .* and takes longer than that"):
            await runtime.infer(NET, tensor(), deadline=runtime.now() + 0.3)  # and 0.2 are needed
        assert 0.09 < time.monotonic() - started < 0.25
        await running
        assert balanced(runtime) and runtime.ledger.dropped == 1

    serve(EarliestDeadline(times, 1), tasks(), body, drop_late=True)


def test_closing_answers_what_is_in_flight_at_once_and_ends_in_bounded_time():
    async def body(runtime, _):
        waiting = asyncio.create_task(runtime.infer(NET, tensor(1030.0)))
        await asyncio.sleep(0.2)
        async with asyncio.timeout(8):
            await runtime.close()
        with pytest.raises(RuntimeClosed):
            await waiting
        with pytest.raises(RuntimeClosed):
            await runtime.infer(NET, tensor())

    serve(graph(), tasks(), body)


class Watched:
    """A policy whose `next_task` is watched; compiled classes cannot be inherited from."""

    def __init__(self, policy, watch):
        self._policy, self._watch = policy, watch

    def __getattr__(self, name):
        return getattr(self._policy, name)

    def next_task(self, worker, now):
        self._watch(now)
        return self._policy.next_task(worker, now)


def test_a_closed_runtime_asks_its_policy_nothing_more():
    asked = []

    async def body(runtime, _):
        calls = [asyncio.create_task(runtime.infer(NET, tensor(1000.1, n))) for n in range(3)]
        await asyncio.sleep(0.05)
        await runtime.close()
        before = len(asked)
        await asyncio.sleep(0.3)
        assert len(asked) == before
        assert all(isinstance(call.exception(), RuntimeClosed) for call in calls)

    serve(Watched(Serial(graphs()), asked.append), tasks(), body)


def test_an_error_of_the_policy_ends_all_requests_and_says_so(caplog):
    def fail(now):
        if now > 0.2:
            raise KeyError("no such queue")

    async def body(runtime, _):
        await asyncio.sleep(0.3)
        calls = [asyncio.create_task(runtime.infer(NET, tensor(seed=n))) for n in range(3)]
        for call in calls:
            with pytest.raises(RuntimeClosed, match="no such queue"):
                await asyncio.wait_for(call, 2)
        with pytest.raises(RuntimeClosed, match="no such queue"):
            await runtime.infer(NET, tensor())

    with caplog.at_level(logging.CRITICAL, "headrace"):
        serve(Watched(Serial(graphs()), fail), tasks(), body)


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


def test_twenty_starts_and_stops_leave_nothing_behind():
    served = tasks()

    async def run():
        async with WorkerPool(processes(served.program(), worker_devices(1))) as pool:
            before = len(os.listdir("/proc/self/fd"))
            for n in range(20):
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
