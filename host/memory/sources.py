"""Tensors that lie elsewhere, and that can be read straight into a slot.

Rule: whoever fills a slot looks at the type and the shape of a source before it takes the slot. Then the source writes
its elements there. An array is no source, because its elements are at hand."""

import math
from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.host.memory.files import FilePlace


class Source(ABC):
    """A tensor of numbers that has not been read yet. `np.asarray` reads it into new memory."""

    __slots__ = ()
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, row: int) -> "Source":
        """Return one row of the first dimension."""

    @abstractmethod
    def read_into(self, array: NDArray[Any]) -> None:
        """Write all elements into a contiguous array of this type and shape. Raises BadInput."""

    def place(self) -> FilePlace | None:
        """Return where the elements lie one after another in a file that a worker may read, if they do."""
        return None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = np.empty(self.shape, self.dtype)
        self.read_into(array)
        return array if dtype is None else array.astype(dtype, copy=False)


Tensor: TypeAlias = NDArray[Any] | Source


def array_of(tensor: Tensor) -> NDArray[Any]:
    """Return the tensor as an array. A source is read, which may raise BadInput."""
    return np.asarray(tensor)


class FilledSlot(ABC):
    """A slot that a front has borrowed and filled with the one input of a request."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of bytes of the input."""

    @abstractmethod
    def view(self) -> memoryview:
        """Return the bytes of the input."""

    @abstractmethod
    def exchange(self, arena: object, model: str, slot: int) -> int | None:
        """Take a free slot in place of this one, and return this one. Return None for another model or arena."""


class SlotTensor(Source):
    """A tensor that lies in a slot already. Its request takes the slot instead of a copy."""

    def __init__(self, filled: FilledSlot, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int = 0) -> None:
        self.dtype = dtype
        self.shape = shape
        self._filled = filled
        self._offset = offset

    def __getitem__(self, row: int) -> "SlotTensor":
        shape = self.shape[1:]
        return SlotTensor(self._filled, self.dtype, shape, self._offset + row * self._nbytes(shape))

    def _nbytes(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape) * self.dtype.itemsize

    def read_into(self, array: NDArray[Any]) -> None:
        count = math.prod(self.shape)
        np.copyto(array, np.frombuffer(self._filled.view(), self.dtype, count, self._offset).reshape(self.shape))

    def exchange(self, arena: object, model: str, slot: int) -> int | None:
        """Return the slot in which this tensor lies alone, for a free one. Return None if it must be copied."""
        if self._nbytes(self.shape) != len(self._filled):
            return None
        return self._filled.exchange(arena, model, slot)
