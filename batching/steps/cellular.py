"""The step policy `cellular` is BatchMaker on transformers: a request joins at the next step, with its whole prompt.

Source: BatchMaker (Gao et al., EuroSys 2018), Sections 3 and 4; Orca (Yu et al., OSDI 2022), which does the same for
transformers and calls it iteration-level scheduling.

BatchMaker batches cells that share their weights, and requests join and leave between cells. In a recurrent network,
encoder and decoder cells have different weights, so a task has cells of one type. In a transformer, prefill and
decoding share their weights. A step therefore is one task with both: a decode cell is one token, and a prefill cell is
a whole prompt.

Rules
-----
1. Decode cells come before prefill cells (Section 4.2: decoder nodes have priority over encoder nodes). Each request
   that decodes has one token in each step.
2. The rest of the budget of `max_num_batched_tokens` tokens goes to waiting requests, in the order in which they came.
   A request joins if the budget has room for its whole prompt, if fewer than `max_num_seqs` requests run, and if the
   blocks for its prompt are free. The first that cannot join ends the step's list.
3. A cell is never split. A request with a prompt and output beyond the budget is refused, because it could not be
   prefilled at once after a preemption.

BatchMaker has no limit of memory. Preemption is that of batch.py.

Example
-------
A budget of 8 tokens, and blocks enough. R1 to R3 have prompts of 3, 6 and 2 tokens, and all come before step 1.

    step   prefill     decoding
    1      R1+3
    2      R2+6        R1
    3      R3+2        R1 R2

R2 does not fit beside R1 in step 1, and R3 does not pass it.

This file is compiled (setup.py).
"""

from headrace.batching.settings import setting, settings
from headrace.batching.steps.batch import FirstComeFirstServed, StepBatching
from headrace.batching.steps.policy import StepContext, StepPolicy
from headrace.batching.steps.request import Step
from headrace.batching.steps.settings import MAX_TOKENS, StepLimits


class CellularStepBatching(StepBatching):
    """A `StepPolicy` whose requests join with their whole prompts."""

    def __init__(self, context: StepContext, limits: StepLimits) -> None:
        super().__init__(context, FirstComeFirstServed(), limits, chunked=False)

    def next_step(self, now: float) -> Step | None:
        return None if self.idle() else self.mixed_step(now)


@settings()
class CellularSteps(StepLimits):
    """Let requests join at the next step, each with its whole prompt."""

    max_num_batched_tokens: int = setting(
        default=32768,
        help="Largest number of tokens of a step; no prompt with its output may have more.",
        ge=1,
        le=MAX_TOKENS,
    )

    def build(self, context: StepContext) -> StepPolicy:
        """Return the policy for one replica."""
        return CellularStepBatching(context, self)
