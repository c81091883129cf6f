"""The inputs and outputs of a network as named tensors, without the batch dimension."""

import math
from dataclasses import dataclass

import numpy as np

from headrace.batching import UsageError

VARIABLE = -1


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Describe one named input or output of a network for one request.

    `shape` has no batch dimension. One dimension may be variable and is then written as -1 (VARIABLE). Each request
    chooses the size of that dimension: 0 to `longest` elements.

    Example: `TensorSpec("audio", "float32", (-1,), longest=16000)` is a signal of at most 16000 samples.

    Raises UsageError for a shape with two variable dimensions, or with one and no `longest`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    longest: int = 0

    def __post_init__(self) -> None:
        variable = self.shape.count(VARIABLE)
        if variable > 1 or any(size < VARIABLE for size in self.shape):
            raise UsageError(
                f"tensor {self.name!r} has shape {self.shape}; give sizes of 0 or more, and -1 at most once"
            )
        if variable and self.longest < 1:
            raise UsageError(
                f"tensor {self.name!r} has shape {self.shape} and longest={self.longest}; "
                "give the largest size of its variable dimension as `longest`, 1 or more"
            )

    @property
    def variable(self) -> int | None:
        """Return the index of the variable dimension, or None if every dimension is fixed."""
        return self.shape.index(VARIABLE) if VARIABLE in self.shape else None

    def sized(self, length: int) -> tuple[int, ...]:
        """Return the shape with `length` in place of the variable dimension, if there is one."""
        return tuple(length if size == VARIABLE else size for size in self.shape)

    @property
    def nbytes(self) -> int:
        """Return the size in bytes of the tensor with its variable dimension at `longest`."""
        return math.prod(self.sized(self.longest)) * np.dtype(self.dtype).itemsize
