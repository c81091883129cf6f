"""Test requests while workers are killed: each gets one answer, its own, and the server does not grow.

HEADRACE_KILLS_REQUESTS replaces the number of requests of the long test. With pytest's `-s` it prints its counts."""

import asyncio
import json
import os
import random
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from running import scale_request, serving, until

REQUESTS = 1_000_000
CLIENTS = 64
PARTS = 20  # of a run; the memory is read after each
GROWN = 24 << 20  # bytes that the server may have beside what it had after the first two parts
WAIT_S = 120.0  # longest wait for an answer: a killed worker starts again meanwhile
SHED_S = 0.02  # pause of a client that was shed
HEAD = "POST /v2/models/scale/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s"
RAISES = 666.0  # a first element for `scale`
STATUSES = {200, 500, 503, 504}  # finished, failed, shed or lost with two workers, dropped


def first_of(number: int) -> float:
    """Return the first element of a request. Neighbours differ, so that a mix-up shows."""
    return (number % 829) / 64  # below 13, which kills the worker; exact in few digits


class Clients:
    """Clients that share `requests` numbers, send each of them once, and count what they get.

    A client sends its next request when it has the answer to the last one. Some requests have a deadline that can
    hardly be met, the network raises on a few, and the client of some others leaves."""

    def __init__(self, url: str, requests: int) -> None:
        self.statuses: Counter[int] = Counter()
        self.left = 0
        self.asked = 0
        self._host, port = url.rsplit(":", 1)
        self._port = int(port)
        self.requests = requests
        self._chance = random.Random(1)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._client())

    async def _client(self) -> None:
        while self.asked < self.requests:
            reader, writer = await asyncio.open_connection(self._host, self._port)
            try:
                while self.asked < self.requests:
                    number, chance = self.asked, self._chance.random()
                    self.asked += 1
                    parameters = {"timeout": 300} if chance < 0.01 else {}
                    first = RAISES if 0.01 < chance < 0.012 else first_of(number)
                    body = json.dumps(scale_request(first, **parameters) | {"id": str(number)})
                    writer.write((HEAD % (len(body), body)).encode())
                    if chance > 0.995:
                        await asyncio.sleep(self._chance.random() * 0.01)
                        self.left += 1
                        break
                    async with asyncio.timeout(WAIT_S):
                        head = await reader.readuntil(b"\r\n\r\n")
                        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
                        answer = json.loads(await reader.readexactly(length))
                    self._check(number, first, int(head[9:12]), answer)
                    if head[9:12] == b"503":
                        await asyncio.sleep(SHED_S)
            finally:
                writer.close()

    def _check(self, number: int, first: float, status: int, answer: dict[str, object]) -> None:
        self.statuses[status] += 1
        assert status in STATUSES, (status, answer)
        assert status != 500 or (first == RAISES and "unlucky number" in answer["error"]) or "died" in answer["error"]
        if status == 200:  # an answer too many would shift all that come after it
            assert answer["id"] == str(number)
            assert answer["outputs"][0]["data"] == [2 * first, 2.0, 4.0, 6.0]


def rss(server) -> int:
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())[1]) << 10


def outcomes(server) -> Counter[str]:
    """Return the number of requests over HTTP that the server has counted, by outcome."""
    found = re.findall(r'headrace_requests_total{.*outcome="(\w+)".*transport="http"} (\S+)', server.metrics())
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
    ("requests", "every"),
    [
        pytest.param(3_000, 1_000, id="some"),
        pytest.param(REQUESTS, 3_000, id="a million", marks=[pytest.mark.slow, pytest.mark.timeout(3 * 3600)]),
    ],
)
def test_each_request_gets_its_one_answer_while_workers_are_killed(requests, every):
    if requests == REQUESTS:
        requests = int(os.environ.get("HEADRACE_KILLS_REQUESTS", REQUESTS))
    options = ("--workers", "2", "--max-batch", "16", "--max-queue", "60", "--drop-late", "--slo-ms", "60000")
    with serving(*options, models=("scale",)) as server:
        until(lambda: len(server.workers()) == 2)
        clients = Clients(server.ports["http"], requests)
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
        counted = outcomes(server)
        print(f"counted by the server: {dict(counted)}")
        answered = counted.total() - counted["cancelled"]
        assert counted["failed"] >= clients.statuses[500] > 0
        assert clients.statuses.total() <= answered <= counted.total() <= requests
        assert clients.statuses[200] <= counted["ok"] <= clients.statuses[200] + clients.left
        assert parts[-1][2] < parts[1][2] + GROWN
        assert server.lives() and server.end()[0] == 0
