"""Why each task left, in schedules made by hand."""

import math

import pytest
from virtual_driver import drive

from headrace.batching import (
    BatchLimits,
    GraphBatching,
    LazyBatching,
    ModelGraph,
    Node,
    NodeKind,
    NodeTimes,
    OracleLazyBatching,
    PhaseTables,
    PrebaBatching,
    PrebaLazyBatching,
    Profile,
    ProfilePoint,
    RateTables,
    Request,
    SerialBatching,
    SmdpBatching,
    StaticBatching,
    WorkConservingBatching,
    preba_limits,
)
from headrace.batching.graphs.cell_graph import lstm, seq2seq
from headrace.batching.policies.bucketed_graph import BucketedGraphBatching
from headrace.batching.policies.cellular import CellularBatching
from headrace.batching.policies.dynamic_graph import DynamicGraphBatching
from headrace.sim.engine import Arrivals, run

NET = ModelGraph.opaque("net")
CURVE = Profile("net", 1, (ProfilePoint(1, 1.5, 0.6), ProfilePoint(2, 2.0, 1.0), ProfilePoint(4, 4.0, 1.0)))
WAIT_FOR_2 = RateTables([0.001], [[0, 0, 2]], 3, 3)
BY_PHASE = PhaseTables([[0, 0, 2], [0, 0, 2]], 3, 3, [1.0, 9.0], [1.0, 1.0])


@pytest.mark.parametrize(
    ("policy", "arrivals", "expected"),
    [
        (SerialBatching([NET]), (0, 0, 9), [(0, 1, "idle"), (1, 1, "idle"), (9, 1, "idle")]),
        (GraphBatching([NET], 2.0, 2), (0, 1, 5), [(1, 2, "full"), (7, 1, "window")]),
        (GraphBatching([NET], 0.0, 2), (0, 0.5, 0.5), [(0, 1, "window"), (1, 2, "full")]),
        (PrebaBatching([NET], {"net": CURVE}, 1), (0, 1, 5), [(1, 2, "knee"), (7, 1, "window")]),
        (StaticBatching([NET], 2, 3.0), (0, 1, 5), [(1, 2, "full"), (8, 1, "window")]),
        (WorkConservingBatching([NET], 2), (0, 0.5, 0.5, 0.5), [(0, 1, "idle"), (1, 2, "full"), (2, 1, "idle")]),
        # The table for no known rate serves the first; another waits for two; beyond its end it serves the best batch.
        (
            SmdpBatching([NET], {"net": WAIT_FOR_2}, 3, 3.0),
            (0, 0.5, 0.5, 5, 9, 9.5, 9.6, 9.6, 9.6),
            [(0, 1, "table"), (1, 2, "table"), (8, 1, "window"), (9.5, 2, "table"), (10.5, 3, "table")],
        ),
        (SmdpBatching([NET], {"net": BY_PHASE}, 3, 3.0), (0, 0, 5), [(0, 2, "table"), (8, 1, "window")]),
        # Without tables it is work-conserving, and for its reasons.
        (SmdpBatching([NET], {}, 2), (0, 0.5, 0.5), [(0, 1, "idle"), (1, 2, "full")]),
        (BucketedGraphBatching([NET], 2), (0, 0.5, 0.5, 0.5), [(0, 1, "idle"), (1, 2, "full"), (2, 1, "idle")]),
    ],
)
def test_whole_graphs(policy, arrivals, expected):
    requests = [Request(number, "net", float(arrival)) for number, arrival in enumerate(arrivals)]
    trace = drive(policy, requests, 1, lambda batch: 1.0)
    assert [(at, task.batch_size, task.reason) for at, _, task in trace.started] == expected


def test_the_knee_of_that_curve_is_2_and_its_window_2_s():
    assert preba_limits(CURVE, 1) == BatchLimits(2, 2.0)


class Unit:
    def latency(self, node, batch, length):
        return 1.0


def serve(policy, graph, at, sla=math.inf, inputs=None, outputs=None, open_from=None):
    """[(start, request numbers from 1, reason)] of every task."""
    count = len(at)
    load = Arrivals(
        [graph.name] * count,
        [float(time) for time in at],
        [time + sla for time in at],
        [float(length) for length in inputs or [1] * count],
        list(outputs or [1] * count),
    )
    outcome = run(policy, load, {graph.name: NodeTimes(graph, Unit())}, 1, True, open_from)
    return [(ran.started, {request.id + 1 for request in ran.task.requests}, ran.task.reason) for ran in outcome.ran]


