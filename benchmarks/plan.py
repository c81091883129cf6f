"""Predictions of `headrace plan --tune` on this machine's own profile, and what `headrace bench` then measures.

    .venv/bin/python -m benchmarks.plan [--models resnet18,mobilenet_v3_small] [--tune graph,preba,smdp]
        [--loads 0.3,0.5,0.7] [--requests 1000] [--rounds 3] [--own-core] [--keep-awake] [--real-time] [--json [FILE]]

For each model the script runs `headrace profile` on one worker. For each load (of the profile's best throughput) it
runs `headrace plan --tune`, the plan's `headrace serve` command, and against that `headrace bench`, each round with a
seed of its own. Each round is simulated, too: `headrace simulate --seed` draws the same arrivals from a seed, so the
two figures of a round differ by nothing but the machine. The time of a request outside its queue and its batch is
measured before the plan is made (`--overhead-ms`): with one request at a time, it is what the client sees less what the
server's statistics say.

The machine's pace may drift between profile and round, so it is shown: "pace" is the time of the batches in the round
by the server's own clock, divided by what the profile says of them. Options for a quieter machine:

- `--own-core`: the worker has a core of its own, and the server and the client share another.
- `--keep-awake` (as root): idle cores do not sleep, here and in the server's own option.
- `--real-time` (as root): profile, server and client go before all else that runs here (SCHED_RR).
"""

import argparse
import contextlib
import json
import os
import shlex
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, arguments, main, median, progress, table
from benchmarks.processes import headrace, serving
from headrace.batching import Profile
from headrace.host.live.machine.process_tuning import awake_cores
from scripts.shortages import workers

REAL_TIME = ("chrt", "--rr", "5")
SIDES = ("simulated_ms", "measured_ms", "service_ms")
SLO_BATCHES = 3  # the SLO, in what the largest batch profiled takes


