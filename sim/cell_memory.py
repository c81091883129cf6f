"""Where the states of recurrent requests lie, and when a batch of cells pays to bring them together.

A cell needs its batch's states in contiguous memory of its own worker. The states that a task leaves are contiguous, on
the worker that ran it. Three rules follow (BatchMaker, EuroSys 2018, Section 4.3, "locality"):

1. A task whose members are all the members of one earlier task takes its states as they lie, and pays nothing.
2. A task with other members gathers: it copies the state of every row. First cells have no state. A task of first cells
   alone pays nothing.
3. A state that another worker left is first copied to this worker. There is one transfer from each such worker.

Example: a row costs 1 us to gather. Worker 0 runs A.0 B.0, then A.1 B.1, then A.2 B.2 C.0, then A.3 B.3. The third task
gathers three rows, because C joined. The fourth gathers two, because C left. The others pay nothing.

The requests are chains of cells: cell n takes the state of cell n - 1. This file is compiled (setup.py).
"""

from headrace.batching.graphs.execution import Copying
from headrace.batching.request import Request, Task


class _Batch:
    """The states that one task leaves: the worker where they lie, and their number."""

    def __init__(self, worker: int, rows: int) -> None:
        self.worker: int = worker
        self.rows: int = rows


class CellMemory:
    """The places of all states in one run.

    Attributes:
        gathers: The number of tasks that gathered.
        copied: The number of states that were copied from one worker to another.
    """

    def __init__(self) -> None:
        self.gathers: int = 0
        self.copied: int = 0
        self._left_by: dict[int, _Batch] = {}  # by request: the task that left its state

    def moves(self, worker: int, task: Task, copying: Copying) -> float:
        """Return the seconds that a task pays before its cells run, and note that it leaves its states on `worker`."""
        rows = len(task.cells)
        batch = _Batch(worker, rows)
        left_by = self._left_by
        source: _Batch | None = None
        states = 0
        same = True
        elsewhere: dict[int, int] = {}  # states by the other worker on which they lie
        for request, cell in zip(task.requests, task.cells, strict=True):
            if cell > 0:
                states += 1
                before = left_by[request.id]
                if before.worker != worker:
                    elsewhere[before.worker] = elsewhere.get(before.worker, 0) + 1
                if source is None:
                    source = before
                elif source is not before:
                    same = False
            left_by[request.id] = batch
        seconds = 0.0
        for copied in elsewhere.values():
            self.copied += copied
            seconds += copying.transfer_s + copied * copying.state_bytes / copying.bytes_s
        if source is not None and not (same and states == rows and source.rows == rows):
            self.gathers += 1
            seconds += rows * copying.gather_row_s
        return seconds

    def forget(self, request: Request) -> None:
        """Forget the state of a request that has ended."""
        self._left_by.pop(request.id, None)
