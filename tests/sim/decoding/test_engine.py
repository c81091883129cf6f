"""Test runs of models that decode: timelines by hand, closed forms, and an independent simulator."""

import gc
import math

import pytest
from compared_steps import equals_reference, run, workloads
from hypothesis import given, settings
from hypothesis import strategies as st
from step_latencies import Linear, LinearEncoder, OneSecond, QuarterSecondAnItem

from headrace.batching.errors import PolicyError, UsageError
from headrace.batching.steps.policy import StepContext
from headrace.batching.steps.registry import STEP_POLICIES, step_policy_settings
from headrace.batching.steps.request import Step, StepRequest
from headrace.sim.decoding.engine import run_steps
from headrace.sim.decoding.results import result_of
from headrace.sim.decoding.simulation import simulate_decoding


class TenAndOne:
    """A step takes 10 seconds, and one more for each token of a chunk and for each request that decodes."""

    def seconds(self, prefill, decode_requests, decode_context_tokens):
        return 10.0 + sum(tokens for tokens, _ in prefill) + decode_requests


def timeline(tally):
    """Return (start, end, chunks, ids that decode, ids preempted), with one row for each repetition of a step."""
    rows = []
    for record in tally.records:
        step = record.step
        rows.append(
            (
                record.started,
                record.ended,
                {request.id: tokens for request, tokens in step.prefill},
                [request.id for request in step.decoding],
                [request.id for request in step.preempted],
            )
        )
    return rows


@pytest.mark.parametrize("name", STEP_POLICIES)
def test_a_request_that_comes_as_a_step_ends_is_in_the_next_step(name):
    requests = [StepRequest(0, 0.0, 1, 6), StepRequest(1, 3.0, 1, 1)]
    tally = run(name, requests, StepContext(64, OneSecond()))
    assert [row[0] for row in timeline(tally) if 1 in row[2]] == [3.0]


def test_three_requests_with_chunks_and_a_preemption_as_by_hand():
    """R0: prompt 6, output 5. R1: prompt 10, output 3. R2: prompt 3, output 2. All come at 0.

    A step has at most 8 tokens, and the cache 5 blocks of 4 tokens. Blocks are shown after the step.

    0 to 18     R0 prefills 6, R1 the first 2 of 10: 10 + 8 s. Blocks: R0 2, R1 1. R0 has its first token.
    18 to 36    R0 decodes, R1 prefills 7 (8 - 1): 10 + 7 + 1 s. R0 has 7 tokens in 2 blocks, R1 9 in 3. None is free.
    36 to 48    R0 decodes, R1 prefills its last token: 10 + 1 + 1 s. R2 waits for a block. R1 has its first token.
    48 to 59    R0 has 8 tokens and needs a third block. R1 came last and loses its 3. R0 decodes: 10 + 1 s. R2 is not
                admitted in a step with a preemption.
    59 to 70    R0 decodes and ends with its 5th token: 10 + 1 s. R1 needs 3 blocks for 10 + 1 tokens, and 2 are free.
    70 to 88    R1 prefills 8 of 11 tokens: 10 + 8 s.
    88 to 104   R1 prefills the other 3, and R2 its 3: 10 + 6 s. R1 has its second token, R2 its first.
    104 to 116  R1 and R2 decode and end: 10 + 2 s.
    """
    requests = [
        StepRequest(0, 0.0, 6, 5, first_token_by=18.0, tpot_s=13.0),
        StepRequest(1, 0.0, 10, 3, first_token_by=48.0, tpot_s=28.0),
        StepRequest(2, 0.0, 3, 2, first_token_by=103.0, tpot_s=12.0),
    ]
    tally = run("continuous", requests, StepContext(5, TenAndOne(), 4), max_num_batched_tokens=8, max_num_seqs=8)
    assert timeline(tally) == [
        (0.0, 18.0, {0: 6, 1: 2}, [], []),
        (18.0, 36.0, {1: 7}, [0], []),
        (36.0, 48.0, {1: 1}, [0], []),
        (48.0, 59.0, {}, [0], [1]),
        (59.0, 70.0, {}, [0], []),
        (70.0, 88.0, {1: 8}, [], []),
        (88.0, 104.0, {1: 3, 2: 3}, [], []),
        (104.0, 116.0, {}, [1, 2], []),
    ]
    result = result_of(tally, wall_s=0.0)
    assert result.finished == 3 and result.preemptions == 1
    # First tokens at 18, 48 and 104 s; (70 - 18) / 4, (116 - 48) / 2 and (116 - 104) / 1 s for each token after them.
    assert result.ttft_ms["mean"] == pytest.approx(1e3 * (18 + 48 + 104) / 3)
    assert result.ttft_ms["max"] == 104e3
    assert result.tpot_ms["mean"] == pytest.approx(1e3 * (13 + 34 + 12) / 3)
    assert result.tpot_ms["max"] == 34e3
    assert result.latency_ms["mean"] == pytest.approx(1e3 * (70 + 116 + 116) / 3)
    # Only R0 meets both targets: R1 is late by its tokens, R2 by its first one.
    assert result.goodput_rps == pytest.approx(1 / 116)
    assert result.sla_violation_rate == pytest.approx(2 / 3)
    assert result.throughput_rps == pytest.approx(3 / 116)
    # R0 and R1 stand in the first step, and R2 in the one at 88 s.
    assert result.queue_ms == pytest.approx(1e3 * 88 / 3)
    assert result.batch_size_mean == pytest.approx((2 + 2 + 2 + 1 + 1 + 1 + 2 + 2) / 8)
    assert result.utilization == 1.0


