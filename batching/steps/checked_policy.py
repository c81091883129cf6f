"""Checks of a step policy's answers, and the progress of each request, in one place for all drivers.

A driver asks a CheckedStepPolicy instead of the policy itself. It checks each answer against the rules of policy.py,
and raises PolicyError with the rule's name. It keeps its own count of tokens and blocks, apart from the policy's.

A request that decodes is touched when the requests that decode change, and not in each step. `Request.held_by` has the
progress of a request, also after its end.

This file is compiled (setup.py).
"""

from collections.abc import Callable
from typing import Final

from headrace.batching.accounting import Ledger
from headrace.batching.errors import BadInput, PolicyError, one_line
from headrace.batching.policy import Rule
from headrace.batching.steps.policy import (
    ANSWERS,
    BLOCKS,
    ENCODED_FIRST,
    ENCODER_BUDGET,
    FOUND_TOKENS,
    KNOWN_REQUESTS,
    METHODS,
    NO_ERRORS,
    NOTHING_LOST,
    ONE_PART,
    PREEMPTION,
    REPEATS,
    REQUEST_LIMIT,
    TOKEN_BUDGET,
    TOKEN_ORDER,
    WITHDRAWAL,
    StepPolicy,
)
from headrace.batching.steps.request import Step, StepRequest

METHOD_NAMES: Final = ("submit", "next_step", "complete", "withdraw")


class Progress:
    """The progress of one request in flight.

    `computed` counts its tokens in the cache, `generated` its output tokens, and `encoded` its encoder items. While
    it is `decoding`, the steps since its last change are missing in the first two. It found `found` of the computed
    ones in the cache. `step` is the number of the last step in which it was checked. The times (s) are for the
    driver: -1 until it sets them.
    """

    def __init__(self, request: StepRequest, owner: object) -> None:
        self.request: Final[StepRequest] = request
        self.owner: object = owner  # None when the request has ended
        self.computed: int = 0
        self.generated: int = 0
        self.encoded: int = 0
        self.found: int = 0
        self.decoding: bool = False
        self.step: int = 0
        self.started: float = -1.0
        self.first_token: float = -1.0


