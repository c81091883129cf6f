"""The worked timelines in the policies' files, replayed on the policies by the simulator's engine.

Each test builds the case that a module's docstring describes, runs it, and requires that the docstring has exactly the
rows that come out: from when to when (ms), on which worker, which requests, which nodes or cells, and the reason.
"""

import ast
from pathlib import Path

import pytest

from headrace.batching import (
    DeferredBatching,
    LazyBatching,
    ModelGraph,
    Node,
    NodeTimes,
    PrebaBatching,
    PrebaLazyBatching,
    Profile,
    ProfilePoint,
    RateTables,
    SmdpBatching,
)
from headrace.batching.graphs.cell_graph import lstm
from headrace.batching.policies.cellular import CellularBatching
from headrace.sim.engine import Arrivals, run

POLICIES = Path(__file__).parents[3] / "batching" / "policies"
MS = 1e-3


class EachNode:
    """Every node takes `node_ms`, whatever the batch."""

    def __init__(self, node_ms):
        self.node_ms = node_ms

    def latency(self, node, batch, length):
        return self.node_ms * MS


class ByBatch:
    """A graph of one node that takes `batch_ms[b]` for a batch of b."""

    def __init__(self, batch_ms):
        self.batch_ms = batch_ms

    def latency(self, node, batch, length):
        return self.batch_ms[batch] * MS


def graph(*names):
    return ModelGraph("net", tuple(Node(name) for name in names))


def profile(**batch_ms):
    """Return the profile of one worker with these latencies (ms): b1=4 is a batch of 1 that takes 4 ms."""
    sizes = {int(name[1:]): ms for name, ms in batch_ms.items()}
    return Profile("net", 1, tuple(ProfilePoint(size, ms * MS, size / (ms * MS)) for size, ms in sizes.items()))


def rows(policy, times, arrival_ms, *, slo_ms=None, lengths=None, workers=1, cells=False):
    """Serve requests R1, R2, ... and return one row of text a task. `slo_ms` has one latency a request."""
    count = len(arrival_ms)
    deadlines = [(at + slo) * MS for at, slo in zip(arrival_ms, slo_ms or [1e6] * count, strict=True)]
    arrivals = Arrivals(
        ["net"] * count, [at * MS for at in arrival_ms], deadlines, lengths or [1.0] * count, [1] * count
    )
    outcome = run(
        policy, arrivals, {"net": times}, workers, record=True, open_from=(lambda request: -1) if cells else None
    )
    assert outcome.ledger.finished == count
    nodes = [node.name for node in times.graph.nodes]
    table = []
    for ran in sorted(outcome.ran, key=lambda ran: (ran.started, ran.worker)):
        task = ran.task
        if cells:
            batch = [f"R{request.id + 1}.{cell + 1}" for request, cell in zip(task.requests, task.cells, strict=True)]
        else:
            batch = [f"R{request.id + 1}" for request in task.requests]
        span = f"{1e3 * ran.started:g} - {1e3 * ran.ended:g}"
        ran_nodes = "" if cells or len(nodes) == 1 else " ".join(nodes[task.start : task.stop])
        parts = [f"{span:<14}", f"{ran.worker:<9}", f"{' '.join(batch):<16}", f"{ran_nodes:<10}" * bool(ran_nodes)]
        table.append("".join(parts) + task.reason)
    return table


def lazy():
    net = NodeTimes(graph("A", "B", "C", "D"), EachNode(1))
    return rows(LazyBatching({"net": net}, 1), net, [0, 0.5, 2.5, 2.7, 5.5], slo_ms=[10, 10, 20, 3, 20])


def lazy_least_delay():
    net = NodeTimes(graph("A", "B", "C", "D"), EachNode(1))
    policy = LazyBatching({"net": net}, 1, slack="least-delay")
    return rows(policy, net, [0, 0.5, 0.7, 2.5, 5.5, 5.7], slo_ms=[20, 20, 20, 7, 20, 20])


def preba():
    net = NodeTimes(graph("net"), ByBatch({1: 4, 2: 6}))
    policy = PrebaBatching([net.graph], {"net": profile(b1=4, b2=6, b4=12)}, workers=2)
    return rows(policy, net, [0, 4, 5, 6], workers=2)


def cellular():
    model = lstm("net", max_batch=3)
    net = NodeTimes(model.graph, EachNode(1))
    policy = CellularBatching([model], workers=1, max_tasks=1)
    return rows(policy, net, [0, 0.5, 1.5], lengths=[3.0, 2.0, 2.0], cells=True)


def deferred():
    net = NodeTimes(graph("net"), ByBatch({size: 9 + size for size in range(1, 5)}))
    return rows(DeferredBatching({"net": net}, 1, max_batch=4), net, [0, 5, 20, 30], slo_ms=[40] * 4)


def smdp():
    net = NodeTimes(graph("net"), ByBatch({1: 5, 2: 6}))
    tables = RateTables([100.0, 400.0], [[0, 0, 2], [0, 0, 2]], best_batch=2, max_batch=2)
    return rows(SmdpBatching([net.graph], {"net": tables}, max_batch=2), net, [0, 4, 8, 10])


def preba_lazy():
    net = NodeTimes(graph("A", "B", "C"), EachNode(1))
    policy = PrebaLazyBatching({"net": net}, {"net": profile(b1=3, b2=3, b3=3, b6=6)}, workers=1)
    return rows(policy, net, [0, 3.5, 5.5, 6.5], slo_ms=[15] * 4)


@pytest.mark.parametrize(
    ("file", "replay"),
    [
        ("lazy", lazy),
        ("lazy", lazy_least_delay),
        ("preba", preba),
        ("cellular", cellular),
        ("deferred", deferred),
        ("smdp", smdp),
        ("preba_lazy", preba_lazy),
    ],
)
def test_the_timeline_in_a_policys_file_is_what_the_policy_does(file, replay):
    text = ast.get_docstring(ast.parse((POLICIES / f"{file}.py").read_text()))
    written = [line.strip() for line in text.split("\n")]
    ran = [row.strip() for row in replay()]
    places = [place for place, line in enumerate(written) if line == ran[0]]
    first = next((place for place in places if written[place : place + len(ran)] == ran), min(places, default=0))
    assert written[first : first + len(ran)] == ran
    assert not written[first + len(ran)], "the docstring has a row that did not happen"
