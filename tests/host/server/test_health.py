"""Test health: a server replaces what stopped. A server that cannot reports it, so that its watcher restarts it."""

import asyncio
import json
import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from running import write_profile
from tritonclient.grpc import service_pb2

from headrace.host.dpu.specs import MAX_MEGAPIXELS, Damaged
from headrace.host.live import supervision
from headrace.host.live.results import RuntimeClosed, TooLate
from headrace.host.server import inference
from headrace.host.server import service as of_service
from headrace.host.server.group import Preprocessors
from headrace.host.server.observe.watch import RequestTrace
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.messages import InferRequest
from headrace.host.server.service import Service
from headrace.host.server.settings import ModelSettings
from headrace.host.server.transport.grpc.endpoints import _Calls
from headrace.host.server.transport.http.connection import Request
from headrace.host.server.transport.http.endpoints import HttpApi, error_response

SOURCE = """
import torch

class Doubling(torch.nn.Module):
    input_shape = (4,)

    def forward(self, x):
        return 2 * x

doubling = Doubling
"""


async def liveness(service):
    """Return the answers of both transports: an HTTP status, and a flag."""
    api = HttpApi(service, Limits(), None)
    answer = await api.handle(Request("GET", "/v2/health/live", {"host": "a"}, memoryview(b"")))
    told = await _Calls(service, None).ServerLive(service_pb2.ServerLiveRequest())
    return answer.status, told.live


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Provide a service that is not opened yet, and the settings of a model for it."""
    (tmp_path / "doubling_net.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    profile = write_profile(tmp_path, "doubling")
    settings = ModelSettings(
        "doubling", "doubling_net:doubling", policy="work-conserving", profile=profile, workers="1", max_batch=4
    )
    return Service(Preprocessors(lambda: None, MAX_MEGAPIXELS, Damaged.STRICT, orient=False)), settings


def infer(service, timeout_s=0.0):
    values = np.array([[1, 2, 3, 4]], np.float32)
    request = InferRequest("doubling", {"x": values}, timeout_us=round(timeout_s * 1e6))
    return service.infer(request, RequestTrace("doubling", "http", "a test"))


def test_a_runtime_that_has_stopped_on_an_error_of_its_own_is_replaced(service):
    service, settings = service

    async def body():
        async with service:
            await service.open([settings])
            for _ in range(2):
                (group,) = service.groups
                waiting = asyncio.ensure_future(infer(service))
                await asyncio.sleep(0)
                group.runtime._break(KeyError("no such queue"))
                with pytest.raises(RuntimeClosed):
                    await waiting
                assert not service.ready and await liveness(service) == (200, True)
                async with asyncio.timeout(60):
                    while group in service.groups:
                        await asyncio.sleep(0.01)
                (output,) = await infer(service)
                assert output.array.tolist() == [[2, 4, 6, 8]] and service.ready
            assert len(service.groups) == 1

    asyncio.run(body())


def test_a_service_that_cannot_replace_a_runtime_is_not_live_after_a_while(service, monkeypatch):
    service, settings = service

    async def body():
        async with service:
            await service.open([settings])
            Path("doubling_net.py").unlink()
            service.groups[0].runtime._break(KeyError("no such queue"))
            async with asyncio.timeout(60):
                while service._broken_since == math.inf:
                    await asyncio.sleep(0.01)
            assert await liveness(service) == (200, True)
            monkeypatch.setattr(of_service, "RECOVERY_S", 0.0)
            assert await liveness(service) == (503, False)
            Path("doubling_net.py").write_text(SOURCE)
            async with asyncio.timeout(60):
                while await liveness(service) == (503, False):
                    await asyncio.sleep(0.01)
            assert (await infer(service))[0].array.tolist() == [[2, 4, 6, 8]]

    asyncio.run(body())


def test_a_request_for_which_there_is_no_memory_may_be_sent_again():
    answer = error_response(MemoryError())
    assert (answer.status, answer.headers["headrace-outcome"]) == (503, "shed")
    assert json.loads(b"".join(answer.parts)) == {"error": "the server is short of memory; try again"}


def test_a_worker_that_hangs_makes_its_model_not_ready_and_timeouts_hold(service, monkeypatch):
    service, settings = service
    monkeypatch.setattr(supervision, "HANG_MARGIN_S", 0.2)
    monkeypatch.setattr(inference, "LATE_S", 0.1)

    async def body():
        async with service:
            await service.open([settings])
            assert (await infer(service, timeout_s=60.0))[0].array.tolist() == [[2, 4, 6, 8]] and service.ready
            (slot,) = service.groups[0].runtime._worker_slots
            os.kill(slot.worker.pid, signal.SIGSTOP)
            for _ in range(2):  # the first is at the worker, the second waits
                with pytest.raises(TooLate, match=r"not answered within its timeout of 100 ms plus 0\.1 s"):
                    await infer(service, timeout_s=0.1)
            patient = asyncio.ensure_future(infer(service))
            async with asyncio.timeout(60):
                while service.ready:
                    await asyncio.sleep(0.01)
                os.kill(slot.worker.pid, signal.SIGCONT)
                assert (await patient)[0].array.tolist() == [[2, 4, 6, 8]] and service.ready
            assert service.models["doubling"].in_flight == 0

    asyncio.run(body())
