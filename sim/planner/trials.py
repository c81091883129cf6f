"""The simulations that a search asks for, and what they say of a target."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import OutOfMemory, Unstable
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario

# Quantiles for batch means, one-sided 99.5 %: of a normal variate, and of Student's t by the number of parts of a run.
SURE: Final = 2.576
SURE_OF_PARTS: Final = {20: 2.861, 10: 3.250, 5: 4.604}
T_95: Final = (12.706, 4.303, 3.182, 2.776, 2.571)  # two-sided 95 % of Student's t, by degrees of freedom
HALVINGS: Final = 7
FRESH: Final = 5  # the number of fresh seeds, 1 and up; a search has seed 0
BINDS: Final = 0.9  # a part that is used to this share is the one that binds
# the targets that a run lasts before it can be sure: a queue that grows by a twentieth shows by then
SURE_SPANS: Final = 20
Interval = tuple[float, float, float]  # a mean, and the ends of its 95 % confidence interval
Option = TypeVar("Option")


@dataclass(frozen=True, slots=True)
class Trial:
    """A simulation that `measure` runs to its end, or until more than `max_late` requests are late."""

    scenario: Scenario
    quantile: float
    servers: int
    max_late: int | None = None


def max_late(requests: int, quantile: float) -> int:
    """Return the number of late requests up to which the latency at the quantile can be within the SLO.

    The quantile lies between two requests, as np.quantile has it. With more late requests, even the earlier of the two
    is late."""
    return requests - 1 - math.floor((requests - 1) * quantile - 1e-6)


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a trial.

    `quantile_ms` is the latency at the target's quantile. `late` is the share of requests beyond the SLO, and `doubt`
    its possible error. `low_ms` and `high_ms` are the ends of the interval of the quantile that follows. `power_w` and
    `cost_usd` are of all servers together, over their time. They are 0 without a GPU. `part_utilization` of a server's
    "cpu", "gpu" and "fpga" is empty then."""

    requests: int
    quantile_ms: float
    low_ms: float
    high_ms: float
    late: float
    doubt: float
    span_s: float
    latency_ms: Mapping[str, float]
    power_w: float
    cost_usd: float
    batch_size_mean: float
    part_utilization: Mapping[str, float]
    # more requests were late than the trial allows; the other fields are of the requests until then
    stopped: bool = False


# it takes words for a progress display, and returns results in the order of the trials
Run = Callable[[str, Sequence[Trial]], list[Measured]]


def measure(trial: Trial) -> Measured:
    """Run a trial.

    A scenario that cannot run has infinite latencies. This happens with `smdp` by phase if no stable policy exists. It
    also happens with `preba` if its curves end before its inputs do: batches of the longest then do not fit a slice."""
    scenario = trial.scenario
    try:
        done, _ = run_scenario(scenario, max_late=trial.max_late)
    except (OutOfMemory, Unstable):
        never = math.inf
        return Measured(
            scenario.workload.drawn.requests, never, never, never, 1.0, 0.0, never, {}, never, never, 1.0, {}
        )
    latencies, result = done.latencies(), done.result
    share = float(np.mean(latencies * 1e3 > scenario.workload.slo_ms))
    power, bought, latency_ms = result.get("power_w"), result.get("cost"), result["latency_ms"]
    batch, rate, used = result["batch_size_mean"], result["throughput_rps"], result.get("part_utilization", {})
    assert isinstance(latency_ms, dict) and isinstance(used, dict)
    assert isinstance(batch, float) and isinstance(rate, float)
    quantile_ms = float(np.quantile(latencies, trial.quantile)) * 1e3
    off = doubt_of(latencies * 1e3 > quantile_ms, 1 - trial.quantile)
    ends = [min(1.0, max(0.0, trial.quantile + by)) for by in (-off, off)]
    low_ms, high_ms = (np.quantile(latencies, ends) * 1e3).tolist()
    return Measured(
        requests=len(latencies),
        quantile_ms=quantile_ms,
        low_ms=low_ms,
        high_ms=high_ms,
        late=share,
        doubt=doubt_of(latencies * 1e3 > scenario.workload.slo_ms, 1 - trial.quantile),
        span_s=len(latencies) / rate,
        latency_ms=latency_ms,
        power_w=trial.servers * power["total"] if isinstance(power, dict) else 0.0,
        cost_usd=trial.servers * (bought["capex_usd"] + bought["opex_usd"]) if isinstance(bought, dict) else 0.0,
        batch_size_mean=batch,
        part_utilization=used,
        stopped=done.stopped,
    )


def doubt_of(late: NDArray[np.bool_], allowed: float) -> float:
    """Return the possible error of the share of late requests, against an endless run.

    The estimate takes batch means, and of these the greatest error with few parts or many: parts of a queue near
    saturation must be long to be independent. The error is at least that of independent requests of which as many are
    late as are allowed. A short run without a late request says little."""
    doubt = SURE * math.sqrt(allowed * (1 - allowed) / len(late))
    for parts, sure in SURE_OF_PARTS.items():
        means = np.array([part.mean() for part in np.array_split(late, parts)])
        doubt = max(doubt, sure * float(means.std(ddof=1)) / math.sqrt(parts))
    return doubt


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of 2 to 6 runs with seeds of their own, and the ends of its 95 % confidence interval."""
    mean = float(np.mean(values))
    half = T_95[len(values) - 2] * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def first_confirmed(
    ordered: Iterable[Option], fresh: Callable[[Option], Interval], holds: Callable[[Option, Interval], bool]
) -> tuple[Option, Interval] | None:
    """Return the first option that holds its target with fresh seeds, and its interval; None if there is none.

    This is the outer loop of every search.

    Args:
        ordered: The options that held in the search, the best first. It is asked for the next one only after the one
            before was refused, so it may then yield a larger one.
        fresh: Runs an option with fresh seeds.
        holds: Tells whether the interval is within the target.
    """
    for option in ordered:
        found = fresh(option)
        if holds(option, found):
            return option, found
    return None


def max_held(
    low: Sequence[float], high: Sequence[float], hold: Callable[[Sequence[float]], Sequence[bool]]
) -> list[float]:
    """Return, for several searches side by side, the greatest value at which each still holds.

    Each search halves the ratio of its ends HALVINGS times; `low` is taken to hold. `hold` is asked for all searches at
    once."""
    low, high = list(low), [max(ends) for ends in zip(low, high, strict=True)]
    for _ in range(HALVINGS):
        middle = [math.sqrt(pair[0] * pair[1]) for pair in zip(low, high, strict=True)]
        for number, holds in enumerate(hold(middle)):
            (low if holds else high)[number] = middle[number]
    return list(low)
