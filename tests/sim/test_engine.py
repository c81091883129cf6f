import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_policy import make_policy
from properties import examples
from reference_engine import ids, node_by_node

from headrace.batching import (
    POLICIES,
    GraphBatching,
    HeadraceError,
    LazyBatching,
    ModelGraph,
    Node,
    NodeKind,
    NodeTimes,
    OracleLazyBatching,
    RateTables,
    SerialBatching,
    UsageError,
    find_policy,
)
from headrace.batching.graphs.cell_graph import lstm, seq2seq
from headrace.sim.engine import Arrivals, run
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import Fixed
from headrace.sim.workload.traffic import generate, poisson


class Latency:
    """A latency model of `unit` seconds a node for one request, plus `slope` for each further one.

    Its numbers are dyadic, so that sums are exact."""

    def __init__(self, unit=1.0, slope=0.0):
        self.unit, self.slope = unit, slope

    def latency(self, node, batch, length):
        return self.unit * (1 + node % 3) / 2 + self.slope * (batch - 1)


class Unit:
    def latency(self, node, batch, length):
        return 1.0


def chain(name="net", static=3, encoder=0, decoder=0, tail=0):
    kinds = [NodeKind.STATIC] * static + [NodeKind.ENCODER] * encoder
    kinds += [NodeKind.DECODER] * decoder + [NodeKind.STATIC] * tail
    return ModelGraph(name, tuple(Node(f"{name}{i}", kind) for i, kind in enumerate(kinds)))


def arrivals(times, model="net", deadline=math.inf, inputs=None, outputs=None):
    count = len(times)
    return Arrivals(
        [model] * count if isinstance(model, str) else list(model),
        [float(t) for t in times],
        [t + deadline for t in times],
        [float(n) for n in inputs or [1] * count],
        list(outputs or [1] * count),
    )


def executed_nodes(outcome, times):
    """Return the nodes that the tasks of a run executed."""
    nodes = []
    for ran in outcome.ran:
        task, known = ran.task, times[ran.task.model]
        first, after = known.sections.first[task.start], known.sections.after[task.start]
        length = known.task_length(task)
        for boundary in range(task.start, task.stop):
            begin = ran.started + known.duration(task.batch_size, length, task.start, boundary)
            end = ran.started + known.duration(task.batch_size, length, task.start, boundary + 1)
            node = boundary if boundary < after else first + (boundary - first) % (after - first)
            nodes.append((ran.worker, task.model, node, begin, end, ids(task)))
    return sorted(nodes, key=lambda n: (n[3], n[0]))


GRAPHS = {
    "static": chain("static", 5),
    "encoder": chain("encoder", 1, 2, 0, 1),
    "decoder": chain("decoder", 2, 0, 3),
    "both": chain("both", 1, 3, 2),
    "all": chain("all", 1, 2, 2, 2),
}
dyadic = st.integers(0, 400).map(lambda n: n / 8)


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    models=st.lists(st.sampled_from(sorted(GRAPHS)), min_size=1, max_size=3, unique=True),
    workers=st.integers(1, 3),
    max_batch=st.integers(1, 6),
    slope=st.sampled_from([0.0, 0.125, 0.5]),
    defer=st.booleans(),
    oracle=st.booleans(),
    drop=st.booleans(),
)
def test_the_schedule_is_that_of_an_engine_that_asks_at_every_node(
    data, models, workers, max_batch, slope, defer, oracle, drop
):
    times = {model: NodeTimes(GRAPHS[model], Latency(1.0, slope)) for model in models}
    request = st.tuples(dyadic, st.sampled_from(models), st.integers(1, 5), st.integers(1, 5), st.integers(1, 60))
    drawn = sorted(data.draw(st.lists(request, min_size=1, max_size=25)))
    load = Arrivals(
        [d[1] for d in drawn],
        [d[0] for d in drawn],
        [d[0] + d[4] for d in drawn],
        [float(d[2]) for d in drawn],
        [d[3] for d in drawn],
    )
    kind = OracleLazyBatching if oracle else LazyBatching
    steps = dict.fromkeys(models, 3)
    outcome = run(kind(times, workers, max_batch, steps, defer), load, times, workers, True, drop_late=drop)
    finished, nodes = node_by_node(kind(times, workers, max_batch, steps, defer), load, times, workers, drop)
    if oracle:
        # The oracle's answer may change while a batch runs; asked less often, it must only serve everything.
        assert drop or (set(finished) == set(range(len(drawn))) and min(outcome.finished) >= 0)
        assert outcome.ledger.finished + outcome.ledger.dropped == len(drawn)
        return
    assert executed_nodes(outcome, times) == sorted(nodes, key=lambda n: (n[3], n[0]))
    assert {number: end for number, end in enumerate(outcome.finished) if end >= 0} == finished
    assert outcome.ledger.dropped == len(drawn) - len(finished)


