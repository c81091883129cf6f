"""The interpreter of a page's Python blocks as a fork of the page's fork server. Its module __main__ is new."""

import atexit
import fcntl
import os
import sys
import threading
from collections.abc import Sequence
from types import ModuleType

import forked

from headrace.host.workers.fork_server.protocol import FIRST_FD

FREE = 100  # descriptors from here on are free in a new fork


def main(arguments: Sequence[str]) -> None:
    """Run the program of `python -c PROGRAM`, which has its two pipes at the descriptors that PAGE_PIPES names."""
    _, program = forked.begin(arguments)
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]  # as PYTHONUNBUFFERED lets a new process do
    places = list(map(int, os.environ.pop("PAGE_PIPES").split(",")))
    received = range(FIRST_FD + 3, FIRST_FD + 3 + len(places))
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, FREE) for fd in received]
    os.closerange(received.start, received.stop)
    for fd, place in zip(moved, places, strict=True):
        os.dup2(fd, place)
        os.close(fd)
    del os.environ["PAGE_CONTROL"]  # this process has no such descriptor
    module = sys.modules["__main__"] = ModuleType("__main__")
    sys.argv = ["-c"]
    try:
        exec(compile(program, "<string>", "exec"), module.__dict__)
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
