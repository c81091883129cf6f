"""MLPerf LoadGen (mlcommons-loadgen) against a running server of the Open Inference Protocol.

    .venv/bin/headrace serve --model mobilenet_v3_small &
    .venv/bin/python -m benchmarks.loadgen http://127.0.0.1:8000 --model mobilenet_v3_small \\
        --input examples/chelsea.jpg --scenario server --rate-rps 100 --latency-ms 50

- server: Poisson arrivals at `--rate-rps`. The run is VALID if the 99th percentile of latency is within `--latency-ms`.
- offline: all samples at once, of which `--at-once` are sent and not answered at any time; the result is samples/s.
  `--rate-rps` is the rate that LoadGen expects.

MLPerf's own runs last 600 s; `--duration-s` is 20 s here. LoadGen knows of no errors: a request without a result makes
the run fail, whatever LoadGen says of it. The exit status is 0 if the run is VALID and all requests were answered.
LoadGen's logs go to `--out`.
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

from benchmarks.harness import Report, arguments, main
from headrace.batching import HeadraceError, UsageError
from headrace.host.bench.client import RequestOptions, Status, Target
from headrace.host.bench.inputs import file_inputs, random_inputs
from headrace.host.cli.bench import target_of

CONNECTIONS = 1000
END_S = 10.0


class ServerUnderTest:
    """Sends LoadGen's queries from an event loop in a thread of its own, with at most `at_once` samples unanswered."""

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
        """Take samples. LoadGen calls this from a thread of its own."""
        self._loop.call_soon_threadsafe(self._take, [(sample.id, sample.index) for sample in samples])

    def flush(self) -> None:
        """Do nothing, because nothing is held back. LoadGen calls this when it has no more queries."""

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


def run(options: argparse.Namespace) -> Report:
    target = target_of(options.url, None)
    try:
        model = target.metadata(options.model)
    except HeadraceError as error:
        raise UsageError(str(error)) from None
    tensors = file_inputs(model, options.input) if options.input else random_inputs(model, 1, seed=0)
    messages = [target.message(model, each, RequestOptions()) for each in tensors]
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
    found = {"ends": dict(served.ends), "said": sorted(served.said)[:3]}
    summary = (options.out / "mlperf_log_summary.txt").read_text()
    valid = "Result is : VALID" in summary and set(found["ends"]) == {"ok"}
    return Report(found | {"summary": summary}, f"{summary}\n{json.dumps(found)}", failed=not valid)


if __name__ == "__main__":
    parser = arguments(__doc__, rate_rps=100.0, latency_ms=100.0, duration_s=20.0, at_once=64)
    parser.add_argument("url", help="http://HOST:PORT or grpc://HOST:PORT")
    parser.add_argument("--model", required=True)
    parser.add_argument("--scenario", choices=("server", "offline"), default="server")
    parser.add_argument("--input", type=Path, help="a photo or a folder of photos; random tensors without")
    parser.add_argument("--out", type=Path, default=Path("out/loadgen"))
    main(parser, run)
