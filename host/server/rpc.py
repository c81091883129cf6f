"""The Open Inference Protocol v2 over gRPC: `inference.GRPCInferenceService`, with Triton's messages."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
import numpy as np
from google.protobuf import json_format
from grpc import aio
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from headrace.batching import BadInput, HeadraceError, UnknownModel
from headrace.host.server import describe
from headrace.host.server.protocol import (
    BYTES,
    MAX_CLASSES,
    VERSION,
    InferRequest,
    Outcome,
    Output,
    Unauthorized,
    Wanted,
    bytes_tensor,
    checked_shape,
    from_raw,
    numpy_type,
    outcome,
    to_raw,
)
from headrace.host.server.service import Service

STREAM_AHEAD = 64  # requests of a stream that are not answered yet; more are not read
# Of Triton's decoupled models: whether an answer is the last, and whether the client wants an empty one as the last.
FINAL, WANTS_FINAL = "triton_final_response", "triton_enable_empty_final_response"
# Where numbers of a datatype lie that are not sent as bytes; FP16 has no such place.
_CONTENTS = {
    "BOOL": "bool_contents", "UINT8": "uint_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip

_log = logging.getLogger(__name__)


class GrpcServer:
    """Messages of up to `message_bytes`, of at most `calls` calls at a time."""

    def __init__(self, service: Service, message_bytes: int, calls: int) -> None:
        options = [
            ("grpc.max_receive_message_length", message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # a port that is taken is an error
        ]
        self._server = aio.server(interceptors=[_Token(service)], options=options, maximum_concurrent_rpcs=calls)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Servicer(service), self._server)

    async def start(self, host: str, port: int) -> int:
        """Returns the port. Raises RuntimeError where it cannot be had."""
        found: int = self._server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        await self._server.start()
        return found

    async def stop(self, bound_s: float) -> None:
        await self._server.stop(bound_s)


def _status(error: Exception) -> tuple[Outcome, str]:
    if not isinstance(error, HeadraceError):
        _log.error("a call ended with an error of the server's own", exc_info=error)
        return outcome(error), "the server failed; its log has the reason"
    return outcome(error), str(error)


async def _abort(context: Any, error: Exception) -> None:
    found, text = _status(error)
    await context.abort(grpc.StatusCode[found.grpc], text)


class _Token(aio.ServerInterceptor):
    """Lets only those in who bring the token."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        given = dict(details.invocation_metadata).get("authorization")
        if handler is None or self._service.authorized(given):
            return handler
        error = Unauthorized("send the metadata authorization: Bearer TOKEN with this server's token")

        async def refuse(_: Any, context: Any) -> None:
            await _abort(context, error)

        kind = (
            grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_unary_rpc_method_handler
        )
        return kind(refuse, handler.request_deserializer, handler.response_serializer)


