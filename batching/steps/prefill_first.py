"""The step policy `prefill-first` is the rule of SGLang: a step prefills prompts if any can be, and decodes if not.

Source: SGLang 0.5.6, `python/sglang/srt/managers/scheduler.py` (`get_next_batch_to_run`, `get_new_batch_prefill`) and
`schedule_policy.py` (`PrefillAdder`), first come first served. The names there of the settings are
--chunked-prefill-size, --max-prefill-tokens and --enable-mixed-chunk. Its radix cache shares single tokens, and here
the cache is that of vLLM (prefix_cache.py).

Rules
-----
1. The request that has not finished its prefill goes on first, and waiting requests are admitted in order after it.
   Their chunks have at most `max_num_batched_tokens` tokens together. The last prompt is cut there.
2. A further prompt is admitted only if all of it that is to be computed fits into `max_prefill_tokens`, which all
   chunks of the step share. The first prompt of a step is admitted in any case.
3. A step with a chunk does not decode. The requests that decode wait for it. With `mixed_chunk` they decode in the same
   step, and count in both numbers of tokens.
4. A step without a chunk decodes.
5. Each running request reserves blocks for a share of its largest output. SGLang begins with a share of 0.7, lowers it
   with each step of decoding, and raises it after a preemption. Here it stays.

Preemption is that of batch.py. SGLang preempts the request with the fewest output tokens, which is the same one unless
requests are preempted again and again.

Example
-------
A budget of 4 tokens, and blocks enough. R1 to R3 have prompts of 3, 6 and 2 tokens, and all come before step 1.

    step   prefill     decoding             step   mixed_chunk: prefill   decoding
    1      R1+3 R2+1                        1      R1+3 R2+1
    2      R2+4                             2      R2+3                   R1
    3      R2+1 R3+2                        3      R2+2 R3+1              R1
    4                  R1 R2 R3             4      R3+1                   R1 R2

This file is compiled (setup.py).
"""

from headrace.batching.settings import setting, settings
from headrace.batching.steps.batch import FirstComeFirstServed, StepBatching
from headrace.batching.steps.policy import StepContext, StepPolicy
from headrace.batching.steps.request import Step
from headrace.batching.steps.settings import MAX_TOKENS, StepLimits


class PrefillFirstBatching(StepBatching):
    """A `StepPolicy` that prefers prompts to requests that decode.

    The last two arguments are the settings `max_prefill_tokens` and `mixed_chunk`."""

    def __init__(self, context: StepContext, limits: StepLimits, max_prefill_tokens: int, mixed_chunk: bool) -> None:
        super().__init__(context, FirstComeFirstServed(), limits)
        self._max_prefill_tokens: int = max_prefill_tokens
        self._mixed: bool = mixed_chunk

    def next_step(self, now: float) -> Step | None:
        if self.idle():
            return None
        self.begin_step()
        decoding, reserved = 0, 0
        if self._mixed:
            self.make_room()
            decoding, reserved = len(self.decoding), self.cache.next_growth()
        self._prefill_prompts(decoding, reserved, now)
        if self._mixed or not self.has_parts():
            self.make_room()
            return self.formed(True)
        return self.formed(False)

    def _prefill_prompts(self, decoding: int, reserved: int, now: float) -> None:
        """Add chunks beside so many requests that decode, whose next tokens take `reserved` blocks."""
        budget, whole = self.max_num_batched_tokens - decoding, self._max_prefill_tokens - decoding
        self.advance_partial(budget, reserved)
        while self.partial is None and not self.has_preempted():
            first = self.waiting.first(now)
            if first is None:
                return
            if self.has_parts() and first.total - self.computed(first) >= self.budget_left(whole):
                return
            if not self.admit(first, self.budget_left(budget), reserved):
                return


@settings()
class PrefillFirst(StepLimits):
    """Prefill prompts before anything else, and decode where no prompt can be prefilled."""

    max_prefill_tokens: int = setting(
        default=16384,
        help="Largest number of tokens of a step's prompts, unless it has one alone.",
        ge=1,
        le=MAX_TOKENS,
    )
    mixed_chunk: bool = setting(default=False, help="Let steps with chunks of prompts decode, too.")
    reserved_output: float = setting(
        default=0.7,
        help="Share of its largest output for which a request reserves blocks when it is admitted.",
        ge=0,
        le=1,
        kw_only=True,
        advanced=True,
    )

    def build(self, context: StepContext) -> StepPolicy:
        """Return the policy for one replica."""
        return PrefillFirstBatching(context, self, self.max_prefill_tokens, self.mixed_chunk)
