"""The policy `earliest-deadline` serves the model whose first request has the earliest deadline.

The batch is the largest one that meets this deadline. Requests that would make it smaller are passed over. The policy
never lets a worker idle while requests wait.

Source: Nexus (Shen et al., SOSP 2019), early drop, for the batch within a model. Clockwork (Gujarati et al., OSDI 2020)
for the order of models. The file shared/deadline_queue.py has the rules.
"""

from headrace.batching.context import PolicyContext
from headrace.batching.policies.shared.deadline_queue import DeadlineBatching, DeadlineQueue
from headrace.batching.policies.shared.settings import LimitAndPrediction
from headrace.batching.policy import Policy
from headrace.batching.settings import settings


class EarliestDeadlineBatching(DeadlineBatching):
    """A `Policy` that serves the earliest deadline first. Its arguments are those of `DeadlineBatching`."""

    def plan(self) -> None:
        for queue in self.queue_list:
            queue.leaves = queue.oldest()

    def urgency(self, queue: DeadlineQueue) -> float:
        return queue.due[queue.head]


@settings()
class EarliestDeadline(LimitAndPrediction):
    """Serve the model whose first request is due first, in the largest batch that meets its deadline."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        steps = context.decoder_steps(self.dec_timesteps, self.coverage)
        return EarliestDeadlineBatching(
            context.slowest(self.max_batch), context.workers, self.max_batch, steps, self.token_limit
        )
