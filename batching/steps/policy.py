"""The seam of iteration-level scheduling: the contract of policies for models that decode.

A step policy is a plain state machine, as in batching/policy.py. It reads no clock and does no I/O. One policy serves
one replica of one model, which runs one step at a time:

    submit ... -> next_step -> (the replica runs the step) -> complete -> submit ... -> next_step -> ...

Source: Orca (Yu et al., OSDI 2022) for scheduling by iterations; vLLM (Kwon et al., SOSP 2023) for the blocks of the KV
cache and for preemption by recomputation; Sarathi-Serve (Agrawal et al., OSDI 2024) for prefill in chunks.

A step that only decodes may be repeated (`Step.repeats`). Its policy promises that it would give the same answer after
each repetition, if nothing comes and no request ends before. A driver may therefore ask once for all of them. It must
end the repetitions when a request comes, and when an output ends.

A driver asks through CheckedStepPolicy (checked_policy.py), which checks every answer. The rules stand at the end of
this file. `headrace check-policy` plays random histories against all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from headrace.batching.errors import UsageError
from headrace.batching.policy import Rule
from headrace.batching.steps.request import Step, StepRequest


class StepPolicy(Protocol):
    """A scheduling policy for one replica of a model that decodes. Times are seconds from the run's origin."""

    @property
    def max_num_batched_tokens(self) -> int:
        """Return the largest number of tokens of one step: those of all chunks, and one for each decoding request."""
        ...

    @property
    def max_num_seqs(self) -> int:
        """Return the largest number of requests that have blocks of the KV cache at one time."""
        ...

    @property
    def max_encoder_tokens(self) -> int:
        """Return the largest number of tokens that one step encodes. A larger item is encoded alone."""
        ...

    def submit(self, request: StepRequest, now: float) -> None:
        """Add a request to the policy.

        Raises BadInput for a request that can never run to its end. The policy then keeps nothing of the request."""
        ...

    def next_step(self, now: float) -> Step | None:
        """Return the step that the replica must run now. It is None only if the policy has no requests.

        No step is running. Requests that the policy preempts are named in the step's `preempted`."""
        ...

    def complete(self, step: Step, now: float) -> None:
        """Take back the step that ended, with its repetitions and with the requests whose output ended."""
        ...

    def withdraw(self, request: StepRequest, now: float) -> bool:
        """Remove a request whose caller has gone, in whatever state it is. Return whether the policy knew it.

        No step is running. The call takes at most time in proportion to the policy's requests."""
        ...


class StepLatencyModel(Protocol):
    """The duration of steps of one model on one replica."""

    def seconds(self, prefill: Sequence[tuple[int, int]], decode_requests: int, decode_context_tokens: int) -> float:
        """Return the duration (s) of one step.

        Args:
            prefill: For each chunk, its tokens and the tokens of the same request that are in the cache already.
            decode_requests: The number of requests that decode.
            decode_context_tokens: The sum over these requests of the tokens that they attend to, with their own.
        """
        ...


class EncoderLatencyModel(Protocol):
    """The duration of the encoder of images or audio."""

    def seconds(self, items: Sequence[int]) -> float:
        """Return the duration (s) of encoding items together. `items` are the tokens of each."""
        ...


@dataclass(frozen=True, slots=True)
class StepContext:
    """The facts from which a step policy is built.

    Args:
        kv_blocks: The number of blocks of the KV cache.
        block_size: The tokens of one block.
        latency: Predicts the duration of steps.
        encoder: Predicts the duration of encoding; None for a model without encoder.
        prefix_caching: Whether blocks with equal contents are shared (prefix_cache.py).

    Raises:
        UsageError: A number is below 1.
    """

    kv_blocks: int
    latency: StepLatencyModel
    block_size: int = 16
    encoder: EncoderLatencyModel | None = None
    prefix_caching: bool = False

    def __post_init__(self) -> None:
        if self.kv_blocks < 1 or self.block_size < 1:
            raise UsageError(
                f"a KV cache of {self.kv_blocks} blocks of {self.block_size} tokens: give at least 1 of each"
            )