def test_a_worker_is_asked_anew_when_another_takes_at_that_instant_what_it_left_room_for():
    """At 25.5 worker 1 stands at a boundary. Request 5 must not enter there, as request 4 of the other model waits and
    is late; then the idle worker 2 takes that one, and worker 1 is asked again at its next boundary."""
    drawn = [
        (0.0, "all", 1, 1, 1),
        (0.0, "all", 1, 1, 1),
        (13.625, "all", 2, 4, 1),
        (20.0, "encoder", 3, 1, 12),
        (25.5, "all", 1, 1, 1),
        (25.5, "encoder", 1, 1, 1),
    ]
    times = {model: NodeTimes(GRAPHS[model], Latency(1.0, 0.0)) for model in ("all", "encoder")}
    load = Arrivals(
        [d[1] for d in drawn],
        [d[0] for d in drawn],
        [d[0] + d[4] for d in drawn],
        [float(d[2]) for d in drawn],
        [d[3] for d in drawn],
    )
    outcome = run(LazyBatching(times, 3, 2, dict.fromkeys(times, 3)), load, times, 3, True)
    ran = [(r.started, r.ended, ids(r.task)) for r in outcome.ran if r.worker == 1 and r.started >= 25.5]
    assert ran[0] == (25.5, 26.5, (3,))
    assert ran[1][0] == 26.5 and ran[1][2] == (5,)


def test_a_task_that_goes_on_as_it_was_does_not_end_those_of_other_workers():
    """There are four batches of 40 nodes, and no other requests. Each is ended once by the next that comes, and once by
    the end of each other. If to continue were an event, they would end each other at every node."""
    times = {"static": NodeTimes(ModelGraph("static", tuple(Node(f"n{n}") for n in range(40))), Latency(1.0, 0.0))}
    load = Arrivals(["static"] * 4, [0.0, 0.3, 0.55, 0.8], [1e3] * 4, [1.0] * 4, [1] * 4)
    outcome = run(LazyBatching(times, 4, 1), load, times, 4)
    assert outcome.node_runs == 160 and outcome.tasks <= 4 * 8


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    name=st.sampled_from(sorted(GRAPHS)),
    batch=st.integers(1, 5),
    elapsed=st.floats(0, 500),
)
def test_boundaries_found_by_search_are_those_found_by_walking(data, name, batch, elapsed):
    times = NodeTimes(GRAPHS[name], Latency(0.1, 0.03))
    start = data.draw(st.integers(0, len(GRAPHS[name].nodes) - 1))
    after = times.sections.after[start]
    end = start + data.draw(st.integers(1, 3000 if times.sections.first[start] < after else after - start))
    stop = times.boundary(batch, 1, start, end, elapsed)
    walked = start + 1
    while walked < end and times.duration(batch, 1, start, walked) < elapsed:
        walked += 1
    assert stop == walked
    assert times.duration(batch, 1, start, stop) == pytest.approx(
        sum(times.duration(batch, 1, at, at + 1) for at in boundary_nodes(times, start, stop))
    )


def boundary_nodes(times, start, stop):
    first, after = times.sections.first[start], times.sections.after[start]
    return [b if b < after else first + (b - first) % (after - first) for b in range(start, stop)]


@pytest.mark.quick(1)
@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_mean_wait_of_an_m_d_1_queue_is_pollaczek_and_khinchines(load):
    graph = chain("net", 1)
    times = {"net": NodeTimes(graph, Unit())}
    means = []
    for seed in range(5):
        work = generate(poisson(load, 200_000, seed), {"net": Fixed()}, math.inf, seed)
        result = simulate(SerialBatching([graph]), work, times, 1, seed=seed).result
        means.append(result["queue_ms"] / 1e3)
        assert result["utilization"] == pytest.approx(load, rel=0.02)
    error = 4 * np.std(means, ddof=1) / math.sqrt(5)
    assert abs(np.mean(means) - load / (2 * (1 - load))) < max(error, 0.01)


