"""The fronts of gRPC as parameters of a fixture, and a native front by itself.

`make test` has the native one in all tests, and `make test-all` both."""

import contextlib
import select
import socket

import pytest
from http2_frames import INFER, RPC

from headrace.host.server.protocol.limits import Limits
from headrace.host.server.transport.grpc.fronts import native_front

no_native = pytest.mark.skipif(native_front() is None, reason="the native front is not installed")
FRONTS = [pytest.param("native", marks=no_native), pytest.param("aio", marks=pytest.mark.slow)]
BOTH = [pytest.param("native", marks=no_native), "aio"]
no_native_tls = pytest.mark.skipif(native_front(tls=True) is None, reason="the native front has no TLS")
WITH_TLS = [pytest.param("native, TLS", marks=no_native_tls), pytest.param("aio, TLS", marks=pytest.mark.slow)]


@contextlib.contextmanager
def front_alone(client_s=60.0, idle_s=60.0, certificate=None, key=None, connections=None):
    """Run a native front with these limits and without a server. Yield it and its address."""
    limits = Limits()
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    listener.setblocking(False)
    front = native_front()(
        listener=listener.detach(),
        streams=(f"{RPC}/ModelStreamInfer",),
        placed=INFER.decode(),
        early=False,
        body=limits.body,
        bodies=limits.bodies,
        head=limits.head,
        connections=connections or limits.connections,
        client_s=client_s,
        idle_s=idle_s,
        bytes_per_s=1e6,
        certificate=certificate,
        key=key,
    )
    try:
        yield front, address
    finally:
        front.close()


def next_events(front):
    """Wait for the front's next events and return them."""
    assert select.select([front.fileno()], [], [], 30)[0], "no event came"
    return front.events()
