"""The Open Inference Protocol v2 over gRPC: `inference.GRPCInferenceService`, with Triton's messages.

Calls with tensors are handled as bytes (see `wire`). All other calls use protobuf's messages."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import grpc
import numpy as np
from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2 as pb

from headrace.batching import BadInput, UnknownModel
from headrace.host.memory.sources import FilledSlot, Tensor
from headrace.host.server import describe
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
    Outcome,
    Output,
    RequestedOutput,
    bytes_tensor,
    checked_shape,
    client_text,
    from_raw,
    from_slot,
    numpy_type,
    outcome,
    to_raw,
)
from headrace.host.server.protocol.shared_memory import Regions, Shared
from headrace.host.server.service import INLINE_BYTES, Service
from headrace.host.server.transport.grpc.wire import (
    Bytes,
    Contents,
    Placed,
    parsed,
    read_request,
    separated,
    write_response,
    write_stream_response,
)

SERVICE = "inference.GRPCInferenceService"
# Limit on the unanswered requests of a stream, and on its answers that the client has not received. At the limit the
# server reads no further request, or makes no further answer.
STREAM_AHEAD = 64
# Parameters of Triton's decoupled models: this answer is the last one; the client wants an empty answer as the last.
FINAL, WANTS_FINAL = "triton_final_response", "triton_enable_empty_final_response"
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

# Handles a message, with the call's context, and returns the answer: in one piece, or in parts that follow each other.
Call = Callable[[Bytes, Any], Awaitable[bytes | Sequence[Bytes]]]
# Handles the messages of a stream, with its context, and yields the answers. None is a message without room.
Stream = Callable[[AsyncIterator[Bytes | None], Any], AsyncIterator[bytes]]
# Reserves room for a message of a stream inside its context. Raises Overloaded if there is none, and for None.
Room = Callable[[Bytes | None, Any], AbstractContextManager[None]]

_log = logging.getLogger(__name__)


def status_of(error: Exception) -> tuple[Outcome, str]:
    text = client_text(error)
    if text is None:
        _log.error("a call failed because of an internal error", exc_info=error)
    return outcome(error), text or "the server failed; its log has the reason"


async def abort(context: Any, error: Exception) -> None:
    """End the call with the status of an error."""
    result, text = status_of(error)
    await context.abort(grpc.StatusCode[result.grpc], text)


def trace_of(context: Any, model: str) -> RequestTrace:
    metadata = dict(context.invocation_metadata())
    return RequestTrace(model, "grpc", context.peer(), str(metadata.get("traceparent", "")))


class Endpoints(NamedTuple):
    """Hold the handlers of all calls, by the names of the calls. A transport carries their bytes."""

    unary: Mapping[str, Call]
    streams: Mapping[str, Stream]


def endpoints(service: Service, limits: Limits, regions: Regions | None, room: Room) -> Endpoints:
    """Return the handlers of the protocol."""
    unary = dict[str, Call]()
    calls, tensors = _Calls(service, regions), _TensorCalls(service, limits, regions, room)
    for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
        call = getattr(calls, method.name, None)
        if call is not None:  # the transport answers a call without a handler with UNIMPLEMENTED
            unary[method.name] = on_messages(call, message_factory.GetMessageClass(method.input_type))
    return Endpoints({**unary, "ModelInfer": tensors.infer}, {"ModelStreamInfer": tensors.stream_infer})


def on_messages(call: Callable[[Any], Awaitable[Any]], kind: Any) -> Callable[[Bytes, Any], Coroutine[Any, Any, bytes]]:
    """Turn a call on protobuf messages of the class `kind` into a call on bytes."""

    async def run(message: Bytes, _: Any) -> bytes:
        try:
            request = kind.FromString(message)
        except DecodeError:
            raise BadInput(f"the message is not a {kind.DESCRIPTOR.name}") from None
        return bytes((await call(request)).SerializeToString())

    return run


class _Calls:
    """The calls without tensors, by their names. An error that they raise becomes the status of the answer."""

    def __init__(self, service: Service, regions: Regions | None) -> None:
        self._service = service
        self._regions = regions

    async def ServerLive(self, request: Any) -> Any:
        return pb.ServerLiveResponse(live=self._service.live)

    async def ServerReady(self, request: Any) -> Any:
        return pb.ServerReadyResponse(ready=self._service.ready)

    async def ModelReady(self, request: Any) -> Any:
        try:
            ready = self._service.model(request.name, request.version).ready
        except UnknownModel:  # Triton also answers False, not an error
            ready = False
        return pb.ModelReadyResponse(ready=ready and not self._service.draining)

    async def ServerMetadata(self, request: Any) -> Any:
        return json_format.ParseDict(describe.server_metadata(self._regions is not None), pb.ServerMetadataResponse())

    async def ModelMetadata(self, request: Any) -> Any:
        model = self._model(request)
        return json_format.ParseDict(describe.model_metadata(model), pb.ModelMetadataResponse())

    async def ModelConfig(self, request: Any) -> Any:
        config = describe.model_config(self._model(request))
        return json_format.ParseDict({"config": config}, pb.ModelConfigResponse())

    async def ModelStatistics(self, request: Any) -> Any:
        """Return the statistics of the named model, or of all models without a name."""
        models = [self._model(request)] if request.name else list(self._service.models.values())
        return json_format.ParseDict(describe.model_statistics(self._service, models), pb.ModelStatisticsResponse())

    async def RepositoryIndex(self, request: Any) -> Any:
        models = describe.repository_index(self._service, request.ready)
        return json_format.ParseDict({"models": models}, pb.RepositoryIndexResponse())

    async def RepositoryModelLoad(self, request: Any) -> Any:
        if request.parameters:
            raise BadInput("the settings of a model come from its repository; leave out the parameters")
        await self._service.load(request.model_name)
        return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(self, request: Any) -> Any:
        await self._service.unload(request.model_name)
        return pb.RepositoryModelUnloadResponse()

    async def SystemSharedMemoryStatus(self, request: Any) -> Any:
        """Return the named region, or all regions without a name."""
        regions = {each["name"]: each for each in self._shared().status(request.name)}
        return json_format.ParseDict({"regions": regions}, pb.SystemSharedMemoryStatusResponse())

    async def SystemSharedMemoryRegister(self, request: Any) -> Any:
        self._shared().register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    async def SystemSharedMemoryUnregister(self, request: Any) -> Any:
        self._shared().unregister(request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    def _shared(self) -> Regions:
        if self._regions is None:
            raise BadInput("this server does not use shared memory; start it with --shared-memory")
        return self._regions

    def _model(self, request: Any) -> Any:
        return self._service.model(request.name, request.version)


class _TensorCalls:
    """The calls with tensors."""

    def __init__(self, service: Service, limits: Limits, regions: Regions | None, room: Room) -> None:
        self._service = service
        self._limits = limits
        self._regions = regions
        self._room = room
        self._descriptions = Descriptions()

    async def infer(self, message: Bytes | Placed, context: Any) -> Sequence[Bytes]:
        read = received(message, self._limits, self._descriptions)
        with self._service.counted(trace_of(context, read.model)) as trace:
            self._service.model(read.model, read.version)
            inference = infer_request(read.description(), read.contents, self._regions)
            outputs = await self._service.infer(inference, trace)
            return infer_response(inference, outputs, trace.marks)

    async def stream_infer(self, messages: AsyncIterator[Bytes | None], context: Any) -> AsyncIterator[bytes]:
        """Answer the requests of a stream, which run concurrently.

        Answers keep the order of the requests, except that the tokens of a decoder are sent as they are decoded. A
        request that fails gets an answer with its error, and the stream continues."""
        answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        room, unread = asyncio.Semaphore(STREAM_AHEAD), asyncio.Semaphore(STREAM_AHEAD)
        running: set[asyncio.Task[None]] = set()

        async def run(message: Bytes | None, before: asyncio.Task[None] | None) -> None:
            try:
                async for answer, in_order in self._stream_answers(message, context):
                    if in_order and before is not None:
                        await asyncio.wait([before])
                    await unread.acquire()
                    answers.put_nowait(answer)
            finally:
                room.release()

        async def read() -> None:
            last = None
            async for message in messages:
                await room.acquire()
                last = asyncio.create_task(run(message, last))
                running.add(last)
                last.add_done_callback(running.discard)
            if running:
                await asyncio.wait(running)

        reader = asyncio.create_task(read())
        reader.add_done_callback(lambda _: answers.put_nowait(None))
        try:
            while (answer := await answers.get()) is not None:
                yield answer
                unread.release()
            await reader  # raises the error that ended the stream
        finally:  # also runs when the client has left
            reader.cancel()
            for task in running:
                task.cancel()

    async def _stream_answers(self, message: Bytes | None, context: Any) -> AsyncIterator[tuple[bytes, bool]]:
        """Yield each answer to a request, and whether it must wait for the answers of earlier requests."""
        id = ""
        try:
            with self._room(message, context):
                assert message is not None
                request, contents = read_request(message)
                id = request.id
                with self._service.counted(trace_of(context, request.model_name)) as trace:
                    streams = self._service.model(request.model_name, request.model_version).streams
                    inference = infer_request(described(request, contents, self._limits), contents, self._regions)
                    final = {FINAL: False} if streams else {}
                    async for outputs in self._service.stream(inference, trace):
                        parts = write_stream_response(infer_response(inference, outputs, final | trace.marks))
                        yield await joined(parts), not streams
            if streams and _plain(request.parameters).get(WANTS_FINAL) is True:
                yield b"".join(write_stream_response(infer_response(inference, [], {FINAL: True}))), False
        except Exception as error:
            failed = pb.ModelStreamInferResponse(error_message=status_of(error)[1])
            failed.infer_response.id = id
            yield failed.SerializeToString(), True


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
        make = from_slot if isinstance(data, FilledSlot) else from_raw
        return make(described.name, described.datatype, described.shape, data)

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
        place = place_of(entry.name, _plain(entry.parameters))
        array = _from_contents(entry, shape) if place is None and not contents else None
        inputs.append(InputDescription(entry.name, entry.datatype, shape, place, array))
    outputs = []
    for output in request.outputs:
        own = _plain(output.parameters)
        classes = _number(own, "classification")
        if classes > MAX_CLASSES:
            raise BadInput(f"the request asks for a classification of {classes}; ask for at most {MAX_CLASSES} labels")
        outputs.append(OutputDescription(RequestedOutput(output.name, classes), place_of(output.name, own)))
    parameters = _plain(request.parameters)
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


def _plain(parameters: Any) -> dict[str, Any]:
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
