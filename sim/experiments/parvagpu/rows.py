"""What the runs give, and what the plots show."""

from dataclasses import dataclass
from typing import Final

PARVAGPU: Final = "parvagpu"
PACKED: Final = "packed"
PLANNED: Final = "planned"
PLANS: Final = (PARVAGPU, PACKED, PLANNED)


@dataclass(frozen=True, slots=True)
class Row:
    """A plan of a scenario under one kind of arrivals.

    `plan` is one of PLANS, `gpcs` are those of its segments. `least`: GPUs with fewer than which no plan is in
    time (planning.py). `published_gpus` are those of the published deployment, for all networks, and `published_gpcs`
    its GPCs for the networks of this figure. `load` is the rate by what the segments do, of the network in which it is
    greatest. `late` of the `requests` took longer than their SLO, and `late_batches` of the `batches` had one of them
    in it; `p99` and `longest` are latencies as shares of the SLO, of the network in which they are greatest."""

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
