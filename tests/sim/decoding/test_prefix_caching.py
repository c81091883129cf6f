"""Test runs with prefix caching: a timeline by hand, an independent simulator with single blocks, and bounds."""

import pytest
from compared_steps import equals_reference, run, workloads
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from step_latencies import Linear, LinearEncoder, OneSecond

from headrace.batching.steps.policy import StepContext
from headrace.batching.steps.registry import STEP_POLICIES, step_policy_settings
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding.engine import run_steps
from headrace.sim.decoding.results import result_of
from headrace.sim.decoding.simulation import simulate_decoding

LIMITS = {"max_num_batched_tokens": 8, "max_num_seqs": 8}


def figures(tally):
    return (
        {request.id: record.ended for record in tally.records for request in record.step.finished},
        tally.first_tokens.percentiles_ms(),
        tally.steps,
        tally.preemptions,
    )


def with_contents(request, contents):
    return StepRequest(
        request.id,
        request.arrival,
        request.prompt_tokens,
        request.output_len,
        items=request.items,
        contents=contents,
    )


@st.composite
def sharing(draw):
    """Return a workload whose requests begin with parts of a few streams of tokens, or of their branches."""
    requests, blocks, *rest = draw(workloads())
    made = []
    for request in requests:
        stream, cut = draw(st.integers(0, 2)), draw(st.integers(1, 60))
        contents = ((stream, min(cut, 12)), (10 + 3 * stream + draw(st.integers(0, 1)), cut)) if cut > 12 else None
        contents = contents or ((stream, cut),)
        made.append(with_contents(request, contents if draw(st.booleans()) else ()))
    return made, blocks, *rest


@given(workload=sharing())
@examples(150, 1500)
def test_runs_equal_those_of_an_independent_simulator_with_single_blocks(workload):
    equals_reference(*workload, True)


def test_a_conversation_a_full_cache_and_a_preemption_as_by_hand():
    """Every step takes one second and at most 8 tokens. The cache has 6 blocks of 4.

    R0 and R1 share 8 tokens of a prompt of 10, and come at 0. R2 comes at 20 s and goes on where R0 ended.

    0 to 1      R0 prefills 8 tokens, blocks 0 and 1 of the shared part.
    1 to 2      R0 prefills the other 2. R1 finds 8 tokens and prefills its other 2. They have 2 + 1 + 1 blocks.
    2 to 4      Both decode twice, and have 12 tokens. R0 has its third and last token and ends. Its own block is
                idle, behind the 2 free ones.
    4 to 8      R1 decodes 4 times, up to 16 tokens in 4 blocks. It takes one of the 2 free ones.
    8 to 12     R1 takes the other one. It ends with its 11th token, and 20 tokens in 5 blocks. All 6 are idle.
    20 to 21    R2 continues R0: 12 tokens of its 15 are found. It prefills 3, in the block that was idle first of those
                that hold something. R0's was the first to be idle, but R2 holds it. So the last one of R1 is evicted.
    """
    requests = [
        StepRequest(0, 0.0, 10, 3, contents=((1, 8), (2, 13))),
        StepRequest(1, 0.0, 10, 11, contents=((1, 8),)),
        StepRequest(2, 20.0, 15, 1, contents=((1, 8), (2, 15))),
    ]
    tally = run("continuous", requests, StepContext(6, OneSecond(), 4, prefix_caching=True), **LIMITS)
    rows = [
        (
            record.started,
            record.ended,
            {request.id: tokens for request, tokens in record.step.prefill},
            {request.id: tokens for request, tokens in record.step.found},
        )
        for record in tally.records
    ]
    assert [row for row in rows if row[2]] == [
        (0.0, 1.0, {0: 8}, {}),
        (1.0, 2.0, {0: 2, 1: 2}, {1: 8}),
        (20.0, 21.0, {2: 3}, {2: 12}),
    ]
    assert tally.evicted_blocks == 1
    result = result_of(tally, wall_s=0.0, prefix_caching=True)
    assert result.prefix_cache == {
        "hit_rate": pytest.approx((8 + 12) / (10 + 10 + 15)),
        "tokens_not_computed": 20,
        "evicted_blocks": 1,
    }


def test_a_preempted_request_finds_its_own_blocks_again():
    """Blocks of 4, and 5 of them. R0 and R1 have prompts of 8 and come at 0. Every step takes one second.

    0 to 1      Both prefill: 2 blocks each.
    1 to 2      Both need a block, and one is free. R1 is preempted. R0 takes the free one.
    2 to 5      R0 decodes up to 12 tokens and ends with its fifth output token. R1 waits for 3 blocks, and 2 were free.
    5 to 6      R1 finds the 8 tokens of its prompt and prefills the token that it had generated.
    """
    requests = [StepRequest(0, 0.0, 8, 5), StepRequest(1, 0.0, 8, 3)]
    for caching, again in ((True, 8), (False, 0)):
        tally = run(
            "continuous",
            requests,
            StepContext(5, OneSecond(), 4, prefix_caching=caching),
            **{
                **LIMITS,
                "max_num_batched_tokens": 16,
            },
        )
        assert tally.preemptions == 1
        assert (tally.found_tokens, tally.found_again) == (0, again)
        resumed = next(record for record in tally.records if record.started == 5.0)
        assert {request.id: tokens for request, tokens in resumed.step.prefill} == {1: 9 - again}