EIGHT = ModelGraph("net", tuple(Node(letter) for letter in "ABCDEFGH"))
TIMES = {"net": NodeTimes(EIGHT, Unit())}


def test_lazy_newcomers_keep_all_slack_and_are_merged():
    """Fig. 10 of LazyBatching."""
    assert serve(LazyBatching(TIMES, 1), EIGHT, [2, 3.5, 4.5]) == [
        (2, {1}, "idle"),
        (4, {2}, "slack"),
        (5, {3}, "slack"),
        (6, {2, 3}, "merge"),
        (7, {1, 2, 3}, "merge"),
    ]


@pytest.mark.parametrize("kind", [LazyBatching, OracleLazyBatching])
def test_lazy_nobody_enters_above_a_request_that_would_be_late(kind):
    assert serve(kind(TIMES, 1), EIGHT, [0, 5], sla=12) == [(0, {1}, "idle"), (5, {1}, "deadline"), (8, {2}, "idle")]


def test_lazy_late_ones_stand_back():
    policy = LazyBatching(TIMES, 1, defer_late=True)
    policy.submit(Request(0, "net", 0.0, deadline=90.0), 0.0)
    first = policy.next_task(0, 0.0)
    policy.submit(Request(1, "net", 1.0, deadline=2.0), 1.0)
    policy.complete(first.ended_at(2), 2.0)
    on = policy.next_task(0, 2.0)
    assert (len(on.requests), on.reason) == (1, "deadline")


def test_lazy_goes_on_beside_a_full_table():
    assert serve(LazyBatching(TIMES, 1, max_batch=1), EIGHT, [0, 5]) == [
        (0, {1}, "idle"),
        (5, {1}, "idle"),
        (8, {2}, "idle"),
    ]


def test_preba_lazy_starts_as_preba_does_and_goes_on_as_lazy_does():
    """A knee of 2 and a Time_queue of 4."""
    curve = {"net": Profile("net", 1, (ProfilePoint(2, 4.0, 0.5),))}
    assert serve(PrebaLazyBatching(TIMES, curve, 1), EIGHT, [0, 4.5, 5.5, 13]) == [
        (4, {1}, "window"),
        (5, {2}, "slack"),
        (6, {1, 2}, "merge"),
        (13, {3, 4}, "knee"),
    ]
    assert serve(PrebaLazyBatching(TIMES, curve, 1), EIGHT, [0, 6], sla=14) == [
        (4, {1}, "window"),
        (6, {1}, "deadline"),
        (12, {2}, "window"),
    ]


def test_lazy_merges_at_the_nodes_of_a_section():
    """An encoder node and a decoder node. The second request joins in the middle of the encoder, waits for the first
    where the decoder begins, and outlives it there."""
    graph = ModelGraph("net", (Node("enc", NodeKind.ENCODER), Node("dec", NodeKind.DECODER)))
    policy = LazyBatching({"net": NodeTimes(graph, Unit())}, 1, dec_timesteps={"net": 4})
    assert serve(policy, graph, [0, 1.5], inputs=[6, 2], outputs=[1, 3]) == [
        (0, {1}, "idle"),
        (2, {1, 2}, "merge"),
        (4, {1}, "idle"),
        (6, {1, 2}, "merge"),
        (7, {2}, "idle"),
    ]


def test_dynamic_graph_goes_on_with_what_it_merged():
    model = lstm()
    policy = DynamicGraphBatching([model], 1, 4)
    tasks = serve(policy, model.graph, [0, 0, 0.5], inputs=[2, 3, 1], open_from=lambda request: -1)
    assert tasks == [(0, {1, 2}, "idle"), (1, {1, 2}, "merge"), (2, {2}, "merge"), (3, {3}, "idle")]


def test_cellular_runs_full_cells_or_what_there_is():
    model = seq2seq(encoder_batch=2, decoder_batch=2)
    policy = CellularBatching([model], 1, max_tasks=1)
    tasks = serve(policy, model.graph, [0, 0, 0], outputs=[1, 1, 1], open_from=lambda request: 1)
    assert tasks == [(0, {1, 2}, "full"), (1, {1, 2}, "full"), (2, {3}, "idle"), (3, {3}, "idle")]
