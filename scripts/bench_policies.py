#!/usr/bin/env python3
"""What a policy's decisions cost (us) by how many requests wait: they must not cost more because more wait.

    .venv/bin/python scripts/bench_policies.py [--backlogs 1000 10000 100000] [--rounds 5] [--json]

ResNet-50 and MobileNet on the NPU wait alternately, LSTM and Seq2Seq on the V100 for policies of cells. To serve is to
hand out a task, take it back as it has run, and submit as many requests as it finished, per task; to withdraw is of
requests chosen at random. The best of the rounds is printed; at 100,000 memory is colder.
"""

import argparse
import json
import math
import random
import time

from headrace.batching import POLICIES, Decoding, Policy, Request
from headrace.batching.registry import CELL_POLICIES, make_policy
from headrace.sim.hardware.npu import npu_times
from headrace.sim.zoo import model_graph
from headrace.sim.zoo.cells import cell_network

TASKS, WITHDRAWN = 500, 50


class Backlog:
    """`count` requests wait in the policy of that name, whatever leaves."""

    def __init__(self, name: str, count: int) -> None:
        cells = {}
        if name in CELL_POLICIES:
            networks = {model: cell_network(model, 64) for model in ("lstm", "seq2seq")}
            cells = {model: network for model, (network, _) in networks.items()}
            self.times = {model: times for model, (_, times) in networks.items()}
        else:
            self.times = {model: npu_times(model_graph(model)) for model in ("resnet50", "mobilenet_v1")}
        self.models = list(self.times)
        self.cells = cells
        self.policy: Policy = make_policy(
            name, self.times, workers=1, window_s=0.005, max_batch=64, cells=cells or None, merge_s=0.0
        )
        self.decoding = Decoding()
        self.waiting: dict[int, Request] = {}
        self.count = 0
        self.now = 0.0
        for _ in range(count):
            self.submit()

    def submit(self) -> None:
        self.now += 1e-6
        request = Request(self.count, self.models[self.count % 2], self.now, self.now + 1e6, 8.0, 8)
        self.policy.submit(request, self.now)
        self.waiting[request.id] = request
        self.count += 1

    def serve(self) -> None:
        task = self.policy.next_task(0, self.now)
        while task is None:
            self.now = max(self.now, self.policy.wakeup())
            task = self.policy.next_task(0, self.now)
        if task.preemptible:
            sections = self.times[task.model].sections
            task = self.decoding.end(task, self.decoding.stop(task, sections), sections)
        elif task.cells:
            opens = {r.id: self.cells[task.model].unfold(r).open_from for r in task.requests}
            pairs = zip(task.requests, task.cells, strict=True)
            ended = tuple(r for r, cell in pairs if 0 <= opens[r.id] <= cell - r.output_len + 1)
            task = task.ended_at(task.stop, ended)
        for request in self.policy.complete(task, self.now):
            del self.waiting[request.id]
            self.submit()

    def serving_us(self) -> float:
        began = time.perf_counter()
        for _ in range(TASKS):
            self.serve()
        return 1e6 * (time.perf_counter() - began) / TASKS

    def withdrawing_us(self, rng: random.Random) -> float:
        chosen = [self.waiting[number] for number in rng.sample(sorted(self.waiting), WITHDRAWN)]
        began = time.perf_counter()
        gone = [request for request in chosen if self.policy.withdraw(request, self.now)]
        spent = time.perf_counter() - began
        for request in gone:
            del self.waiting[request.id]
            self.submit()
        return 1e6 * spent / WITHDRAWN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backlogs", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng = random.Random(0)
    rows = []
    for name in POLICIES:
        for count in options.backlogs:
            backlog = Backlog(name, count)
            serving, withdrawing = math.inf, math.inf
            for _ in range(options.rounds):
                serving = min(serving, backlog.serving_us())
            for _ in range(options.rounds):
                withdrawing = min(withdrawing, backlog.withdrawing_us(rng))
            rows.append({"policy": name, "waiting": count, "serve_us": serving, "withdraw_us": withdrawing})
            if not options.json:
                print(
                    f"{name:18} {count:8,} waiting  serve {serving:8.2f} us  withdraw {withdrawing:8.2f} us", flush=True
                )
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
