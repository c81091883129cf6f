"""The policy `serial` runs each request alone, first in, first out.

Source: LazyBatching (HPCA 2021), Section VI, where it is the baseline without batching.
"""

from collections.abc import Iterable

from headrace.batching.context import PolicyContext
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.window import BatchLimits, WindowBatching, WindowQueue
from headrace.batching.policy import Policy
from headrace.batching.request import IDLE
from headrace.batching.settings import settings


class SerialBatching(WindowBatching):
    """A `Policy` that runs each request alone."""

    def __init__(self, graphs: Iterable[ModelGraph]) -> None:
        limits = BatchLimits(max_batch=1, window_s=0.0)
        super().__init__([WindowQueue(graph, limits) for graph in graphs], IDLE)


@settings()
class Serial:
    """Run each request alone, first in, first out."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        return SerialBatching(context.graphs)
