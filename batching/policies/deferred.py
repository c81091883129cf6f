"""The policy `deferred` lets a batch wait for more requests as long as no request misses its deadline by that.

A batch leaves at the last moment at which one more request could still join it without making its first request late.
It leaves earlier if it has reached its target size.

Source: Symphony (Chen et al., 2023, arXiv 2308.07470). The file shared/deadline_queue.py has the target size, the
passing over of late requests, and the margin of 10 % on predicted times.

Rules
-----
1. The queue is ordered by deadline. A batch of size b has to leave by (its earliest deadline) - (predicted time of a
   batch of b + 1).
2. A batch leaves at once if one more request would exceed `max_batch`, the tokens of a batch or the target
   size.
3. Batches of several models are planned backwards from their deadlines, the last one first. Each is planned on the
   worker that leaves it the most time. So a batch leaves early enough for the batches after it.
4. While a worker is idle, no request waits longer than `MAX_WAIT_S`. A request without a deadline does not wait at all,
   because nothing limits its wait.

Example
-------
One worker. A batch of b takes 9 + b ms, and 10 % more in predictions. `max_batch` is 4. R1 to R4 arrive at 0, 5, 20 and
30 ms, each with an slo of 40 ms.

    time (ms)     worker   requests        reason
    25.7 - 37.7   0        R1 R2 R3        deadline
    57.9 - 67.9   0        R4              deadline

- R1 alone could wait until 40 - 1.1 * 11 = 27.9 ms, and with R2 until 40 - 1.1 * 12 = 26.8 ms.
- With R3 the batch can wait until 40 - 1.1 * 13 = 25.7 ms, when a fourth request could join for the last time. It
  leaves then.
- R4 waits for another request until 70 - 1.1 * 11 = 57.9 ms.

Beyond the paper
----------------
Rules 3 and 4 are this project's. The paper has many workers, so its batches do not compete for one worker at their last
moments.
"""

import math

from headrace.batching.context import PolicyContext
from headrace.batching.policies.shared.deadline_queue import DeadlineBatching, DeadlineQueue
from headrace.batching.policies.shared.queue_length import MAX_WAIT_S
from headrace.batching.policies.shared.settings import LimitAndPrediction
from headrace.batching.policy import Policy
from headrace.batching.request import DEADLINE, FULL
from headrace.batching.settings import settings


class DeferredBatching(DeadlineBatching):
    """A `Policy` that lets batches wait for more requests. Its arguments are those of `DeadlineBatching`."""

    def plan(self) -> None:
        waiting = [(queue.tightest(), queue) for queue in self.queue_list if queue.size() > 0]
        waiting.sort(key=lambda entry: -entry[0][0])
        before = [math.inf] * self.workers  # by worker: the time by which it must be free again
        for (deadline, longest), queue in waiting:
            joined = queue.size() + 1
            if deadline == math.inf or queue.full() or queue.too_large(joined, longest, queue.budget_s(queue.head)):
                queue.leaves = queue.oldest()
                continue
            worker = before.index(max(before))
            alone = min(deadline - queue.predicted_s(joined, longest), queue.oldest() + MAX_WAIT_S)
            queue.leaves = min(alone, before[worker] - queue.predicted_s(queue.size(), longest))
            before[worker] = queue.leaves

    def urgency(self, queue: DeadlineQueue) -> float:
        return queue.due[queue.head] - queue.predicted_s(queue.count, queue.tightest()[1])

    def reason(self, queue: DeadlineQueue) -> str:
        return FULL if queue.at_limit() else DEADLINE


@settings()
class Deferred(LimitAndPrediction):
    """Let a batch wait for more requests as long as no request misses its deadline by it (Symphony)."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        steps = context.decoder_steps(self.dec_timesteps, self.coverage)
        return DeferredBatching(
            context.slowest(self.max_batch), context.workers, self.max_batch, steps, self.token_limit
        )
