"""bucketed-graph and dynamic-graph: hand-computed schedules, and what holds under any load and lost workers."""

import heapq
import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_driver import drive

from headrace.batching import Ledger, ModelGraph, Node, NodeKind, NodeTimes, Request, UnknownModel, UsageError
from headrace.batching.graphs.cell_graph import CellGraph, CellModel, CellType, Subgraph, lstm, seq2seq
from headrace.batching.policies.bucketed_graph import BucketedGraphBatching, bucket_end
from headrace.batching.policies.dynamic_graph import DynamicGraphBatching
from headrace.batching.policies.graph import GraphBatching
from headrace.sim.engine import Arrivals, run

CHAIN = ModelGraph("lstm", (Node("cell", NodeKind.ENCODER),))
TREE_TYPES = (CellType("leaf", 4), CellType("inner", 4))


class OneSecond:
    def latency(self, node, batch, length):
        return 1.0


def serve(policy, graphs, arrivals, workers=1, open_from=None):
    """`arrivals` are (time, input length, output length). Returns tasks as (start, end, requests, cells) and ends."""
    served = Arrivals(
        [graphs[0].name] * len(arrivals),
        [float(time) for time, _, _ in arrivals],
        [math.inf] * len(arrivals),
        [float(length) for _, length, _ in arrivals],
        [output for _, _, output in arrivals],
    )
    times = {graph.name: NodeTimes(graph, OneSecond()) for graph in graphs}
    outcome = run(policy, served, times, workers, record=True, open_from=open_from)
    tasks = [(ran.started, ran.ended, [r.id for r in ran.task.requests], list(ran.task.cells)) for ran in outcome.ran]
    return tasks, outcome.finished


def serve_cells(model, arrivals, *, workers=1, max_batch=4, merge_s=0.0):
    policy = DynamicGraphBatching([model], workers, max_batch, merge_s)
    return serve(policy, [model.graph], arrivals, workers, lambda request: model.unfold(request).open_from)


# bucketed-graph, hand-computed


def test_a_batch_is_of_one_bucket_and_padded_to_its_end():
    """BatchMaker, Section 7.3: with buckets of 10, a length of 21 runs as 30."""
    policy = BucketedGraphBatching([CHAIN], max_batch=4, bucket_width=10)
    tasks, finished = serve(policy, [CHAIN], [(0, length, 1) for length in (3, 12, 14, 5, 21)])
    assert tasks == [(0, 10, [0, 3], []), (10, 30, [1, 2], []), (30, 60, [4], [])]
    assert finished == [10, 30, 30, 10, 60]


def test_the_encoder_is_padded_to_the_end_of_the_bucket_and_the_decoder_to_the_longest_output():
    graph = ModelGraph("mt", (Node("encoder", NodeKind.ENCODER), Node("decoder", NodeKind.DECODER)))
    _, finished = serve(BucketedGraphBatching([graph], 4), [graph], [(0, 3, 2), (0, 4, 5)])
    assert finished == [15, 15]


def test_batches_take_turns_and_a_full_bucket_opens_another():
    policy = BucketedGraphBatching([CHAIN], max_batch=2, bucket_width=10)
    tasks, _ = serve(policy, [CHAIN], [(0, length, 1) for length in (3, 12, 5, 6, 14, 28, 7, 13, 8)])
    assert [requests for _, _, requests, _ in tasks] == [[0, 2], [1, 4], [3, 6], [5], [7], [8]]


def test_a_batch_that_has_not_left_takes_more_in():
    policy = BucketedGraphBatching([CHAIN], max_batch=3, bucket_width=10)
    tasks, _ = serve(policy, [CHAIN], [(0, 3, 1), (0, 12, 1), (0, 13, 1), (0, 5, 1), (8, 14, 1), (8, 9, 1)])
    assert [requests for _, _, requests, _ in tasks] == [[0, 3], [1, 2, 4], [5]]


def test_the_batches_of_all_models_take_turns():
    policy = BucketedGraphBatching([CHAIN, ModelGraph.opaque("net")], max_batch=2)
    for number, model in enumerate(["lstm", "lstm", "lstm", "net", "lstm", "lstm"]):
        policy.submit(Request(number, model, 0), 0)
    assert [[r.id for r in policy.next_task(0, 0).requests] for _ in range(4)] == [[0, 1], [2, 4], [3], [5]]


