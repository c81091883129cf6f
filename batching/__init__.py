"""Requests, model graphs, scheduling policies, latency profiles and analytic solvers.

Nothing in this package reads a clock, starts a thread or does I/O.
"""

from headrace.batching.accounting import AccountingError, Ledger
from headrace.batching.action_tables import MixedTables, PhaseTables, RateTables
from headrace.batching.checked_policy import CheckedPolicy
from headrace.batching.context import PolicyContext
from headrace.batching.errors import (
    BadInput,
    CorruptInput,
    HeadraceError,
    PolicyError,
    UnknownModel,
    UnsupportedInput,
    UsageError,
)
from headrace.batching.graphs.execution import Decoding, NodeTimes
from headrace.batching.graphs.model_graph import LENGTH, MatMul, ModelGraph, Node, NodeKind
from headrace.batching.graphs.node_latencies import NodeLatencies
from headrace.batching.graphs.profile import Profile, ProfilePoint
from headrace.batching.policies.deferred import DeferredBatching
from headrace.batching.policies.earliest_deadline import EarliestDeadlineBatching
from headrace.batching.policies.graph import GraphBatching
from headrace.batching.policies.lazy import LazyBatching, OracleLazyBatching
from headrace.batching.policies.preba import PrebaBatching, preba_limits
from headrace.batching.policies.preba_lazy import PrebaLazyBatching
from headrace.batching.policies.serial import SerialBatching
from headrace.batching.policies.shared.window import BatchLimits
from headrace.batching.policies.smdp import SmdpBatching
from headrace.batching.policies.static import StaticBatching
from headrace.batching.policies.work_conserving import WorkConservingBatching
from headrace.batching.policy import LatencyModel, Policy
from headrace.batching.registry import POLICIES, PolicySettings, find_policy, policy_names, policy_with
from headrace.batching.request import REASONS, Request, Task
from headrace.batching.results import Served, ServedTimes, percentiles_ms, summarize

__all__ = [
    "LENGTH",
    "POLICIES",
    "REASONS",
    "AccountingError",
    "BadInput",
    "BatchLimits",
    "CheckedPolicy",
    "CorruptInput",
    "Decoding",
    "DeferredBatching",
    "EarliestDeadlineBatching",
    "GraphBatching",
    "HeadraceError",
    "LatencyModel",
    "LazyBatching",
    "Ledger",
    "MatMul",
    "MixedTables",
    "ModelGraph",
    "Node",
    "NodeKind",
    "NodeLatencies",
    "NodeTimes",
    "OracleLazyBatching",
    "PhaseTables",
    "Policy",
    "PolicyContext",
    "PolicyError",
    "PolicySettings",
    "PrebaBatching",
    "PrebaLazyBatching",
    "Profile",
    "ProfilePoint",
    "RateTables",
    "Request",
    "SerialBatching",
    "Served",
    "ServedTimes",
    "SmdpBatching",
    "StaticBatching",
    "Task",
    "UnknownModel",
    "UnsupportedInput",
    "UsageError",
    "WorkConservingBatching",
    "find_policy",
    "percentiles_ms",
    "policy_names",
    "policy_with",
    "preba_limits",
    "summarize",
]
