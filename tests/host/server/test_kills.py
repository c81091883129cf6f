"""Test requests while workers are killed: each gets one answer, its own, and the server does not grow.

HEADRACE_KILLS_REQUESTS replaces the number of requests of the long test. With pytest's `-s` it prints its counts."""

import asyncio
import json
import os
import random
import re
import signal
import struct
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_fronts import no_native
from http2_frames import RPC
from running import scale_request, serving, until
from tritonclient.grpc import service_pb2 as pb

REQUESTS = 1_000_000
CLIENTS = 64
PARTS = 20  # of a run; the memory is read after each
GROWN = 24 << 20  # bytes that the server may have beside what it had after the first two parts
WAIT_S = 120.0  # longest wait for an answer: a killed worker starts again meanwhile
SHED_S = 0.02  # pause of a client that was shed
HEAD = "POST /v2/models/scale/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s"
RAISES = 666.0  # a first element for `scale`
STATUSES = {200, 500, 503, 504}  # finished, failed, shed or lost with two workers, dropped
HTTP_OF = {"INTERNAL": 500, "RESOURCE_EXHAUSTED": 503, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504}


def first_of(number: int) -> float:
    """Return the first element of a request. Neighbours differ, so that a mix-up shows."""
    return (number % 829) / 64  # below 13, which kills the worker; exact in few digits


@dataclass
class Sent:
    """A request, and whether its client leaves before the answer, after `leaves_s`."""

    number: int
    first: float
    timeout_us: int | None
    leaves_s: float | None


class Clients(ABC):
    """Clients that share `requests` numbers, send each of them once, and count what they get, by status of HTTP.

    A client sends its next request when it has the answer to the last one. Some requests have a deadline that can
    hardly be met, the network raises on a few, and the client of some others leaves."""

    transport: str

    def __init__(self, address: str, requests: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.left = 0
        self.asked = 0
        self.requests = requests
        self._address = address
        self._chance = random.Random(1)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._client())

    @abstractmethod
    async def _client(self) -> None: ...

    def _next(self) -> Sent:
        number, chance = self.asked, self._chance.random()
        self.asked += 1
        first = RAISES if 0.01 < chance < 0.012 else first_of(number)
        leaves_s = self._chance.random() * 0.01 if chance > 0.995 else None
        return Sent(number, first, 300 if chance < 0.01 else None, leaves_s)

    def _check(self, sent: Sent, status: int, id: str, data: list[float], error: str) -> None:
        self.statuses[status] += 1
        assert status in STATUSES, (status, error)
        assert status != 500 or (sent.first == RAISES and "unlucky number" in error) or "died" in error
        if status == 200:  # an answer too many would shift all that come after it
            assert id == str(sent.number)
            assert data == [2 * sent.first, 2.0, 4.0, 6.0]


class HttpClients(Clients):
    transport = "http"

    async def _client(self) -> None:
        host, port = self._address.rsplit(":", 1)
        while self.asked < self.requests:
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                while self.asked < self.requests:
                    sent = self._next()
                    parameters = {} if sent.timeout_us is None else {"timeout": sent.timeout_us}
                    body = json.dumps(scale_request(sent.first, **parameters) | {"id": str(sent.number)})
                    writer.write((HEAD % (len(body), body)).encode())
                    if sent.leaves_s is not None:
                        await asyncio.sleep(sent.leaves_s)
                        self.left += 1
                        break
                    async with asyncio.timeout(WAIT_S):
                        head = await reader.readuntil(b"\r\n\r\n")
                        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
                        answer = json.loads(await reader.readexactly(length))
                    data = answer["outputs"][0]["data"] if "outputs" in answer else []
                    self._check(sent, int(head[9:12]), answer.get("id", ""), data, answer.get("error", ""))
                    if head[9:12] == b"503":
                        await asyncio.sleep(SHED_S)
            finally:
                writer.close()


class GrpcClients(Clients):
    transport = "grpc"

    async def run(self) -> None:
        async with grpc.aio.insecure_channel(self._address) as channel:
            self._call = channel.unary_unary(
                f"{RPC}/ModelInfer", pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString
            )
            await super().run()

    async def _client(self) -> None:
        while self.asked < self.requests:
            sent = self._next()
            request = pb.ModelInferRequest(model_name="scale", id=str(sent.number))
            request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
            request.raw_input_contents.append(struct.pack("<4f", sent.first, 1, 2, 3))
            if sent.timeout_us is not None:
                request.parameters["timeout"].int64_param = sent.timeout_us
            call = self._call(request, timeout=WAIT_S)
            if sent.leaves_s is not None:
                await asyncio.sleep(sent.leaves_s)
                call.cancel()
                self.left += 1
                continue
            try:
                answer = await call
                self._check(sent, 200, answer.id, list(struct.unpack("<4f", answer.raw_output_contents[0])), "")
            except grpc.aio.AioRpcError as error:
                self._check(sent, HTTP_OF[error.code().name], "", [], error.details())
                if HTTP_OF[error.code().name] == 503:
                    await asyncio.sleep(SHED_S)


