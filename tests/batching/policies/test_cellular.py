"""Cellular batching: the paper's timelines, what holds for any cell graphs, and lost workers."""

import math
import random
from collections import Counter

import pytest
from algorithm_1 import Algorithm1
from cpu_time import cpu_s, least_s
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from headrace.batching import Ledger, NodeTimes, Request, UnknownModel, UsageError
from headrace.batching.graphs.cell_graph import CellGraph, CellModel, CellType, lstm, seq2seq
from headrace.batching.policies.cellular import MAX_TASKS, PATIENCE, CellularBatching
from headrace.sim.engine import Arrivals
from headrace.sim.simulation import simulate
from headrace.sim.workload.trees import complete_tree


class Unit:
    def latency(self, node, batch, length):
        return 1.0


def timeline(policy, model, arrivals, lengths, outputs=None, workers=1):
    """[(start, type, [(request number from 1, cell)])] of every task, and when each request left."""
    count = len(arrivals)
    work = Arrivals(
        [model.name] * count, arrivals, [math.inf] * count, [float(n) for n in lengths], outputs or [1] * count
    )
    times = {model.name: NodeTimes(model.graph, Unit())}
    done = simulate(policy, work, times, workers, record=True, cell_models={model.name: model})
    tasks = [
        (ran.started, ran.task.start, [(r.id + 1, c) for r, c in zip(ran.task.requests, ran.task.cells, strict=True)])
        for ran in done.outcome.ran
    ]
    return tasks, done.outcome.finished


def ask(policy, worker=0):
    """Run the next task of an idle worker to its end. Returns it."""
    task = policy.next_task(worker, 0.0)
    policy.complete(task, 0.0)
    return task


def test_figure_5_of_batchmaker():
    """Cell time 1, at most 4: requests join at every cell and leave as soon as they end."""
    model = lstm(max_batch=4)
    policy = CellularBatching([model], 1, max_tasks=1)
    tasks, left = timeline(policy, model, [0, 0, 0, 0, 1.5, 2.5, 2.5, 3.5], [2, 3, 3, 5, 7, 2, 3, 1])
    assert [sorted(request for request, _ in cells) for _, _, cells in tasks[:4]] == [
        [1, 2, 3, 4],
        [1, 2, 3, 4],
        [2, 3, 4, 5],
        [4, 5, 6, 7],
    ]
    assert [start for start, _, _ in tasks[:4]] == [0, 1, 2, 3]
    assert left[:4] == [2, 3, 3, 5]
    # All others run on without a gap: 4 and 5 of them at most in each task.
    assert max(left) == 9 and [start for start, _, _ in tasks] == list(range(9))


def test_at_most_three_join_and_leave_at_every_step():
    """As in Fig. 6 of LazyBatching: a maximum batch of 3, the newcomer waits for a place and not for the batch."""
    model = lstm(max_batch=3)
    tasks, left = timeline(CellularBatching([model], 1, max_tasks=1), model, [0, 0, 0, 0.5], [2, 3, 4, 2])
    assert [[request for request, _ in cells] for _, _, cells in tasks] == [[1, 2, 3], [1, 2, 3], [2, 3, 4], [3, 4]]
    assert left == [2, 3, 4, 4]


def test_tasks_submitted_ahead_are_of_the_same_requests():
    """With 5 tasks at a time newcomers wait until these have run; the second task needs the least batch."""
    model = lstm(max_batch=4)
    tasks, _ = timeline(CellularBatching([model], 1, max_tasks=5), model, [0, 0, 0.5], [6, 4, 1])
    assert [[request for request, _ in cells] for _, _, cells in tasks] == [[1, 2]] * 4 + [[1], [1, 3]]
    few = CellModel(
        "few", (CellType("cell", 4, min_batch=2),), lambda request: CellGraph.chain(0, int(request.input_len))
    )
    tasks, _ = timeline(CellularBatching([few], 1, max_tasks=5), few, [0, 0, 0.5], [6, 4, 1])
    assert [[request for request, _ in cells] for _, _, cells in tasks][4] == [1, 3]


def test_older_requests_go_on_before_younger_ones_begin():
    policy = CellularBatching([lstm(max_batch=2)], 1, max_tasks=2)
    for number in range(3):
        policy.submit(Request(number, "lstm", 0.0, input_len=3), 0.0)
    assert [[request.id for request in ask(policy).requests] for _ in range(6)] == [[0, 1]] * 3 + [[2]] * 3


