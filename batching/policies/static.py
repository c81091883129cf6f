"""`static`: wait for a batch of a fixed size. A baseline of the SMDP paper."""

from collections.abc import Iterable

from headrace.batching.context import PolicyContext
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.queue_length import MAX_WAIT_S, QueueLengthBatching, Rule
from headrace.batching.policies.shared.settings import BatchLimit
from headrace.batching.policy import Policy
from headrace.batching.settings import settings


class FullBatches(Rule):
    def batch(self, waiting: int, now: float) -> int:
        return self.largest if waiting >= self.largest else 0


class StaticBatching(QueueLengthBatching):
    def __init__(self, graphs: Iterable[ModelGraph], batch: int, max_wait_s: float = MAX_WAIT_S) -> None:
        graphs = tuple(graphs)
        super().__init__(graphs, {graph.name: FullBatches(batch) for graph in graphs}, max_wait_s)


@settings()
class Static(BatchLimit):
    """Wait until `max_batch` requests are there, and run them as one batch."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        return StaticBatching(context.graphs, self.max_batch)
