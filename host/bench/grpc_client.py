"""The Open Inference Protocol over gRPC, with prepared requests and answers that are not parsed."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import grpc
from grpc import aio
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from headrace.host.bench.client import ASK_S, Now, OnAnswer, RequestOptions, Secure, Statistics, Status, Unreachable
from headrace.host.bench.inputs import ModelMetadata, Place, Tensor, TensorMetadata, raw

METHOD = "/inference.GRPCInferenceService/ModelInfer"
MAX_CHANNELS = 4  # connections of one process
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # otherwise all channels share one connection
    ("grpc.enable_http_proxy", 0),
)

_STATUSES = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: Status.SHED,
    grpc.StatusCode.DEADLINE_EXCEEDED: Status.LATE,
    grpc.StatusCode.UNAVAILABLE: Status.UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class GrpcTarget:
    """A server that is reached over gRPC; see Target."""

    host: str
    port: int
    token: str | None = None
    secure: Secure | None = None

    def metadata(self, model: str) -> ModelMetadata:
        metadata = self._ask("ModelMetadata", pb.ModelMetadataRequest(name=model))
        return ModelMetadata(
            model,
            [TensorMetadata(each.name, each.datatype, tuple(each.shape)) for each in metadata.inputs],
            [TensorMetadata(each.name, each.datatype, tuple(each.shape)) for each in metadata.outputs],
            takes_binary=True,
        )

    def models(self) -> list[str]:
        return [each.name for each in self._ask("RepositoryIndex", pb.RepositoryIndexRequest(ready=True)).models]

    def statistics(self, model: str) -> Statistics | None:
        try:
            (counters,) = self._ask("ModelStatistics", pb.ModelStatisticsRequest(name=model)).model_stats
        except (Unreachable, ValueError):
            return None
        return Statistics(counters.inference_count, counters.execution_count, counters.inference_stats.queue.ns)

    def message(self, model: ModelMetadata, tensors: Sequence[Tensor], options: RequestOptions) -> bytes:
        request = pb.ModelInferRequest(model_name=model.name)
        for tensor in tensors:
            entry = request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.array.shape)
            if tensor.place is not None:
                _place(entry, tensor.place)
            else:
                request.raw_input_contents.append(raw(tensor))
        if options.timeout_us:
            request.parameters["timeout"].int64_param = options.timeout_us
        if options.classes:
            for output in model.outputs:
                request.outputs.add(name=output.name).parameters["classification"].int64_param = options.classes
        for name, place in options.outputs.items():
            _place(request.outputs.add(name=name), place)
        message: bytes = request.SerializeToString()
        return message

    def register(self, region: str, key: str, size: int) -> None:
        request = pb.SystemSharedMemoryRegisterRequest(name=region, key=key, byte_size=size)
        self._ask("SystemSharedMemoryRegister", request)

    def unregister(self, region: str) -> None:
        with contextlib.suppress(Unreachable):
            self._ask("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name=region))

    def client(self, on_answer: OnAnswer, connections: int, now: Now = time.monotonic) -> "GrpcClient":
        return GrpcClient(self, on_answer, min(connections, MAX_CHANNELS), now)

    def channel(self) -> Any:
        return self._channel(aio)

    def _channel(self, made_by: Any) -> Any:
        if self.secure is None:
            return made_by.insecure_channel(str(self), OPTIONS)
        self.secure.context()  # raises UsageError for a file without certificates
        roots = None if self.secure.authorities is None else self.secure.authorities.read_bytes()
        return made_by.secure_channel(str(self), grpc.ssl_channel_credentials(roots), OPTIONS)

    def headers(self) -> list[tuple[str, str]]:
        return [] if self.token is None else [("authorization", f"Bearer {self.token}")]

    def _ask(self, name: str, request: Any) -> Any:
        with self._channel(grpc) as channel:
            method = getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), name)
            try:
                return method(request, timeout=ASK_S, metadata=self.headers())
            except grpc.RpcError as error:
                details = " ".join((error.details() or "").split())[:300]
                raise Unreachable(f"{self} answers {name} with {error.code().name}: {details}") from None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _place(tensor: Any, place: Place) -> None:
    tensor.parameters["shared_memory_region"].string_param = place.region
    tensor.parameters["shared_memory_offset"].int64_param = place.offset
    tensor.parameters["shared_memory_byte_size"].int64_param = place.size


class GrpcClient:
    """Send requests over several channels in turn. On each channel the server limits the requests in flight; the others
    wait."""

    def __init__(self, target: GrpcTarget, on_answer: OnAnswer, channels: int, now: Now) -> None:
        self._on_answer = on_answer
        self._now = now
        self._headers = target.headers()
        self._calls: set[asyncio.Task[None]] = set()
        self._channels = [target.channel() for _ in range(channels)]
        self._methods = cycle([channel.unary_unary(METHOD) for channel in self._channels])

    async def __aenter__(self) -> "GrpcClient":
        for channel in self._channels:
            try:
                await asyncio.wait_for(channel.channel_ready(), ASK_S)
            except TimeoutError:
                break  # the requests then fail and report the error
        return self

    async def __aexit__(self, *_: object) -> None:
        for call in list(self._calls):
            call.cancel()
        await asyncio.wait([asyncio.ensure_future(channel.close()) for channel in self._channels], timeout=ASK_S)

    def send(self, number: int, message: bytes) -> None:
        call = asyncio.get_running_loop().create_task(self._call(number, message))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, number: int, message: bytes) -> None:
        sent = self._now()
        status, text = Status.OK, ""
        try:
            await next(self._methods)(message, metadata=self._headers)
        except aio.AioRpcError as error:
            status = _STATUSES.get(error.code(), Status.ERROR)
            text = f"{error.code().name}: {' '.join((error.details() or '').split())[:300]}"
        self._on_answer(number, sent, status, text)
