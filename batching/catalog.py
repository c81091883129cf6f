"""The policies by the names that users give on the command line."""

from collections.abc import Iterable, Mapping

from headrace.batching.errors import UsageError
from headrace.batching.graph_batching import GraphBatching
from headrace.batching.model_graph import ModelGraph
from headrace.batching.policy import Policy
from headrace.batching.preba import Preba
from headrace.batching.profile import Profile
from headrace.batching.serial import Serial

POLICIES = ("serial", "graph", "preba")


def make_policy(
    name: str,
    graphs: Iterable[ModelGraph],
    *,
    workers: int,
    window_s: float,
    max_batch: int,
    profiles: Mapping[str, Profile],
) -> Policy:
    """A new policy for one run. Those that need no window, limit or profile ignore them. Raises UsageError."""
    match name:
        case "serial":
            return Serial(graphs)
        case "graph":
            return GraphBatching(graphs, window_s, max_batch)
        case "preba":
            return Preba(graphs, profiles, workers)
        case _:
            raise UsageError(f"there is no policy {name!r}; choose from {', '.join(POLICIES)}")
