"""A process of `headrace serve` with small networks, and the requests that tests send it."""

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from forked import Forked

from headrace.batching import Profile, ProfilePoint
from headrace.host.dpu.specs import ImageSpec
from headrace.host.live.machine.children import children

IMAGE_FILE = (Path(__file__).parents[3] / "examples" / "chelsea.jpg").read_bytes()
SPEC = ImageSpec(73, 64, 64)  # of the photos that `means` and `corner` take
SOURCE = '''
import os, signal, time, torch

class Scale(torch.nn.Module):
    """Twice its input. A first element of 666 raises, 13 kills the process, 1000 + s sleeps s seconds, and 999 makes
    the file `held` in this module's folder and waits until the file `go` is there."""
    input_shape = (4,)

    def forward(self, x):
        for first in x[:, 0].tolist():
            if first == 666:
                raise ValueError("unlucky number")
            if first == 13:
                os.kill(os.getpid(), signal.SIGKILL)
            if first == 999:
                folder = os.path.dirname(__file__)
                open(os.path.join(folder, "held"), "w").close()
                while not os.path.exists(os.path.join(folder, "go")):
                    time.sleep(0.002)
            if first > 1000:
                time.sleep(first - 1000)
        return 2 * x

class Means(torch.nn.Module):
    "A photo's mean by channel."
    input_shape = (3, 64, 64)
    categories = ("red", "green", "blue")

    def forward(self, x):
        return x.mean((2, 3))

class Corner(torch.nn.Module):
    "A photo's pixel at the top left."
    input_shape = (3, 64, 64)

    def forward(self, x):
        return x[:, :, 0, 0]

class Pair(torch.nn.Module):
    input_shape = "ids=1..8:int64,mask=1..8:bool"

    def forward(self, ids, mask):
        return {"kept": ids * mask, "sum": (ids * mask).sum(1, keepdim=True)}

class Deep(torch.nn.Sequential):
    "The sum of eight numbers, in two steps."
    input_shape = (8,)

    def __init__(self):
        super().__init__(torch.nn.Linear(8, 4, bias=False), torch.nn.ReLU(), torch.nn.Linear(4, 1, bias=False))
        for parameter in self.parameters():
            torch.nn.init.constant_(parameter, 0.5)

class Wide(Scale):
    "Takes tensors that are large enough for a slot of their own."
    input_shape = (20_000,)

class Slow(Scale):
    "Takes 20 ms for any batch."
    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)

def talk():
    "A speech network, small; its weights are fixed by torch.manual_seed(0)."
    from headrace.host.workers.networks.zoo.conformer import Conformer

    return Conformer(2, 32, 4, vocabulary=11, kernel=7)

scale, means, corner, pair, deep, slow, wide = Scale, Means, Corner, Pair, Deep, Slow, Wide
'''
HELD = 999.0  # a first element for `scale`: its batch ends after `Server.let_go`
MODELS = ("scale", "means", "pair")


@dataclass
class Server:
    process: "subprocess.Popen[str]"
    ports: dict[str, str]
    folder: Path
    tls: bool = False

    def let_go(self) -> None:
        """Let all batches end that contain HELD."""
        (self.folder / "go").touch()

    def url(self, name: str = "http") -> str:
        return self.ports[name]

    def connection(self, name: str = "http") -> http.client.HTTPConnection:
        if self.tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return http.client.HTTPSConnection(self.ports[name], timeout=30, context=context)
        return http.client.HTTPConnection(self.ports[name], timeout=30)

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, port: str = "http"
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers in lower case and body of an answer. A `body` that is not bytes is sent as JSON."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.closing(self.connection(port)) as connection:
            connection.request(method, path, raw, headers or {})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def error(self, *request: Any, **more: Any) -> tuple[int, str]:
        """Return status and error text of a refused request."""
        status, _, body = self.request(*request, **more)
        return status, json.loads(body)["error"]

    def raw(self, data: bytes, *, then_s: float = 10.0) -> bytes:
        """Return every byte of the answer to these bytes until the server closes."""
        host, port = self.ports["http"].rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=then_s) as client:
            client.sendall(data)
            found = b""
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while piece := client.recv(65536):
                    found += piece
            return found

    def metrics(self) -> str:
        return self.request("GET", "/metrics", port="metrics")[2].decode()

    def lives(self) -> bool:
        return self.process.poll() is None and self.request("GET", "/v2/health/live")[0] == 200

    def workers(self) -> list[int]:
        """Return the process ids of the workers. They are children of the fork server, which is a child of this
        server."""
        return [worker for server in children(self.process.pid) for worker in children(server)]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def mappings(self) -> int:
        """Return the number of mapped files in memory: the arenas of the models, and one word of each worker."""
        return Path(f"/proc/{self.process.pid}/maps").read_text().count("/memfd:")

    def end(self, number: int = signal.SIGTERM, timeout_s: float = 30.0) -> tuple[int, str]:
        """Wait for the end, and return the exit status and the output."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, said


def write_profile(folder: Path, name: str) -> Path:
    """Write a file for --profile. A measurement takes seconds, and the numbers do not matter for these tests."""
    profile = Profile(name, 1, tuple(ProfilePoint(batch, 1e-3, batch * 1e3) for batch in (1, 2, 4)), {})
    (folder / f"{name}.json").write_text(profile.to_json())
    return folder / f"{name}.json"


@contextlib.contextmanager
def serving(
    *options: str,
    models: tuple[str, ...] = MODELS,
    profiled: bool = True,
    within: Path | None = None,
    program: Sequence[str] | None = None,
    tls: bool = False,
) -> Iterator[Server]:
    """Run a server on free ports with one worker, in the folder `within` or one of its own. With `profiled` it measures
    no profile. It is a fork, or a new process of `program`, which takes the arguments of `headrace`. `tls` says that
    the options give its ports TLS."""
    with contextlib.nullcontext(str(within)) if within else tempfile.TemporaryDirectory() as folder:
        Path(folder, "served.py").write_text(SOURCE)
        command = ["serve", "--json", "--workers", "1", "--max-batch", "4"]
        if not {"--policy", "--config"} & set(options):
            command += ["--policy", "work-conserving"]
        for port in ("http", "grpc", "metrics"):
            command += [f"--{port}", "127.0.0.1:0"]
        for name in models:
            command += ["--model", f"{name}=served:{name}"]
            if profiled:
                command += ["--profile", str(write_profile(Path(folder), name))]
        start = Forked if program is None else subprocess.Popen
        process = start(
            [*(program or ()), *command, *options],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "no_proxy": "*"},
            start_new_session=True,
        )
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield Server(process, json.loads(line), Path(folder), tls)
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def scale_request(*first: float, **parameters: Any) -> dict[str, Any]:
    """Return a request for `scale` with one row for each of the first elements."""
    data = [[number, 1.0, 2.0, 3.0] for number in first]
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(first), 4], "data": data}
    return {"inputs": [tensor], "parameters": parameters}


def scaled(answer: bytes) -> np.ndarray:
    output = json.loads(answer)["outputs"][0]
    return np.array(output["data"], np.float32).reshape(output["shape"])


def until(condition: Any, timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
