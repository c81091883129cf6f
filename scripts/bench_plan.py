#!/usr/bin/env python3
"""What `headrace plan --tune` predicts on this machine's own profile, beside what `headrace bench` measures of it.

    .venv/bin/python scripts/bench_plan.py [--models resnet18,mobilenet_v3_small] [--tune graph,preba,smdp]
        [--loads 0.3,0.5,0.7] [--requests 1000] [--rounds 3] [--apart] [--keep-awake] [--real-time] [--json FILE]

For each model: `headrace profile` on one worker; for each load (of the profile's best throughput) `headrace plan
--tune`, its `headrace serve` command, and against that `headrace bench`, so many requests a round, each round with a
seed of its own. Both draw the same arrivals from a seed, so each round is simulated, too (`headrace simulate
--seed`), and the two figures of a round differ by nothing but the machine.
What a request takes beside its queue and its batch is measured too, before the plan is made (`--overhead-ms`): a
server of that profile, one request at a time, what the client saw less what the server's statistics say.

The machine's pace may drift between profile and round. So the worker's pace is told apart: `pace` is what the same
batches took in the round, by the server's own clock, beside what the profile says of them. With `--apart` the worker
has a core of its own, and the server and the client share another, as on a machine with a core for each; with
`--keep-awake` (as root) idle cores do not sleep, here and in the server's own option. With `--real-time` (as root)
profile, server and client go before all else that runs here (SCHED_RR): for a machine that has other work.
"""

import argparse
import contextlib
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shortages import children

from headrace.batching import Profile
from headrace.host.live.machine.process_tuning import awake_cores
from headrace.host.workers.profiling.batches import machine

REAL_TIME = ("chrt", "--rr", "5")
HEADRACE = Path(sys.executable).with_name("headrace")
SLO_BATCHES = 3  # the SLO, in what the largest batch profiled takes


