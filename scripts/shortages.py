"""What may run out under a server, and come back: descriptors, memory, space on a disk, processes that are killed.

Each is a context manager that is given the process of the server. The shortage ends with it. They change the limits of
running processes (prlimit), so they need no cooperation of the server."""

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

SMALL_ROOM = 32 << 20  # bytes
Shortage = Callable[[int], "contextlib.AbstractContextManager[None]"]


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def workers(server: int) -> list[int]:
    """The workers are the children of the fork server, which is a child of the server."""
    return [worker for child in children(server) for worker in children(child)]


@contextlib.contextmanager
def _limited(server: int, limit: int, used: Callable[[int], int], room: int = 0) -> Iterator[None]:
    """Let the fork server have what it uses now of `limit`, and no more, and the server `room` beside that."""
    before = resource.prlimit(server, limit)
    try:
        for process, more in ((server, room), *((child, 0) for child in children(server))):
            resource.prlimit(process, limit, (used(process) + more, before[1]))
        yield
    finally:
        for process in (server, *children(server), *workers(server)):  # those of now, which inherited it
            with contextlib.suppress(ProcessLookupError):  # it has ended
                resource.prlimit(process, limit, before)


def _virtual_bytes(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[0]) * resource.getpagesize()


def no_descriptors(server: int) -> contextlib.AbstractContextManager[None]:
    """EMFILE for whatever is opened."""
    return _limited(server, resource.RLIMIT_NOFILE, lambda process: len(os.listdir(f"/proc/{process}/fd")))


def no_memory(server: int) -> contextlib.AbstractContextManager[None]:
    """ENOMEM for all that workers map, and for what is large in the server.

    Small pieces can be had there: without them the libraries in C crash a process, gRPC's for example."""
    return _limited(server, resource.RLIMIT_AS, _virtual_bytes, SMALL_ROOM)


@contextlib.contextmanager
def killed_worker(server: int) -> Iterator[None]:
    os.kill(workers(server)[0], signal.SIGKILL)
    yield


@contextlib.contextmanager
def killed_fork_server(server: int) -> Iterator[None]:
    """All workers end with it."""
    for child in children(server):
        os.kill(child, signal.SIGKILL)
    yield


def no_space(folder: Path) -> Shortage:
    """ENOSPC for what is written into `folder`, which is a file system of its own (see `small_disk`)."""

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
    """A file system of a megabyte at `folder`, or None where this process may not mount one."""
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