def bench(url: str, model: str, *words: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what one run of `headrace bench` measured."""
    core = ("taskset", "--cpu-list", str(cores()[-1])) if options.own_core else ()
    found = headrace("bench", url, "--model", model, *words, before=(*core, *options.real_time))
    measured: dict[str, Any] = found["runs"][0]
    return measured


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def served(words: Sequence[str], options: argparse.Namespace) -> Iterator[str]:
    """Give the address of a server with these options."""
    awake = ["--keep-awake"] if options.keep_awake else []
    with serving(*words, *awake, before=options.real_time) as ready:
        if options.own_core:
            (worker,) = workers(ready["pid"])
            keep_on(worker, cores()[0])
            keep_on(ready["pid"], cores()[-1])
        yield "http://" + ready["http"]


def keep_on(process: int, core: int) -> None:
    for task in Path(f"/proc/{process}/task").iterdir():
        os.sched_setaffinity(int(task.name), {core})


def overhead_ms(model: str, file: str, options: argparse.Namespace) -> float:
    """Return the mean time of a request outside its queue and its batch, one at a time."""
    with served(("--model", model, "--profile", file, "--workers", "1", "--policy", "serial"), options) as url:
        bench(url, model, "--concurrency", "1", "--duration-s", "1", options=options)
        before = inside_ns(url, model)
        seen = bench(url, model, "--concurrency", "1", "--duration-s", "5", options=options)
        after = inside_ns(url, model)
    inside_ms = (after[1] - before[1]) / (after[0] - before[0]) / 1e6
    return float(seen["service_ms"]["mean"]) - inside_ms


def inside_ns(url: str, model: str) -> tuple[int, int]:
    """Return the number of requests since the server's start, and their time in queue and batch."""
    parts = statistics_of(url, model)["inference_stats"]
    return parts["queue"]["count"], parts["queue"]["ns"] + parts["compute_infer"]["ns"]


def executions(url: str, model: str) -> dict[int, tuple[int, int]]:
    """Return by batch size the number of executions since the server's start, and their ns."""
    return {
        each["batch_size"]: (each["compute_infer"]["count"], each["compute_infer"]["ns"])
        for each in statistics_of(url, model)["batch_stats"]
    }


def statistics_of(url: str, model: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/v2/models/{model}/stats", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)["model_stats"][0]
    return found


def at_rate(
    model: str, profile: Profile, file: str, rate: str, load: float, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return a row for each round at one rate."""
    slo_ms = f"{SLO_BATCHES * profile.points[-1].latency_s * 1e3:.4g}"
    overhead = f"{overhead_ms(model, file, options):.3g}"
    words = f"plan --tune {options.tune} --model {model} --accelerator profile --profile {file}"
    words += f" --rate-rps {rate} --slo-ms {slo_ms} --overhead-ms {overhead}"
    best = headrace(*words.split())["best"]
    at = {"model": model, "rate_rps": float(rate), "load": load, "slo_ms": float(slo_ms)}
    at |= {"overhead_ms": float(overhead), "plan": best, "planned_ms": best["confirmed_ms"]["mean"]}
    rows = []
    with served(shlex.split(best["serve"])[2:], options) as url:
        bench(url, model, "--rate-rps", rate, "--requests", "50", options=options)
        for seed in range(1, options.rounds + 1):
            before = executions(url, model)
            same = ("--requests", str(options.requests), "--seed", str(seed))
            measured = bench(url, model, "--rate-rps", rate, *same, options=options)
            after = executions(url, model)
            simulated = headrace(*shlex.split(best["simulate"])[1:], *same)
            own = {"seed": seed, "simulated_ms": simulated["latency_ms"], "measured_ms": measured["latency_ms"]}
            own |= {name: measured[name] for name in ("service_ms", "lateness_ms")}
            own |= {"batch": measured["batch_size_mean"], "simulated_batch": simulated["batch_size_mean"]}
            rows.append(at | own | {"pace": pace(profile, before, after)})
    return rows


def pace(profile: Profile, before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]]) -> float:
    took = expected = 0.0
    for batch, (count, ns) in after.items():
        count_before, ns_before = before.get(batch, (0, 0))
        took += (ns - ns_before) / 1e9
        expected += (count - count_before) * profile.latency(0, batch, 1.0)
    return took / expected


def text_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of one model at one load, and the medians of its ratios."""
    first = rows[0]
    plan = first["plan"]
    own = " ".join(f"{name}={plan[name]:g}" for name in ("window_ms", "max_batch", "knee_growth") if name in plan)
    head = "seed | p99 ms planned | simulated | measured | from sending | p50 simulated | measured"
    head += " | batch simulated | measured | pace | sent late, p99 ms"
    shown = []
    for row in rows:
        p99 = (f"{ms:.1f}" for ms in (row["planned_ms"], *(row[side]["p99"] for side in SIDES)))
        p50 = (f"{row[side]['p50']:.1f}" for side in SIDES[:2])
        others = (f"{row[name]:.2f}" for name in ("simulated_batch", "batch", "pace"))
        shown.append(" | ".join([str(row["seed"]), *p99, *p50, *others, f"{row['lateness_ms']['p99']:.2f}"]))
    simulated = median([row["measured_ms"]["p99"] / row["simulated_ms"]["p99"] for row in rows])
    planned = median([row["measured_ms"]["p99"] / row["planned_ms"] for row in rows])
    return (
        f"{first['model']} {first['rate_rps']:g}/s (load {first['load']:g}), {plan['policy']} {own}, "
        f"overhead {first['overhead_ms']:g} ms\n\n{table(head, shown)}\n\n"
        f"measured / simulated p99: median {simulated:.3f}; measured / planned p99: median {planned:.3f}"
    )


def run(options: argparse.Namespace) -> Report:
    rows: list[dict[str, Any]] = []
    texts = []
    awake = awake_cores() if options.keep_awake else contextlib.nullcontext()
    with awake, tempfile.TemporaryDirectory() as folder:
        for model in options.models.split(","):
            file = str(Path(folder) / f"{model}.json")
            for load in map(float, options.loads.split(",")):
                words = ("--model", model, "--workers", "1", "--max-batch", str(options.max_batch), "-o", file)
                headrace("profile", *words, before=options.real_time)
                profile = Profile.from_json(Path(file).read_text())
                rate = f"{load * max(point.throughput_rps for point in profile.points):.4g}"
                rows += at_rate(model, profile, file, rate, load, options)
                texts.append(text_of(rows[-options.rounds :]))
                progress(f"{model}, load {load:g}: done")
    return Report({"rows": rows}, "\n\n".join(texts))


if __name__ == "__main__":
    parser = arguments(__doc__, rounds=3, requests=1000, max_batch=16)
    parser.add_argument("--models", default="resnet18,mobilenet_v3_small")
    parser.add_argument("--tune", default="graph,preba,smdp")
    parser.add_argument("--loads", default="0.3,0.5,0.7")
    parser.add_argument("--own-core", action="store_true")
    parser.add_argument("--keep-awake", action="store_true")
    parser.add_argument("--real-time", action="store_const", const=REAL_TIME, default=())
    main(parser, run)