def test_the_same_three_requests_catch_up_with_the_batch_under_lazy():
    """Without targets, newcomers always enter. They prefill alone, and the batch decodes alone.

    0 to 18     R0 prefills 6, R1 2.        18 to 36    R1 prefills 8 more, and needs 3 blocks with R0's 2. None is
                free.
    36 to 48    R0 and R1 decode: R0 has 7 tokens, R1 11. R2 waits for a block.
    48 to 60    R0 has 8 tokens, R1 12 and ends with its third token.
    60 to 73    R2 prefills 3.
    73 to 85    R0 takes a third block. R2 decodes with it and ends.
    85 to 96    R0 ends.
    """
    requests = [StepRequest(0, 0.0, 6, 5), StepRequest(1, 0.0, 10, 3), StepRequest(2, 0.0, 3, 2)]
    tally = run("lazy", requests, StepContext(5, TenAndOne(), 4), max_num_batched_tokens=8, max_num_seqs=8)
    assert [(row[1], row[2], row[3]) for row in timeline(tally)] == [
        (18.0, {0: 6, 1: 2}, []),
        (36.0, {1: 8}, []),
        (60.0, {}, [0, 1]),
        (73.0, {2: 3}, []),
        (85.0, {}, [0, 2]),
        (96.0, {}, [0]),
    ]


def test_newcomers_wait_under_lazy_where_they_would_make_a_running_request_late():
    """A step takes one second. R0 has 10 output tokens, the last of which is due at 10.5 s. R1 comes at 2.5 s.

    R0 needs 7 more seconds at 3 s. With a prefill of R1 it would end at 11 s. So R1 waits until R0 has ended."""
    requests = [
        StepRequest(0, 0.0, 4, 10, first_token_by=1.5, tpot_s=1.0),
        StepRequest(1, 2.5, 4, 2),
    ]
    tally = run("lazy", requests, StepContext(9, OneSecond(), 4), max_num_batched_tokens=8, max_num_seqs=8)
    starts = {id: start for start, _, chunks, _, _ in timeline(tally) for id in chunks}
    assert starts == {0: 0.0, 1: 10.0}
    requests[0] = StepRequest(0, 0.0, 4, 10, first_token_by=2.5, tpot_s=1.0)  # with a second to lose, R1 enters at 3 s
    tally = run("lazy", requests, StepContext(9, OneSecond(), 4), max_num_batched_tokens=8, max_num_seqs=8)
    starts = {id: start for start, _, chunks, _, _ in timeline(tally) for id in chunks}
    assert starts == {0: 0.0, 1: 3.0}


