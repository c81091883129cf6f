"""`graph`: batching of whole graphs with a static time window and maximum batch size.

What TensorFlow Serving and Triton do, and the baseline `GraphB` of LazyBatching (HPCA 2021, Section III-A).
"""

from collections.abc import Iterable

from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.policies.shared.window import BatchLimits, WindowBatching, WindowLine


class GraphBatching(WindowBatching):
    """The same window and limit for every model: `window_s` in seconds, `max_batch` in requests."""

    def __init__(self, graphs: Iterable[ModelGraph], window_s: float, max_batch: int = 64) -> None:
        limits = BatchLimits(max_batch=max_batch, window_s=window_s)
        super().__init__([WindowLine(graph, limits) for graph in graphs])
