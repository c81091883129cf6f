"""What the runs give, and what the plot shows."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """The mean of the seeds. `in_time` is a share, `goodput` one of what the NPU can do."""

    model: str
    sla_ms: float
    load: float
    policy: str
    in_time: float
    goodput: float
    latency_ms: float
    batch: float
