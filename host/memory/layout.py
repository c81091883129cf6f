"""The inputs and outputs of a network as named tensors, without the batch dimension.

A batch is made of the tensors of its requests in one of two ways:

- Stacked: the batch is a new first dimension. If one dimension of the tensor is variable, shorter tensors are padded
  with zeros to the longest of the batch.
- Joined: the rows of the requests follow each other along the first dimension, which is variable. Nothing is padded.
  Qwen2-VL takes the patches of images in this way, and transformers, vLLM and TensorRT-LLM join them so. Each row of an
  input is a token. An output may have one row for several tokens, as Qwen2-VL merges four patches. The batch is split
  again by the tokens of each request.

All joined inputs of a network have the same number of tokens in one request. A stacked output of such a network has one
row for each request.
"""

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

    `tokens_per_row` is 0 for a tensor that a batch stacks. A tensor that a batch joins has a row for so many tokens, 1
    for inputs.

    Examples: `TensorSpec("audio", "float32", (-1,), longest=16000)` is a signal of at most 16000 samples.
    `TensorSpec("pixel_values", "float32", (-1, 1176), longest=4096, tokens_per_row=1)` are at most 4096 patches, which
    a batch joins.

    Raises UsageError for a shape with two variable dimensions, or with one and no `longest`. The variable dimension of
    a joined tensor must be the first one."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    longest: int = 0
    tokens_per_row: int = 0

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
        if self.tokens_per_row < 0 or (self.joined and self.variable != 0):
            raise UsageError(
                f"tensor {self.name!r} has shape {self.shape} and tokens_per_row={self.tokens_per_row}; the variable "
                "dimension of a joined tensor must be the first one"
            )

    @property
    def joined(self) -> bool:
        """Tell whether a batch joins the tensors of its requests along their first dimension."""
        return self.tokens_per_row > 0

    @property
    def variable(self) -> int | None:
        """Return the index of the variable dimension, or None if every dimension is fixed."""
        return self.shape.index(VARIABLE) if VARIABLE in self.shape else None

    def sized(self, length: int) -> tuple[int, ...]:
        """Return the shape with `length` in place of the variable dimension, if there is one."""
        return tuple(length if size == VARIABLE else size for size in self.shape)

    def batched(self, count: int, length: int) -> tuple[int, ...]:
        """Return the shape of a batch of `count` requests.

        `length` is the longest length of a stacked tensor, and the sum of the lengths of a joined one."""
        return self.sized(length) if self.joined else (count, *self.sized(length))

    def holds(self, shape: tuple[int, ...]) -> bool:
        """Tell whether a batch of one request may have this shape. A stacked one then begins with 1."""
        if not self.joined and shape[:1] != (1,):
            return False
        own = shape if self.joined else shape[1:]
        length = own[self.variable] if self.variable is not None and self.variable < len(own) else 0
        return own == self.sized(length) and length <= self.longest

    @property
    def nbytes(self) -> int:
        """Return the size in bytes of the tensor with its variable dimension at `longest`."""
        return math.prod(self.sized(self.longest)) * np.dtype(self.dtype).itemsize
