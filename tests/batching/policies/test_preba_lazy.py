"""preba-lazy: groups as `preba` forms them, joined as `lazy` lets newcomers in, and what it promises who waits."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.batching import (
    ModelGraph,
    Node,
    NodeKind,
    NodeTimes,
    PrebaBatching,
    Profile,
    ProfilePoint,
    Request,
    UnknownModel,
    UsageError,
)
from headrace.batching.policies.preba_lazy import PrebaLazyBatching
from headrace.sim.engine import Arrivals, run


class Unit:
    def latency(self, node, batch, length):
        return 1.0


class Growing:
    """A batch costs; dyadic, so that sums are exact."""

    def latency(self, node, batch, length):
        return 0.5 + 0.125 * batch


def graph(name, static=0, encoder=0, decoder=0):
    kinds = [NodeKind.STATIC] * static + [NodeKind.ENCODER] * encoder + [NodeKind.DECODER] * decoder
    return ModelGraph(name, tuple(Node(f"{name}{number}", kind) for number, kind in enumerate(kinds)))


def curve(name, knee, time_knee):
    return Profile(name, 1, (ProfilePoint(knee, time_knee, knee / time_knee),))


def preba_lazy(times, knee=4, time_knee=8.0, workers=1, steps=3):
    profiles = {name: curve(name, knee, time_knee) for name in times}
    decoding = {name: steps for name, known in times.items() if len(known.sections.decoder) > 0}
    return PrebaLazyBatching(times, profiles, workers, decoding)


def arrivals(drawn):
    """Of (time, model, SLA, input length, output length), in order of time."""
    drawn = sorted(drawn, key=lambda each: each[0])
    return Arrivals(
        [each[1] for each in drawn],
        [float(each[0]) for each in drawn],
        [each[0] + each[2] for each in drawn],
        [float(each[3]) for each in drawn],
        [each[4] for each in drawn],
    )


def served(policy, times, at, sla=math.inf, workers=1, model="net"):
    """[(start, request numbers from 1, first node, reason)] of every task."""
    load = arrivals([(time, model, sla, 1, 1) for time in at])
    outcome = run(policy, load, times, workers, True)
    return [
        (ran.started, {r.id + 1 for r in ran.task.requests}, ran.task.start, ran.task.reason) for ran in outcome.ran
    ]


EIGHT = {"net": NodeTimes(graph("net", 8), Unit())}


def test_a_lone_request_leaves_after_time_queue():
    assert served(preba_lazy(EIGHT), EIGHT, [1]) == [(9, {1}, 0, "window")]
    assert served(preba_lazy(EIGHT, workers=4), EIGHT, [1], workers=4) == [(3, {1}, 0, "window")]


def test_a_group_leaves_at_the_knee_and_not_before():
    assert served(preba_lazy(EIGHT, knee=3), EIGHT, [0, 1, 2]) == [(2, {1, 2, 3}, 0, "knee")]
    assert served(preba_lazy(EIGHT, knee=3), EIGHT, [0, 1]) == [(8, {1, 2}, 0, "window")]


def test_a_newcomer_joins_what_runs_long_before_its_own_group_would_leave():
    """It comes at 10 while a group of one runs node 2; preba would start it when that ends, at 16."""
    assert served(preba_lazy(EIGHT), EIGHT, [0, 9.5]) == [
        (8, {1}, 0, "window"),
        (10, {2}, 0, "slack"),
        (12, {1, 2}, 2, "merge"),
    ]


def test_with_a_deadline_it_joins_only_while_everyone_keeps_their_slack():
    """The first enters the table 8 after it came. It and the newcomer alone take 8 each: 24 is just enough."""
    joined = served(preba_lazy(EIGHT), EIGHT, [0, 9.5], sla=24)
    assert joined[1] == (10, {2}, 0, "slack")
    apart = served(preba_lazy(EIGHT), EIGHT, [0, 9.5], sla=23.5)
    assert apart == [(8, {1}, 0, "window"), (10, {1}, 2, "deadline"), (17.5, {2}, 0, "window")]


def test_a_table_has_batch_knee_seats():
    tasks = served(preba_lazy(EIGHT, knee=2), EIGHT, [0, 8.5, 9.5, 9.5])
    assert tasks == [
        (8, {1}, 0, "window"),
        (9, {2}, 0, "slack"),
        (10, {1, 2}, 1, "merge"),
        (17, {3, 4}, 0, "knee"),
    ]


def test_nobody_joins_above_while_another_models_group_is_the_next_to_leave():
    times = {name: NodeTimes(graph(name, 8), Unit()) for name in "ab"}
    load = arrivals(
        [(0, "a", math.inf, 1, 1), (1, "b", math.inf, 1, 1), (8.5, "a", math.inf, 1, 1), (9.5, "a", math.inf, 1, 1)]
    )
    outcome = run(preba_lazy(times), load, times, 1, True)
    # b's group may leave from 9 on: nobody enters above a's any more, nor before b's in the next table.
    assert [(ran.started, {request.id for request in ran.task.requests}, ran.task.reason) for ran in outcome.ran] == [
        (8, {0}, "window"),
        (9, {0}, "idle"),
        (10, {0}, "idle"),
        (16, {1}, "window"),
        (24, {2, 3}, "window"),
    ]


def test_a_lost_worker_gives_back_its_whole_table_to_the_front_of_the_line():
    policy = preba_lazy(EIGHT)
    policy.submit(Request(0, "net", 0.0), 0.0)
    first = policy.next_task(0, 8.0)
    policy.submit(Request(1, "net", 8.5), 8.5)
    assert policy.complete(first.ended_at(1), 9.0) == []
    second = policy.next_task(0, 9.0)
    assert (second.requests[0].id, second.reason) == (1, "slack")
    policy.submit(Request(2, "net", 9.5), 9.5)
    assert policy.complete(second.lost(second.requests), 10.0) == []
    again = policy.next_task(0, 10.0)
    assert ([request.id for request in again.requests], again.start, again.reason) == ([0, 1, 2], 0, "window")


# Buckets up to 2 and 4; a batch of long inputs may be half as large.
BY_LENGTH = Profile(
    "net", 1, tuple(ProfilePoint(knee, 8.0, knee / 8.0, length) for length, knee in ((2.0, 4), (4.0, 2)))
)


def with_buckets():
    return PrebaLazyBatching(EIGHT, {"net": BY_LENGTH}, 1, bucket_width=2)


def test_what_runs_is_open_to_its_own_bucket():
    """The first group has a long input, so it is the long bucket's, and full: a short one does not join it. In the
    second are short ones alone: a long one does not join, and a younger short one does."""
    lengths = {0: 1, 1: 3, 8.5: 1, 15.5: 1, 17.5: 3, 18.5: 1}
    load = arrivals([(at, "net", math.inf, length, 1) for at, length in lengths.items()])
    outcome = run(with_buckets(), load, EIGHT, 1, True)
    assert [(ran.started, {request.id for request in ran.task.requests}, ran.task.reason) for ran in outcome.ran] == [
        (8, {0, 1}, "window"),
        (9, {0, 1}, "idle"),
        (16.5, {2, 3}, "window"),
        (17.5, {2, 3}, "idle"),
        (18.5, {5}, "slack"),
        (20.5, {2, 3, 5}, "merge"),
        (26.5, {4}, "window"),
    ]


def test_a_merged_group_that_is_lost_waits_again_in_its_own_buckets():
    policy = with_buckets()
    policy.submit(Request(0, "net", 0.0, input_len=1.0), 0.0)
    policy.submit(Request(1, "net", 1.0, input_len=3.0), 1.0)
    task = policy.next_task(0, 8.0)
    assert [request.id for request in task.requests] == [0, 1]
    assert policy.complete(task.lost(task.requests), 9.0) == []
    policy.submit(Request(2, "net", 9.0, input_len=3.0), 9.0)
    again = policy.next_task(0, 9.0)
    assert [request.id for request in again.requests] == [0, 1], "the long bucket's group of two is full, but younger"


def test_what_cannot_work_is_refused():
    with pytest.raises(UsageError, match="headrace profile --model net"):
        PrebaLazyBatching(EIGHT, {}, 1)
    with pytest.raises(UsageError, match="0 workers"):
        preba_lazy(EIGHT, workers=0)
    with pytest.raises(UsageError, match="has a decoder: give its dec_timesteps"):
        PrebaLazyBatching({"net": NodeTimes(graph("net", 1, 0, 1), Unit())}, {"net": curve("net", 4, 8.0)}, 1)
    with pytest.raises(UnknownModel, match="nobody"):
        preba_lazy(EIGHT).submit(Request(0, "nobody", 0.0), 0.0)


dyadic = st.integers(0, 240).map(lambda quarters: quarters / 4)
load_of = st.lists(
    st.tuples(
        dyadic,
        st.sampled_from("ab"),
        st.sampled_from([4.0, 16.0, 64.0, math.inf]),
        st.integers(1, 4),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=200)
@given(
    drawn=load_of,
    knee=st.integers(1, 6),
    time_knee=st.sampled_from([0.5, 2.0, 8.0]),
    workers=st.integers(1, 3),
    longer=st.none() | st.integers(1, 6),
)
def test_with_networks_of_one_node_it_is_preba(drawn, knee, time_knee, workers, longer):
    times = {name: NodeTimes(ModelGraph.opaque(name), Growing()) for name in "ab"}
    profiles = {name: curve(name, knee, time_knee) for name in "ab"}
    if longer is not None:  # buckets
        points = tuple(ProfilePoint(b, time_knee, b / time_knee, length) for length, b in ((2.0, knee), (4.0, longer)))
        profiles["b"] = Profile("b", 1, points)
    runs = []
    for policy in (
        PrebaLazyBatching(times, profiles, workers, bucket_width=2),
        PrebaBatching([known.graph for known in times.values()], profiles, workers, bucket_width=2),
    ):
        outcome = run(policy, arrivals(drawn), times, workers, True)
        tasks = [(ran.worker, ran.started, ran.ended, repr(ran.task), ran.task.reason) for ran in outcome.ran]
        runs.append((outcome.started, outcome.finished, tasks))
    assert runs[0] == runs[1]


class Watched:
    """Passes on, and sees to it that no worker stays idle while a group may leave."""

    def __init__(self, policy, workers):
        self.policy, self.ahead = policy, policy.ahead
        self.idle = dict.fromkeys(range(workers), True)
        self.waits_since = {}
        self.longest_wait = 0.0

    def submit(self, request, now):
        self.waits_since[request.id] = now
        self.policy.submit(request, now)

    def next_task(self, worker, now):
        task = self.policy.next_task(worker, now)
        if task is None:
            assert self.policy.wakeup() > now, "an idle worker is left without the group that is due"
        else:
            for request in task.requests:
                self.longest_wait = max(self.longest_wait, now - self.waits_since.pop(request.id, now))
        return task

    def __getattr__(self, name):
        return getattr(self.policy, name)


SHAPES = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)).filter(any)


@settings(max_examples=200)
@given(drawn=load_of, shapes=st.tuples(SHAPES, SHAPES), knee=st.integers(1, 6), workers=st.integers(1, 3))
def test_nothing_is_lost_batches_keep_to_the_knee_and_no_group_that_is_due_waits_beside_an_idle_worker(
    drawn, shapes, knee, workers
):
    times = {name: NodeTimes(graph(name, *shape), Growing()) for name, shape in zip("ab", shapes, strict=True)}
    policy = Watched(preba_lazy(times, knee, 4.0, workers), workers)
    outcome = run(policy, arrivals(drawn), times, workers, True)
    assert min(outcome.finished) > 0 and outcome.ledger.finished == len(drawn)
    place = {}
    for ran in outcome.ran:
        assert 1 <= ran.task.batch_size <= knee
        assert {request.model for request in ran.task.requests} == {ran.task.model}
        for request in ran.task.requests:
            assert place.setdefault(request.id, ran.worker) == ran.worker, "a request changes its worker half way"


@settings(max_examples=100)
@given(drawn=load_of, knee=st.integers(1, 6))
def test_where_a_worker_is_always_idle_everyone_begins_within_time_queue(drawn, knee):
    """As many workers as requests."""
    times = {name: NodeTimes(graph(name, 2, 1, 1), Growing()) for name in "ab"}
    workers = len(drawn)
    policy = Watched(preba_lazy(times, knee, 4.0, workers), workers)
    run(policy, arrivals(drawn), times, workers)
    assert policy.longest_wait <= 4.0 / workers + 1e-9


@settings(max_examples=40)
@given(
    every=st.sampled_from([0.25, 0.5, 1.0]),
    shape=st.sampled_from([(8, 0, 0), (1, 1, 1), (0, 0, 2)]),
    knee=st.integers(2, 6),
    lone=st.integers(0, 60),
)
def test_two_models_neither_starves(every, shape, knee, lone):
    """A stream of `a`, without deadlines, that could join for ever and is more than the worker can serve; one request
    of `b`. It begins when its group is due and, after what had waited longer, the table has run empty."""
    times = {name: NodeTimes(graph(name, *shape), Growing()) for name in "ab"}
    stream = [(every * number, "a", math.inf, 2, 3) for number in range(round(120 / every))]
    load = arrivals([*stream, (lone, "b", math.inf, 2, 3)])
    time_queue = 1.0
    outcome = run(preba_lazy(times, knee, time_queue), load, times, 1)
    b = load.models.index("b")
    before = sum(at < lone for at in load.arrival)
    table_s = times["a"].whole(1, 2.0, 3) * knee  # of a full table, at most: one after the other
    assert outcome.started[b] <= lone + time_queue + table_s * (1 + math.ceil(before / knee))
    younger = [
        number for number, at in enumerate(load.arrival) if at > lone + time_queue and load.models[number] == "a"
    ]
    assert all(outcome.started[number] > outcome.started[b] for number in itertools.islice(younger, 3 * knee, None))