@given(
    load=st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 50)), max_size=60),
    max_batch=st.integers(1, 5),
    seed=st.integers(0, 1 << 32),
)
def test_nobody_waits_for_more_batches_than_were_open_before_it(load, max_batch, seed):
    """However many come behind it, of its bucket or of others; batches are lost and requests withdrawn."""
    rng = random.Random(seed)
    graphs = [ModelGraph(name, (Node("cell", NodeKind.ENCODER),)) for name in "ab"]
    policy = BucketedGraphBatching(graphs, max_batch)
    waiting, before, left = {}, {}, 0  # `before`: as many batches may leave before it

    def leave():
        nonlocal left
        task = policy.next_task(0, 0)
        for served in task.requests:
            del waiting[served.id]
            assert left <= before[served.id]
        left += 1
        assert len({(r.model, bucket_end(r.input_len)) for r in task.requests}) == 1
        assert task.padded_to == bucket_end(task.requests[0].input_len)

    for number, (model, length) in enumerate(load):
        sizes = Counter((r.model, bucket_end(r.input_len)) for r in waiting.values())
        request = Request(number, model, float(number), input_len=length)
        policy.submit(request, 0)
        waiting[number] = request
        before[number] = left + sum(-(-size // max_batch) for size in sizes.values())
        if rng.random() < 0.3:
            leave()
        elif rng.random() < 0.2:
            gone = rng.choice(list(waiting.values()))
            assert policy.withdraw(waiting.pop(gone.id), 0)
    while waiting:
        leave()
    assert policy.next_task(0, 0) is None


@pytest.mark.parametrize(("length", "end"), [(0.2, 10), (1, 10), (10, 10), (10.4, 10), (10.6, 20), (11, 20), (30, 30)])
def test_a_bucket_ends_with_a_multiple_of_its_width(length, end):
    assert bucket_end(length, 10) == end


def test_batchmaker_figure_5_graph_batching_ends_at_5_and_12():
    """The figure has one bucket, padded to the longest: that is `graph` without a window."""
    arrivals = [(0, length, 1) for length in (2, 3, 3, 5)] + [(1 + i / 2, n, 1) for i, n in enumerate((7, 2, 4, 3))]
    _, finished = serve(GraphBatching([CHAIN], 0.0, max_batch=4), [CHAIN], arrivals)
    assert finished == [5] * 4 + [12] * 4


def test_a_lost_batch_that_fits_into_the_last_one_of_its_bucket_takes_its_turn_along():
    policy = BucketedGraphBatching([CHAIN], max_batch=4)
    for number, length in enumerate((3, 12, 4)):
        policy.submit(Request(number, "lstm", 0, input_len=length), 0)
    task = policy.next_task(0, 0)
    policy.submit(Request(3, "lstm", 0, input_len=5), 0)
    policy.complete(task.lost(task.requests), 1)
    assert [[r.id for r in policy.next_task(0, 1).requests] for _ in range(2)] == [[0, 2, 3], [1]]
    assert policy.next_task(0, 1) is None


def test_a_lost_batch_gets_its_turn_again_without_those_given_up():
    policy = BucketedGraphBatching([CHAIN], max_batch=2)
    for number, length in enumerate((3, 4, 12, 5)):
        policy.submit(Request(number, "lstm", 0, input_len=length), 0)
    task = policy.next_task(0, 0)
    assert policy.complete(task.lost(task.requests[1:]), 1) == []
    assert [[r.id for r in policy.next_task(0, 1).requests] for _ in range(2)] == [[1, 3], [2]]
    assert policy.next_task(0, 1) is None


# dynamic-graph, hand-computed


def test_chains_run_depth_by_depth_and_end_together():
    tasks, finished = serve_cells(lstm(), [(0, 2, 1), (0, 3, 1), (0.5, 1, 1)])
    assert tasks == [(0, 1, [0, 1], [0, 0]), (1, 2, [0, 1], [1, 1]), (2, 3, [1], [2]), (3, 4, [2], [0])]
    assert finished == [3, 3, 4]


def test_merging_holds_the_set_back_by_its_number_of_cells():
    tasks, finished = serve_cells(lstm(), [(0, 2, 1), (0, 3, 1), (0.5, 1, 1)], merge_s=0.125)
    assert [start for start, _, _, _ in tasks] == [0.625, 1.625, 2.625, 3.75]
    assert finished == [3.625, 3.625, 4.75]


def tree(*cells):
    return CellGraph.of(cells)


SMALL = tree((0, ()), (0, ()), (1, (0, 1)))
LEANING = tree((0, ()), (0, ()), (1, (0, 1)), (0, ()), (1, (2, 3)))


def test_trees_merge_cells_of_equal_type_and_depth():
    model = CellModel("tree", TREE_TYPES, lambda request: (SMALL, LEANING)[request.id])
    tasks, finished = serve_cells(model, [(0, 1, 1), (0, 1, 1)])
    assert tasks == [
        (0, 1, [0, 0, 1, 1], [0, 1, 0, 1]),  # five leaves, of which a task takes four
        (1, 2, [1], [3]),
        (2, 3, [0, 1], [2, 2]),
        (3, 4, [1], [4]),
    ]
    assert finished == [4, 4]


def test_decoders_go_on_until_all_have_ended():
    tasks, finished = serve_cells(seq2seq(), [(0, 1, 2), (0, 2, 1)])
    assert [(requests, cells) for _, _, requests, cells in tasks] == [
        ([0, 1], [0, 0]),
        ([1], [1]),
        ([0], [1]),
        ([0, 1], [2, 2]),
    ]
    assert finished == [4, 4]


def test_decoder_cells_are_merged_one_depth_at_a_time():
    tasks, _ = serve_cells(seq2seq(), [(0, 1, 2), (0, 2, 1)], merge_s=0.125)
    # 3 encoder cells first; then 1 decoder cell at depth 1 and 2 at depth 2
    assert [start for start, _, _, _ in tasks] == [0.375, 1.5, 2.5, 3.75]


def test_every_worker_takes_a_set_of_its_own():
    tasks, finished = serve_cells(lstm(), [(0, 2, 1), (0, 1, 1), (0, 1, 1)], workers=2, max_batch=2)
    assert tasks[:2] == [(0, 1, [0, 1], [0, 0]), (0, 1, [2], [0])]
    assert finished == [2, 2, 1]


def test_a_set_of_a_lost_worker_begins_anew_without_those_given_up():
    policy = DynamicGraphBatching([lstm()], workers=1, max_batch=3)
    for number, length in enumerate((1, 2, 2)):
        policy.submit(Request(number, "lstm", 0, input_len=length), 0)
    assert policy.complete(policy.next_task(0, 0), 1) == []
    task = policy.next_task(0, 1)
    assert task.cells == (1, 1)
    assert policy.complete(task.lost(task.requests[1:]), 2) == []
    again = policy.next_task(0, 2)
    assert ([request.id for request in again.requests], again.cells) == ([0, 2], (0, 0))


def test_what_begins_anew_is_unfolded_anew():
    unfolded = []
    chain = lstm()
    model = CellModel("lstm", chain.types, lambda request: unfolded.append(request.id) or chain.unfold(request))
    policy = DynamicGraphBatching([model], workers=1, max_batch=3)
    for number, length in enumerate((1, 2, 2)):
        policy.submit(Request(number, "lstm", 0, input_len=length), 0)
    policy.complete(policy.next_task(0, 0), 1)
    task = policy.next_task(0, 1)
    policy.complete(task.lost(task.requests[1:]), 2)
    assert unfolded == [0, 1, 2, 0, 2]  # 1 was given up on


def test_a_set_that_waits_to_be_merged_has_begun():
    policy = DynamicGraphBatching([lstm()], workers=1, max_batch=1, merge_s=0.5)
    merging, waiting = Request(0, "lstm", 0), Request(1, "lstm", 0)
    policy.submit(merging, 0)
    policy.submit(waiting, 0)
    assert policy.next_task(0, 0) is None
    assert not policy.withdraw(merging, 0.1) and policy.withdraw(waiting, 0.1)
    assert policy.complete(policy.next_task(0, 0.5), 1.5) == [merging]


def test_a_subgraph_may_be_listed_before_one_that_it_needs():
    graph = tree((0, ()), (1, (0,)), (0, ()), (1, (1, 2)))  # the subgraph of cells 1 and 3 needs cell 2
    tasks, _ = serve_cells(CellModel("tree", TREE_TYPES, lambda request: graph), [(0, 1, 1)])
    assert [cells for _, _, _, cells in tasks] == [[0, 2], [1], [3]]


# What is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BucketedGraphBatching([CHAIN], 0), "max_batch"),
        (lambda: BucketedGraphBatching([CHAIN], 1, 0), "bucket_width"),
        (lambda: DynamicGraphBatching([lstm()], 0, 1), "workers"),
        (lambda: DynamicGraphBatching([lstm()], 1, 0), "max_batch"),
        (lambda: DynamicGraphBatching([lstm()], 1, 1, -0.1), "merge_s"),
        (lambda: DynamicGraphBatching([lstm()], 1, 1, math.nan), "merge_s"),
    ],
)
def test_impossible_options_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.parametrize(
    "make", [lambda: BucketedGraphBatching([CHAIN], 1), lambda: DynamicGraphBatching([lstm()], 1, 1)]
)
def test_an_unknown_model_is_refused_and_nothing_is_kept(make):
    policy = make()
    with pytest.raises(UnknownModel, match="nett"):
        policy.submit(Request(0, "nett", 0), 0)
    assert policy.next_task(0, 0) is None and policy.wakeup() == math.inf


