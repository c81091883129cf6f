"""Health: a server that cannot come back to work says so, so that whoever watches it starts it anew."""

import asyncio
from types import SimpleNamespace

import pytest
from test_in_virtual_time import TIMES, Watched, ask
from tritonclient.grpc import service_pb2
from virtual_worker import OPAQUE, serve

from headrace.batching import Serial
from headrace.host.dpu.image import MAX_MEGAPIXELS, Damaged
from headrace.host.live.runtime import RuntimeClosed
from headrace.host.server.group import Preprocessors
from headrace.host.server.http import HttpApi
from headrace.host.server.http1 import Request
from headrace.host.server.limits import Limits
from headrace.host.server.rpc import _Calls
from headrace.host.server.service import Service


async def liveness(service):
    """Return what both transports say: an HTTP status, and a flag."""
    api = HttpApi(service, Limits(), None)
    answer = await api.handle(Request("GET", "/v2/health/live", {"host": "a"}, memoryview(b"")))
    told = await _Calls(service, None).ServerLive(service_pb2.ServerLiveRequest())
    return answer.status, told.live


def test_a_runtime_that_has_stopped_on_an_error_of_its_own_is_told_by_live():
    def fail(now):
        if now > 0.2:
            raise KeyError("no such queue")

    async def body(runtime, workers, _):
        service = Service(Preprocessors(lambda: None, MAX_MEGAPIXELS, Damaged.STRICT, orient=False))
        service.groups.append(SimpleNamespace(runtime=runtime))
        assert await liveness(service) == (200, True)
        workers[0].die()
        await asyncio.sleep(0.3)
        assert await liveness(service) == (200, True)  # a lost worker comes back
        (call,) = ask(runtime, 0)
        with pytest.raises(RuntimeClosed):
            await call
        assert await liveness(service) == (503, False)

    serve(Watched(Serial([OPAQUE]), fail), TIMES, body)
