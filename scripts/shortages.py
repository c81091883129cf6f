"""Shortages for tests of a server: descriptors, memory or disk space run out, or processes are killed.

Each shortage is a context manager that takes the server's process id, and the shortage ends with the block. The context
managers change the limits of running processes (prlimit), so the server need not cooperate."""

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from headrace.host.live.machine.children import children

SMALL_ROOM = 32 << 20  # bytes
Shortage = Callable[[int], "contextlib.AbstractContextManager[None]"]


def workers(server: int) -> list[int]:
    """Return the process ids of the workers. They are children of the fork server, which is a child of the server."""
    return [worker for child in children(server) for worker in children(child)]


@contextlib.contextmanager
def _limited(server: int, limit: int, used: Callable[[int], int], room: int = 0) -> Iterator[None]:
    """Lower a limit of the fork server to its present use, and of the server to its present use plus `room`."""
    before = resource.prlimit(server, limit)
    try:
        for process, more in ((server, room), *((child, 0) for child in children(server))):
            resource.prlimit(process, limit, (used(process) + more, before[1]))
        yield
    finally:
        for process in (server, *children(server), *workers(server)):  # new workers have inherited the limit
            with contextlib.suppress(ProcessLookupError):  # the process has ended
                resource.prlimit(process, limit, before)


def _virtual_bytes(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[0]) * resource.getpagesize()


def no_descriptors(server: int) -> contextlib.AbstractContextManager[None]:
    """Let every open of a file or socket fail with EMFILE."""
    return _limited(server, resource.RLIMIT_NOFILE, lambda process: len(os.listdir(f"/proc/{process}/fd")))


def no_memory(server: int) -> contextlib.AbstractContextManager[None]:
    """Let every memory mapping of the workers, and the large ones of the server, fail with ENOMEM.

    The server still gets small pieces. Without them C libraries, gRPC's for example, crash the process."""
    return _limited(server, resource.RLIMIT_AS, _virtual_bytes, SMALL_ROOM)


@contextlib.contextmanager
def killed_worker(server: int) -> Iterator[None]:
    """Kill one worker."""
    os.kill(workers(server)[0], signal.SIGKILL)
    yield


@contextlib.contextmanager
def killed_fork_server(server: int) -> Iterator[None]:
    """Kill the fork server. All workers end with it."""
    for child in children(server):
        os.kill(child, signal.SIGKILL)
    yield


def no_space(folder: Path) -> Shortage:
    """Let every write into `folder` fail with ENOSPC. The folder is its own file system (see `small_disk`)."""

    @contextlib.contextmanager
    def shortage(_: int) -> Iterator[None]:
        filling = folder / "filling"
        try:
            with contextlib.suppress(OSError), filling.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            yield
        finally:
            filling.unlink()

    return shortage


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """Mount a file system of one megabyte at `folder`. Yields None if this process may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "headrace", folder], capture_output=True)
    if mounted.returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


SHORTAGES: dict[str, Shortage] = {
    "descriptors": no_descriptors,
    "memory": no_memory,
    "worker": killed_worker,
    "fork server": killed_fork_server,
}
