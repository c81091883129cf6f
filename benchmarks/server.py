"""`headrace serve` and NVIDIA's Triton Inference Server on this machine, in one run, by one client.

    .venv/bin/python -m benchmarks.server [--rounds 3] [--seconds 5] [--only echo|batches|images|fronts]
        [--keep-awake] [--json [FILE]]

- echo: 150,528 float32 there and back, 1, 4 and 16 requests at a time, over HTTP and gRPC, in messages and, where a
  server has the extension, through shared memory. Triton's is a Python model that returns its input. A third server
  has Headrace's fronts alone (benchmarks/front_server.py): what is left if all behind them took no time.
- batches: a network that takes 1.052 + 0.3051 b ms by the clock, Poisson arrivals at 1,000/s, 20,000 requests a round.
  Headrace's policies run in turn with Triton's dynamic batcher, without a delay and with a delay of 1 ms.
- images: a JPEG in, labels out, 8 requests at a time. Triton's is an ensemble: a Python step that decodes, resizes,
  crops and normalises with OpenCV, and the network. One network costs next to nothing, the other is mobilenet_v3_small.
- fronts: the echo of Headrace alone, with each front of gRPC. It runs only if --only names it.

The client is that of `headrace bench` (one process). The servers of a case run at the same time and are measured in
turn. Figures are medians of the rounds. A server's CPU time per request is that of all its processes: it hardly
depends on other load of the machine. Triton is that of `scripts/setup_triton --benchmark`, which the benchmark runs.
"""

import argparse
import contextlib
import http.client
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import IMAGE_FILE, ROOT, Report, arguments, main, measure, median, table
from benchmarks.processes import HEADRACE, cpu_s, serving
from benchmarks.runtime import timed_profile
from benchmarks.triton_servers import triton
from headrace.host.bench.client import RequestOptions, Target
from headrace.host.bench.grpc_client import GrpcTarget
from headrace.host.bench.http_client import HttpTarget
from headrace.host.bench.inputs import file_inputs, random_inputs
from headrace.host.bench.plan import planned
from headrace.host.bench.report import result
from headrace.host.bench.run import ClosedLoop, OpenLoop, Plan
from headrace.host.bench.run import run as send
from headrace.host.bench.shared_memory import in_shared_memory
from headrace.host.live.machine.process_tuning import awake_cores
from headrace.host.workers.networks.models import load_model

MAX_BATCH = 32
CONNECTIONS = 1000
TRANSPORTS = ("http", "grpc")
BATCHING = "dynamic_batching { }"
DELAYED = "dynamic_batching { max_queue_delay_microseconds: 1000 }"
WARM_UP_S = 1.0
WAIT_S = 10.0  # for answers after the last request
FRONTS_ALONE = "Headrace's fronts alone"


