"""The rows of the runs, which the plot and the table read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A policy at a load: one run, or the mean of the runs under several seeds.

    `load` is a share of the NPU's capacity, `in_time` a share of the requests, and `goodput` their product."""

    model: str
    slo_ms: float
    load: float
    policy: str
    in_time: float
    goodput: float
    latency_ms: float
    batch: float
