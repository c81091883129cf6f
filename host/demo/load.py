"""How many requests/s the runs get, if the user does not say: what was measured on this machine tells.

Two questions need two loads. Which policy is best is asked of the workers alone, with tensors that were made
beforehand, where batching pays: above what they sustain one by one, below what they sustain in batches. What
preprocessing costs is asked at a load that every preprocessor sustains, which emulated hardware makes a light one.
"""

import math
from collections.abc import Sequence

from headrace.batching import Profile
from headrace.host.demo.equality import Prepared
from headrace.host.demo.options import BEFOREHAND, DemoOptions

LIGHT = 0.6  # of the slowest set-up's estimated capacity: stable on a noisy machine
HEAVY = 0.85  # of what the workers sustain at the knee, at most: a queue that is stable for whoever batches
NPU_RPS = 250.0  # at most: simulated NPUs can do more than this process, which sends and answers, on a busy core
RUN_S = 6.0  # a run's arrivals, if not told
FEWEST, MOST = 20, 2000  # requests of a run, if not told


def run_requests(options: DemoOptions, rate_rps: float) -> int:
    if options.requests is not None:
        return options.requests
    return min(MOST, max(FEWEST, round(RUN_S * rate_rps)))


def run_rates(
    options: DemoOptions, profiles: Sequence[Profile], prepared: Sequence[Prepared], cores: int
) -> dict[str, float]:
    """Requests/s by preprocessor."""
    if options.rate_rps is not None:
        return dict.fromkeys(options.preprocessors, options.rate_rps)
    one_by_one, in_batches = one_by_one_rps(profiles), in_batches_rps(profiles)
    most = NPU_RPS if options.npus else math.inf
    heavy = min(math.sqrt(one_by_one * in_batches), HEAVY * in_batches, most)
    preprocessors = [name for name in options.preprocessors if name != BEFOREHAND]
    light = 0.0
    if preprocessors:
        light = min(LIGHT * _sustained(preprocessors, prepared, one_by_one, cores, bool(options.npus)), most)
    return {name: heavy if name == BEFOREHAND else light for name in options.preprocessors}


def one_by_one_rps(profiles: Sequence[Profile]) -> float:
    """What all workers sustain at batch 1, if each network is asked as often."""
    return _mixed([profile.curve(profile.typical_length)[0].throughput_rps for profile in profiles])


def in_batches_rps(profiles: Sequence[Profile]) -> float:
    """The same at the networks' knees."""
    return _mixed([profile.knee().throughput_rps for profile in profiles])


def _sustained(
    preprocessors: Sequence[str], prepared: Sequence[Prepared], one_by_one: float, cores: int, beside: bool
) -> float:
    """Requests/s that the slowest preprocessor and the networks sustain, if both share this machine's cores; or, where
    the networks run `beside` them, the slower of the two, with a core less, which is the runtime's."""
    images = [_mixed([part.images_per_s[name] for part in prepared]) for name in preprocessors]
    measured = [rate for rate in images if rate > 0]
    slowest = min(measured, default=_mixed([part.images_per_s["cpu"] for part in prepared]))  # the DPU took none
    if beside:
        return min(slowest * max(1, cores - 1), one_by_one)
    return 1 / (1 / (slowest * cores) + 1 / one_by_one)


def _mixed(rates: Sequence[float]) -> float:
    """Of kinds of work that come equally often and go at these rates."""
    return len(rates) / sum(1 / rate for rate in rates) if all(rates) else 0.0