def rss(server) -> int:
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())[1]) << 10


def outcomes(server, transport: str) -> Counter[str]:
    """Return the number of requests over the transport that the server has counted, by outcome."""
    found = re.findall(
        rf'headrace_requests_total{{.*outcome="(\w+)".*transport="{transport}"}} (\S+)', server.metrics()
    )
    return Counter({name: int(float(count)) for name, count in found})


async def kills(server, clients: Clients, every: int) -> tuple[int, list[tuple[float, int, int]]]:
    """Kill a worker each time that `every` more requests were sent, until the clients have ended.

    Returns the number of kills, and for each part the seconds, the requests so far and the server's memory."""
    chance, killed, began = random.Random(2), 0, time.monotonic()
    parts: list[tuple[float, int, int]] = []
    running = asyncio.create_task(clients.run())
    while not (await asyncio.wait([running], timeout=0.02))[0]:
        if clients.asked * PARTS >= (len(parts) + 1) * clients.requests:
            parts.append((time.monotonic() - began, clients.asked, rss(server)))
        if clients.asked >= (killed + 1) * every and (workers := server.workers()):
            os.kill(chance.choice(workers), signal.SIGKILL)
            killed += 1
    await running
    return killed, [*parts, (time.monotonic() - began, clients.asked, rss(server))]


@pytest.mark.parametrize(
    ("kind", "front"),
    [
        pytest.param(HttpClients, "native", id="http"),
        pytest.param(GrpcClients, "native", id="grpc", marks=no_native),
        pytest.param(GrpcClients, "aio", id="grpc by grpc.aio", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("requests", "every"),
    [
        pytest.param(2_000, 800, id="some"),
        pytest.param(REQUESTS, 3_000, id="a million", marks=[pytest.mark.slow, pytest.mark.timeout(3 * 3600)]),
    ],
)
def test_each_request_gets_its_one_answer_while_workers_are_killed(requests, every, kind, front):
    if requests == REQUESTS:
        requests = int(os.environ.get("HEADRACE_KILLS_REQUESTS", REQUESTS))
    options = ("--workers", "2", "--max-batch", "16", "--max-queue", "60", "--drop-late", "--slo-ms", "60000")
    options += ("--grpc-front", front) if kind is GrpcClients else ()
    with serving(*options, models=("scale",)) as server:
        until(lambda: len(server.workers()) == 2)
        clients = kind(server.ports[kind.transport], requests)
        killed, parts = asyncio.run(kills(server, clients, every))
        for seconds, asked, memory in parts:
            print(f"{seconds:.0f} s, {asked} requests, {memory / 2**20:.0f} MiB")
        print(f"{killed} kills; statuses {dict(clients.statuses)}, left {clients.left}")
        # Every request that was sent has been answered once, or its client has left.
        assert clients.asked == requests == clients.statuses.total() + clients.left
        assert clients.statuses[200] > 0.5 * requests and killed > 0
        until(lambda: 'headrace_in_flight{model="scale"} 0.0' in server.metrics(), WAIT_S)
        until(lambda: "headrace_workers_up 2.0" in server.metrics(), WAIT_S)
        until(lambda: 'headrace_arena_used{arena="scale"} 0.0' in server.metrics())
        lost = float(re.search(r"headrace_workers_lost_total (\d\S*)", server.metrics())[1])
        assert 0 < lost <= killed  # a worker that is killed while it starts was not in service
        # The server has counted the same: a client that left before its answer may still have had one.
        counted = outcomes(server, clients.transport)
        print(f"counted by the server: {dict(counted)}")
        answered = counted.total() - counted["cancelled"]
        assert counted["failed"] >= clients.statuses[500] > 0
        assert clients.statuses.total() <= answered <= counted.total() <= requests
        assert clients.statuses[200] <= counted["ok"] <= clients.statuses[200] + clients.left
        assert parts[-1][2] < parts[1][2] + GROWN
        assert server.lives() and server.end()[0] == 0