@pytest.mark.parametrize("workers", [1, 3])
def test_littles_law_holds_on_every_run(workers):
    """The time average of the number in the system equals arrivals * mean time in the system, exactly, over a whole
    run."""
    times = {name: NodeTimes(graph, Latency(0.01, 0.001)) for name, graph in GRAPHS.items()}
    steps = dict.fromkeys(GRAPHS, 4)
    policies = [
        SerialBatching(GRAPHS.values()),
        GraphBatching(GRAPHS.values(), 0.05, 8),
        LazyBatching(times, workers, 8, steps),
        OracleLazyBatching(times, workers, 8, steps),
    ]
    for policy in policies:
        work = generate(poisson(8, 2000, 1), {name: Fixed(3, 4) for name in GRAPHS}, 2.0, 1)
        done = simulate(policy, work, times, workers)
        assert done.outcome.in_system_s == pytest.approx(done.latencies().sum(), rel=1e-9)


def test_graph_batching_against_a_schedule_made_by_hand():
    """The window is 5, the limit 3, and a batch takes 3: {0,1} at 5 by the window, {2,3,4} full but only at 8, {5} at
    14."""
    times = {"net": NodeTimes(chain("net", 3), Unit())}
    outcome = run(GraphBatching([chain("net", 3)], 5.0, 3), arrivals([0, 4, 6, 6.5, 7, 9]), times, 1, True)
    assert [(ran.started, ran.ended, ids(ran.task)) for ran in outcome.ran] == [
        (5, 8, (0, 1)),
        (8, 11, (2, 3, 4)),
        (14, 17, (5,)),
    ]


def test_whole_graph_batches_are_padded_to_the_longest():
    graph = chain("net", 1, 2, 3)
    times = {"net": NodeTimes(graph, Unit())}
    outcome = run(GraphBatching([graph], 0.0, 4), arrivals([0, 0], inputs=[2, 5], outputs=[7, 3]), times, 1)
    assert outcome.finished == [1 + 5 * 2 + 7 * 3] * 2


def test_requests_that_arrive_at_one_time_are_seen_together():
    times = {"net": NodeTimes(chain("net", 3), Unit())}
    outcome = run(GraphBatching([chain("net", 3)], 0.0, 4), arrivals([1, 1, 1]), times, 1, True)
    assert [ids(ran.task) for ran in outcome.ran] == [(0, 1, 2)]


def test_a_run_is_a_function_of_its_seed():
    graph = GRAPHS["both"]
    times = {"both": NodeTimes(graph, Latency(0.01, 0.001))}
    runs = []
    for seed in (1, 1, 2):
        work = generate(poisson(10, 300, seed), {"both": Fixed(3, 4)}, 1.0, seed)
        runs.append(simulate(LazyBatching(times, 1, 8, {"both": 4}), work, times, 1, seed=seed))
    assert runs[0].outcome.finished == runs[1].outcome.finished != runs[2].outcome.finished
    assert {**runs[0].result, "wall_s": 0} == {**runs[1].result, "wall_s": 0}


def test_what_has_not_begun_at_its_deadline_is_dropped_then():
    """Each request takes 3. The second begins before its deadline and ends after it. The third is dropped at 5 and the
    fourth as it arrives. The fifth could begin at the very time of its deadline, which is too late."""
    times = {"net": NodeTimes(chain("net", 3), Unit())}
    load = arrivals([0, 0, 0, 1, 2])
    load.deadline[:] = [9, 4, 5, 0.5, 6]
    done = simulate(SerialBatching([chain("net", 3)]), load, times, 1, drop_late=True)
    assert done.outcome.started == [0, 3, -1, -1, -1] and done.outcome.finished == [3, 6, -1, -1, -1]
    assert done.outcome.in_system_s == 3 + 6 + 5 + 0 + 4
    result = done.result
    assert (result["requests"], result["finished"], result["dropped"]) == (5, 2, 3)
    assert result["latency_ms"]["mean"] == 4500 and result["queue_ms"] == 1500
    assert result["sla_violation_rate"] == 4 / 5 and result["throughput_rps"] == 2 / 6
    assert done.latencies().tolist() == [3, 6]


def test_all_may_be_too_late():
    times = {"net": NodeTimes(chain("net", 3), Unit())}
    load = arrivals([0, 0, 1], deadline=4)
    done = simulate(GraphBatching([chain("net", 3)], 9.0, 5), load, times, 1, drop_late=True)
    assert done.outcome.in_system_s == 3 * 4  # at their deadlines, though a worker is idle and nothing else happens
    assert (done.result["dropped"], done.result["throughput_rps"], done.result["sla_violation_rate"]) == (3, None, 1.0)


