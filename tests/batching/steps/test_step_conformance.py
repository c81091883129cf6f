"""The conformance check of step policies passes right ones, and names the rule that a wrong one breaks."""

import math
import random
import time
from dataclasses import dataclass

import pytest

from headrace.batching.conformance import Instruments, check_step_policy
from headrace.batching.conformance.instruments import CallTooLong
from headrace.batching.conformance.step_check import KEPT, LEFT
from headrace.batching.conformance.step_histories import COME, STEP, StepEvent, random_step_history
from headrace.batching.errors import BadInput, UsageError
from headrace.batching.steps.policy import RULES
from headrace.batching.steps.registry import (
    STEP_POLICIES,
    find_step_policy,
    step_policy_name,
    step_policy_names,
    step_policy_settings,
)
from headrace.batching.steps.request import Step

FEW = 4  # events


class Right:
    """Serves requests one after another, whole prompts first. Each wrong policy below changes one thing."""

    max_num_batched_tokens, max_num_seqs, max_encoder_tokens = 512, 1, 512

    def __init__(self, context):
        self.context = context
        self.waiting, self.running, self.left = [], None, 0

    def submit(self, request, now):
        if request.items or request.prompt_tokens > self.max_num_batched_tokens or not self.fits(request):
            raise BadInput("it is too large")
        self.waiting.append(request)

    def fits(self, request):
        tokens = request.prompt_tokens + request.max_output_tokens - 1
        return tokens <= self.context.kv_blocks * self.context.block_size

    def next_step(self, now):
        if self.running is None and self.waiting:
            self.running = self.take()
            self.left = self.running.prompt_tokens
        if self.running is None:
            return None
        if self.left:
            return self.prefill()
        return self.decode()

    def take(self):
        return self.waiting.pop(0)

    def prefill(self):
        return Step(prefill=((self.running, self.left),))

    def decode(self):
        return Step(decoding=(self.running,), repeats=1 << 20)

    def complete(self, step, now):
        for _, tokens in step.prefill:
            self.left -= tokens
        if step.finished:
            self.running = None

    def withdraw(self, request, now):
        if self.running is request:
            self.running = None
            return True
        if request not in self.waiting:
            return False
        self.waiting.remove(request)
        return True


def made(cls):
    @dataclass(frozen=True)
    class Settings:
        tasks = "steps"

        def build(self, context):
            return cls(context)

    return Settings()


def found(cls, **more):
    return check_step_policy(made(cls), **more)


def test_a_right_policy_keeps_all_rules():
    check = found(Right)
    assert check.broken is None
    assert check.passed == RULES and check.histories == 100


class NoWithdraw(Right):
    withdraw = None


class Raises(Right):
    def complete(self, step, now):
        raise ZeroDivisionError("division by zero")


class Text(Right):
    def next_step(self, now):
        return "a step"


class Chance(Right):
    draw = random.Random(0)

    def take(self):
        return self.waiting.pop(self.draw.randrange(len(self.waiting)))


class Stranger(Right):
    def complete(self, step, now):
        super().complete(step, now)
        if step.finished:
            self.waiting.insert(0, step.finished[0])  # once more


class Twice(Right):
    def decode(self):
        return Step(decoding=(self.running, self.running))


class Huge(Right):
    max_num_batched_tokens = 8

    def submit(self, request, now):
        if request.items or not self.fits(request):
            raise BadInput("it is too large")
        self.waiting.append(request)


class DecodesFirst(Right):
    def prefill(self):
        return self.decode()


class Unfreed(Right):
    """Goes on to the next request while the first still holds its blocks."""

    def __init__(self, context):
        super().__init__(context)
        self.held = []

    def take(self):
        if self.held and len(self.held) % 2:
            return self.waiting.pop()
        self.held.append(self.waiting[0])
        return self.waiting.pop(0)

    def complete(self, step, now):
        super().complete(step, now)
        if self.running is not None and self.waiting and not self.left:
            self.waiting.append(self.running)
            self.running = None


class RepeatsPrefill(Right):
    def prefill(self):
        return Step(prefill=((self.running, self.left),), repeats=2)


class Hurries(Right):
    """Promises to repeat, but would preempt its request if it were asked before the third repetition."""

    def __init__(self, context):
        super().__init__(context)
        self.asked = 0

    def decode(self):
        self.asked += 1
        if self.asked % 3 == 0:
            self.left = self.running.prompt_tokens
            self.waiting.insert(0, self.running)
            self.redone = self.running
            self.running = None
            return Step(encoder=(), preempted=(self.redone,), prefill=())
        return super().decode()


class Stops(Right):
    def next_step(self, now):
        return None if self.running is None and len(self.waiting) == 1 else super().next_step(now)


class Polite(Right):
    def withdraw(self, request, now):
        super().withdraw(request, now)
        return True


