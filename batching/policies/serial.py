"""The policy `serial` runs each request alone, first in, first out.

Source: LazyBatching (HPCA 2021), Section VI, where it is the baseline without batching.

A single worker may be sent the next request while it runs one. Requests that come later change nothing in their order,
so each begins when it would begin anyway, and the worker does not wait for a message. With several workers the next
request must wait for the worker that is idle first.
"""

from collections.abc import Iterable

from headrace.batching.context import PolicyContext
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.window import BatchLimits, WindowBatching, WindowQueue
from headrace.batching.policy import Policy
from headrace.batching.request import IDLE
from headrace.batching.settings import settings


class SerialBatching(WindowBatching):
    """A `Policy` that runs each request alone, on `workers` workers."""

    def __init__(self, graphs: Iterable[ModelGraph], workers: int = 1) -> None:
        limits = BatchLimits(max_batch=1, window_s=0.0)
        super().__init__([WindowQueue(graph, limits) for graph in graphs], IDLE, ahead=2 if workers == 1 else 1)


@settings()
class Serial:
    """Run each request alone, first in, first out."""

    def build(self, context: PolicyContext) -> Policy:
        """Return the policy for one run."""
        return SerialBatching(context.graphs, context.workers)
