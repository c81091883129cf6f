"""The tokens of networks with joined inputs (memory/layout.py), such as the patches of images.

A vision network also takes the grid of the patches of each image: its frames, rows and columns, in an input named
`image_grid_thw`. Their product is the number of patches. This is the place that knows of it. A wrong grid would shift
the patches of all images after it in a batch, so requests are checked.

This module does not import torch.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput
from headrace.host.memory.layout import TensorSpec

GRID = "image_grid_thw"
EXAMPLE = 32  # tokens of the larger example of a network, if it takes so many


def is_grid(spec: TensorSpec) -> bool:
    """Tell whether an input of a network with joined inputs is the grid of the tokens."""
    return spec.name == GRID and spec.shape == (3,)


def example_grid(tokens: int) -> tuple[int, int, int]:
    """Return a large grid of at most `tokens` tokens. Its sides are multiples of 4 or 2 if possible, as networks merge
    squares of tokens."""
    for side in (4, 2):
        if tokens >= side * side:
            rows = math.isqrt(tokens) // side * side
            return 1, rows, tokens // rows // side * side
    return 1, 1, tokens


def example_tokens(longest: int) -> tuple[int, int]:
    """Return the tokens of two requests, the smaller one first, from which the outputs of a network are known."""
    larger = math.prod(example_grid(min(longest, EXAMPLE)))
    return math.prod(example_grid(larger // 2)), larger


def example_batch(specs: Sequence[TensorSpec], tokens: Sequence[int]) -> list[NDArray[Any]]:
    """Return a batch of zeros for requests with these tokens, with their grids."""
    batch = [np.zeros(spec.batched(len(tokens), sum(tokens)), spec.dtype) for spec in specs]
    for spec, array in zip(specs, batch, strict=True):
        if is_grid(spec):
            array[...] = [example_grid(each) for each in tokens]
    return batch


def tokens_per_row(rows: int, rows_of_smaller: int, tokens: tuple[int, int]) -> int | None:
    """Return the `TensorSpec.tokens_per_row` of an output: 0 for one row a request, else the tokens of a row.

    Args:
        rows: Rows of the output for a batch of two requests.
        rows_of_smaller: Rows of the output for the smaller request alone.
        tokens: Tokens of the two requests, the smaller one first.

    Returns None for an output that has neither one row a request nor one row for some tokens.
    """
    if (rows, rows_of_smaller) == (2, 1):
        return 0
    smaller, both = tokens[0], sum(tokens)
    if rows < 1 or rows_of_smaller < 1 or both % rows or both // rows * rows_of_smaller != smaller:
        return None
    return both // rows


def checked_tokens(
    model: str, inputs: Sequence[TensorSpec], arrays: Sequence[NDArray[Any]], outputs: Sequence[TensorSpec]
) -> int:
    """Return the tokens of a request, or 0 for a network without joined inputs. Raises BadInput."""
    joined = {spec.name: len(array) for spec, array in zip(inputs, arrays, strict=True) if spec.joined}
    if not joined:
        return 0
    tokens = next(iter(joined.values()))
    if len(set(joined.values())) > 1 or tokens == 0:
        rows = ", ".join(f"{name} {length}" for name, length in joined.items())
        raise BadInput(f"model {model!r} takes one row a token in each of its inputs, 1 or more; the rows are {rows}")
    for spec in outputs:
        if spec.joined and tokens % spec.tokens_per_row:
            raise BadInput(
                f"model {model!r} makes a row of {spec.name!r} of {spec.tokens_per_row} tokens; {tokens} tokens are no "
                "multiple of that"
            )
    for spec, array in zip(inputs, arrays, strict=True):
        if is_grid(spec) and (array.min() < 1 or math.prod(array.tolist()) != tokens):
            raise BadInput(
                f"{GRID} of model {model!r} is {array.tolist()}, and the request has {tokens} patches; give the "
                "frames, the rows and the columns of its patches"
            )
    return tokens
