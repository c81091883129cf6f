"""`earliest-deadline`: an idle worker serves the model whose first request is due first, in the largest batch that
leaves it in time, and passes over who would make that batch smaller. The eager kind of scheduler that knows deadlines:
Nexus within a model (Shen et al., SOSP 2019, early drop), Clockwork between them (Gujarati et al., OSDI 2020)."""

from headrace.batching.policies.shared.deadline_queue import DeadlineBatching, DeadlineQueue


class EarliestDeadline(DeadlineBatching):
    def plan(self) -> None:
        for line in self.line_list:
            line.leaves = line.oldest()

    def urgency(self, line: DeadlineQueue) -> float:
        return line.due[line.head]