def test_whole_prompts_join_at_the_next_step_under_cellular():
    """The example of the policy's head: a budget of 8 tokens, prompts of 3, 6 and 2 tokens."""
    requests = [StepRequest(number, 0.0, prompt, 3) for number, prompt in enumerate((3, 6, 2))]
    tally = run("cellular", requests, StepContext(9, OneSecond(), 4), max_num_batched_tokens=8, max_num_seqs=8)
    assert [(row[2], row[3]) for row in timeline(tally)[:3]] == [({0: 3}, []), ({1: 6}, [0]), ({2: 2}, [0, 1])]


def test_the_example_of_continuous():
    requests = [StepRequest(number, 0.0, prompt, 9) for number, prompt in enumerate((3, 6, 2))]
    tally = run("continuous", requests, StepContext(99, OneSecond(), 4), max_num_batched_tokens=4, max_num_seqs=4)
    assert [(row[2], row[3]) for row in timeline(tally)[:4]] == [
        ({0: 3, 1: 1}, []),
        ({1: 3}, [0]),
        ({1: 2, 2: 1}, [0]),
        ({2: 1}, [0, 1]),
    ]


@pytest.mark.parametrize(
    ("mixed", "steps"),
    [
        (False, [({0: 3, 1: 1}, []), ({1: 4}, []), ({1: 1, 2: 2}, []), ({}, [0, 1, 2])]),
        (True, [({0: 3, 1: 1}, []), ({1: 3}, [0]), ({1: 2, 2: 1}, [0]), ({2: 1}, [0, 1])]),
    ],
)
def test_the_examples_of_prefill_first(mixed, steps):
    requests = [StepRequest(number, 0.0, prompt, 9) for number, prompt in enumerate((3, 6, 2))]
    limits = {"max_num_batched_tokens": 4, "max_num_seqs": 4, "mixed_chunk": mixed}
    tally = run("prefill-first", requests, StepContext(99, OneSecond(), 4), **limits)
    assert [(row[2], row[3]) for row in timeline(tally)[:4]] == steps


def test_prompts_that_do_not_fit_as_a_whole_beside_others_wait_under_prefill_first():
    """A step's prompts have at most 9 tokens. R0 has more and is alone. R1 and R2 have 9, and R3 one too many."""
    requests = [StepRequest(number, 0.0, prompt, 3) for number, prompt in enumerate((12, 4, 4, 2))]
    limits = {"max_num_batched_tokens": 64, "max_num_seqs": 4, "max_prefill_tokens": 9}
    tally = run("prefill-first", requests, StepContext(99, OneSecond(), 4), **limits)
    assert [row[2] for row in timeline(tally)[:3]] == [{0: 12}, {1: 4, 2: 4}, {3: 2}]
    tally = run("prefill-first", requests, StepContext(99, OneSecond(), 4), **limits, mixed_chunk=True)
    # R0 decodes and counts, too, so that R1 and R2 have one token too many together.
    assert [(row[2], row[3]) for row in timeline(tally)[:3]] == [({0: 12}, []), ({1: 4}, [0]), ({2: 4, 3: 2}, [0, 1])]


@pytest.mark.parametrize(("share", "second"), [(0.0, 0.0), (0.5, 9.0), (1.0, 9.0)])
def test_a_request_waits_for_the_blocks_that_running_ones_have_reserved(share, second):
    """Blocks of 4 tokens. Each request has a prompt of 4, and may have 8 output tokens: 1, 2 or 3 blocks of 4.

    With a share of 0, both are admitted at once, and R1 is preempted when R0 needs the last block. With the others, 2
    or 3 blocks of the 3 are reserved, and R1 waits until R0 has ended."""
    requests = [StepRequest(number, 0.0, 4, 8 + number, 9) for number in range(2)]
    limits = {"max_num_batched_tokens": 64, "max_num_seqs": 4, "reserved_output": share}
    tally = run("continuous", requests, StepContext(3, OneSecond(), 4), **limits)
    first = next(record.started for record in tally.records if 1 in {request.id for request, _ in record.step.prefill})
    assert first == (second if share == 0 else 8.0)
    assert (tally.preemptions > 0) is (share == 0)


@given(workload=workloads())
@settings(max_examples=60)
def test_requests_that_reserve_their_whole_output_are_never_preempted(workload):
    requests, blocks, size, budget, seqs, _ = workload
    limits = {"max_num_batched_tokens": budget, "max_num_seqs": seqs, "reserved_output": 1.0}
    tally = run("continuous", requests, StepContext(blocks, Linear(), size, LinearEncoder()), **limits)
    assert tally.ledger.finished == len(requests)
    assert tally.preemptions == 0


