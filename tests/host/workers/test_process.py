"""Worker processes answer right, and every failure ends in bounded time with a clear error."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import lives
from small_nets import NET, OTHER, SHAPE, small, tensor  # noqa: F401 - a fixture

from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.slots import SlotArena
from headrace.host.workers import process
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.fork_server.client import SHARED
from headrace.host.workers.messages import whole_answer, write_whole
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import WholeModel, whole_program
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import ModelError, WorkerProcess, processes


def with_worker(source: str, body, slots: int = 8):
    async def run():
        loaded = load_model(source)
        arena = SlotArena({source: (loaded.inputs, loaded.outputs)}, slots)
        for tensors in arena.views[source].inputs:
            for slot in range(slots):
                array = tensors.at(slot)
                array[...] = np.random.default_rng(slot).standard_normal(array.shape)
        model = WholeModel(source, source, loaded.inputs, loaded.outputs, slots)
        async with WorkerPool(processes(whole_program((model,), arena), worker_devices(1))) as pool:
            return await body(pool.workers[0], arena.views[source])

    return asyncio.run(run())


def test_outputs_are_those_of_the_network_and_keep_the_order_of_the_batch():
    async def body(worker: WorkerProcess, views):
        times = await worker.run(write_whole(0, [2, 0, 3]), 30)
        assert times.began < times.gathered < times.ended and whole_answer(times.answer) == (0, [])
        module = load_model("mobilenet_v3_small").module
        with torch.inference_mode():
            for slot in (2, 0, 3):
                alone = module(torch.from_numpy(views.inputs[0].at(slot).copy())[None])[0].numpy()
                np.testing.assert_allclose(views.outputs[0].at(slot), alone, rtol=1e-4, atol=1e-5)
        assert not views.outputs[0].at(1).any()

    with_worker("mobilenet_v3_small", body, slots=4)


def test_an_exception_of_the_network_is_answered_and_the_worker_lives_on(small):  # noqa: F811
    async def body(worker: WorkerProcess, views):
        pid = worker.pid
        views.inputs[0].at(0)[0, 0, 0] = 666
        with pytest.raises(ModelError, match="ValueError: unlucky number"):
            await worker.run(write_whole(0, [0]), 10)
        await worker.run(write_whole(0, [1]), 10)
        assert worker.pid == pid

    with_worker(NET, body)


def test_an_output_of_another_shape_than_was_said_is_refused_and_nan_is_counted(small):  # noqa: F811
    async def body(worker: WorkerProcess, views):
        views.inputs[0].at(0)[...] = 7
        with pytest.raises(ModelError, match=r"is float32\(2, 1\); expected float32\(2, 3\)"):
            await worker.run(write_whole(0, [0, 1]), 10)
        assert not views.outputs[0].at(0).any()
        views.inputs[0].at(0)[...] = np.nan
        views.inputs[0].at(2)[...] = np.inf  # a number, if none that anybody wants
        assert whole_answer((await worker.run(write_whole(0, [0, 1, 2]), 10)).answer) == (1, [])

    with_worker(OTHER, body)


@pytest.mark.timed  # it bounds how long something takes
def test_a_killed_worker_is_lost_at_once_and_can_be_started_again(small):  # noqa: F811
    async def body(worker: WorkerProcess, views):
        views.inputs[0].at(0)[0, 0, 0] = 1020
        running = asyncio.create_task(worker.run(write_whole(0, [0]), 60))
        await asyncio.sleep(0.3)
        started = time.monotonic()
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerLost, match="died"):
            await running
        assert time.monotonic() - started < 2
        await worker.start()
        await worker.run(write_whole(0, [1]), 10)

    with_worker(NET, body)


def test_a_hanging_task_ends_the_worker_after_its_timeout(small):  # noqa: F811
    async def body(worker: WorkerProcess, views):
        views.inputs[0].at(0)[0, 0, 0] = 1060
        pid = worker.pid
        with pytest.raises(WorkerLost, match=r"within 0\.5 s"):
            await worker.run(write_whole(0, [0]), 0.5)
        assert not Path(f"/proc/{pid}").exists()

    with_worker(NET, body)


def test_interrupts_are_left_to_the_parent(small):  # noqa: F811
    async def body(worker: WorkerProcess, views):
        os.kill(worker.pid, signal.SIGINT)
        await asyncio.sleep(0.1)
        await worker.run(write_whole(0, [0]), 10)

    with_worker(NET, body)


def test_a_batch_beyond_the_limit_is_an_error_not_a_crash(small):  # noqa: F811
    async def body(worker: WorkerProcess, views):
        with pytest.raises(ModelError, match="takes 1 to 8"):
            await worker.run(write_whole(0, [0] * 9), 10)

    with_worker(NET, body)


def test_a_worker_that_cannot_start_says_why(small):  # noqa: F811
    async def run():
        spec = (TensorSpec("input", "float32", SHAPE),)
        arena = SlotArena({"broken": (spec, spec)}, 1)
        model = WholeModel("broken", "smallnet:broken", spec, spec, 1)
        with pytest.raises(WorkerLost, match=r"died while starting \(loading smallnet:broken\).*no such weights"):
            async with WorkerPool(processes(whole_program((model,), arena), worker_devices(2))):
                pass

    asyncio.run(run())


def test_a_slow_start_is_told_with_what_it_is_at(tmp_path, monkeypatch, caplog):
    (tmp_path / "slownet.py").write_text(
        "import time\n\ndef net():\n    time.sleep(1.5)\n    raise RuntimeError('done')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "SLOW_START_S", 0.7)
    spec = (TensorSpec("input", "float32", SHAPE),)
    arena = SlotArena({"slow": (spec, spec)}, 1)
    program = whole_program((WholeModel("slow", "slownet:net", spec, spec, 1),), arena)
    SHARED.close()  # the server has not imported torch within this time
    with caplog.at_level(logging.WARNING, "headrace"):
        for at in ("importing", "loading slownet:net"):
            with pytest.raises(WorkerLost, match="done"):
                asyncio.run(processes(program, worker_devices(1))[0].start())
            assert f"worker cpu 0 is still starting after 0.7 s: {at}" in caplog.text


def named_memory(pids):
    """Return the files of /dev/shm that processes have mapped. Other tests have files there, too."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return {Path(line.partition("/")[1] + line.partition("/")[2]) for line in lines if " /dev/shm/" in line}


