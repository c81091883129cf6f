"""The scheduling policies, one file each, by the names of their settings: `policies.Lazy(coverage=0.95)`.

A class is imported when it is first used. The package `shared` has the mechanisms that several policies use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.batching.docstrings import with_docstring

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

BUILT_IN = {  # the module and the class of settings of each policy
    "serial": "serial:Serial",
    "graph": "graph:Graph",
    "static": "static:Static",
    "work-conserving": "work_conserving:WorkConserving",
    "bucketed-graph": "bucketed_graph:BucketedGraph",
    "dynamic-graph": "dynamic_graph:DynamicGraph",
    "cellular": "cellular:Cellular",
    "lazy": "lazy:Lazy",
    "oracle": "lazy:Oracle",
    "preba": "preba:Preba",
    "smdp": "smdp:Smdp",
    "preba-lazy": "preba_lazy:PrebaLazy",
    "deferred": "deferred:Deferred",
    "earliest-deadline": "earliest_deadline:EarliestDeadline",
}
_MODULES = {name: module for module, _, name in (place.partition(":") for place in BUILT_IN.values())}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'headrace.policies' has no attribute {name!r}; choose from {', '.join(_MODULES)}")
    return with_docstring(getattr(import_module(f"headrace.batching.policies.{_MODULES[name]}"), name))


def __dir__() -> list[str]:
    return sorted(_MODULES)