def test_a_request_of_which_nothing_runs_may_go_on_at_another_worker():
    policy = CellularBatching([lstm()], 2, max_tasks=1)
    policy.submit(Request(0, "lstm", 0.0, input_len=3), 0.0)
    task = policy.next_task(0, 0.0)
    assert policy.next_task(1, 0.0) is None
    policy.complete(task, 0.0)
    assert ask(policy, 1).cells == (1,) and ask(policy, 0).cells == (2,)


def test_one_that_comes_from_another_worker_keeps_its_place_among_younger_ones():
    policy = CellularBatching([lstm(max_batch=2)], 2, max_tasks=1)
    tasks = []
    for number in range(2):
        policy.submit(Request(number, "lstm", 0.0, input_len=6), 0.0)
        tasks.append(policy.next_task(number, 0.0))
    policy.complete(tasks[0], 0.0)
    assert [zip_ids(policy.next_task(1, 0.0)) for _ in range(2)] == [[(0, 1), (1, 1)], [(0, 2), (1, 2)]]


def test_a_tree_of_16_leaves_has_17_subgraphs():
    """BatchMaker, Section 4.4: each leaf is one, all inner nodes together are one."""
    subgraphs = complete_tree(16).subgraphs
    assert sorted(len(s.cells) for s in subgraphs) == [1] * 16 + [15]
    inner = max(subgraphs, key=lambda s: len(s.cells))
    assert inner.needs == list(range(16)) and inner.missing.count(0) == 8


def test_identical_trees_run_level_by_level():
    tree = complete_tree(4)
    model = CellModel("tree", (CellType("leaf", 8), CellType("inner", 8, priority=1)), lambda request: tree)
    tasks, left = timeline(CellularBatching([model], 1), model, [0, 0], [4, 4])
    assert [(kind, len(cells)) for _, kind, cells in tasks] == [(0, 8), (1, 4), (1, 2)]
    assert left == [3, 3]


def test_a_path_that_leaves_a_type_and_comes_back_makes_two_subgraphs():
    graph = CellGraph.of([(0, ()), (0, (0,)), (1, (0,)), (0, (1, 2)), (0, (3,))])
    assert [(s.type, s.cells, s.needs) for s in graph.subgraphs] == [
        (0, [0, 1], []),
        (1, [2], [0]),
        (0, [3, 4], [1, 2]),
    ]


def test_a_decoder_ends_when_its_output_does():
    model = seq2seq(encoder_batch=4, decoder_batch=4)
    tasks, left = timeline(CellularBatching([model], 1, max_tasks=1), model, [0, 0], [2, 1], outputs=[1, 3])
    # Decoding has priority: the second input cell of the first request waits for it, but only PATIENCE times.
    assert [kind for _, kind, _ in tasks] == [0, 1, 1, 0, 1] and left == [5, 5]
    decoded = Counter(request for _, kind, cells in tasks if kind == 1 for request, _ in cells)
    assert decoded == {1: 1, 2: 3}


def test_decoder_steps_submitted_beyond_the_end_are_dropped():
    model = seq2seq(encoder_batch=4, decoder_batch=4)
    tasks, left = timeline(CellularBatching([model], 1, max_tasks=5), model, [0], [1], outputs=[2])
    assert left == [3] and len(tasks) == 3


def test_decoder_steps_beyond_the_end_leave_the_batches_that_they_were_put_in():
    """One sequence ends while five steps of both are submitted: what remains of it is taken out of those to come."""
    model = seq2seq(encoder_batch=4, decoder_batch=4)
    tasks, left = timeline(CellularBatching([model], 1, max_tasks=5), model, [0, 0], [1, 1], outputs=[2, 7])
    assert [[request for request, _ in cells] for _, _, cells in tasks] == [[1, 2]] * 3 + [[2]] * 5
    assert left == [3, 8]


