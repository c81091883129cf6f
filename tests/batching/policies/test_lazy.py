"""LazyBatching: the paper's timelines with nodes of unit time, its slack equations, and properties under any load."""

import itertools
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
    PolicyContext,
    Request,
    UnknownModel,
    UsageError,
    WorkConservingBatching,
)
from headrace.batching.policies.lazy import BATCHED, EQ2, LEAST_DELAY, SLACK_SCOPES, Lazy
from headrace.batching.policies.shared.batch_table import BatchTable
from headrace.batching.policies.shared.single_input import SingleInputTimes
from headrace.batching.policies.shared.table_times import run_out
from headrace.batching.registry import policy_settings
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
        ["net"] * count,
        [float(t) for t in at],
        [t + sla for t in at],
        [float(n) for n in inputs or [1] * count],
        list(outputs or [1] * count),
    )
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


FIVE = graph(5)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (2, [(2, {1}), (7, {2}), (14, {3})]),
        (4, [(4, {1}), (9, {2}), (16, {3})]),  # no larger batch, and all start later
        (5, [(5, {1, 2}), (17, {3})]),
    ],
)
def test_figure_4_a_longer_window_may_catch_no_more_and_delay_all(window, expected):
    """Req1 to Req3 are received at 0, 4 and 12, and Req2 does not join the batch that leaves at 4. Our drivers tell a
    policy of all that comes at one instant before they ask it, so the Req2 of the figure comes a moment later. (Five
    nodes of one unit each, as in Fig. 8.)"""
    outcome = serve(GraphBatching([FIVE], window), NodeTimes(FIVE, Unit()), [0, math.nextafter(4, 5), 12])
    assert [(ran.started, {r.id + 1 for r in ran.task.requests}) for ran in outcome.ran] == expected


def test_a_request_that_comes_at_the_instant_at_which_a_batch_leaves_is_in_it():
    outcome = serve(GraphBatching([FIVE], 4), NodeTimes(FIVE, Unit()), [0, 4, 12])
    assert outcome.started == [4, 4, 16]


def test_figure_8_three_newcomers_catch_up_with_two_and_merge():
    """Five nodes. Req1 and Req2 start at 4, Req3 to Req5 come between 5 and 6: they preempt at 6, have caught up at 8
    and are merged at C; all end at 11. Whole graphs would end at 9 and 14."""
    times = NodeTimes(FIVE, Unit())
    at = [4, 4, 5.2, 5.5, 5.8]
    outcome = serve(LazyBatching({"net": times}, 1), times, at)
    assert timeline(outcome) == [(4, {1, 2}, "A", "C"), (6, {3, 4, 5}, "A", "C"), (8, {1, 2, 3, 4, 5}, "C", "F")]
    assert outcome.finished == [11] * 5
    assert serve(GraphBatching([FIVE], 0), times, at).finished == [9, 9, 14, 14, 14]


def test_lazy_batching_needs_no_window():
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
    # With a deadline of 13 it just does, and with one of 12 it does not.
    assert serve(OracleLazyBatching({"net": times}, 1), times, [0, 5], sla=13).finished[0] == 13
    assert serve(OracleLazyBatching({"net": times}, 1), times, [0, 5], sla=12).finished == [8, 16]


@pytest.mark.parametrize(("scope", "third"), [("table", {1}), ("active", {2})])
def test_the_slack_of_those_below_the_active_batch_counts_by_scope(scope, third):
    """Req1 can spare 8 + 8 of its 23 units, not 8 more. While Req2 catches up above it, Section IV-B's words ask for
    the slack of Req2 alone; the example of Fig. 10 sums all."""
    policy = LazyBatching({"net": NodeTimes(EIGHT, Unit())}, 1, slack_scope=scope)
    policy.submit(Request(0, "net", 0.0, deadline=23.0), 0.0)
    first = policy.next_task(0, 0.0)
    policy.submit(Request(1, "net", 1.5, deadline=100.0), 1.5)
    policy.complete(first.ended_at(2), 2.0)
    second = policy.next_task(0, 2.0)
    assert [request.id for request in second.requests] == [1]
    policy.submit(Request(2, "net", 2.5, deadline=100.0), 2.5)
    policy.complete(second.ended_at(1), 3.0)
    assert {request.id for request in policy.next_task(0, 3.0).requests} == third


