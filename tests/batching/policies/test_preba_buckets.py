"""preba on inputs of many lengths: buckets, their limits, and who is merged with whom (PREBA, Section 4.3)."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from virtual_driver import drive

from headrace.batching import ModelGraph, PrebaBatching, Profile, ProfilePoint, Request, UnknownModel, UsageError
from headrace.sim.engine import Arrivals, run

NET = ModelGraph.opaque("net")
TIME_KNEE = 0.035  # about the same at every length: Fig. 15
FRAME_S = 0.01


def speech(*knees: tuple[float, int], workers: int = 7, step_s: float | None = FRAME_S, time_knee=TIME_KNEE) -> Profile:
    """Curves by seconds of input: a batch takes hardly longer up to its knee, and beyond as long as it is large."""
    points = []
    for seconds, knee in knees:
        length = seconds if step_s is None else round(seconds / step_s)
        for batch, latency in ((1, 0.9 * time_knee), (knee, time_knee), (2 * knee, 2 * time_knee)):
            if not points or (points[-1].length, points[-1].batch) < (length, batch):
                points.append(ProfilePoint(batch, latency, workers * batch / latency, length))
    return Profile("net", workers, tuple(points), step_s=step_s)


# Batch_max halves as the length doubles, in buckets up to 2.5, 5, 7.5 and 10 s.
HALVING = speech((2.5, 16), (5.0, 8), (7.5, 4), (10.0, 2))


def sound(number: int, seconds: float, arrival: float = 0.0) -> Request:
    """Its length in frames of 10 ms, as a spectrogram tells it."""
    return Request(number, "net", arrival, input_len=float(round(seconds / FRAME_S)))


def ids(task):
    return [request.id for request in task.requests]


def preba(profile=HALVING, workers=7, **options):
    return PrebaBatching([NET], {"net": profile}, workers, **options)


def test_figure_16_an_input_of_6_s_makes_the_third_buckets_batch_of_4_full():
    policy = preba()
    for number, seconds in enumerate((5.5, 7.4, 5.0)):
        policy.submit(sound(number, seconds), 0.0)
    policy.submit(sound(3, 2.0), 0.0)
    policy.submit(sound(4, 9.0), 0.0)
    assert policy.next_task(0, 0.0) is None, "nothing is full, nothing is due"
    policy.submit(sound(5, 6.0), 0.001)
    task = policy.next_task(0, 0.001)
    assert ids(task) == [0, 1, 2, 5] and task.reason == "knee"
    assert policy.next_task(1, 0.001) is None


@pytest.mark.parametrize(
    ("seconds", "with_the_first", "with_the_second"),
    [(0.0, True, False), (2.49, True, False), (2.5, False, True), (4.99, False, True), (5.0, False, False)],
)
def test_buckets_are_half_open(seconds, with_the_first, with_the_second):
    """Who makes another's bucket full is in it."""
    for place, expected in ((1.0, with_the_first), (3.0, with_the_second)):
        policy = preba(speech((2.5, 2), (5.0, 2), (10.0, 2)))
        policy.submit(sound(0, place), 0.0)
        policy.submit(sound(1, seconds), 0.0)
        task = policy.next_task(0, 0.0)
        assert (task is not None) == expected


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.0, 0), (2.49, 0), (2.5, 0), (2.51, 1), (5.0, 1), (5.01, 2), (7.5, 2), (10.0, 3), (10.01, 3), (60.0, 3)],
)
def test_strict_buckets_are_closed_above_as_printed(seconds, bucket):
    """A clip of exactly 2.5 s has the limits of 2.5 s, and there is no fifth bucket up to 10 s."""
    policy = preba(HALVING, strict=True)
    assert policy.queue_of(sound(0, seconds)).max_batch == (16, 8, 4, 2)[bucket]
    assert policy.queue_of(sound(0, seconds)) is policy.queue_of(sound(1, 2.5 * bucket + 1))


@pytest.mark.parametrize("step_s", [0.01, 0.02, 0.08, 0.03])
def test_no_length_falls_into_a_bucket_by_rounding(step_s):
    """2.5 s is 2 steps to a graph that counts seconds; here the second bucket begins with it, whatever a frame is."""
    policy = preba(speech((2.5, 64), (35.0, 64), step_s=step_s))
    for number in range(14):
        edge = number * 2.5 / step_s
        first, last = (Request(0, "net", 0.0, input_len=edge + more) for more in (0.01, 2.4 / step_s))
        assert policy.queue_of(first) is policy.queue_of(last)
        if number > 0:
            before = policy.queue_of(Request(3, "net", 0.0, input_len=edge - 0.01))
            assert before is not policy.queue_of(Request(4, "net", 0.0, input_len=edge + 0.01))
        if edge.is_integer():
            on_it, behind = (Request(5, "net", 0.0, input_len=edge + more) for more in (0.0, 1.0))
            assert policy.queue_of(on_it) is policy.queue_of(behind)


