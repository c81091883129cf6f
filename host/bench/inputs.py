"""What requests hold: random tensors as the model's metadata has them, or photos and sounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.utils import serialize_byte_tensor, triton_to_np_dtype

from headrace.batching import UsageError

VARIANTS = 8  # different requests of random tensors, sent in turn
MAX_BYTES = 256 << 20  # of all requests that are made ready
BYTES = "BYTES"
FILES = {  # what inputs of these names take; of any other name, photos
    "IMAGE": ("photo", (".jpg", ".jpeg", ".png", ".webp")),
    "AUDIO": ("sound", (".wav", ".flac")),
}


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """The first of `shape` is the batch where that is -1; other sizes of -1 are open."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """`takes_binary` is whether the server has the binary tensor data extension."""

    name: str
    inputs: Sequence[TensorMetadata]
    outputs: Sequence[TensorMetadata]
    takes_binary: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor's bytes lie in a region of shared memory."""

    region: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """`array` has the batch; of BYTES it holds objects, which are `bytes`. With a `place` it goes by that."""

    name: str
    datatype: str
    array: NDArray[Any]
    place: Place | None = None


def random_inputs(model: ModelMetadata, open_size: int, seed: int) -> list[list[Tensor]]:
    """Several requests of one row: floats of 0 to 1, whole numbers of 0 and 1, `open_size` for sizes that the model
    leaves open. Raises UsageError."""
    given = [tensor for tensor in model.inputs if tensor.datatype != BYTES]  # which stand beside the others for files
    if not given:
        raise UsageError(
            f"model {model.name!r} takes {BYTES}: give --input with a file or a folder of photos or sounds"
        )
    size = 0
    for tensor in given:
        size += math.prod(row_shape(tensor, open_size)) * dtype_of(tensor).itemsize
    if size > MAX_BYTES:
        raise UsageError(f"a request has {size >> 20} MiB, and at most {MAX_BYTES >> 20} can be sent; see --open-size")
    rng = np.random.default_rng((seed, 3))
    return [
        [Tensor(tensor.name, tensor.datatype, _random(tensor, open_size, rng)) for tensor in given]
        for _ in range(max(1, min(VARIANTS, MAX_BYTES // max(size, 1))))
    ]


def file_inputs(model: ModelMetadata, path: Path) -> list[list[Tensor]]:
    """A request of one photo or sound for each file. Raises UsageError."""
    takes = [tensor for tensor in model.inputs if tensor.datatype == BYTES]
    takes = [tensor for tensor in takes if tensor.name in FILES] or takes
    if len(takes) != 1 or abs(math.prod(takes[0].shape)) != 1:
        raise UsageError(
            f"--input: model {model.name!r} takes no photo or sound, which is one element of {BYTES}; leave it out"
        )
    kind, suffixes = FILES.get(takes[0].name, FILES["IMAGE"])
    files = sorted(each for each in path.iterdir() if each.suffix.lower() in suffixes) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"--input {path}: the folder has no {kind} ({', '.join(suffixes)})")
    if sum(file.stat().st_size for file in files) > MAX_BYTES:
        raise UsageError(f"--input {path}: the {kind}s have more than {MAX_BYTES >> 20} MiB; give fewer")
    found = []
    for file in files:
        array = np.empty(1, object)
        array[0] = file.read_bytes()
        found.append([Tensor(takes[0].name, BYTES, array.reshape(row_shape(takes[0], 1)))])
    return found


def raw(tensor: Tensor) -> bytes:
    """As the protocol has it."""
    if tensor.datatype == BYTES:
        return bytes(serialize_byte_tensor(tensor.array).item())
    return np.ascontiguousarray(tensor.array).tobytes()


def row_shape(tensor: TensorMetadata, open_size: int) -> tuple[int, ...]:
    """Of a batch of one."""
    batch = [1 if size < 0 else size for size in tensor.shape[:1]]
    return (*batch, *(open_size if size < 0 else size for size in tensor.shape[1:]))


def dtype_of(tensor: TensorMetadata) -> np.dtype[Any]:
    """Of numbers. Raises UsageError."""
    found = triton_to_np_dtype(tensor.datatype)
    if found is None:
        raise UsageError(f"tensor {tensor.name!r} is {tensor.datatype}, which this client cannot make")
    dtype: np.dtype[Any] = np.dtype(found)
    return dtype


def _random(tensor: TensorMetadata, open_size: int, rng: np.random.Generator) -> NDArray[Any]:
    dtype, shape = dtype_of(tensor), row_shape(tensor, open_size)
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.random(shape, np.float32).astype(dtype)