def test_the_active_batch_keeps_its_slack_in_either_scope():
    times = NodeTimes(EIGHT, Unit())
    for scope in ("table", "active"):
        for sla, ends in ((16, [10, 10]), (15, [8, 16])):
            assert serve(LazyBatching({"net": times}, 1, slack_scope=scope), times, [0, 2], sla=sla).finished == ends
    # Of two that wait, the second enters beside the first only if that keeps its slack too.
    policy = LazyBatching({"net": times}, 1, slack_scope="active")
    policy.submit(Request(0, "net", 0.0), 0.0)
    first = policy.next_task(0, 0.0)
    for number in (1, 2):
        policy.submit(Request(number, "net", 1.0, deadline=20.0), 1.0)
    policy.complete(first.ended_at(2), 2.0)
    assert [request.id for request in policy.next_task(0, 2.0).requests] == [1]


def test_an_oracle_is_no_bound_on_mean_latency():
    """It sees that both meet an SLA of 15 together, and lets Req2 in: 13 and 8. One after the other it is 8 and 11."""
    times = NodeTimes(EIGHT, Unit())
    means = {}
    for kind in (LazyBatching, OracleLazyBatching):
        outcome = serve(kind({"net": times}, 1), times, [0, 5], sla=15)
        means[kind] = sum(end - at for end, at in zip(outcome.finished, [0, 5], strict=True)) / 2
    assert means == {LazyBatching: 9.5, OracleLazyBatching: 10.5}


def test_an_oracle_looks_at_the_deadlines_in_its_scope():
    """Req3 would catch up by 5, and all end at 11: too late for Req1, which lies below, and for nobody else."""
    times = NodeTimes(EIGHT, Unit())
    for scope, ends in (("table", [10, 10, 18]), ("active", [11, 11, 11])):
        policy = OracleLazyBatching({"net": times}, 1, slack_scope=scope)
        load = Arrivals(["net"] * 3, [0.0, 1.5, 2.5], [10.5, 99.0, 99.0], [1.0] * 3, [1] * 3)
        assert run(policy, load, {"net": times}, 1).finished == ends


def test_sub_batches_merge_across_timesteps_or_only_at_equal_ones():
    """One static and one decoder node. Req2 comes when Req1 has run two steps: it joins at once, or runs two alone."""
    times = NodeTimes(graph(1, 0, 1), Unit())
    for equal, expected, ends in (
        (False, [(0, 3, {1}), (3, 4, {2}), (4, 7, {1, 2}), (7, 8, {2})], [7, 8]),
        (True, [(0, 3, {1}), (3, 6, {2}), (6, 8, {1, 2}), (8, 9, {1})], [9, 8]),
    ):
        policy = LazyBatching({"net": times}, 1, dec_timesteps={"net": 5}, equal_timesteps=equal)
        outcome = serve(policy, times, [0, 2.5], outputs=[5, 4])
        assert [(r.started, r.ended, {q.id + 1 for q in r.task.requests}) for r in outcome.ran] == expected
        assert outcome.finished == ends


def test_equal_timesteps_hold_for_the_encoder_and_at_the_door_of_the_decoder():
    """Req1 is in the third step of its encoder as Req2 comes, whose input is of one step: it waits at the decoder. Req3
    comes as Req1 has run one step there: it catches up in both sections."""
    times = NodeTimes(graph(0, 1, 2), Unit())
    policy = LazyBatching({"net": times}, 1, dec_timesteps={"net": 5}, equal_timesteps=True)
    outcome = serve(policy, times, [0, 2.5, 6.5], inputs=[4, 1, 1], outputs=[3, 1, 3])
    assert [(r.started, r.ended, {q.id + 1 for q in r.task.requests}) for r in outcome.ran] == [
        (0, 3, {1}),
        (3, 4, {2}),
        (4, 5, {1}),
        (5, 7, {1, 2}),
        (7, 8, {3}),
        (8, 10, {3}),
        (10, 14, {1, 3}),
    ]
    assert outcome.finished == [14, 7, 14]


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


