"""A worker process has the files of clients that its tasks use, and no others."""

import asyncio
import contextlib
import os
from pathlib import Path

import numpy as np
import pytest
from small_nets import NET, small  # noqa: F401 - a fixture

from headrace.host.memory.files import FilePlace, SharedFile
from headrace.host.memory.slots import DONE, SlotArena
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.messages import MAX_FILES, write_whole
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.program import WholeModel, whole_program
from headrace.host.workers.pool import WorkerPool
from headrace.host.workers.process import processes

X, Y = 0, 1
BYTES = 4 * 3 * 4 * 4
FILE_BYTES = 4096


@pytest.fixture
def files():
    """Provide `files(count)`, which makes files of one page each."""
    made = []

    def make(count):
        for _ in range(count):
            descriptor = os.memfd_create("of-a-client")
            os.ftruncate(descriptor, FILE_BYTES)
            made.append(SharedFile(descriptor, FILE_BYTES))
        return made[-count:]

    yield make
    for file in made:
        if file.is_open:
            file.close()


def with_worker(body, slots):
    async def run():
        loaded = load_model(NET)
        arena = SlotArena({NET: (loaded.inputs, loaded.outputs)}, slots)
        model = WholeModel(NET, NET, loaded.inputs, loaded.outputs, slots)
        async with WorkerPool(processes(whole_program((model,), arena), worker_devices(1))) as pool:
            return await body(pool.workers[0], arena.views[NET])

    return asyncio.run(run())


async def answer(worker):
    """Return the worker's next message."""
    for _ in range(3000):
        if (found := worker.receive()) is not None:
            return found
        await asyncio.sleep(0.01)
    raise TimeoutError


def held(worker):
    """Return how many files of clients the worker has open, and how many it has mapped."""
    process = Path(f"/proc/{worker.pid}")
    links = []
    for each in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(each))
    return sum("of-a-client" in link for link in links), (process / "maps").read_text().count("of-a-client")


async def holds(worker, count):
    for _ in range(1000):
        if held(worker) == (count, count):
            return True
        await asyncio.sleep(0.01)
    return held(worker)


def place(views, slot, file, value):
    os.pwrite(file.descriptor, np.full(BYTES // 4, value, np.float32), 0)
    views.places.put(slot, X, FilePlace(file, 0))
    views.places.put(slot, Y, FilePlace(file, BYTES))


@pytest.mark.parametrize("count", [1, MAX_FILES + 50])
def test_the_files_of_a_batch_pass_and_pass_once(small, files, count):  # noqa: F811
    async def body(worker, views):
        made = files(count)
        for turn in range(2):
            for slot, file in enumerate(made):
                place(views, slot, file, -slot - turn)
            worker.send(turn, write_whole(0, list(range(count))), made)
            await answer(worker)
            assert held(worker) == (count, count)
            assert all(views.places.state(slot, tensor) == DONE for slot in range(count) for tensor in (X, Y))
            module = load_model(NET).module
            outputs = [np.frombuffer(os.pread(file.descriptor, 20, BYTES), np.float32) for file in made]
            weights, bias = (each.detach().numpy() for each in (module.head.weight, module.head.bias))
            expected = -np.arange(turn, count + turn)[:, None] * weights.sum(1) + bias
            np.testing.assert_allclose(np.stack(outputs), expected, rtol=1e-4, atol=1e-5)
        for file in made:
            file.close()
        assert await holds(worker, 0) is True

    with_worker(body, count)


def test_files_that_are_closed_while_a_worker_is_busy_do_not_fill_its_socket(small, files):  # noqa: F811
    count = 1000

    async def body(worker, views):
        made = files(count)
        for slot, file in enumerate(made):
            place(views, slot, file, 0)
        worker.send(0, write_whole(0, list(range(count))), made)
        await answer(worker)
        views.places.clear(0, X)
        views.inputs[0].at(0)[...] = 1000.3
        worker.send(1, write_whole(0, [0]))
        for file in made:
            file.close()
            await asyncio.sleep(0)  # the worker is told of each alone
        worker.send(2, write_whole(0, [1]))
        await answer(worker)
        await answer(worker)
        assert await holds(worker, 0) is True

    with_worker(body, count)


def test_a_worker_that_starts_again_gets_the_files_again(small, files):  # noqa: F811
    async def body(worker, views):
        (file,) = files(1)
        for _ in range(2):
            place(views, 0, file, 1)
            worker.send(0, write_whole(0, [0]), [file])
            await answer(worker)
            assert views.places.state(0, Y) == DONE and held(worker) == (1, 1)
            await worker.stop()
            await worker.start()
        file.close()
        assert held(worker) == (0, 0)

    with_worker(body, 1)


def test_where_no_descriptor_passes_the_task_runs_without(small, files, monkeypatch):  # noqa: F811
    def refused(*_):
        raise OSError("too many references")

    async def body(worker, views):
        (file,) = files(1)
        place(views, 0, file, 1)
        views.inputs[0].at(0)[...] = 13  # of an earlier request: it would kill the worker
        with monkeypatch.context() as patch:
            patch.setattr("socket.send_fds", refused)
            worker.send(0, write_whole(0, [0]), [file])
        await answer(worker)
        assert [views.places.state(0, tensor) for tensor in (X, Y)] == [0, 0] and views.outputs[0].at(0).any()
        worker.send(1, write_whole(0, [0]), [file])
        await answer(worker)
        assert [views.places.state(0, tensor) for tensor in (X, Y)] == [DONE, DONE]

    with_worker(body, 1)
