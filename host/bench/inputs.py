"""The contents of requests: random tensors that match the metadata of a model, or image and audio files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.utils import serialize_byte_tensor, triton_to_np_dtype

from headrace.batching import UsageError

VARIANTS = 8  # number of different requests with random tensors, which are sent in turn
MAX_BYTES = 256 << 20  # limit on the total size of the prepared requests
BYTES = "BYTES"
FILES = {  # kind and file name suffixes of the files that an input takes, by its name; an input of another name: images
    "IMAGE": ("image", (".jpg", ".jpeg", ".png", ".webp")),
    "AUDIO": ("audio file", (".wav", ".flac")),
}


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """Describe one tensor of a model. A first size of -1 is the batch. Any other size of -1 is open: the request
    chooses it."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """Describe a model. `takes_binary` says whether the server has the binary tensor data extension."""

    name: str
    inputs: Sequence[TensorMetadata]
    outputs: Sequence[TensorMetadata]
    takes_binary: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Name the place of a tensor in a region of shared memory. `offset` and `size` are bytes."""

    region: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """Hold one input of a request.

    `array` includes the batch dimension. An array of BYTES holds Python objects of type `bytes`. A tensor with a
    `place` is sent as a reference to shared memory."""

    name: str
    datatype: str
    array: NDArray[Any]
    place: Place | None = None


def random_inputs(model: ModelMetadata, open_size: int, seed: int) -> list[list[Tensor]]:
    """Return several requests with one row each.

    Floats are from 0 to 1, whole numbers are 0 or 1. `open_size` replaces every size that the model leaves open. Raises
    UsageError."""
    # An input of BYTES is an alternative to the others, for files.
    numeric = [tensor for tensor in model.inputs if tensor.datatype != BYTES]
    if not numeric:
        raise UsageError(
            f"model {model.name!r} takes {BYTES}; give --input with a file or a folder of images or audio files"
        )
    size = 0
    for tensor in numeric:
        size += math.prod(row_shape(tensor, open_size)) * dtype_of(tensor).itemsize
    if size > MAX_BYTES:
        raise UsageError(
            f"a request has {size >> 20} MiB, over the limit of {MAX_BYTES >> 20} MiB; give a smaller --open-size"
        )
    rng = np.random.default_rng((seed, 3))
    return [
        [Tensor(tensor.name, tensor.datatype, _random(tensor, open_size, rng)) for tensor in numeric]
        for _ in range(max(1, min(VARIANTS, MAX_BYTES // max(size, 1))))
    ]


def file_inputs(model: ModelMetadata, path: Path) -> list[list[Tensor]]:
    """Return one request for each image or audio file at `path`, a file or a folder. Raises UsageError."""
    inputs = [tensor for tensor in model.inputs if tensor.datatype == BYTES]
    inputs = [tensor for tensor in inputs if tensor.name in FILES] or inputs
    if len(inputs) != 1 or abs(math.prod(inputs[0].shape)) != 1:
        raise UsageError(
            f"--input: model {model.name!r} has no input for files, which is one element of {BYTES}; leave --input out"
        )
    kind, suffixes = FILES.get(inputs[0].name, FILES["IMAGE"])
    files = sorted(each for each in path.iterdir() if each.suffix.lower() in suffixes) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"--input {path}: the folder has no {kind} ({', '.join(suffixes)})")
    if sum(file.stat().st_size for file in files) > MAX_BYTES:
        raise UsageError(f"--input {path}: the {kind}s have more than {MAX_BYTES >> 20} MiB; give fewer files")
    requests = []
    for file in files:
        array = np.empty(1, object)
        array[0] = file.read_bytes()
        requests.append([Tensor(inputs[0].name, BYTES, array.reshape(row_shape(inputs[0], 1)))])
    return requests


def raw(tensor: Tensor) -> bytes:
    """Return the tensor's bytes in the encoding of the protocol."""
    if tensor.datatype == BYTES:
        return bytes(serialize_byte_tensor(tensor.array).item())
    return np.ascontiguousarray(tensor.array).tobytes()


def row_shape(tensor: TensorMetadata, open_size: int) -> tuple[int, ...]:
    """Return the shape of a batch of one, with `open_size` in place of every open size."""
    batch = [1 if size < 0 else size for size in tensor.shape[:1]]
    return (*batch, *(open_size if size < 0 else size for size in tensor.shape[1:]))


def dtype_of(tensor: TensorMetadata) -> np.dtype[Any]:
    """Return the numpy type of a numeric tensor. Raises UsageError."""
    numpy_type = triton_to_np_dtype(tensor.datatype)
    if numpy_type is None:
        raise UsageError(f"tensor {tensor.name!r} has type {tensor.datatype}, which this client cannot create")
    dtype: np.dtype[Any] = np.dtype(numpy_type)
    return dtype


def _random(tensor: TensorMetadata, open_size: int, rng: np.random.Generator) -> NDArray[Any]:
    dtype, shape = dtype_of(tensor), row_shape(tensor, open_size)
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.random(shape, np.float32).astype(dtype)