class CheckedStepPolicy:
    """Asks a step policy for a driver, and raises PolicyError where an answer breaks a rule.

    After `next_step` returned a step, these describe it for the driver:

    - `chunks`: for each chunk, its tokens and the tokens of the request that are in the cache already.
    - `items`: the tokens of each encoder item.
    - `decode_context`: the tokens to which the decoding requests attend in the first repetition, with their own. Each
      repetition adds one for each of them.
    - `max_repeats`: the largest number of repetitions, after which an output ends.

    Args:
        policy: The policy to check.
        blocks: The blocks of the KV cache.
        block_size: The tokens of one block.
        ledger: The driver's ledger.
        prefix_caching: Whether requests may find tokens in the cache. The blocks that they find are not counted.
    """

    def __init__(
        self, policy: StepPolicy, blocks: int, block_size: int, ledger: Ledger, prefix_caching: bool = False
    ) -> None:
        self.name: Final[str] = f"{type(policy).__module__}:{type(policy).__qualname__}"
        for method in METHOD_NAMES:
            if not callable(getattr(policy, method, None)):
                raise self._broke(METHODS, f"it has no method {method!r}", "give it one (batching/steps/policy.py)")
        self._submit: Callable[[StepRequest, float], object] = policy.submit
        self._next_step: Callable[[float], object] = policy.next_step
        self._complete: Callable[[Step, float], object] = policy.complete
        self._withdraw: Callable[[StepRequest, float], object] = policy.withdraw
        self._max_tokens: int = policy.max_num_batched_tokens
        self._max_requests: int = policy.max_num_seqs
        self._max_encoder_tokens: int = policy.max_encoder_tokens
        if min(self._max_tokens, self._max_requests, self._max_encoder_tokens) < 1:
            raise self._broke(METHODS, "one of its limits is below 1", "give limits of 1 or more")
        self._blocks: int = blocks
        self._block_size: int = block_size
        self._ledger: Ledger = ledger
        self._prefix_caching: bool = prefix_caching
        self._used: int = 0  # blocks
        self._holders: int = 0  # requests with tokens in the cache
        self._number: int = 0  # of the step
        self._running: Step | None = None
        # The requests that decode, and how many steps they have decoded since their progress was written.
        self._decoding: tuple[StepRequest, ...] = ()
        self._progress: list[Progress] = []
        self._since: int = 0
        self._context: int = 0  # tokens in the cache of these requests
        self._left: int = 0  # output tokens of the one that ends first
        self.chunks: list[tuple[int, int]] = []
        self.items: list[int] = []
        self.decode_context: int = 0
        self.max_repeats: int = 1

    def submit(self, request: StepRequest, now: float) -> bool:
        """Hand a request to the policy. Return False, after counting it as failed, if it can never run to its end."""
        self._ledger.submit(request)
        try:
            self._submit(request, now)
        except BadInput:
            self._ledger.fail(request)
            return False
        except Exception as error:
            raise self._raised("submit", error) from error
        request.held_by = Progress(request, self)
        return True

    def progress(self, request: StepRequest) -> Progress:
        """Return the progress of a request in flight. Raises PolicyError for any other."""
        progress = request.held_by
        if not isinstance(progress, Progress) or progress.owner is not self:
            raise self._broke(
                KNOWN_REQUESTS, f"a step has request {request.id}, which is not in flight", "give it requests that are"
            )
        return progress

    def next_step(self, now: float) -> Step | None:
        """Return the step that the replica must run now, or None if no request is in flight."""
        try:
            answer = self._next_step(now)
        except Exception as error:
            raise self._raised("next_step", error) from error
        if answer is None:
            if self._ledger.in_flight > 0:
                raise self._broke(
                    NOTHING_LOST, f"it returned no step with {self._ledger.in_flight} requests in flight", "return one"
                )
            return None
        if not isinstance(answer, Step):
            raise self._broke(ANSWERS, f"next_step returned a {type(answer).__name__}", "return a Step, or None")
        step = answer
        self._number += 1
        self.chunks = []
        self.items = []
        try:
            if step.decoding is not self._decoding or len(step.preempted) > 0:
                self._write()
                self._check_parts(step)
                self._starts_decoding(step.decoding)
            elif len(step.prefill) > 0 or len(step.encoder) > 0:
                self._check_parts(step)
        except (TypeError, ValueError) as error:
            raise self._broke(
                ANSWERS, f"a step has wrong parts: {one_line(error)}", "give tuples of requests, with whole numbers"
            ) from error
        tokens = len(step.decoding)
        for chunk in self.chunks:
            tokens += chunk[0]
        if tokens > self._max_tokens or (tokens == 0 and len(self.items) == 0):
            raise self._broke(
                TOKEN_BUDGET, f"a step has {tokens} tokens", f"give it 1 to {self._max_tokens}, or encoder items"
            )
        alone = tokens == len(step.decoding) and len(self.items) == 0 and len(step.preempted) == 0
        if step.repeats < 1 or (step.repeats > 1 and not alone):
            raise self._broke(
                REPEATS, f"a step is repeated {step.repeats} times", "repeat only steps that decode alone"
            )
        self.decode_context = self._context + len(step.decoding) * (self._since + 1)
        self.max_repeats = 1
        if step.repeats > 1:
            self.max_repeats = min(step.repeats, self._left - self._since)
        self._running = step
        return step

    def complete(self, step: Step, repeats: int, now: float) -> Step:
        """Tell the policy that the step ended after `repeats` repetitions. Return the step as it ended, with the
        requests whose output ended."""
        assert self._running is step and 1 <= repeats <= self.max_repeats
        self._running = None
        finished: list[StepRequest] = []
        for request, items in step.encoder:
            self.progress(request).encoded += items
        if len(step.decoding) > 0:
            self._since += repeats
            if self._since == self._left:
                decoded = self._progress
                self._write()
                finished = [each.request for each in decoded if each.generated == each.request.output_len]
        for request, tokens in step.prefill:
            progress = self.progress(request)
            self._used += self._needed(progress.computed + tokens) - self._needed(progress.computed)
            self._holders += 1 if progress.computed == 0 else 0
            progress.computed += tokens
            if progress.computed == request.prompt_tokens + progress.generated:
                progress.generated += 1
                if progress.generated == request.output_len:
                    finished.append(request)
        self._check_cache()
        for request in finished:
            self._ledger.finish(request)
            self._forget(self.progress(request))
        ended = step.ended(repeats, tuple(finished))
        try:
            self._complete(ended, now)
        except Exception as error:
            raise self._raised("complete", error) from error
        return ended

    def withdraw(self, request: StepRequest, now: float) -> bool:
        """Withdraw a request, and count it as cancelled. Return whether it was in flight."""
        assert self._running is None
        known = isinstance(request.held_by, Progress) and request.held_by.owner is self
        try:
            answer = self._withdraw(request, now)
        except Exception as error:
            raise self._raised("withdraw", error) from error
        if answer is not known:
            raise self._broke(
                WITHDRAWAL, f"withdraw returned {answer!r:.20} for request {request.id}", f"return {known} there"
            )
        if known:
            self._write()
            self._forget(self.progress(request))
            self._ledger.cancel(request)
        return known

    # ---- within ----

    def _needed(self, tokens: int) -> int:
        return (tokens + self._block_size - 1) // self._block_size

    def _write(self) -> None:
        """Write the progress of the requests that decode, which change now."""
        since = self._since
        if since > 0:
            for progress in self._progress:
                self._used += self._needed(progress.computed + since) - self._needed(progress.computed)
                progress.computed += since
                progress.generated += since
        for progress in self._progress:
            progress.decoding = False
        self._decoding = ()
        self._progress = []
        self._since = self._context = self._left = 0
        self._check_cache()

    def _check_cache(self) -> None:
        if self._used > self._blocks:
            raise self._broke(
                BLOCKS, f"requests hold {self._used} blocks of {self._blocks}", "preempt requests before blocks run out"
            )
        if self._holders > self._max_requests:
            raise self._broke(
                REQUEST_LIMIT, f"{self._holders} requests have blocks", f"admit {self._max_requests} at most"
            )

    def _forget(self, progress: Progress) -> None:
        """Free the blocks of a request that ended. Its progress stays readable in `held_by`."""
        self._used -= self._needed(progress.computed - progress.found)
        self._holders -= 1 if progress.computed > 0 else 0
        progress.owner = None

    def _stands(self, request: object) -> Progress:
        """Return the progress of a request of the step. Raises PolicyError if it stands in the step already."""
        if not isinstance(request, StepRequest):
            raise self._broke(ANSWERS, f"a step has a {type(request).__name__} for a request", "give it requests")
        progress = self.progress(request)
        if progress.step == self._number or progress.decoding:
            raise self._broke(ONE_PART, f"a step has request {request.id} twice", "give it each request once")
        progress.step = self._number
        return progress

    def _check_parts(self, step: Step) -> None:
        for request in step.preempted:
            progress = self._stands(request)
            if progress.computed == 0 and progress.encoded == 0:
                raise self._broke(
                    PREEMPTION, f"request {request.id} is preempted, but has not begun", "preempt requests that run"
                )
            self._used -= self._needed(progress.computed - progress.found)
            self._holders -= 1 if progress.computed > 0 else 0
            progress.computed = progress.found = 0
        for request, tokens in step.found:
            self._check_found(self.progress(request), tokens)
        encoded: dict[int, int] = {}
        for request, items in step.encoder:
            self._check_items(request, items, encoded)
        for request, tokens in step.prefill:
            progress = self._stands(request)
            left = request.prompt_tokens + progress.generated - progress.computed
            if not 1 <= tokens <= left:
                raise self._broke(
                    TOKEN_ORDER, f"request {request.id} prefills {tokens} of {left} tokens", "give a chunk of the rest"
                )
            if progress.encoded + encoded.get(request.id, 0) < len(request.items):
                raise self._broke(
                    ENCODED_FIRST, f"request {request.id} prefills before its items are encoded", "encode them first"
                )
            self.chunks.append((tokens, progress.computed))

    def _check_found(self, progress: Progress, tokens: int) -> None:
        left = progress.request.prompt_tokens + progress.generated - progress.computed
        whole = 1 <= tokens < left and tokens % self._block_size == 0
        if not self._prefix_caching or progress.computed > 0 or not whole:
            raise self._broke(
                FOUND_TOKENS,
                f"request {progress.request.id} finds {tokens} of {left} tokens",
                "let it find whole blocks, with prefix caching",
            )
        progress.computed = progress.found = tokens
        self._holders += 1

    def _check_items(self, request: StepRequest, items: int, encoded: dict[int, int]) -> None:
        first = self.progress(request).encoded
        if request.id in encoded or not 1 <= items <= len(request.items) - first:
            raise self._broke(
                ENCODED_FIRST, f"request {request.id} encodes {items} items from {first} on", "encode each item once"
            )
        encoded[request.id] = items
        self.items.extend(request.items[first : first + items])
        if sum(self.items) > self._max_encoder_tokens and len(self.items) > 1:
            raise self._broke(
                ENCODER_BUDGET, f"a step encodes {sum(self.items)} tokens", f"encode {self._max_encoder_tokens} at most"
            )

    def _starts_decoding(self, requests: tuple[StepRequest, ...]) -> None:
        """Check the requests of a new set that decodes, and count their tokens."""
        context, left = 0, 0
        for request in requests:
            progress = self._stands(request)
            if progress.generated == 0 or progress.computed != request.prompt_tokens + progress.generated - 1:
                raise self._broke(
                    TOKEN_ORDER, f"request {request.id} decodes before its prefill has ended", "prefill it first"
                )
            context += progress.computed
            rest = request.output_len - progress.generated
            if left == 0 or rest < left:
                left = rest
            progress.decoding = True
            self._progress.append(progress)
        self._decoding = requests
        self._context = context
        self._left = left

    # ---- errors ----

    def _broke(self, rule: Rule, what: str, change: str) -> PolicyError:
        return PolicyError(f"policy {self.name!r} broke a rule: {what}; {change}", rule.name)

    def _raised(self, method: str, error: Exception) -> PolicyError:
        return self._broke(NO_ERRORS, f"{method} raised {one_line(error)}", "mend it, as a policy must not raise there")
