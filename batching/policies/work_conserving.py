"""The policy `work-conserving` gives an idle worker all waiting requests at once, up to a limit.

A worker never stays idle while requests wait. The policy is also called greedy. It equals `graph` with a window of 0.

Source: Xu, Sun, Zhou, Niu, "SMDP-Based Dynamic Batching for Efficient Inference on GPU-Based Platforms", ICC 2023,
Section V-B, where it is a baseline.
"""

import math
from collections.abc import Iterable

from headrace.batching.context import PolicyContext
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.queue_length import QueueLengthBatching, Rule
from headrace.batching.policies.shared.settings import BatchLimit
from headrace.batching.policy import Policy
from headrace.batching.settings import settings


class WhatWaits(Rule):
    """Serves all waiting requests, up to the largest batch."""

    def batch(self, waiting: int, now: float) -> int:
        return min(waiting, self.largest)


class WorkConservingBatching(QueueLengthBatching):
    """A `Policy` that never waits. `max_batch` is in requests, `max_tokens` the sum of their input lengths."""

    def __init__(self, graphs: Iterable[ModelGraph], max_batch: int, max_tokens: float = math.inf) -> None:
        graphs = tuple(graphs)
        super().__init__(graphs, {graph.name: WhatWaits(max_batch) for graph in graphs}, max_tokens=max_tokens)


@settings()
class WorkConserving(BatchLimit):
    """Give an idle worker all waiting requests of a model at once, up to `max_batch`."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        return WorkConservingBatching(context.graphs, self.max_batch, self.token_limit)
