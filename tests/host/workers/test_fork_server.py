"""The server that forks workers: the resources that a worker gets, and every way in which a worker or the server
ends."""

import asyncio
import errno
import json
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import uvloop
from small_nets import NET, models, small  # noqa: F401 - a fixture

from headrace.host.live.machine.children import children
from headrace.host.memory.slots import SlotArena
from headrace.host.workers.channel import WorkerLost
from headrace.host.workers.devices import WorkerDevice
from headrace.host.workers.fork_server import client
from headrace.host.workers.fork_server.client import ForkServer
from headrace.host.workers.messages import write_whole
from headrace.host.workers.networks.program import whole_program
from headrace.host.workers.process import WorkerProcess

# A worker that tells all about itself.
REPORT = """
import json, os, signal, sys

def main(arguments):
    import torch
    import user_net
    body = {
        "arguments": arguments, "env": dict(os.environ), "directory": os.getcwd(), "net": user_net.NAME,
        "fds": sorted(os.listdir("/proc/self/fd"), key=int), "cuda": torch.cuda.is_initialized(),
        "threads": torch.get_num_threads(), "cores": sorted(os.sched_getaffinity(0)),
        "terminates": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    }
    with open(arguments[0], "w") as file:
        json.dump(body, file)
    print("told", file=sys.stderr)
    sys.exit(3)
"""


@pytest.fixture(scope="module")
def server():
    made = ForkServer()
    yield made
    assert made.close() == 0


