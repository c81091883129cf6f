"""What the seam promises of every policy, under any order of events: reasons, withdrawal, the largest batch."""

import math
import random

import pytest
from cpu_time import cpu_s, least_s
from hypothesis import given
from hypothesis import strategies as st
from make_policy import make_policy
from properties import examples

from headrace.batching import (
    POLICIES,
    Decoding,
    ModelGraph,
    Node,
    NodeKind,
    NodeTimes,
    Profile,
    ProfilePoint,
    RateTables,
    Request,
    UnknownModel,
    conformance,
    find_policy,
)
from headrace.batching.conformance.histories import ASK, COME, END, LOSE, UNKNOWN, WITHDRAW, Event, History
from headrace.batching.conformance.long_runs import entries
from headrace.batching.conformance.play import play
from headrace.batching.graphs.cell_graph import CellGraph, CellModel, CellType, lstm, seq2seq
from headrace.batching.policies.cellular import MAX_TASKS
from headrace.batching.registry import policy_settings

BUCKETS = "preba with buckets"
STRICT = tuple(f"{name} strict" for name in POLICIES if "strict" in {each.name for each in find_policy(name).settings})
SLACKS = ("lazy eq2", "lazy batched")  # the other rules of entry
NAMES = (*POLICIES, BUCKETS, *STRICT, *SLACKS)
KNOWN_REASONS = {
    "serial": {"idle"},
    "graph": {"full", "window"},
    "static": {"full", "window"},
    "work-conserving": {"full", "idle"},
    "bucketed-graph": {"full", "idle"},
    "dynamic-graph": {"idle", "merge"},
    "cellular": {"full", "idle"},
    "lazy": {"idle", "slack", "merge", "deadline", "delay"},
    **{name: {"idle", "slack", "merge", "deadline"} for name in ("lazy strict", *SLACKS)},
    "oracle": {"idle", "slack", "merge", "deadline"},
    "preba": {"knee", "window"},
    BUCKETS: {"knee", "window"},
    "smdp": {"table", "window"},
    "deferred": {"full", "deadline", "idle"},
    "earliest-deadline": {"full", "deadline", "idle"},
    "preba-lazy": {"knee", "window", "idle", "slack", "merge", "deadline"},
}


class Half:
    """A node takes half a second, and a tenth of that more for each further request."""

    def latency(self, node, batch, length):
        return 0.5 + 0.05 * (batch - 1)


def graph(name, *kinds):
    return ModelGraph(name, tuple(Node(f"{name}{number}", kind) for number, kind in enumerate(kinds)))


GRAPHS = (
    graph("a", NodeKind.STATIC, NodeKind.STATIC, NodeKind.STATIC),
    graph("b", NodeKind.STATIC, NodeKind.ENCODER, NodeKind.DECODER, NodeKind.DECODER),
)


