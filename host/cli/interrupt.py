"""A limit on the time that a command takes to end after Ctrl-C."""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from headrace.host.live.machine.children import children

STATUS = 130  # the shell's exit status for SIGINT: 128 + 2
GRACE_S = 1.5  # the time that a command has to clean up
REAP_S = 0.3  # the time that killed children have to end


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """End the process GRACE_S after Ctrl-C, unless the block has ended by then.

    Python raises KeyboardInterrupt only when the main thread runs Python code again. That may take long: a library's
    call, a thread or a child process may hold it. But Python writes to the wake-up descriptor at once. A thread waits
    for that byte and ends the process in time.

    An interrupt during an import is raised when the outermost import ends. In the middle, importlib's callbacks lose
    it, and the C++ of some libraries aborts the process."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    default = signal.default_int_handler
    raising = signal.getsignal(signal.SIGINT) is default  # a shell's background job ignores SIGINT

    def unless_importing(number: int, frame: FrameType | None) -> None:
        importing = _outermost_import(frame)
        if importing is None:
            default(number, frame)
            return

        def after_import(returning: FrameType, event: str, _: object) -> None:
            if returning is importing and event == "return":
                sys.setprofile(None)
                default(number, returning)

        sys.setprofile(after_import)

    if raising:
        signal.signal(signal.SIGINT, unless_importing)
        # asyncio's runner installs its own handler, which cancels its task, but only in place of the default one.
        signal.default_int_handler = unless_importing  # type: ignore[assignment]
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        if raising:
            signal.default_int_handler = default
            signal.signal(signal.SIGINT, default)
        os.close(writing)  # the thread reads the end of the pipe, and returns


def _outermost_import(frame: FrameType | None) -> FrameType | None:
    found = None
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib."):
            found = frame
        frame = frame.f_back
    return found


def _watch(reading: int) -> None:
    deadline = None
    poll = select.poll()  # poll takes any descriptor; select takes only those below 1024
    poll.register(reading, select.POLLIN)
    with open(reading, "rb", buffering=0) as signals:
        while poll.poll(None if deadline is None else max(0.0, 1e3 * (deadline - time.monotonic()))):
            numbers = signals.read(64)
            if not numbers:
                return
            if deadline is None and signal.SIGINT in numbers:
                deadline = time.monotonic() + GRACE_S
        if sys.stderr is not None and sys.stderr.isatty():
            os.write(2, b"\x1b[?25h")  # a progress display hides the cursor
        os.write(2, b"headrace: interrupted\n")
        end()


def end(status: int = STATUS) -> NoReturn:
    """End the process at once, after all its children.

    Python's own end would wait for threads and unload libraries, which takes seconds for torch."""
    found = children()
    for child in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + REAP_S
    while any([_lives(child) for child in found]) and time.monotonic() < deadline:
        time.sleep(0.005)
    os._exit(status)


def _lives(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] == 0
    except ChildProcessError:  # another thread has waited for it
        return False