def policy_of(name, workers, max_batch):
    """Return a policy of that name for two models, with what an engine needs to drive it."""
    if find_policy(name).tasks == "cells":
        cells = {"one": lstm("one", max_batch), "two": seq2seq("two", max_batch, max_batch)}
        times = {model: NodeTimes(cell.graph, Latency(0.5, 0.125)) for model, cell in cells.items()}
    else:
        cells = None
        times = {"one": NodeTimes(chain("one", 4), Latency(0.5, 0.125))}
        times["two"] = NodeTimes(chain("two", 1, 1, 2), Latency(0.5, 0.125))
    table = RateTables([1.0], [[0, 0, min(2, max_batch)]], max_batch, max_batch)
    policy = make_policy(
        name,
        times,
        workers=workers,
        window_s=2.0,
        max_batch=max_batch,
        dec_timesteps={"two": 2},
        tables=dict.fromkeys(times, table),
        cells=cells,
        bucket_width=2,
        merge_s=0.125,
    )
    return policy, times, cells


@pytest.mark.parametrize("name", POLICIES)
@examples(15, 60)
@given(
    drawn=st.lists(
        st.tuples(
            dyadic,
            st.sampled_from(["one", "two"]),
            st.integers(1, 4),
            st.integers(1, 4),
            st.sampled_from([0.25, 1.0, 3.0, 9.0, math.inf]),
        ),
        min_size=1,
        max_size=25,
    ),
    workers=st.integers(1, 3),
    max_batch=st.integers(1, 5),
)
def test_every_policy_drops_what_is_too_late_and_serves_the_rest(name, drawn, workers, max_batch):
    drawn = sorted(drawn)
    load = Arrivals(
        [d[1] for d in drawn],
        [d[0] / 4 for d in drawn],
        [d[0] / 4 + d[4] for d in drawn],
        [float(d[2]) for d in drawn],
        [d[3] for d in drawn],
    )
    policy, times, cells = policy_of(name, workers, max_batch)
    done = simulate(policy, load, times, workers, record=True, cell_models=cells, drop_late=True)
    ledger, outcome = done.outcome.ledger, done.outcome
    ledger.check()
    assert ledger.in_flight == 0 and ledger.finished + ledger.dropped == len(drawn)
    served = {number for number, end in enumerate(outcome.finished) if end >= 0}
    assert len(served) == ledger.finished == len(done.latencies())
    assert served == {number for number, start in enumerate(outcome.started) if start >= 0}
    assert served == {request.id for ran in outcome.ran for request in ran.task.requests}
    if find_policy(name).tasks != "cells":  # which may be at work on a request before a task of it is handed out
        assert all(outcome.started[number] < load.deadline[number] for number in served)
    late = sum(outcome.finished[number] > load.deadline[number] for number in served)
    assert done.result["sla_violation_rate"] == pytest.approx((late + ledger.dropped) / len(drawn))


@pytest.mark.parametrize("name", POLICIES)
def test_to_drop_what_is_late_changes_nothing_where_nothing_is(name):
    lengths = {"one": Fixed(3, 2), "two": Fixed(2, 3)}
    load = generate(poisson(3, 300, 0), lengths, 1e6, 0)
    runs = []
    for drop_late in (False, True):
        policy, times, cells = policy_of(name, 2, 4)
        runs.append(simulate(policy, load, times, 2, cell_models=cells, drop_late=drop_late))
    assert runs[0].outcome.finished == runs[1].outcome.finished
    assert {**runs[0].result, "wall_s": 0} == {**runs[1].result, "wall_s": 0}


def test_what_is_not_a_time_or_a_length_is_refused():
    times = {"net": NodeTimes(chain("net", 3), Unit())}
    for load in (arrivals([0], deadline=math.nan), arrivals([0], inputs=[math.nan])):
        with pytest.raises(UsageError, match="request 0"):
            run(SerialBatching([chain("net", 3)]), load, times, 1)


def test_a_policy_that_forgets_requests_is_found_out():
    class Forgetful:
        def submit(self, request, now): ...
        def next_task(self, worker, now):
            return None

        def complete(self, task, now):
            return []

        def wakeup(self):
            return math.inf

        ahead = 1

        def withdraw(self, request, now):
            return True

        def latest_start(self, request):
            return request.deadline

        def largest_batch(self, model):
            return 1

    times = {"net": NodeTimes(chain("net", 3), Unit())}
    with pytest.raises(HeadraceError, match="left 2 requests waiting"):
        run(Forgetful(), arrivals([0, 1]), times, 1)