def test_each_bucket_has_the_knee_and_the_time_queue_of_its_longest_input():
    profile = speech((2.5, 16), (10.0, 2), time_knee=0.14)
    policy = preba(profile)
    for number, end in enumerate((2.5, 5.0, 7.5, 10.0)):
        line, knee = policy.queue_of(sound(0, end - 0.1)), profile.knee(end / FRAME_S)
        assert (line.max_batch, line.window_s) == (knee.batch, knee.latency_s / 7), number
    assert policy.queue_of(sound(0, 60.0)).max_batch == 2, "what is longer than was profiled is in the last bucket"
    assert policy.largest_batch("net") == 16


def test_a_bucket_waits_time_queue_and_no_longer():
    policy = preba()
    policy.submit(sound(0, 6.0), 1.0)
    assert policy.wakeup() == 1.0 + TIME_KNEE / 7
    assert policy.next_task(0, 1.0 + 0.99 * TIME_KNEE / 7) is None
    assert policy.next_task(0, policy.wakeup()).reason == "window"


def due_at_6_s(*others: float, **options) -> list[int]:
    """Numbers from 1 on of those who leave with number 0, of 6 s, when that is due."""
    policy = preba(**options)
    policy.submit(sound(0, 6.0), 0.0)
    for number, seconds in enumerate(others, 1):
        policy.submit(sound(number, seconds), 1e-6)
    task = policy.next_task(0, TIME_KNEE / 7)
    assert task.reason == "window" and ids(task)[0] == 0
    return ids(task)[1:]


def test_what_is_due_takes_along_the_shorter_bucket_first_then_the_longer():
    assert due_at_6_s(9.0, 3.0, 4.0) == [2, 3], "with the longer one the limit would be 2"
    assert due_at_6_s(9.0) == [1]
    assert due_at_6_s(9.0, 9.5) == [1], "two of the longest at most"
    assert due_at_6_s(3.0, 4.0, 4.5, 4.9) == [1, 2, 3], "up to the Batch_max of 6 s"


def test_only_the_buckets_beside_it_are_merged():
    assert due_at_6_s(1.0, 2.4, 10.0, 30.0) == []


def test_without_merging_a_bucket_leaves_alone():
    assert due_at_6_s(3.0, 9.0, 6.5, merge=False) == [3]


def test_requests_that_were_merged_are_no_longer_due_in_their_own_bucket():
    policy = preba()
    policy.submit(sound(0, 6.0), 0.0)
    policy.submit(sound(1, 3.0), 0.001)
    assert ids(policy.next_task(0, TIME_KNEE / 7)) == [0, 1]
    assert policy.wakeup() == math.inf and policy.next_task(1, 1.0) is None


def test_a_lost_batch_goes_back_to_the_buckets_that_it_came_from():
    policy = preba()
    policy.submit(sound(0, 6.0), 0.0)
    policy.submit(sound(1, 3.0, 0.001), 0.001)
    task = policy.next_task(0, 1.0)
    assert policy.complete(task.lost(task.requests), 2.0) == []
    assert policy.queue_of(sound(0, 6.0)).size() == policy.queue_of(sound(1, 3.0)).size() == 1
    assert ids(policy.next_task(0, 2.0)) == [0, 1]


def test_a_withdrawn_request_is_taken_out_of_its_bucket():
    policy = preba()
    held = [sound(0, 6.0), sound(1, 3.0)]
    for request in held:
        policy.submit(request, 0.0)
    assert policy.withdraw(held[1], 0.0) and not policy.withdraw(held[1], 0.0)
    assert not policy.withdraw(sound(7, 6.0), 0.0)
    assert ids(policy.next_task(0, 1.0)) == [0]


def test_one_length_or_buckets_without_end_are_one_queue():
    for policy in (preba(speech((5.0, 4))), preba(HALVING, bucket_s=math.inf)):
        lines = {policy.queue_of(sound(0, seconds)) for seconds in (0.5, 6.0, 60.0)}
        assert len(lines) == 1
    assert preba(HALVING, bucket_s=math.inf).largest_batch("net") == 2, "the knee of the longest input of the bucket"


def test_lengths_that_are_no_times_have_buckets_of_steps():
    words = speech((10.0, 16), (20.0, 8), (80.0, 2), step_s=None)
    policy = preba(words)
    assert policy.queue_of(Request(0, "net", 0.0, input_len=9.0)).max_batch == 16
    assert policy.queue_of(Request(0, "net", 0.0, input_len=10.0)).max_batch == 8
    assert preba(words, bucket_width=30).queue_of(Request(0, "net", 0.0, input_len=29.0)) is not policy.queues["net"]


