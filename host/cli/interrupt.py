"""A bound on how long a command takes to end after Ctrl-C."""

import contextlib
import itertools
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

STATUS = 130  # as a shell has it: 128 + SIGINT
GRACE_S = 1.5  # for the command to clean up behind itself
REAP_S = 0.3  # for its children to be gone when they are killed


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Ends the process GRACE_S after Ctrl-C if what runs inside has not ended by then.

    KeyboardInterrupt waits for its turn: behind a call of a library, a thread or a process that is waited for. The
    wake-up descriptor is written at once, and a thread of ours waits for that. In the middle of an import it is raised
    where that ends: importlib's callbacks lose it, and libraries' C++ aborts the process on it."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    default = signal.default_int_handler
    raising = signal.getsignal(signal.SIGINT) is default  # not in a shell's background job

    def unless_importing(number: int, frame: FrameType | None) -> None:
        importing = _outermost_import(frame)
        if importing is None:
            default(number, frame)
            return

        def behind(returning: FrameType, event: str, _: object) -> None:
            if returning is importing and event == "return":
                sys.setprofile(None)
                default(number, returning)

        sys.setprofile(behind)

    if raising:
        signal.signal(signal.SIGINT, unless_importing)
        # asyncio's runner has a handler of its own, which cancels its task, but only where it finds the default one.
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
        os.close(writing)  # the thread reads the end, and ends


def _outermost_import(frame: FrameType | None) -> FrameType | None:
    found = None
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib."):
            found = frame
        frame = frame.f_back
    return found


def _watch(reading: int) -> None:
    deadline = None
    poll = select.poll()  # which takes any descriptor; select only those below 1024
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
    """The process ends here and now, behind all its children: Python's own end would wait for threads and take
    libraries down, seconds for torch."""
    children = _children()
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + REAP_S
    while any([_lives(child) for child in children]) and time.monotonic() < deadline:
        time.sleep(0.005)
    os._exit(status)


def _children() -> set[int]:
    """Of all threads of this process; twice looked for, as those of a thread that ends meanwhile become another's."""
    found = set()
    for task in itertools.chain.from_iterable(Path("/proc/self/task").iterdir() for _ in range(2)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


def _lives(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] == 0
    except ChildProcessError:  # somebody else has waited for it
        return False
