"""The policy `graph` batches whole graphs with a static time window and a largest batch size.

A batch leaves when it is full, or when its oldest request has waited for the window. TensorFlow Serving and Triton
batch in this way.

Source: LazyBatching (HPCA 2021), Section III-A, where it is the baseline `GraphB`. The file shared/window.py has the
rules.
"""

import math
from collections.abc import Iterable

from headrace.batching.context import PolicyContext
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.settings import BatchLimit
from headrace.batching.policies.shared.window import BatchLimits, WindowBatching, WindowQueue
from headrace.batching.policy import Policy
from headrace.batching.settings import setting, settings


class GraphBatching(WindowBatching):
    """A `Policy` with the same limits for every model.

    Args:
        graphs: The graphs of the models.
        window_s: The longest time (s) that the oldest request waits for others.
        max_batch: The largest batch, in requests.
        max_tokens: The most tokens of a batch, the sum of its input lengths.

    Raises:
        UsageError: A limit is out of range.
    """

    def __init__(
        self, graphs: Iterable[ModelGraph], window_s: float, max_batch: int = 64, max_tokens: float = math.inf
    ) -> None:
        limits = BatchLimits(max_batch=max_batch, window_s=window_s, max_tokens=max_tokens)
        super().__init__([WindowQueue(graph, limits) for graph in graphs])


@settings()
class Graph(BatchLimit):
    """Batch whole graphs: a batch leaves when it is full, or when its oldest request has waited for the window."""

    window_ms: float = setting(default=5.0, help="Longest that the oldest request waits for others to join it.", ge=0)

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        return GraphBatching(context.graphs, self.window_ms / 1e3, self.max_batch, self.token_limit)
