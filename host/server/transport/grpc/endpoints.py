"""The Open Inference Protocol v2 over gRPC: `inference.GRPCInferenceService`, with Triton's messages.

Calls with tensors are handled as bytes (see `wire`). All other calls use protobuf's messages."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2 as pb

from headrace.batching import BadInput, UnknownModel
from headrace.host.server import describe
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.messages import (
    Outcome,
    client_text,
    outcome,
)
from headrace.host.server.protocol.shared_memory import Regions
from headrace.host.server.service import Service
from headrace.host.server.transport.grpc.tensor_calls import (
    TensorCalls,
    described,
    infer_request,
    infer_response,
    joined,
    plain,
    trace_of,
)
from headrace.host.server.transport.grpc.wire import (
    Bytes,
    read_request,
    write_stream_response,
)

SERVICE = "inference.GRPCInferenceService"
# Limit on the unanswered requests of a stream, and on its answers that the client has not received. At the limit the
# server reads no further request, or makes no further answer.
STREAM_AHEAD = 64
# Parameters of Triton's decoupled models: this answer is the last one; the client wants an empty answer as the last.
FINAL, WANTS_FINAL = "triton_final_response", "triton_enable_empty_final_response"
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


class Endpoints(NamedTuple):
    """Hold the handlers of all calls, by the names of the calls. A transport carries their bytes."""

    unary: Mapping[str, Call]
    streams: Mapping[str, Stream]


def endpoints(service: Service, limits: Limits, regions: Regions | None, room: Room) -> Endpoints:
    """Return the handlers of the protocol."""
    unary = dict[str, Call]()
    calls = _Calls(service, regions)
    for method in pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
        call = getattr(calls, method.name, None)
        if call is not None:  # the transport answers a call without a handler with UNIMPLEMENTED
            unary[method.name] = on_messages(call, message_factory.GetMessageClass(method.input_type))
    tensors, streams = TensorCalls(service, limits, regions), _Streams(service, limits, regions, room)
    return Endpoints({**unary, "ModelInfer": tensors.infer}, {"ModelStreamInfer": streams.stream_infer})


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


class _Streams:
    """The call ModelStreamInfer."""

    def __init__(self, service: Service, limits: Limits, regions: Regions | None, room: Room) -> None:
        self._service = service
        self._limits = limits
        self._regions = regions
        self._room = room

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
                    final: dict[str, str | int | bool] = {FINAL: False} if streams else {}
                    async for outputs in self._service.stream(inference, trace):
                        parts = write_stream_response(infer_response(inference, outputs, {**final, **trace.marks}))
                        yield await joined(parts), not streams
            if streams and plain(request.parameters).get(WANTS_FINAL) is True:
                yield b"".join(write_stream_response(infer_response(inference, [], {FINAL: True}))), False
        except Exception as error:
            failed = pb.ModelStreamInferResponse(error_message=status_of(error)[1])
            failed.infer_response.id = id
            yield failed.SerializeToString(), True
