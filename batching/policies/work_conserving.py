"""`work-conserving`: an idle worker serves all that waits, up to a limit, and never waits beside it. Also "greedy"; a
baseline of the SMDP paper, and `graph` with a window of 0."""

from collections.abc import Iterable

from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.queue_length import QueueLengthBatching, Rule


class WhatWaits(Rule):
    def batch(self, waiting: int, now: float) -> int:
        return min(waiting, self.largest)


class WorkConserving(QueueLengthBatching):
    def __init__(self, graphs: Iterable[ModelGraph], max_batch: int) -> None:
        graphs = tuple(graphs)
        super().__init__(graphs, {graph.name: WhatWaits(max_batch) for graph in graphs})
