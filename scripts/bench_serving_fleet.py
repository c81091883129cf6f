#!/usr/bin/env python3
"""`headrace serve --ray` on a Ray cluster of three nodes, all on this machine: what HAProxy costs, what replicas bring,
and what requests see of a replica that is killed, of a node that is killed and of an update.

    .venv/bin/python scripts/bench_serving_fleet.py [--seconds 8] [--concurrency 6] [--json FILE]
    .venv/bin/python scripts/bench_serving_fleet.py --perf-analyzer PROGRAM  # Triton's, in our own's place

Replicas are simulated NPUs, whose time is no core's; photos are decoded by the cores, and clients and HAProxy are on
them, too. Tensors are 602,112 bytes. Exit status 1 if a request failed.
"""

import argparse
import base64
import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.host.workers.profiling.batches import machine

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
PHOTO = Path(__file__).resolve().parents[1] / "examples" / "chelsea.jpg"
HEADRACE = [sys.executable, "-c", "from headrace.host.cli.main import main; main()"]
BOUND_S = 300.0


class Fleet:
    def __init__(self, address: str, model: str, replicas: int, *more: str) -> None:
        command = [*HEADRACE, "serve", "--json", "--ray", address, "--replicas", str(replicas), "--insecure"]
        command += ["--workers", "npu:1", "--model", model, "--policy", "serial", "--sla-ms", "60000", *more]
        command += [f"--{name}=127.0.0.1:0" for name in ("http", "grpc", "metrics")]
        self.said: list[str] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self._listen, daemon=True).start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("\n".join(self.said))
        self.ready = json.loads(line)
        while self.heard("ready, HTTP") < replicas:  # its words come beside that line
            time.sleep(0.01)

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.strip())

    def heard(self, word: str) -> int:
        return sum(word in line for line in self.said)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(BOUND_S)


