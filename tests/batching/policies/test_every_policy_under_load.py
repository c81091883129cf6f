"""What every policy promises of requests that wait beside a stream of others: each begins in bounded time, and no
decision costs more because more wait."""

import math
import random

import pytest
from cpu_time import cpu_s, least_s
from hypothesis import example, given
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
    find_policy,
)
from headrace.batching.graphs.cell_graph import lstm, seq2seq
from headrace.batching.policies.cellular import MAX_TASKS, PATIENCE
from headrace.batching.policies.shared.queue_length import MAX_WAIT_S
from headrace.sim.engine import Arrivals, run

WINDOW_S, BUCKET_WIDTH, LONGEST = 2.0, 2, 4
BY_DEADLINE = ("deferred", "earliest-deadline")


BUCKETS = "preba with buckets"
NAMES = (*POLICIES, BUCKETS)
OF_CELLS = {name for name in POLICIES if find_policy(name).tasks == "cells"}


class Half:
    """A node takes half a second, and a tenth of that more for each further request."""

    def latency(self, node, batch, length):
        return 0.5 + 0.05 * (batch - 1)


def graph(name, *kinds):
    return ModelGraph(name, tuple(Node(f"{name}{number}", kind) for number, kind in enumerate(kinds)))


GRAPHS = (
    graph("a", NodeKind.STATIC, NodeKind.STATIC, NodeKind.STATIC),
    graph("b", NodeKind.STATIC, NodeKind.ENCODER, NodeKind.DECODER, NodeKind.DECODER),
    graph("c", NodeKind.ENCODER, NodeKind.STATIC),
)


