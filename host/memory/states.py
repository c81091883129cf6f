"""Rows of states in memory: what is kept of a request between the steps of its network (workers/networks/steps.py).

The rows of a model lie in blocks, one for each state, (rows, *its shape at its longest), one for the used length of
each state that grows, one for the last token of each row and one for the input of a step that takes all of it at once.
A row has room for the longest that there may be; pages are taken from the system when first written.
"""

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

ZERO = 0  # a row that stays zero, and empty: what the first step of a request reads
ALIGNED = 64  # bytes, where each block begins: a cache line


@dataclass(frozen=True, slots=True)
class StateSpecs:
    """What a row of a model holds; `input` is the most input tokens that are kept with it."""

    states: tuple[TensorSpec, ...]
    input: int = 0


class StateViews:
    """The blocks of one model over `memory`, from `offset` to `end`, for either side. Without `memory` only `end` is
    found."""

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
    """`rows` for each model, one model behind the other: the same on both sides. Any model may use any row, as each has
    blocks of its own."""
    views: dict[str, StateViews] = {}
    end = 0
    for model, specs in models.items():
        views[model] = StateViews(specs, rows, end, memory)
        end = views[model].end
    return views


class StatesFull(HeadraceError):
    """Every state row is needed by requests in flight."""


class StateArena:
    """Rows are kept by the request that will read them and held by the tasks that were sent to a worker with them; a
    row is free again when neither needs it."""

    def __init__(self, models: Mapping[str, StateSpecs], rows: int) -> None:
        self.all_rows = rows + 1
        size = max(views.end for views in state_views(models, self.all_rows).values())
        self.fd = os.memfd_create("headrace-states", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        memory = mmap.mmap(self.fd, size)
        self._memory: mmap.mmap | None = memory
        self.views = state_views(models, self.all_rows, memory)
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
        """Give the file and its memory back. Arrays that somebody still holds read as zeros, and keep the addresses."""
        if self._memory is not None:
            self._memory.madvise(mmap.MADV_REMOVE)
            self.views, self._memory = {}, None  # never closed: numpy's arrays would point to nowhere
            os.close(self.fd)
            self.fd = -1