def test_nothing_of_a_type_runs_when_all_that_it_submitted_was_beyond_an_end():
    """Otherwise it would no longer be one of which nothing runs, and wait as long as others have full batches."""
    echo = CellModel("echo", (CellType("cell", 2),), lambda request: CellGraph.chains([(0, 1)], 0))
    policy = CellularBatching([echo, lstm(max_batch=1)], 1)
    first = Request(0, "echo", 0.0)
    policy.submit(first, 0.0)
    assert ask(policy).cells == (0,)
    task = policy.next_task(0, 0.0)
    assert policy.complete(task.ended_at(task.stop, (first,)), 0.0) == [first]  # and four of its cells are to come
    for number in range(1, 50):
        policy.submit(Request(number, "lstm", 0.0), 0.0)
    policy.submit(Request(50, "echo", 0.0), 0.0)
    assert "echo" in [ask(policy).model for _ in range(MAX_TASKS * PATIENCE + 1)]


def test_selection_prefers_a_full_batch_then_what_does_not_run_then_priority():
    types = (CellType("a", 2, priority=0), CellType("b", 2, priority=1))
    graphs = {1.0: CellGraph.chain(0, 1), 2.0: CellGraph.chain(1, 1)}
    model = CellModel("net", types, lambda request: graphs[request.input_len])

    def policy_with(*kinds, workers=2):
        policy = CellularBatching([model], workers)
        for number, kind in enumerate(kinds):
            policy.submit(Request(number, "net", 0.0, input_len=kind), 0.0)
        return policy

    assert policy_with(1.0, 2.0).next_task(0, 0).start == 1  # priority
    assert policy_with(1.0, 1.0, 2.0).next_task(0, 0).start == 0  # a full batch
    policy = policy_with(2.0, 1.0)
    assert policy.next_task(0, 0).start == 1
    policy.submit(Request(9, "net", 0.0, input_len=2.0), 0.0)
    assert policy.next_task(1, 0).start == 0  # of the other type something runs


@pytest.mark.parametrize("high", [0, 1], ids=["first-type", "second-type"])
@pytest.mark.parametrize("state", ["full", "idle", "running"])
def test_the_higher_priority_goes_first_whatever_both_types_have(state, high):
    """Both types have a full batch, or less and nothing runs, or less and something runs: then priority decides."""
    types = tuple(CellType(name, 2, priority=int(number == high)) for number, name in enumerate("ab"))
    graphs = [CellGraph.chain(0, 1), CellGraph.chain(1, 1)]
    policy = CellularBatching([CellModel("net", types, lambda request: graphs[int(request.input_len)])], 3)

    def submit_one_of_each(number):
        for kind in (0, 1):
            policy.submit(Request(2 * number + kind, "net", 0.0, input_len=float(kind)), 0.0)

    submit_one_of_each(0)
    if state == "full":
        submit_one_of_each(1)
    if state == "running":
        assert {policy.next_task(worker, 0.0).start for worker in (0, 1)} == {0, 1}
        submit_one_of_each(1)
    assert policy.next_task(2, 0.0).start == high


def test_a_request_whose_task_waits_for_the_worker_has_begun():
    policy = CellularBatching([lstm(max_batch=1)], 1)
    requests = [Request(number, "lstm", 0.0) for number in range(MAX_TASKS + 1)]
    for request in requests:
        policy.submit(request, 0.0)
    assert policy.next_task(0, 0.0).requests == (requests[0],)
    assert [policy.withdraw(request, 0.0) for request in requests] == [False] * MAX_TASKS + [True]
    assert [policy.next_task(0, 0.0).requests[0].id for _ in range(4)] == [1, 2, 3, 4]
    assert policy.next_task(0, 0.0) is None


# Nobody waits for ever


def test_equal_priorities_with_full_batches_take_turns():
    policy = CellularBatching([lstm("a", 2), lstm("b", 2), lstm("c", 2)], 1, max_tasks=2)
    for number in range(36):
        policy.submit(Request(number, "abc"[number % 3], 0.0, input_len=2), 0.0)
    assert "".join([ask(policy).model for _ in range(18)]) == "aabbcc" * 3


def test_a_single_request_does_not_wait_for_the_end_of_another_models_overload():
    policy = CellularBatching([lstm("busy", 2), lstm("rare", 2)], 1)
    for number in range(1000):
        policy.submit(Request(number, "busy", 0.0, input_len=5), 0.0)
    policy.submit(Request(1000, "rare", 0.0, input_len=10), 0.0)
    models = [ask(policy).model for _ in range(30)]
    assert models == (["busy"] * MAX_TASKS * PATIENCE + ["rare"] * MAX_TASKS) * 2


