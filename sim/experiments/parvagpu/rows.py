"""The rows of the runs, which plots and claims read."""

from dataclasses import dataclass
from typing import Final

PARVAGPU: Final = "parvagpu"
PACKED: Final = "packed"
PLANNED: Final = "planned"
PLANS: Final = (PARVAGPU, PACKED, PLANNED)


@dataclass(frozen=True, slots=True)
class Row:
    """A plan of a scenario under one kind of arrivals.

    Attributes:
        plan: One of PLANS.
        gpcs: The GPCs of its segments.
        least: The number of GPUs below which no plan is in time (planning.py).
        published_gpus: The GPUs of the published deployment, for all networks.
        published_gpcs: Its GPCs for the networks of this figure.
        load: The rate by the throughput of the segments, of the network in which it is greatest.
        late: How many of the `requests` took longer than their SLO.
        late_batches: How many of the `batches` had such a request.
        p99: A latency as a share of the SLO, of the network in which it is greatest; `longest` likewise.
    """

    figure: str
    scenario: int
    plan: str
    arrivals: str
    gpus: int
    gpcs: int
    least: int
    published_gpus: int
    published_gpcs: int
    load: float
    requests: int
    late: int
    batches: int
    late_batches: int
    p99: float
    longest: float

    @property
    def late_percent(self) -> float:
        return 100 * self.late / self.requests


@dataclass(frozen=True, slots=True)
class Placed:
    """A segment of a plan."""

    figure: str
    scenario: int
    plan: str
    gpu: int
    model: str
    gpcs: int
    batch: int
    procs: int
