#!/usr/bin/env python3
"""A soak of `headrace serve`: ten times more requests than it can serve, and a worker killed every five seconds.

    .venv/bin/python scripts/soak_server.py [--requests 1000000] [--workers 2] [--json FILE]

The network sleeps 20 ms + 2.5 ms for each of a batch of up to 8, so that this machine can send ten times what it
serves; arrivals are Poisson, over HTTP, with a timeout of 500 ms. What must hold: every request is answered (200; 503
where the queue is full or no worker is left; 504 past its deadline), none is lost, the server's memory (RSS, without
its workers, which are new after each death) grows no more once it is warm, and at SIGTERM it ends with status 0.
Exit status 0 if all that holds.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from headrace.batching import Profile, ProfilePoint
from headrace.host.bench.client import Asked, Status
from headrace.host.bench.http_client import HttpTarget
from headrace.host.bench.inputs import random_inputs
from headrace.host.bench.plan import planned
from headrace.host.bench.report import result
from headrace.host.bench.run import OpenLoop, run
from headrace.host.workers.profiling import machine

HERE = Path(__file__).resolve().parent
MAX_BATCH = 8
BASE_S, EACH_S = 20e-3, 2.5e-3  # as in bench_nets.Paced
OVERLOAD = 10
TIMEOUT_S = 0.5
KILL_S = 5.0
LOOK_S = 2.0
GROWTH = 1.05  # of the median memory of the last quarter over that of the second
WAIT_S = 60.0


class Watch(threading.Thread):
    """Kills one of the server's workers, in turn, every KILL_S, and looks at its memory."""

    def __init__(self, server: int) -> None:
        super().__init__(daemon=True)
        self.killed = 0
        self.memory_mib = list[float]()
        self.end = threading.Event()
        self._server = server

    def run(self) -> None:
        next_kill = time.monotonic() + KILL_S
        while not self.end.wait(LOOK_S):
            if (found := self._workers()) and time.monotonic() >= next_kill:
                os.kill(random.choice(found), signal.SIGKILL)
                self.killed += 1
                next_kill += KILL_S
            self.memory_mib.append(rss_kib(self._server) / 1024)

    def _workers(self) -> list[int]:
        """The workers are the children of the fork server, which is a child of the server."""
        return [worker for child in children(self._server) for worker in children(child)]


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def rss_kib(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])


def soak(requests: int, workers: int, folder: Path) -> dict[str, Any]:
    points = tuple(
        ProfilePoint(batch, latency_s, workers * batch / latency_s)
        for batch in (1, 2, 4, MAX_BATCH)
        for latency_s in [BASE_S + EACH_S * batch]
    )
    capacity_rps = points[-1].throughput_rps
    profile = folder / "paced.profile.json"
    profile.write_text(Profile("paced", workers, points, {}).to_json())
    server = subprocess.Popen(
        [
            sys.executable, "-c", "from headrace.host.cli.main import main; main()", "serve", "--json",
            "--model", "paced=bench_nets:paced", "--profile", str(profile), "--policy", "work-conserving",
            "--workers", str(workers), "--max-batch", str(MAX_BATCH), "--drop-late", "--max-connections", "4096",
            "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
        ],
        cwd=HERE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    watch = Watch(server.pid)
    try:
        assert server.stdout is not None
        host, port = json.loads(server.stdout.readline())["http"].rsplit(":", 1)
        target = HttpTarget(host, int(port))
        model = target.metadata("paced")
        asked = Asked(timeout_us=round(TIMEOUT_S * 1e6))
        messages = [target.message(model, each, asked) for each in random_inputs(model, 1, seed=0)]
        plan = OpenLoop(planned("poisson", OVERLOAD * capacity_rps, requests, seed=0), WAIT_S)
        watch.start()
        answers = run(target, plan, messages, processes=1, connections=2000)
        watch.end.set()
        watch.join()
        counted = target.statistics("paced")
    finally:
        server.send_signal(signal.SIGTERM)
        status = server.wait(60)
    quarter = len(watch.memory_mib) // 4
    early, late = watch.memory_mib[quarter : 2 * quarter], watch.memory_mib[3 * quarter :]
    found = result(answers, rate_rps=OVERLOAD * capacity_rps, timeout_s=TIMEOUT_S, before=None, after=counted, seed=0)
    return {
        **found,
        "capacity_rps": capacity_rps,
        "said": {status.name.lower(): texts for status, texts in answers.said.items()},
        "answer_ms_p99": float(np.nanpercentile(answers.ended - answers.sent, 99) * 1e3),
        "workers_killed": watch.killed,
        "memory_mib": {"second_quarter": float(np.median(early)), "last_quarter": float(np.median(late))},
        "server_exit": status,
        "holds": {
            "all_answered": len(answers.of(Status.UNANSWERED).nonzero()[0]) == 0 and found["statuses"]["error"] == 0,
            "memory_flat": bool(np.median(late) <= GROWTH * np.median(early)),
            "server_ended_well": status == 0,
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE.parent / "out" / "soak")
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found = {"machine": machine(), **soak(options.requests, options.workers, options.out)}
    ends, memory = found["statuses"], found["memory_mib"]
    row = {
        "requests": found["requests"],
        "asked/s": round(found["rate_rps"]),
        "capacity/s": round(found["capacity_rps"]),
        "200": ends["ok"],
        "503, full": ends["shed"],
        "503, no worker": ends["unavailable"],
        "504": ends["late"],
        "lost": ends["error"] + ends["unanswered"],
        "workers killed": found["workers_killed"],
        "server MiB": f"{memory['second_quarter']:.0f}, then {memory['last_quarter']:.0f}",
    }
    print(f"| {' | '.join(row)} |\n|{' --- |' * len(row)}\n| {' | '.join(map(str, row.values()))} |")
    print(found["said"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    failed = [name for name, holds in found["holds"].items() if not holds]
    print("holds" if not failed else f"does not hold: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