@pytest.mark.parametrize("kind", [LazyBatching, OracleLazyBatching])
def test_a_request_past_saving_stands_back_behind_those_of_any_model(kind):
    """Req1 of "a" waits longest and cannot be met, Req2 of "b" can; then Req3 of "a", which comes as Req1 runs."""
    times = {name: NodeTimes(graph(8, name=name), Unit()) for name in ("a", "b")}
    policy = kind(times, 1, defer_late=True)
    policy.submit(Request(0, "a", 0.0, deadline=1.0), 0.0)
    policy.submit(Request(1, "b", 5.0, deadline=99.0), 5.0)
    first = policy.next_task(0, 5.0)
    assert [request.id for request in first.requests] == [1]
    policy.submit(Request(2, "b", 7.5, deadline=99.0), 7.5)  # Req1 waits, but no longer in the way
    policy.complete(first.ended_at(2), 7.0)
    second = policy.next_task(0, 7.5)
    assert [request.id for request in second.requests] == [2]
    merged = policy.complete(second.ended_at(2), 9.5) or policy.next_task(0, 9.5)
    assert len(policy.complete(merged, 15.5)) == 2
    late = policy.next_task(0, 15.5)
    assert [request.id for request in late.requests] == [0]
    policy.submit(Request(3, "a", 16.0, deadline=30.0), 16.0)
    policy.complete(late.ended_at(1), 16.5)
    assert [request.id for request in policy.next_task(0, 16.5).requests] == [3]


@settings(max_examples=150, deadline=None)
@given(
    load=st.lists(
        st.tuples(st.floats(0, 60), st.sampled_from("ab"), st.integers(1, 5), st.integers(1, 5), st.floats(0.5, 60)),
        min_size=2,
        max_size=40,
    ),
    workers=st.integers(1, 2),
    max_batch=st.integers(1, 4),
    linear=st.booleans(),
)
def test_no_request_past_saving_begins_while_one_waits_that_can_be_met(load, workers, max_batch, linear):
    latency = Linear() if linear else Unit()
    times = {"a": NodeTimes(graph(5, name="a"), latency), "b": NodeTimes(graph(1, 1, 2, "b"), latency)}
    load = sorted(load)
    at, deadline = [r[0] for r in load], [r[0] + r[4] for r in load]
    work = Arrivals([r[1] for r in load], at, deadline, [float(r[2]) for r in load], [r[3] for r in load])
    started = run(LazyBatching(times, workers, max_batch, {"b": 3}, True), work, times, workers).started
    single = {"a": lambda steps: 5.0, "b": lambda steps: 1.0 + steps + 2 * 3}
    for number, now in enumerate(started):
        if single[load[number][1]](load[number][2]) > deadline[number] - now:
            for other, begins in enumerate(started):
                if at[other] <= now < begins:
                    assert single[load[other][1]](load[other][2]) > deadline[other] - now


def wait_beside_a_stream(policy, times, sla, apart, count=400):
    """Requests of "words" come `apart` and say ten words each; one of "image" comes at 20.5. Returns how long it waits,
    and how many of "words" that came later begin before it."""
    at = sorted([20.5, *[apart * number for number in range(count)]])
    models = ["image" if t == 20.5 else "words" for t in at]
    load = Arrivals(models, at, [t + sla for t in at], [1.0] * len(at), [10] * len(at))
    started = run(policy, load, times, 1).started
    image = models.index("image")
    return started[image] - 20.5, sum(began < started[image] for began in started[image + 1 :])


