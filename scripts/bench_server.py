#!/usr/bin/env python3
"""`headrace serve` beside NVIDIA's Triton Inference Server on this machine, in one run, by one client.

    .venv/bin/python scripts/bench_server.py [--rounds 3] [--seconds 5] [--only echo|batches|photos] [--keep-awake]
        [--json FILE]

- echo: 150,528 float32 there and back, 1 and 4 requests at a time, over HTTP and gRPC, in messages and, where a server
  has the extension, through shared memory. Triton's is a Python model that returns its input.
- batches: a network that takes 1.052 + 0.3051 b ms by the clock, Poisson arrivals at 1,000/s, 20,000 requests a round.
  Headrace's policies beside Triton's dynamic batcher, without and with a delay of 1 ms.
- photos: a JPEG in, labels out, 8 requests at a time. Triton's is an ensemble: a Python step that decodes, resizes,
  crops and normalises with OpenCV, and the network. With a network that costs next to nothing, and with
  mobilenet_v3_small.

The client is `headrace bench`'s (one process; see its ceiling in the README). The servers of a case run side by side
and are measured in turn in each round, so that a slow moment of the machine meets all alike; figures are medians of
the rounds. Triton comes from PyPI's nvidia-pytriton into an environment of its own, --triton, which is made when it
is not there (1.4 GB): its Python models need numpy 1.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headrace.batching import HeadraceError, Profile, ProfilePoint
from headrace.host.bench.client import RequestOptions, Target
from headrace.host.bench.grpc_client import GrpcTarget
from headrace.host.bench.http_client import HttpTarget
from headrace.host.bench.inputs import file_inputs, random_inputs
from headrace.host.bench.plan import planned
from headrace.host.bench.report import result
from headrace.host.bench.run import ClosedLoop, OpenLoop, Plan, run
from headrace.host.bench.shared_memory import in_shared_memory
from headrace.host.live.process_tuning import awake_cores
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.profiling.batches import machine

HERE = Path(__file__).resolve().parent
PHOTO = HERE.parent / "examples" / "chelsea.jpg"
ALPHA_S, TAU0_S = 0.3051e-3, 1.052e-3  # as in bench_nets
MAX_BATCH = 32
REQUIREMENTS = ("nvidia-pytriton==0.7.0", "numpy<2", "opencv-python-headless<4.12", "torch>=2.13,<2.14")
START_S = 180.0
CONNECTIONS = 1000
BATCHING = "dynamic_batching { }"
DELAYED = "dynamic_batching { max_queue_delay_microseconds: 1000 }"


@dataclass(frozen=True, slots=True)
class Server:
    """`name` for the tables; its ports on this machine."""

    name: str
    http: int
    grpc: int

    def target(self, transport: str) -> Target:
        return HttpTarget("127.0.0.1", self.http) if transport == "http" else GrpcTarget("127.0.0.1", self.grpc)


@contextlib.contextmanager
def started(command: Sequence[str], folder: Path, server: Server, environment: dict[str, str]) -> Iterator[Server]:
    """A server as a process, when it is ready. Its output goes to a file in `folder`. Raises HeadraceError."""
    log = folder / f"{server.name.replace(' ', '_')}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=HERE,
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        end = time.monotonic() + START_S
        while not is_ready(server):
            if process.poll() is not None or time.monotonic() > end:
                raise HeadraceError(f"{server.name} did not start: {log.read_text()[-20000:]}")
            time.sleep(0.1)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def is_ready(server: Server) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=5)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def free_ports(count: int) -> list[int]:
    """Below those that the kernel gives to clients, of which one could take it before the server does."""
    found = list[int]()
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            found.append(port)
    return found


def headrace(
    folder: Path, name: str, model: str, source: str, policy: str, *options: str
) -> contextlib.AbstractContextManager[Server]:
    """One worker, as Triton has one instance. `model` is its name for clients. The profile is of the network of
    `batches`; no other case's policy reads it, but without one each would be measured first."""
    server = Server(name, *(ports := free_ports(3))[:2])
    points = tuple(
        ProfilePoint(batch, latency_s, batch / latency_s)
        for batch in (1, 2, 4, 8, 16, 32)
        for latency_s in [ALPHA_S * batch + TAU0_S]
    )
    profile = folder / f"{model}.profile.json"
    profile.write_text(Profile(model, 1, points, {}).to_json())
    command = [
        sys.executable,
        "-m",
        "headrace.host.cli.main",
        "serve",
        "--model",
        f"{model}={source}",
        "--policy",
        policy,
        "--workers",
        "1",
        "--max-batch",
        str(MAX_BATCH),
        "--max-queue",
        "4096",
        "--profile",
        str(profile),
        *options,
    ]
    for option, port in zip(("--http", "--grpc", "--metrics"), ports, strict=True):
        command += [option, f"127.0.0.1:{port}"]
    command[1:3] = ["-c", "from headrace.host.cli.main import main; main()"]
    return started(command, folder, server, {})


