"""The Open Inference Protocol v2 without a transport: datatypes, tensors as bytes, requests, answers, and the HTTP and
gRPC status of each error.

Source: https://github.com/kserve/open-inference-protocol, with Triton's extensions for binary tensor data and
classification."""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput, CorruptInput, HeadraceError, UnknownModel, UnsupportedInput, UsageError
from headrace.host.dpu.preprocessor import PreprocessorUnavailable
from headrace.host.live.results import NoWorker, Overloaded, RuntimeClosed, TooLate
from headrace.host.memory.sources import FilledSlot, SlotTensor, Tensor
from headrace.host.network.browsers import CrossSite, Misdirected
from headrace.host.server.protocol.codings import UnknownCoding
from headrace.host.server.protocol.shared_memory import SharedTensor, Window
from headrace.host.workers.channel import WorkerLost

SERVER = "headrace"
VERSION = "1"  # the version of every model; there are no others
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
_DTYPES = {datatype: np.dtype(dtype) for datatype, dtype in DATATYPES.items()}
BYTES = "BYTES"  # a tensor of this type is an array of objects of type `bytes`
MAX_RANK = 8
MAX_FIELDS = 1024  # inputs, outputs and parameters of a request, together
# Numbers of a tensor that is not sent as bytes. Each becomes a Python object, which takes some 20 ms for all.
MAX_NUMBERS = 1 << 20
MAX_OBJECTS = 1 << 16  # elements of a tensor of BYTES, or of BOOL in JSON
MAX_CLASSES = 1000  # labels of one row, from the classification extension
_LENGTH = struct.Struct("<I")

T = TypeVar("T")


class Unauthorized(HeadraceError):
    """The request lacks the token of this server."""


class TooLarge(BadInput):
    """The body of the request exceeds the limit of this server."""


class Draining(HeadraceError):
    """The server is shutting down."""


class Outcome(NamedTuple):
    """Name the outcome of a request: its label in metrics, its HTTP status and its gRPC status."""

    name: str
    http: int
    grpc: str


