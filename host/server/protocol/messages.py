"""The Open Inference Protocol v2 without a transport: datatypes, tensors as bytes, requests, answers, and what each
error is called on HTTP and on gRPC.

https://github.com/kserve/open-inference-protocol, with Triton's binary tensor data and classification extensions.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput, CorruptInput, HeadraceError, UnknownModel, UnsupportedInput, UsageError
from headrace.host.dpu.preprocessor import PreprocessorUnavailable
from headrace.host.live.results import NoWorker, Overloaded, RuntimeClosed, TooLate
from headrace.host.server.protocol.codings import UnknownCoding
from headrace.host.server.protocol.shared_memory import Window
from headrace.host.workers.channel import WorkerLost

SERVER = "headrace"
VERSION = "1"  # of every model: there are no others
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "schedule_policy",
    "statistics",
)

DATATYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
DATATYPE_OF = {dtype: datatype for datatype, dtype in DATATYPES.items()}
BYTES = "BYTES"  # its tensors are arrays of objects, which are `bytes`
MAX_RANK = 8
MAX_FIELDS = 1024  # inputs, outputs and parameters of a request, together
MAX_NUMBERS = 1 << 20  # numbers of a tensor that is no bytes: they become Python's, one by one, which takes some 20 ms
MAX_OBJECTS = 1 << 16  # elements of a tensor of BYTES, and in JSON of BOOL
MAX_CLASSES = 1000  # of the classification extension, in an answer's row
_LENGTH = struct.Struct("<I")

T = TypeVar("T")


class Unauthorized(HeadraceError):
    """The request has not the token of this server."""


class TooLarge(BadInput):
    """The request's body is larger than this server takes."""


class Misdirected(HeadraceError):
    """The request's Host is no name of this server."""


class CrossSite(HeadraceError):
    """A page of another site sent the request."""


class Draining(HeadraceError):
    """The server is about to end."""


class Outcome(NamedTuple):
    """What an error is: its label in metrics, HTTP status and gRPC status."""

    name: str
    http: int
    grpc: str


OK = Outcome("ok", 200, "OK")
CANCELLED = Outcome("cancelled", 499, "CANCELLED")  # nobody is left to see it
INTERNAL = Outcome("failed", 500, "INTERNAL")
_OUTCOMES: tuple[tuple[type[Exception], Outcome], ...] = (  # the first that fits
    (UnknownModel, Outcome("unknown", 404, "NOT_FOUND")),
    (Unauthorized, Outcome("unauthorized", 401, "UNAUTHENTICATED")),
    (Misdirected, Outcome("misdirected", 421, "PERMISSION_DENIED")),
    (CrossSite, Outcome("cross_site", 403, "PERMISSION_DENIED")),
    (TooLarge, Outcome("bad_request", 413, "INVALID_ARGUMENT")),
    (UnknownCoding, Outcome("bad_request", 415, "INVALID_ARGUMENT")),
    (Overloaded, Outcome("shed", 503, "RESOURCE_EXHAUSTED")),
    (MemoryError, Outcome("shed", 503, "RESOURCE_EXHAUSTED")),
    (TooLate, Outcome("late", 504, "DEADLINE_EXCEEDED")),
    (Draining, Outcome("unavailable", 503, "UNAVAILABLE")),
    (NoWorker, Outcome("unavailable", 503, "UNAVAILABLE")),
    (RuntimeClosed, Outcome("unavailable", 503, "UNAVAILABLE")),
    (WorkerLost, Outcome("unavailable", 503, "UNAVAILABLE")),
    (PreprocessorUnavailable, Outcome("unavailable", 503, "UNAVAILABLE")),
    (UsageError, Outcome("bad_request", 400, "INVALID_ARGUMENT")),
    (CorruptInput, Outcome("bad_request", 400, "INVALID_ARGUMENT")),
    (UnsupportedInput, Outcome("bad_request", 400, "INVALID_ARGUMENT")),
)


def outcome(error: BaseException) -> Outcome:
    """What is no error of the request's or of the server's state is INTERNAL: a network that raised, or a bug."""
    return next((found for kind, found in _OUTCOMES if isinstance(error, kind)), INTERNAL)


def told(error: Exception) -> str | None:
    """Return what a client is told of an error, or None for one of the server's own, which only the log tells."""
    if isinstance(error, MemoryError):
        return "the server is short of memory; try again"
    return str(error) if isinstance(error, HeadraceError) else None


