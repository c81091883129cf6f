"""serial, graph and preba: hand-computed schedules, and what holds under any arrivals, limits and worker counts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_driver import drive

from headrace.batching import (
    BatchLimits,
    GraphBatching,
    ModelGraph,
    PrebaBatching,
    Profile,
    ProfilePoint,
    Request,
    SerialBatching,
    UnknownModel,
    UsageError,
    preba_limits,
)

NET = ModelGraph.opaque("net")
OTHER = ModelGraph.opaque("other")
CURVE = Profile(
    "net",
    2,
    (
        ProfilePoint(1, 0.010, 200),
        ProfilePoint(2, 0.012, 333),
        ProfilePoint(4, 0.016, 500),
        ProfilePoint(8, 0.031, 516),
    ),
)


def at(*arrivals: float, model: str = "net") -> list[Request]:
    return [Request(number, model, arrival) for number, arrival in enumerate(arrivals)]


def starts(policy, requests, workers=1, latency=lambda batch: 1.0):
    trace = drive(policy, requests, workers, latency)
    return [(time, [request.id for request in task.requests]) for time, _, task in trace.started]


def test_serial_runs_each_request_alone_in_order_of_arrival():
    assert starts(SerialBatching([NET]), at(0, 0.5, 0.6)) == [(0, [0]), (1, [1]), (2, [2])]


def test_graph_waits_for_its_window_then_runs_what_came():
    assert starts(GraphBatching([NET], window_s=2, max_batch=4), at(0, 1, 5)) == [(2, [0, 1]), (7, [2])]


def test_graph_starts_at_once_when_the_batch_is_full():
    assert starts(GraphBatching([NET], window_s=9, max_batch=2), at(0, 1, 2, 3)) == [(1, [0, 1]), (3, [2, 3])]


def test_graph_fills_the_batch_while_the_worker_is_busy():
    policy = GraphBatching([NET], window_s=0, max_batch=8)
    assert starts(policy, at(0, 0.1, 0.2, 0.3)) == [(0, [0]), (1, [1, 2, 3])]


def test_a_window_of_zero_on_two_workers_never_waits():
    assert starts(GraphBatching([NET], window_s=0), at(0, 0.5, 0.7), 2) == [(0, [0]), (0.5, [1]), (1, [2])]


def test_the_model_whose_oldest_request_waits_longest_goes_first():
    requests = [Request(0, "net", 0), Request(1, "other", 0.1), Request(2, "net", 0.2), Request(3, "other", 0.3)]
    assert starts(SerialBatching([NET, OTHER]), requests) == [(0, [0]), (1, [1]), (2, [2]), (3, [3])]


def test_preba_takes_the_knee_and_divides_its_time_by_the_workers():
    assert preba_limits(CURVE, 4) == BatchLimits(max_batch=4, window_s=0.016 / 4)


def test_preba_releases_at_the_knee_or_after_time_queue():
    policy = PrebaBatching([NET], {"net": CURVE}, workers=2)
    times = starts(policy, at(0, 0.001, 0.002, 0.003, 0.020), latency=lambda batch: 0.016)
    assert times == [(0.003, [0, 1, 2, 3]), (0.020 + 0.008, [4])]


def test_preba_without_a_profile_says_which_command_makes_one():
    with pytest.raises(UsageError, match="headrace profile --model other"):
        PrebaBatching([NET, OTHER], {"net": CURVE}, workers=1)


def test_an_unknown_model_is_refused_and_nothing_is_kept():
    policy = SerialBatching([NET])
    with pytest.raises(UnknownModel, match="nett"):
        policy.submit(Request(0, "nett", 0), 0)
    assert policy.next_task(0, 0) is None and policy.wakeup() == math.inf


@pytest.mark.parametrize("limits", [{"max_batch": 0, "window_s": 0}, {"max_batch": 1, "window_s": math.nan}])
def test_impossible_limits_are_refused(limits):
    with pytest.raises(UsageError):
        BatchLimits(**limits)


def test_requests_of_a_lost_worker_go_back_to_the_front():
    policy = GraphBatching([NET], window_s=0, max_batch=2)
    for request in at(0, 0, 0, 0):
        policy.submit(request, 0)
    first = policy.next_task(0, 0)
    assert policy.complete(first.lost(first.requests), 1) == []
    assert [request.id for request in policy.next_task(0, 1).requests] == [0, 1]


def test_a_request_that_the_driver_gave_up_on_does_not_come_back():
    policy = GraphBatching([NET], window_s=0, max_batch=2)
    for request in at(0, 0):
        policy.submit(request, 0)
    task = policy.next_task(0, 0)
    policy.complete(task.lost(task.requests[1:]), 1)
    assert [request.id for request in policy.next_task(0, 1).requests] == [1]


def policies(models, max_batch, window_s, workers):
    graphs = [ModelGraph.opaque(model) for model in models]
    profiles = {
        model: Profile(model, workers, (ProfilePoint(1, 0.5, 2), ProfilePoint(max_batch + 1, window_s + 0.1, 9)))
        for model in models
    }
    return {
        "serial": (SerialBatching(graphs), 1),
        "graph": (GraphBatching(graphs, window_s, max_batch), max_batch),
        "preba": (PrebaBatching(graphs, profiles, workers), max_batch + 1),
    }


@pytest.mark.parametrize("name", ["serial", "graph", "preba"])
@given(
    arrivals=st.lists(st.tuples(st.floats(0, 20), st.sampled_from(["a", "b"])), max_size=40),
    max_batch=st.integers(1, 6),
    window_s=st.floats(0, 5),
    workers=st.integers(1, 4),
    loss=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 9),
)
def test_nothing_is_lost_run_twice_or_batched_beyond_its_limit(
    name, arrivals, max_batch, window_s, workers, loss, seed
):
    policy, limit = policies(["a", "b"], max_batch, window_s, workers)[name]
    requests = [Request(number, model, time) for number, (time, model) in enumerate(arrivals)]
    trace = drive(policy, requests, workers, lambda batch: 0.2 + 0.1 * batch, loss=loss, seed=seed)
    assert trace.ledger.finished == trace.ledger.submitted == len(requests)
    assert trace.finished.keys() == {request.id for request in requests}
    assert all(task.batch_size <= limit for _, _, task in trace.started)


@given(
    arrivals=st.lists(st.floats(0, 20), min_size=1, max_size=40),
    max_batch=st.integers(1, 6),
    window_s=st.floats(0, 5),
    workers=st.integers(1, 4),
)
def test_requests_of_one_model_start_in_order_and_never_wait_beyond_the_window_for_an_idle_worker(
    arrivals, max_batch, window_s, workers
):
    requests = [Request(number, "net", time) for number, time in enumerate(sorted(arrivals))]
    trace = drive(GraphBatching([NET], window_s, max_batch), requests, workers, lambda batch: 1e-9)
    assert [request.id for _, _, task in trace.started for request in task.requests] == [r.id for r in requests]
    for time, _, task in trace.started:
        assert time - task.requests[0].arrival <= window_s + 1e-6  # workers are as good as always idle