@pytest.mark.parametrize("kind", [LazyBatching, OracleLazyBatching])
@pytest.mark.parametrize("sla", [5000.0, math.inf])
def test_a_stream_into_a_decoder_leaves_the_table_for_a_request_of_another_model(kind, sla):
    """Of those that came behind the image, at most as many as a table holds begin before it. At 3 apart there are some
    six of them in the decoder at any time; at 1 apart they cannot be served."""
    times = {"words": NodeTimes(graph(1, 0, 1, "words"), Unit()), "image": NodeTimes(graph(8, name="image"), Unit())}
    for apart, max_batch in itertools.product((1.0, 3.0), (1, 4, 16)):
        policy = kind(times, 1, max_batch, {"words": 10})
        waited, overtook = wait_beside_a_stream(policy, times, sla, apart)
        assert overtook <= max_batch
        assert waited <= 11 * (20 / apart + max_batch)


def test_a_place_that_got_free_is_taken_again_when_no_other_model_waits():
    """Without another model the table is refilled for ever; and again once the other model's request is withdrawn."""
    times = {"words": NodeTimes(graph(1, 0, 1, "words"), Unit()), "image": NodeTimes(graph(8, name="image"), Unit())}
    policy = LazyBatching(times, 1, 2, {"words": 2})
    for number, outputs in enumerate((1, 9, 9)):
        policy.submit(Request(number, "words", 0.0, output_len=outputs), 0.0)
    first = policy.next_task(0, 0.0)
    image = Request(9, "image", 1.0)
    policy.submit(image, 1.0)
    assert [r.id for r in policy.complete(first.ended_at(2, first.requests[:1]), 2.0)] == [0]
    task = policy.next_task(0, 2.0)
    assert [r.id for r in task.requests] == [1]
    assert policy.withdraw(image, 2.5) and policy.complete(task.ended_at(2), 3.0) == []
    assert [r.id for r in policy.next_task(0, 3.0).requests] == [2]


@pytest.mark.parametrize("equal", [False, True])
def test_short_requests_hold_back_a_long_one_of_their_model_only_if_timesteps_must_be_equal(equal):
    """Req1 says 30 words, the others one each, two of them in the table at any time. Each catches up with it and takes
    a step along with it; but if it must catch up step by step, it ends before."""
    times = NodeTimes(graph(1, 0, 1), Unit())
    policy = LazyBatching({"net": times}, 1, 3, {"net": 2}, equal_timesteps=equal)
    outcome = serve(policy, times, [0, *range(2, 400)], outputs=[30] + [1] * 398)
    assert outcome.finished[0] > 400 if equal else outcome.finished[0] <= 1 + 30 * 3


def test_who_leaves_gives_its_single_input_time_back():
    """Req1 is due in 17 units, and each of the three takes 6 by itself (one static node, a decoder taken to run five
    steps). Req3 fits when Req2 has left, not before."""
    times = NodeTimes(graph(1, 0, 1), Unit())
    for leaves in (False, True):
        policy = LazyBatching({"net": times}, 1, dec_timesteps={"net": 5})
        for number in range(2):
            policy.submit(Request(number, "net", 0.0, deadline=17.0), 0.0)
        task = policy.next_task(0, 0.0)
        policy.submit(Request(2, "net", 1.5), 1.5)
        policy.complete(task.ended_at(2, task.requests[1:] if leaves else ()), 2.0)
        assert [request.id for request in policy.next_task(0, 2.0).requests] == ([2] if leaves else [0, 1])


def test_who_leaves_takes_its_slack_along():
    """Req2 has none to lose; when it has left, Req3 may enter above Req1."""
    times = NodeTimes(graph(1, 0, 1), Unit())
    for leaves in (False, True):
        policy = LazyBatching({"net": times}, 1, dec_timesteps={"net": 5})
        for number, deadline in enumerate((50.0, 11.0)):
            policy.submit(Request(number, "net", 0.0, deadline=deadline), 0.0)
        task = policy.next_task(0, 0.0)
        policy.submit(Request(2, "net", 1.5), 1.5)
        policy.complete(task.ended_at(2, task.requests[1:] if leaves else ()), 2.0)
        assert [request.id for request in policy.next_task(0, 2.0).requests] == ([2] if leaves else [0, 1])


