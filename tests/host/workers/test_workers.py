"""Worker processes: right answers, and bounded, clear ends of everything that can go wrong."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headrace.batching import UsageError
from headrace.host.memory.slots import ArenaFull, TensorArena
from headrace.host.workers.models import load_model
from headrace.host.workers.process import ModelError, Worker, WorkerLost, WorkerPool, gpu_devices, worker_devices

TINY = """
import time, torch

class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(3, 5)

    def forward(self, x):
        first = float(x[0, 0, 0, 0])
        if first == 666:
            raise ValueError("unlucky number")
        if first > 1000:
            time.sleep(first - 1000)
        return self.head(x.mean((2, 3)))

def net():
    return Tiny()

def broken():
    raise RuntimeError("no such weights")
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> str:
    """A network of the user's own, quick to load; a first pixel of 666 raises, of 1000 + s sleeps s seconds."""
    (tmp_path / "tinynet.py").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "tinynet", raising=False)
    return "tinynet:net"


def make_arena(slots: int = 8, classes: int = 5) -> TensorArena:
    arena = TensorArena(slots, (3, 224, 224), "float32", (classes,), "float32")
    for slot in range(slots):
        arena.input(slot)[...] = np.random.default_rng(slot).standard_normal((3, 224, 224), np.float32)
    return arena


def with_worker(model: str, body, slots: int = 8, classes: int = 5):
    async def run():
        arena = make_arena(slots, classes)
        async with WorkerPool(model, None, worker_devices(1), arena, max_batch=slots) as pool:
            return await body(pool.workers[0], arena)

    return asyncio.run(run())


def test_outputs_are_those_of_the_network_and_keep_the_order_of_the_batch():
    async def body(worker: Worker, arena: TensorArena):
        times = await worker.run(1, [2, 0, 3], timeout_s=30)
        assert times.execute_s > 0 and times.gather_s > 0
        module = load_model("mobilenet_v3_small").module
        with torch.inference_mode():
            for slot in (2, 0, 3):
                alone = module(torch.from_numpy(arena.input(slot).copy())[None])[0].numpy()
                np.testing.assert_allclose(arena.output(slot), alone, rtol=1e-4, atol=1e-5)
        assert not arena.output(1).any()

    with_worker("mobilenet_v3_small", body, slots=4, classes=1000)


def test_an_exception_of_the_network_is_answered_and_the_worker_lives_on(tiny):
    async def body(worker: Worker, arena: TensorArena):
        pid = worker.pid
        arena.input(0)[0, 0, 0] = 666
        with pytest.raises(ModelError, match="ValueError: unlucky number"):
            await worker.run(1, [0], timeout_s=10)
        await worker.run(2, [1], timeout_s=10)
        assert worker.pid == pid

    with_worker(tiny, body)


def test_a_killed_worker_is_lost_at_once_and_can_be_restarted(tiny):
    async def body(worker: Worker, arena: TensorArena):
        arena.input(0)[0, 0, 0] = 1020
        running = asyncio.create_task(worker.run(1, [0], timeout_s=60))
        await asyncio.sleep(0.3)
        started = time.monotonic()
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerLost, match="died"):
            await running
        assert time.monotonic() - started < 2
        await worker.restart()
        await worker.run(2, [1], timeout_s=10)

    with_worker(tiny, body)


def test_a_hanging_task_ends_the_worker_after_its_timeout(tiny):
    async def body(worker: Worker, arena: TensorArena):
        arena.input(0)[0, 0, 0] = 1060
        pid = worker.pid
        with pytest.raises(WorkerLost, match=r"within 0\.5 s"):
            await worker.run(1, [0], timeout_s=0.5)
        assert not Path(f"/proc/{pid}").exists()

    with_worker(tiny, body)


def test_interrupts_are_left_to_the_parent(tiny):
    async def body(worker: Worker, arena: TensorArena):
        os.kill(worker.pid, signal.SIGINT)
        await asyncio.sleep(0.1)
        await worker.run(1, [0], timeout_s=10)

    with_worker(tiny, body)


