"""This module lists the child processes of a process, as Linux tells them."""

import contextlib
from pathlib import Path


def children(pid: int | str = "self") -> list[int]:
    """Return the ids of the children of all threads of a process, in their order. A process that has ended has none.

    The search runs twice: if a thread ends meanwhile, its children become another thread's."""
    found = set[int]()
    for _ in range(2):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process has ended
            for task in list(Path(f"/proc/{pid}/task").iterdir()):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                    found.update(map(int, (task / "children").read_text().split()))
    return sorted(found)