@pytest.mark.parametrize("name", STEP_POLICIES)
@given(workload=sharing(), share=st.sampled_from([0.0, 1.0]))
@examples(30, 300)
def test_every_policy_serves_all_and_the_blocks_add_up(name, workload, share):
    """Repetitions of steps change nothing, and a share of 1 still prevents preemptions."""
    requests, blocks, size, budget, seqs, encoder_budget = workload
    context = StepContext(blocks, Linear(), size, LinearEncoder(), True)
    limits = {"max_num_batched_tokens": 256 if name == "cellular" else budget, "max_num_seqs": seqs}
    limits |= {"max_encoder_tokens": encoder_budget, "reserved_output": share}
    policy = step_policy_settings(name, limits).build(context)
    checked = BlocksAddUp(policy)
    tally = run_steps(checked, iter(requests), context, record=True)
    assert tally.ledger.finished == len(requests)
    assert share < 1.0 or tally.preemptions == 0
    assert policy.cache.free == blocks
    assert policy.prefixes.overlap == policy._promised == 0
    many = run_steps(step_policy_settings(name, limits).build(context), iter(requests), context, record=True)
    assert figures(many) == figures(tally)
    assert (many.found_tokens, many.found_again, many.evicted_blocks) == (
        tally.found_tokens,
        tally.found_again,
        policy.evicted_blocks,
    )


class BlocksAddUp:
    """A policy without repetitions. After each step, the blocks that requests hold, the idle ones and the rest are
    counted one by one."""

    def __init__(self, policy):
        self._policy = policy
        self.max_num_batched_tokens = policy.max_num_batched_tokens
        self.max_num_seqs = policy.max_num_seqs
        self.max_encoder_tokens = policy.max_encoder_tokens
        self.submit, self.withdraw = policy.submit, policy.withdraw

    def next_step(self, now):
        step = self._policy.next_step(now)
        return step and type(step)(step.prefill, step.decoding, step.encoder, step.preempted, 1, (), step.found)

    def complete(self, step, now):
        policy = self._policy
        policy.complete(step, now)
        cache, prefixes = policy.cache, policy.prefixes
        held, own = set(), 0
        for entry in policy._entries.values():
            if entry.waits:
                assert not entry.chain.runs
                continue
            decodes = entry.request.id in policy.decoding
            tokens = entry.base + cache.steps if decodes else entry.computed
            own += cache.needed(tokens) - entry.chain.blocks  # those that no other request can find
            for part, end in zip(entry.chain.runs, entry.chain.ends, strict=True):
                held.add(part)
                while part.end < end:
                    part = part.tail
                    held.add(part)
        runs = {run for each in prefixes._runs.values() for run in each}
        assert held == {run for run in runs if run.holders}
        idle = sum(run.end - run.start for run in runs - held)
        assert idle == prefixes.idle <= cache.free
        assert own + sum(run.end - run.start for run in held) + cache.free == cache.blocks


@given(workload=workloads(), name=st.sampled_from(sorted(STEP_POLICIES)))
@examples(40, 400)
def test_requests_that_share_nothing_are_served_as_without_the_cache(workload, name):
    """They never find anything but their own tokens after a preemption, so none is preempted here."""
    requests, blocks, size, budget, seqs, _ = workload
    limits = {"max_num_batched_tokens": 256 if name == "cellular" else budget, "max_num_seqs": seqs}
    limits["reserved_output"] = 1.0
    tallies = [
        run(name, requests, StepContext(blocks, Linear(), size, LinearEncoder(), on), **limits) for on in (False, True)
    ]
    assert figures(tallies[0]) == figures(tallies[1])
    assert tallies[1].found_tokens == tallies[1].found_again == 0


@given(workload=sharing())
@examples(40, 400)
def test_a_request_alone_never_waits_longer_for_its_first_token(workload):
    requests, blocks, size, budget, seqs, _ = workload
    apart = [
        StepRequest(each.id, 1e3 * each.id, each.prompt_tokens, each.output_len, contents=each.contents)
        for each in requests
    ]
    limits = {"max_num_batched_tokens": budget, "max_num_seqs": seqs}
    starts = []
    for caching in (False, True):
        tally = run("continuous", apart, StepContext(blocks, Linear(), size, None, caching), **limits)
        first = {}
        for record in tally.records:
            for request, _ in record.step.prefill:
                first[request.id] = record.ended
        starts.append(first)
    assert all(starts[1][id] <= starts[0][id] for id in starts[0])


def test_the_same_prompt_again_costs_one_block():
    """A prompt of 64 tokens comes 5 times, one after another. Each time but the first, its last block is computed."""
    requests = [StepRequest(number, 100.0 * number, 64, 4, contents=((3, 64),)) for number in range(5)]
    result = simulate_decoding(requests, OneSecond(), kv_blocks=64, prefix_caching=True)
    assert result.prefix_cache == {
        "hit_rate": pytest.approx(4 * 48 / (5 * 64)),
        "tokens_not_computed": 192,
        "evicted_blocks": 0,
    }
    assert simulate_decoding(requests, OneSecond(), kv_blocks=64).prefix_cache is None
