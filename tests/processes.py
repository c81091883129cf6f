"""What /proc tells of the processes that a test started."""

from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the process ids of the children of `pid`, whichever of its threads started them."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]
