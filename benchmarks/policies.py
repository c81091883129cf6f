"""Cost of a policy's decisions: microseconds by how many requests wait and enter, and cells per second of `cellular`.

    .venv/bin/python -m benchmarks.policies [--only PART] [--backlogs 1000 10000 100000] [--json [FILE]]

- decisions: a decision must not cost more because more requests wait. Requests are for ResNet-50 and MobileNet in turn,
  on the NPU. For policies of cells they are for LSTM and Seq2Seq on the V100. "serve" is one task. The policy hands it
  out, takes it back as it has run, and gets as many new requests as it finished. "withdraw" is one request chosen at
  random. The table has the best round. At 100,000 requests the processor's caches are colder.
- entries: one decision of `lazy` at the first node boundary of a running batch, by the rule of entry (setting `slack`)
  and by how many newcomers wait. Deadlines are far away, on the NPU. "enter" is how many newcomers the rule lets in.
- cells: the policy alone, driven by a loop that takes no time. The target is 1 M cells/s, which is twice what 20,000
  requests/s of 24 cells need.
"""

import argparse
import itertools
import random
import statistics

from benchmarks.harness import Report, arguments, main, measure, seconds, spread, summary, table
from headrace.batching import (
    POLICIES,
    Decoding,
    NodeTimes,
    Policy,
    PolicyContext,
    Request,
    Task,
    UsageError,
    find_policy,
    policy_with,
)
from headrace.batching.graphs.cell_graph import CellModel, lstm, seq2seq
from headrace.batching.policies.cellular import CellularBatching
from headrace.batching.policies.dynamic_graph import DynamicGraphBatching
from headrace.batching.policies.lazy import SLACKS, LazyBatching
from headrace.batching.request import SLACK
from headrace.sim.hardware.npu import npu_times
from headrace.sim.zoo import model_graph
from headrace.sim.zoo.cells import cell_network, tree_lstm

TASKS, WITHDRAWN = 500, 50
LENGTH = 24
BEGUN, NEWCOMERS = 8, (1, 8, 64)


class Backlog:
    """A policy in which `count` requests wait, whatever leaves."""

    def __init__(self, name: str, count: int) -> None:
        cells = {}
        if find_policy(name).tasks == "cells":
            networks = {model: cell_network(model, 64) for model in ("lstm", "seq2seq")}
            cells = {model: network for model, (network, _) in networks.items()}
            self.times = {model: times for model, (_, times) in networks.items()}
        else:
            self.times = {model: npu_times(model_graph(model)) for model in ("resnet50", "mobilenet_v1")}
        self.models = list(self.times)
        self.cells = cells
        context = PolicyContext(self.times, 1, cells=cells or None, steps_of=lambda coverage: {})
        self.policy: Policy = policy_with(name).build(context)
        if name == "dynamic-graph":  # without the time for merging, which no decision takes
            self.policy = DynamicGraphBatching(cells.values(), 1, 64, 0.0)
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
        return 1e6 * seconds(lambda: [self.serve() for _ in range(TASKS)]) / TASKS

    def withdrawing_us(self, rng: random.Random) -> float:
        chosen = [self.waiting[number] for number in rng.sample(sorted(self.waiting), WITHDRAWN)]
        gone: list[Request] = []
        spent = seconds(lambda: gone.extend(r for r in chosen if self.policy.withdraw(r, self.now)))
        for request in gone:
            del self.waiting[request.id]
            self.submit()
        return 1e6 * spent / WITHDRAWN


def decisions(backlogs: list[int], rounds: int) -> list[dict[str, object]]:
    if min(backlogs) < WITHDRAWN:
        raise UsageError(f"--backlogs {min(backlogs)}: give at least {WITHDRAWN}, which are withdrawn")
    rng = random.Random(0)
    rows: list[dict[str, object]] = []
    for name in POLICIES:
        for count in backlogs:
            backlog = Backlog(name, count)
            serving = min(backlog.serving_us() for _ in range(rounds))
            withdrawing = min(backlog.withdrawing_us(rng) for _ in range(rounds))
            rows.append({"policy": name, "waiting": count, "serve_us": serving, "withdraw_us": withdrawing})
    return rows


