"""Test preprocessing before a model that decodes: timelines by hand, and a plain queue of all items."""

import heapq
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from step_latencies import OneSecond, QuarterSecondAnItem

from headrace.batching.errors import UsageError
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding import front_end
from headrace.sim.decoding.encoder import EncoderStage
from headrace.sim.decoding.front_end import FrontEnd, PreprocessStage
from headrace.sim.decoding.simulation import simulate_decoding
from headrace.sim.preprocessing import Preprocessor, Step


def request(number, arrival, *items):
    return StepRequest(number, arrival, 10 + sum(items), 2, items=tuple(items))


def cores(count, seconds=1.0, delay_s=0.0):
    """A device of cores that take `seconds` for each unit of an item's size, which is the number of its tokens."""
    step = Step("cpu", count, lambda sizes: seconds * sizes)
    return PreprocessStage(Preprocessor("cpu", (step,), delay_s), lambda request: request.items)


def test_the_third_image_waits_for_the_first_of_two_cores():
    """Two cores take a second for each image. R2 comes at 0.5 s, and starts when R0 has left at 1 s."""
    requests = [request(0, 0.0, 1), request(1, 0.25, 1), request(2, 0.5, 1)]
    stage = cores(2)
    run = FrontEnd(stage)
    assert [(each.id, each.ready) for each in run.preprocessed(requests)] == [(0, 1.0), (1, 1.25), (2, 2.0)]
    assert run.wait_ms() == pytest.approx(500 / 3)
    assert run.latency_ms()["max"] == 1500
    assert run.utilization(0.0, 2.0) == {"cpu": 0.75}  # three seconds of work in two seconds of two cores

    result = simulate_decoding(
        requests, OneSecond(), kv_blocks=99, preprocess=stage, encoder=EncoderStage(QuarterSecondAnItem())
    )
    # Encoded 1 to 1.25, 1.25 to 1.5, 2 to 2.25. Steps 1.25 to 2.25 (R0), 2.25 to 3.25 (all three), 3.25 to 4.25.
    assert result.ttft_ms["max"] == 3000  # R2's: 3.25 less 0.25 s
    assert result.ttft_ms["mean"] == pytest.approx((2250 + 3000 + 2750) / 3)
    assert result.preprocess_ms["mean"] == pytest.approx((1000 + 1000 + 1500) / 3)
    assert result.preprocess_wait_ms == pytest.approx(500 / 3)
    assert result.preprocess_utilization["cpu"] == pytest.approx(3 / (2 * 4.25))


def test_a_request_is_ready_with_its_last_item_and_text_passes():
    requests = [request(0, 0.0, 2, 1), request(1, 0.5), request(2, 0.75, 1)]
    done = list(FrontEnd(cores(1)).preprocessed(requests))
    assert [(each.id, each.ready, each.items) for each in done] == [
        (1, 0.5, ()),
        (0, 3.0, (2, 1)),
        (2, 4.0, (1,)),
    ]


def test_text_that_comes_long_after_an_image_does_not_leave_before_it(monkeypatch):
    """The image ends at 1 s. Every block has one request, so the text comes in a block without images."""
    monkeypatch.setattr(front_end, "BLOCK", 1)
    done = FrontEnd(cores(1)).preprocessed([request(0, 0.0, 1), request(1, 5.0), request(2, 6.0)])
    assert [(each.id, each.ready) for each in done] == [(0, 1.0), (1, 5.0), (2, 6.0)]


def test_a_run_without_a_stage_says_nothing_of_it():
    result = simulate_decoding([request(0, 0.0)], OneSecond(), kv_blocks=9)
    assert result.preprocess_ms is result.preprocess_wait_ms is result.preprocess_utilization is None
    none = simulate_decoding([request(0, 0.0)], OneSecond(), kv_blocks=9, preprocess=cores(1))
    assert none.preprocess_ms["mean"] is none.preprocess_wait_ms is None
    assert none.preprocess_utilization == {"cpu": 0.0}


@examples(30, 150)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from([0.0, 2**-6, 0.25]), st.lists(st.integers(1, 9), max_size=4)), min_size=1, max_size=16
    ),
    count=st.integers(1, 3),
    block=st.sampled_from([1, 3, 1024]),
    delay_s=st.sampled_from([0.0, 0.125]),
)
def test_the_stage_is_a_plain_queue_of_all_items_that_never_idles_while_one_waits(rows, count, block, delay_s):
    """In exact numbers. A plain queue gives each item to the core that is free first, so no core idles while one
    waits."""
    requests, at = [], 0.0
    for number, (gap, items) in enumerate(rows):
        at += gap
        requests.append(request(number, at, *items))
    free, expected, waits = [0.0] * count, {}, []
    for each in requests:
        ends = [each.arrival]
        for tokens in each.items:
            start = max(free[0], each.arrival + delay_s)
            waits.append(start - each.arrival - delay_s)
            heapq.heapreplace(free, start + tokens / 8)
            ends.append(start + tokens / 8)
        expected[each.id] = max(ends)
    run = FrontEnd(cores(count, 1 / 8, delay_s))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(front_end, "BLOCK", block)
        done = list(run.preprocessed(iter(requests)))
    assert {each.id: each.ready for each in done} == expected
    assert len(done) == len(requests)
    assert [each.ready for each in done] == sorted(each.ready for each in done)
    if waits:
        assert run.wait_ms() == pytest.approx(1e3 * np.mean(waits), abs=1e-9)
        last = max(expected.values())
        work = sum(tokens / 8 for each in requests for tokens in each.items)
        used = run.utilization(requests[0].arrival, last)["cpu"]
        assert used * count * (last - requests[0].arrival) == pytest.approx(work)
    assert not run._owners and not run._ready  # nothing is kept of requests that left


def test_wrong_sizes_and_orders_are_refused():
    stage = PreprocessStage(cores(1).device, lambda request: [1.0])
    with pytest.raises(UsageError, match="request 0 has 2 items and 1 sizes to preprocess; give one for each"):
        list(FrontEnd(stage).preprocessed([request(0, 0.0, 1, 1)]))
    with pytest.raises(UsageError, match=r"request 1 arrives at 0\.0 s, and the one before it at 1\.0 s"):
        list(FrontEnd(cores(1)).preprocessed([request(0, 1.0, 1), request(1, 0.0, 1)]))


def test_requests_of_another_replica_take_their_turn_and_do_not_come():
    """One core takes a second for each image. R1 goes elsewhere, and R2 waits for it."""
    stage = replace(cores(1), elsewhere=lambda each: each.id == 1)
    requests = [request(0, 0.0, 1), request(1, 0.0, 1), request(2, 0.0, 1), request(3, 0.5)]
    run = FrontEnd(stage)
    assert [(each.id, each.ready) for each in run.preprocessed(requests)] == [(3, 0.5), (0, 1.0), (2, 3.0)]
    assert run.wait_ms() == 1000  # of R0 to R2: 0, 1 and 2 s
    last = FrontEnd(replace(stage, elsewhere=lambda each: each.id == 2))
    assert [each.id for each in last.preprocessed(requests)] == [3, 0, 1]
    assert last.utilization(0.0, 1.0) == {"cpu": 1.0}  # until the last image of all, at 3 s
