"""Test the contract of step policies (batching/steps/policy.py) on random requests, for every policy."""

import gc
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_driver import blocks_of, drive
from step_latencies import Linear, LinearEncoder

from headrace.batching.errors import BadInput, UsageError
from headrace.batching.steps.policy import StepContext
from headrace.batching.steps.registry import STEP_POLICIES, step_policy_settings
from headrace.batching.steps.request import StepRequest

LATENCY, ENCODER = Linear(), LinearEncoder()


@st.composite
def cases(draw, items=True):
    """Return requests, a replica that can hold each of them, and the limits of a step."""
    seqs = draw(st.integers(1, 6))
    size = draw(st.sampled_from([1, 2, 4, 16]))
    requests, at = [], 0.0
    for number in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0.0, 0.0, 2**-8, 2**-5, 0.5]))
        prompt, made = draw(st.integers(1, 40)), draw(st.integers(1, 20))
        images = tuple(draw(st.lists(st.integers(1, 12), max_size=3))) if items else ()
        targets = draw(st.sampled_from([(math.inf, math.inf), (0.1, 0.01), (0.02, math.inf), (1.0, 2**-7)]))
        requests.append(
            StepRequest(
                number,
                at,
                prompt + sum(images),
                made,
                made + draw(st.integers(0, 5)),
                images,
                at + targets[0],
                targets[1],
            )
        )
    longest = max(request.prompt_tokens + request.max_output_tokens - 1 for request in requests)
    blocks = blocks_of(longest, size) + draw(st.integers(0, 20))
    limits = {
        "max_num_batched_tokens": max(seqs, longest if draw(st.booleans()) else draw(st.integers(1, 32))),
        "max_num_seqs": seqs,
        "max_encoder_tokens": draw(st.integers(1, 24)),
    }
    return requests, StepContext(blocks, LATENCY, size, ENCODER), limits


def policy_of(name, context, limits):
    own = dict(limits)
    if name == "cellular":  # a prompt is never split, so a step must hold the longest one
        own["max_num_batched_tokens"] = max(limits.get("max_num_batched_tokens", 0), 256)
    if name == "token-deadline":
        own["chunk_tokens"] = 4
    return step_policy_settings(name, own).build(context)


def served(name, case, **options):
    requests, context, limits = case
    return drive(
        policy_of(name, context, limits),
        requests,
        kv_blocks=context.kv_blocks,
        block_size=context.block_size,
        latency=LATENCY,
        encoder=ENCODER,
        **options,
    )


@pytest.mark.parametrize("name", STEP_POLICIES)
@given(case=cases())
def test_every_request_ends_within_the_budgets_and_the_blocks(name, case):
    run = served(name, case)
    assert set(run.ended) == {request.id for request in case[0]}


@pytest.mark.parametrize("name", STEP_POLICIES)
@given(case=cases())
def test_repetitions_of_a_step_are_what_the_policy_would_answer_again(name, case):
    once, repeated = served(name, case), served(name, case, repeat=True)
    assert once.ended == repeated.ended
    assert once.preempted == repeated.preempted
    assert len(repeated.steps) <= len(once.steps)


@pytest.mark.parametrize("name", STEP_POLICIES)
@given(case=cases())
def test_two_policies_that_are_told_the_same_give_the_same_answers(name, case):
    first, second = served(name, case), served(name, case)
    assert [(start, end, parts(step)) for start, end, step in first.steps] == [
        (start, end, parts(step)) for start, end, step in second.steps
    ]


def parts(step):
    return (
        [(request.id, tokens) for request, tokens in step.prefill],
        [request.id for request in step.decoding],
        [(request.id, items) for request, items in step.encoder],
        [request.id for request in step.preempted],
        step.repeats,
    )