def test_workers_and_their_server_end_when_their_parent_is_killed(small, tmp_path):  # noqa: F811
    script = tmp_path / "parent.py"
    script.write_text(
        """
import asyncio
from headrace.host.memory.layout import TensorSpec
from headrace.host.memory.slots import SlotArena
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.fork_server.client import SHARED
from headrace.host.workers.messages import write_whole
from headrace.host.workers.process import processes
from headrace.host.workers.networks.program import WholeModel, whole_program

async def main():
    inputs, outputs = (TensorSpec("x", "float32", (3, 4, 4)),), (TensorSpec("output", "float32", (5,)),)
    arena = SlotArena({"net": (inputs, outputs)}, 4)
    model = WholeModel("net", "smallnet:net", inputs, outputs, 2)
    async with WorkerPool(processes(whole_program((model,), arena), worker_devices(2))) as pool:
        arena.views["net"].inputs[0].at(0)[...] = 1060  # one is in a run that lasts a minute
        pool.workers[0].send(0, write_whole(0, [0]))
        await asyncio.sleep(0.3)
        print(SHARED.pid, *(worker.pid for worker in pool.workers), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""
    )
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 3 and all(map(lives, pids))
    files = named_memory([parent.pid, *pids])
    parent.kill()
    parent.wait(timeout=10)
    deadline = time.monotonic() + 10
    while any(lives(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(lives(pid) for pid in pids)
    assert not [file for file in files if file.exists()]
