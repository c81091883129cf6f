"""`earliest-deadline`: an idle worker serves the model whose first request is due first, in the largest batch that
leaves it in time, and passes over who would make that batch smaller. The eager kind of scheduler that knows deadlines:
Nexus within a model (Shen et al., SOSP 2019, early drop), Clockwork between them (Gujarati et al., OSDI 2020)."""

from headrace.batching.context import PolicyContext
from headrace.batching.policies.shared.deadline_queue import DeadlineBatching, DeadlineQueue
from headrace.batching.policies.shared.settings import LimitAndPrediction
from headrace.batching.policy import Policy
from headrace.batching.settings import settings


class EarliestDeadlineBatching(DeadlineBatching):
    def plan(self) -> None:
        for line in self.line_list:
            line.leaves = line.oldest()

    def urgency(self, line: DeadlineQueue) -> float:
        return line.due[line.head]


@settings()
class EarliestDeadline(LimitAndPrediction):
    """Serve the model whose first request is due first, in the largest batch that meets its deadline."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        steps = context.decoder_steps(self.dec_timesteps, self.coverage)
        return EarliestDeadlineBatching(context.slowest(self.max_batch), context.workers, self.max_batch, steps)