def test_of_six_types_that_always_have_full_batches_each_has_a_decision_in_any_eight():
    models = [CellModel(n, (CellType("cell", 1, priority=-ord(n)),), lambda r: CellGraph.chain(0, 1)) for n in "abcdef"]
    policy = CellularBatching(models, 1, max_tasks=1)
    for number in range(600):
        policy.submit(Request(number, "abcdef"[number % 6], 0.0), 0.0)
    chosen = [ask(policy).model for _ in range(100)]
    assert all(set(chosen[n : n + PATIENCE + 6]) == set("abcdef") for n in range(90))


def test_patience_is_not_lost_while_something_of_the_type_runs():
    """One worker decodes; the other goes on with encoders, of which nothing runs, though new decoders are ready."""
    model = seq2seq(encoder_batch=4, decoder_batch=4)
    policy = CellularBatching([model], 2, max_tasks=1)
    policy.submit(Request(0, "seq2seq", 0.0, input_len=1), 0.0)
    ask(policy)
    assert policy.next_task(1, 0.0).start == 1
    policy.submit(Request(1, "seq2seq", 0.0, input_len=1), 0.0)
    policy.submit(Request(2, "seq2seq", 0.0, input_len=9), 0.0)
    assert [ask(policy).start for _ in range(9)] == [0] * 9


def test_encoders_do_not_wait_until_no_decoder_is_left():
    model = seq2seq(encoder_batch=4, decoder_batch=4)
    arrivals, outputs = [0, 3.5], [1000, 1]
    _, left = timeline(CellularBatching([model], 1), model, arrivals, [1, 5], outputs)
    assert left[1] < 3.5 + MAX_TASKS * (PATIENCE + 2) + 1


@settings(max_examples=100)
@given(
    batches=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    priorities=st.lists(st.integers(0, 2), min_size=3),
    lengths=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.integers(0, 6)), min_size=1, max_size=40),
    max_tasks=st.integers(1, 5),
    workers=st.integers(1, 2),
)
def test_what_a_request_waits_for_is_bounded_by_what_is_older(batches, priorities, lengths, max_tasks, workers):
    """Of several models one is overloaded: it always has full batches. A request begins within
    (C / max_batch + 1) (PATIENCE + K) decisions, of max_tasks tasks each, with C cells of older ones in front of it.
    Decisions count while nothing of its model runs; one worker that is asked when it is idle has only such."""
    kinds = len(batches)
    models = [
        CellModel(
            str(n), (CellType("cell", most, priority=priorities[n]),), lambda r: CellGraph.chain(0, int(r.input_len))
        )
        for n, most in enumerate(batches)
    ]
    policy = CellularBatching(models, workers, max_tasks)
    waiting = [{} for _ in models]  # of each model: request -> its cells that were not handed out
    bound = {}  # request -> tasks that may go before it
    handed = number = 0
    to_come = list(lengths)
    running = {}

    def submit(kind, length):
        nonlocal number
        older = sum(waiting[kind].values())
        ahead = max_tasks * (workers + 1)  # what was submitted before and has not been handed out or has not ended
        bound[number] = handed + ahead + max_tasks * (older // batches[kind] + 1) * (PATIENCE + kinds) * workers
        waiting[kind][number] = length
        policy.submit(Request(number, str(kind), 0.0, input_len=length), 0.0)
        number += 1

    while to_come or any(waiting[1:]):
        while len(waiting[0]) < 3 * batches[0] * workers:
            submit(0, 7)
        while to_come and to_come[0][2] <= handed:
            kind, length, _ = to_come.pop(0)
            submit(kind % kinds, length)
        for worker in range(workers):
            if worker in running:
                policy.complete(running.pop(worker), 0.0)
            task = policy.next_task(worker, 0.0)
            if task is None:
                continue
            running[worker] = task
            handed += 1
            for request in task.requests:
                assert handed <= bound.pop(request.id, handed), "waited longer"
                left = waiting[int(task.model)]
                left[request.id] -= 1
                if left[request.id] == 0:
                    del left[request.id]


@settings(max_examples=100)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=30),
    workers=st.integers(1, 3),
    max_batch=st.integers(1, 4),
    max_tasks=st.integers(1, 5),
    ahead=st.integers(1, 4),
    seed=st.integers(0, 1 << 32),
)
def test_a_task_has_the_oldest_first_and_requests_begin_in_the_order_in_which_they_came(
    lengths, workers, max_batch, max_tasks, ahead, seed
):
    rng = random.Random(seed)
    policy = CellularBatching([lstm(max_batch=max_batch)], workers, max_tasks)
    running = [[] for _ in range(workers)]
    tasks = []
    left, to_come = len(lengths), list(enumerate(lengths))
    while left:
        worker = rng.randrange(workers)
        if to_come and rng.random() < 0.3:
            number, length = to_come.pop(0)
            policy.submit(Request(number, "lstm", 0.0, input_len=length), 0.0)
        elif running[worker] and rng.random() < 0.5:
            left -= len(policy.complete(running[worker].pop(0), 0.0))
        elif len(running[worker]) < ahead and (task := policy.next_task(worker, 0.0)) is not None:
            running[worker].append(task)
            tasks.append(task)
    tasks.sort(key=lambda task: task.id)  # as they were formed
    entries = [zip_ids(task) for task in tasks]
    assert all(task == sorted(task) for task in entries)
    assert [number for task in entries for number, cell in task if cell == 0] == list(range(len(lengths)))


