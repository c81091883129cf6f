"""The policies by the names that users give on the command line."""

from collections.abc import Mapping, Sequence

from headrace.batching.errors import UsageError
from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.profile import Profile
from headrace.batching.policies.bucketed_graph import BUCKET_WIDTH, BucketedGraphBatching
from headrace.batching.policies.cellular import MAX_TASKS, CellularBatching
from headrace.batching.policies.deferred import Deferred
from headrace.batching.policies.dynamic_graph import DynamicGraphBatching
from headrace.batching.policies.earliest_deadline import EarliestDeadline
from headrace.batching.policies.graph import GraphBatching
from headrace.batching.policies.lazy import LazyBatching, OracleLazyBatching
from headrace.batching.policies.preba import BUCKET_S, Preba, Profiles
from headrace.batching.policies.preba_lazy import PrebaLazy
from headrace.batching.policies.serial import Serial
from headrace.batching.policies.smdp import RateTables, SmdpBatching
from headrace.batching.policies.smdp_phases import PhaseTables
from headrace.batching.policies.static import StaticBatching
from headrace.batching.policies.work_conserving import WorkConserving
from headrace.batching.policy import Policy
from headrace.batching.smdp.service import BatchService, Weights
from headrace.batching.smdp.tables import rate_tables

POLICIES = (
    "serial",
    "graph",
    "static",
    "work-conserving",
    "bucketed-graph",
    "dynamic-graph",
    "cellular",
    "lazy",
    "oracle",
    "preba",
    "smdp",
    "preba-lazy",
    "deferred",
    "earliest-deadline",
)
CELL_POLICIES = ("cellular", "dynamic-graph")  # their tasks are of cells
BATCH_POLICIES = ("smdp", "deferred", "earliest-deadline")  # they go by the times of batches, others of one request
NODE_POLICIES = ("lazy", "oracle", "preba-lazy")  # their tasks may end at any node


def make_policy(
    name: str,
    times: Mapping[str, NodeTimes] | Sequence[Mapping[str, NodeTimes]],
    *,
    workers: int,
    window_s: float,
    max_batch: int,
    profiles: Profiles | None = None,
    dec_timesteps: Mapping[str, int] | None = None,
    defer_late: bool = False,
    slack_scope: str = "table",
    equal_timesteps: bool = False,
    tables: Mapping[str, RateTables | PhaseTables] | None = None,
    cells: Mapping[str, CellModel] | None = None,
    bucket_width: int = BUCKET_WIDTH,
    bucket_s: float = BUCKET_S,
    merge_buckets: bool = True,
    merge_s: float = 0.0,
    max_tasks: int = MAX_TASKS,
) -> Policy:
    """A new policy for one run of the models in `times`: the node latencies on all workers or, where these differ, on
    each. `preba` and `preba-lazy` know each worker's knee; whoever else goes by times goes by those of the slowest
    worker, so that nobody is promised what that one cannot keep.

    Those that need no window, limit, profile or number of decoder steps ignore them. Without `profiles`, `preba`
    and `preba-lazy` take the curves that follow from `times` (`Profile.of`), as `smdp` does without `tables`, for
    the least mean latency of inputs and outputs of length 1; one that is missing in `tables` can be installed
    later. `defer_late`, `slack_scope` and `equal_timesteps` are of `lazy` and `oracle` (lazy.py). The batch of
    `static` is `max_batch`. `cells` are the networks of CELL_POLICIES, and `max_tasks` is of `cellular`. `bucket_width`
    is of `bucketed-graph`, and with `bucket_s` and `merge_buckets` of `preba` and `preba-lazy` (preba.py).

    Raises UsageError."""
    of_each = [times] * workers if isinstance(times, Mapping) else list(times)
    if len(of_each) != workers:
        raise UsageError(f"node times of {len(of_each)} workers for {workers}; give one mapping for each, or for all")
    if not isinstance(times, Mapping):
        times = _slowest(of_each, max_batch if name in BATCH_POLICIES else 1)
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
            return CellularBatching(cells.values(), workers, max_tasks)
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
            return LazyBatching(
                times,
                workers,
                max_batch,
                dec_timesteps,
                defer_late,
                slack_scope=slack_scope,
                equal_timesteps=equal_timesteps,
            )
        case "oracle":
            return OracleLazyBatching(
                times,
                workers,
                max_batch,
                dec_timesteps,
                defer_late,
                slack_scope=slack_scope,
                equal_timesteps=equal_timesteps,
            )
        case "deferred":
            return Deferred(times, workers, max_batch, dec_timesteps)
        case "earliest-deadline":
            return EarliestDeadline(times, workers, max_batch, dec_timesteps)
        case "preba" | "preba-lazy":
            curves = profiles or _curves(of_each)
            if name == "preba":
                return Preba(graphs, curves, workers, bucket_s, bucket_width, merge_buckets)
            return PrebaLazy(times, curves, workers, dec_timesteps, bucket_s, bucket_width, merge_buckets)
        case _:
            raise UsageError(f"there is no policy {name!r}; choose from {', '.join(POLICIES)}")


def _slowest(of_each: Sequence[Mapping[str, NodeTimes]], batch: int) -> dict[str, NodeTimes]:
    """By model, those of the worker that takes longest for such a batch."""

    def seconds(known: NodeTimes) -> float:
        return known.whole(batch, 1.0, 1)

    return {model: max((times[model] for times in of_each), key=seconds) for model in of_each[0]}


def _curves(of_each: Sequence[Mapping[str, NodeTimes]]) -> list[dict[str, Profile]]:
    """Of each worker; equal ones share theirs."""
    known = {id(times): times for times in of_each}
    made = {
        number: {model: Profile.of(model, nodes, len(of_each)) for model, nodes in times.items()}
        for number, times in known.items()
    }
    return [made[id(times)] for times in of_each]
