"""Test runs with a limit of requests in flight: by hand, against a closed form, and on random requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_latencies import Linear, OneSecond

from headrace.batching.errors import UsageError
from headrace.batching.steps.policy import StepContext
from headrace.batching.steps.registry import step_policy_settings
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding.encoder import EncoderStage
from headrace.sim.decoding.engine import run_steps
from headrace.sim.decoding.simulation import simulate_decoding
from headrace.sim.planner.decoders.stages import preprocess_stage


def run(requests, users, latency=None):
    context = StepContext(1000, latency or OneSecond(), 4)
    policy = step_policy_settings("continuous").build(context)
    return run_steps(policy, iter(requests), context, record=True, users=users)


def sent(tally):
    """Return when each request was sent, by its id."""
    return {request.id: request.arrival for record in tally.records for request, _ in record.step.prefill}


def test_a_request_is_sent_when_a_user_is_free():
    """The drawing in the head of closed_loop.py: A ends at 16 s, B at 8 s, and C is sent then. D comes later."""
    requests = [StepRequest(0, 0.0, 4, 16), StepRequest(1, 0.0, 4, 8), StepRequest(2, 0.0, 4, 10)]
    tally = run([*requests, StepRequest(3, 21.0, 4, 2)], users=2)
    assert sent(tally) == {0: 0.0, 1: 0.0, 2: 8.0, 3: 21.0}
    assert tally.first_tokens.percentiles_ms()["max"] == 1e3  # each counts from when it was sent


def test_a_request_that_comes_while_a_user_is_free_keeps_its_arrival():
    """R1 and R2 come in the first step, and one of two users is free. R2 is sent when R0 ends at 1 s."""
    requests = [StepRequest(0, 0.0, 4, 1), StepRequest(1, 0.25, 4, 3), StepRequest(2, 0.5, 4, 1)]
    assert sent(run(requests, users=2)) == {0: 0.0, 1: 0.25, 2: 1.0}


def test_a_request_that_waits_for_a_user_has_its_targets_from_when_it_is_sent():
    requests = [StepRequest(0, 0.0, 4, 5), StepRequest(1, 1.0, 4, 5, first_token_by=2.5)]
    tally = run(requests, users=1)
    assert [(each.arrival, each.first_token_by) for each in (tally.records[-1].step.decoding)] == [(5.0, 6.5)]
    assert tally.in_time == 2


@pytest.mark.parametrize("users", [1, 7])
def test_users_that_send_together_stay_together(users):
    """Each round has one prefill and 9 steps, so the throughput is users / 10 s."""
    result = simulate_decoding(
        (StepRequest(number, 0.0, 8, 10) for number in range(20 * users)), OneSecond(), kv_blocks=100, users=users
    )
    assert result.throughput_rps == pytest.approx(users / 10)
    assert result.batch_size_mean == users
    assert result.ttft_ms["max"] == result.tpot_ms["max"] == 1e3


@given(
    parts=st.lists(
        st.tuples(st.sampled_from([0.0, 2**-8, 2**-5, 1.0]), st.integers(1, 40), st.integers(1, 20)),
        min_size=1,
        max_size=20,
    ),
    users=st.integers(1, 20),
)
def test_no_more_requests_than_users_are_in_flight_and_no_user_waits_without_reason(parts, users):
    requests, at = [], 0.0
    for number, (gap, prompt, output) in enumerate(parts):
        at += gap
        requests.append(StepRequest(number, at, prompt, output))
    tally = run(requests, users, Linear())
    ends = {request.id: record.ended for record in tally.records for request in record.step.finished}
    times = sent(tally)
    assert set(ends) == set(times) == set(range(len(requests)))
    for request in requests:
        now = times[request.id]
        others = [each for each in times if each != request.id and times[each] <= now < ends[each]]
        before = [each for each in others if times[each] < now or each < request.id]
        assert len(before) < users
        if now > request.arrival:  # it waited: just before, every user was occupied
            assert now in ends.values()
            assert sum(times[each] < now <= ends[each] for each in times) >= users
    if users >= len(requests):
        assert times == {request.id: request.arrival for request in requests}


def test_arguments_that_cannot_be_meant_are_told():
    with pytest.raises(UsageError, match="0 users: give at least 1"):
        simulate_decoding([], OneSecond(), kv_blocks=9, users=0)
    for stage in (
        {"encoder": EncoderStage(Linear())},
        {"preprocess": preprocess_stage("cpu:1", processor="qwen2-audio", audio_s=1.0)},
    ):
        with pytest.raises(UsageError, match="leave out users, or preprocess and EncoderStage"):
            simulate_decoding([], OneSecond(), kv_blocks=9, users=1, **stage)
