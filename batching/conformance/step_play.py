"""Play a history against a step policy as a replica would, and check every answer against the rules.

`CheckedStepPolicy` checks what every driver checks. This file adds what a driver does not look at: whether `submit`
refuses without need, whether a policy reads a clock, and whether repetitions are what it would answer again. After the
last event, steps run until every request has ended.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.batching.accounting import Ledger
from headrace.batching.conformance.instruments import (
    Broken,
    Instruments,
    RuleBroken,
    Spy,
    add_line,
    play_events,
    watched,
)
from headrace.batching.conformance.step_histories import COME, STEP, StepEvent, StepHistory
from headrace.batching.errors import UsageError, one_line
from headrace.batching.policy import Rule
from headrace.batching.steps.checked_policy import CheckedStepPolicy
from headrace.batching.steps.policy import (
    NO_CLOCK,
    NO_ERRORS,
    NOTHING_LOST,
    REFUSALS,
    RULES,
    StepContext,
    StepPolicy,
)
from headrace.batching.steps.request import Step, StepRequest

_BY_NAME: Final = {rule.name: rule for rule in RULES}
_MAX_TURNS: Final = 200  # repetitions without which no history ends; and some for each token
_TURNS_A_TOKEN: Final = 20  # a request may be preempted and recomputed again and again


class UnitSteps:
    """A step takes 1/16 s, and a little more for each token. All times are sums of powers of two."""

    def seconds(self, prefill: Sequence[tuple[int, int]], decode_requests: int, decode_context_tokens: int) -> float:
        """Return the duration (s) of one step."""
        tokens = decode_requests
        for new, _ in prefill:
            tokens += new
        return 2.0**-4 + tokens * 2.0**-12 + decode_context_tokens * 2.0**-18


class UnitEncoder:
    """An encoder takes 1/16 s, and a little more for each token."""

    def seconds(self, items: Sequence[int]) -> float:
        """Return the duration (s) of encoding items together."""
        return 2.0**-4 + sum(items) * 2.0**-12


@dataclass(frozen=True, slots=True)
class StepBench:
    """A step policy to check: its name, and what makes it for a replica."""

    name: str
    build: Callable[[StepContext], StepPolicy]


@dataclass(slots=True)
class StepsPlayed:
    """The outcome of a history.

    Args:
        broken: The first rule that was broken, if any.
        timeline: What happened, a line each.
        ended: The time (s) at which each request ended, by its number.
    """

    broken: Broken | None = None
    timeline: list[str] = field(default_factory=list)
    ended: dict[int, float] = field(default_factory=dict)


def play_steps(
    bench: StepBench,
    history: StepHistory,
    instruments: Instruments | None = None,
    *,
    spying: bool = False,
    once: bool = False,
) -> StepsPlayed:
    """Play a history.

    Args:
        bench: The policy.
        history: The history.
        instruments: What the caller lends.
        spying: Watch the calls of the policy for clocks, input and output.
        once: Ask the policy before every repetition of a step, though it allows several.
    """
    player = Replica(bench, history.blocks, history.block_size, instruments or Instruments(), spying, once)
    play_events(player, history.events, _BY_NAME)
    return player.found


class Replica:
    """The driver of one history, on one replica."""

    def __init__(
        self, bench: StepBench, blocks: int, block_size: int, instruments: Instruments, spying: bool, once: bool
    ) -> None:
        self.found = StepsPlayed()
        self.played = 0  # events
        self.calling = "build"
        self.flight: dict[int, StepRequest] = {}
        self.now = 0.0
        self._bench = bench
        self._context = StepContext(blocks, UnitSteps(), block_size, UnitEncoder())
        self._around = instruments.around
        self._spy = Spy() if spying else None
        self._once = once
        self._ledger = Ledger()
        self._came: set[int] = set()
        self._tokens = 0  # of all requests that came

    def breaks(self, rule: Rule, message: str) -> None:
        """Note that a rule was broken by the last call."""
        self._tell(f"{self.calling} breaks the rule {rule.name}")
        self.found.broken = Broken(rule, message, tuple(self.found.timeline), self.played)

    def begin(self) -> None:
        """Make the policy."""
        context = self._context
        self._tell(f"a new policy for a KV cache of {context.kv_blocks} blocks of {context.block_size} tokens")
        try:
            made = self._call("build", self._bench.build, context)
        except UsageError:
            raise
        except Exception as error:
            raise RuleBroken(NO_ERRORS, f"build raised {one_line(error)}") from error
        self._checked: CheckedStepPolicy = self._call(
            "reading its methods", CheckedStepPolicy, made, context.kv_blocks, context.block_size, self._ledger
        )
        self._max_tokens: int = made.max_num_batched_tokens

    def happens(self, event: StepEvent) -> None:
        """Play one event. One that does not apply is left out."""
        if event.kind == COME:
            for number in range(event.request, event.request + event.count):
                if number not in self._came:
                    self.submit(self._request(number, event))
        elif event.kind == STEP:
            left = event.count
            while left > 0 and self.flight:
                left -= self.step(left)
        else:
            self.withdraw(event.request)
        self._ledger.check()

    def _request(self, number: int, event: StepEvent) -> StepRequest:
        return StepRequest(
            number,
            self.now,
            event.prompt + sum(event.items),
            event.output,
            event.output + event.further,
            event.items,
            self.now + event.first_token_s,
            event.tpot_s,
        )

    def submit(self, request: StepRequest) -> bool:
        """Submit a request. Return whether the policy took it."""
        longest = request.prompt_tokens + request.max_output_tokens - 1
        items = f", items of {', '.join(map(str, request.items))}" if request.items else ""
        self._came.add(request.id)
        taken: bool = self._call("submit", self._checked.submit, request, self.now)
        lengths = f"{request.prompt_tokens} + {request.output_len} of at most {request.max_output_tokens} tokens{items}"
        self._tell(f"submit request {request.id} ({lengths})" + ("" if taken else ": refused"))
        if taken:
            self.flight[request.id] = request
            self._tokens += longest
            return True
        capacity = self._context.kv_blocks * self._context.block_size
        if not request.items and longest <= min(capacity, self._max_tokens):
            raise RuleBroken(
                REFUSALS,
                f"submit refused request {request.id}, which may have {longest} tokens; the KV cache holds {capacity}, "
                f"and a step {self._max_tokens}: take it",
            )
        return False

    def withdraw(self, number: int) -> None:
        """Withdraw a request. Where none of this number is in flight, another object stands for it."""
        request = self.flight.pop(number, None) or StepRequest(number, self.now, 1, 1)
        answer = self._call("withdraw", self._checked.withdraw, request, self.now)
        self._tell(f"withdraw request {number}: {answer}")
        request.held_by = None  # ends the circle of references

    def step(self, max_repeats: int) -> int:
        """Run a step, with `max_repeats` repetitions at most. Return how many ran."""
        step = self._call("next_step", self._checked.next_step, self.now)
        repeats = 1 if self._once else min(max_repeats, self._checked.max_repeats)
        self._tell(f"{_words(step)}" + (f", {repeats} times" if repeats > 1 else ""))
        seconds, context = 0.0, self._checked.decode_context
        if self._checked.items:
            seconds += self._context.encoder.seconds(self._checked.items) if self._context.encoder is not None else 0.0
        for _ in range(repeats):
            seconds += self._context.latency.seconds(self._checked.chunks, len(step.decoding), context)
            context += len(step.decoding)
        self.now += seconds
        ended = self._call("complete", self._checked.complete, step, repeats, self.now)
        for request in ended.finished:
            self._tell(f"request {request.id} ends")
            self.found.ended[request.id] = self.now
            del self.flight[request.id]
            request.held_by = None
        return repeats

    def drain(self) -> None:
        """Run steps until every request has ended."""
        if self._came:
            self._tell("nothing more comes: steps run until every request has ended")
        left = _MAX_TURNS + _TURNS_A_TOKEN * self._tokens
        while self.flight:
            left -= self.step(left)
            if left <= 0:
                raise RuleBroken(NOTHING_LOST, f"{len(self.flight)} requests do not come to their end; let them end")
        answer = self._call("next_step", self._checked.next_step, self.now)
        if answer is not None:
            raise RuleBroken(NOTHING_LOST, "next_step returned a step though no request is in flight; return None")

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        self.calling = name
        return watched(name, function, arguments, self._around, self._spy, NO_CLOCK)

    def _tell(self, text: str) -> None:
        add_line(self.found.timeline, f"{self.now:8.3f} s  {text}")


def _words(step: Step) -> str:
    parts = [f"{what} {', '.join(of)}" for what, of in _parts(step) if of]
    return f"step: {'; '.join(parts)}"


def _parts(step: Step) -> list[tuple[str, list[str]]]:
    return [
        ("preempts", [str(request.id) for request in step.preempted]),
        ("encodes", [f"{items} items of {request.id}" for request, items in step.encoder]),
        ("prefills", [f"{tokens} tokens of {request.id}" for request, tokens in step.prefill]),
        ("decodes", [str(request.id) for request in step.decoding]),
    ]
