"""Tensors in memory that the runtime and its worker processes share.

A memfd and not POSIX shared memory: it has no name, so nothing is left behind after kill -9, and a container's small
/dev/shm does not limit it.
"""

import math
import mmap
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError

PAGE = 4096


class ArenaFull(HeadraceError):
    """Every slot holds a request in flight."""


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """One slot: an input tensor, then an output row, each starting on a page. Shapes are without the batch."""

    slots: int
    input_shape: tuple[int, ...]
    input_dtype: str
    output_shape: tuple[int, ...]
    output_dtype: str

    @property
    def output_offset(self) -> int:
        return _pages(math.prod(self.input_shape) * np.dtype(self.input_dtype).itemsize)

    @property
    def stride(self) -> int:
        return self.output_offset + _pages(math.prod(self.output_shape) * np.dtype(self.output_dtype).itemsize)

    @property
    def size(self) -> int:
        return self.slots * self.stride

    def views(self, memory: mmap.mmap) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """The input and the output array of every slot, over `memory`."""
        inputs = [
            np.ndarray(self.input_shape, self.input_dtype, memory, slot * self.stride) for slot in range(self.slots)
        ]
        outputs = [
            np.ndarray(self.output_shape, self.output_dtype, memory, slot * self.stride + self.output_offset)
            for slot in range(self.slots)
        ]
        return inputs, outputs


def _pages(size: int) -> int:
    return -(-max(size, 1) // PAGE) * PAGE


class TensorArena:
    """Slots for the tensors of requests in flight. Pages are taken from the system when first written."""

    def __init__(
        self,
        slots: int,
        input_shape: tuple[int, ...],
        input_dtype: str,
        output_shape: tuple[int, ...],
        output_dtype: str,
    ) -> None:
        self.layout = SlotLayout(slots, tuple(input_shape), input_dtype, tuple(output_shape), output_dtype)
        self.fd = os.memfd_create("headrace-tensors", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, self.layout.size)
        self._inputs, self._outputs = self.layout.views(mmap.mmap(self.fd, self.layout.size))
        self._free = list(reversed(range(slots)))

    @property
    def free(self) -> int:
        return len(self._free)

    def acquire(self) -> int:
        """A free slot. Raises ArenaFull."""
        if not self._free:
            raise ArenaFull(f"all {self.layout.slots} tensor slots hold requests in flight; send fewer at a time")
        return self._free.pop()

    def release(self, slot: int) -> None:
        self._free.append(slot)

    def input(self, slot: int) -> NDArray[Any]:
        return self._inputs[slot]

    def output(self, slot: int) -> NDArray[Any]:
        return self._outputs[slot]

    def close(self) -> None:
        """Give the file back; the memory goes when the last array over it does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