def test_subgraphs_that_wait_for_each_other_are_refused():
    knot = CellGraph([Subgraph(0, [0, 0], [1], None, False), Subgraph(1, [1, 1], [0], None, False)], 2)
    policy = DynamicGraphBatching([CellModel("tree", TREE_TYPES, lambda request: knot)], 1, 1)
    with pytest.raises(UsageError, match="wait for each other"):
        policy.submit(Request(0, "tree", 0), 0)
    assert policy.next_task(0, 0) is None


# What holds under any load


@given(
    arrivals=st.lists(st.tuples(st.floats(0, 20), st.sampled_from(["a", "b"]), st.floats(0.1, 60)), max_size=40),
    max_batch=st.integers(1, 6),
    width=st.integers(1, 12),
    workers=st.integers(1, 4),
    loss=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 9),
)
def test_buckets_lose_nothing_and_keep_their_limits(arrivals, max_batch, width, workers, loss, seed):
    requests = [Request(i, model, time, input_len=length) for i, (time, model, length) in enumerate(arrivals)]
    policy = BucketedGraphBatching([ModelGraph.opaque(model) for model in "ab"], max_batch, width)
    trace = drive(policy, requests, workers, lambda batch: 0.2 + 0.1 * batch, loss=loss, seed=seed)
    assert trace.ledger.finished == trace.ledger.submitted == len(requests)
    for _, _, task in trace.started:
        assert task.batch_size <= max_batch
        assert len({(max(1, round(request.input_len)) - 1) // width for request in task.requests}) == 1


class CellDriver:
    """Serves requests of cell graphs and keeps its own books of cells. `sources` tells what a cell depends on.

    A lost worker loses all that it ran since it last had finished something."""

    def __init__(self, policy, model, sources, open_from, limit):
        self.policy, self.model, self.sources, self.open_from, self.limit = policy, model, sources, open_from, limit
        self.ledger = Ledger()
        self.done = {}  # request id -> cells that have run
        self.held = {}  # worker -> requests that it is at work on
        self.over = set()
        self.now = 0.0

    def start(self, worker, task):
        held = self.held.setdefault(worker, {})
        assert 0 < task.batch_size == len(task.cells) <= self.model.types[task.start].max_batch
        assert len(set(zip((r.id for r in task.requests), task.cells, strict=True))) == task.batch_size
        for request, cell in zip(task.requests, task.cells, strict=True):
            done = self.done.setdefault(request.id, set())
            assert request.id not in self.over and cell not in done, "it runs twice"
            assert done.issuperset(self.sources(request, cell)), "it runs before what it depends on"
            assert all(request.id not in others for w, others in self.held.items() if w != worker)
            first = self.open_from(request)
            assert first < 0 or cell - first < request.output_len, "it runs beyond its end"
            held[request.id] = request
        assert len(held) <= self.limit

    def end(self, worker, task, total):
        ended = []
        for request, cell in zip(task.requests, task.cells, strict=True):
            self.done[request.id].add(cell)
            first = self.open_from(request)
            if 0 <= first <= cell and cell - first + 1 >= request.output_len:
                ended.append(request)
        finished = self.policy.complete(task.ended_at(task.stop, tuple(ended)), self.now)
        if finished:
            assert {request.id for request in finished} == set(self.held.pop(worker)), "the set ends together"
        for request in finished:
            assert len(self.done[request.id]) == total(request)
            self.over.add(request.id)
            self.ledger.finish(request)

    def lose(self, worker, task, keep):
        assert self.policy.complete(task.lost(keep), self.now) == []
        for request_id in self.held.pop(worker):
            self.done[request_id] = set()
        for request in set(task.requests) - set(keep):
            self.over.add(request.id)
            self.ledger.fail(request)

    def drive(self, requests, workers, latency, total, loss, seed):
        rng = random.Random(seed)
        order = itertools.count()
        events = [(request.arrival, next(order), -1, request) for request in requests]
        heapq.heapify(events)
        idle = set(range(workers))
        while True:
            wakeup = self.policy.wakeup() if idle else math.inf
            if not events and wakeup == math.inf:
                return
            if events and events[0][0] <= wakeup:
                self.now, _, worker, payload = heapq.heappop(events)
                if worker < 0:
                    self.ledger.submit(payload)
                    self.policy.submit(payload, self.now)
                else:
                    idle.add(worker)
                    if rng.random() < loss:
                        kept = {request.id for request in payload.requests if rng.random() < 0.9}
                        self.lose(worker, payload, [r for r in payload.requests if r.id in kept])
                    else:
                        self.end(worker, payload, total)
            else:
                self.now = wakeup
            for worker in sorted(idle):
                task = self.policy.next_task(worker, self.now)
                if task is not None:
                    idle.remove(worker)
                    self.start(worker, task)
                    heapq.heappush(events, (self.now + latency(task.batch_size), next(order), worker, task))
            assert next(order) < 100_000


@st.composite
def cell_lists(draw):
    """Cells of two types, each depending on any before it."""
    cells = []
    for number in range(draw(st.integers(1, 9))):
        sources = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        cells.append((draw(st.integers(0, 1)), tuple(sorted(sources))))
    return cells


LOAD = st.lists(
    st.tuples(st.floats(0, 20), st.one_of(cell_lists(), st.integers(1, 6)), st.integers(1, 5)),  # a decoder behind int
    max_size=20,
)


@given(
    load=LOAD,
    max_batch=st.integers(1, 5),
    limits=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    merge_s=st.sampled_from([0.0, 0.07]),
    workers=st.integers(1, 3),
    loss=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 9),
)
def test_merged_graphs_lose_nothing_and_keep_order_and_limits(load, max_batch, limits, merge_s, workers, loss, seed):
    shapes = [shape for _, shape, _ in load]
    graphs = [CellGraph.of(s) if isinstance(s, list) else CellGraph.encoder_decoder(0, s, 1) for s in shapes]
    model = CellModel("net", (CellType("a", limits[0]), CellType("b", limits[1])), lambda request: graphs[request.id])

    def sources(request, cell):
        shape = shapes[request.id]
        return shape[cell][1] if isinstance(shape, list) else ([cell - 1] if cell else [])

    def total(request):
        shape = shapes[request.id]
        return len(shape) if isinstance(shape, list) else shape + request.output_len

    policy = DynamicGraphBatching([model], workers, max_batch, merge_s)
    driver = CellDriver(policy, model, sources, lambda request: graphs[request.id].open_from, max_batch)
    requests = [Request(i, "net", time, output_len=output) for i, (time, _, output) in enumerate(load)]
    driver.drive(requests, workers, lambda batch: 0.2 + 0.1 * batch, total, loss, seed)
    driver.ledger.check()
    assert driver.ledger.finished + driver.ledger.failed == len(requests)
    assert driver.ledger.in_flight == 0 and (loss > 0 or driver.ledger.failed == 0)