def entry(times: NodeTimes, slack: str, newcomers: int) -> tuple[float, int]:
    """Return the seconds of one decision of `lazy` at which so many newcomers wait, and how many of them enter."""
    model = times.graph.name
    policy = LazyBatching({model: times}, 1, BEGUN + newcomers, {model: LENGTH}, slack=slack)
    requests = [Request(number, model, 0.0, 1e6, LENGTH, LENGTH) for number in range(BEGUN + newcomers)]
    for request in requests[:BEGUN]:
        policy.submit(request, 0.0)
    task = policy.next_task(0, 0.0)
    assert task is not None
    for request in requests[BEGUN:]:
        policy.submit(request, 0.0)
    now = times.duration(BEGUN, LENGTH, task.start, task.start + 1)
    policy.complete(Decoding().end(task, task.start + 1, times.sections), now)
    decided: list[Task | None] = []
    spent = seconds(lambda: decided.append(policy.next_task(0, now)))
    assert decided[0] is not None
    return spent, len(decided[0].requests) if decided[0].reason == SLACK else 0


def entries(rounds: int) -> list[dict[str, object]]:
    times = {model: npu_times(model_graph(model)) for model in ("resnet50", "transformer")}
    rows: list[dict[str, object]] = []
    for model, slack, count in itertools.product(times, SLACKS, NEWCOMERS):
        found = [[entry(times[model], slack, count) for _ in range(TASKS)] for _ in range(rounds)]
        best = min(statistics.median(spent for spent, _ in each) for each in found)
        entered = found[0][0][1]
        rows.append({"model": model, "slack": slack, "newcomers": count, "enter": entered, "decide_us": 1e6 * best})
    return rows


def cells_per_s(model: CellModel, workers: int, in_flight: int, requests: int) -> float:
    """Return the rate with `in_flight` requests in progress at all times, each of LENGTH steps in and out."""
    policy = CellularBatching([model], workers)

    def drive() -> None:
        submitted = finished = 0
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

    spent = seconds(drive)
    return policy.scheduled_cells / spent


def cells(requests: int, rounds: int) -> dict[str, list[float]]:
    setups = {
        "LSTM, batches of 512": (lstm(), 1, 600),
        "LSTM, batches of 64": (lstm(), 1, 64),
        "LSTM, all waiting": (lstm(), 1, requests),
        "LSTM, 4 workers": (lstm(), 4, 2400),
        "Seq2Seq": (seq2seq(), 1, 600),
        "TreeLSTM": (tree_lstm(), 1, 200),
    }
    return measure(
        {name: lambda _, setup=setup: cells_per_s(*setup, requests) for name, setup in setups.items()}, rounds
    )


def run(options: argparse.Namespace) -> Report:
    figures: dict[str, object] = {}
    tables = []
    if options.only in (None, "decisions"):
        rows = decisions(options.backlogs, options.rounds)
        figures["decisions"] = rows
        shown = [f"{r['policy']} | {r['waiting']:,} | {r['serve_us']:.2f} | {r['withdraw_us']:.2f}" for r in rows]
        tables.append(table("policy | waiting | serve, us | withdraw, us", shown))
    if options.only in (None, "entries"):
        rows = entries(options.rounds)
        figures["entries"] = rows
        shown = [f"{r['model']} | {r['slack']} | {r['newcomers']} | {r['enter']} | {r['decide_us']:.2f}" for r in rows]
        tables.append(table("model | slack of lazy | newcomers | enter | decide, us", shown))
    if options.only in (None, "cells"):
        rates = cells(options.requests, options.rounds)
        figures["cells_per_s"] = summary(rates)
        tables.append(table("cellular | cells/s", (f"{name} | {spread(each)}" for name, each in rates.items())))
    return Report(figures, "\n\n".join(tables))


if __name__ == "__main__":
    parser = arguments(__doc__, only=("decisions", "entries", "cells"), rounds=5, requests=20_000)
    parser.add_argument("--backlogs", type=int, nargs="+", default=[1000, 10_000, 100_000])
    main(parser, run)
