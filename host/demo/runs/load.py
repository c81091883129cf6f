"""Choose the arrival rate and the target latency of the runs by rules, from measurements on this machine.

Two questions need two loads. To compare the policies, the runs load the workers alone, with tensors that were made
beforehand. This heavy load is HEAVY of the rate that the workers sustain in batches of the knee. Where batches bring
much, it lies above the rate that they sustain one by one. To run files through a preprocessor, the load is light,
because the emulated DPU is slow and shares the cores with the networks.

The target latency is SLO_KNEES times the latency of a batch of the knee: a batch waits for at most about one such batch
to form and for one to end, takes as long itself, and has the same once more for the delays of a busy machine.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.batching import Profile
from headrace.host.demo.options import BEFOREHAND, DemoOptions

LIGHT = 0.6  # share of the estimated capacity with the slowest preprocessor; stable on a noisy machine
HEAVY = 0.85  # share of the rate at the knee; the queue stays stable for policies that batch
SLO_KNEES = 4
MIN_SLO_S = 0.1  # this process's own delays stay far below it
NPU_RPS = 250.0  # largest rate for simulated NPUs: this process, which sends and answers, cannot do more on a busy core
RUN_S = 6.0  # length of a run, if the number of requests is not given
MIN_REQUESTS, MAX_REQUESTS = 20, 2000  # of a run, if the number is not given


@dataclass(frozen=True, slots=True)
class Capacity:
    """The rates (requests/s) that all workers sustain at batch 1, and in batches of the knee, and the longest latency
    of such a batch (s). The inputs come equally often."""

    one_by_one_rps: float
    in_batches_rps: float
    knee_s: float

    @classmethod
    def of(cls, inputs: Iterable[tuple[Profile, float]]) -> "Capacity":
        """Return the capacity for inputs, each given by the profile of its network, and its length."""
        known = [(profile.curve(length)[0], profile.knee(length)) for profile, length in inputs]
        return cls(
            mean_rate([alone.throughput_rps for alone, _ in known]),
            mean_rate([knee.throughput_rps for _, knee in known]),
            max(knee.latency_s for _, knee in known),
        )


def run_requests(options: DemoOptions, rate_rps: float) -> int:
    """Return the number of requests of a run at that rate."""
    if options.requests is not None:
        return options.requests
    return min(MAX_REQUESTS, max(MIN_REQUESTS, round(RUN_S * rate_rps)))


def slo_s(options: DemoOptions, capacity: Capacity) -> float:
    """Return the target latency (s) of all runs."""
    return options.slo_s if options.slo_s is not None else max(MIN_SLO_S, SLO_KNEES * capacity.knee_s)


def heavy_rps(options: DemoOptions, capacity: Capacity) -> float:
    """Return the rate at which the policies are compared."""
    if options.rate_rps is not None:
        return options.rate_rps
    return min(HEAVY * capacity.in_batches_rps, NPU_RPS if options.npus else math.inf)


def run_rates(
    options: DemoOptions,
    compared: Capacity,
    from_files: Capacity,
    files_per_s: Sequence[Mapping[str, float]],
    cores: int,
) -> dict[str, float]:
    """Return the rate of the runs by preprocessor.

    Args:
        compared: The capacity for the networks under which the policies are compared.
        from_files: The capacity for the networks that take files.
        files_per_s: The rates of the preprocessors for each network that takes files, one file at a time.
        cores: The cores of this machine."""
    heavy = heavy_rps(options, compared)
    preprocessors = [name for name in options.preprocessors if name != BEFOREHAND]
    light = options.rate_rps or 0.0
    if preprocessors and options.rate_rps is None:
        light = LIGHT * _sustained(preprocessors, files_per_s, from_files.one_by_one_rps, cores, bool(options.npus))
        light = min(light, NPU_RPS) if options.npus else light
    return {name: heavy if name == BEFOREHAND else light for name in options.preprocessors}


def _sustained(
    preprocessors: Sequence[str],
    files_per_s: Sequence[Mapping[str, float]],
    one_by_one: float,
    cores: int,
    separate: bool,
) -> float:
    """Return the rate that the slowest preprocessor and the networks sustain together on this machine's cores.

    If the networks are `separate`, on simulated NPUs, it is the slower rate of the two. The runtime then keeps one core
    for itself."""
    rates = [mean_rate([rates[name] for rates in files_per_s]) for name in preprocessors]
    measured = [rate for rate in rates if rate > 0]
    # If the DPU took no file, the CPU preprocesses all of them.
    slowest = min(measured, default=mean_rate([rates["cpu"] for rates in files_per_s]))
    if separate:
        return min(slowest * max(1, cores - 1), one_by_one)
    return 1 / (1 / (slowest * cores) + 1 / one_by_one)


def mean_rate(rates: Sequence[float]) -> float:
    """Return the rate of a mix of kinds of work that come equally often: the harmonic mean of the kinds' rates.

    It is 0 if one of the rates is 0."""
    return len(rates) / sum(1 / rate for rate in rates) if all(rates) else 0.0