def test_a_batch_beyond_the_limit_is_an_error_not_a_crash(tiny):
    async def body(worker: Worker, arena: TensorArena):
        with pytest.raises(ModelError, match="takes 1 to 8"):
            await worker.run(1, [0] * 9, timeout_s=10)

    with_worker(tiny, body)


def test_a_worker_that_cannot_start_says_why(tiny):
    async def run():
        arena = make_arena()
        with pytest.raises(WorkerLost, match=r"died while starting.*no such weights"):
            async with WorkerPool("tinynet:broken", None, worker_devices(2), arena, max_batch=1):
                pass

    asyncio.run(run())


def test_workers_end_when_their_parent_is_killed(tiny, tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        """
import asyncio
from headrace.host.memory.slots import TensorArena
from headrace.host.workers.process import WorkerPool, worker_devices

async def main():
    arena = TensorArena(4, (3, 224, 224), "float32", (5,), "float32")
    async with WorkerPool("tinynet:net", None, worker_devices(2), arena, max_batch=2) as pool:
        print(*(worker.pid for worker in pool.workers), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""
    )
    before = set(os.listdir("/dev/shm"))
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait(timeout=10)
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)
    assert set(os.listdir("/dev/shm")) <= before


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_the_arena_is_bounded_and_slots_do_not_overlap():
    arena = TensorArena(3, (2, 5), "float16", (7,), "float32")
    slots = [arena.acquire() for _ in range(3)]
    with pytest.raises(ArenaFull, match="all 3"):
        arena.acquire()
    for slot in slots:
        arena.input(slot)[...] = slot + 1
        arena.output(slot)[...] = -slot - 1
    for slot in slots:
        assert (arena.input(slot) == slot + 1).all() and (arena.output(slot) == -slot - 1).all()
        assert arena.input(slot).ctypes.data % 4096 == arena.output(slot).ctypes.data % 4096 == 0
    arena.release(slots[0])
    assert arena.acquire() == slots[0]
    arena.close()


def test_cpu_workers_share_the_cores_out(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [device.threads for device in worker_devices(3)] == [2, 2, 2]
    assert len(worker_devices()) == 8 and worker_devices(20)[0].threads == 1


def fake_nvml(gpus: list[list[str | None] | None]) -> SimpleNamespace:
    """nvidia-ml-py as it answers for GPUs with these MIG devices (None: a gap; no list: a GPU without MIG)."""

    class Error(Exception):
        pass

    def mode(gpu):
        if gpus[gpu] is None:
            raise Error
        return bool(gpus[gpu]), 0

    def mig(gpu, index):
        if gpus[gpu][index] is None:
            raise Error
        return gpus[gpu][index]

    return SimpleNamespace(
        NVMLError=Error,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(gpus),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMigMode=mode,
        nvmlDeviceGetMaxMigDeviceCount=lambda gpu: len(gpus[gpu]),
        nvmlDeviceGetMigDeviceHandleByIndex=mig,
        nvmlDeviceGetUUID=lambda handle: handle if isinstance(handle, str) else f"GPU-{handle}",
    )


def test_there_is_one_worker_for_each_mig_device_or_gpu_without_any():
    nvml = fake_nvml([["MIG-a", None, "MIG-b"], None, []])
    devices = worker_devices(nvml=nvml)
    assert [device.name for device in devices] == ["MIG-a", "MIG-b", "GPU-1", "GPU-2"]
    assert all(device.env == {"CUDA_VISIBLE_DEVICES": device.name} and device.device == "cuda" for device in devices)
    with pytest.raises(UsageError, match="has 4 GPU slices"):
        worker_devices(5, nvml=nvml)


def test_without_a_driver_there_are_no_gpu_devices():
    nvml = fake_nvml([])

    def no_driver():
        raise nvml.NVMLError

    nvml.nvmlInit = no_driver
    assert gpu_devices(nvml) == []