def test_token_deadline_takes_the_earliest_first_token_and_gives_chunks_what_decoding_leaves():
    """A step takes 10 s, and one more for each token of a chunk and for each request that decodes.

    R0 has a prompt of 2, comes at 0 and its tokens are due every 15 s after 12 s. R1 and R2 come at 1 s with prompts of
    12 tokens. R2 is due before R1. At 12 s R0's next token is due at 27 s. A step with R0 and x tokens ends at
    12 + 10 + 1 + x, so x is 4."""
    requests = [
        StepRequest(0, 0.0, 2, 9, first_token_by=12.0, tpot_s=15.0),
        StepRequest(1, 1.0, 12, 2, first_token_by=900.0),
        StepRequest(2, 1.0, 12, 2, first_token_by=800.0),
    ]
    tally = run(
        "token-deadline",
        requests,
        StepContext(99, TenAndOne(), 4),
        max_num_batched_tokens=64,
        max_num_seqs=8,
        chunk_tokens=2,
    )
    assert timeline(tally)[:3] == [
        (0.0, 12.0, {0: 2}, [], []),
        (12.0, 27.0, {2: 4}, [0], []),
        (27.0, 42.0, {2: 4}, [0], []),
    ]


def test_images_are_encoded_before_the_prefill_within_their_own_budget():
    """R0 has 3 images of 4 tokens in a prompt of 14, R1 has one, and a step encodes at most 8 tokens.

    0 to 0.5      Two images of R0. There is no prefill, so the step ends with the encoder.
    0.5 to 2.0    The third image and the one of R1 in half a second, then both prompts in one."""
    requests = [StepRequest(0, 0.0, 14, 1, items=(4, 4, 4)), StepRequest(1, 0.0, 6, 1, items=(4,))]
    context = StepContext(99, OneSecond(), 4, QuarterSecondAnItem())
    tally = run("continuous", requests, context, max_num_batched_tokens=64, max_num_seqs=8, max_encoder_tokens=8)
    assert [row[:3] for row in timeline(tally)] == [(0.0, 0.5, {}), (0.5, 2.0, {0: 14, 1: 6})]


@pytest.mark.parametrize("name", STEP_POLICIES)
def test_one_request_alone_takes_the_sum_of_its_steps(name):
    prompt, output, model = 100, 50, Linear()
    first = model.seconds([(prompt, 0)], 0, 0)
    rest = sum(model.seconds([], 1, prompt + token) for token in range(1, output))
    result = simulate_decoding(
        [StepRequest(0, 3.0, prompt, output)], model, kv_blocks=10, policy=name, settings={"max_num_seqs": 4}
    )
    assert result.ttft_ms["max"] == 1e3 * first
    assert result.tpot_ms["max"] == pytest.approx(1e3 * rest / (output - 1))
    assert result.latency_ms["max"] == pytest.approx(1e3 * (first + rest))


@pytest.mark.parametrize("name", STEP_POLICIES)
def test_a_full_batch_of_equal_requests_decodes_in_step(name):
    """n equal requests come at once, and a step takes a second: one prefill, and output - 1 steps for all."""
    n, output = 16, 20
    result = simulate_decoding(
        [StepRequest(number, 0.0, 8, output) for number in range(n)],
        OneSecond(),
        kv_blocks=100,
        policy=name,
        settings={"max_num_batched_tokens": 8 * n + 64, "max_num_seqs": n},
    )
    assert result.ttft_ms["max"] == 1e3
    assert result.tpot_ms["p50"] == pytest.approx(1e3, rel=3e-3)
    assert result.throughput_rps == pytest.approx(n / output)
    assert result.batch_size_mean == n


@given(workload=workloads())
@settings(max_examples=150)
def test_runs_equal_those_of_an_independent_simulator(workload):
    equals_reference(*workload, False)


