"""`work-conserving`: an idle worker serves all that waits, up to a limit, and never waits beside it. Also "greedy"; a
baseline of the SMDP paper, and `graph` with a window of 0."""

from collections.abc import Iterable

from headrace.batching.context import PolicyContext
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.queue_length import QueueLengthBatching, Rule
from headrace.batching.policies.shared.settings import BatchLimit
from headrace.batching.policy import Policy
from headrace.batching.settings import settings


class WhatWaits(Rule):
    def batch(self, waiting: int, now: float) -> int:
        return min(waiting, self.largest)


class WorkConservingBatching(QueueLengthBatching):
    def __init__(self, graphs: Iterable[ModelGraph], max_batch: int) -> None:
        graphs = tuple(graphs)
        super().__init__(graphs, {graph.name: WhatWaits(max_batch) for graph in graphs})


@settings()
class WorkConserving(BatchLimit):
    """Give an idle worker all waiting requests of a model at once, up to `max_batch`."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        return WorkConservingBatching(context.graphs, self.max_batch)