@pytest.fixture
def reporting(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "reporting"
    folder.mkdir()
    (folder / "report.py").write_text(REPORT)
    (folder / "user_net.py").write_text("NAME = 'first'\n")
    monkeypatch.chdir(folder)
    return folder


async def report(server: ForkServer, fds=(), **env: str) -> dict:
    process = await server.fork("report", ["told.json"], fds, {**os.environ, **env})
    async with asyncio.timeout(60):
        assert await process.stderr.read() == b"told\n"
        await process.wait()
    assert process.returncode == 3 and not Path(f"/proc/{process.pid}").exists()
    return json.loads(Path("told.json").read_text())


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used. A fork begins with none."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def worker(server: ForkServer, name: str = "cpu 0", first: float = 0.0) -> WorkerProcess:
    """Return a worker of the small network. The input in slot 0 begins with `first`."""
    (model,) = models()
    arena = SlotArena({NET: (model.inputs, model.outputs)}, 8)
    arena.views[NET].inputs[0].at(0)[0, 0, 0] = first
    return WorkerProcess(WorkerDevice(name), whole_program((model,), arena), server)


def test_a_worker_has_the_callers_environment_directory_and_the_file_descriptors_of_its_request(server, reporting):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        told = asyncio.run(report(server, [theirs.fileno()], CUDA_VISIBLE_DEVICES="GPU-7"))
    assert told["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-7" and told["arguments"] == ["told.json"]
    assert told["directory"] == str(reporting) and told["terminates"]
    assert told["fds"] == ["0", "1", "2", "3", "4"]  # the last is the one that lists the folder
    assert told["cuda"] is False and told["threads"] == 1


def test_a_variable_that_the_caller_has_no_more_is_not_in_the_worker(server, reporting, monkeypatch):
    monkeypatch.setenv("HEADRACE_TEST", "1")
    assert asyncio.run(report(server))["env"]["HEADRACE_TEST"] == "1"
    monkeypatch.delenv("HEADRACE_TEST")
    assert "HEADRACE_TEST" not in asyncio.run(report(server))["env"]


def test_a_worker_runs_on_the_cores_that_its_caller_has_now(server, reporting):
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("this process has one core, and cannot give up any")
    assert asyncio.run(report(server))["cores"] == sorted(before)
    try:
        os.sched_setaffinity(0, {max(before)})
        assert asyncio.run(report(server))["cores"] == [max(before)]
    finally:
        os.sched_setaffinity(0, before)


def test_a_users_modules_are_imported_anew_by_each_worker(server, reporting):
    assert asyncio.run(report(server))["net"] == "first"
    (reporting / "user_net.py").write_text("NAME = 'the second'\n")
    assert asyncio.run(report(server))["net"] == "the second"


@pytest.mark.parametrize("by", ["PYTHONPATH", "sys.path"])
def test_modules_are_found_where_the_caller_finds_them_now(by, server, reporting, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    if by == "sys.path":
        monkeypatch.syspath_prepend(str(reporting))
    else:
        monkeypatch.setenv("PYTHONPATH", str(reporting), prepend=os.pathsep)
    assert asyncio.run(report(server))["net"] == "first"


def test_a_worker_does_not_import_torch_again_and_the_server_has_one_thread(server, small):  # noqa: F811
    async def body() -> None:
        first = worker(server)
        await first.start()
        assert cpu_s(first.pid) < cpu_s(server.pid) / 4
        assert len(os.listdir(f"/proc/{server.pid}/task")) == 1
        libraries = Path(f"/proc/{server.pid}/maps").read_text()
        assert "libtorch" in libraries and "libnvidia-ml" not in libraries and "libcuda.so" not in libraries
        await first.stop()

    asyncio.run(body())


def test_the_settings_of_the_allocator_are_those_of_the_servers_own_start(server, reporting):
    asyncio.run(report(server))
    started_with = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
    assert {b"MALLOC_MMAP_THRESHOLD_=33554432", b"OMP_WAIT_POLICY=PASSIVE", b"OMP_NUM_THREADS=1"} <= set(started_with)


def test_a_worker_ends_with_its_own_channel_while_another_runs(server, small):  # noqa: F811
    async def body() -> None:
        first, second = worker(server), worker(server, "cpu 1")
        await asyncio.gather(first.start(), second.start())
        ended = first._process
        first._channel.close()
        async with asyncio.timeout(30):
            await ended.wait()
        assert ended.returncode == 0
        await second.run(write_whole(0, [0]), 30)
        await asyncio.gather(first.stop(), second.stop())

    asyncio.run(body())


def test_no_process_is_left_of_workers_that_ended_in_any_way(server, small):  # noqa: F811
    async def body() -> None:
        for end in (signal.SIGKILL, signal.SIGTERM, None):
            one = worker(server)
            await one.start()
            process = one._process
            if end is not None:
                os.kill(one.pid, end)
                with pytest.raises(WorkerLost, match="died"):
                    await one.run(write_whole(0, [0]), 30)
            await one.stop()
            assert process.returncode == -(end or signal.SIGKILL)
            assert children(server.pid) == []

    asyncio.run(body())


def test_interrupts_do_not_end_the_server(server, small):  # noqa: F811
    async def body() -> None:
        one = worker(server)
        await one.start()
        pid = server.pid
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        await one.start()
        assert server.pid == pid
        await one.stop()

    asyncio.run(body())


def test_a_server_that_is_killed_takes_its_workers_with_it_and_the_next_start_makes_another(small):  # noqa: F811
    async def body() -> None:
        server = ForkServer()
        one, other = worker(server, first=1060.0), worker(server, "cpu 1")
        await one.start()
        killed = server.pid
        running = asyncio.create_task(one.run(write_whole(0, [0]), 30))  # it takes a minute
        await asyncio.sleep(0.1)
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(WorkerLost, match="died"):
            await running
        largest_gap, last = 0.0, time.monotonic()
        starting = asyncio.create_task(other.start())
        began = time.monotonic()
        while not starting.done():
            await asyncio.sleep(0.002)
            largest_gap, last = max(largest_gap, time.monotonic() - last), time.monotonic()
        await starting
        assert largest_gap < (time.monotonic() - began) / 3  # the loop goes on while a server starts
        assert server.pid != killed and not Path(f"/proc/{killed}").exists()
        await other.run(write_whole(0, [0]), 30)
        await asyncio.gather(one.stop(), other.stop())
        pid = server.pid
        assert server.close() == 0 and not Path(f"/proc/{pid}").exists()

    asyncio.run(body())


@pytest.mark.slow
def test_the_end_of_a_server_is_no_signal_that_a_library_could_see_and_ends_its_workers(small):  # noqa: F811
    """XRT's emulation takes a child that a signal ends for its device, and ends the whole process group."""

    async def body() -> None:
        server = ForkServer()
        one = worker(server)
        await one.start()
        process = one._process
        assert server.close() == 0
        async with asyncio.timeout(30):
            await process.wait()
        assert process.returncode == -signal.SIGKILL
        await one.stop()

    asyncio.run(body())


def test_a_server_that_does_not_start_is_told(small, monkeypatch, tmp_path):  # noqa: F811
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no torch here >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(WorkerLost, match=r"died while starting .*the fork server does not start: no torch here"):
        asyncio.run(worker(ForkServer()).start())


CALLS = [
    (socket, "socketpair"),
    (os, "memfd_create"),
    (os, "ftruncate"),
    (mmap, "mmap"),
    (os, "pipe2"),
    (socket, "recv_fds"),
    (os, "set_blocking"),
    (asyncio.SelectorEventLoop, "add_reader"),
]


@pytest.mark.parametrize(("where", "name"), CALLS, ids=[name for _, name in CALLS])
def test_a_call_that_the_system_refuses_is_a_lost_start_that_leaves_nothing(where, name, server, small, monkeypatch):  # noqa: F811
    """Each system call in a start is refused in turn, until a start makes no such call any more."""

    async def body() -> int:
        one, refused = worker(server), 0
        await one.start()  # the server runs
        await one.stop()
        while True:
            before = sorted(os.listdir("/proc/self/fd"))
            left = refused
            real = getattr(where, name)

            def refusing(*args, real=real, **kwargs):
                nonlocal left
                left -= 1
                if left == -1:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                return real(*args, **kwargs)

            with monkeypatch.context() as patch:
                patch.setattr(where, name, refusing)
                try:
                    await one.start()
                except WorkerLost as error:
                    assert os.strerror(errno.EMFILE) in str(error)
                else:
                    break
            await asyncio.sleep(0.01)  # transports close in the next turns
            assert sorted(os.listdir("/proc/self/fd")) == before
            refused += 1
        assert refused > 0
        await one.run(write_whole(0, [0]), 30)
        await one.stop()
        return refused

    assert asyncio.run(body()) <= 6


def test_a_server_that_has_no_descriptor_left_lives_on(server, small):  # noqa: F811
    which = resource.RLIMIT_NOFILE

    async def body() -> None:
        one, other = worker(server), worker(server, "cpu 1")
        await one.start()
        pid, before = server.pid, resource.prlimit(server.pid, which)
        resource.prlimit(pid, which, (len(os.listdir(f"/proc/{pid}/fd")), before[1]))
        try:
            with pytest.raises(WorkerLost):
                await other.start()
        finally:
            resource.prlimit(pid, which, before)
        await other.start()
        assert server.pid == pid
        await asyncio.gather(one.run(write_whole(0, [0]), 30), other.run(write_whole(0, [0]), 30))
        await asyncio.gather(one.stop(), other.stop())

    asyncio.run(body())


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])  # each imports torch anew
def test_a_server_that_does_not_answer_is_set_aside_with_its_workers(times, small, monkeypatch):  # noqa: F811
    """The next server takes the next requests, and no more than one server is set aside."""

    async def body() -> None:
        server = ForkServer()
        first = worker(server)
        await first.start()
        stopped = []
        for _ in range(times):
            os.kill(server.pid, signal.SIGSTOP)
            stopped.append(server.pid)
            other = worker(server, "cpu 1")
            with monkeypatch.context() as hurried:
                hurried.setattr(client, "ANSWER_S", 0.3)
                with pytest.raises(WorkerLost, match=r"has not answered for 0\.3 s; another one takes its place"):
                    await other.start()
            await other.start()
            assert server.pid not in stopped
            if len(stopped) == 1:
                await first.run(write_whole(0, [0]), 30)
            await other.run(write_whole(0, [0]), 30)
            await other.stop()
        assert [Path(f"/proc/{pid}").exists() for pid in stopped] == [False] * (times - 1) + [True]
        await first.stop()
        server.close()
        assert not any(Path(f"/proc/{pid}").exists() for pid in stopped)

    asyncio.run(body())


def test_last_lines_have_no_marks_of_a_traceback():
    said = "one\ntwo\n  return f(x)\n         ^^^~~\n\nValueError: no\n"
    assert client.last_lines(said, keep=3) == "two |   return f(x) | ValueError: no"


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_workers_stderr_is_closed_once(loop, monkeypatch):
    """A file that gets the descriptor's number next stays open."""
    closed = []
    close = os.close

    def counted(descriptor):
        closed.append(descriptor)
        close(descriptor)

    async def body() -> None:
        read, write = os.pipe()
        pipe = client._Pipe(read)
        os.write(write, b"last words")
        os.close(write)
        with monkeypatch.context() as patch:
            patch.setattr(os, "close", counted)
            assert await pipe.stream.read() == b"last words"
            again = os.dup(0)
            pipe.close()
            await asyncio.sleep(0)
        assert closed == [read] and again == read and os.fstat(again)
        os.close(again)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(body())


@pytest.mark.slow
def test_a_killed_server_that_is_slow_to_end_is_no_error(monkeypatch):
    class Slow:
        killed = False

        def wait(self, timeout):
            raise subprocess.TimeoutExpired("server", timeout)

        def kill(self):
            self.killed = True

    monkeypatch.setattr(client, "child_signals_caught", lambda: False)
    process, (ours, theirs) = Slow(), socket.socketpair()
    with theirs:
        assert client._ended(process, ours) is None
    assert process.killed and ours.fileno() == -1
