"""The policy `static` runs batches of a fixed size.

A batch leaves when it has `max_batch` requests. No request waits longer than 1 s while a worker is idle
(shared/queue_length.py).

Source: Xu, Sun, Zhou, Niu, "SMDP-Based Dynamic Batching for Efficient Inference on GPU-Based Platforms", ICC 2023,
Section V-B, where it is a baseline.
"""

import math
from collections.abc import Iterable

from headrace.batching.context import PolicyContext
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.queue_length import MAX_WAIT_S, QueueLengthBatching, Rule
from headrace.batching.policies.shared.settings import BatchLimit
from headrace.batching.policy import Policy
from headrace.batching.settings import settings


class FullBatches(Rule):
    """Waits until the largest batch is there."""

    def batch(self, waiting: int, now: float) -> int:
        return self.largest if waiting >= self.largest else 0


class StaticBatching(QueueLengthBatching):
    """A `Policy` with batches of a fixed size.

    Args:
        graphs: The graphs of the models.
        batch: The batch size, in requests.
        max_wait_s: The longest time (s) that a request waits while a worker is idle.
        max_tokens: The most tokens of a batch, the sum of its input lengths.
    """

    def __init__(
        self, graphs: Iterable[ModelGraph], batch: int, max_wait_s: float = MAX_WAIT_S, max_tokens: float = math.inf
    ) -> None:
        graphs = tuple(graphs)
        super().__init__(graphs, {graph.name: FullBatches(batch) for graph in graphs}, max_wait_s, max_tokens)


@settings()
class Static(BatchLimit):
    """Wait until `max_batch` requests are there, and run them as one batch."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        return StaticBatching(context.graphs, self.max_batch, max_tokens=self.token_limit)
