"""LazyBatching: the paper's timelines with nodes of unit time, its slack equations, and properties under any load."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.batching import (
    GraphBatching,
    LazyBatching,
    ModelGraph,
    Node,
    NodeKind,
    NodeTimes,
    OracleLazyBatching,
    Request,
    UnknownModel,
    UsageError,
)
from headrace.batching.policies.lazy import SingleInputTimes
from headrace.sim.engine import Arrivals, run


class Unit:
    """Every node takes one unit of time at any batch size."""

    def latency(self, node, batch, length):
        return 1.0


class Linear:
    """A node takes as many units of time as it has requests: batching gains nothing."""

    def latency(self, node, batch, length):
        return float(batch)


def graph(static=0, encoder=0, decoder=0, name="net"):
    kinds = [NodeKind.STATIC] * static + [NodeKind.ENCODER] * encoder + [NodeKind.DECODER] * decoder
    return ModelGraph(name, tuple(Node("ABCDEFGH"[i % 8], kind) for i, kind in enumerate(kinds)))


EIGHT = graph(8)


def serve(policy, times, at, workers=1, sla=math.inf, inputs=None, outputs=None):
    count = len(at)
    load = Arrivals(
        ["net"] * count, [float(t) for t in at], [t + sla for t in at],
        [float(n) for n in inputs or [1] * count], list(outputs or [1] * count),
    )  # fmt: skip
    return run(policy, load, {"net": times}, workers, True)


def timeline(outcome):
    """[(start, requests, first node, boundary)] with nodes as letters."""
    return [
        (ran.started, {r.id + 1 for r in ran.task.requests}, "ABCDEFGH."[ran.task.start], "ABCDEFGH."[ran.task.stop])
        for ran in outcome.ran
    ]


def test_figure_10_newcomers_catch_up_and_merge():
    """Req1 issued at 2; Req2 arrives while Req1 runs B, Req3 while Req2 runs A: pushed at 2, 4 and 5; {2,3} merge at B
    at 6, {1,2,3} at C at 7, and all stand at D at 8."""
    times = NodeTimes(EIGHT, Unit())
    outcome = serve(LazyBatching({"net": times}, 1), times, [2, 3.5, 4.5])
    assert timeline(outcome) == [
        (2, {1}, "A", "C"),
        (4, {2}, "A", "B"),
        (5, {3}, "A", "B"),
        (6, {2, 3}, "B", "C"),
        (7, {1, 2, 3}, "C", "."),
    ]
    assert outcome.finished == [13, 13, 13]


@pytest.mark.parametrize(
    ("window", "at", "expected"),
    [
        # Fig. 4(a, b): two requests come, and a third only much later. A longer window catches no more, and delays.
        (2, [0, 1, 9], [(2, {1, 2}), (11, {3})]),
        (4, [0, 1, 9], [(4, {1, 2}), (13, {3})]),
        # Fig. 4(c, d): more come soon. The longer window takes all of them at once; the shorter leaves two behind.
        (2, [0, 1, 3, 4], [(2, {1, 2}), (10, {3, 4})]),
        (4, [0, 1, 3, 4], [(4, {1, 2, 3, 4})]),
    ],
)
def test_figure_4_the_right_window_depends_on_the_traffic(window, at, expected):
    times = NodeTimes(EIGHT, Unit())
    outcome = serve(GraphBatching([EIGHT], window), times, at)
    assert [(ran.started, {r.id + 1 for r in ran.task.requests}) for ran in outcome.ran] == expected


def test_figure_8_lazy_batching_needs_no_window():
    """Two requests close together and one alone. Without a window, graph batching makes Req2 wait for a whole graph;
    with one, Req1 and Req3 wait for nothing. Node by node, each starts at once and Req2 catches up with Req1 at C."""
    times = NodeTimes(EIGHT, Unit())
    ends = {}
    for name, policy in {
        "no window": GraphBatching([EIGHT], 0),
        "window 2": GraphBatching([EIGHT], 2),
        "lazy": LazyBatching({"net": times}, 1),
    }.items():
        ends[name] = serve(policy, times, [0, 2, 20]).finished
    assert ends == {"no window": [8, 16, 28], "window 2": [10, 10, 30], "lazy": [10, 10, 28]}


def test_slack_of_one_and_of_several_inputs():
    """SLA 30, waited 2, 8 nodes: slack 20 by Eq. 1; 12 and 4 by Eq. 2 with one and two more; a third more is one too
    many. With an SLA of 26 the second still just fits."""
    single = SingleInputTimes(NodeTimes(EIGHT, Unit()), 1).estimate(Request(0, "net", 0.0))
    assert [30 - 2 - n * single for n in (1, 2, 3)] == [20, 12, 4]
    for sla, joined in ((30, 2), (26, 2), (25, 1), (18, 1), (17, 0)):
        policy = LazyBatching({"net": NodeTimes(EIGHT, Unit())}, 1)
        policy.submit(Request(0, "net", 0.0, deadline=float(sla)), 0.0)
        first = policy.next_task(0, 2.0)
        for number in (1, 2, 3):
            policy.submit(Request(number, "net", 2.5, deadline=100.0), 2.5)
        policy.complete(first.ended_at(1), 3.0)
        task = policy.next_task(0, 3.0)
        assert {request.id for request in task.requests} == (set(range(1, 1 + joined)) or {0})


def test_a_newcomer_waits_if_a_running_request_would_lose_its_slack():
    times = NodeTimes(EIGHT, Unit())
    assert serve(LazyBatching({"net": times}, 1), times, [0, 5], sla=16).ran[1].task.requests[0].id == 1
    outcome = serve(LazyBatching({"net": times}, 1), times, [0, 5], sla=15)
    assert timeline(outcome) == [(0, {1}, "A", "F"), (5, {1}, "F", "."), (8, {2}, "A", ".")]


def test_an_oracle_admits_what_the_conservative_sum_refuses():
    """Unit nodes at any batch size: Req2 at 5 costs Req1 five units of catching up, so it ends at 13, before 15."""
    times = NodeTimes(EIGHT, Unit())
    outcome = serve(OracleLazyBatching({"net": times}, 1), times, [0, 5], sla=15)
    assert outcome.finished == [13, 13]
    # And with a deadline of 12 it does not.
    assert serve(OracleLazyBatching({"net": times}, 1), times, [0, 5], sla=12).finished == [8, 16]


def test_algorithm_1_counts_encoder_steps_and_assumed_decoder_steps():
    times = NodeTimes(graph(2, 3, 4), Unit())
    estimate = SingleInputTimes(times, dec_timesteps=5).estimate(Request(0, "net", 0.0, input_len=7, output_len=99))
    assert estimate == 2 + 3 * 7 + 4 * 5


def test_a_request_joins_another_in_the_middle_of_its_encoder_and_leaves_it_alone():
    """One encoder node: Req1 has 6 steps, Req2 arrives during the second and has 2. It merges without catching up, runs
    steps 3 and 4 of Req1, and waits at the decoder while Req1 ends its encoder; there they merge again."""
    times = NodeTimes(graph(0, 1, 1), Unit())
    policy = LazyBatching({"net": times}, 1, dec_timesteps={"net": 4})
    outcome = serve(policy, times, [0, 1.5], inputs=[6, 2], outputs=[1, 3])
    ran = [(r.started, r.ended, {q.id + 1 for q in r.task.requests}) for r in outcome.ran]
    assert ran == [(0, 2, {1}), (2, 4, {1, 2}), (4, 6, {1}), (6, 7, {1, 2}), (7, 9, {2})]
    assert outcome.finished == [7, 9]


def test_requests_past_saving_are_served_in_turn_in_full_batches():
    times = NodeTimes(EIGHT, Unit())
    policy = LazyBatching({"net": times}, 1, max_batch=4)
    for number in range(5):
        policy.submit(Request(number, "net", 0.0, deadline=1.0), 0.0)
    first = policy.next_task(0, 50.0)
    assert [request.id for request in first.requests] == [0, 1, 2, 3]
    # Nobody enters above them, though there were room: their slack could not be kept.
    policy = LazyBatching({"net": times}, 1)
    policy.submit(Request(0, "net", 0.0, deadline=1.0), 0.0)
    first = policy.next_task(0, 50.0)
    policy.submit(Request(1, "net", 51.0, deadline=500.0), 51.0)
    assert policy.complete(first.ended_at(1), 51.0) == []
    assert [request.id for request in policy.next_task(0, 51.0).requests] == [0]


def test_requests_past_saving_can_be_made_to_stand_back():
    times = NodeTimes(EIGHT, Unit())
    policy = LazyBatching({"net": times}, 1, defer_late=True)
    for number, deadline in enumerate([1.0, 1.0, 65.0]):
        policy.submit(Request(number, "net", 0.0, deadline=deadline), 0.0)
    first = policy.next_task(0, 50.0)
    assert [request.id for request in first.requests] == [2]
    assert policy.complete(first, 58.0) == list(first.requests)
    assert [request.id for request in policy.next_task(0, 58.0).requests] == [0, 1]


def test_a_worker_that_is_lost_gives_back_its_whole_table():
    times = NodeTimes(EIGHT, Unit())
    policy = LazyBatching({"net": times}, 1)
    policy.submit(Request(0, "net", 0.0), 0.0)
    first = policy.next_task(0, 0.0)
    policy.submit(Request(1, "net", 2.5), 2.5)
    assert policy.complete(first.ended_at(3), 3.0) == []
    second = policy.next_task(0, 3.0)
    assert [request.id for request in second.requests] == [1]
    policy.submit(Request(2, "net", 3.0), 3.0)
    assert policy.complete(second.lost(second.requests), 4.0) == []
    again = policy.next_task(0, 4.0)
    assert ([request.id for request in again.requests], again.start) == ([0, 1, 2], 0)


def test_a_request_that_was_given_up_does_not_come_back():
    times = NodeTimes(EIGHT, Unit())
    policy = LazyBatching({"net": times}, 1)
    for number in range(2):
        policy.submit(Request(number, "net", 0.0), 0.0)
    task = policy.next_task(0, 0.0)
    policy.complete(task.lost(task.requests[1:]), 1.0)
    assert [request.id for request in policy.next_task(0, 1.0).requests] == [1]


def test_settings_that_cannot_work_are_refused():
    times = NodeTimes(graph(1, 1, 1), Unit())
    with pytest.raises(UsageError, match="max_batch is 0"):
        LazyBatching({"net": times}, 1, 0, {"net": 3})
    with pytest.raises(UsageError, match="has a decoder: give its dec_timesteps"):
        LazyBatching({"net": times}, 1)
    with pytest.raises(UsageError, match="dec_timesteps is 0"):
        LazyBatching({"net": times}, 1, 8, {"net": 0})
    with pytest.raises(UnknownModel, match="other"):
        LazyBatching({"net": times}, 1, 8, {"net": 3}).submit(Request(0, "other", 0.0), 0.0)


def test_two_models_on_one_worker_do_not_mix_and_do_not_starve():
    """A stream of the first model that would always be joinable does not keep the second out beyond its slack."""
    graphs = {name: graph(8, name=name) for name in ("a", "b")}
    times = {name: NodeTimes(each, Unit()) for name, each in graphs.items()}
    at = [float(t) for t in range(60)]
    models = ["b" if t == 3 else "a" for t in range(60)]
    load = Arrivals(models, at, [t + 60 for t in at], [1.0] * 60, [1] * 60)
    outcome = run(LazyBatching(times, 1, 64), load, times, 1, True)
    assert all({r.model for r in ran.task.requests} == {ran.task.model} for ran in outcome.ran)
    assert outcome.finished[3] <= 3 + 60


shapes = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)).filter(any)


@settings(max_examples=200, deadline=None)
@given(
    shape=shapes,
    load=st.lists(
        st.tuples(st.floats(0, 60), st.integers(1, 6), st.integers(1, 6), st.floats(0.5, 80)), min_size=1, max_size=40
    ),
    max_batch=st.integers(1, 8),
    workers=st.integers(1, 3),
    oracle=st.booleans(),
    defer=st.booleans(),
    linear=st.booleans(),
)
def test_nothing_is_lost_nodes_run_in_order_and_batches_keep_their_limit(
    shape, load, max_batch, workers, oracle, defer, linear
):
    net = graph(*shape)
    times = NodeTimes(net, Linear() if linear else Unit())
    load = sorted(load)
    kind = OracleLazyBatching if oracle else LazyBatching
    policy = kind({"net": times}, workers, max_batch, {"net": 3}, defer)
    work = Arrivals(
        ["net"] * len(load), [r[0] for r in load], [r[0] + r[3] for r in load],
        [float(r[1]) for r in load], [r[2] for r in load],
    )  # fmt: skip
    outcome = run(policy, work, {"net": times}, workers, True)
    visited = {number: [] for number in range(len(load))}
    place = {}
    for ran in sorted(outcome.ran, key=lambda r: (r.started, r.ended)):
        assert 1 <= ran.task.batch_size <= max_batch
        first, behind = times.sections.first[ran.task.start], times.sections.behind[ran.task.start]
        nodes = [
            b if b < behind else first + (b - first) % (behind - first) for b in range(ran.task.start, ran.task.stop)
        ]
        for request in ran.task.requests:
            assert place.setdefault(request.id, ran.worker) == ran.worker, "a request changes its worker half way"
            visited[request.id] += nodes
    for number, (_, inputs, outputs, _) in enumerate(load):
        encoder, decoder = list(times.sections.encoder), list(times.sections.decoder)
        static = [i for i in range(len(net.nodes)) if i not in encoder + decoder]
        assert visited[number] == static + encoder * inputs + decoder * outputs
    if len(static) == len(net.nodes):
        for worker in range(workers):
            assert_stack_discipline([ran for ran in outcome.ran if ran.worker == worker])


def assert_stack_discipline(ran):
    """A task runs newcomers, or what is on top of the stack with as much below as has merged with it; nothing else."""
    stack = []
    for each in sorted(ran, key=lambda r: r.started):
        batch = {request.id for request in each.task.requests}
        if each.task.start == 0:
            assert not any(batch & level for level in stack)
            stack.append(batch)
        merged = set()
        while not batch <= merged:
            merged |= stack.pop()
        assert merged == batch
        stack.append(batch)
