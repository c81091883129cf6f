"""The policies by the names that users give on the command line."""

from collections.abc import Mapping

from headrace.batching.errors import UsageError
from headrace.batching.execution import NodeTimes
from headrace.batching.graph_batching import GraphBatching
from headrace.batching.lazy import LazyBatching, OracleLazyBatching
from headrace.batching.policy import Policy
from headrace.batching.preba import Preba
from headrace.batching.profile import Profile
from headrace.batching.serial import Serial

POLICIES = ("serial", "graph", "lazy", "oracle", "preba")


def make_policy(
    name: str,
    times: Mapping[str, NodeTimes],
    *,
    workers: int,
    window_s: float,
    max_batch: int,
    profiles: Mapping[str, Profile] | None = None,
    dec_timesteps: Mapping[str, int] | None = None,
    defer_late: bool = False,
) -> Policy:
    """A new policy for one run of the models in `times`. Those that need no window, limit, profile or number of decoder
    steps ignore them; without `profiles`, `preba` takes the curves that follow from `times`. Raises UsageError."""
    graphs = [known.graph for known in times.values()]
    match name:
        case "serial":
            return Serial(graphs)
        case "graph":
            return GraphBatching(graphs, window_s, max_batch)
        case "lazy":
            return LazyBatching(times, workers, max_batch, dec_timesteps, defer_late)
        case "oracle":
            return OracleLazyBatching(times, workers, max_batch, dec_timesteps, defer_late)
        case "preba":
            curves = profiles or {model: Profile.of(model, known, workers) for model, known in times.items()}
            return Preba(graphs, curves, workers)
        case _:
            raise UsageError(f"there is no policy {name!r}; choose from {', '.join(POLICIES)}")