class Bench:
    """A policy of that name for the models a and b, and what a driver needs to run its tasks."""

    def __init__(self, name, workers=1, max_batch=3, merge_s=0.0):
        self.cells = {}
        if find_policy(name.partition(" ")[0]).tasks == "cells":
            self.cells = {"a": lstm("a", max_batch), "b": seq2seq("b", max_batch, max(1, max_batch - 1))}
        graphs = [model.graph for model in self.cells.values()] or GRAPHS
        self.times = {graph.name: NodeTimes(graph, Half()) for graph in graphs}
        limit = min(2, max_batch)
        table = RateTables([1.0], [[0] * limit + [limit]], max_batch, max_batch)
        profile = Profile("", 1, (ProfilePoint(max_batch, 1.5, max_batch / 1.5),))
        if name == BUCKETS:  # of width 2, whose knees fall
            knees = ((1.0, max_batch), (2.0, max(1, max_batch - 1)), (4.0, max(1, max_batch // 2)))
            profile = Profile("", 1, tuple(ProfilePoint(knee, 1.5, knee / 1.5, length) for length, knee in knees))
        self.decoding = Decoding()
        self.policy = make_policy(
            name.partition(" ")[0],
            self.times,
            workers=workers,
            window_s=2.0,
            max_batch=max_batch,
            dec_timesteps={"b": 2},
            tables=dict.fromkeys("ab", table),
            profiles=dict.fromkeys("ab", profile),
            cells=self.cells or None,
            bucket_width=2,
            merge_s=merge_s,
            strict=name in STRICT,
            **({"slack": name.partition(" ")[2]} if name in SLACKS else {}),
        )

    def ended(self, task, rng):
        """The task as it may have ended: somewhere, if it is preemptible."""
        if task.preemptible:
            sections = self.times[task.model].sections
            return self.decoding.end(task, rng.randint(task.start + 1, self.decoding.stop(task, sections)), sections)
        if not task.cells:
            return task
        ended = []
        for request, cell in zip(task.requests, task.cells, strict=True):
            first = self.cells[task.model].unfold(request).open_from
            if 0 <= first <= cell and cell - first + 1 >= request.output_len:
                ended.append(request)
        return task.ended_at(task.stop, tuple(ended))


@st.composite
def requests_of(draw, least=0):
    count = draw(st.integers(least, 14))
    return [
        Request(
            number,
            draw(st.sampled_from("ab")),
            0.0,
            draw(st.sampled_from([3.0, 9.0, 40.0, math.inf])),
            draw(st.integers(1, 4)),
            draw(st.integers(1, 3)),
        )
        for number in range(count)
    ]


def come(number, model="a", deadline_s=math.inf, count=1):
    return Event(COME, request=number, count=count, model=model, deadline_s=deadline_s)


@st.composite
def histories(draw):
    """Requests come, are withdrawn, run, and are lost with their workers; a few are then given up."""
    workers = draw(st.integers(1, 3))
    events = st.builds(
        Event,
        kind=st.sampled_from([COME, COME, ASK, ASK, END, END, WITHDRAW, LOSE, UNKNOWN]),
        after_s=st.sampled_from([0.0, 0.1, 1.0]),
        worker=st.integers(0, workers - 1),
        request=st.integers(0, 13),  # one that has come does not come again
        count=st.integers(1, 3),
        model=st.sampled_from("ab"),
        deadline_s=st.sampled_from([3.0, 9.0, 40.0, math.inf]),
        input_len=st.integers(1, 4),
        output_len=st.integers(1, 3),
        share=st.floats(0.0, 1.0),
        given_up=st.integers(0, 2),
    )
    return History(workers, tuple(draw(st.lists(events, min_size=1, max_size=60))))


@pytest.mark.parametrize("name", NAMES)
@examples(20, 60)
@given(history=histories(), max_batch=st.integers(1, 4), merge_s=st.sampled_from([0.0, 0.3]))
def test_whatever_happens_in_whatever_order(name, history, max_batch, merge_s):
    """Every rule of the contract holds (batching/conformance/play.py), and tasks say why they left."""
    bench = Bench(name, history.workers, max_batch, merge_s)
    played = play(conformance.Bench(name, lambda _: bench.policy, bench.times, bench.cells), history)
    assert played.broken is None, "\n".join([played.broken.message, *played.broken.timeline])
    for task in played.tasks:
        assert task.reason in KNOWN_REASONS[name if name in KNOWN_REASONS else name.removesuffix(" strict")]
        if task.reason in ("full", "knee") and not bench.cells and name != BUCKETS:
            assert task.batch_size == bench.policy.largest_batch(task.model)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"smdp"}))  # whose estimate of the rate counts it: it did arrive