def _rule(name: str, member: str, sentence: str) -> Rule:
    return Rule(name, sentence, f"batching/steps/policy.py, {member}")


METHODS: Final = _rule("methods", "StepPolicy", "The policy has every method of the contract, and limits of 1 or more.")
NO_ERRORS: Final = _rule("no-errors", "StepPolicy", "No method raises an error, except BadInput in `submit`.")
ANSWERS: Final = _rule("answers", "StepPolicy", "Every answer has the type that the contract gives it.")
SAME_ANSWERS: Final = _rule(
    "same-answers", "head of the file", "Two policies that are told the same give the same answers."
)
KNOWN_REQUESTS: Final = _rule(
    "known-requests", "StepPolicy.next_step", "A step has requests that were submitted and have not ended."
)
ONE_PART: Final = _rule(
    "one-part", "StepPolicy.next_step", "A request stands in a step once: in a chunk, or among those that decode."
)
TOKEN_BUDGET: Final = _rule(
    "token-budget",
    "StepPolicy.max_num_batched_tokens",
    "A step has at least one token or one encoder item, and at most `max_num_batched_tokens` tokens.",
)
REQUEST_LIMIT: Final = _rule(
    "request-limit", "StepPolicy.max_num_seqs", "At most `max_num_seqs` requests have blocks at one time."
)
ENCODER_BUDGET: Final = _rule(
    "encoder-budget",
    "StepPolicy.max_encoder_tokens",
    "A step encodes at most `max_encoder_tokens` tokens, or a single item.",
)
ENCODED_FIRST: Final = _rule(
    "encoded-first",
    "StepPolicy.next_step",
    "A request prefills when all its items are encoded, in this step or before; each item is encoded once.",
)
TOKEN_ORDER: Final = _rule(
    "token-order",
    "StepPolicy.next_step",
    "Chunks follow each other without gap or overlap, and a request decodes when all its tokens but one are computed.",
)
FOUND_TOKENS: Final = _rule(
    "found-tokens",
    "Step.found",
    "Tokens are found at the admission of a request, with prefix caching alone; they are whole blocks, and fewer than "
    "its prefill has.",
)
BLOCKS: Final = _rule("blocks", "StepContext", "The tokens in the cache never take more blocks than there are.")
PREEMPTION: Final = _rule(
    "preemption",
    "StepPolicy.next_step",
    "A preempted request had tokens in the cache or encoded items; it loses its tokens.",
)
REPEATS: Final = _rule(
    "repeats", "Step", "Only a step that decodes alone is repeated, as often as the policy would give the same answer."
)
NOTHING_LOST: Final = _rule(
    "nothing-lost",
    "StepPolicy.next_step",
    "A step follows while there are requests, and every request runs to its end.",
)
WITHDRAWAL: Final = _rule(
    "withdrawal", "StepPolicy.withdraw", "`withdraw` returns True exactly for requests in flight, and keeps nothing."
)
NO_STARVATION: Final = _rule(
    "no-starvation", "StepPolicy.next_step", "A request ends, however many others come after it."
)
REFUSALS: Final = _rule(
    "refusals",
    "StepPolicy.submit",
    "`submit` refuses no request of text that the KV cache and one step can hold, up to its largest output.",
)
FORGETS: Final = _rule("forgets", "StepPolicy", "The policy keeps only a few of the requests that have left it.")
NO_CLOCK: Final = _rule("no-clock", "head of the file", "No method reads a clock, or does input or output.")
RETURNS: Final = _rule("returns", "StepPolicy", "Every call returns in bounded time.")
RULES: Final = (
    METHODS,
    NO_ERRORS,
    ANSWERS,
    SAME_ANSWERS,
    KNOWN_REQUESTS,
    ONE_PART,
    TOKEN_BUDGET,
    REQUEST_LIMIT,
    ENCODER_BUDGET,
    ENCODED_FIRST,
    TOKEN_ORDER,
    FOUND_TOKENS,
    BLOCKS,
    PREEMPTION,
    REPEATS,
    NOTHING_LOST,
    WITHDRAWAL,
    NO_STARVATION,
    REFUSALS,
    FORGETS,
    NO_CLOCK,
    RETURNS,
)
