#!/usr/bin/env python3
"""In which order should the slices of a mixed partition be asked? `preba` on measured slices of an A100, largest first
and smallest first, at several loads, beside a partition of equal slices.

    .venv/bin/python scripts/bench_mixed_slices.py sim/experiments/parvagpu/profiles.csv \
        [--model resnet50] [--json]

The file has a row a measurement: model, gpcs (compute slices of the instance), batch, procs (processes that share it;
those with one are used), throughput_per_proc_s. Load is in shares of what all slices do together at their knees.
"""

import argparse
import csv
import json
import math
from pathlib import Path

from headrace.batching import ModelGraph, NodeTimes, PrebaBatching, Profile, ProfilePoint
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import Fixed
from headrace.sim.workload.traffic import generate, poisson

PARTITIONS = ((1,) * 7, (4, 1, 1, 1), (3, 1, 1, 1, 1), (4, 2, 1), (4, 3), (3, 2, 2))  # compute slices, largest first
LOADS = (0.2, 0.5, 0.8, 0.95, 1.2)


def measured(path: Path, model: str) -> dict[int, Profile]:
    """By compute slices."""
    points: dict[int, dict[int, ProfilePoint]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["model"] == model and row["procs"] == "1":
                batch, rate = int(row["batch"]), float(row["throughput_per_proc_s"])
                points.setdefault(int(row["gpcs"]), {})[batch] = ProfilePoint(batch, batch / rate, rate)
    return {gpcs: Profile(model, 1, tuple(found[b] for b in sorted(found))) for gpcs, found in points.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    slices = measured(options.measured, options.model)
    if not slices:
        parser.error(f"{options.measured} has no {options.model!r} with one process")
    graph = ModelGraph.opaque(options.model)
    times = {gpcs: {options.model: NodeTimes(graph, profile)} for gpcs, profile in slices.items()}
    knees = {gpcs: profile.knee() for gpcs, profile in slices.items()}
    found = []
    for partition in PARTITIONS:
        for load in LOADS:
            for order, workers in (("largest first", partition), ("smallest first", partition[::-1])):
                if order == "smallest first" and len(set(partition)) == 1:
                    continue
                rate = load * sum(knees[gpcs].throughput_rps for gpcs in workers)
                work = generate(poisson(rate, options.requests, 0), {options.model: Fixed()}, math.inf, 0)
                policy = PrebaBatching([graph], [{options.model: slices[gpcs]} for gpcs in workers], len(workers))
                done = simulate(policy, work, [times[gpcs] for gpcs in workers], len(workers), record=True)
                served = {gpcs: 0 for gpcs in sorted(set(workers), reverse=True)}
                tasks = dict(served)
                for ran in done.outcome.ran:
                    served[workers[ran.worker]] += ran.task.batch_size
                    tasks[workers[ran.worker]] += 1
                span = max(done.outcome.finished) - work.arrival[0]
                found.append(
                    {
                        "partition": "+".join(f"{gpcs}g" for gpcs in partition),
                        "load": load,
                        "order": order,
                        "rate_rps": rate,
                        "throughput_rps": done.result["throughput_rps"],
                        "latency_ms": done.result["latency_ms"],
                        "batch_mean": {f"{g}g": served[g] / tasks[g] if tasks[g] else 0.0 for g in served},
                        "share": {f"{g}g": served[g] / options.requests for g in served},
                        "busy": {
                            f"{g}g": sum(
                                s for s, own in zip(done.outcome.worker_busy_s, workers, strict=True) if own == g
                            )
                            / (workers.count(g) * span)
                            for g in served
                        },
                    }
                )
    if options.json:
        print(json.dumps({"model": options.model, "requests": options.requests, "runs": found}, indent=2))
        return
    print(
        f"{options.model}: knees "
        + ", ".join(f"{gpcs}g {knee.batch} ({1e3 * knee.latency_s:.1f} ms)" for gpcs, knee in sorted(knees.items()))
    )
    for run in found:
        by_slice = "  ".join(
            f"{name}: {100 * run['share'][name]:3.0f}% in {run['batch_mean'][name]:4.1f}, busy {run['busy'][name]:.2f}"
            for name in run["share"]
        )
        print(
            f"{run['partition']:22} {run['load']:4.2f} {run['order']:14} {run['throughput_rps']:8.0f}/s of "
            f"{run['rate_rps']:6.0f}  p50 {run['latency_ms']['p50']:7.1f}  p99 {run['latency_ms']['p99']:7.1f} ms  "
            f"{by_slice}"
        )


if __name__ == "__main__":
    main()
