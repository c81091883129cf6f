"""The policies by the names that users give on the command line."""

from collections.abc import Mapping

from headrace.batching.errors import UsageError
from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.profile import Profile
from headrace.batching.policies.bucketed_graph import BUCKET_WIDTH, BucketedGraphBatching
from headrace.batching.policies.cellular import CellularBatching
from headrace.batching.policies.dynamic_graph import DynamicGraphBatching
from headrace.batching.policies.graph_batching import GraphBatching
from headrace.batching.policies.lazy import LazyBatching, OracleLazyBatching
from headrace.batching.policies.preba import Preba
from headrace.batching.policies.preba_lazy import PrebaLazy
from headrace.batching.policies.serial import Serial
from headrace.batching.policies.smdp_batching import RateTables, SmdpBatching
from headrace.batching.policies.smdp_phases import PhaseTables
from headrace.batching.policies.static import StaticBatching
from headrace.batching.policies.work_conserving import WorkConserving
from headrace.batching.policy import Policy
from headrace.batching.smdp.service import BatchService, Weights
from headrace.batching.smdp.tables import rate_tables

POLICIES = (
    "serial", "graph", "static", "work-conserving", "bucketed-graph", "dynamic-graph", "cellular", "lazy", "oracle",
    "preba", "smdp", "preba-lazy",
)  # fmt: skip
CELL_POLICIES = ("cellular", "dynamic-graph")  # their tasks are of cells
NODE_POLICIES = ("lazy", "oracle", "preba-lazy")  # their tasks may end at any node


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
    tables: Mapping[str, RateTables | PhaseTables] | None = None,
    cells: Mapping[str, CellModel] | None = None,
    bucket_width: int = BUCKET_WIDTH,
    merge_s: float = 0.0,
) -> Policy:
    """A new policy for one run of the models in `times`. Those that need no window, limit, profile or number of decoder
    steps ignore them. Without `profiles`, `preba` and `preba-lazy` take the curves that follow from `times`, as
    `smdp` does without `tables`, for the least mean latency of inputs and outputs of length 1; a model that is missing
    in `tables` can be installed later. The batch of `static` is `max_batch`. `cells` are the networks of CELL_POLICIES.

    Raises UsageError."""
    graphs = [known.graph for known in times.values()]
    if name in CELL_POLICIES and cells is None:
        raise UsageError(f"{name} serves networks of cells; choose another policy for {', '.join(times)}")
    match name:
        case "serial":
            return Serial(graphs)
        case "graph":
            return GraphBatching(graphs, window_s, max_batch)
        case "static":
            return StaticBatching(graphs, max_batch)
        case "bucketed-graph":
            return BucketedGraphBatching(graphs, max_batch, bucket_width)
        case "cellular":
            assert cells is not None
            return CellularBatching(cells.values(), workers)
        case "dynamic-graph":
            assert cells is not None
            return DynamicGraphBatching(cells.values(), workers, max_batch, merge_s)
        case "work-conserving":
            return WorkConserving(graphs, max_batch)
        case "smdp":
            if tables is None:
                tables = {
                    model: rate_tables(BatchService.of_times(known, max_batch), Weights(), workers)
                    for model, known in times.items()
                }
            return SmdpBatching(graphs, tables, max_batch)
        case "lazy":
            return LazyBatching(times, workers, max_batch, dec_timesteps, defer_late)
        case "oracle":
            return OracleLazyBatching(times, workers, max_batch, dec_timesteps, defer_late)
        case "preba" | "preba-lazy":
            curves = profiles or {model: Profile.of(model, known, workers) for model, known in times.items()}
            if name == "preba":
                return Preba(graphs, curves, workers)
            return PrebaLazy(times, curves, workers, dec_timesteps)
        case _:
            raise UsageError(f"there is no policy {name!r}; choose from {', '.join(POLICIES)}")