def test_a_request_that_can_just_be_met_does_not_stand_back_and_of_late_ones_the_oldest_comes_first():
    times = {name: NodeTimes(graph(8, name=name), Unit()) for name in ("a", "b", "c")}
    policy = LazyBatching(times, 1, defer_late=True)
    policy.submit(Request(0, "c", 0.0, deadline=18.0), 0.0)
    policy.submit(Request(1, "c", 0.5, deadline=17.5), 0.5)
    policy.submit(Request(2, "b", 1.0, deadline=2.0), 1.0)
    policy.submit(Request(3, "a", 2.0, deadline=3.0), 2.0)
    order, now = [], 10.0
    while (task := policy.next_task(0, now)) is not None:
        order.append([request.id for request in policy.complete(task, now)])
    assert order == [[0], [1], [2], [3]]


@pytest.mark.parametrize("kind", [LazyBatching, OracleLazyBatching])
def test_a_newcomer_waits_if_the_first_of_another_model_would_lose_its_slack(kind):
    """With Req3 the worker is at work until 2 + 16 by the sum of single inputs, until 10 in truth; and "b" takes 8."""
    times = {name: NodeTimes(graph(8, name=name), Unit()) for name in ("a", "b")}
    done = 18.0 if kind is LazyBatching else 10.0
    for deadline, enters in ((done + 8.0, True), (done + 7.5, False)):
        policy = kind(times, 1)
        policy.submit(Request(0, "a", 0.0), 0.0)
        first = policy.next_task(0, 0.0)
        policy.submit(Request(1, "b", 0.5, deadline=deadline), 0.5)
        policy.submit(Request(2, "b", 0.6, deadline=1.0), 0.6)  # not the first
        policy.submit(Request(3, "a", 1.0), 1.0)
        policy.complete(first.ended_at(2), 2.0)
        assert [request.id for request in policy.next_task(0, 2.0).requests] == ([3] if enters else [0])


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


def of_two_models(policy, times, at, slos):
    """Serve requests of the models a and b, given as (model, time). Return tasks as (start, requests, boundary)."""
    load = Arrivals(
        [model for model, _ in at],
        [float(t) for _, t in at],
        [t + slo for (_, t), slo in zip(at, slos, strict=True)],
        [1.0] * len(at),
        [1] * len(at),
    )
    outcome = run(policy, load, times, 1, True)
    ran = [(each.started, {r.id + 1 for r in each.task.requests}, each.task.stop) for each in outcome.ran]
    return ran, list(outcome.finished)


@pytest.mark.parametrize("kind", [LazyBatching, OracleLazyBatching])
def test_strict_lets_a_batch_of_another_model_preempt_at_a_node_boundary(kind):
    """Eight nodes of 1 ms each. Req2 is of b and comes at 1.5; Req3 joins it at 3.5. Req1 of a goes on after them."""
    times = {name: NodeTimes(graph(8, name=name), Unit()) for name in "ab"}
    at = [("a", 0), ("b", 1.5), ("b", 3.5)]
    ran, finished = of_two_models(kind(times, 1, strict=True), times, at, [100.0] * 3)
    assert ran == [(0, {1}, 2), (2, {2}, 2), (4, {3}, 2), (6, {2, 3}, 8), (12, {1}, 8)]
    assert finished == [18, 12, 12]
    _, finished = of_two_models(kind(times, 1), times, at, [100.0] * 3)
    assert finished == [8, 16, 16]


