"""NVIDIA's Triton Inference Server as a process. Tests and benchmarks start it so.

It is that of `scripts/setup_triton`. What it prints goes to a log file, of which an error shows the end."""

import contextlib
import http.client
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import ROOT
from headrace.batching import HeadraceError

PYTHON = ROOT / "build" / "triton" / "bin" / "python"
START_S = 180.0
END_S = 20.0


class Running(NamedTuple):
    """A Triton that runs: the ports of HTTP and gRPC, and the process."""

    http: int
    grpc: int
    pid: int


@contextlib.contextmanager
def triton(repository: Path, log: Path, *options: str) -> Iterator[Running]:
    """Serve a model repository. Its Python models may import benchmarks.

    Raises HeadraceError if it does not start, also if one of its models does not."""
    (site,) = PYTHON.parents[1].glob("lib/python3.*/site-packages")
    server = site / "pytriton" / "tritonserver"
    ports = _free_ports(2)
    words = f"--model-repository {repository} --backend-directory {server / 'backends'} --allow-metrics false"
    words += f" --http-address 127.0.0.1 --http-port {ports[0]} --grpc-address 127.0.0.1 --grpc-port {ports[1]}"
    environment = {
        "PATH": os.pathsep.join([str(PYTHON.parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
    }
    with log.open("w") as file:
        process = subprocess.Popen(
            [server / "bin" / "tritonserver", *words.split(), *options],
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        end = time.monotonic() + START_S
        while not _is_ready(ports[0]):
            if process.poll() is not None or time.monotonic() > end:
                raise HeadraceError(f"Triton did not start: {log.read_text()[-20000:]}")
            time.sleep(0.1)
        yield Running(ports[0], ports[1], process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False


def _free_ports(count: int) -> list[int]:
    """Return ports below those that the kernel gives to clients, which could take one before the server does."""
    found = list[int]()
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            found.append(port)
    return found
