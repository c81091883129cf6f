"""Test models that are loaded and unloaded a thousand times under requests of clients that leave. Nothing grows."""

import contextlib
import json
import os
import random
import re
import socket
import threading
from pathlib import Path

import pytest
from running import scale_request, serving, until, write_profile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * 3600)]
CYCLES = 1000
GROWN = 32 << 20  # bytes that the server may have beside what it had after the first cycles
INFER = "POST /v2/models/%s/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s"


def rss(server) -> int:
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())[1]) << 10


def held(server) -> tuple[int, int, int]:
    """Return the numbers of workers, descriptors and mapped files in memory."""
    return len(server.workers()), server.descriptors(), server.mappings()


class Traffic:
    """Run clients that use two models all the time, one of which comes and goes. Many leave before their answer."""

    def __init__(self, server, count):
        self._address = server.ports["http"].rsplit(":", 1)
        self._end = threading.Event()
        self.statuses = set()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, number):
        chance = random.Random(number)
        host, port = self._address
        while not self._end.wait(0.01):
            body = json.dumps(scale_request(*[1.0] * chance.randint(1, 4)))
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=30) as client:
                client.sendall((INFER % (chance.choice(["scale", "twice"]), len(body), body)).encode())
                if chance.random() < 0.5:
                    self.statuses.add(client.recv(100)[9:12])


def test_loads_unloads_and_reloads_under_traffic_leave_everything_as_it_was(tmp_path):
    cycles = int(os.environ.get("HEADRACE_SOAK_CYCLES", CYCLES))
    (tmp_path / "twice.toml").write_text(
        'source = "served:scale"\npolicy = "work-conserving"\nprofile = "twice.json"\n'
    )
    write_profile(tmp_path, "twice")
    chance = random.Random(1)
    with serving("--repository", str(tmp_path), models=("scale",)) as server:
        host, port = server.ports["http"].rsplit(":", 1)

        def change(what):
            """Ask for it, and leave at once now and then."""
            path = f"/v2/repository/models/twice/{what}"
            if chance.random() < 0.3:
                head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
                with socket.create_connection((host, int(port)), timeout=30) as client:
                    client.sendall(head.encode())
            else:
                assert server.request("POST", path)[0] == 200
            until(lambda: (server.request("GET", "/v2/models/twice/ready")[0] == 200) == (what == "load"))

        before = held(server)
        memory = 0
        for cycle in range(cycles):
            with Traffic(server, 4) as traffic:
                change("load")
                change("load")  # anew
                change("unload")
            assert b"200" in traffic.statuses and traffic.statuses <= {b"200", b"404", b"503"}, traffic.statuses
            until(lambda: held(server) == before)
            if cycle == min(20, cycles // 2):
                memory = rss(server)
            assert not memory or rss(server) < memory + GROWN
        assert server.end()[0] == 0
