#!/usr/bin/env python3
"""Soak `headrace serve`: send ten times more requests than it can serve, with a shortage every five seconds.

    .venv/bin/python scripts/soak_server.py [--requests 1000000] [--workers 2] [--json FILE]

The network sleeps for 20 ms, and 2.5 ms more for each item of a batch of up to 8. So this machine can send ten times
the rate that the server serves. The arrivals are Poisson, over HTTP, with a timeout of 500 ms. The shortages come in
turn: a worker or the fork server is killed; descriptors, memory, or the disk of the access log (as root) run out for
SHORT_S. A worker is killed during each shortage, so that its next start meets the shortage.

These conditions must hold; the exit status is 0 if they do:
- All workers serve again within SOON_S after a shortage ends.
- Every request is answered: 200, 503 if the queue is full or no worker is left, or 504 after its deadline. A connection
  may be cut instead, at most once for each shortage of descriptors or memory.
- The server's memory (RSS) does not grow once it is warm. The workers do not count, because they are new after a kill.
- At SIGTERM the server ends with status 0.
"""

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from shortages import SHORTAGES, Shortage, no_space, small_disk, workers

from headrace.batching import Profile, ProfilePoint
from headrace.host.bench.client import RequestOptions
from headrace.host.bench.http_client import HttpTarget
from headrace.host.bench.inputs import random_inputs
from headrace.host.bench.plan import planned
from headrace.host.bench.report import result
from headrace.host.bench.run import OpenLoop, run
from headrace.host.workers.profiling.batches import machine

ROOT = Path(__file__).resolve().parents[1]
MAX_BATCH = 8
BASE_S, EACH_S = 20e-3, 2.5e-3  # as in benchmarks.networks.Paced
OVERLOAD = 10
TIMEOUT_S = 0.5
EVERY_S = 5.0
SHORT_S = 3.0
SOON_S = 10.0
LOOK_S = 2.0
MAX_GROWTH = 1.05  # median memory in the last quarter of the run divided by that in the second quarter
WAIT_S = 60.0
CONNECTIONS = 2000


class Watch(threading.Thread):
    """Make a shortage every EVERY_S, and record the server's memory and the time until all workers serve again."""

    def __init__(self, server: int, metrics: str, count: int, shortages: dict[str, Shortage]) -> None:
        super().__init__(daemon=True)
        self.memory_mib = list[float]()
        self.again_s: dict[str, list[float]] = {name: [] for name in shortages}
        self.end = threading.Event()
        self._server = server
        self._metrics = metrics
        self._count = count
        self._shortages = shortages

    def run(self) -> None:
        for name, shortage in itertools.cycle(self._shortages.items()):
            if self.end.wait(EVERY_S):
                return
            self.memory_mib.append(rss_kib(self._server) / 1024)
            with shortage(self._server):
                if alive := workers(self._server):
                    os.kill(random.choice(alive), signal.SIGKILL)
                time.sleep(SHORT_S)
            ended = time.monotonic()
            while self._up() < self._count and time.monotonic() < ended + 10 * SOON_S:
                time.sleep(0.1)
            self.again_s[name].append(time.monotonic() - ended)

    def _up(self) -> int:
        """Return how many workers are in service."""
        try:
            with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=SOON_S) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0
        return int(sum(float(line.split()[-1]) for line in lines if line.startswith("headrace_workers_up")))


def rss_kib(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])


def soak(requests: int, count: int, folder: Path, disk: Path | None) -> dict[str, Any]:
    points = tuple(
        ProfilePoint(batch, latency_s, count * batch / latency_s)
        for batch in (1, 2, 4, MAX_BATCH)
        for latency_s in [BASE_S + EACH_S * batch]
    )
    capacity_rps = points[-1].throughput_rps
    profile = folder / "paced.profile.json"
    profile.write_text(Profile("paced", count, points, {}).to_json())
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from headrace.host.cli.main import main; main()",
            "serve",
            "--json",
            "--model",
            "paced=benchmarks.networks:paced",
            "--profile",
            str(profile),
            "--policy",
            "work-conserving",
            "--workers",
            str(count),
            "--max-batch",
            str(MAX_BATCH),
            "--drop-late",
            "--max-connections",
            "4096",
            *([] if disk is None else ["--access-log", str(disk / "access.log")]),
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        ports = json.loads(server.stdout.readline())
        host, port = ports["http"].rsplit(":", 1)
        shortages = SHORTAGES if disk is None else SHORTAGES | {"space": no_space(disk)}
        watch = Watch(server.pid, ports["metrics"], count, shortages)
        target = HttpTarget(host, int(port))
        model = target.metadata("paced")
        request = RequestOptions(timeout_us=round(TIMEOUT_S * 1e6))
        messages = [target.message(model, each, request) for each in random_inputs(model, 1, seed=0)]
        plan = OpenLoop(planned("poisson", OVERLOAD * capacity_rps, requests, seed=0), WAIT_S)
        watch.start()
        answers = run(target, plan, messages, processes=1, connections=CONNECTIONS)
        watch.end.set()
        watch.join()
        counted = target.statistics("paced")
    finally:
        server.send_signal(signal.SIGTERM)
        status = server.wait(60)
    cut = CONNECTIONS * sum(len(watch.again_s[name]) for name in ("descriptors", "memory") if name in watch.again_s)
    quarter = len(watch.memory_mib) // 4
    early, late = watch.memory_mib[quarter : 2 * quarter], watch.memory_mib[3 * quarter :]
    measured = result(
        answers, rate_rps=OVERLOAD * capacity_rps, timeout_s=TIMEOUT_S, before=None, after=counted, seed=0
    )
    return {
        **measured,
        "capacity_rps": capacity_rps,
        "said": {status.name.lower(): texts for status, texts in answers.error_texts.items()},
        "answer_ms_p99": float(np.nanpercentile(answers.ended - answers.sent, 99) * 1e3),
        "serves_again_s": watch.again_s,
        "memory_mib": {"second_quarter": float(np.median(early)), "last_quarter": float(np.median(late))},
        "server_exit": status,
        "holds": {
            "all_answered": measured["statuses"]["error"] == 0 and measured["statuses"]["unanswered"] <= cut,
            "memory_flat": bool(np.median(late) <= MAX_GROWTH * np.median(early)),
            "serves_again": all(took_s < SOON_S for each in watch.again_s.values() for took_s in each),
            "server_ended_well": status == 0,
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "soak")
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with small_disk(options.out / "disk") as disk:
        outcome = {"machine": machine(), **soak(options.requests, options.workers, options.out, disk)}
    ends, memory = outcome["statuses"], outcome["memory_mib"]
    row = {
        "requests": outcome["requests"],
        "asked/s": round(outcome["rate_rps"]),
        "capacity/s": round(outcome["capacity_rps"]),
        "200": ends["ok"],
        "503, full": ends["shed"],
        "503, no worker": ends["unavailable"],
        "504": ends["late"],
        "lost": ends["error"] + ends["unanswered"],
        "shortages": sum(map(len, outcome["serves_again_s"].values())),
        "serves again, s": max(itertools.chain(*outcome["serves_again_s"].values()), default=0.0),
        "server MiB": f"{memory['second_quarter']:.0f}, then {memory['last_quarter']:.0f}",
    }
    print(f"| {' | '.join(row)} |\n|{' --- |' * len(row)}\n| {' | '.join(map(str, row.values()))} |")
    print(outcome["said"])
    if options.json:
        options.json.write_text(json.dumps(outcome, indent=2) + "\n")
    failed = [name for name, holds in outcome["holds"].items() if not holds]
    print("all conditions hold" if not failed else f"these conditions do not hold: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
