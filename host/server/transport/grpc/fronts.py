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
    """Name what carries gRPC's bytes. AUTO is the native front if it is installed and the port has no TLS."""

    AUTO = "auto"
    NATIVE = "native"
    AIO = "aio"


def native_front() -> Any:
    """Return the class of the native front, or None if it is not installed."""
    try:
        from headrace.host.server.transport.grpc.native import http2
    except ImportError:
        return None
    return http2.Front


def check_front(front: GrpcFront, tls: Tls | None) -> None:
    """Raise UsageError if the native front is asked for and cannot serve."""
    if front is not GrpcFront.NATIVE:
        return
    if tls is not None:
        raise UsageError("--grpc-front native has no TLS; give auto or aio, or leave out --tls-cert and --tls-key")
    if native_front() is None:
        raise UsageError(
            "--grpc-front native is not installed; install libnghttp2-dev and a C++ compiler, and then Headrace again"
        )


def grpc_server(
    front: GrpcFront, service: Service, limits: Limits, regions: Regions | None, tls: Tls | None
) -> GrpcServer | NativeServer:
    """Return a server of the protocol that is not started yet. Raises UsageError."""
    check_front(front, tls)
    made = native_front() if front is not GrpcFront.AIO and tls is None else None
    if made is None:
        return aio_server(service, limits, regions, tls)
    return NativeServer(made, service, limits, regions)