# ---- Triton ----


class Triton:
    """Servers of its environment, which is made if it is not there. Raises CalledProcessError."""

    def __init__(self, environment: Path) -> None:
        self._python = environment / "bin" / "python"
        if not (environment / "complete").exists():
            print(f"making {environment} for Triton, some minutes", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
            subprocess.run([self._python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
            (environment / "complete").touch()
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        package = environment / "lib" / f"python{version}" / "site-packages" / "pytriton" / "tritonserver"
        self._binary = package / "bin" / "tritonserver"
        self._backends = package / "backends"
        stub = self._backends / "python" / "triton_python_backend_stub"  # where Triton looks for it
        if not stub.exists():
            # A link, as what it is linked with is found from where it really lies.
            stub.symlink_to(package / "python_backend_stubs" / version / stub.name)
        for file in (self._binary, stub):
            file.chmod(0o755)

    def serving(
        self, folder: Path, name: str, models: Sequence[tuple[str, str, str]]
    ) -> contextlib.AbstractContextManager[Server]:
        """`models` are name, program (a file of triton_models; none for an ensemble) and config.pbtxt."""
        repository = folder / name.replace(" ", "_")
        for model, program, config in models:
            (repository / model / "1").mkdir(parents=True)
            (repository / model / "config.pbtxt").write_text(config)
            if program:
                shutil.copy(HERE / "triton_models" / f"{program}.py", repository / model / "1" / "model.py")
            (repository / model / "labels.txt").write_text("".join(f"label {n}\n" for n in range(1000)))
        server = Server(name, *(ports := free_ports(2)))
        command = [
            self._binary,
            "--model-repository",
            repository,
            "--backend-directory",
            self._backends,
            "--http-address",
            "127.0.0.1",
            "--http-port",
            str(ports[0]),
            "--grpc-address",
            "127.0.0.1",
            "--grpc-port",
            str(ports[1]),
            "--allow-metrics",
            "false",
        ]
        path = os.pathsep.join([str(self._python.parent), os.environ["PATH"]])
        site = self._python.parent.parent / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        environment = {
            "PATH": path,
            "PYTHONPATH": os.pathsep.join([str(site / "site-packages"), str(HERE)]),
            "OMP_NUM_THREADS": "1",
        }
        return started(list(map(str, command)), folder, server, environment)


def tensor(name: str, kind: str, dims: Sequence[int], labels: bool = False) -> str:
    file = ', label_filename: "labels.txt"' if labels else ""
    return f'{{ name: "{name}", data_type: TYPE_{kind}, dims: {list(dims)}{file} }}'


def python_model(given: str, out: str, batching: str, network: str = "") -> str:
    parameter = f'parameters {{ key: "network", value: {{ string_value: "{network}" }} }}' if network else ""
    return f"""backend: "python"
max_batch_size: {MAX_BATCH}
input [ {given} ]
output [ {out} ]
instance_group [ {{ kind: KIND_CPU, count: 1 }} ]
{batching}
{parameter}
"""


IMAGE, IMAGE_BYTES = tensor("x", "FP32", (3, 224, 224)), tensor("IMAGE", "STRING", (1,))


def ensemble(outputs: int) -> str:
    return f"""platform: "ensemble"
max_batch_size: {MAX_BATCH}
input [ {IMAGE_BYTES} ]
output [ {tensor("output", "FP32", (outputs,), labels=True)} ]
ensemble_scheduling {{ step [
  {{ model_name: "preprocess", model_version: -1, input_map {{ key: "IMAGE", value: "IMAGE" }},
     output_map {{ key: "x", value: "x" }} }},
  {{ model_name: "network", model_version: -1, input_map {{ key: "x", value: "x" }},
     output_map {{ key: "output", value: "output" }} }}
] }}
"""


# ---- cases ----


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured at a server, in each round: `name` and the plan of it, given a round's number."""

    name: str
    server: Server
    transport: str
    model: str
    plan: Callable[[int], Plan]
    photo: bool = False
    shared: bool = False

    def measure(self, number: int) -> dict[str, Any]:
        target = self.server.target(self.transport)
        model = target.metadata(self.model)
        tensors = file_inputs(model, PHOTO) if self.photo else random_inputs(model, 1, seed=0)
        with contextlib.ExitStack() as stack:
            if self.shared:
                messages = stack.enter_context(in_shared_memory(target, model, tensors, RequestOptions()))
            else:
                messages = [
                    target.message(model, each, RequestOptions(classes=5 if self.photo else 0)) for each in tensors
                ]
            before = target.statistics(self.model)
            answers = run(target, self.plan(number), messages, processes=1, connections=CONNECTIONS)
            after = target.statistics(self.model)
        found = result(answers, rate_rps=None, timeout_s=None, before=before, after=after, seed=number)
        return {**found, "said": {status.name.lower(): texts for status, texts in answers.error_texts.items()}}


def echo(triton: Triton, folder: Path, seconds: float, stack: contextlib.ExitStack) -> list[Case]:
    out = tensor("output", "FP32", (3, 224, 224))
    servers = [
        stack.enter_context(
            headrace(folder, "Headrace", "echo", "bench_nets:echo", "work-conserving", "--shared-memory")
        ),
        stack.enter_context(triton.serving(folder, "Triton", [("echo", "echo", python_model(IMAGE, out, BATCHING))])),
    ]
    return [
        Case(
            f"{transport}{', shared memory' if shared else ''}, {at_once} at a time",
            server,
            transport,
            "echo",
            lambda _, at_once=at_once: ClosedLoop(at_once, seconds, 10.0),
            shared=shared,
        )
        for transport in ("http", "grpc")
        for shared in (False, True)
        for at_once in (1, 4)
        for server in servers
        if not shared or has_shared_memory(server)
    ]


def has_shared_memory(server: Server) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=5)
    connection.request("GET", "/v2")
    return "system_shared_memory" in json.loads(connection.getresponse().read())["extensions"]


def batches(triton: Triton, folder: Path, seconds: float, stack: contextlib.ExitStack) -> list[Case]:
    given, out = tensor("x", "FP32", (1,)), tensor("output", "FP32", (1,))

    def timed(batching: str) -> list[tuple[str, str, str]]:
        return [("timed", "network", python_model(given, out, batching, "bench_nets:timed"))]

    servers = [
        *(
            stack.enter_context(headrace(folder, f"Headrace {policy}", "timed", "bench_nets:timed", policy))
            for policy in ("work-conserving", "smdp")
        ),
        stack.enter_context(triton.serving(folder, "Triton", timed(BATCHING))),
        stack.enter_context(triton.serving(folder, "Triton 1 ms", timed(DELAYED))),
    ]
    count = round(4000 * seconds)  # 20,000 where a run is 5 s: they take 20 s
    return [
        Case(
            f"{transport}, 1,000/s",
            server,
            transport,
            "timed",
            lambda number: OpenLoop(planned("poisson", 1000.0, count, number), 10.0),
        )
        for transport in ("http", "grpc")
        for server in servers
    ]


def photos(triton: Triton, folder: Path, seconds: float, stack: contextlib.ExitStack) -> list[Case]:
    found = []
    mobilenet = load_model("mobilenet_v3_small")
    script = folder / "mobilenet.torchscript"
    torch.jit.trace(mobilenet.module, torch.zeros(2, 3, 224, 224)).save(script)
    for name, ours, theirs, outputs in (
        ("means", "bench_nets:means", "bench_nets:means", 3),
        ("mobilenet", "mobilenet_v3_small", str(script), 1000),
    ):
        network = python_model(IMAGE, tensor("output", "FP32", (outputs,)), BATCHING, theirs)
        step = python_model(IMAGE_BYTES, IMAGE, BATCHING)
        models = [("preprocess", "preprocess", step), ("network", "network", network), (name, "", ensemble(outputs))]
        servers = [
            stack.enter_context(headrace(folder, f"Headrace {name}", name, ours, "work-conserving")),
            stack.enter_context(triton.serving(folder, f"Triton {name}", models)),
        ]
        found += [
            Case(
                f"{transport}, {name}, 8 at a time",
                server,
                transport,
                name,
                lambda _: ClosedLoop(8, seconds, 10.0),
                photo=True,
            )
            for transport in ("http", "grpc")
            for server in servers
        ]
    return found


CASES = {"echo": echo, "batches": batches, "photos": photos}


def measured(
    kind: str, triton: Triton, rounds: int, seconds: float, on_round: Callable[[int], None]
) -> list[dict[str, Any]]:
    """A row for each case, with all its rounds."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        cases = CASES[kind](triton, Path(folder), seconds, stack)
        rows = [{"case": case.name, "server": case.server.name, "rounds": list[Any]()} for case in cases]
        for case in cases:  # until all is warm
            run_length = min(seconds, 1.0)
            case_plan = ClosedLoop(4, run_length, 10.0)
            Case(
                case.name,
                case.server,
                case.transport,
                case.model,
                lambda _, plan=case_plan: plan,
                case.photo,
                case.shared,
            ).measure(0)
        for number in range(rounds):
            for case, row in zip(cases, rows, strict=True):
                row["rounds"].append(case.measure(number))
            on_round(number)
    return rows


def print_table(kind: str, rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{kind}\n\n| case | server | ok/s | mean ms | p50 | p95 | p99 | mean batch | client's us | not ok |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        rounds = row["rounds"]

        def median(value: Callable[[Any], float | None], rounds: list[Any] = rounds) -> float:
            return statistics.median(value(each) or 0.0 for each in rounds)

        latency = [
            f"{median(lambda each, name=name: each['latency_ms'][name]):.2f}" for name in ("mean", "p50", "p95", "p99")
        ]
        missed = sum(each["requests"] - each["finished"] for each in rounds)
        print(
            f"| {row['case']} | {row['server']} | {median(lambda each: each['throughput_rps']):.0f} "
            f"| {' | '.join(latency)} | {median(lambda each: each['batch_size_mean']):.2f} "
            f"| {median(lambda each: each['client_cpu_us']):.0f} | {missed} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run; batches take four times as long")
    parser.add_argument("--only", choices=tuple(CASES))
    parser.add_argument("--triton", type=Path, default=HERE.parent / "out" / "triton", help="its environment")
    parser.add_argument("--json", type=Path, help="write all rounds here")
    parser.add_argument("--keep-awake", action="store_true", help="cores do not sleep, for any of the servers")
    options = parser.parse_args()
    triton = Triton(options.triton.resolve())
    found = {}
    with awake_cores() if options.keep_awake else contextlib.nullcontext():
        for kind in CASES if options.only is None else (options.only,):
            found[kind] = measured(
                kind,
                triton,
                options.rounds,
                options.seconds,
                lambda number, kind=kind: print(f"{kind}: round {number + 1} of {options.rounds}", file=sys.stderr),
            )
            print_table(kind, found[kind])
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), **found}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
