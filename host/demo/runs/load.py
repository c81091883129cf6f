"""Choose the arrival rate of the runs, from measurements on this machine, unless the user gives one.

Two questions need two loads. To compare the policies, the runs load the workers alone, with tensors that were made
beforehand. This heavy load lies above the rate that the workers sustain one by one, and below the rate in batches, so
that batching pays. To compare the preprocessors, the runs have a load that every preprocessor sustains. This load is
light, because the emulated DPU is slow.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from headrace.batching import Profile
from headrace.host.demo.options import BEFOREHAND, DemoOptions

LIGHT = 0.6  # share of the estimated capacity with the slowest preprocessor; stable on a noisy machine
HEAVY = 0.85  # largest share of the rate at the knee; the queue stays stable for policies that batch
NPU_RPS = 250.0  # largest rate for simulated NPUs: this process, which sends and answers, cannot do more on a busy core
RUN_S = 6.0  # length of a run, if the number of requests is not given
MIN_REQUESTS, MAX_REQUESTS = 20, 2000  # of a run, if the number is not given


def run_requests(options: DemoOptions, rate_rps: float) -> int:
    """Return the number of requests of a run at that rate."""
    if options.requests is not None:
        return options.requests
    return min(MAX_REQUESTS, max(MIN_REQUESTS, round(RUN_S * rate_rps)))


def one_by_one_rps(inputs: Iterable[tuple[Profile, float]]) -> float:
    """Return the rate that all workers sustain at batch 1, for inputs that come equally often.

    Each input is the profile of its network, and its length."""
    return mean_rate([profile.curve(length)[0].throughput_rps for profile, length in inputs])


def in_batches_rps(inputs: Iterable[tuple[Profile, float]]) -> float:
    """Return the rate that all workers sustain in batches of the knee, as `one_by_one_rps`."""
    return mean_rate([profile.knee(length).throughput_rps for profile, length in inputs])


def heavy_rps(options: DemoOptions, one_by_one: float, in_batches: float) -> float:
    """Return the rate at which the policies are compared."""
    if options.rate_rps is not None:
        return options.rate_rps
    largest = NPU_RPS if options.npus else math.inf
    return min(math.sqrt(one_by_one * in_batches), HEAVY * in_batches, largest)


def run_rates(
    options: DemoOptions,
    one_by_one: float,
    in_batches: float,
    files_per_s: Sequence[Mapping[str, float]],
    cores: int,
) -> dict[str, float]:
    """Return the rate of the runs by preprocessor. `files_per_s` has the rates of the preprocessors for each network,
    one file at a time."""
    heavy = heavy_rps(options, one_by_one, in_batches)
    compared = [name for name in options.preprocessors if name != BEFOREHAND]
    light = options.rate_rps or 0.0
    if compared and options.rate_rps is None:
        light = LIGHT * _sustained(compared, files_per_s, one_by_one, cores, bool(options.npus))
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
