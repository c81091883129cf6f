"""`deferred`: a batch waits for company as long as that costs nobody the deadline (Symphony, Chen et al., 2023, arXiv
2308.07470).

A batch leaves when one more could not join it without making its first late, or when it has reached its target. Where
this goes on from the paper, which has many workers:

- Batches of several models must not all leave at their last moment. They are planned backwards from their deadlines,
  the last first, each on the worker that leaves it the most time; so a batch leaves early enough for those behind it.
- No request waits beside an idle worker for longer than `MAX_WAIT_S`, and one without a deadline does not wait there
  at all, as nothing says for how long it might.
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
    def plan(self) -> None:
        waiting = [(line.tightest(), line) for line in self.line_list if line.size() > 0]
        waiting.sort(key=lambda entry: -entry[0][0])
        before = [math.inf] * self.workers  # by when a worker must be free again
        for (deadline, longest), line in waiting:
            joined = line.size() + 1
            if (
                deadline == math.inf
                or joined > line.max_batch
                or line.too_large(joined, longest, line.budget_s(line.head))
            ):
                line.leaves = line.oldest()
                continue
            worker = before.index(max(before))
            alone = min(deadline - line.predicted_s(joined, longest), line.oldest() + MAX_WAIT_S)
            line.leaves = min(alone, before[worker] - line.predicted_s(line.size(), longest))
            before[worker] = line.leaves

    def urgency(self, line: DeadlineQueue) -> float:
        return line.due[line.head] - line.predicted_s(line.count, line.tightest()[1])

    def reason(self, line: DeadlineQueue) -> str:
        return FULL if line.count == line.max_batch else DEADLINE


@settings()
class Deferred(LimitAndPrediction):
    """Let a batch wait for more requests as long as no request misses its deadline by it (Symphony)."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        steps = context.decoder_steps(self.dec_timesteps, self.coverage)
        return DeferredBatching(context.slowest(self.max_batch), context.workers, self.max_batch, steps)