class Bench:
    """A policy of that name for three models, and what the engine needs to run its tasks.

    `turn_s` bounds what one turn of a worker takes: a batch, or a table from beginning to end."""

    def __init__(self, name, workers, max_batch):
        self.cells = {}
        if name in OF_CELLS:
            self.cells = {"a": lstm("a", max_batch), "b": seq2seq("b", max_batch, max_batch), "c": lstm("c", max_batch)}
        graphs = [model.graph for model in self.cells.values()] or GRAPHS
        self.times = {graph.name: NodeTimes(graph, Half()) for graph in graphs}
        task_s = 0.5 + 0.05 * (max_batch - 1)
        alone_s = 0.5 * (2 + 3 * LONGEST)  # of the longest: no network here has more nodes, nor one of cells more cells
        self.turn_s = max_batch * alone_s
        if name == "cellular":  # see its docstring; a decision is for so many tasks
            self.turn_s = (PATIENCE + sum(len(model.types) for model in self.cells.values())) * MAX_TASKS * task_s
        elif name == "bucketed-graph":  # all buckets take turns
            self.turn_s *= len(GRAPHS) * math.ceil(LONGEST / BUCKET_WIDTH)
        self.hold_s = {
            "graph": WINDOW_S,
            "preba": 1.5,
            BUCKETS: 1.5,
            "preba-lazy": 1.5,
            "static": MAX_WAIT_S,
            "smdp": MAX_WAIT_S,
        }.get(name, 0.0)
        profile = Profile("", 1, (ProfilePoint(max_batch, 1.5, max_batch / 1.5),))
        if name == BUCKETS:  # whose knees fall
            knees = ((1.0, max_batch), (2.0, max(1, max_batch - 1)), (4.0, max(1, max_batch // 2)))
            profile = Profile("", 1, tuple(ProfilePoint(knee, 1.5, knee / 1.5, length) for length, knee in knees))
        limit = min(2, max_batch)
        table = RateTables([1.0], [[0] * limit + [limit]], max_batch, max_batch)
        self.policy = make_policy(
            name.partition(" ")[0],
            self.times,
            workers=workers,
            window_s=WINDOW_S,
            max_batch=max_batch,
            dec_timesteps={"b": 2},
            tables=dict.fromkeys("abc", table),
            profiles=dict.fromkeys("abc", profile),
            cells=self.cells or None,
            bucket_width=BUCKET_WIDTH,
            merge_s=0.01,
        )

    def open_from(self):
        return (lambda request: self.cells[request.model].unfold(request).open_from) if self.cells else None


streams = st.tuples(
    st.sampled_from("abc"),
    st.floats(0, 20),
    st.sampled_from([0.0, 0.3, 0.9, 1.6, 3.5, 7.0]),
    st.integers(1, 50),
    st.integers(1, LONGEST),
    st.integers(1, LONGEST),
    st.sampled_from([math.inf, 2000.0, 15.0]),
)
CAPTIONS = ("b", 0.0, 2.5, 300, 1, 4, math.inf)  # a stream into the decoder that it can serve, and that never ends
PHOTO = ("a", 20.3, 0.0, 1, 1, 1, math.inf)
SPEECH = ("c", 21.7, 0.0, 1, 4, 1, 2000.0)


@pytest.mark.parametrize("name", NAMES)
@examples(20, 60)
@given(load=st.lists(streams, min_size=2, max_size=5), max_batch=st.integers(1, 4), workers=st.integers(1, 2))
@example(load=[CAPTIONS, PHOTO], max_batch=4, workers=1)
@example(load=[(*CAPTIONS[:6], 2000.0), PHOTO, SPEECH], max_batch=4, workers=1)
@example(load=[CAPTIONS, ("a", 0.0, 2.0, 150, 1, 1, math.inf), SPEECH], max_batch=4, workers=1)
@example(load=[("a", 0.0, 0.4, 300, 1, 1, math.inf), ("b", 20.3, 0.0, 1, 1, 1, 2000.0), SPEECH], max_batch=4, workers=1)
@example(load=[("c", 0.0, 0.2, 300, 4, 1, math.inf), ("c", 9.0, 0.0, 1, 1, 1, 15.0), PHOTO], max_batch=4, workers=1)
def test_a_request_waits_for_those_before_it_and_a_turn_each_at_most(name, load, max_batch, workers):
    """However many come behind it. "Before it" are those that came no later and had not begun when it came; with
    policies by deadline also those that are due before it or a turn later, as they go by when a batch must begin; and
    who is late there has no bound, as it stands back."""
    bench = Bench(name, workers, max_batch)
    requests = sorted(
        (start + gap * number, model, inputs, outputs, sla)
        for model, start, gap, count, inputs, outputs, sla in load
        for number in range(count)
    )
    at = [request[0] for request in requests]
    deadline = [request[0] + request[4] for request in requests]
    arrivals = Arrivals(
        [request[1] for request in requests],
        at,
        deadline,
        [float(request[2]) for request in requests],
        [request[3] for request in requests],
    )
    outcome = run(bench.policy, arrivals, bench.times, workers, open_from=bench.open_from())
    started = outcome.started
    due = [came + MAX_WAIT_S if end == math.inf else end for came, end in zip(at, deadline, strict=True)]
    for number, came in enumerate(at):
        if name in BY_DEADLINE and outcome.finished[number] > deadline[number]:
            continue
        before = sum(
            began >= came and (at[other] <= came or (name in BY_DEADLINE and due[other] - bench.turn_s <= due[number]))
            for other, began in enumerate(started)
        )
        assert started[number] - came <= bench.hold_s + before * bench.turn_s, f"{requests[number]}"


class Backlog:
    """A policy in which so many requests of two models wait, whatever leaves."""

    def __init__(self, name, count):
        self.bench = Bench(name, 1, 4)
        self.policy = self.bench.policy
        self.decoding = Decoding()
        self.waiting = {}
        self.count = 0
        self.now = 0.0
        for _ in range(count):
            self.submit()

    def submit(self):
        self.now += 1e-6
        request = Request(self.count, "ac"[self.count % 2], self.now, self.now + 1e6, input_len=2.0)
        self.policy.submit(request, self.now)
        self.waiting[request.id] = request
        self.count += 1

    def serve(self):
        """One task, and as many requests submitted as it ends."""
        task = self.policy.next_task(0, self.now)
        while task is None:
            self.now = max(self.now, self.policy.wakeup())
            task = self.policy.next_task(0, self.now)
        if task.preemptible:
            sections = self.bench.times[task.model].sections
            task = self.decoding.end(task, self.decoding.stop(task, sections), sections)
        for request in self.policy.complete(task, self.now):
            del self.waiting[request.id]
            self.submit()

    def serving_s(self):
        """Return the CPU time of 200 tasks."""
        return cpu_s(lambda: [self.serve() for _ in range(200)])

    def withdrawing_s(self, rng):
        """Return the CPU time of 20 withdrawals; as many requests come in their place."""
        chosen = [self.waiting[number] for number in rng.sample(sorted(self.waiting), 20)]
        gone = []
        spent = cpu_s(lambda: gone.extend(request for request in chosen if self.policy.withdraw(request, self.now)))
        for request in gone:
            del self.waiting[request.id]
            self.submit()
        return spent


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", NAMES)
def test_no_decision_costs_more_because_more_wait(name):
    """A hundred times as many wait. What is searched, or moved, would take as many times as long; what is looked up
    takes several times as long in a large memory."""
    few, many = Backlog(name, 1000), Backlog(name, 100_000)
    serving = least_s(few.serving_s, many.serving_s, rounds=5)
    assert serving[1] < 8 * serving[0]
    rng = random.Random(0)
    withdrawing = least_s(lambda: few.withdrawing_s(rng), lambda: many.withdrawing_s(rng), rounds=6)
    assert withdrawing[1] < 50 * withdrawing[0] + 0.0002
