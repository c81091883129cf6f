#!/usr/bin/env python3
"""MLPerf LoadGen (mlcommons-loadgen) against a running server of the Open Inference Protocol.

    .venv/bin/headrace serve --model mobilenet_v3_small &
    .venv/bin/python scripts/loadgen.py http://127.0.0.1:8000 --model mobilenet_v3_small --input examples/chelsea.jpg \\
        --scenario server --rate-rps 100 --latency-ms 50

- server: Poisson arrivals at `--rate-rps`; VALID if the 99th percentile of latency is within `--latency-ms`.
- offline: all samples at once, of which `--at-once` are on their way: samples/s. A rate is what it is expected to do.

MLPerf's own runs last 600 s; `--duration-s` is 20 s here. LoadGen knows of no errors: a request without a result makes
the run fail, whatever LoadGen says of it. Exit status 0 if it is VALID and all were answered. LoadGen's logs
go to `--out`.
"""

import argparse
import asyncio
import json
import sys
import threading
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlperf_loadgen as lg

from headrace.batching import HeadraceError
from headrace.host.bench.client import Asked, Status, Target
from headrace.host.bench.inputs import file_inputs, random_inputs
from headrace.host.cli.bench import target_of

CONNECTIONS = 1000
END_S = 10.0


class ServerUnderTest:
    """Sends LoadGen's queries from an event loop in a thread of its own; `at_once` samples at most are on their way."""

    def __init__(self, target: Target, messages: Sequence[bytes], at_once: int) -> None:
        self.ends: Counter[str] = Counter()
        self.said: set[str] = set()
        self._target = target
        self._messages = messages
        self._at_once = at_once
        self._waiting: deque[Any] = deque()
        self._in_flight = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))

    def __enter__(self) -> "ServerUnderTest":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(END_S)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._target.client(self._on_answer, min(CONNECTIONS, self._at_once)) as self._client:
            self._ready.set()
            await self._stop.wait()

    def issue(self, samples: list[Any]) -> None:
        """LoadGen calls it, from a thread of its own."""
        self._loop.call_soon_threadsafe(self._take, [(sample.id, sample.index) for sample in samples])

    def flush(self) -> None:
        """LoadGen calls it when it has no more queries; nothing is held back here."""

    def _take(self, samples: list[tuple[int, int]]) -> None:
        self._waiting.extend(samples)
        self._send()

    def _send(self) -> None:
        while self._waiting and self._in_flight < self._at_once:
            number, index = self._waiting.popleft()
            self._in_flight += 1
            self._client.send(number, self._messages[index])

    def _on_answer(self, number: int, sent: float | None, status: Status, text: str) -> None:
        self._in_flight -= 1
        self.ends[status.name.lower()] += 1
        if text:
            self.said.add(text)
        lg.QuerySamplesComplete([lg.QuerySampleResponse(number, 0, 0)])
        self._send()


def run(options: argparse.Namespace) -> dict[str, Any]:
    target = target_of(options.url, None)
    model = target.metadata(options.model)
    tensors = file_inputs(model, options.input) if options.input else random_inputs(model, 1, seed=0)
    messages = [target.message(model, each, Asked()) for each in tensors]
    settings = lg.TestSettings()
    settings.mode = lg.TestMode.PerformanceOnly
    settings.min_duration_ms = round(options.duration_s * 1e3)
    settings.min_query_count = 1
    if options.scenario == "server":
        settings.scenario = lg.TestScenario.Server
        settings.server_target_qps = options.rate_rps
        settings.server_target_latency_ns = round(options.latency_ms * 1e6)
        settings.server_target_latency_percentile = 0.99
    else:
        settings.scenario = lg.TestScenario.Offline
        settings.offline_expected_qps = options.rate_rps
    logs = lg.LogSettings()
    options.out.mkdir(parents=True, exist_ok=True)
    logs.log_output.outdir = str(options.out)
    at_once = options.at_once if options.scenario == "offline" else sys.maxsize
    with ServerUnderTest(target, messages, at_once) as served:
        system = lg.ConstructSUT(served.issue, served.flush)
        samples = lg.ConstructQSL(len(messages), len(messages), lambda indices: None, lambda indices: None)
        lg.StartTestWithLogSettings(system, samples, settings, logs)
        lg.DestroyQSL(samples)
        lg.DestroySUT(system)
    return {"ends": dict(served.ends), "said": sorted(served.said)[:3]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="http://HOST:PORT or grpc://HOST:PORT")
    parser.add_argument("--model", required=True)
    parser.add_argument("--scenario", choices=("server", "offline"), default="server")
    parser.add_argument("--rate-rps", type=float, default=100.0)
    parser.add_argument("--latency-ms", type=float, default=100.0, help="of the 99th percentile, in scenario server")
    parser.add_argument("--duration-s", type=float, default=20.0)
    parser.add_argument("--at-once", type=int, default=64, help="samples on their way, in scenario offline")
    parser.add_argument("--input", type=Path, help="a photo or a folder of photos; random tensors without")
    parser.add_argument("--out", type=Path, default=Path("out/loadgen"))
    options = parser.parse_args()
    try:
        found = run(options)
    except HeadraceError as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return 2
    summary = (options.out / "mlperf_log_summary.txt").read_text()
    print(summary)
    print(json.dumps(found))
    return 0 if "Result is : VALID" in summary and set(found["ends"]) == {"ok"} else 1


if __name__ == "__main__":
    sys.exit(main())
