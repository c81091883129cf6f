"""Where each microsecond of a request goes: CPU time of the server by stage, and of its worker.

    .venv/bin/python -m benchmarks.request_stages [--rounds 5] [--seconds 1] [--against HEADRACE] [--keep-awake]
        [--json [FILE]]

- totals: `headrace serve` with the echo of benchmarks.server (150,528 float32 there and back, one worker), 1, 4 and 16
  requests at a time, over HTTP and gRPC, in messages and through shared memory. The CPU time of the server process and
  that of its worker are counted by the kernel. With --against, the command of another installation serves in turn.
- stages: 4 at a time, with timers around the stages (benchmarks.stage_server). The rest is the event loop, the system
  calls of sockets, and the front of gRPC in its own thread.

The client is that of `headrace bench`, in this process. The cases take turns in the rounds. CPU times are sums over all
rounds for an answer, and rates are medians. CPU times depend less on other load of the machine than rates do. But other
processes also take the caches."""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, arguments, main, measure, median, table
from benchmarks.processes import HEADRACE, descendants, own_cpu_s, serving
from benchmarks.runtime import timed_profile
from benchmarks.stage_server import WARM_UP
from headrace.batching import HeadraceError
from headrace.host.bench.client import RequestOptions, Status, Target
from headrace.host.bench.grpc_client import GrpcTarget
from headrace.host.bench.http_client import HttpTarget
from headrace.host.bench.inputs import random_inputs
from headrace.host.bench.shared_memory import in_shared_memory
from headrace.host.live.machine.process_tuning import awake_cores

TRANSPORTS = {
    "HTTP": ("http", False),
    "gRPC": ("grpc", False),
    "HTTP, shared memory": ("http", True),
    "gRPC, shared memory": ("grpc", True),
}
AT_ONCE = (1, 4, 16)
STAGES_AT_ONCE = 4
WAIT_S = 10.0
NOW, BEFORE = "this", "other"
LEAST = 10 * WARM_UP  # requests of a run whose stages are timed


