"""Tensors of any library as arrays of numpy, and as numbers with which one can calculate."""

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError
from headrace.host.compare.stages import Tensors
from headrace.host.dpu.processors import BFLOAT16, of_bfloat16


class CandidateError(HeadraceError):
    """The candidate made no tensor of a file. The message says what to change."""


def as_tensors(answer: Any) -> Tensors:
    """Return what a function answered as arrays by name. A single tensor has the name "".

    Raises CandidateError for anything that is no tensor."""
    if hasattr(answer, "items"):
        return {str(name): _as_array(value, f" {name!r}") for name, value in answer.items()}
    return {"": _as_array(answer, "")}


def _as_array(value: Any, name: str) -> NDArray[Any]:
    kind = type(value).__name__
    if hasattr(value, "detach"):  # a tensor of torch
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            return np.asarray(value.contiguous().view(importlib.import_module("torch").uint16).numpy()).view(BFLOAT16)
        value = value.numpy()
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(value, object)  # rows of several lengths
    if array.dtype.kind not in "biuf" and array.dtype != BFLOAT16:
        raise CandidateError(
            f"it answers {kind}{name}, which is no tensor of numbers; answer an array or a dict of arrays"
        )
    return array


def numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Return values as floating-point numbers. bfloat16, which comes as its bits, becomes float32."""
    array = np.asarray(values)
    if array.dtype == BFLOAT16:
        return of_bfloat16(array)
    wide = array.dtype.kind in "biu" or array.dtype.itemsize > 4
    return array.astype(np.float64 if wide else np.float32)
