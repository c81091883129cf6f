"""The scheduling policies, one file each, by the names of their settings: `policies.Lazy(coverage=0.95)`.

A class is imported when it is first used. The package `shared` has the mechanisms that several policies use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.batching.policies.bucketed_graph import BucketedGraph as BucketedGraph
    from headrace.batching.policies.cellular import Cellular as Cellular
    from headrace.batching.policies.deferred import Deferred as Deferred
    from headrace.batching.policies.dynamic_graph import DynamicGraph as DynamicGraph
    from headrace.batching.policies.earliest_deadline import EarliestDeadline as EarliestDeadline
    from headrace.batching.policies.graph import Graph as Graph
    from headrace.batching.policies.lazy import Lazy as Lazy
    from headrace.batching.policies.lazy import Oracle as Oracle
    from headrace.batching.policies.preba import Preba as Preba
    from headrace.batching.policies.preba_lazy import PrebaLazy as PrebaLazy
    from headrace.batching.policies.serial import Serial as Serial
    from headrace.batching.policies.smdp import Smdp as Smdp
    from headrace.batching.policies.static import Static as Static
    from headrace.batching.policies.work_conserving import WorkConserving as WorkConserving

PLACES = {  # the module of each class of settings
    "Serial": "serial",
    "Graph": "graph",
    "Static": "static",
    "WorkConserving": "work_conserving",
    "BucketedGraph": "bucketed_graph",
    "DynamicGraph": "dynamic_graph",
    "Cellular": "cellular",
    "Lazy": "lazy",
    "Oracle": "lazy",
    "Preba": "preba",
    "Smdp": "smdp",
    "PrebaLazy": "preba_lazy",
    "Deferred": "deferred",
    "EarliestDeadline": "earliest_deadline",
}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module 'headrace.policies' has no attribute {name!r}; choose from {', '.join(PLACES)}")
    return getattr(import_module(f"headrace.batching.policies.{PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(PLACES)