def ten_tasks_and_a_withdrawal(model, backlog):
    """Return a measure of the CPU time of ten tasks and a withdrawal, with so many requests waiting."""
    policy = CellularBatching([model], 1)
    requests = [Request(number, model.name, 0.0, input_len=20, output_len=20) for number in range(backlog)]
    for request in requests:
        policy.submit(request, 0.0)

    def work():
        for _ in range(10):
            ask(policy)
        assert policy.withdraw(requests.pop(), 0.0)

    return lambda: cpu_s(work)


@pytest.mark.parametrize("model", [lstm(max_batch=64), seq2seq("mt", 64, 64)], ids=lambda model: model.name)
def test_a_task_and_a_withdrawal_cost_the_same_at_any_backlog(model):
    few, many = least_s(*(ten_tasks_and_a_withdrawal(model, backlog) for backlog in (1000, 30_000)), rounds=20)
    assert many < 5 * few, "thirty times as many wait"


# What holds for any cell graphs


@st.composite
def cell_graphs(draw, types=3):
    cells = []
    for cell in range(draw(st.integers(1, 12))):
        sources = draw(st.lists(st.integers(0, cell - 1), max_size=3, unique=True)) if cell else []
        cells.append((draw(st.integers(0, types - 1)), tuple(sources)))
    return cells


def run_randomly(graphs, workers, max_tasks, batches, rng, ahead):
    """Submits requests and runs tasks in random order, up to `ahead` outstanding on each worker, and checks every rule.
    Returns how often each cell of each request ran."""
    types = tuple(CellType(f"t{n}", batch, priority=n % 2) for n, batch in enumerate(batches))
    unfolded = [CellGraph.of(cells) for cells in graphs]
    model = CellModel("net", types, lambda request: unfolded[request.id])
    policy = CellularBatching([model], workers, max_tasks)
    ledger = Ledger()
    owner_of = [{c: i for i, s in enumerate(g.subgraphs) for c in s.cells} for g in unfolded]
    done = [set() for _ in graphs]
    ahead_of = [[] for _ in range(workers)]  # outstanding tasks of each worker, in order
    ran = Counter()
    to_submit = list(range(len(graphs)))
    steps = 0
    while to_submit or ledger.in_flight:
        steps += 1
        assert steps < 20_000, "nothing moves"
        choice = rng.randrange(3)
        if to_submit and choice == 0:
            request = Request(to_submit.pop(0), "net", float(steps))
            ledger.submit(request)
            policy.submit(request, float(steps))
            continue
        worker = rng.randrange(workers)
        outstanding = ahead_of[worker]
        if choice == 1 and len(outstanding) < ahead:
            task = policy.next_task(worker, float(steps))
            if task is None:
                continue
            entries = [(r.id, c) for r, c in zip(task.requests, task.cells, strict=True)]
            assert len(set(entries)) == len(entries) > 0
            assert len(entries) <= batches[task.start] and task.stop == task.start + 1
            before = {(r, c) for other in outstanding for r, c in zip_ids(other)}
            elsewhere = {
                (r.id, owner_of[r.id][c])
                for other, tasks in enumerate(ahead_of)
                if other != worker
                for t in tasks
                for r, c in zip(t.requests, t.cells, strict=True)
            }
            for number, cell in entries:
                kind, sources = graphs[number][cell]
                assert kind == task.start and cell not in done[number], "runs twice, or as another type"
                assert all(s in done[number] or (number, s) in before for s in sources), "a dependency is missing"
                assert (number, owner_of[number][cell]) not in elsewhere, "a pinned subgraph runs elsewhere"
            outstanding.append(task)
        elif choice == 2 and outstanding:
            task = outstanding.pop(0)
            for number, cell in zip_ids(task):
                done[number].add(cell)
                ran[number, cell] += 1
            for request in policy.complete(task, float(steps)):
                ledger.finish(request)
                assert len(done[request.id]) == len(graphs[request.id]), "left before its last cell"
        ledger.check()
    assert all(policy.next_task(worker, 0.0) is None for worker in range(workers))
    return ran