class NewestFirst(Right):
    def take(self):
        return self.waiting.pop()


class Choosy(Right):
    def submit(self, request, now):
        if request.prompt_tokens > 100:
            raise BadInput("it is too long for me")
        super().submit(request, now)


class Collects(Right):
    def __init__(self, context):
        super().__init__(context)
        self.all = []

    def submit(self, request, now):
        super().submit(request, now)
        self.all.append(request)


class Clock(Right):
    def next_step(self, now):
        time.monotonic()
        return super().next_step(now)


@pytest.mark.parametrize(
    ("cls", "rules"),
    [
        (NoWithdraw, {"methods"}),
        (Raises, {"no-errors"}),
        (Text, {"answers"}),
        (Chance, {"same-answers"}),
        (Stranger, {"known-requests"}),
        (Twice, {"one-part"}),
        (Huge, {"token-budget"}),
        (DecodesFirst, {"token-order"}),
        (Unfreed, {"request-limit", "blocks", "token-order"}),
        (RepeatsPrefill, {"repeats"}),
        (Hurries, {"repeats", "token-budget"}),
        (Stops, {"nothing-lost"}),
        (Polite, {"withdrawal"}),
        (NewestFirst, {"no-starvation"}),
        (Choosy, {"refusals"}),
        (Collects, {"forgets"}),
        (Clock, {"no-clock"}),
    ],
)
def test_a_wrong_policy_is_told_with_a_short_history(cls, rules):
    check = found(cls)
    assert check.broken is not None and check.passed == ()
    assert check.broken.rule.name in rules, check.broken.message
    assert check.broken.events <= FEW or check.broken.rule.name == "same-answers"
    assert check.broken.message


def test_repetitions_that_are_not_what_the_policy_would_answer_are_told():
    class Alternates(Right):
        """Lets two requests decode in turns, if it is asked for every token."""

        max_num_seqs = 2

        def __init__(self, context):
            super().__init__(context)
            self.ready, self.turn = [], 0

        def next_step(self, now):
            used = sum(self.blocks(request) for request in self.ready)
            if self.waiting and len(self.ready) < 2 and used + self.blocks(self.waiting[0]) <= self.context.kv_blocks:
                self.ready.append(self.waiting.pop(0))
                return Step(prefill=((self.ready[-1], self.ready[-1].prompt_tokens),))
            if not self.ready:
                return None
            self.turn += 1
            return Step(decoding=(self.ready[self.turn % len(self.ready)],), repeats=9)

        def blocks(self, request):
            return -(-(request.prompt_tokens + request.max_output_tokens - 1) // self.context.block_size)

        def complete(self, step, now):
            self.ready = [request for request in self.ready if request not in step.finished]

        def withdraw(self, request, now):
            for of in (self.ready, self.waiting):
                if request in of:
                    of.remove(request)
                    return True
            return False

    broken = found(Alternates).broken
    assert broken.rule.name == "repeats" and "asked before every repetition" in broken.message
    assert broken.events <= FEW


def test_a_call_that_does_not_return_is_told():
    class Around:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            if self.name == "next_step":
                raise CallTooLong  # as the timer of `headrace check-policy` does

        def __exit__(self, *_):
            pass

    assert found(Right, examples=3, instruments=Instruments(Around)).broken.rule.name == "returns"


@pytest.mark.parametrize("name", STEP_POLICIES)
def test_every_built_in_policy_keeps_all_rules(name):
    seed = random.Random(name).randrange(1000)
    assert check_step_policy(step_policy_settings(name), examples=40, seed=seed).broken is None


def test_a_history_follows_from_its_seed_and_has_events_of_every_kind():
    one, same = (random_step_history(random.Random(3)) for _ in range(2))
    assert one == same
    kinds = {event.kind for number in range(20) for event in random_step_history(random.Random(number)).events}
    assert kinds == {COME, STEP, "withdraw"}
    assert StepEvent(COME).first_token_s == math.inf
    assert KEPT < LEFT / 2


def test_what_is_no_step_policy_is_refused():
    assert step_policy_names()[: len(STEP_POLICIES)] == list(STEP_POLICIES)
    with pytest.raises(UsageError, match="policy 'eager': there is no such policy for models that decode"):
        find_step_policy("eager", "policy")
    with pytest.raises(UsageError, match="must be a dataclass of settings with a method build"):
        find_step_policy("math:pi", "policy")
    with pytest.raises(UsageError, match="its tasks are 'graph', so it is no policy for models that decode"):
        find_step_policy("headrace.batching.policies.graph:Graph", "policy")


def test_a_policy_of_ones_own_has_its_module_and_class_for_a_name():
    settings = made(Right)
    assert step_policy_name(settings).endswith(":made.<locals>.Settings")
    assert find_step_policy("continuous", "policy").package == "headrace"
