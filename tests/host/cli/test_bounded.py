"""A command that runs in a process of somebody else's leaves nothing there."""

import os
import threading
import time

from headrace.host.cli.interrupt import bounded


def test_neither_a_descriptor_nor_a_thread_is_left():
    before = os.listdir("/proc/self/fd"), threading.active_count()
    for _ in range(5):
        with bounded():
            pass
    end = time.monotonic() + 60
    while (os.listdir("/proc/self/fd"), threading.active_count()) != before:  # the thread is told, and ends soon
        assert time.monotonic() < end
        time.sleep(0.01)