def zip_ids(task):
    return [(r.id, c) for r, c in zip(task.requests, task.cells, strict=True)]


# As the paper prints it


def same_as_algorithm_1(graphs, workers, max_tasks, batches, rng, strict):
    """Return whether the policy forms the batches of Algorithm 1, as requests come and tasks end in random order."""
    types = tuple(CellType(f"t{n}", batch, priority=n % 2) for n, batch in enumerate(batches))
    unfolded = [CellGraph.of(cells) for cells in graphs]
    policy = CellularBatching(
        [CellModel("net", types, lambda request: unfolded[request.id])], workers, max_tasks, strict
    )
    printed = Algorithm1([(each.max_batch, each.priority) for each in types], workers, max_tasks)
    outstanding = [[] for _ in range(workers)]
    to_submit, left = list(range(len(graphs))), len(graphs)
    while left:
        choice, worker = rng.randrange(3), rng.randrange(workers)
        if to_submit and choice == 0:
            number = to_submit.pop(0)
            policy.submit(Request(number, "net", 0.0), 0.0)
            cells = graphs[number]
            parts = []
            for part in unfolded[number].subgraphs:
                own = set(part.cells)
                sources = {cell: [each for each in cells[cell][1] if each in own] for cell in part.cells}
                outside = {each for cell in part.cells for each in cells[cell][1]} - own
                parts.append((part.type, sorted(part.cells), sources, outside))
            printed.submit(number, parts)
        elif choice == 2 and outstanding[worker]:
            task, batch = outstanding[worker].pop(0)
            left -= len(policy.complete(task, 0.0))
            printed.complete(*batch)
        elif len(outstanding[worker]) < MAX_TASKS:
            task, batch = policy.next_task(worker, 0.0), printed.next_task(worker)
            if (task is None) != (batch is None):
                return False
            if task is not None:
                expected = [(part.request, cell) for part, cell in batch[1]]
                if task.start != batch[0] or zip_ids(task) != expected:
                    return False
                outstanding[worker].append((task, batch))
    return True


@examples(60, 300)
@given(
    graphs=st.lists(cell_graphs(), min_size=1, max_size=10),
    workers=st.integers(1, 3),
    max_tasks=st.integers(1, 5),
    batches=st.tuples(*[st.integers(1, 4)] * 3),
    seed=st.integers(0, 1 << 32),
)
def test_strict_is_algorithm_1(graphs, workers, max_tasks, batches, seed):
    assert same_as_algorithm_1(graphs, workers, max_tasks, batches, random.Random(seed), strict=True)


@settings(max_examples=150)
@given(
    graphs=st.lists(cell_graphs(), min_size=1, max_size=8),
    workers=st.integers(1, 3),
    max_tasks=st.integers(1, 5),
    batches=st.tuples(*[st.integers(1, 6)] * 3),
    seed=st.integers(0, 1 << 32),
    ahead=st.integers(1, 4),
)
def test_every_cell_runs_once_in_order_of_dependence(graphs, workers, max_tasks, batches, seed, ahead):
    ran = run_randomly(graphs, workers, max_tasks, batches, random.Random(seed), ahead)
    assert set(ran.values()) == {1} and len(ran) == sum(map(len, graphs))


