"""Choose one of the two servers of gRPC, which carry bytes for the same endpoints."""

from enum import StrEnum
from typing import Any

from headrace.batching import UsageError
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.shared_memory import Regions
from headrace.host.server.service import Service
from headrace.host.server.transport.grpc.aio_server import aio_server
from headrace.host.server.transport.grpc.native_server import NativeServer
from headrace.host.server.transport.grpc.server import GrpcServer
from headrace.host.server.transport.tls import Tls


class GrpcFront(StrEnum):
    """Name what carries gRPC's bytes. AUTO is the native front if it is installed and can serve the port."""

    AUTO = "auto"
    NATIVE = "native"
    AIO = "aio"


def native_front(tls: bool = False) -> Any:
    """Return the class of the native front, or None if it is not installed. `tls`: with TLS, without which it may have
    been built."""
    try:
        from headrace.host.server.transport.grpc.native import http2
    except ImportError:
        return None
    return http2.Front if http2.HAS_TLS or not tls else None


def check_front(front: GrpcFront, tls: Tls | None) -> None:
    """Raise UsageError if the native front is asked for and cannot serve."""
    if front is not GrpcFront.NATIVE or native_front(tls is not None) is not None:
        return
    if native_front() is not None:
        raise UsageError(
            "--grpc-front native was built without TLS; install libssl-dev and then Headrace again, or give auto or aio"
        )
    raise UsageError(
        "--grpc-front native is not installed; install libnghttp2-dev and a C++ compiler, and then Headrace again"
    )


def grpc_server(
    front: GrpcFront, service: Service, limits: Limits, regions: Regions | None, tls: Tls | None
) -> GrpcServer | NativeServer:
    """Return a server of the protocol that is not started yet. Raises UsageError."""
    check_front(front, tls)
    made = native_front(tls is not None) if front is not GrpcFront.AIO else None
    if made is None:
        return aio_server(service, limits, regions, tls)
    return NativeServer(made, service, limits, regions, tls)