@pytest.mark.parametrize(
    ("kind", "slo", "finished"),
    [
        (LazyBatching, 16.0, [16, 10]),  # 8 + 8 ms by the sum
        (LazyBatching, 15.5, [8, 16]),
        (OracleLazyBatching, 16.0, [16, 10]),
        (OracleLazyBatching, 15.5, [8, 16]),
    ],
)
def test_strict_keeps_the_slack_of_requests_of_the_other_model(kind, slo, finished):
    """Req1 of a has begun when Req2 of b comes, which may enter only if Req1 keeps its slack."""
    times = {name: NodeTimes(graph(8, name=name), Unit()) for name in "ab"}
    policy = kind(times, 1, strict=True)
    assert of_two_models(policy, times, [("a", 0), ("b", 1.5)], [slo, 100.0])[1] == finished


def test_a_worker_that_is_lost_gives_back_the_tables_of_all_models():
    times = {name: NodeTimes(graph(8, name=name), Unit()) for name in "ab"}
    policy = LazyBatching(times, 1, strict=True)
    policy.submit(Request(0, "a", 0.0), 0.0)
    first = policy.next_task(0, 0.0)
    policy.submit(Request(1, "b", 1.0), 1.0)
    assert policy.complete(first.ended_at(2), 2.0) == []
    second = policy.next_task(0, 2.0)
    assert second.model == "b"
    assert policy.complete(second.lost(second.requests), 3.0) == []
    again = [policy.next_task(0, 3.0)]
    policy.complete(again[0], 11.0)
    again.append(policy.next_task(0, 11.0))
    assert [(task.model, task.requests[0].id, task.start) for task in again] == [("a", 0, 0), ("b", 1, 0)]


