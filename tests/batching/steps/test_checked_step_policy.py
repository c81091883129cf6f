"""Test that each wrong answer of a step policy is told, with the rule that it breaks."""

import pytest

from headrace.batching.accounting import Ledger
from headrace.batching.errors import PolicyError
from headrace.batching.steps.checked_policy import CheckedStepPolicy
from headrace.batching.steps.policy import RULES
from headrace.batching.steps.request import Step, StepRequest

# R0 decodes, R1 has prefilled 4 of 9 tokens, R2 waits with two images, R3 has ended, and R4 waits.
R0, R1, R2, R3, R4, STRANGER = (
    StepRequest(0, 0.0, 4, 9),
    StepRequest(1, 0.0, 9, 9),
    StepRequest(2, 0.0, 9, 9, items=(3, 3)),
    StepRequest(3, 0.0, 2, 1),
    StepRequest(4, 0.0, 5, 1),
    StepRequest(5, 0.0, 2, 1),
)
BEFORE = [Step(prefill=((R0, 4), (R3, 2))), Step(prefill=((R1, 4),), decoding=(R0,))]


class Scripted:
    """A policy that returns the steps of a list."""

    max_num_batched_tokens, max_num_seqs, max_encoder_tokens = 8, 2, 4

    def __init__(self, steps):
        self._steps = list(steps)

    def submit(self, request, now):
        pass

    def next_step(self, now):
        return self._steps.pop(0)

    def complete(self, step, now):
        pass

    def withdraw(self, request, now):
        return True


def checked(*steps, blocks=4):
    """Return a checked policy that has run the steps before, and answers with these from now on."""
    made = CheckedStepPolicy(Scripted([*BEFORE, *steps]), blocks, 4, Ledger())
    for request in (R0, R1, R2, R3, R4):
        made.submit(request, 0.0)
    for _ in BEFORE:
        step = made.next_step(0.0)
        made.complete(step, 1, 0.0)
    return made


@pytest.mark.parametrize(
    ("rule", "step"),
    [
        ("answers", "a step"),
        ("answers", Step(prefill=(("R1", 1),))),
        ("answers", Step(prefill=((R1, 1, 1),))),
        ("answers", Step(decoding=("R0",))),
        ("nothing-lost", None),
        ("known-requests", Step(decoding=(R3,))),
        ("known-requests", Step(prefill=((STRANGER, 1),))),
        ("one-part", Step(decoding=(R0, R0))),
        ("one-part", Step(prefill=((R1, 1), (R1, 1)))),
        ("one-part", Step(prefill=((R1, 1),), preempted=(R1,))),
        ("one-part", Step(prefill=((R0, 1),), decoding=(R0,))),
        ("token-budget", Step()),
        ("token-budget", Step(prefill=((R1, 5), (R4, 4)))),
        ("found-tokens", Step(prefill=((R4, 1),), found=((R4, 4),))),  # no prefix caching
        ("token-order", Step(prefill=((R1, 6),))),
        ("token-order", Step(prefill=((R1, 0),))),
        ("token-order", Step(decoding=(R1,))),
        ("one-part", Step(decoding=(R0,), preempted=(R0,))),
        ("encoded-first", Step(prefill=((R2, 3),), encoder=((R2, 1),))),
        ("encoded-first", Step(encoder=((R2, 3),))),
        ("encoded-first", Step(encoder=((R2, 1), (R2, 1)))),
        ("encoder-budget", Step(encoder=((R2, 2),))),
        ("preemption", Step(decoding=(R0,), preempted=(R2,))),
        ("repeats", Step(decoding=(R0,), repeats=0)),
        ("repeats", Step(prefill=((R1, 1),), decoding=(R0,), repeats=2)),
        ("repeats", Step(decoding=(R0,), encoder=((R2, 1),), repeats=2)),
    ],
)
def test_a_wrong_step_is_told(rule, step):
    made = checked(step)
    with pytest.raises(PolicyError) as told:
        made.next_step(0.0)
    assert told.value.rule == rule
    assert rule in {each.name for each in RULES}


def test_blocks_that_there_are_not_are_told():
    made = checked(Step(prefill=((R1, 5),), decoding=(R0,)), blocks=4)
    step = made.next_step(0.0)  # R0 has 6 tokens in 2 blocks, and R1 9 in 3
    with pytest.raises(PolicyError) as told:
        made.complete(step, 1, 0.0)
        made.withdraw(R2, 0.0)  # which writes what was decoded
    assert told.value.rule == "blocks"


def test_more_requests_in_the_cache_than_allowed_are_told():
    made = checked(Step(encoder=((R2, 1),)), Step(encoder=((R2, 1),)), Step(prefill=((R2, 1),)), blocks=99)
    for _ in range(2):
        made.complete(made.next_step(0.0), 1, 0.0)
    step = made.next_step(0.0)
    with pytest.raises(PolicyError) as told:
        made.complete(step, 1, 0.0)
    assert told.value.rule == "request-limit"


def test_the_driver_learns_what_a_step_costs():
    made = checked(Step(prefill=((R1, 5),), encoder=((R2, 1),), decoding=(R0,)), Step(decoding=(R0, R1), repeats=99))
    made.next_step(0.0)
    assert (made.chunks, made.items, made.decode_context, made.max_repeats) == ([(5, 4)], [3], 6, 1)


def test_an_output_ends_the_repetitions():
    made = checked(Step(decoding=(R0,), repeats=99), blocks=99)
    step = made.next_step(0.0)
    assert made.max_repeats == 7  # of 9 tokens, R0 has one from its prefill and one from decoding
    assert made.decode_context == 6
    ended = made.complete(step, 7, 0.0)
    assert (ended.repeats, ended.finished) == (7, (R0,))


def test_a_wrong_answer_to_a_withdrawal_is_told():
    made = checked()
    assert made.withdraw(R2, 0.0)
    with pytest.raises(PolicyError) as told:
        made.withdraw(R3, 0.0)  # it has ended
    assert told.value.rule == "withdrawal"


def test_a_policy_that_raises_is_told():
    class Raises(Scripted):
        def next_step(self, now):
            raise ZeroDivisionError("division by zero")

    with pytest.raises(PolicyError, match="next_step raised ZeroDivisionError"):
        CheckedStepPolicy(Raises([]), 4, 4, Ledger()).next_step(0.0)
    with pytest.raises(PolicyError, match="has no method 'submit'"):
        CheckedStepPolicy(object(), 4, 4, Ledger())


@pytest.mark.parametrize(
    ("request_", "tokens", "right"),
    [
        (R4, 4, True),
        (R4, 3, False),
        (R4, 8, False),
        (R4, 0, False),
        (R1, 4, False),
        (R0, 4, False),
        (STRANGER, 4, None),
    ],
)
def test_found_tokens_are_whole_blocks_of_a_request_that_is_admitted(request_, tokens, right):
    policy = Scripted([*BEFORE, Step(prefill=((request_, 1),), found=((request_, tokens),))])
    policy.max_num_seqs = 3
    made = CheckedStepPolicy(policy, 4, 4, Ledger(), prefix_caching=True)
    for request in (R0, R1, R2, R3, R4):
        made.submit(request, 0.0)
    for _ in BEFORE:
        made.complete(made.next_step(0.0), 1, 0.0)
    if right:
        made.next_step(0.0)
        assert made.chunks == [(1, tokens)]
        return
    with pytest.raises(PolicyError) as told:
        made.next_step(0.0)
    assert told.value.rule == ("known-requests" if right is None else "found-tokens")
