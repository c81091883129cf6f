"""Requests, policies, latency profiles and solvers. Pure: no clock, no thread, no I/O."""

from headrace.batching.accounting import AccountingError, Ledger
from headrace.batching.checked_policy import CheckedPolicy
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
from headrace.batching.policies.deferred import Deferred
from headrace.batching.policies.earliest_deadline import EarliestDeadline
from headrace.batching.policies.graph import GraphBatching
from headrace.batching.policies.lazy import LazyBatching, OracleLazyBatching
from headrace.batching.policies.preba import Preba, preba_limits
from headrace.batching.policies.preba_lazy import PrebaLazy
from headrace.batching.policies.serial import Serial
from headrace.batching.policies.shared.window import BatchLimits
from headrace.batching.policies.smdp import RateTables, SmdpBatching
from headrace.batching.policies.smdp_phases import PhaseTables
from headrace.batching.policies.static import StaticBatching
from headrace.batching.policies.work_conserving import WorkConserving
from headrace.batching.policy import LatencyModel, Policy
from headrace.batching.registry import POLICIES, make_policy
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
    "Deferred",
    "EarliestDeadline",
    "GraphBatching",
    "HeadraceError",
    "LatencyModel",
    "LazyBatching",
    "Ledger",
    "MatMul",
    "ModelGraph",
    "Node",
    "NodeKind",
    "NodeLatencies",
    "NodeTimes",
    "OracleLazyBatching",
    "PhaseTables",
    "Policy",
    "PolicyError",
    "Preba",
    "PrebaLazy",
    "Profile",
    "ProfilePoint",
    "RateTables",
    "Request",
    "Serial",
    "Served",
    "ServedTimes",
    "SmdpBatching",
    "StaticBatching",
    "Task",
    "UnknownModel",
    "UnsupportedInput",
    "UsageError",
    "WorkConserving",
    "make_policy",
    "percentiles_ms",
    "preba_limits",
    "summarize",
]
