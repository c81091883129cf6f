"""The rows of the runs, which tables and plots read. Numbers are means over the seeds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Server:
    """A simulated server. `lengths` are those of the audio that it serves, as `Scenario.lengths`, and "" for images."""

    gpu: str
    partition: str
    model: str
    lengths: str
    preprocess: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a server under `preba`.

    Attributes:
        design: The preprocessing without its numbers.
        throughput_rps: The throughput of the saturated server.
        binds: The step that is busiest then, or "slices".
        within_rps: The greatest rate at which the 99th percentile is within the target.
        spread: (greatest - least) / mean of `within_rps` over the seeds.
        power_w: The power of the saturated server, as are energy and cost.
    """

    gpu: str
    partition: str
    model: str
    lengths: str
    design: str
    preprocess: str
    throughput_rps: float
    binds: str
    binds_utilization: float
    target_ms: float
    within_rps: float
    spread: float
    power_w: float
    energy_per_request_j: float
    requests_per_usd: float


@dataclass(frozen=True, slots=True)
class Served:
    """A policy at a load, which is a share of the slices' throughput under `preba` with inputs ready.

    `in_time` is the share within the target. `spread` is (greatest - least) / mean of the mean latency over the seeds.
    """

    partition: str
    model: str
    lengths: str
    preprocess: str
    policy: str
    load: float
    mean_ms: float
    p99_ms: float
    in_time: float
    batch: float
    spread: float


@dataclass(frozen=True, slots=True)
class UnitCount:
    """The number of CUs that keep up with the slices, by the way in which they are started.

    If the slowest link (`link_rps`) is slower than the slices, they keep up with the link. The number is computed from
    the time of each step, and not simulated."""

    gpu: str
    partition: str
    model: str
    lengths: str
    slices_rps: float
    link: str
    link_rps: float
    kernel: int
    queue: int
