"""Batching as a semi-Markov decision process (SMDP), and its solvers.

The solution gives the batch size to serve for each queue length.

Source: Xu, Sun, Zhou, Niu, "SMDP-Based Dynamic Batching for Efficient Inference on GPU-Based Platforms", ICC 2023.
"""

from headrace.batching.smdp.arrivals import Mmpp2
from headrace.batching.smdp.mixture import Mixture, least_power_mixture
from headrace.batching.smdp.model import Smdp, build
from headrace.batching.smdp.service import BatchService, Weights
from headrace.batching.smdp.solution import Solution
from headrace.batching.smdp.solver import (
    NotConverged,
    evaluate,
    policy_iteration,
    relative_value_iteration,
    solve,
    static,
    work_conserving,
)

__all__ = [
    "BatchService",
    "Mixture",
    "Mmpp2",
    "NotConverged",
    "Smdp",
    "Solution",
    "Weights",
    "build",
    "evaluate",
    "least_power_mixture",
    "policy_iteration",
    "relative_value_iteration",
    "solve",
    "static",
    "work_conserving",
]