@dataclass(frozen=True, slots=True)
class Server:
    """A server with its name in the tables, its ports on this machine, and its process."""

    name: str
    http: int
    grpc: int
    pid: int

    def target(self, transport: str) -> Target:
        return HttpTarget("127.0.0.1", self.http) if transport == "http" else GrpcTarget("127.0.0.1", self.grpc)

    def get(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of an answer over HTTP."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=5)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()


@contextlib.contextmanager
def headrace(
    folder: Path, name: str, model: str, source: str, policy: str, *options: str, program: Sequence[str] = (HEADRACE,)
) -> Iterator[Server]:
    """Run `headrace serve` with one worker, as Triton has one instance. `model` is its name for clients.

    The profile is that of the network of `batches`. No other case's policy reads it, but without one each network would
    be measured first."""
    profile = folder / f"{model}.profile.json"
    profile.write_text(timed_profile(model).to_json())
    words = f"--model {model}={source} --policy {policy} --workers 1 --max-batch {MAX_BATCH} --max-queue 4096"
    with serving(*words.split(), "--profile", str(profile), *options, program=program) as ready:
        yield Server(name, *(int(ready[transport].rpartition(":")[2]) for transport in TRANSPORTS), ready["pid"])


# ---- Triton ----


@contextlib.contextmanager
def serving_by_triton(folder: Path, name: str, models: Sequence[tuple[str, str, str]]) -> Iterator[Server]:
    """Run Triton. `models` are name, program (a file of triton_models; none for an ensemble) and config.pbtxt.

    Its output goes to a file in `folder`. Raises HeadraceError."""
    repository = folder / name.replace(" ", "_")
    for model, program, config in models:
        (repository / model / "1").mkdir(parents=True)
        (repository / model / "config.pbtxt").write_text(config)
        if program:
            source = Path(__file__).parent / "triton_models" / f"{program}.py"
            shutil.copy(source, repository / model / "1" / "model.py")
        (repository / model / "labels.txt").write_text("".join(f"label {n}\n" for n in range(1000)))
    with triton(repository, repository.with_suffix(".log")) as running:
        yield Server(name, *running)


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
    """One measurement at a server, in each round: `plan` is what the client sends, given the round's number."""

    name: str
    server: Server
    transport: str
    model: str
    plan: Callable[[int], Plan]
    image: bool = False
    shared: bool = False

    def __str__(self) -> str:
        return f"{self.transport}{', shared memory' if self.shared else ''}, {self.name}"

    def measure(self, plan: Plan, number: int) -> dict[str, Any]:
        target = self.server.target(self.transport)
        model = target.metadata(self.model)
        tensors = file_inputs(model, IMAGE_FILE) if self.image else random_inputs(model, 1, seed=0)
        with contextlib.ExitStack() as stack:
            if self.shared:
                messages = stack.enter_context(in_shared_memory(target, model, tensors, RequestOptions()))
            else:
                messages = [
                    target.message(model, each, RequestOptions(classes=5 if self.image else 0)) for each in tensors
                ]
            before, began_s = target.statistics(self.model), cpu_s(self.server.pid)
            answers = send(target, plan, messages, processes=1, connections=CONNECTIONS)
            after, took_s = target.statistics(self.model), cpu_s(self.server.pid) - began_s
        found = result(answers, rate_rps=None, timeout_s=None, before=before, after=after, seed=number)
        cpu_us = took_s * 1e6 / max(1, found["finished"])
        return {
            **found,
            "server_cpu_us": cpu_us,
            "said": {status.name.lower(): texts for status, texts in answers.error_texts.items()},
        }


def closed_loop(at_once: int, seconds: float) -> Callable[[int], Plan]:
    return lambda _: ClosedLoop(at_once, seconds, WAIT_S)


def echo(folder: Path, seconds: float, stack: contextlib.ExitStack) -> list[Case]:
    config = python_model(IMAGE, tensor("output", "FP32", (3, 224, 224)), BATCHING)
    given = ("echo", "benchmarks.networks:echo", "work-conserving", "--shared-memory")
    fronts_alone = (sys.executable, "-c", "from benchmarks.front_server import main; main()")
    ours = headrace(folder, "Headrace", *given)
    theirs = serving_by_triton(folder, "Triton", [("echo", "echo", config)])
    alone = headrace(folder, FRONTS_ALONE, *given, program=fronts_alone)
    servers = [stack.enter_context(server) for server in (ours, theirs, alone)]
    return [
        Case(f"{at_once} at a time", server, transport, "echo", closed_loop(at_once, seconds), shared=shared)
        for transport in TRANSPORTS
        for shared in (False, True)
        for at_once in (1, 4, 16)
        for server in servers
        if not shared or "system_shared_memory" in json.loads(server.get("/v2")[1])["extensions"]
    ]


def batches(folder: Path, seconds: float, stack: contextlib.ExitStack) -> list[Case]:
    source, given, out = "benchmarks.networks:timed", tensor("x", "FP32", (1,)), tensor("output", "FP32", (1,))
    ours = [headrace(folder, f"Headrace {policy}", "timed", source, policy) for policy in ("work-conserving", "smdp")]
    theirs = [
        serving_by_triton(folder, name, [("timed", "network", python_model(given, out, batching, source))])
        for name, batching in (("Triton", BATCHING), ("Triton 1 ms", DELAYED))
    ]
    servers = [stack.enter_context(server) for server in (*ours, *theirs)]
    count = round(4000 * seconds)  # 20,000 where a run is 5 s: they take 20 s
    return [
        Case("1,000/s", server, transport, "timed", lambda n: OpenLoop(planned("poisson", 1000.0, count, n), WAIT_S))
        for transport in TRANSPORTS
        for server in servers
    ]


def images(folder: Path, seconds: float, stack: contextlib.ExitStack) -> list[Case]:
    found = []
    script = folder / "mobilenet.torchscript"
    torch.jit.trace(load_model("mobilenet_v3_small").module, torch.zeros(2, 3, 224, 224)).save(script)
    for name, ours, theirs, outputs in (
        ("means", "benchmarks.networks:means", "benchmarks.networks:means", 3),
        ("mobilenet", "mobilenet_v3_small", str(script), 1000),
    ):
        network = python_model(IMAGE, tensor("output", "FP32", (outputs,)), BATCHING, theirs)
        step = python_model(IMAGE_BYTES, IMAGE, BATCHING)
        models = [("preprocess", "preprocess", step), ("network", "network", network), (name, "", ensemble(outputs))]
        servers = [
            stack.enter_context(headrace(folder, f"Headrace {name}", name, ours, "work-conserving")),
            stack.enter_context(serving_by_triton(folder, f"Triton {name}", models)),
        ]
        found += [
            Case(f"{name}, 8 at a time", server, transport, name, closed_loop(8, seconds), image=True)
            for transport in TRANSPORTS
            for server in servers
        ]
    return found


def fronts(folder: Path, seconds: float, stack: contextlib.ExitStack) -> list[Case]:
    servers = [
        stack.enter_context(
            headrace(folder, front, "echo", "benchmarks.networks:echo", "work-conserving", "--grpc-front", front)
        )
        for front in ("aio", "native")
    ]
    return [
        Case(f"{at_once} at a time", server, "grpc", "echo", closed_loop(at_once, seconds))
        for at_once in (1, 4, 16)
        for server in servers
    ]


WITH_TRITON = {"echo": echo, "batches": batches, "images": images}
PARTS = {**WITH_TRITON, "fronts": fronts}


def rows_of(part: str, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each case, with all its rounds."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        cases = {f"{case}, {case.server.name}": case for case in PARTS[part](Path(folder), seconds, stack)}
        for case in cases.values():
            case.measure(ClosedLoop(4, min(seconds, WARM_UP_S), WAIT_S), 0)
        found = measure(
            {name: lambda number, case=case: case.measure(case.plan(number), number) for name, case in cases.items()},
            rounds,
        )
    return [{"case": str(case), "server": case.server.name, "rounds": found[name]} for name, case in cases.items()]


def text_of(part: str, rows: Sequence[dict[str, Any]]) -> str:
    shown = []
    for row in rows:
        rounds = row["rounds"]
        ms = " | ".join(f"{median(rounds, 'latency_ms', name):.2f}" for name in ("mean", "p50", "p95", "p99"))
        missed = sum(each["requests"] - each["finished"] for each in rounds)
        ran_batches = rounds[0]["batch_size_mean"] is not None
        batch = f"{median(rounds, 'batch_size_mean'):.2f}" if ran_batches else ""
        shown.append(
            f"{row['case']} | {row['server']} | {median(rounds, 'throughput_rps'):.0f} | {ms}"
            f" | {batch} | {median(rounds, 'server_cpu_us'):.0f}"
            f" | {median(rounds, 'client_cpu_us'):.0f} | {missed}"
        )
    head = "case | server | ok/s | mean ms | p50 | p95 | p99 | mean batch | server's us | client's us | not ok"
    return f"{part}\n\n{table(head, shown)}"


def run(options: argparse.Namespace) -> Report:
    if options.only != "fronts":
        subprocess.run([ROOT / "scripts" / "setup_triton", "--benchmark"], check=True)
    with awake_cores() if options.keep_awake else contextlib.nullcontext():
        parts = [options.only] if options.only else WITH_TRITON
        found = {part: rows_of(part, options.rounds, options.seconds) for part in parts}
    return Report(found, "\n\n".join(text_of(part, rows) for part, rows in found.items()))


if __name__ == "__main__":
    parser = arguments(__doc__, only=tuple(PARTS), rounds=3, seconds=5.0)
    parser.add_argument("--keep-awake", action="store_true", help="cores do not sleep, for any of the servers")
    main(parser, run)