@settings(max_examples=100)
@given(
    graphs=st.lists(cell_graphs(), min_size=1, max_size=6),
    workers=st.integers(1, 3),
    max_tasks=st.integers(1, 5),
    batches=st.tuples(*[st.integers(1, 6)] * 3),
    seed=st.integers(0, 1 << 32),
)
def test_after_the_loss_of_a_worker_its_requests_begin_anew(graphs, workers, max_tasks, batches, seed):
    """One task outstanding a worker. Cells of a lost request may run more than once, none less."""
    rng = random.Random(seed)
    types = tuple(CellType(f"t{n}", batch) for n, batch in enumerate(batches))
    unfolded = [CellGraph.of(cells) for cells in graphs]
    policy = CellularBatching([CellModel("net", types, lambda r: unfolded[r.id])], workers, max_tasks)
    ledger = Ledger()
    for number in range(len(graphs)):
        request = Request(number, "net", 0.0)
        ledger.submit(request)
        policy.submit(request, 0.0)
    running = {}
    ran = [set() for _ in graphs]
    given_up = set()
    steps = losses = 0
    while ledger.in_flight or running:
        steps += 1
        assert steps < 20_000, "nothing moves"
        worker = rng.randrange(workers)
        if worker not in running:
            task = policy.next_task(worker, 0.0)
            if task is not None:
                running[worker] = task
            continue
        task = running.pop(worker)
        if losses < 5 and rng.random() < 0.2:
            losses += 1
            chosen = {request.id for request in task.requests if rng.random() < 0.8} - given_up
            keep = [request for request in task.requests if request.id in chosen]
            assert policy.complete(task.lost(keep), 0.0) == []
            for request in {request.id: request for request in task.requests}.values():
                if request.id not in {kept.id for kept in keep} | given_up:
                    given_up.add(request.id)
                    ledger.fail(request)
            continue
        for number, cell in zip_ids(task):
            ran[number].add(cell)
        for request in policy.complete(task, 0.0):
            assert request.id not in given_up
            ledger.finish(request)
            assert ran[request.id] == set(range(len(graphs[request.id])))
    ledger.check()
    assert all(policy.next_task(worker, 0.0) is None for worker in range(workers))


@settings(max_examples=60)
@given(
    pairs=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8), st.floats(0, 20)), min_size=1, max_size=20),
    workers=st.integers(1, 3),
    max_tasks=st.integers(1, 5),
)
def test_sequences_of_unknown_length_all_end(pairs, workers, max_tasks):
    model = seq2seq(encoder_batch=3, decoder_batch=2)
    pairs = sorted(pairs, key=lambda pair: pair[2])
    tasks, left = timeline(
        CellularBatching([model], workers, max_tasks),
        model,
        [p[2] for p in pairs],
        [p[0] for p in pairs],
        [p[1] for p in pairs],
        workers,
    )
    assert all(end >= at + length + output - 1e-9 for end, (length, output, at) in zip(left, pairs, strict=True))
    steps = Counter(request for _, kind, cells in tasks if kind == 1 for request, _ in cells)
    assert all(steps[number] >= output for number, (_, output, _) in enumerate(pairs, 1))
    assert all(len(cells) <= (3, 2)[kind] for _, kind, cells in tasks)


def test_chains_follow_each_other_and_the_decoder_them_all():
    graph = CellGraph.chains([(2, 1), (0, 4)], 1)
    found = [(part.type, part.first, part.needs, part.open) for part in graph.subgraphs]
    assert found == [(2, 0, [], False), (0, 1, [0], False), (1, 5, [4], True)]
    assert (graph.cells, graph.open_from) == (5, 5)
    assert CellGraph.chains([(0, 3)]).open_from == -1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CellType("cell", 0), "1 <= min_batch <= max_batch"),
        (lambda: CellType("cell", 4, min_batch=5), "1 <= min_batch <= max_batch"),
        (lambda: CellGraph.chain(0, 0), "chain of 0"),
        (lambda: CellGraph.encoder_decoder(0, 0, 1), "encoder of 0"),
        (lambda: CellGraph.of([]), "at least one cell"),
        (lambda: CellGraph.of([(0, (0,))]), "after those that they depend on"),
        (lambda: CellularBatching([lstm()], 0), "0 workers"),
        (lambda: CellularBatching([lstm()], 1, 0), "max_tasks is 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(UsageError, match=message):
        call()


def test_an_unknown_model_is_refused_and_nothing_is_kept():
    policy = CellularBatching([lstm()], 1)
    with pytest.raises(UnknownModel, match="'gru'"):
        policy.submit(Request(0, "gru", 0.0), 0.0)
    assert policy.next_task(0, 0.0) is None
