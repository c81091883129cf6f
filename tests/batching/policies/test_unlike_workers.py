"""Policies on workers that differ, as the slices of a mixed partition do: each slice has its own knee."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_policy import make_policy
from virtual_driver import drive

from headrace.batching import (
    POLICIES,
    BatchLimits,
    ModelGraph,
    Node,
    NodeTimes,
    PrebaBatching,
    PrebaLazyBatching,
    Profile,
    ProfilePoint,
    Request,
    SmdpBatching,
    UsageError,
    find_policy,
)
from headrace.batching.policies.preba import slice_limits
from headrace.batching.smdp.service import BatchService, Weights
from headrace.batching.smdp.tables import rate_tables
from headrace.sim.engine import Arrivals, run

WHOLE = ModelGraph.opaque("net")
NODES = ModelGraph("net", tuple(Node(f"node{number}") for number in range(4)))
WIDTH = 10.0  # of a bucket


def profile(curves: dict[float, tuple[int, float]]) -> Profile:
    """By length the knee and its time: up to it a batch takes hardly longer, beyond as long as it is large."""
    points = []
    for length, (knee, time_knee) in sorted(curves.items()):
        sizes = ((1, 0.9 * time_knee), (knee, time_knee), (2 * knee, 2 * time_knee))
        points += [ProfilePoint(b, s, b / s, length) for n, (b, s) in enumerate(sizes) if n != 1 or knee > 1]
    return Profile("net", 1, tuple(points))


SMALL, LARGE = profile({1.0: (4, 0.04)}), profile({1.0: (16, 0.01)})


def on_each(*profiles: Profile) -> list[dict[str, Profile]]:
    return [{"net": each} for each in profiles]


def request(number: int, arrival: float = 0.0, length: float = 1.0) -> Request:
    return Request(number, "net", arrival, input_len=length)


def fill(policy, count: int, now: float = 0.0) -> None:
    for number in range(count):
        policy.submit(request(number, now), now)


def ids(task) -> list[int]:
    return [each.id for each in task.requests]


def test_time_queue_is_the_mean_time_in_which_one_of_all_slices_falls_idle():
    """Once in 40 ms and once in 10 ms make 25 + 100 times a second."""
    limits = slice_limits([SMALL, LARGE])
    assert limits.window_s == pytest.approx(0.008) and (limits.max_batch, limits.by_worker) == (16, (4, 16))
    assert slice_limits([SMALL] * 7) == BatchLimits(4, 0.04 / 7)


def test_a_batch_is_full_for_the_slice_that_is_asked():
    policy = PrebaBatching([WHOLE], on_each(LARGE, SMALL), 2)
    fill(policy, 4)
    assert policy.next_task(0, 0.0) is None, "the large slice waits for more"
    task = policy.next_task(1, 0.0)
    assert ids(task) == [0, 1, 2, 3] and task.reason == "knee"


def test_a_batch_that_is_due_leaves_with_what_the_slice_may_take():
    policy = PrebaBatching([WHOLE], on_each(LARGE, SMALL), 2)
    fill(policy, 9)
    due = policy.wakeup()
    assert due == pytest.approx(0.008)
    assert ids(policy.next_task(1, 0.001)) == [0, 1, 2, 3]
    assert policy.next_task(0, 0.001) is None
    task = policy.next_task(0, due)
    assert ids(task) == [4, 5, 6, 7, 8] and task.reason == "window"
    assert policy.largest_batch("net") == 16


def test_merged_batches_keep_the_limit_of_the_slice_at_the_longest_input():
    small = profile({10.0: (4, 0.04), 20.0: (2, 0.04)})
    large = profile({10.0: (16, 0.04), 20.0: (6, 0.04)})
    for worker, expected in ((0, [0, 1, 2]), (1, [0, 1])):
        policy = PrebaBatching([WHOLE], on_each(large, small), 2, bucket_width=10)
        policy.submit(request(0, 0.0, 5.0), 0.0)
        for number in (1, 2):
            policy.submit(request(number, 0.0, 15.0), 0.001)
        assert ids(policy.next_task(worker, 0.02)) == expected


# A slice: its knees for short and long inputs, and Time_knee in ms.
slices = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40)), min_size=1, max_size=4)
loads = st.lists(st.tuples(st.integers(0, 200), st.sampled_from([1.0, 9.0, 10.0, 20.0])), min_size=1, max_size=60)


def curves_of(drawn) -> list[Profile]:
    return [profile({10.0: (short, ms / 1e3), 20.0: (long, ms / 1e3)}) for short, long, ms in drawn]


def arrivals(drawn) -> Arrivals:
    drawn = sorted(drawn)
    count = len(drawn)
    return Arrivals(
        ["net"] * count, [at / 1e3 for at, _ in drawn], [math.inf] * count, [length for _, length in drawn], [1] * count
    )


def busy_throughout(outcome, workers: int, begin: float, end: float) -> bool:
    """Whether no worker is idle at any time from `begin` until before `end`."""
    for worker in range(workers):
        reached = begin
        for ran in sorted((r for r in outcome.ran if r.worker == worker), key=lambda r: r.started):
            if ran.started <= reached:
                reached = max(reached, ran.ended)
        if reached < end:
            return False
    return True


@settings(max_examples=200, deadline=None)
@given(drawn=slices, load=loads, merge=st.booleans())
def test_no_batch_is_above_its_slices_limit_and_what_is_due_leaves_with_the_first_idle_slice(drawn, load, merge):
    profiles = curves_of(drawn)
    workers = len(profiles)
    work = arrivals(load)
    policy = PrebaBatching([WHOLE], on_each(*profiles), workers, bucket_width=WIDTH, merge=merge)
    times = [{"net": NodeTimes(WHOLE, each)} for each in profiles]
    outcome = run(policy, work, times, workers, True)
    assert sorted(number for ran in outcome.ran for number in ids(ran.task)) == list(range(len(load)))
    limits = [slice_limits(profiles, end) for end in (10.0, 20.0)]
    for ran in outcome.ran:
        longest = max(each.input_len for each in ran.task.requests)
        assert ran.task.batch_size <= profiles[ran.worker].knee(20.0 if longest >= WIDTH else 10.0).batch
        for each in ran.task.requests:
            due = each.arrival + limits[each.input_len >= WIDTH].window_s
            assert ran.started <= due or busy_throughout(outcome, workers, due, ran.started)


@settings(max_examples=60, deadline=None)
@given(drawn=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40)), load=loads, workers=st.integers(1, 4))
def test_on_equal_slices_everything_is_as_with_one_profile_for_all(drawn, load, workers):
    (curve,) = curves_of([drawn])
    again = Profile(curve.model, curve.workers, curve.points)  # equal, and not the same
    work = arrivals(load)
    for kind in ("preba", "preba-lazy"):
        times = {"net": NodeTimes(WHOLE, curve)}
        runs = []
        for profiles, known in (
            ({"net": curve}, times),
            (on_each(*[curve, again, curve, again][:workers]), [times] * workers),
        ):
            make = (
                PrebaBatching([WHOLE], profiles, workers)
                if kind == "preba"
                else PrebaLazyBatching(times, profiles, workers)
            )
            outcome = run(make, work, known, workers, True)
            runs.append([(ran.worker, ran.started, ran.ended, ids(ran.task), ran.task.reason) for ran in outcome.ran])
        assert runs[0] == runs[1]


class Speed:
    def __init__(self, node_s):
        self.node_s = node_s

    def latency(self, node, batch, length):
        return self.node_s * (1 + batch / 4)


def node_times(*seconds: float) -> list[dict[str, NodeTimes]]:
    return [{"net": NodeTimes(NODES, Speed(each))} for each in seconds]


@settings(max_examples=100, deadline=None)
@given(drawn=slices, load=loads)
def test_preba_lazy_keeps_the_limit_of_each_slice(drawn, load):
    profiles = curves_of(drawn)
    workers = len(profiles)
    known = node_times(*[ms / 8e3 for _, _, ms in drawn])
    slowest = max(known, key=lambda times: times["net"].whole(1, 1.0, 1))
    policy = PrebaLazyBatching(slowest, on_each(*profiles), workers, bucket_width=WIDTH)
    outcome = run(policy, arrivals(load), known, workers, True)
    assert min(outcome.finished) >= 0 and outcome.ledger.finished == len(load)
    for ran in outcome.ran:
        longest = max(each.input_len for each in ran.task.requests)
        assert ran.task.batch_size <= profiles[ran.worker].knee(20.0 if longest >= WIDTH else 10.0).batch
        for each in ran.task.requests:
            due = each.arrival + slice_limits(profiles, 20.0 if each.input_len >= WIDTH else 10.0).window_s
            began = outcome.started[each.id]
            assert began <= due or busy_throughout(outcome, workers, due, began)


@settings(max_examples=20, deadline=None)
@given(load=loads, seconds=st.lists(st.sampled_from([0.001, 0.002, 0.008]), min_size=1, max_size=3))
@pytest.mark.parametrize("name", [name for name in POLICIES if find_policy(name).tasks != "cells"])
def test_every_policy_serves_everything_on_workers_that_differ(name, load, seconds):
    known = node_times(*seconds)
    workers = len(known)
    policy = make_policy(name, known, workers=workers, window_s=0.004, max_batch=5)
    outcome = run(policy, arrivals(load), known, workers)
    assert min(outcome.finished) >= 0 and outcome.ledger.finished == len(load)


@pytest.mark.parametrize("kind", ["preba", "preba-lazy"])
def test_what_a_lost_slice_had_runs_on_another(kind):
    profiles = on_each(LARGE, SMALL, SMALL)
    times = node_times(0.002)[0]
    policy = PrebaBatching([NODES], profiles, 3) if kind == "preba" else PrebaLazyBatching(times, profiles, 3)
    requests = [request(number, number / 500) for number in range(100)]
    trace = drive(policy, requests, 3, lambda batch: 0.01 * batch, loss=0.3, seed=1)
    assert sorted(trace.finished) == list(range(100))
    for _, worker, task in trace.started:
        assert task.batch_size <= (16, 4, 4)[worker]


def test_who_knows_one_set_of_times_goes_by_those_of_the_slowest_worker():
    fast, slow = node_times(0.001, 0.008)
    work = arrivals([(at, 1.0) for at in range(0, 60, 3)])
    tables = {"net": rate_tables(BatchService.of_times(slow["net"], 5), Weights(), 2)}
    expected = run(SmdpBatching([NODES], tables, 5), work, [fast, slow], 2)
    for known in ([fast, slow], [slow, fast]):
        found = run(make_policy("smdp", known, workers=2, window_s=0.0, max_batch=5), work, [fast, slow], 2)
        assert found.started == expected.started
    for name in ("lazy", "deferred"):
        late = Arrivals(work.models, work.arrival, [at + 0.06 for at in work.arrival], work.input_len, work.output_len)
        of_slow, of_both, of_fast = (
            run(make_policy(name, times, workers=2, window_s=0.0, max_batch=5), late, [fast, slow], 2).started
            for times in (slow, [fast, slow], fast)
        )
        assert of_both == of_slow != of_fast, name


def test_another_number_of_workers_is_refused():
    with pytest.raises(
        UsageError, match="preba has profiles of 2 workers for 3; give one mapping for each, or one for all"
    ):
        PrebaBatching([WHOLE], on_each(SMALL, LARGE), 3)
    with pytest.raises(UsageError, match="preba has no profile of net: run `headrace profile --model net` first"):
        PrebaBatching([WHOLE], [{"net": SMALL}, {}], 2)
    with pytest.raises(UsageError, match="node times of 2 workers for 3; give one mapping for each, or one for all"):
        make_policy("lazy", node_times(0.1, 0.2), workers=3, window_s=0.0, max_batch=5)
    with pytest.raises(UsageError):
        BatchLimits(4, 0.0, (4, 0))
