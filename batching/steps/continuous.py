"""The step policy `continuous` is the default rule of vLLM: a token budget, first come first served, prefill in chunks.

Source: vLLM V1, `Scheduler.schedule` in `vllm/v1/core/sched/scheduler.py`, with the policy "fcfs", chunked prefill and
`scheduler_reserve_full_isl` (its default), and without speculation and connectors. Sarathi-Serve (Agrawal et al., OSDI
2024) for the idea. Prefix caching is that of prefix_cache.py.

Rules
-----
1. Each step has a budget of `max_num_batched_tokens` tokens. Running requests come first, in the order of their
   admission: one token for each that decodes, then the next chunk of the one that has not finished its prefill.
2. If a running request needs a block and none is free, the request that was admitted last is preempted (batch.py).
3. If nothing was preempted, waiting requests are admitted in order. Each gets a chunk of the rest of the budget, until
   the budget is used, `max_num_seqs` requests run, or the blocks for the whole prompt are not free. A preempted request
   needs blocks for its output so far, too.
4. The items of a request are encoded before its prefill, in the same step where `max_encoder_tokens` allows it.
   Requests after it wait for that, as they wait for a prompt that does not fit into a step.

Differences from vLLM: there, requests find the blocks of an output as it grows, and images within the tokens that a
request finds are not encoded. The text before an image is prefilled before the image is encoded, and requests behind
one that waits for its images may run. Here all items come first, and in order. vLLM drops the encoded items of a
preempted request when it needs their room, and here they are kept. Its defaults depend on the GPU.

Example
-------
A budget of 4 tokens, and blocks enough. R1 to R3 have prompts of 3, 6 and 2 tokens, and all come before step 1.

    step   prefill     decoding
    1      R1+3 R2+1
    2      R2+3        R1
    3      R2+2 R3+1   R1
    4      R3+1        R1 R2

This file is compiled (setup.py).
"""

from headrace.batching.settings import settings
from headrace.batching.steps.batch import FirstComeFirstServed, StepBatching
from headrace.batching.steps.policy import StepContext, StepPolicy
from headrace.batching.steps.request import Step
from headrace.batching.steps.settings import StepLimits


class ContinuousBatching(StepBatching):
    """A `StepPolicy` that serves first come first served, with prefill in chunks."""

    def __init__(self, context: StepContext, limits: StepLimits) -> None:
        super().__init__(context, FirstComeFirstServed(), limits)

    def next_step(self, now: float) -> Step | None:
        return None if self.idle() else self.mixed_step(now)


@settings()
class Continuous(StepLimits):
    """Serve first come first served, with prefill in chunks beside decoding."""

    def build(self, context: StepContext) -> StepPolicy:
        """Return the policy for one replica."""
        return ContinuousBatching(context, self)