@pytest.mark.parametrize("name", STEP_POLICIES)
@given(case=cases(), data=st.data())
def test_a_withdrawn_request_leaves_no_trace(name, case, data):
    requests, context, limits = case
    gone = [
        (data.draw(st.floats(0, 2)), request.id) for request in requests if data.draw(st.booleans(), label="withdrawn")
    ]
    policy = policy_of(name, context, limits)
    run = drive(
        policy,
        requests,
        kv_blocks=context.kv_blocks,
        block_size=context.block_size,
        latency=LATENCY,
        encoder=ENCODER,
        gone=gone,
        repeat=True,
    )
    assert set(run.ended) | run.withdrawn == {request.id for request in requests}
    assert policy.next_step(1e6) is None
    # The policy is as good as new: it answers the same as a new one.
    later = [
        StepRequest(
            request.id,
            request.arrival + 2**20,
            request.prompt_tokens,
            request.output_len,
            request.max_output_tokens,
            request.items,
            request.first_token_by + 2**20,
            request.tpot_s,
        )
        for request in requests
    ]
    again, new = (
        drive(
            each,
            later,
            kv_blocks=context.kv_blocks,
            block_size=context.block_size,
            latency=LATENCY,
            encoder=ENCODER,
        )
        for each in (policy, policy_of(name, context, limits))
    )
    assert [parts(step)[:4] for _, _, step in again.steps] == [parts(step)[:4] for _, _, step in new.steps]
    assert again.ended == new.ended


@pytest.mark.parametrize("name", STEP_POLICIES)
def test_a_request_ends_however_many_others_come_after_it(name):
    """A long request comes among short ones that keep the replica busy for as long as it waits."""
    # All takes four times as long as in other tests, so that fewer requests keep it busy.
    latency, encoder = Linear(2**-5, 2**-13, 2**-22, 2**-14), LinearEncoder(2**-6, 2**-14)
    context = StepContext(40, latency, 16, encoder)
    limits = {"max_num_batched_tokens": 512, "max_num_seqs": 4, "max_encoder_tokens": 64}
    many = [
        StepRequest(number, number * 2**-5, 30, 4, first_token_by=number * 2**-5 + 0.8) for number in range(1, 2300)
    ]
    long = StepRequest(0, 2.0, 400, 60, first_token_by=2.04, tpot_s=4e-4)
    run = drive(
        policy_of(name, context, limits),
        [long, *many],
        kv_blocks=40,
        block_size=16,
        latency=latency,
        encoder=encoder,
        repeat=True,
    )
    assert max(run.ended.values()) > 75  # others come for longer than MAX_WAIT_S
    assert run.ended[0] < 70


@pytest.mark.parametrize("name", STEP_POLICIES)
def test_a_request_that_the_cache_can_never_hold_is_refused(name):
    policy = policy_of(name, StepContext(4, LATENCY, 16), {"max_num_seqs": 2})
    with pytest.raises(BadInput, match=r"request 7 may have 65 tokens in the KV cache, which holds 64; .*more blocks"):
        policy.submit(StepRequest(7, 0.0, 60, 6), 0.0)
    assert policy.next_step(0.0) is None
    policy.submit(StepRequest(8, 0.0, 60, 5), 0.0)
    assert policy.next_step(0.0) is not None


def test_a_prompt_that_cannot_be_prefilled_at_once_is_refused_where_prompts_are_whole():
    policy = step_policy_settings("cellular", {"max_num_batched_tokens": 64, "max_num_seqs": 4}).build(
        StepContext(100, LATENCY)
    )
    with pytest.raises(BadInput, match="--max-num-batched-tokens a larger number"):
        policy.submit(StepRequest(0, 0.0, 60, 6), 0.0)


@pytest.mark.parametrize("name", STEP_POLICIES)
def test_limits_that_exclude_each_other_are_told(name):
    with pytest.raises(UsageError, match="--max-num-batched-tokens 3 is below --max-num-seqs 4"):
        step_policy_settings(name, {"max_num_batched_tokens": 3, "max_num_seqs": 4}).build(StepContext(9, LATENCY))


def test_a_name_that_no_policy_has_is_told():
    with pytest.raises(UsageError, match=r"'eager'.*choose from continuous, token-deadline, lazy, cellular"):
        step_policy_settings("eager")


def requests_alive() -> int:
    gc.collect()
    return sum(isinstance(each, StepRequest) for each in gc.get_objects())


@pytest.mark.parametrize("name", STEP_POLICIES)
def test_of_a_thousand_requests_that_left_before_they_began_few_are_kept(name):
    """A queue may keep some that left, up to a fixed number, until others are served."""
    policy = policy_of(name, StepContext(64, LATENCY), {"max_num_seqs": 4})
    before = requests_alive()
    for number in range(1000):
        request = StepRequest(number, 0.0, 8, 8, first_token_by=1.0 + number)
        policy.submit(request, 0.0)
        assert policy.withdraw(request, 0.0)
    assert requests_alive() - before <= 80
