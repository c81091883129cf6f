"""What the runs give, and what the plot shows."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A policy at a load: one run, or the mean of the runs under several seeds.

    `load` is a share of what the NPU can do, `in_time` a share of the requests, and `goodput` their product."""

    model: str
    sla_ms: float
    load: float
    policy: str
    in_time: float
    goodput: float
    latency_ms: float
    batch: float
