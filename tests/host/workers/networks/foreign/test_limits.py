"""The limits of the process that reads: memory, files, processor time; in the worker too."""

import asyncio
import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headrace.batching import UsageError
from headrace.host.live.machine.children import children
from headrace.host.memory.slots import SlotArena
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.fork_server.client import SHARED
from headrace.host.workers.inspection import parent
from headrace.host.workers.networks.foreign.limits import OPEN_FILES, box, box_of
from headrace.host.workers.networks.foreign.rules import FileRules
from headrace.host.workers.networks.program import WholeModel, whole_program
from headrace.host.workers.process import processes

LIMITS = (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
BATCH = torch.export.Dim("batch", min=1, max=8)


class Large(torch.nn.Module):
    """A network that makes a tensor of `gib` GiB, of which it needs one element."""

    def __init__(self, gib):
        super().__init__()
        self.elements = gib << 28

    def forward(self, x):
        return x + torch.full((self.elements,), 2.0)[:1]


def saved(path, module):
    torch.export.save(torch.export.export(module, (torch.rand(2, 3),), dynamic_shapes=({0: BATCH},)), path)
    return str(path)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("large") / "large.pt2", Large(8))


def test_within_the_box_nothing_is_written_and_few_files_are_open(tmp_path):
    before = [resource.getrlimit(kind) for kind in LIMITS]
    with box("a test", []), open(tmp_path / "written", "wb", buffering=0) as file:
        with pytest.raises(OSError) as refused:
            file.write(b"x")
        assert refused.value.errno == errno.EFBIG
        with pytest.raises(OSError) as refused:
            held = [open(os.devnull) for _ in range(OPEN_FILES)]  # noqa: SIM115
            assert not held
        assert refused.value.errno == errno.EMFILE
    assert [resource.getrlimit(kind) for kind in LIMITS] == before
    (tmp_path / "written").write_bytes(b"x")


def test_memory_is_bounded_by_the_files_and_what_the_rules_say(tmp_path):
    def room(files, rules=FileRules(memory_mib=64)):  # noqa: B008
        with box("a test", files, rules):
            return resource.getrlimit(resource.RLIMIT_DATA)[0] >> 20

    file = tmp_path / "file"
    with file.open("wb") as made:
        made.truncate(100 << 20)
    least = room([])
    assert 390 <= room([file]) - least <= 410
    assert 926 <= room([], FileRules(memory_mib=1000)) - least <= 946
    with box("a test", [], FileRules(memory_mib=64)):
        outer = resource.getrlimit(resource.RLIMIT_DATA)
        assert room([file]) == outer[0] >> 20


def test_what_takes_more_memory_is_an_error_that_names_the_option():
    message = r"a test: reading it takes more than \d+ MiB of memory; .*--read-memory-mib than 64"
    with pytest.raises(UsageError, match=message), box("a test", [], FileRules(memory_mib=64)):
        bytearray(8 << 30)
    with pytest.raises(UsageError, match=message), box("a test", [], FileRules(memory_mib=64)):
        try:
            torch.zeros(1 << 33)
        except RuntimeError as error:
            raise UsageError("it fails") from error
    with pytest.raises(ValueError, match="its own"), box("a test", []):
        raise ValueError("its own")


def test_code_of_ones_own_and_torchvision_have_no_box():
    before = [resource.getrlimit(kind) for kind in LIMITS]
    for source in ("mine:net", "resnet18"):
        with box_of(source, None):
            assert [resource.getrlimit(kind) for kind in LIMITS] == before


def test_a_program_that_needs_more_memory_is_refused_by_the_process_that_reads(large):
    for read in (parent.describe, lambda source: parent.node_model(source, 4)):
        with pytest.raises(UsageError, match=r"large\.pt2: reading it takes more than \d+ MiB of memory"):
            read(large)


def test_a_larger_limit_takes_it(tmp_path):
    source = saved(tmp_path / "one.pt2", Large(1))
    with pytest.raises(UsageError, match="--read-memory-mib than 64"):
        parent.describe(source, rules=FileRules(memory_mib=64))
    assert parent.describe(source, rules=FileRules(memory_mib=2000)).outputs[0].shape == (3,)


def test_a_worker_whose_program_needs_more_memory_does_not_start_and_says_why(large, tmp_path):
    small = saved(tmp_path / "small.pt2", torch.nn.ReLU())
    found = parent.describe(small)
    model = WholeModel("net", large, found.inputs, found.outputs, 1)
    arena = SlotArena({"net": (found.inputs, found.outputs)}, 1)
    try:
        (worker,) = processes(whole_program((model,), arena), worker_devices(1))
        with pytest.raises(WorkerLost) as lost:
            asyncio.run(worker.start())
    finally:
        arena.close()
    text = str(lost.value)
    assert "large.pt2: reading it takes more than" in text and text.endswith("--read-memory-mib than 4096")
    assert "Error" not in text and " | " not in text, "it is one line, and not the end of a traceback"


def test_processor_time_has_a_limit():
    code = (
        "from headrace.host.workers.networks.foreign import limits\n"
        "limits.CPU_S = 1\nlimits.limit_reading_process()\nwhile True: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == -signal.SIGXCPU


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "spins.py").write_text(
        "import os, resource, signal, time\n"
        "def net():\n    os.kill(os.getpid(), signal.SIGXCPU)\n"
        "def limit():\n    raise ValueError(resource.getrlimit(resource.RLIMIT_CPU))\n"
        "def waits():\n    open('waits', 'w').close()\n    time.sleep(600)\n"
    )
    monkeypatch.chdir(tmp_path)


def test_a_process_that_used_up_its_time_is_told(own):
    with pytest.raises(UsageError, match="was not read within 360 s of processor time"):
        parent.describe("spins:net")
    with pytest.raises(UsageError, match=r"ValueError: \(360, 361\)"):
        parent.describe("spins:limit")


def test_work_in_a_thread_that_is_cancelled_ends_the_process_that_reads(own):
    async def cancel():
        task = asyncio.create_task(parent.in_thread(parent.describe, "spins:waits"))
        while not Path("waits").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while children(SHARED.pid):
            await asyncio.sleep(0.01)

    async def bounded():
        await asyncio.wait_for(cancel(), 60)

    asyncio.run(bounded())
