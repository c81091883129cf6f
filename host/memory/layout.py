"""What a network takes and gives: named tensors, without the batch dimension."""

import math
from dataclasses import dataclass

import numpy as np

from headrace.batching import UsageError

VARIABLE = -1


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One named input or output of a network for one request, so `shape` is without the batch.

    One dimension may be variable, written -1 (VARIABLE): it has 0 to `longest` elements, which every request chooses
    for itself. Raises UsageError."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    longest: int = 0

    def __post_init__(self) -> None:
        variable = self.shape.count(VARIABLE)
        if variable > 1 or any(size < VARIABLE for size in self.shape):
            raise UsageError(f"tensor {self.name!r} of shape {self.shape}: give sizes of 0 or more, at most one -1")
        if variable and self.longest < 1:
            raise UsageError(f"tensor {self.name!r} of shape {self.shape}: name the longest of its variable size")

    @property
    def variable(self) -> int | None:
        """Which dimension is variable; None if none is."""
        return self.shape.index(VARIABLE) if VARIABLE in self.shape else None

    def sized(self, length: int) -> tuple[int, ...]:
        """The shape with the variable dimension, if there is one, of `length` elements."""
        return tuple(length if size == VARIABLE else size for size in self.shape)

    @property
    def nbytes(self) -> int:
        """Of the largest tensor of this kind."""
        return math.prod(self.sized(self.longest)) * np.dtype(self.dtype).itemsize
