"""`headrace serve --ray` on a Ray cluster of three nodes on this machine: cost of HAProxy, gain of replicas, events.

    .venv/bin/python -m benchmarks.serving_fleet [--seconds 8] [--concurrency 6] [--only WORDS] [--json [FILE]]
    .venv/bin/python -m benchmarks.serving_fleet --perf-analyzer PROGRAM  # Triton's load generator during events

Events are a replica that is killed, a node that is killed, and an update; the table has what requests see of them.
Replicas are simulated NPUs, whose time is no core's. The cores decode photos, and clients and HAProxy run on them, too.
Tensors are 602,112 bytes. Exit status 1 if a request failed.
"""

import argparse
import base64
import csv
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import IMAGE_FILE, Report, arguments, main, progress, table
from benchmarks.processes import HEADRACE, PORTS
from headrace.batching import HeadraceError

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
BOUND_S = 300.0
READY = "ready, HTTP"  # what each replica says


class Fleet:
    def __init__(self, address: str, model: str, replicas: int) -> None:
        command = [HEADRACE, "serve", "--json", "--ray", address, "--replicas", str(replicas), "--insecure", *PORTS]
        command += ["--workers", "npu:1", "--model", model, "--policy", "serial", "--sla-ms", "60000"]
        self.said: list[str] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self._listen, daemon=True).start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise HeadraceError("\n".join(self.said))
        self.ready = json.loads(line)
        while self.heard(READY) < replicas:  # these words come at the same time as that line
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
    """Triton's load generator over one transport, with photos, for three windows that make `s` together.

    It ends at the first request that fails."""

    def __init__(self, ports: dict[str, str], transport: str, options: argparse.Namespace, s: float) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._rows = Path(self._folder.name, "rows.csv")
        given, image = Path(self._folder.name, "photos.json"), IMAGE_FILE.read_bytes()
        element = base64.b64encode(len(image).to_bytes(4, "little") + image).decode()
        given.write_text(json.dumps({"data": [{"IMAGE": {"b64": element}}]}))
        command = [options.perf_analyzer, "-m", options.model, "-u", ports[transport], "-i", transport]
        command += ["--input-data", given, "--shape", "IMAGE:1", "--concurrency-range", str(options.concurrency)]
        command += ["-f", self._rows, "--measurement-interval", str(round(1000 * s / 3))]
        command += ["--stability-percentage", "999"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def result(self) -> dict[str, Any]:
        said = self._process.communicate()[0]
        count = re.search(r"Request count: (\d+)", said)
        if self._process.returncode != 0 or count is None:
            progress(said)
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
        self, ports: dict[str, str], transport: str, images: bool, options: argparse.Namespace, s: float
    ) -> None:
        command = [HEADRACE, "bench", f"{transport}://{ports[transport]}", "--model", options.model, "--json"]
        command += ["--concurrency", str(options.concurrency), "--duration-s", f"{s:g}", "--wait-s", "30"]
        command += ["--input", str(IMAGE_FILE), "--classes", "1"] if images else []
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
    """Return whether a node of Ray's runs a server: three replicas have places on two of the three nodes, too."""
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


class Bench:
    """The rows of the table, from loads on a fleet."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, kind: str, found: dict[str, Any]) -> None:
        self.rows.append({"what": what, "requests_of": kind, **found})
        progress(f"{what}, {kind}: {found}")

    def steady(self, what: str, ports: dict[str, str]) -> None:
        for transport in ("http", "grpc"):
            for images in (True, False):
                load = Load(ports, transport, images, self.options, self.options.seconds)
                self.add(what, f"{transport}, {'photos' if images else 'tensors'}", load.result())

    def event(self, what: str, fleet: Fleet, happens: Callable[[], object], s: float, returning: int = 0) -> None:
        """Add rows of loads of `s` seconds in which something happens.

        The event is over when `returning` replicas have become ready since. If it ends after the loads, the row's
        duration shows it."""
        if self.options.only not in what:
            return
        loads: dict[str, Load | PerfAnalyzer] = {}
        for transport, images in (("http", False), ("grpc", True)):
            if self.options.perf_analyzer is not None:
                loads[f"perf_analyzer, {transport}"] = PerfAnalyzer(fleet.ready, transport, self.options, s)
            else:
                kind = f"{transport}, {'photos' if images else 'tensors'}"
                loads[kind] = Load(fleet.ready, transport, images, self.options, s)
        time.sleep(5)
        began, wanted = time.monotonic(), fleet.heard(READY) + returning
        happens()
        while returning and fleet.heard(READY) < wanted:
            if time.monotonic() > began + BOUND_S:
                raise HeadraceError(f"{what}: it is not over after {BOUND_S:g} s\n" + "\n".join(fleet.said))
            time.sleep(0.05)
        took = time.monotonic() - began
        for kind, load in loads.items():
            self.add(f"{what}, over after {took:.1f} s", kind, load.result())


def run(options: argparse.Namespace) -> Report:
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    workers = [nodes.add_node(num_cpus=1) for _ in range(2)]
    bench = Bench(options)
    try:
        if options.perf_analyzer is None:
            fleet = Fleet(nodes.address, options.model, 1)
            bench.steady("1 replica, at its own ports", fleet.ready["replicas"][0])
            bench.steady("1 replica, through HAProxy", fleet.ready)
            fleet.end()
        fleet = Fleet(nodes.address, options.model, 3)
        if options.perf_analyzer is None:
            bench.steady("3 replicas, through HAProxy", fleet.ready)
        pid = fleet.ready["replicas"][0]["pid"]
        update = [HEADRACE, "serve", "--ray", nodes.address, "--update", "--http", fleet.ready["http"]]
        bench.event("kill -9 of one of 3", fleet, lambda: os.kill(pid, signal.SIGKILL), 40, 1)
        bench.event("update of 3, a node to spare", fleet, lambda: subprocess.run(update, check=True), 90)
        bench.event(
            "kill -9 of a node",
            fleet,
            lambda: nodes.remove_node(next(filter(has_replica, workers)), allow_graceful=False),
            40,
            1,
        )
        bench.event("update of 3, none to spare", fleet, lambda: subprocess.run(update, check=True), 150)
        fleet.end()
    finally:
        nodes.shutdown()
    head = "what | requests of | requests | not answered | /s | p50 ms | p99 ms | max ms"
    text = table(head, (" | ".join(map(str, row.values())) for row in bench.rows))
    return Report({"rows": bench.rows}, text, failed=any(row["not_answered"] for row in bench.rows))


if __name__ == "__main__":
    parser = arguments(__doc__, seconds=8.0, concurrency=6)
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--perf-analyzer", help="program that makes the load during events", metavar="PROGRAM")
    parser.add_argument("--only", default="", help="only events with these words in their name", metavar="WORDS")
    main(parser, run)
