#!/usr/bin/env python3
"""Cells per second that `cellular` schedules: the policy alone, driven by nothing that takes time.

    .venv/bin/python scripts/bench_cellular.py [--requests 20000] [--rounds 5] [--json]

Each round runs everything once, so that a slow moment of the machine meets all alike; the medians are printed. The
target is 1 M cells/s: twice what 20,000 requests/s of 24 cells need.
"""

import argparse
import json
import statistics
import time

from headrace.batching import Request
from headrace.batching.graphs.cell_graph import CellModel, lstm, seq2seq
from headrace.batching.policies import lazy
from headrace.batching.policies.cellular import CellularBatching
from headrace.sim.zoo.cells import tree_lstm

LENGTH = 24


def cells_per_s(model: CellModel, workers: int, in_flight: int, requests: int) -> float:
    """With `in_flight` requests in progress at all times, each LENGTH steps long (and its output too)."""
    policy = CellularBatching([model], workers)
    submitted = finished = 0
    began = time.perf_counter()
    while finished < requests:
        while submitted < requests and submitted - finished < in_flight:
            policy.submit(Request(submitted, model.name, 0.0, input_len=LENGTH, output_len=LENGTH), 0.0)
            submitted += 1
        for worker in range(workers):
            task = policy.next_task(worker, 0.0)
            if task is None:
                continue
            if model.types[task.start].name == "decoder":
                entries = zip(task.requests, task.cells, strict=True)
                ended = tuple([request for request, cell in entries if cell + 1 >= 2 * LENGTH])
                task = task.ended_at(task.stop, ended)
            finished += len(policy.complete(task, 0.0))
    return policy.scheduled_cells / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = {
        "LSTM, batches of 512": (lstm(), 1, 600),
        "LSTM, batches of 64": (lstm(), 1, 64),
        "LSTM, all waiting": (lstm(), 1, options.requests),
        "LSTM, 4 workers": (lstm(), 4, 2400),
        "Seq2Seq": (seq2seq(), 1, 600),
        "TreeLSTM": (tree_lstm(), 1, 200),
    }
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(options.rounds):
        for name, (model, workers, in_flight) in cases.items():
            rates[name].append(cells_per_s(model, workers, in_flight, options.requests))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    compiled = not lazy.__file__.endswith(".py")
    if options.json:
        print(json.dumps({"compiled": compiled, "cells_per_s": rates, "median": medians}, indent=2))
        return
    print(f"{options.requests} requests, {options.rounds} rounds, {'compiled' if compiled else 'NOT compiled'}")
    for name, values in rates.items():
        print(f"{name:24} {medians[name]:12,.0f} cells/s  ({min(values):,.0f} to {max(values):,.0f})")


if __name__ == "__main__":
    main()
