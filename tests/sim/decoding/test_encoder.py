"""Test the encoder on a device of its own: a timeline by hand, and batches against a plain list."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_latencies import LinearEncoder, OneSecond, QuarterSecondAnItem

from headrace.batching.errors import UsageError
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding.encoder import EncoderStage
from headrace.sim.decoding.simulation import simulate_decoding


def request(number, arrival, *items):
    return StepRequest(number, arrival, 10 + sum(items), 2, items=tuple(items))


def test_items_of_several_requests_are_encoded_together_and_text_passes():
    """A batch has 8 tokens at most and takes a quarter of a second for each item.

    0 to 0.25       R0's image.
    0.25 to 0.75    R1 and R2 have come: R1's two images fill the batch. R3, without image, came at 0.5 s.
    0.75 to 1.25    R2's two images.
    """
    requests = [request(0, 0.0, 4), request(1, 0.125, 4, 4), request(2, 0.25, 4, 4), request(3, 0.5)]
    done = list(EncoderStage(QuarterSecondAnItem(), 8).encoded(requests))
    assert [(each.id, each.ready) for each in done] == [(0, 0.25), (3, 0.5), (1, 0.75), (2, 1.25)]
    assert [each.items for each in done] == [()] * 4
    assert [each.arrival for each in done] == [0.0, 0.5, 0.125, 0.25]
    assert done[2].prompt_tokens == 18


def test_the_time_to_first_token_counts_from_the_arrival():
    """R0 is ready at 0.5 s, and its only prefill takes one second."""
    stage = EncoderStage(QuarterSecondAnItem())
    result = simulate_decoding([request(0, 0.0, 4, 4)], OneSecond(), kv_blocks=9, encoder=stage)
    assert result.ttft_ms["max"] == 1500
    assert result.queue_ms == 0


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([0.0, 2**-6, 0.25]), st.lists(st.integers(1, 9), max_size=4)), min_size=1, max_size=12
    ),
    largest=st.integers(1, 20),
)
def test_every_request_is_ready_once_in_order_and_as_in_a_plain_queue(rows, largest):
    requests, at = [], 0.0
    for number, (gap, items) in enumerate(rows):
        at += gap
        requests.append(request(number, at, *items))
    model = LinearEncoder()
    done = list(EncoderStage(model, largest).encoded(iter(requests)))
    assert [each.ready for each in done] == sorted(each.ready for each in done)
    # A plain queue of all items: a batch starts when the device is free and its first item has come.
    queue = [(each.arrival, each.id, tokens) for each in requests for tokens in each.items]
    expected = {each.id: each.arrival for each in requests}
    free = 0.0
    while queue:
        start, batch = max(free, queue[0][0]), []
        while queue and queue[0][0] <= start and (not batch or sum(batch) + queue[0][2] <= largest):
            _, number, tokens = queue.pop(0)
            batch.append(tokens)
            expected[number] = -1.0
        free = start + model.seconds(batch)
        expected = {number: free if ready < 0 else ready for number, ready in expected.items()}
        for _, number, _ in queue:
            expected[number] = requests[number].arrival
    assert {each.id: each.ready for each in done} == expected


def test_wrong_stages_are_told():
    with pytest.raises(UsageError, match="batches of 0 tokens"):
        EncoderStage(LinearEncoder(), 0)
    with pytest.raises(UsageError, match="a batch takes nan s"):
        list(EncoderStage(LinearEncoder(call=math.nan)).encoded([request(0, 0.0, 4)]))
    with pytest.raises(UsageError, match=r"arrives at 1\.0 s and is ready at 0\.5 s"):
        StepRequest(0, 1.0, 2, 2, ready=0.5)
