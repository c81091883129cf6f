"""Rows of shared memory that keep the state of a request between the steps of its network (workers/networks/steps.py).

The rows of a model lie in blocks. There is one block for each state, with the dimensions (rows, *longest shape of the
state). Each state that grows has another block for its used lengths. One more block has the last token of each row, and
one has the input of a step that takes its whole input at once.

A row has room for the longest state. The system provides a page when the page is first written."""

import math
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError
from headrace.host.memory.layout import TensorSpec

ZERO = 0  # this row stays zero and empty; the first step of every request reads it
ALIGNED = 64  # bytes; each block begins at a multiple of a cache line


@dataclass(frozen=True, slots=True)
class StateSpecs:
    """Describe the content of a model's rows. `input` is the largest number of input tokens that a row keeps."""

    states: tuple[TensorSpec, ...]
    input: int = 0


class StateViews:
    """Give access to the blocks of one model in `memory`, from `offset` to `end`. The runtime and the workers both
    use it.

    Without `memory` only `end` is computed."""

    def __init__(self, specs: StateSpecs, rows: int, offset: int = 0, memory: mmap.mmap | None = None) -> None:
        self.end = offset

        def block(dtype: str, *shape: int) -> NDArray[Any]:
            begin = -(-self.end // ALIGNED) * ALIGNED
            self.end = begin + math.prod(shape) * np.dtype(dtype).itemsize
            return np.ndarray(shape, dtype, memory, begin) if memory is not None else np.empty(0)

        self.states = {spec.name: block(spec.dtype, rows, *spec.sized(spec.longest)) for spec in specs.states}
        self.lengths = {spec.name: block("int64", rows) for spec in specs.states if spec.variable is not None}
        self.tokens = block("int64", rows)
        self.input = block("int64", rows, specs.input)


def state_views(models: Mapping[str, StateSpecs], rows: int, memory: mmap.mmap | None = None) -> dict[str, StateViews]:
    """Lay out `rows` rows for each model, one model after another. Both sides compute the same layout.

    Any model may use any row, because each model has blocks of its own."""
    views: dict[str, StateViews] = {}
    end = 0
    for model, specs in models.items():
        views[model] = StateViews(specs, rows, end, memory)
        end = views[model].end
    return views


class StatesFull(HeadraceError):
    """The requests in flight use every state row."""


class StateArena:
    """Count the uses of each state row, and give out rows that nothing uses.

    The request that reads a row next has one use of it. Each task that was sent to a worker with the row has another
    use. The row is free when its count is zero."""

    def __init__(self, models: Mapping[str, StateSpecs], rows: int) -> None:
        self.all_rows = rows + 1
        size = max(views.end for views in state_views(models, self.all_rows).values())
        self.fd = os.memfd_create("headrace-states", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        memory = mmap.mmap(self.fd, size)
        self._memory: mmap.mmap | None = memory
        self.views = state_views(models, self.all_rows, memory)
        self.rows = rows
        # The row that was released last is used first, because its memory is still in the cache.
        self._free = list(range(rows, ZERO, -1))
        self._uses = [0] * (rows + 1)
        self._uses[ZERO] = 1

    @property
    def free(self) -> int:
        """Return how many rows are free."""
        return len(self._free)

    def take(self) -> int:
        """Take a free row with one use, the use by its request. Raises StatesFull."""
        if not self._free:
            raise StatesFull(f"all {self.rows} state rows are in use; send fewer requests at a time")
        row = self._free.pop()
        self._uses[row] = 1
        return row

    def hold(self, row: int) -> None:
        """Add one use of the row."""
        self._uses[row] += 1

    def release(self, row: int) -> None:
        """Remove one use of the row. The row is free after its last use."""
        self._uses[row] -= 1
        if self._uses[row] == 0:
            self._free.append(row)

    def close(self) -> None:
        """Close the file and give its memory back. Arrays that a caller still holds keep their addresses and read as
        zeros."""
        if self._memory is not None:
            self._memory.madvise(mmap.MADV_REMOVE)
            self.views, self._memory = {}, None  # not closed: numpy arrays may point into the mapping
            os.close(self.fd)
            self.fd = -1
