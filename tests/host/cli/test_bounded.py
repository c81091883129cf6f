"""A command that runs in a process of somebody else's leaves nothing there."""

import contextlib
import os
import threading
import time

from headrace.host.cli.interrupt import bounded


def held():
    """Descriptors with what they are of, and threads. What earlier tests have left may end meanwhile."""
    found = {thread.ident for thread in threading.enumerate()}
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add((descriptor, os.readlink(f"/proc/self/fd/{descriptor}")))
    return found


def new_since(before):
    """Without the descriptor that lists descriptors: it is closed by now."""
    return {each for each in held() - before if not (isinstance(each, tuple) and each[1].endswith("/fd"))}


def test_neither_a_descriptor_nor_a_thread_is_left():
    before = held()
    with bounded():
        assert new_since(before)
    for _ in range(5):
        with bounded():
            pass
    end = time.monotonic() + 60
    while new_since(before):  # the thread is told, and ends soon
        assert time.monotonic() < end
        time.sleep(0.01)
