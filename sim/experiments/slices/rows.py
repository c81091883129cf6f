"""What the runs give, and what tables and plots show. Numbers are means over the seeds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Server:
    """What is simulated: `sounds` is what networks for sound are sent, as `Scenario.lengths`, and "" for photos."""

    gpu: str
    partition: str
    model: str
    sounds: str
    preprocess: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a server can do under `preba`: saturated, where `binds` is the step, or "slices", that is busiest; and the
    most at which the 99th percentile is within the target. `spread` is (most - least) / mean of the latter over the
    seeds. Power, energy and cost are of the saturated server. `design` tells the preprocessing without its numbers."""

    gpu: str
    partition: str
    model: str
    sounds: str
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
    """A policy at a load, which is a share of what the slices do under `preba` with inputs that are ready. `in_time` is
    the share within the target, `spread` (most - least) / mean over the seeds of the mean latency."""

    partition: str
    model: str
    sounds: str
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
    """How many CUs keep up with the slices, or with the link that is slowest (`link_rps`) if that is less, by how they
    are started; worked out from what each step takes, and not simulated."""

    gpu: str
    partition: str
    model: str
    sounds: str
    slices_rps: float
    link: str
    link_rps: float
    kernel: int
    queue: int