def headrace(*words: str, before: Sequence[str] = ()) -> str:
    done = subprocess.run([*before, HEADRACE, *words], stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout


def bench(url: str, model: str, *words: str, options: argparse.Namespace) -> dict[str, Any]:
    """What one run of `headrace bench` measured."""
    core = ("taskset", "--cpu-list", str(cores()[-1])) if options.apart else ()
    answer = headrace("bench", url, "--model", model, *words, "--json", before=(*core, *options.real_time))
    measured: dict[str, Any] = json.loads(answer)["runs"][0]
    return measured


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def served(words: Sequence[str], options: argparse.Namespace) -> Iterator[str]:
    """The address of a server started by that command."""
    ports = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    awake = ["--keep-awake"] if options.keep_awake else []
    command = [*options.real_time, HEADRACE, *words, *ports, *awake, "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = "http://" + json.loads(server.stdout.readline())["http"]
        if options.apart:
            (worker,) = [worker for child in children(server.pid) for worker in children(child)]  # of its fork server
            keep_on(worker, cores()[0])
            keep_on(server.pid, cores()[-1])
        yield url
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)


def keep_on(process: int, core: int) -> None:
    for task in Path(f"/proc/{process}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})


def overhead_ms(model: str, file: str, options: argparse.Namespace) -> float:
    """Mean of a request beside its queue and its batch, one at a time."""
    words = ("serve", "--model", model, "--profile", file, "--workers", "1", "--policy", "serial")
    with served(words, options) as url:
        bench(url, model, "--concurrency", "1", "--duration-s", "1", options=options)
        before = inside_ns(url, model)
        seen = bench(url, model, "--concurrency", "1", "--duration-s", "5", options=options)
        after = inside_ns(url, model)
    inside_ms = (after[1] - before[1]) / (after[0] - before[0]) / 1e6
    return float(seen["service_ms"]["mean"]) - inside_ms


def inside_ns(url: str, model: str) -> tuple[int, int]:
    """Requests, and their time in queue and batch since the server's start."""
    parts = statistics_of(url, model)["inference_stats"]
    return parts["queue"]["count"], parts["queue"]["ns"] + parts["compute_infer"]["ns"]


def executions(url: str, model: str) -> dict[int, tuple[int, int]]:
    """And their ns, by batch size, since the server's start."""
    return {
        each["batch_size"]: (each["compute_infer"]["count"], each["compute_infer"]["ns"])
        for each in statistics_of(url, model)["batch_stats"]
    }


def statistics_of(url: str, model: str) -> dict[str, Any]:
    """As the server tells them, of all since its start."""
    with urllib.request.urlopen(f"{url}/v2/models/{model}/stats", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)["model_stats"][0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet18,mobilenet_v3_small")
    parser.add_argument("--tune", default="graph,preba,smdp")
    parser.add_argument("--loads", default="0.3,0.5,0.7")
    parser.add_argument("--max-batch", default="16")
    parser.add_argument("--requests", default="1000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--keep-awake", action="store_true")
    parser.add_argument("--real-time", action="store_const", const=REAL_TIME, default=())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    awake = awake_cores() if options.keep_awake else contextlib.nullcontext()
    with awake, tempfile.TemporaryDirectory() as folder:
        for model in options.models.split(","):
            file = str(Path(folder) / f"{model}.json")
            for load in map(float, options.loads.split(",")):
                words = ("profile", "--model", model, "--workers", "1", "--max-batch", options.max_batch, "-o", file)
                headrace(*words, before=options.real_time)
                profile = Profile.from_json(Path(file).read_text())
                rate = f"{load * max(point.throughput_rps for point in profile.points):.4g}"
                rows += at_rate(model, profile, file, rate, load, options)
                show(rows[-options.rounds :])
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


def at_rate(
    model: str, profile: Profile, file: str, rate: str, load: float, options: argparse.Namespace
) -> list[dict[str, Any]]:
    slo_ms = f"{SLO_BATCHES * profile.points[-1].latency_s * 1e3:.4g}"
    overhead = f"{overhead_ms(model, file, options):.3g}"
    best = json.loads(
        headrace(
            "plan",
            "--tune",
            options.tune,
            "--model",
            model,
            "--accelerator",
            "profile",
            "--profile",
            file,
            "--rate-rps",
            rate,
            "--slo-ms",
            slo_ms,
            "--overhead-ms",
            overhead,
            "--json",
        )
    )["best"]
    rows = []
    with served(shlex.split(best["serve"])[1:], options) as url:
        bench(url, model, "--rate-rps", rate, "--requests", "50", options=options)
        for seed in map(str, range(1, options.rounds + 1)):
            before = executions(url, model)
            words = ("--rate-rps", rate, "--requests", options.requests, "--seed", seed)
            measured = bench(url, model, *words, options=options)
            after = executions(url, model)
            alike = [*shlex.split(best["simulate"])[1:], "--requests", options.requests, "--seed", seed, "--json"]
            simulated = json.loads(headrace(*alike))
            rows.append(
                {
                    "model": model,
                    "rate_rps": float(rate),
                    "load": load,
                    "seed": int(seed),
                    "slo_ms": float(slo_ms),
                    "overhead_ms": float(overhead),
                    "plan": best,
                    "planned_ms": best["confirmed_ms"]["mean"],
                    "simulated_ms": simulated["latency_ms"],
                    "measured_ms": measured["latency_ms"],
                    "service_ms": measured["service_ms"],
                    "lateness_ms": measured["lateness_ms"],
                    "batch": measured["batch_size_mean"],
                    "simulated_batch": simulated["batch_size_mean"],
                    "pace": pace(profile, before, after),
                }
            )
    return rows


def pace(profile: Profile, before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]]) -> float:
    took = expected = 0.0
    for batch, (count, ns) in after.items():
        count_before, ns_before = before.get(batch, (0, 0))
        took += (ns - ns_before) / 1e9
        expected += (count - count_before) * profile.latency(0, batch, 1.0)
    return took / expected


def show(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        plan, simulated, measured = row["plan"], row["simulated_ms"], row["measured_ms"]
        own = " ".join(f"{name}={plan[name]:g}" for name in ("window_ms", "max_batch", "knee_growth") if name in plan)
        print(
            f"{row['model']} {row['rate_rps']:g}/s (load {row['load']:g}), {plan['policy']} {own}, seed {row['seed']}: "
            f"p99 planned {row['planned_ms']:.1f} simulated {simulated['p99']:.1f} measured {measured['p99']:.1f} ms "
            f"({row['service_ms']['p99']:.1f} from sending); "
            f"p50 {simulated['p50']:.1f} {measured['p50']:.1f}; batch {row['simulated_batch']:.2f} {row['batch']:.2f}; "
            f"pace {row['pace']:.2f}; overhead {row['overhead_ms']:g} ms; "
            f"sent late p99 {row['lateness_ms']['p99']:.2f} ms"
        )
    ratios = [row["measured_ms"]["p99"] / row["simulated_ms"]["p99"] for row in rows]
    planned = [row["measured_ms"]["p99"] / row["planned_ms"] for row in rows]
    print(
        f"  measured / simulated p99: median {statistics.median(ratios):.3f}; "
        f"measured / planned p99: median {statistics.median(planned):.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