class PerfAnalyzer:
    """Triton's load generator over one transport, with photos, for three windows that make `s` together. It ends at the
    first request that fails."""

    def __init__(self, ports: dict[str, str], transport: str, options: argparse.Namespace, s: float) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._rows = Path(self._folder.name, "rows.csv")
        given, photo = Path(self._folder.name, "photos.json"), PHOTO.read_bytes()
        element = base64.b64encode(len(photo).to_bytes(4, "little") + photo).decode()
        given.write_text(json.dumps({"data": [{"IMAGE": {"b64": element}}]}))
        command = [
            options.perf_analyzer,
            "-m",
            options.model,
            "-u",
            ports[transport],
            "-i",
            transport,
            "--input-data",
            given,
        ]
        command += ["--shape", "IMAGE:1", "--concurrency-range", str(options.concurrency), "-f", self._rows]
        command += ["--measurement-interval", str(round(1000 * s / 3)), "--stability-percentage", "999"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def result(self) -> dict[str, Any]:
        said = self._process.communicate()[0]
        count = re.search(r"Request count: (\d+)", said)
        if self._process.returncode != 0 or count is None:
            print(said, file=sys.stderr)
            return {"requests": 0, "not_answered": 1, "per_s": 0.0, "p50_ms": 0.0, "p99_ms": 0.0, "max_ms": None}
        (row,) = csv.DictReader(self._rows.read_text().splitlines())
        return {
            "requests": int(count[1]),
            "not_answered": 0,
            "per_s": float(row["Inferences/Second"]),
            "p50_ms": int(row["p50 latency"]) / 1e3,
            "p99_ms": int(row["p99 latency"]) / 1e3,
            "max_ms": None,
        }


class Load:
    """`headrace bench` over one transport, with photos or tensors."""

    def __init__(
        self, ports: dict[str, str], transport: str, photos: bool, options: argparse.Namespace, s: float
    ) -> None:
        command = [*HEADRACE, "bench", f"{transport}://{ports[transport]}", "--model", options.model, "--json"]
        command += ["--concurrency", str(options.concurrency), "--duration-s", f"{s:g}", "--wait-s", "30"]
        command += ["--input", str(PHOTO), "--classes", "1"] if photos else []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def result(self) -> dict[str, Any]:
        found = json.loads(self._process.communicate()[0])["runs"][0]
        latency = found["latency_ms"]
        return {
            "requests": found["requests"],
            "not_answered": found["requests"] - found["finished"],
            "per_s": round(found["throughput_rps"], 1),
            "p50_ms": round(latency["p50"], 1),
            "p99_ms": round(latency["p99"], 1),
            "max_ms": round(latency["max"], 1),
        }


def has_replica(node: Any) -> bool:
    """Whether a node of Ray's runs a server: three replicas have places on two of the three nodes, too."""
    raylet = node.all_processes["raylet"][0].process.pid
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            serves = b"\0serve\0" in stat.with_name("cmdline").read_bytes()
            parent = int(stat.parent.name) if serves else 0
            while parent > 1 and parent != raylet:
                parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        if parent == raylet:
            return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load without an event")
    parser.add_argument("--concurrency", type=int, default=6)
    parser.add_argument("--perf-analyzer", help="program to load with while something happens", metavar="PROGRAM")
    parser.add_argument("--only", default="", help="what happens: words of its name, such as 'node'", metavar="WORDS")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    workers = [nodes.add_node(num_cpus=1) for _ in range(2)]
    rows: list[dict[str, Any]] = []

    def tell(what: str, kind: str, found: dict[str, Any]) -> None:
        rows.append({"what": what, "requests_of": kind, **found})
        numbers = " | ".join(str(value) for value in found.values())
        print(f"| {what} | {kind} | {numbers} |", flush=True)

    def steady(what: str, ports: dict[str, str]) -> None:
        for transport in ("http", "grpc"):
            for photos in (True, False):
                load = Load(ports, transport, photos, options, options.seconds)
                tell(what, f"{transport}, {'photos' if photos else 'tensors'}", load.result())

    def event(what: str, fleet: Fleet, happens: Callable[[], object], over: Callable[[], bool], s: float) -> None:
        """Loads of `s` seconds; if the event is over later, the run says so."""
        if options.only not in what:
            return
        loads: dict[str, Load | PerfAnalyzer] = {}
        for transport, photos in (("http", False), ("grpc", True)):
            if options.perf_analyzer is not None:
                loads[f"perf_analyzer, {transport}"] = PerfAnalyzer(fleet.ready, transport, options, s)
            else:
                kind = f"{transport}, {'photos' if photos else 'tensors'}"
                loads[kind] = Load(fleet.ready, transport, photos, options, s)
        time.sleep(5)
        began = time.monotonic()
        happens()
        while not over():
            if time.monotonic() > began + BOUND_S:
                sys.exit(f"{what}: it is not over after {BOUND_S:g} s\n" + "\n".join(fleet.said))
            time.sleep(0.05)
        took = time.monotonic() - began
        for kind, load in loads.items():
            tell(f"{what}, over after {took:.1f} s", kind, load.result())

    try:
        print(f"{machine()}\n| what | requests of | requests | not answered | /s | p50 ms | p99 ms | max ms |")
        if options.perf_analyzer is None:
            fleet = Fleet(nodes.address, options.model, 1)
            steady("1 replica, at its own ports", fleet.ready["replicas"][0])
            steady("1 replica, through HAProxy", fleet.ready)
            fleet.end()
        fleet = Fleet(nodes.address, options.model, 3)
        if options.perf_analyzer is None:
            steady("3 replicas, through HAProxy", fleet.ready)
        pid = fleet.ready["replicas"][0]["pid"]
        again = fleet.heard("ready, HTTP") + 1
        event(
            "kill -9 of one of 3",
            fleet,
            lambda: os.kill(pid, signal.SIGKILL),
            lambda: fleet.heard("ready, HTTP") >= again,
            40,
        )
        update = [*HEADRACE, "serve", "--ray", nodes.address, "--update", "--http", fleet.ready["http"]]
        event("update of 3, a node to spare", fleet, lambda: subprocess.run(update, check=True), lambda: True, 90)
        again = fleet.heard("ready, HTTP") + 1
        event(
            "kill -9 of a node",
            fleet,
            lambda: nodes.remove_node(next(filter(has_replica, workers)), allow_graceful=False),
            lambda: fleet.heard("ready, HTTP") >= again,
            40,
        )
        event("update of 3, none to spare", fleet, lambda: subprocess.run(update, check=True), lambda: True, 150)
        fleet.end()
    finally:
        nodes.shutdown()
    if options.json is not None:
        options.json.write_text(
            json.dumps({"machine": machine(), "options": vars(options) | {"json": None}, "rows": rows})
        )
    sys.exit(any(row["not_answered"] for row in rows))


if __name__ == "__main__":
    main()