def served(models: Mapping[str, T], name: str, version: str) -> T:
    """The one that a client asks for; any version where none is named. Raises UnknownModel."""
    if name not in models:
        raise UnknownModel.unnamed(name)
    if version not in ("", VERSION):
        raise UnknownModel(f"model {name!r} has no version {version!r}; its version is {VERSION}")
    return models[name]


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output that is asked for: itself, or with `classes` above 0 the labels of its largest elements. `binary` is of
    HTTP. With a `window` it is laid there, and not into the answer."""

    name: str
    classes: int = 0
    binary: bool = False
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class InferRequest:
    """`inputs` have the batch as their first dimension. Without `outputs` all of the model's are asked for, as `binary`
    says.

    `timeout_us`, `priority` and `max_tokens` of 0 are not given."""

    model: str
    inputs: Mapping[str, NDArray[Any]]
    outputs: Sequence[RequestedOutput] = ()
    version: str = ""
    id: str = ""
    timeout_us: int = 0
    priority: int = 0
    max_tokens: int = 0
    binary: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    wanted: RequestedOutput
    datatype: str
    array: NDArray[Any]


def checked_shape(name: str, shape: Any, elements: int) -> tuple[int, ...]:
    """Raises BadInput unless this is a list of at most MAX_RANK whole numbers of 0 or more, of a tensor of at most
    `elements`."""
    sizes = list(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else None
    if (
        sizes is None
        or len(sizes) > MAX_RANK
        or not all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**62 for size in sizes)
    ):
        raise BadInput(f"input {name!r}: its shape must be a list of at most {MAX_RANK} sizes of 0 or more")
    if math.prod(max(size, 1) for size in sizes) > elements:  # numpy counts so too, be a size 0
        raise BadInput(f"input {name!r} of shape {sizes} has too many elements; send at most {elements}")
    return tuple(sizes)


def numpy_type(name: str, datatype: Any) -> str:
    """Of all datatypes but BYTES. Raises BadInput."""
    dtype = DATATYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None:
        raise BadInput(f"input {name!r}: there is no datatype {datatype!r}; give {', '.join((*DATATYPES, BYTES))}")
    return dtype


def from_raw(name: str, datatype: Any, shape: tuple[int, ...], raw: Any) -> NDArray[Any]:
    """A tensor of its bytes, which for numbers stay where they are. Raises BadInput."""
    count = math.prod(shape)
    if datatype == BYTES:
        return bytes_tensor(name, shape, _elements(name, raw, checked_count(name, count)))
    dtype = np.dtype(numpy_type(name, datatype))
    if len(raw) != count * dtype.itemsize:
        raise BadInput(
            f"input {name!r}: {datatype} of shape {list(shape)} is {count * dtype.itemsize} bytes, and {len(raw)} came"
        )
    return np.frombuffer(raw, dtype).reshape(shape)


def checked_count(name: str, count: int) -> int:
    """Return the count of elements of a tensor of BYTES. Raises BadInput if they are too many."""
    if count > MAX_OBJECTS:
        raise BadInput(f"input {name!r} has {count} elements of {BYTES}; send at most {MAX_OBJECTS}")
    return count


def _elements(name: str, raw: Any, count: int) -> list[bytes]:
    """Return the elements of a tensor of BYTES. Each follows its length, which is 4 bytes, little endian.

    It stops after one more than `count`, because the shape then does not fit. Raises BadInput."""
    view, elements, at = memoryview(raw), list[bytes](), 0
    while at < len(view) and len(elements) <= count:
        if at + _LENGTH.size > len(view):
            raise BadInput(f"input {name!r}: its last element has no whole length")
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if at + length > len(view):
            raise BadInput(f"input {name!r}: an element of {length} bytes goes beyond its end")
        elements.append(bytes(view[at : at + length]))
        at += length
    return elements


def check_fits(name: str, shape: tuple[int, ...], count: int) -> None:
    """Raises BadInput unless a tensor of this shape has `count` elements."""
    if count != math.prod(shape):
        raise BadInput(f"input {name!r}: shape {list(shape)} does not hold the {count} elements that came")


def bytes_tensor(name: str, shape: tuple[int, ...], elements: Sequence[bytes]) -> NDArray[Any]:
    """Return a tensor of BYTES. Raises BadInput."""
    check_fits(name, shape, len(elements))
    checked_count(name, len(elements))
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(shape)


def to_raw(array: NDArray[Any]) -> bytes | memoryview:
    if array.dtype == object:
        return b"".join(_LENGTH.pack(len(element)) + element for element in array.ravel())
    return np.ascontiguousarray(array).data.cast("B") if array.size else b""


def classification(output: NDArray[Any], classes: int, labels: Sequence[str] | None) -> NDArray[Any]:
    """The `classes` largest elements of each row, largest first, as Triton writes them: `value:index` or
    `value:index:label`. BYTES of shape (rows, classes). Raises BadInput for NaN and for what is not a number."""
    rows = output.reshape(len(output), -1)
    if rows.dtype.kind not in "fiu" or rows.shape[1] == 0:
        raise BadInput(f"classification needs numbers, and the output is {rows.dtype} of shape {list(output.shape)}")
    count = min(classes, rows.shape[1])
    found = np.empty((len(rows), count), object)
    for number, row in enumerate(rows):
        for place, index in enumerate(_largest(-row.astype(np.float64), count)):
            text = f"{float(row[index]):f}:{index}"
            if labels is not None and index < len(labels):
                text += f":{labels[index]}"
            found[number, place] = text.encode()
    return found


def _largest(negated: NDArray[np.float64], count: int) -> list[int]:
    """Return the places of the `count` smallest numbers, in their order. Of equal ones the first wins; NaN is last."""
    if count < len(negated):
        bound = np.partition(negated, count - 1)[count - 1]
        chosen = np.flatnonzero(negated <= bound) if not np.isnan(bound) else np.arange(len(negated))
    else:
        chosen = np.arange(len(negated))
    best: list[int] = chosen[np.argsort(negated[chosen], kind="stable")][:count].tolist()
    return best