def test_settings_that_cannot_work_are_refused():
    times = NodeTimes(graph(1, 1, 1), Unit())
    with pytest.raises(UsageError, match="max_batch is 0"):
        LazyBatching({"net": times}, 1, 0, {"net": 3})
    with pytest.raises(UsageError, match="has a decoder: give its dec_timesteps"):
        LazyBatching({"net": times}, 1)
    with pytest.raises(UsageError, match="no slack scope 'all'; choose from table, active"):
        LazyBatching({"net": times}, 1, 8, {"net": 3}, slack_scope="all")
    with pytest.raises(UsageError, match="no slack 'none'; choose from eq2, batched, least-delay"):
        LazyBatching({"net": times}, 1, 8, {"net": 3}, slack="none")
    with pytest.raises(UsageError, match="leave out strict"):
        LazyBatching({"net": times}, 1, 8, {"net": 3}, slack=LEAST_DELAY, strict=True)
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
    slack_and_scope=st.sampled_from(
        [*((EQ2, scope) for scope in SLACK_SCOPES), (BATCHED, "table"), (LEAST_DELAY, "table")]
    ),
    equal=st.booleans(),
)
def test_nothing_is_lost_nodes_run_in_order_and_batches_keep_their_limit(
    shape, load, max_batch, workers, oracle, defer, linear, slack_and_scope, equal
):
    slack, scope = slack_and_scope
    net = graph(*shape)
    times = NodeTimes(net, Linear() if linear else Unit())
    load = sorted(load)
    kind = OracleLazyBatching if oracle else LazyBatching
    rule = {} if oracle else {"slack": slack}
    policy = kind(
        {"net": times}, workers, max_batch, {"net": 3}, defer, slack_scope=scope, equal_timesteps=equal, **rule
    )
    work = Arrivals(
        ["net"] * len(load),
        [r[0] for r in load],
        [r[0] + r[3] for r in load],
        [float(r[1]) for r in load],
        [r[2] for r in load],
    )
    outcome = run(policy, work, {"net": times}, workers, True)
    visited = {number: [] for number in range(len(load))}
    place = {}
    for ran in sorted(outcome.ran, key=lambda r: (r.started, r.ended)):
        assert 1 <= ran.task.batch_size <= max_batch
        first, after = times.sections.first[ran.task.start], times.sections.after[ran.task.start]
        nodes = [
            b if b < after else first + (b - first) % (after - first) for b in range(ran.task.start, ran.task.stop)
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


class Affine:
    """Node i takes `fixed[i]` and, for each request, `each[i]`: a batch takes no longer than its two parts."""

    def __init__(self, fixed, each):
        self.fixed, self.each = fixed, each

    def latency(self, node, batch, length):
        return self.fixed[node] + self.each[node] * batch


affine = st.lists(
    st.tuples(st.floats(0, 4), st.floats(0, 2)).filter(lambda node: sum(node) > 0.1), min_size=1, max_size=8
)


def two_groups(policy, times, sizes, second_at, slos):
    """Serve `sizes[0]` requests that come at 0 and `sizes[1]` that come at `second_at`. Return their latencies."""
    at = [0.0] * sizes[0] + [second_at] * sizes[1]
    load = Arrivals(
        ["net"] * len(at),
        at,
        [a + slo for a, slo in zip(at, slos, strict=True)],
        [1.0] * len(at),
        [1] * len(at),
    )
    return [end - a for end, a in zip(run(policy, load, {"net": times}, 1).finished, at, strict=True)]


@settings(max_examples=200, deadline=None)
@given(nodes=affine, sizes=st.tuples(st.integers(1, 6), st.integers(1, 6)), share=st.floats(0, 1.2), data=st.data())
def test_least_delay_is_no_worse_than_waiting_or_entering_and_makes_no_request_late(nodes, sizes, share, data):
    """A group of requests comes while another one runs. By waiting it would be served as `work-conserving` serves it,
    and with Eq. 2 and no deadlines it would enter at once."""
    times = NodeTimes(graph(len(nodes)), Affine([f for f, _ in nodes], [e for _, e in nodes]))
    second_at = share * times.whole(sizes[0], 1.0, 1)
    free = [math.inf] * sum(sizes)
    least = sum(two_groups(LazyBatching({"net": times}, 1, slack=LEAST_DELAY), times, sizes, second_at, free))
    waiting = two_groups(WorkConservingBatching([times.graph], 64), times, sizes, second_at, free)
    entering = two_groups(LazyBatching({"net": times}, 1), times, sizes, second_at, free)
    assert least <= min(sum(waiting), sum(entering)) * (1 + 1e-9)
    slos = [data.draw(st.floats(0.5, 1.5)) * latency for latency in waiting]
    served = two_groups(LazyBatching({"net": times}, 1, slack=LEAST_DELAY), times, sizes, second_at, slos)
    for latency, alone, slo in zip(served, waiting, slos, strict=True):
        assert latency <= slo * (1 + 1e-9) or alone > slo * (1 - 1e-9)


@settings(max_examples=200, deadline=None)
@given(
    shape=shapes,
    nodes=st.lists(st.tuples(st.floats(0.1, 4), st.floats(0, 2)), min_size=9, max_size=9),
    pushes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=4),
    newcomers=st.integers(0, 3),
    steps=st.integers(1, 4),
)
def test_run_out_is_the_time_that_the_table_takes(shape, nodes, pushes, newcomers, steps):
    """The table is filled and run a node at a time, and then to its end. Inputs and outputs have `steps` steps."""
    times = NodeTimes(graph(*shape), Affine([f for f, _ in nodes], [e for _, e in nodes]))
    table, number = BatchTable(times.sections), 0

    def requests(count):
        nonlocal number
        number += count
        return tuple(Request(number - n, "net", 0.0, input_len=float(steps), output_len=steps) for n in range(count))

    def advance(stop):
        return table.advance(stop, table.outputs_complete(stop))

    for count, runs in pushes:
        table.push(requests(count))
        for _ in range(runs):
            if table.size > 0:
                advance(table.stack[-1].node + 1)
    if table.size == 0:
        return
    inside = {request.id for part in table.stack for request in part.requests}
    predicted = run_out(times, steps, table, newcomers, float(steps))
    if newcomers:
        table.push(requests(newcomers))
    now = inside_done = 0.0
    while table.size > 0:
        top, stop = table.stack[-1], table.next_stop(outputs_known=True)
        now += times.duration(len(top.requests), 1.0, top.node, stop)
        if inside & {request.id for request in advance(stop)}:
            inside_done = now
    if times.sections.any:  # requests leave the batch before the last one, which only makes it faster
        assert predicted[1] >= now * (1 - 1e-9)
    else:
        assert predicted == pytest.approx((inside_done, now))


