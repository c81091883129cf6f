"""State rows in memory that the runtime and its worker processes share: h, c and the last token of a cell's output."""

import mmap
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError

ZERO = 0  # a row that stays zero: what the first cell of a chain reads


@dataclass(frozen=True, slots=True)
class StateLayout:
    """`states`: (rows, 2, hidden) float32, h and then c; behind them `tokens`: (rows,) int64."""

    rows: int
    hidden: int

    @property
    def tokens_offset(self) -> int:
        return self.rows * 2 * self.hidden * 4

    @property
    def size(self) -> int:
        return self.tokens_offset + self.rows * 8

    def views(self, memory: mmap.mmap) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        states = np.ndarray((self.rows, 2, self.hidden), np.float32, memory)
        return states, np.ndarray((self.rows,), np.int64, memory, self.tokens_offset)


class StatesFull(HeadraceError):
    """Every state row is needed by requests in flight."""


class StateArena:
    """Rows are kept by the request that will read them and held by the tasks that were sent to a worker with them; a
    row is free again when neither needs it. Pages are taken from the system when first written."""

    def __init__(self, rows: int, hidden: int) -> None:
        self.layout = StateLayout(rows + 1, hidden)
        self.fd = os.memfd_create("headrace-states", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, self.layout.size)
        self._memory = mmap.mmap(self.fd, self.layout.size)
        self.states, self.tokens = self.layout.views(self._memory)
        self.rows = rows
        self._free = list(range(rows, ZERO, -1))  # the row used last is the first to be used again: it is in the cache
        self._uses = [0] * (rows + 1)
        self._uses[ZERO] = 1

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """A free row, with one use: its request's. Raises StatesFull."""
        if not self._free:
            raise StatesFull(f"all {self.rows} state rows are in use; send fewer requests at a time")
        row = self._free.pop()
        self._uses[row] = 1
        return row

    def hold(self, row: int) -> None:
        self._uses[row] += 1

    def release(self, row: int) -> None:
        self._uses[row] -= 1
        if self._uses[row] == 0:
            self._free.append(row)

    def close(self) -> None:
        """Give the file back; the memory goes when the last array over it does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
