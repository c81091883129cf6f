"""The calls with tensors of the Open Inference Protocol over gRPC, on the bytes of their messages (see `wire`).

Most requests take this path, so mypyc compiles the module."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2 as pb

from headrace.batching import BadInput
from headrace.host.memory.sources import FilledSlot, Tensor
from headrace.host.server.inference import INLINE_BYTES
from headrace.host.server.observe.watch import RequestTrace
from headrace.host.server.protocol.descriptions import (
    MAX_KEPT,
    Description,
    Descriptions,
    InputDescription,
    OutputDescription,
    bound,
    check_new,
    key_of,
    place_of,
)
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.messages import (
    BYTES,
    MAX_CLASSES,
    MAX_NUMBERS,
    MAX_RANK,
    VERSION,
    InferRequest,
    Output,
    RequestedOutput,
    bytes_tensor,
    checked_shape,
    from_raw,
    from_slot,
    numpy_type,
    to_raw,
)
from headrace.host.server.protocol.shared_memory import Regions, Shared
from headrace.host.server.service import Service
from headrace.host.server.transport.grpc.wire import Bytes, Contents, Placed, parsed, separated, write_response

# The field with the numbers of a datatype that are not sent as bytes; FP16 has no such field.
_CONTENTS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
MAX_NAME = 256  # characters of a region's name; an answer with a longer one is not remembered
RAW = "raw"  # marks the key of a description whose inputs are raw contents
_PARAMETER = {str: "string_param", int: "int64_param", bool: "bool_param"}


def trace_of(context: Any, model: str) -> RequestTrace:
    metadata = dict(context.invocation_metadata())
    return RequestTrace(model, "grpc", context.peer(), str(metadata.get("traceparent", "")))


class TensorCalls:
    """The call ModelInfer."""

    def __init__(self, service: Service, limits: Limits, regions: Regions | None) -> None:
        self._service = service
        self._limits = limits
        self._regions = regions
        self._descriptions = Descriptions()

    async def infer(self, message: Bytes | Placed, context: Any) -> Sequence[Bytes]:
        read = received(message, self._limits, self._descriptions)
        with self._service.counted(trace_of(context, read.model)) as trace:
            self._service.model(read.model, read.version)
            inference = infer_request(read.description(), read.contents, self._regions)
            outputs = await self._service.infer(inference, trace)
            return infer_response(inference, outputs, trace.marks)


class Received(NamedTuple):
    """Hold a message of which only the model's name and version are checked to be text.

    `description` returns its description, and raises BadInput."""

    model: str
    version: str
    contents: Contents
    description: Callable[[], Description]


def received(message: Bytes | Placed, limits: Limits, descriptions: Descriptions) -> Received:
    """Read a ModelInferRequest. It is parsed unless its description is remembered. Raises BadInput."""
    # A message without raw contents is its own description.
    key = None if isinstance(message, Placed) else key_of(message, "")
    found = descriptions.find(key)
    contents: Contents = ()
    if found is None:
        said, contents = separated(message)
        key = key_of(said, RAW if contents else "")
        found = descriptions.find(key)
    if found is not None:
        return Received(found.request.model, found.request.version, contents, lambda: found)
    request, contents = parsed(said, contents)

    def read() -> Description:
        description = described(request, contents, limits)
        descriptions.keep(key, description)
        return description

    return Received(request.model_name, request.model_version, contents, read)


def infer_request(description: Description, contents: Contents, regions: Regions | None) -> InferRequest:
    """Return the inference request in a description and its raw contents. Raises BadInput and UnknownRegion."""
    raw = iter(contents)

    def taken(described: InputDescription) -> Tensor:
        data = next(raw, None)
        if data is None:
            raise BadInput(f"input {described.name!r} has no raw contents; give them for each input, or for none")
        if isinstance(data, FilledSlot):
            return from_slot(described.name, described.datatype, described.shape, data)
        return from_raw(described.name, described.datatype, described.shape, data)

    request = bound(description, Shared(regions), taken)
    if next(raw, None) is not None:
        raise BadInput(
            f"the request has {len(contents)} raw contents, more than its inputs outside shared memory; give one for "
            "each input"
        )
    return request


def described(request: Any, contents: Contents, limits: Limits) -> Description:
    """Return the description in a ModelInferRequest with these raw contents. Raises BadInput."""
    inputs = list[InputDescription]()
    for entry in request.inputs:
        check_new(entry.name, inputs)
        shape = checked_shape(entry.name, entry.shape[: MAX_RANK + 1], limits.elements)
        place = place_of(entry.name, plain(entry.parameters))
        array = _from_contents(entry, shape) if place is None and not contents else None
        inputs.append(InputDescription(entry.name, entry.datatype, shape, place, array))
    outputs = []
    for output in request.outputs:
        own = plain(output.parameters)
        classes = _number(own, "classification")
        if classes > MAX_CLASSES:
            raise BadInput(f"the request asks for a classification of {classes}; ask for at most {MAX_CLASSES} labels")
        outputs.append(OutputDescription(RequestedOutput(output.name, classes), place_of(output.name, own)))
    parameters = plain(request.parameters)
    inference = InferRequest(
        request.model_name,
        {},
        (),
        request.model_version,
        request.id,
        timeout_us=_number(parameters, "timeout"),
        priority=_number(parameters, "priority"),
        max_tokens=_number(parameters, "max_tokens"),
    )
    repeats = not request.raw_input_contents and all(each.array is None for each in inputs)
    return Description(inference, inputs, outputs, repeats)


async def joined(parts: Sequence[Bytes]) -> bytes:
    """Return the parts of an answer in one piece. A large answer is copied in a thread, so the event loop can
    continue."""
    if sum(map(len, parts)) <= INLINE_BYTES:
        return b"".join(parts)
    return await asyncio.to_thread(b"".join, parts)


def infer_response(
    request: InferRequest, outputs: Sequence[Output], parameters: Mapping[str, str | int | bool] = MappingProxyType({})
) -> list[Bytes]:
    """Return a ModelInferResponse as parts."""
    described: list[tuple[Any, ...]] = []
    contents: list[Bytes] = []
    repeats = not request.id and not parameters  # an id is seldom seen again
    for requested, datatype, shape, array, written in outputs:
        if array is not None:
            described.append((requested.name, datatype, shape))
            contents.append(to_raw(array))
        else:
            assert requested.window is not None
            described.append((requested.name, datatype, shape, *requested.window.described(written).items()))
            repeats = repeats and len(requested.window.region.name) <= MAX_NAME
            contents.append(b"")  # clients find the contents by the position of the output
    make = _remembered_response if repeats else _response
    return write_response(make(request.model, request.id, tuple(described), *parameters.items()), contents)


def _response(
    model: str, id: str, outputs: Sequence[tuple[Any, ...]], *parameters: tuple[str, str | int | bool]
) -> bytes:
    """Return the bytes of a ModelInferResponse without contents.

    An output is its name, its datatype, its shape, and its parameters as pairs."""
    answer = pb.ModelInferResponse(model_name=model, model_version=VERSION, id=id)
    _set(answer.parameters, dict(parameters))
    for name, datatype, shape, *own in outputs:
        _set(answer.outputs.add(name=name, datatype=datatype, shape=shape).parameters, dict(own))
    return bytes(answer.SerializeToString())


_remembered_response = lru_cache(maxsize=MAX_KEPT)(_response)


def plain(parameters: Any) -> dict[str, Any]:
    """Return the values of parameters of every type, by name."""
    chosen = ((name, each, each.WhichOneof("parameter_choice")) for name, each in parameters.items())
    return {name: getattr(each, kind) for name, each, kind in chosen if kind is not None}


def _set(parameters: Any, values: Mapping[str, str | int | bool]) -> None:
    for name, value in values.items():
        setattr(parameters[name], _PARAMETER[type(value)], value)


def _number(parameters: dict[str, Any], name: str) -> int:
    """Return a parameter, or 0 if it is absent. Raises BadInput."""
    value = parameters.get(name, 0)
    if type(value) is not int or not 0 <= value < 2**62:
        raise BadInput(f"the parameter {name} must be a whole number of 0 or more")
    return value


def _from_contents(entry: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    if entry.datatype == BYTES:
        return bytes_tensor(entry.name, shape, list(entry.contents.bytes_contents))
    dtype = numpy_type(entry.name, entry.datatype)
    if entry.datatype not in _CONTENTS:
        raise BadInput(f"input {entry.name!r}: send {entry.datatype} in raw_input_contents")
    values = getattr(entry.contents, _CONTENTS[entry.datatype])
    if len(values) > MAX_NUMBERS:
        raise BadInput(
            f"input {entry.name!r} has {len(values)} numbers; send more than {MAX_NUMBERS} in raw_input_contents"
        )
    try:
        array = np.fromiter(values, dtype, len(values))
    except OverflowError:
        raise BadInput(f"input {entry.name!r}: its data are outside the range of {entry.datatype}") from None
    return from_raw(entry.name, entry.datatype, shape, array.tobytes())