class Once:
    """A policy that allows no repetition."""

    def __init__(self, policy):
        self._policy = policy
        self.max_num_batched_tokens = policy.max_num_batched_tokens
        self.max_num_seqs = policy.max_num_seqs
        self.max_encoder_tokens = policy.max_encoder_tokens
        self.submit, self.withdraw, self.complete = policy.submit, policy.withdraw, policy.complete

    def next_step(self, now):
        step = self._policy.next_step(now)
        return step and Step(step.prefill, step.decoding, step.encoder, step.preempted)


@pytest.mark.parametrize("name", STEP_POLICIES)
@given(workload=workloads(), target=st.sampled_from([math.inf, 0.01, 0.1]))
def test_many_steps_at_once_equal_one_after_another_to_the_last_bit(name, workload, target):
    requests, blocks, size, budget, seqs, _ = workload
    requests = [
        StepRequest(
            request.id,
            request.arrival,
            request.prompt_tokens,
            request.output_len,
            None,
            request.items,
            request.arrival + 10 * target,
            target,
        )
        for request in requests
    ]
    model = Linear(1 / 130, 1 / 7000, 1 / 9e6, 1 / 3000)  # no sum of these is exact
    context = StepContext(blocks, model, size, LinearEncoder())
    limits = {"max_num_batched_tokens": 128 if name == "cellular" else budget, "max_num_seqs": seqs}
    made = [step_policy_settings(name, limits).build(context) for _ in range(2)]
    many = run_steps(made[0], iter(requests), context, record=True)
    single = run_steps(Once(made[1]), iter(requests), context, record=True)
    assert max((record.step.repeats for record in single.records), default=1) == 1
    assert ends_of(many) == ends_of(single)
    assert (many.steps, many.step_requests, many.preemptions) == (
        single.steps,
        single.step_requests,
        single.preemptions,
    )
    assert many.first_tokens.percentiles_ms() == single.first_tokens.percentiles_ms()


def ends_of(tally):
    return {request.id: record.ended for record in tally.records for request in record.step.finished}


def test_a_run_keeps_nothing_of_requests_that_ended():
    alive = []

    def coming():
        for number in range(2000):
            if number == 1900:
                gc.collect()
                alive.append(sum(isinstance(each, StepRequest) for each in gc.get_objects()))
            yield StepRequest(number, number * 0.1, 20, 10)

    result = simulate_decoding(coming(), Linear(), kv_blocks=100)
    assert result.finished == 2000
    assert alive[0] < 20


def test_a_request_that_does_not_fit_fails_and_the_others_run():
    requests = [StepRequest(0, 0.0, 8, 2), StepRequest(1, 0.0, 800, 2), StepRequest(2, 0.0, 8, 2)]
    result = simulate_decoding(requests, OneSecond(), kv_blocks=10)
    assert (result.requests, result.finished, result.failed) == (3, 2, 1)
    assert result.sla_violation_rate == pytest.approx(1 / 3)


def test_wrong_runs_are_told_with_what_to_change():
    with pytest.raises(UsageError, match=r"request 1 comes at 0\.5 s, before request 0"):
        simulate_decoding([StepRequest(0, 1.0, 8, 2), StepRequest(1, 0.5, 8, 2)], OneSecond(), kv_blocks=9)
    with pytest.raises(UsageError, match="has no encoder"):
        simulate_decoding([StepRequest(0, 1.0, 8, 2, items=(4,))], OneSecond(), kv_blocks=9)
    with pytest.raises(UsageError, match="a step takes nan s"):
        simulate_decoding([StepRequest(0, 1.0, 8, 2)], Linear(step=math.nan), kv_blocks=9)
    with pytest.raises(UsageError, match="at least 1 of each"):
        simulate_decoding([], OneSecond(), kv_blocks=0)


def test_an_empty_run_has_no_figures():
    result = simulate_decoding([], OneSecond(), kv_blocks=1)
    assert result.requests == 0
    assert result.throughput_rps is result.goodput_rps is result.queue_ms is result.ttft_ms["p50"] is None


def test_a_policy_that_forgets_its_requests_is_told():
    class Forgets(Once):
        def next_step(self, now):
            return None

    context = StepContext(9, OneSecond())
    with pytest.raises(PolicyError, match="returned no step with 1 requests in flight"):
        run_steps(
            Forgets(step_policy_settings("continuous").build(context)), iter([StepRequest(0, 0.0, 8, 2)]), context
        )
