"""Test the bound on the tokens of a batch, the sum of its input lengths, which every policy of whole requests has."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_policy import make_policy

from headrace.batching import (
    POLICIES,
    BadInput,
    ModelGraph,
    Node,
    NodeTimes,
    Profile,
    ProfilePoint,
    RateTables,
    Request,
    find_policy,
)
from headrace.batching.conformance import Bench
from headrace.batching.conformance.histories import random_history
from headrace.batching.conformance.play import play
from headrace.batching.graphs.execution import steps
from headrace.batching.policies.bucketed_graph import bucket_end
from headrace.sim.engine import Arrivals
from headrace.sim.engine import run as simulate

NAMES = [name for name in POLICIES if "max_batch_tokens" in {each.name for each in find_policy(name).settings}]
# By arrival. Policies that order requests by deadline, or by length, promise another order.
IN_ORDER = sorted({*NAMES} - {"earliest-deadline", "deferred", "bucketed-graph"})
LONGEST = 4  # MAX_LENGTH of histories


class ByTokens:
    """A node takes a tenth of a second for each token of the batch."""

    def latency(self, node, batch, length):
        return 0.1 * batch * length


def times(joined=False, nodes=2):
    graphs = [ModelGraph(name, tuple(Node(f"{name}{node}") for node in range(nodes))) for name in "ab"]
    return {graph.name: NodeTimes(graph, ByTokens(), joined=joined) for graph in graphs}


def policy(name, workers, max_batch, max_tokens, joined=False, **more):
    # The knee falls with the length, so that preba has several buckets.
    points = [ProfilePoint(max(1, max_batch // int(length)), 1.0, 8.0 / length, length) for length in (1.0, 2.0, 4.0)]
    least = min(2, max_batch)
    table = RateTables([1.0], [[0] * least + [least]], max_batch, max_batch)
    return make_policy(
        name,
        times(joined),
        workers=workers,
        window_s=2.0,
        max_batch=max_batch,
        tables=dict.fromkeys("ab", table),
        profiles=dict.fromkeys("ab", Profile("", 1, tuple(points), joined=joined)),
        bucket_width=2,
        max_batch_tokens=max_tokens,
        **more,
    )


class Watched:
    """A policy that notes the tokens, the requests and the padded length of its tasks, and keeps no request."""

    def __init__(self, policy, tasks):
        self._policy = policy
        self._tasks = tasks

    def __getattr__(self, name):
        return getattr(self._policy, name)

    def next_task(self, worker, now):
        task = self._policy.next_task(worker, now)
        if task is not None:
            self._tasks.append((tokens_of(task), len(task.requests), task.padded_to))
        return task


def tokens_of(task):
    return sum(request.input_len for request in task.requests)


def test_policies_of_whole_requests_have_the_bound():
    assert set(POLICIES) - set(NAMES) == {"serial", "cellular", "dynamic-graph"}  # one request, or one token an entry


@pytest.mark.parametrize("joined", [False, True], ids=["padded", "joined"])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(seed=st.integers(0, 1 << 32), max_batch=st.integers(1, 6), max_tokens=st.integers(LONGEST, 12))
def test_no_batch_has_more_tokens_and_every_rule_holds(name, joined, seed, max_batch, max_tokens):
    """Requests come, are withdrawn, run and are lost. All of them run to their end, as the contract says."""
    history = random_history(random.Random(seed), {"a": max_batch, "b": max_batch})
    tasks = []
    bench = Bench(
        name, lambda workers: Watched(policy(name, workers, max_batch, max_tokens, joined), tasks), times(joined), {}
    )
    played = play(bench, history)
    assert played.broken is None, "\n".join([played.broken.message, *played.broken.timeline])
    for tokens, requests, padded_to in tasks:
        assert tokens <= max_tokens and (requests == 1 or requests * padded_to <= max_tokens)


@pytest.mark.parametrize("name", IN_ORDER)
@settings(max_examples=30)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=12), max_tokens=st.integers(4, 9))
def test_requests_begin_in_order_of_arrival(name, lengths, max_tokens):
    """A short request does not overtake a long one that does not fit any more."""
    if name.startswith("preba"):
        lengths = [1] * len(lengths)  # those of one bucket; other lengths wait in queues of their own
    made = policy(name, 1, 6, max_tokens)
    for number, length in enumerate(lengths):
        made.submit(Request(number, "a", 0.0, input_len=float(length)), 0.0)
    begun, now = [], 0.0
    while len(begun) < len(lengths):
        task = made.next_task(0, now)
        now += 3.0
        if task is None:
            continue
        begun += [request.id for request in task.requests if request.id not in begun]
        while task is not None and task.preemptible and task.stop < 2:
            made.complete(task, now)
            task = made.next_task(0, now)
            begun += [request.id for request in task.requests if request.id not in begun]
        made.complete(task, now)
    assert begun == list(range(len(lengths)))


@pytest.mark.parametrize("name", NAMES)
def test_a_request_that_no_batch_may_have_is_refused_and_forgotten(name):
    made = policy(name, 1, 4, 6)
    with pytest.raises(BadInput, match="request 7 has 7 tokens, and a batch has at most 6; send a shorter input, or"):
        made.submit(Request(7, "a", 0.0, input_len=7.0), 0.0)
    assert made.next_task(0, 5.0) is None and made.wakeup() == math.inf
    made.submit(Request(8, "a", 5.0, input_len=6.0), 5.0)
    for now in (5.0, 7.5, 20.0):
        if (task := made.next_task(0, now)) is not None:
            break
    assert [request.id for request in task.requests] == [8]


@pytest.mark.parametrize("name", ["graph", "static", "preba"])
def test_a_batch_that_has_all_tokens_does_not_wait(name):
    made = policy(name, 1, 6, 5, joined=True)
    made.submit(Request(0, "a", 0.0, input_len=3.0), 0.0)
    assert made.next_task(0, 0.0) is None
    made.submit(Request(1, "a", 0.0, input_len=3.0), 0.0)  # no room for this one, so the first gains nothing by waiting
    task = made.next_task(0, 0.0)
    assert [request.id for request in task.requests] == [0]
    assert task.reason == ("knee" if name == "preba" else "full")
    assert made.next_task(0, 0.0) is None


def test_preba_takes_the_knee_in_tokens_where_inputs_are_joined():
    points = tuple(
        ProfilePoint(batch, 0.01 * batch * length, 100 / length * (1 if length > 100 else batch**0.5), length)
        for length in (16.0, 64.0, 256.0)
        for batch in (1, 2, 4)
    )
    profile = Profile("a", 1, points, joined=True)
    made = make_policy("preba", times(True), workers=1, window_s=0, max_batch=8, profiles=dict.fromkeys("ab", profile))
    assert profile.knee().batch * profile.knee().length == 256
    for number in range(6):
        made.submit(Request(number, "a", 0.0, input_len=100.0), 0.0)
    first = made.next_task(0, 0.0)
    assert tokens_of(first) == 200 and first.reason == "knee"


def test_a_joined_batch_takes_the_time_of_its_mean_length():
    requests = tuple(Request(number, "a", 0.0, input_len=length) for number, length in enumerate((1.0, 2.0, 9.0)))
    made = policy("work-conserving", 1, 8, 100)
    for request in requests:
        made.submit(request, 0.0)
    task = made.next_task(0, 0.0)
    assert times()["a"].whole_task(task) == pytest.approx(2 * 0.1 * 3 * 9)
    assert times(joined=True)["a"].whole_task(task) == pytest.approx(2 * 0.1 * 12)


def test_deadline_policies_predict_a_joined_batch_by_its_mean_length():
    """Padded to the longest, a batch of two would miss the deadline."""
    for joined, expected in ((False, [1]), (True, [2])):
        made = policy("earliest-deadline", 1, 8, 100, joined)
        made.submit(Request(0, "a", 0.0, deadline=3.0, input_len=1.0), 0.0)
        made.submit(Request(1, "a", 0.0, deadline=3.0, input_len=5.0), 0.0)
        # One alone takes 0.2 s or 1 s, both take 2 s padded and 1.2 s joined; the target needs twice that.
        assert [len(made.next_task(0, 0.0).requests)] == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_simulator_keeps_the_bound_and_serves_all(name):
    random_lengths = random.Random(3)
    count = 400
    lengths = [float(random_lengths.choice((1, 2, 3, 4))) for _ in range(count)]
    arrivals = [0.05 * number for number in range(count)]
    load = Arrivals(["a"] * count, arrivals, [math.inf] * count, lengths, [1] * count)
    made = policy(name, 2, 6, 7, joined=True)
    tasks = []
    done = simulate(Watched(made, tasks), load, times(joined=True), 2)
    assert all(at < math.inf for at in done.finished) and len(done.finished) == count
    assert 4 < max(tokens for tokens, _, _ in tasks) <= 7


def test_buckets_are_limited_by_their_padded_length():
    assert bucket_end(3, 2) == 4 and steps(3.0) == 3
    made = policy("bucketed-graph", 1, 6, 9)
    for number in range(6):
        made.submit(Request(number, "a", 0.0, input_len=3.0), 0.0)
    assert [len(made.next_task(0, 0.0).requests) for _ in range(3)] == [2, 2, 2]