@contextlib.contextmanager
def echo_server(folder: Path, program: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Serve the echo by `program`, Headrace's command."""
    profile = folder / "echo.profile.json"
    profile.write_text(timed_profile("echo").to_json())
    words = "--model echo=benchmarks.networks:echo --policy work-conserving --workers 1 --max-batch 32 --max-queue 4096"
    with serving(*words.split(), "--shared-memory", "--profile", str(profile), program=program) as ready:
        yield ready


async def echoes(target: Target, message: bytes, at_once: int, seconds: float) -> int:
    """Send a message `at_once` times, and again at each answer. Return the number of answers. Raises HeadraceError."""
    ended = asyncio.get_running_loop().create_future()
    end, sent, answered = time.monotonic() + seconds, 0, 0

    def on_answer(number: int, at: float | None, status: Status, text: str) -> None:
        nonlocal answered
        answered += 1
        if status is not Status.OK and not ended.done():
            ended.set_exception(HeadraceError(f"{target}: a request ended as {status.name}: {text}"))
        elif time.monotonic() < end:
            ask()
        elif answered == sent and not ended.done():
            ended.set_result(None)

    def ask() -> None:
        nonlocal sent
        sent += 1
        client.send(sent - 1, message)

    async with target.client(on_answer, at_once) as client:
        for _ in range(at_once):
            ask()
        await asyncio.wait_for(ended, seconds + WAIT_S)
    return answered


def load(ready: dict[str, Any], transport: str, at_once: int, seconds: float) -> dict[str, float]:
    """Send echoes for some seconds. Return the number of answers, their rate, and CPU times (s). Raises
    HeadraceError."""
    kind, shared = TRANSPORTS[transport]
    port = int(ready[kind].rpartition(":")[2])
    target: Target = HttpTarget("127.0.0.1", port) if kind == "http" else GrpcTarget("127.0.0.1", port)
    model = target.metadata("echo")
    tensors = random_inputs(model, 1, seed=0)
    with contextlib.ExitStack() as stack:
        if shared:
            messages = stack.enter_context(in_shared_memory(target, model, tensors, RequestOptions()))
        else:
            messages = [target.message(model, each, RequestOptions()) for each in tensors]
        workers = descendants(ready["pid"])
        began = own_cpu_s(ready["pid"]), sum(map(own_cpu_s, workers))
        count = asyncio.run(echoes(target, messages[0], at_once, seconds))
        ended = own_cpu_s(ready["pid"]), sum(map(own_cpu_s, workers))
    server_s, worker_s = (end - begin for begin, end in zip(began, ended, strict=True))
    return {"answers": count, "rps": count / seconds, "server_s": server_s, "worker_s": worker_s}


def totals(folder: Path, programs: dict[str, Sequence[str]], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each program, transport and number of requests at a time."""

    def case(ready: dict[str, Any], transport: str, at_once: int) -> Callable[[int], dict[str, float]]:
        return lambda _: load(ready, transport, at_once, seconds)

    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(echo_server(folder, program)) for name, program in programs.items()}
        cases = {
            (transport, at_once, name): ready
            for transport in TRANSPORTS
            for at_once in AT_ONCE
            for name, ready in servers.items()
        }
        for ready in servers.values():
            for transport in TRANSPORTS:
                load(ready, transport, max(AT_ONCE), seconds)  # warms up
        found = measure({json.dumps(key): case(ready, *key[:2]) for key, ready in cases.items()}, rounds)
    names = ("transport", "at_once", "program")
    return [{**dict(zip(names, key, strict=True)), **summary(found[json.dumps(key)])} for key in cases]


def stages(folder: Path, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Return the CPU time of each stage by transport (us for a request)."""
    found: dict[str, list[dict[str, float]]] = {transport: [] for transport in TRANSPORTS}
    file = folder / "stages.json"
    program = (sys.executable, "-c", "from benchmarks.stage_server import main; main()", str(file))
    for _ in range(rounds):
        for transport, of_rounds in found.items():
            with echo_server(folder, program) as ready:
                answers = 0.0
                while answers < LEAST:
                    answers += load(ready, transport, STAGES_AT_ONCE, seconds)["answers"]
            of_rounds.append(json.loads(file.read_text()))
    return {
        transport: {
            stage: statistics.median(each.get(stage, 0.0) for each in of_rounds)
            for stage in dict.fromkeys(stage for each in of_rounds for stage in each)
        }
        for transport, of_rounds in found.items()
    }


def summary(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return the CPU times of server and worker for an answer (us), the median rate, and the rounds."""
    answers = sum(each["answers"] for each in rounds)
    cpu_us = {f"{name}_us": 1e6 * sum(each[f"{name}_s"] for each in rounds) / answers for name in ("server", "worker")}
    return {**cpu_us, "rps": median(rounds, "rps"), "rounds": rounds}


def run(options: argparse.Namespace) -> Report:
    programs: dict[str, Sequence[str]] = {NOW: (HEADRACE,)}
    if options.against is not None:
        programs = {BEFORE: (options.against,), **programs}
    awake = awake_cores() if options.keep_awake else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as name, awake:
        folder = Path(name)
        rows = totals(folder, programs, options.rounds, options.seconds)
        by_stage = stages(folder, max(1, options.rounds // 2), options.seconds)
    figures = {"load": os.getloadavg(), "totals": rows, "stages": by_stage}
    return Report(figures, f"{totals_text(rows)}\n\n{stages_text(by_stage)}")


def totals_text(rows: Sequence[dict[str, Any]]) -> str:
    head = "transport | at a time | Headrace | answers/s | server us | worker us"
    shown = [
        f"{row['transport']} | {row['at_once']} | {row['program']} | {row['rps']:.0f} | {row['server_us']:.0f}"
        f" | {row['worker_us']:.0f}"
        for row in rows
    ]
    return table(head, shown)


def stages_text(by_stage: dict[str, dict[str, float]]) -> str:
    names = dict.fromkeys(stage for of_stage in by_stage.values() for stage in of_stage)
    shown = [
        " | ".join([name, *(f"{of_stage.get(name, 0.0):.0f}" for of_stage in by_stage.values())]) for name in names
    ]
    return table(f"us for a request | {' | '.join(by_stage)}", shown)


if __name__ == "__main__":
    parser = arguments(__doc__, rounds=5, seconds=1.0)
    parser.add_argument("--against", metavar="HEADRACE", help="the command of another installation, measured in turn")
    parser.add_argument("--keep-awake", action="store_true", help="cores do not sleep")
    main(parser, run)
