"""`preba` on unequal slices of an A100: is it better to ask the largest slice first, or the smallest?

    .venv/bin/python -m benchmarks.mixed_slices sim/experiments/parvagpu/profiles.csv [--model resnet50] [--json [FILE]]

The runs are simulated on measured slices, at several loads, and a partition of equal slices stands with them. The file
has a row a measurement: model, gpcs (compute slices of the instance), batch, procs (processes that share it; only rows
with one are used), throughput_per_proc_s. A load is a share of what all slices do together at their knees.
"""

import argparse
import csv
import math
from pathlib import Path

from benchmarks.harness import Report, arguments, main, table
from headrace.batching import ModelGraph, NodeTimes, PrebaBatching, Profile, ProfilePoint, UsageError
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import Fixed
from headrace.sim.workload.traffic import generate, poisson

PARTITIONS = ((1,) * 7, (4, 1, 1, 1), (3, 1, 1, 1, 1), (4, 2, 1), (4, 3), (3, 2, 2))  # compute slices, largest first
LOADS = (0.2, 0.5, 0.8, 0.95, 1.2)


def measured(path: Path, model: str) -> dict[int, Profile]:
    """Return a profile by compute slices."""
    points: dict[int, dict[int, ProfilePoint]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["model"] == model and row["procs"] == "1":
                batch, rate = int(row["batch"]), float(row["throughput_per_proc_s"])
                points.setdefault(int(row["gpcs"]), {})[batch] = ProfilePoint(batch, batch / rate, rate)
    if not points:
        raise UsageError(f"{path} has no {model!r} with one process")
    return {gpcs: Profile(model, 1, tuple(found[b] for b in sorted(found))) for gpcs, found in points.items()}


def run(options: argparse.Namespace) -> Report:
    slices = measured(options.measured, options.model)
    graph = ModelGraph.opaque(options.model)
    times = {gpcs: {options.model: NodeTimes(graph, profile)} for gpcs, profile in slices.items()}
    knees = {gpcs: profile.knee() for gpcs, profile in slices.items()}
    figures, rows = [], []
    for partition in PARTITIONS:
        orders = {"largest first": partition} | ({"smallest first": partition[::-1]} if len(set(partition)) > 1 else {})
        for load, (order, workers) in ((load, each) for load in LOADS for each in orders.items()):
            rate = load * sum(knees[gpcs].throughput_rps for gpcs in workers)
            work = generate(poisson(rate, options.requests, 0), {options.model: Fixed()}, math.inf, 0)
            policy = PrebaBatching([graph], [{options.model: slices[gpcs]} for gpcs in workers], len(workers))
            done = simulate(policy, work, [times[gpcs] for gpcs in workers], len(workers), record=True)
            span = max(done.outcome.finished) - work.arrival[0]
            by_slice = {}
            for gpcs in sorted(set(workers), reverse=True):
                batches = [ran.task.batch_size for ran in done.outcome.ran if workers[ran.worker] == gpcs]
                busy = sum(s for s, own in zip(done.outcome.worker_busy_s, workers, strict=True) if own == gpcs)
                by_slice[f"{gpcs}g"] = {
                    "share": sum(batches) / options.requests,
                    "batch_mean": sum(batches) / len(batches) if batches else 0.0,
                    "busy": busy / (workers.count(gpcs) * span),
                }
            name, rps, ms = (
                "+".join(f"{g}g" for g in partition),
                done.result["throughput_rps"],
                done.result["latency_ms"],
            )
            figures.append(
                {"partition": name, "load": load, "order": order, "rate_rps": rate, "slices": by_slice}
                | {key: done.result[key] for key in ("throughput_rps", "latency_ms")}
            )
            cells = "; ".join(
                f"{g}: {100 * of['share']:.0f} % in {of['batch_mean']:.1f}, busy {of['busy']:.2f}"
                for g, of in by_slice.items()
            )
            rows.append(
                f"{name} | {load} | {order} | {rps:.0f} of {rate:.0f} | {ms['p50']:.1f} | {ms['p99']:.1f} | {cells}"
            )
    text = f"{options.model}: knees " + ", ".join(
        f"{gpcs}g {knee.batch} ({1e3 * knee.latency_s:.1f} ms)" for gpcs, knee in sorted(knees.items())
    )
    head = "partition | load | order | requests/s | p50 ms | p99 ms | share in mean batch, busy"
    return Report({"runs": figures}, f"{text}\n\n{table(head, rows)}")


if __name__ == "__main__":
    parser = arguments(__doc__, requests=50_000)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--model", default="resnet50")
    main(parser, run)
