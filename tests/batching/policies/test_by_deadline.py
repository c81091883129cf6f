"""earliest-deadline and deferred: hand-computed schedules, and what holds under any load."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from virtual_driver import drive

from headrace.batching import (
    DeferredBatching,
    EarliestDeadlineBatching,
    ModelGraph,
    Node,
    NodeKind,
    NodeTimes,
    Request,
    UsageError,
)
from headrace.batching.policies.shared.deadline_queue import MARGIN, DeadlineQueue
from headrace.batching.policies.shared.queue_length import MAX_WAIT_S
from headrace.sim.engine import Arrivals
from headrace.sim.simulation import simulate

POLICIES = (EarliestDeadlineBatching, DeferredBatching)


class Linear:
    """A batch takes `fixed_s` and `each_s` for each of its requests."""

    def __init__(self, fixed_s, each_s):
        self.fixed_s, self.each_s = fixed_s, each_s

    def latency(self, node, batch, length):
        return self.fixed_s + self.each_s * batch


def times(*models, fixed_s=0.008, each_s=0.002):
    return {model: NodeTimes(ModelGraph.opaque(model), Linear(fixed_s, each_s)) for model in models or ("net",)}


def predicted_s(batch):
    """A batch of `times()`, as these policies count on it."""
    return (1 + MARGIN) * (0.008 + 0.002 * batch)


def requests_at(*arrivals, sla_s=0.1, model="net"):
    return [Request(number, model, arrival, arrival + sla_s) for number, arrival in enumerate(arrivals)]


def tasks(kind, requests, workers=1, max_batch=64, slow_s=0.0):
    """When each batch leaves, of whom, and why; the model `slow` takes `slow_s`."""
    known = times(*sorted({request.model for request in requests}))
    if slow_s:
        known |= times("slow", fixed_s=slow_s, each_s=0.0)
    requests = sorted(requests, key=lambda request: request.arrival)
    load = Arrivals(
        [r.model for r in requests],
        [r.arrival for r in requests],
        [r.deadline for r in requests],
        [r.input_len for r in requests],
        [r.output_len for r in requests],
    )
    ran = simulate(kind(known, workers, max_batch), load, known, workers, record=True).outcome.ran
    return [
        (run.started, [requests[number.id].id for number in run.task.requests], run.task.reason)
        for run in sorted(ran, key=lambda run: run.started)
    ]


def test_deferred_leaves_when_one_more_could_not_join_in_time():
    ((time, ids, reason),) = tasks(DeferredBatching, requests_at(0.0))
    assert (ids, reason) == ([0], "deadline")
    assert time == pytest.approx(0.1 - predicted_s(2))


def test_company_comes_in_and_makes_the_batch_leave_the_earlier():
    ((time, ids, reason),) = tasks(DeferredBatching, requests_at(0.0, 0.01, 0.05))
    assert (ids, reason) == ([0, 1, 2], "deadline")
    assert time == pytest.approx(0.1 - predicted_s(4))


def test_deferred_leaves_at_once_with_a_full_batch():
    assert tasks(DeferredBatching, requests_at(0.0, 0.01), max_batch=2) == [(0.01, [0, 1], "full")]


@pytest.mark.parametrize(("workers", "target"), [(1, 18), (2, 26)])
def test_a_batch_has_at_most_what_leaves_time_to_wait_for_the_one_before(workers, target):
    # (1 + 1 / workers) * 1.1 * (8 + 2 b) <= 100 ms
    (first, *_) = tasks(DeferredBatching, requests_at(*[0.0] * 40), workers)
    assert first == (0.0, list(range(target)), "deadline")


def test_who_has_no_deadline_does_not_wait_beside_an_idle_worker():
    assert tasks(DeferredBatching, requests_at(0.25, sla_s=math.inf)) == [(0.25, [0], "deadline")]


def test_who_has_a_far_deadline_waits_for_company_so_long_and_not_longer():
    ((time, _, _),) = tasks(DeferredBatching, requests_at(0.5, sla_s=100.0))
    assert time == 0.5 + MAX_WAIT_S


def test_earliest_deadline_waits_for_nobody_and_serves_who_is_due_first():
    requests = [
        Request(0, "a", 0.0, 0.2),
        Request(1, "a", 0.001, 0.15),
        Request(2, "b", 0.002, 0.1),
        Request(3, "a", 0.003, 0.12),
        Request(4, "b", 0.004, 0.5),
    ]
    assert tasks(EarliestDeadlineBatching, requests) == [
        (0.0, [0], "idle"),
        (0.01, [2, 4], "idle"),
        (0.022, [3, 1], "idle"),
    ]


def test_deferred_batches_of_several_models_leave_early_enough_for_each_other():
    requests = [Request(0, "b", 0.0, 0.1), Request(1, "a", 0.0, 0.105), Request(2, "a", 0.0, 0.106)]
    first, second = tasks(DeferredBatching, requests)
    assert (first[1], second[1]) == ([0], [1, 2])
    assert first[0] == pytest.approx(0.105 - predicted_s(3) - predicted_s(1))
    assert second[0] == pytest.approx(0.105 - predicted_s(3))
    # With a worker for each, each leaves at its own last moment.
    first, second = tasks(DeferredBatching, requests, workers=2)
    assert first[0] == pytest.approx(0.1 - predicted_s(2))
    assert second[0] == pytest.approx(0.105 - predicted_s(3))


@pytest.mark.parametrize("policy", POLICIES)
def test_who_would_make_the_batch_smaller_is_passed_over(policy):
    """When the worker is idle at last, 1 and 2 have time for a batch of two, the others for one of three or four."""
    requests = [
        Request(0, "slow", 0.0, 0.06),
        *[Request(number, "net", 0.0, 0.051 + predicted_s(size)) for number, size in enumerate((2, 2, 3, 4, 4), 1)],
    ]
    served = [ids for _, ids, _ in tasks(policy, requests, slow_s=0.05)]
    assert served == [[0], [3, 4, 5], [1, 2]]


def test_who_cannot_be_met_runs_when_nobody_else_wants_to():
    requests = [Request(0, "net", 0.0, 0.001), Request(1, "net", 0.0, 0.2)]
    (first, second) = tasks(EarliestDeadlineBatching, requests)
    assert (first[1], second[1]) == ([1], [0])
    # Beside a deferred batch it runs in the time until that leaves, and delays it not.
    (first, second) = tasks(DeferredBatching, requests)
    assert first == (0.0, [0], "idle")
    assert second[1] == [1] and second[0] == pytest.approx(0.2 - predicted_s(2))


def test_late_requests_do_not_delay_a_deferred_batch_that_must_leave():
    # The second comes, hopeless, 9 ms before the first leaves; it takes 10 ms, and 11 with the margin.
    leaves = 0.1 - predicted_s(2)
    first, second = tasks(DeferredBatching, [Request(0, "net", 0.0, 0.1), Request(1, "net", leaves - 0.009, leaves)])
    assert (first[1], second[1]) == ([0], [1])
    assert first[0] == pytest.approx(leaves)


@pytest.mark.parametrize("policy", POLICIES)
def test_who_has_waited_long_without_a_deadline_goes_first_and_takes_nobody_along_who_would_be_late(policy):
    requests = [
        Request(0, "slow", 0.0, 1.4),
        Request(1, "net", 0.001),
        Request(2, "net", 1.1, 1.2 + predicted_s(2) - 0.001),
    ]
    assert [ids for _, ids, _ in tasks(policy, requests, slow_s=1.2)] == [[0], [1], [2]]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_driver_drops_the_hopeless_as_soon_as_they_are(policy):
    arrivals = Arrivals(["net"] * 3, [0.0, 0.0, 0.0], [0.012, 0.1, 0.009], [1.0] * 3, [1] * 3)
    known = times()
    assert policy(known, 1).latest_start(Request(0, "net", 0.0, 0.5)) == pytest.approx(0.49)
    done = simulate(policy(known, 1), arrivals, known, 1, drop_late=True)
    assert (done.result["dropped"], done.result["finished"]) == (1, 2)
    assert done.outcome.finished[2] == -1.0 and done.outcome.finished[0] == 0.01
    # When the worker is idle, at 0.05, the second has 5 ms left, and takes 10: it has been dropped at 0.045.
    known |= times("slow", fixed_s=0.05, each_s=0.0)
    arrivals = Arrivals(["slow", "net"], [0.0, 0.001], [0.06, 0.055], [1.0] * 2, [1] * 2)
    done = simulate(policy(known, 1), arrivals, known, 1, drop_late=True)
    assert (done.result["dropped"], done.result["finished"]) == (1, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_decoder_needs_to_be_told_how_many_steps_to_assume(policy):
    graph = ModelGraph("words", (Node("step", NodeKind.DECODER),))
    known = {"words": NodeTimes(graph, Linear(0.0, 0.01))}
    with pytest.raises(UsageError, match="dec_timesteps"):
        policy(known, 1)
    with pytest.raises(UsageError, match="dec_timesteps is 0"):
        policy(known, 1, dec_timesteps={"words": 0})
    with pytest.raises(UsageError, match="workers"):
        policy(times(), 0)
    # Five steps of 10 ms are assumed, whatever the request will turn out to take.
    assert policy(known, 1, dec_timesteps={"words": 5}).latest_start(Request(0, "words", 0.0, 1.0, 1, 2)) == 0.95


@given(
    deadlines=st.lists(st.sampled_from([0.1, 0.2, 0.2, 0.3, math.inf]), min_size=1, max_size=12),
    gone=st.sets(st.integers(0, 11)),
    taken=st.integers(0, 3),
)
def test_a_line_is_in_order_of_deadline_and_gives_back_whom_it_is_asked_for(deadlines, gone, taken):
    line = DeadlineQueue(times()["net"], 1, 8, 1)
    requests = [Request(number, "net", 0.0, deadline) for number, deadline in enumerate(deadlines)]
    for request in requests:
        line.insert(request, 0.0)
    order = sorted(requests, key=lambda request: request.deadline)  # stable
    first = min(taken, len(order))
    assert list(line.take(first)) == order[:first]
    for number in gone:
        if number < len(requests):
            assert line.remove(requests[number]) == (requests[number] in order[first:])
    left = [request for request in order[first:] if request.id not in gone]
    assert list(line.take(line.size())) == left


@st.composite
def loads(draw):
    gaps = draw(st.lists(st.sampled_from([0.0, 0.001, 0.01, 0.05, 0.3]), min_size=1, max_size=40))
    arrivals, now = [], 0.0
    for number, gap in enumerate(gaps):
        now += gap
        sla_s = draw(st.sampled_from([0.005, 0.03, 0.1, 0.4, math.inf]))
        arrivals.append(Request(number, draw(st.sampled_from("ab")), now, now + sla_s))
    return arrivals


@pytest.mark.parametrize("policy", POLICIES)
@examples(60, 200)
@given(requests=loads(), workers=st.integers(1, 3), max_batch=st.integers(1, 5), each_s=st.sampled_from([0.0, 0.002]))
def test_what_leaves_on_its_own_account_is_in_time(policy, requests, workers, max_batch, each_s):
    """Predictions hold here, so only those passed over are late, and a batch of them leaves as `idle`."""
    known = times("a", "b", each_s=each_s)
    trace = drive(policy(known, workers, max_batch), requests, workers, lambda batch: 0.008 + each_s * batch)
    assert len(trace.finished) == len(requests)
    for time, _, task in trace.started:
        assert task.batch_size <= max_batch
        ends = time + 0.008 + each_s * task.batch_size
        assert task.reason == "idle" or all(ends <= request.deadline for request in task.requests)


def test_under_overload_they_keep_most_of_the_capacity_useful():
    """Twice what the worker can do in batches of its target: serving in order makes everybody late; these do not."""
    known = times()
    target, latency_s = 18, 0.044
    rate = 2 * target / latency_s
    count = 4000
    arrival = [number / rate for number in range(count)]
    load = Arrivals(["net"] * count, arrival, [at + 0.1 for at in arrival], [1.0] * count, [1] * count)
    for policy in POLICIES:
        result = simulate(policy(known, 1, 64), load, known, 1, drop_late=True).result
        assert result["sla_violation_rate"] < 0.55, policy
        assert result["batch_size_mean"] > 0.9 * target, policy