def test_what_cannot_work_is_refused():
    for width in (0.0, -1.0, math.nan):
        with pytest.raises(UsageError, match="width above 0"):
            preba(bucket_s=width)
    with pytest.raises(UsageError, match="give wider ones"):
        preba(bucket_s=0.001)
    with pytest.raises(UnknownModel, match="nobody"):
        preba().submit(Request(0, "nobody", 0.0), 0.0)
    with pytest.raises(UnknownModel, match="nobody"):
        preba().largest_batch("nobody")
    with pytest.raises(UsageError, match="0 workers"):
        preba(workers=0)


knees_of = st.lists(st.integers(1, 8), min_size=4, max_size=4)
audio_of = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from([0.5, 2.49, 2.5, 4.0, 6.0, 7.49, 7.5, 9.0, 30.0])),
    min_size=1,
    max_size=40,
)


@settings(max_examples=150)
@given(
    drawn=audio_of,
    knees=knees_of,
    workers=st.integers(1, 4),
    merge=st.booleans(),
    loss=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 9),
)
def test_nothing_is_lost_and_no_batch_is_above_the_batch_max_of_its_longest_input(
    drawn, knees, workers, merge, loss, seed
):
    profile = speech(*zip((2.5, 5.0, 7.5, 10.0), knees, strict=True))
    policy = preba(profile, workers, merge=merge)
    requests = [sound(number, seconds, at) for number, (at, seconds) in enumerate(sorted(drawn))]
    trace = drive(policy, requests, workers, lambda batch: 0.02 * batch, loss=loss, seed=seed)
    assert trace.ledger.finished == trace.ledger.submitted == len(requests)
    for _, _, task in trace.started:
        place = [min(4, int(request.input_len // 250)) for request in task.requests]
        assert task.batch_size <= profile.knee(250.0 * (1 + max(place))).batch
        assert max(place) - min(place) <= (2 if merge else 0)
        if task.reason == "knee":
            assert len(set(place)) == 1


@settings(max_examples=100)
@given(
    streams=st.lists(
        st.tuples(
            st.floats(0, 2),
            st.sampled_from([0.0, 0.001, 0.01, 0.05]),
            st.integers(1, 120),
            st.sampled_from([1.0, 3.0, 6.0, 9.0, 30.0]),
        ),
        min_size=2,
        max_size=5,
    ),
    knees=knees_of,
    workers=st.integers(1, 3),
)
@example(streams=[(0.0, 0.001, 120, 1.0), (0.01, 0.0, 1, 30.0)], knees=[8, 4, 2, 1], workers=1)
@example(streams=[(0.0, 0.001, 120, 30.0), (0.01, 0.0, 1, 1.0)], knees=[8, 4, 2, 1], workers=1)
def test_nobody_starves_whatever_other_lengths_come(streams, knees, workers):
    """A request begins Time_queue after it came, and a batch later for each of those before it, and one more that began
    in that time, at most. (Itself is counted among those before it.)"""
    profile = speech(*zip((2.5, 5.0, 7.5, 10.0), knees, strict=True))
    load = sorted((at + gap * n, seconds) for at, gap, count, seconds in streams for n in range(count))
    at = [came for came, _ in load]
    arrivals = Arrivals(
        ["net"] * len(load), at, [math.inf] * len(load), [100 * seconds for _, seconds in load], [1] * len(load)
    )
    times = {"net": profile.times()}
    policy = preba(profile, workers)
    time_queue = max(policy.queue_of(sound(0, 2.5 * bucket)).window_s for bucket in range(5))
    outcome = run(policy, arrivals, times, workers)
    longest_s = max(
        times["net"].whole(batch, 100 * seconds, 1)
        for seconds in {drawn[3] for drawn in streams}
        for batch in range(1, 9)
    )
    for number, came in enumerate(at):
        before = sum(other <= came <= outcome.started[place] for place, other in enumerate(at))
        assert outcome.started[number] - came <= time_queue + before * longest_s + 1e-9


@given(drawn=audio_of, workers=st.integers(1, 3))
def test_requests_of_one_bucket_begin_in_order(drawn, workers):
    policy = preba(workers=workers)
    requests = [sound(number, seconds, at) for number, (at, seconds) in enumerate(sorted(drawn))]
    trace = drive(policy, requests, workers, lambda batch: 0.01)
    last = {}
    for _, _, task in trace.started:
        for request in task.requests:
            bucket = min(4, int(request.input_len // 250))
            assert last.get(bucket, -1) < request.id
            last[bucket] = request.id