OK = Outcome("ok", 200, "OK")
CANCELLED = Outcome("cancelled", 499, "CANCELLED")  # the client is gone, so this status is only recorded
INTERNAL = Outcome("failed", 500, "INTERNAL")
_OUTCOMES: tuple[tuple[type[Exception], Outcome], ...] = (  # the first class that matches decides
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
    """Return the outcome that an error stands for.

    Errors other than those of requests and of the server's state are INTERNAL: a network raised, or the server has a
    bug."""
    return next((each for kind, each in _OUTCOMES if isinstance(error, kind)), INTERNAL)


def client_text(error: Exception) -> str | None:
    """Return the error text for the client. Returns None for an internal error, which only the log shows."""
    if isinstance(error, MemoryError):
        return "the server is short of memory; try again"
    return str(error) if isinstance(error, HeadraceError) else None


def served(models: Mapping[str, T], name: str, version: str) -> T:
    """Return the model that a client asks for. An empty version stands for any. Raises UnknownModel."""
    if name not in models:
        raise UnknownModel.unnamed(name)
    if version not in ("", VERSION):
        raise UnknownModel(f"model {name!r} has no version {version!r}; its version is {VERSION}")
    return models[name]


class RequestedOutput(NamedTuple):
    """Describe an output that the client asks for.

    Args:
        classes: return the labels of so many largest elements; 0 returns the output itself.
        binary: return the output as binary data; for HTTP.
        window: write the output there, not into the answer."""

    name: str
    classes: int = 0
    binary: bool = False
    window: Window | None = None


class InferRequest(NamedTuple):
    """Hold one request for an inference.

    The first dimension of each input is the batch. Without `outputs` the answer has all outputs of the model, in the
    form that `binary` selects. A `timeout_us`, `priority` or `max_tokens` of 0 is not given."""

    model: str
    inputs: Mapping[str, Tensor]
    outputs: Sequence[RequestedOutput] = ()
    version: str = ""
    id: str = ""
    timeout_us: int = 0
    priority: int = 0
    max_tokens: int = 0
    binary: bool = False


class Output(NamedTuple):
    """Hold one output of an answer and the request for it.

    Either `array` has its elements, or they are in the requested window and take `written` bytes there."""

    requested: RequestedOutput
    datatype: str
    shape: tuple[int, ...]
    array: NDArray[Any] | None = None
    written: int = 0


def checked_shape(name: str, shape: Any, elements: int) -> tuple[int, ...]:
    """Return the shape of an input as a tuple.

    Raises BadInput unless it is a list of at most MAX_RANK sizes of 0 or more, for at most `elements` elements."""
    sizes = list(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else None
    if (
        sizes is None
        or len(sizes) > MAX_RANK
        or not all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**62 for size in sizes)
    ):
        raise BadInput(f"input {name!r}: give its shape as a list of at most {MAX_RANK} sizes of 0 or more")
    if math.prod(max(size, 1) for size in sizes) > elements:  # numpy also counts a size of 0 as 1 here
        raise BadInput(f"input {name!r} of shape {sizes} has too many elements; send at most {elements}")
    return tuple(sizes)


def numpy_type(name: str, datatype: Any) -> str:
    """Return the numpy type of a datatype other than BYTES. Raises BadInput."""
    dtype = DATATYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None:
        raise BadInput(f"input {name!r}: unknown datatype {datatype!r}; give one of {', '.join((*DATATYPES, BYTES))}")
    return dtype


def from_raw(name: str, datatype: Any, shape: tuple[int, ...], raw: Any) -> NDArray[Any]:
    """Return the tensor whose bytes these are. A tensor of numbers uses the bytes in place, without a copy. Raises
    BadInput."""
    if datatype == BYTES:
        return bytes_tensor(name, shape, _elements(name, raw, checked_count(name, math.prod(shape))))
    return np.frombuffer(raw, _checked_type(name, datatype, shape, len(raw))).reshape(shape)


def from_slot(name: str, datatype: Any, shape: tuple[int, ...], filled: FilledSlot) -> Tensor:
    """Return the tensor that a front has received into a slot. Raises BadInput."""
    if datatype == BYTES:
        return from_raw(name, datatype, shape, filled.view())
    return SlotTensor(filled, _checked_type(name, datatype, shape, len(filled)), shape)


def from_window(name: str, datatype: Any, shape: tuple[int, ...], window: Window) -> Tensor:
    """Return the tensor in a window. A tensor of numbers is not read before its slot is known. Raises BadInput."""
    if datatype == BYTES:
        return from_raw(name, datatype, shape, window.read())
    return SharedTensor(window, _checked_type(name, datatype, shape, window.byte_size), shape)


def _checked_type(name: str, datatype: Any, shape: tuple[int, ...], size: int) -> np.dtype[Any]:
    """Return the numpy type of a tensor of numbers that has `size` bytes. Raises BadInput."""
    dtype = _DTYPES[DATATYPE_OF[numpy_type(name, datatype)]]
    if size != math.prod(shape) * dtype.itemsize:
        raise BadInput(
            f"input {name!r}: {datatype} of shape {list(shape)} needs {math.prod(shape) * dtype.itemsize} bytes; the "
            f"request has {size}"
        )
    return dtype


def checked_count(name: str, count: int) -> int:
    """Return the number of elements of a tensor of BYTES. Raises BadInput if there are too many."""
    if count > MAX_OBJECTS:
        raise BadInput(f"input {name!r} has {count} elements of {BYTES}; send at most {MAX_OBJECTS}")
    return count


def _elements(name: str, raw: Any, count: int) -> list[bytes]:
    """Return the elements of a tensor of BYTES. Each element follows its length, which is 4 bytes in little endian.

    It stops after `count` + 1 elements, because the shape then does not fit. Raises BadInput."""
    view, elements, at = memoryview(raw), list[bytes](), 0
    while at < len(view) and len(elements) <= count:
        if at + _LENGTH.size > len(view):
            raise BadInput(f"input {name!r}: its data end inside the length of an element")
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if at + length > len(view):
            raise BadInput(f"input {name!r}: an element of {length} bytes goes beyond the end of its data")
        elements.append(bytes(view[at : at + length]))
        at += length
    return elements


def check_fits(name: str, shape: tuple[int, ...], count: int) -> None:
    """Raise BadInput unless a tensor of this shape has `count` elements."""
    if count != math.prod(shape):
        raise BadInput(f"input {name!r}: shape {list(shape)} does not fit the {count} elements of the request")


def bytes_tensor(name: str, shape: tuple[int, ...], elements: Sequence[bytes]) -> NDArray[Any]:
    """Return a tensor of BYTES with these elements. Raises BadInput."""
    check_fits(name, shape, len(elements))
    checked_count(name, len(elements))
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(shape)


def to_raw(array: NDArray[Any]) -> bytes | memoryview:
    """Return the bytes of a tensor, in the protocol's binary format."""
    if array.dtype == object:
        return b"".join(_LENGTH.pack(len(element)) + element for element in array.ravel())
    return np.ascontiguousarray(array).data.cast("B") if array.size else b""


def classification(output: NDArray[Any], classes: int, labels: Sequence[str] | None) -> NDArray[Any]:
    """Return the `classes` largest elements of each row, largest first.

    The result has BYTES of shape (rows, classes). Each element is `value:index` or `value:index:label`, as Triton
    writes it. Raises BadInput for an output that is not numeric or is empty."""
    rows = output.reshape(len(output), -1)
    if rows.dtype.kind not in "fiu" or rows.shape[1] == 0:
        raise BadInput(
            f"classification needs numbers, but the output is {rows.dtype} of shape {list(output.shape)}; "
            "ask for the output itself"
        )
    count = min(classes, rows.shape[1])
    labelled = np.empty((len(rows), count), object)
    for number, row in enumerate(rows):
        for place, index in enumerate(_largest(-row.astype(np.float64), count)):
            text = f"{float(row[index]):f}:{index}"
            if labels is not None and index < len(labels):
                text += f":{labels[index]}"
            labelled[number, place] = text.encode()
    return labelled


def _largest(negated: NDArray[np.float64], count: int) -> list[int]:
    """Return the places of the `count` smallest numbers in rising order. The first of equal numbers wins; NaN is
    last."""
    if count < len(negated):
        bound = np.partition(negated, count - 1)[count - 1]
        chosen = np.flatnonzero(negated <= bound) if not np.isnan(bound) else np.arange(len(negated))
    else:
        chosen = np.arange(len(negated))
    best: list[int] = chosen[np.argsort(negated[chosen], kind="stable")][:count].tolist()
    return best
