"""The processes that a test starts: what /proc tells of them, and the signals that they begin with."""

import contextlib
import signal
from pathlib import Path


def words(pid: int) -> list[str]:
    """Return the words of a process's command line. A process that has ended has none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def lives(pid: int) -> bool:
    """Whether the process has not ended. One that has may wait for its parent yet: where the first process of a
    container takes no orphans in, for ever."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def handled(number, handler):
    """This process handles a signal so, and what begins meanwhile, too: nohup and shells make some be ignored."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