class _Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):
    """What is not here answers UNIMPLEMENTED."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return pb.ServerReadyResponse(ready=self._service.ready)

    async def ModelReady(self, request: Any, context: Any) -> Any:
        try:
            ready = self._service.model(request.name, request.version).ready
        except UnknownModel:  # no error, as on Triton
            ready = False
        return pb.ModelReadyResponse(ready=ready and not self._service.draining)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return json_format.ParseDict(describe.server_metadata(), pb.ServerMetadataResponse())

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        model = await self._model(request, context)
        return json_format.ParseDict(describe.model_metadata(model), pb.ModelMetadataResponse())

    async def ModelConfig(self, request: Any, context: Any) -> Any:
        config = describe.model_config(await self._model(request, context))
        return json_format.ParseDict({"config": config}, pb.ModelConfigResponse())

    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        """Of all models, where none is named."""
        models = [await self._model(request, context)] if request.name else list(self._service.models.values())
        return json_format.ParseDict(describe.model_statistics(self._service, models), pb.ModelStatisticsResponse())

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:
        models = describe.repository_index(self._service, request.ready)
        return json_format.ParseDict({"models": models}, pb.RepositoryIndexResponse())

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        try:
            if request.parameters:
                raise BadInput("a model is loaded as its repository has it: leave the parameters out")
            await self._service.load(request.model_name)
            return pb.RepositoryModelLoadResponse()
        except Exception as error:
            await _abort(context, error)

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        try:
            await self._service.unload(request.model_name)
            return pb.RepositoryModelUnloadResponse()
        except Exception as error:
            await _abort(context, error)

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        try:
            return await self._answer(request)
        except Exception as error:
            await _abort(context, error)

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """A stream's requests run side by side. Answers come in the order of the requests, but a decoder's tokens as
        they come. A request that fails says so in its answer, and the stream goes on."""
        answers: asyncio.Queue[Any] = asyncio.Queue()
        room = asyncio.Semaphore(STREAM_AHEAD)
        running: set[asyncio.Task[None]] = set()

        async def run(request: Any, before: asyncio.Task[None] | None) -> None:
            try:
                async for answer, in_order in self._stream_answers(request):
                    if in_order and before is not None:
                        await asyncio.wait([before])
                    answers.put_nowait(answer)
            finally:
                room.release()

        async def read() -> None:
            last = None
            async for request in requests:
                await room.acquire()
                last = asyncio.create_task(run(request, last))
                running.add(last)
                last.add_done_callback(running.discard)
            if running:
                await asyncio.wait(running)

        reader = asyncio.create_task(read())
        reader.add_done_callback(lambda _: answers.put_nowait(None))
        try:
            while (answer := await answers.get()) is not None:
                yield answer
            await reader  # a message that is none raises here
        finally:  # the client may have gone
            reader.cancel()
            for task in running:
                task.cancel()

    async def _stream_answers(self, request: Any) -> AsyncIterator[tuple[Any, bool]]:
        """Each answer, and whether it has to wait for those of former requests."""
        try:
            with self._service.counted(request.model_name, "grpc"):
                streams = self._service.model(request.model_name, request.model_version).streams
                asked = infer_request(request)
                async for outputs in self._service.stream(asked):
                    answer = infer_response(asked, outputs)
                    if streams:
                        answer.parameters[FINAL].bool_param = False
                    yield pb.ModelStreamInferResponse(infer_response=answer), not streams
            if streams and request.parameters[WANTS_FINAL].bool_param:
                answer = infer_response(asked, [])
                answer.parameters[FINAL].bool_param = True
                yield pb.ModelStreamInferResponse(infer_response=answer), False
        except Exception as error:
            failed = pb.ModelStreamInferResponse(error_message=_status(error)[1])
            failed.infer_response.id = request.id
            yield failed, True

    async def _answer(self, request: Any) -> Any:
        with self._service.counted(request.model_name, "grpc"):
            self._service.model(request.model_name, request.model_version)
            asked = infer_request(request)
            return infer_response(asked, await self._service.infer(asked))

    async def _model(self, request: Any, context: Any) -> Any:
        try:
            return self._service.model(request.name, request.version)
        except Exception as error:
            await _abort(context, error)


def infer_response(asked: InferRequest, outputs: Sequence[Output]) -> Any:
    """A ModelInferResponse."""
    answer = pb.ModelInferResponse(model_name=asked.model, model_version=VERSION, id=asked.id)
    for output in outputs:
        answer.outputs.add(name=output.wanted.name, datatype=output.datatype, shape=output.array.shape)
        answer.raw_output_contents.append(bytes(to_raw(output.array)))
    return answer


def infer_request(request: Any) -> InferRequest:
    """Of a ModelInferRequest. Raises BadInput."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise BadInput(f"{len(request.inputs)} inputs with {len(raw)} raw contents; give each its own, or none")
    inputs: dict[str, NDArray[Any]] = {}
    for number, given in enumerate(request.inputs):
        if given.name in inputs:
            raise BadInput(f"input {given.name!r} was given twice")
        shape = checked_shape(given.name, list(given.shape))
        if raw:
            inputs[given.name] = from_raw(given.name, given.datatype, shape, raw[number])
        else:
            inputs[given.name] = _from_contents(given, shape)
    outputs = []
    for wanted in request.outputs:
        classes = _number(wanted.parameters, "classification")
        if classes > MAX_CLASSES:
            raise BadInput(f"classification of {classes}; ask for at most {MAX_CLASSES} labels")
        outputs.append(Wanted(wanted.name, classes))
    return InferRequest(
        request.model_name, inputs, outputs, request.model_version, request.id,
        timeout_us=_number(request.parameters, "timeout"), priority=_number(request.parameters, "priority"),
        max_tokens=_number(request.parameters, "max_tokens"),
    )  # fmt: skip


def _number(parameters: Any, key: str) -> int:
    """0 if it is not given."""
    if key not in parameters:
        return 0
    kind = parameters[key].WhichOneof("parameter_choice")
    value = getattr(parameters[key], kind) if kind in ("int64_param", "uint64_param") else -1
    if not 0 <= value < 2**62:
        raise BadInput(f"the parameter {key} must be a whole number of 0 or more")
    return int(value)


def _from_contents(given: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    if given.datatype == BYTES:
        return bytes_tensor(given.name, shape, list(given.contents.bytes_contents))
    dtype = numpy_type(given.name, given.datatype)
    if given.datatype not in _CONTENTS:
        raise BadInput(f"input {given.name!r}: send {given.datatype} in raw_input_contents")
    values = getattr(given.contents, _CONTENTS[given.datatype])
    try:
        array = np.array(values, dtype)
    except OverflowError:
        raise BadInput(f"input {given.name!r}: its data go beyond {given.datatype}") from None
    return from_raw(given.name, given.datatype, shape, array.tobytes())
