"""Runs of `continuous`, random workloads of them, and their comparison with the independent simulator."""

import pytest
from hypothesis import strategies as st
from reference_steps import serve
from step_latencies import Linear, LinearEncoder

from headrace.batching.steps.policy import StepContext
from headrace.batching.steps.registry import step_policy_settings
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding.engine import run_steps
from headrace.sim.decoding.results import result_of


def run(policy, requests, context, **limits):
    return run_steps(step_policy_settings(policy, limits).build(context), iter(requests), context, record=True)


@st.composite
def workloads(draw):
    seqs, size = draw(st.integers(1, 6)), draw(st.sampled_from([1, 2, 4, 16]))
    requests, at = [], 0.0
    for number in range(draw(st.integers(1, 14))):
        at += draw(st.sampled_from([0.0, 2**-8, 2**-5, 0.25, 4.0]))
        images = tuple(draw(st.lists(st.integers(1, 12), max_size=3))) if draw(st.booleans()) else ()
        requests.append(
            StepRequest(number, at, draw(st.integers(1, 50)) + sum(images), draw(st.integers(1, 40)), items=images)
        )
    longest = max(request.prompt_tokens + request.output_len - 1 for request in requests)
    blocks = -(-longest // size) + draw(st.integers(0, 30))
    return requests, blocks, size, max(seqs, draw(st.integers(1, 64))), seqs, draw(st.integers(1, 24))


def equals_reference(requests, blocks, size, budget, seqs, encoder_budget, caching):
    """Assert that a run of `continuous` equals that of the independent simulator, and return its figures."""
    context = StepContext(blocks, Linear(), size, LinearEncoder(), caching)
    tally = run(
        "continuous",
        requests,
        context,
        max_num_batched_tokens=budget,
        max_num_seqs=seqs,
        max_encoder_tokens=encoder_budget,
    )
    times, log, evicted = serve(
        requests,
        context.latency,
        context.encoder,
        blocks=blocks,
        size=size,
        budget=budget,
        seqs=seqs,
        encoder_budget=encoder_budget,
        caching=caching,
    )
    first, ends = {}, {}
    for record in tally.records:
        for request, _ in record.step.prefill:
            first[request.id] = record.ended  # the last chunk before a preemption, at first
        for request in record.step.finished:
            ends[request.id] = record.ended
    assert ends == {id: end for id, (_, end) in times.items()}
    assert tally.steps == len(log)
    assert tally.preemptions == sum(len(preempted) for _, _, preempted, _ in log)
    assert tally.found_tokens + tally.found_again == sum(sum(found.values()) for _, _, _, found in log)
    assert tally.evicted_blocks == evicted
    started = {record.started: record for record in tally.records}
    for now, tokens, preempted, found in log:
        if now in started:  # others are repetitions
            step = started[now].step
            planned = {request.id: number for request, number in step.prefill}
            assert tokens == {**planned, **{request.id: 1 for request in step.decoding}}
            assert preempted == [request.id for request in step.preempted]
            assert found == {request.id: number for request, number in step.found}
    result = result_of(tally, wall_s=0.0)
    waits = [times[request.id][0] - request.arrival for request in requests]
    assert result.ttft_ms["max"] == 1e3 * max(waits)
    assert result.ttft_ms["mean"] == pytest.approx(1e3 * sum(waits) / len(waits))
    return tally
