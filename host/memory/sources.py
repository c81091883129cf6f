"""Tensors that lie elsewhere, and that can be read straight into a slot.

Rule: whoever fills a slot looks at the type and the shape of a source before it takes the slot. Then the source writes
its elements there. An array is no source, because its elements are at hand."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray


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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = np.empty(self.shape, self.dtype)
        self.read_into(array)
        return array if dtype is None else array.astype(dtype, copy=False)


Tensor = NDArray[Any] | Source


def array_of(tensor: Tensor) -> NDArray[Any]:
    """Return the tensor as an array. A source is read, which may raise BadInput."""
    return np.asarray(tensor)
