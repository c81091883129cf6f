"""`preba`: dynamic batching whose limits come from the profile of the GPU slice that runs the model.

PREBA's batching system for inputs of one size. Batch_max is the knee of the slice's throughput-latency curve: beyond
it a larger batch costs latency and buys no throughput. With n slices taking turns, a slice falls idle every
Time_knee / n on average, so a batch need not wait longer than that to find one: Time_queue = Time_knee / n.
"""

from collections.abc import Iterable, Mapping

from headrace.batching.errors import UsageError, check_workers
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.graphs.profile import Profile
from headrace.batching.policies.window import BatchLimits, WindowBatching
from headrace.batching.request import KNEE


def preba_limits(profile: Profile, workers: int) -> BatchLimits:
    """Batch_max and Time_queue of PREBA for a model profiled as `profile`, served by `workers` equal slices."""
    check_workers(workers)
    knee = profile.knee()
    return BatchLimits(max_batch=knee.batch, window_s=knee.latency_s / workers)


class Preba(WindowBatching):
    def __init__(self, graphs: Iterable[ModelGraph], profiles: Mapping[str, Profile], workers: int) -> None:
        graphs = tuple(graphs)
        missing = [graph.name for graph in graphs if graph.name not in profiles]
        if missing:
            raise UsageError(
                f"preba has no profile of {', '.join(missing)}: run `headrace profile --model {missing[0]}` first"
            )
        super().__init__(graphs, {graph.name: preba_limits(profiles[graph.name], workers) for graph in graphs}, KNEE)
