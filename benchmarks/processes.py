"""Headrace's commands as processes."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headrace.host.live.machine.children import children

HEADRACE = str(Path(sys.executable).with_name("headrace"))
ANY_PORT = "127.0.0.1:0"
PORTS = ("--http", ANY_PORT, "--grpc", ANY_PORT, "--metrics", ANY_PORT)
END_S = 60.0


def headrace(*words: str, before: Sequence[str] = ()) -> Any:
    """Run a command, and return what it prints with `--json`. `before` is a program that starts it, such as taskset.

    Raises CalledProcessError."""
    command = [*before, HEADRACE, *words, "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def own_cpu_s(pid: int) -> float:
    """Return the CPU time that a process has taken so far (s), to the nanosecond."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process that run now."""
    own = children(pid)
    return [*own, *(each for child in own for each in descendants(child))]


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process and its descendants have taken so far (s), to the nanosecond.

    The time of a descendant that has ended is missing."""
    return sum(map(own_cpu_s, (pid, *descendants(pid))))


@contextlib.contextmanager
def serving(*words: str, before: Sequence[str] = (), program: Sequence[str] = (HEADRACE,)) -> Iterator[dict[str, Any]]:
    """Run `headrace serve` on free ports, and give what it prints when it is ready, with its process id as `pid`.

    `program` is Headrace's command, if it is another one than that of this environment."""
    command = [*before, *program, "serve", *words, *PORTS, "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            raise subprocess.CalledProcessError(server.wait(), command)
        yield json.loads(line) | {"pid": server.pid}
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(END_S)