def test_batched_slack_counts_the_table_once():
    """Eight nodes of 1 ms at any batch size. Two requests take 8 ms together, and 16 ms one after the other."""
    times = NodeTimes(EIGHT, Unit())
    for slack, enters in ((EQ2, 16), (BATCHED, 10)):  # the second comes at 1.5 and may enter at 2
        for slo, finished in ((enters, [10, 10]), (enters - 0.5, [8, 16])):
            assert serve(LazyBatching({"net": times}, 1, slack=slack), times, [0, 1.5], sla=slo).finished == finished


def test_strict_keeps_eq_2():
    """A second request would pay and would keep the batched slack. By Eq. 2 it may not enter."""
    times = {"net": NodeTimes(EIGHT, Unit())}
    context = PolicyContext(times, 1)
    for strict, finished in ((True, [8, 16]), (False, [10, 10])):
        assert serve(Lazy(strict=strict).build(context), times["net"], [0, 1.5], sla=15).finished == finished


@pytest.mark.parametrize("strict", [True, "true"])
@pytest.mark.parametrize("slack", [BATCHED, LEAST_DELAY])
def test_strict_refuses_another_rule_that_is_given(slack, strict):
    with pytest.raises(UsageError, match=f"^--slack {slack}: .* whose rule is eq2; leave out --slack or --strict"):
        policy_settings("lazy", {"strict": strict, "slack": slack})
    assert policy_settings("lazy", {"strict": strict, "slack": EQ2}) == Lazy(strict=True, slack=EQ2)
    assert policy_settings("lazy", {"slack": slack}) == Lazy(slack=slack)


def test_the_rule_is_least_delay_if_none_is_given():
    """A second request may enter by Eq. 2, but a table that has one node left would lose more than it gains."""
    times = {"net": NodeTimes(EIGHT, Unit())}
    context = PolicyContext(times, 1)
    for chosen, finished in (({}, [8, 16]), ({"slack": LEAST_DELAY}, [8, 16]), ({"slack": EQ2}, [15, 15])):
        assert serve(Lazy(**chosen).build(context), times["net"], [0, 6.5], sla=100).finished == finished


def test_least_delay_waits_for_the_first_worker_that_becomes_free():
    """Two workers run eight nodes from 0 and from 2.5. A third request comes at 5.2. At 5.5 it could enter the second
    table, whose request would lose 3 ms. It would gain 5 ms with one worker, and 2.5 ms if the other is free at 8."""
    times = NodeTimes(EIGHT, Unit())
    policy = LazyBatching({"net": times}, 2, slack=LEAST_DELAY)
    assert serve(policy, times, [0, 2.5, 5.2], workers=2).finished == [8, 10.5, 16]
    assert serve(LazyBatching({"net": times}, 1, slack=LEAST_DELAY), times, [0, 2.7]).finished == [11, 11]


def test_least_delay_counts_the_waiting_requests_of_other_models():
    """A request of a runs eight nodes. A second one, at 1.5, gains 6 ms by entering at 2, which delays others by 2 ms
    each: it enters before one request of b, and not before two."""
    times = {name: NodeTimes(graph(8, name=name), Unit()) for name in "ab"}
    for others, first in ((0, 10), (1, 10), (2, 8)):
        at = [("a", 0), ("a", 1.5), *[("b", 1.6)] * others]
        policy = LazyBatching(times, 1, slack=LEAST_DELAY)
        _, finished = of_two_models(policy, times, at, [math.inf] * len(at))
        assert finished[0] == first