@examples(15, 40)
@given(
    load=st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=14),
    requests=requests_of(14),
    workers=st.integers(1, 2),
    seed=st.integers(0, 1 << 32),
)
def test_a_request_that_was_withdrawn_at_once_leaves_no_trace(name, load, requests, workers, seed):
    """Every decision is as if it had never come."""

    def play(with_ghosts):
        rng = random.Random(seed)
        bench = Bench(name, workers)
        policy = bench.policy
        tasks, running, now = [], {}, 0.0
        coming = sorted((at, ghost, number) for number, (at, ghost) in enumerate(load))
        for step in range(2000):
            while coming and coming[0][0] <= now:
                _, ghost, number = coming.pop(0)
                if ghost and not with_ghosts:
                    continue
                policy.submit(requests[number], now)
                assert not ghost or policy.withdraw(requests[number], now)
            for worker in range(workers):
                if worker in running and rng.random() < 0.5:
                    policy.complete(bench.ended(running.pop(worker), rng), now)
                if worker not in running:
                    task = policy.next_task(worker, now)
                    if task is not None:
                        running[worker] = task
                        tasks.append((now, worker, repr(task), task.cells, task.reason))
                tasks.append(policy.wakeup())
            if not coming and not running and tasks[-1] == math.inf:  # nothing happens any more
                break
            now = 0.5 * step
        return tasks

    assert play(True) == play(False)


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_does_not_grow_with_what_was_withdrawn(name):
    bench = Bench(name)
    policy = bench.policy
    requests = [Request(number, "ab"[number % 2], 0.0, input_len=1 + number // 10) for number in range(100)]
    for request in requests:
        if bench.cells:
            bench.cells[request.model].unfold(request)  # it remembers shapes, up to a number
    before = entries([policy])
    for request in requests:
        policy.submit(request, 0.0)
    assert entries([policy]) > before + 100
    random.Random(0).shuffle(requests)
    for request in requests:
        assert policy.withdraw(request, 0.0)
    assert entries([policy]) == before


@pytest.mark.parametrize(
    "name", ["bucketed-graph", "cellular"]
)  # others keep places of those that left, up to a number
def test_a_policy_does_not_grow_with_what_was_served(name):
    bench = Bench(name)
    policy, rng, now, running = bench.policy, random.Random(0), 0.0, []
    requests = [Request(number, "ab"[number % 2], 0.0, input_len=1 + number // 10) for number in range(400)]
    for request in requests:
        if bench.cells:
            bench.cells[request.model].unfold(request)  # it remembers shapes, up to a number
    held = []
    for part in (requests[:200], requests[200:]):
        left = len(part)
        for request in part:
            policy.submit(request, now)
        while left:
            now += 1.0
            task = policy.next_task(0, now)
            running += [task] if task is not None else []
            if running:
                left -= len(policy.complete(bench.ended(running.pop(0), rng), now))
        held.append(entries([policy]))
    assert held[0] == held[1]


def waiting(name, count):
    """A policy with so many requests waiting in it."""
    policy = Bench(name, max_batch=64).policy
    requests = [Request(number, "ab"[number % 2], 0.0, input_len=3.0) for number in range(count)]
    for request in requests:
        policy.submit(request, 0.0)
    return policy, requests


def withdrawing(policy, requests, at_once):
    """Return a measure of the CPU time of withdrawing some requests. Each call takes the last ones that are left."""

    def work():
        for _ in range(at_once):
            assert policy.withdraw(requests.pop(), 1.0)

    return lambda: cpu_s(work)


@pytest.mark.parametrize("name", NAMES)
def test_withdrawing_takes_time_in_proportion_to_what_waits(name):
    few, many = least_s(*(withdrawing(*waiting(name, count), at_once=20) for count in (500, 8000)), rounds=5)
    assert many < 64 * few + 0.001, "16 times as many: 16 times as long, not 256"


def test_withdrawing_a_tree_takes_time_in_proportion_to_what_waits():
    """A leaf of a tree waits by itself."""

    def trees(leaves):
        tree = CellGraph.of([*[(0, ())] * leaves, (1, tuple(range(leaves)))])
        model = CellModel("tree", (CellType("leaf", 4), CellType("inner", 4)), lambda request: tree)
        times = {"tree": NodeTimes(model.graph, Half())}
        policy = make_policy("cellular", times, workers=1, window_s=0, max_batch=4, cells={"tree": model})
        requests = [Request(number, "tree", 0.0) for number in range(6)]
        for request in requests:
            policy.submit(request, 0.0)
        return policy, requests

    few, many = least_s(*(withdrawing(*trees(leaves), at_once=1) for leaves in (1000, 16_000)), rounds=5)
    assert many < 64 * few + 0.001


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_known_is_not_withdrawn(name):
    policy = Bench(name).policy
    assert not policy.withdraw(Request(0, "a", 0.0), 0.0)
    assert not policy.withdraw(Request(0, "nobody", 0.0), 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_a_worker_is_handed_one_task_at_a_time_but_for_cells_and_single_requests(name):
    expected = MAX_TASKS if name.startswith("cellular") else 2 if name == "serial" else 1
    assert Bench(name).policy.ahead == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_largest_batch_is_of_a_model_that_the_policy_has(name):
    policy = Bench(name, max_batch=8).policy
    largest = {"serial": 1, BUCKETS: 7}.get(name, 8)  # the first bucket ends at 2 steps
    assert policy.largest_batch("a") == policy.largest_batch("b") == largest
    with pytest.raises(UnknownModel, match="no model 'nobody'; this server has a, b"):
        policy.largest_batch("nobody")


def test_a_lone_withdrawn_request_leaves_no_wake_up_behind():
    for name in ("graph", "static", "smdp", "preba", "preba-lazy", BUCKETS):
        policy = Bench(name).policy
        request = Request(0, "a", 0.0)
        policy.submit(request, 0.0)
        assert policy.wakeup() < math.inf
        assert policy.withdraw(request, 1.0) and policy.wakeup() == math.inf


def test_the_rest_of_a_bucket_keeps_its_turn():
    policy = Bench("bucketed-graph", max_batch=1).policy
    requests = [Request(number, "a", 0.0, input_len=length) for number, length in enumerate((1, 3, 3, 1))]
    for request in requests:
        policy.submit(request, 0.0)
    assert policy.withdraw(requests[0], 0.0) and policy.withdraw(requests[2], 0.0)
    assert [policy.next_task(0, 0.0).requests[0].id for _ in range(2)] == [3, 1]
    assert policy.next_task(0, 0.0) is None


@pytest.mark.parametrize(
    ("name", "given", "history"),
    [
        (
            "lazy",  # request 0 is late and stands back
            {"max_batch": 2, "defer_late": True},
            [come(0, "b", 3.0), come(1), Event(ASK, 1.0), Event(WITHDRAW, request=0)],
        ),
        (
            "lazy",  # both are late, and run after all others
            {"max_batch": 2, "defer_late": True},
            [come(0, "b", 3.0, 2), Event(ASK, 1.0), Event(LOSE), Event(WITHDRAW, request=1)],
        ),
        (
            "deferred",  # request 1 stands back, and those after it move to the front
            {},
            [
                come(0, "b", 9.0),
                come(1, "b", 3.0),
                come(2, "b"),
                come(3, "b", 9.0),
                Event(ASK),
                Event(WITHDRAW, request=2),
            ],
        ),
    ],
)
def test_nothing_stays_of_a_withdrawn_request_after_others_were_passed_over(name, given, history):
    bench = conformance.bench_for(policy_settings(name, given))
    assert play(bench, History(1, tuple(history))).broken is None


def test_a_late_request_that_stands_back_can_be_withdrawn():
    bench = Bench("lazy")
    policy = make_policy(
        "lazy", bench.times, workers=1, window_s=0, max_batch=1, dec_timesteps={"b": 1}, defer_late=True
    )
    late, soon = Request(0, "a", 0.0, deadline=0.1), Request(1, "a", 0.0, deadline=99.0)
    policy.submit(late, 0.0)
    policy.submit(soon, 0.0)
    task = policy.next_task(0, 1.0)
    assert task.requests == (soon,)
    assert policy.withdraw(late, 1.0) and not policy.withdraw(soon, 1.0)
    assert policy.complete(task, 2.0) == [soon] and policy.next_task(0, 2.0) is None
