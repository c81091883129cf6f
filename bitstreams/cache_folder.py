"""The user's folder in which Headrace keeps what it has built."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder. It need not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder and hold its lock, so that one process at a time builds there.

    Raises OSError if the folder cannot be made or written to."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # for no longer than the other process builds, which has a time-out
        yield
