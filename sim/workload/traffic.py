"""Traffic: arrival processes, and the requests that arrive.

An arrival process returns arrival times in seconds, rising, shape (requests,). Everything here is a function of its
seed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.sim.engine import Arrivals
from headrace.sim.workload.lengths import Lengths

Times = NDArray[np.float64]
BLOCK = 1 << 16  # the requests of a block


def poisson(rate_rps: float, requests: int, seed: int) -> Times:
    """Return a Poisson process of `rate_rps` requests/s."""
    _check(requests, rate_rps)
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_rps, requests))


def poisson_blocks(rate_rps: float, requests: int, seed: int, block: int = BLOCK) -> Iterator[Times]:
    """Yield `poisson`, to the bit, in blocks of at most `block` requests."""
    _check(requests, rate_rps)
    rng = np.random.default_rng(seed)
    last = 0.0
    for left in range(requests, 0, -block):
        gaps = rng.exponential(1.0 / rate_rps, min(block, left))
        gaps[0] += last
        times = np.cumsum(gaps)
        last = float(times[-1])
        yield times


def deterministic(rate_rps: float, requests: int) -> Times:
    """Return one request every 1 / `rate_rps` seconds, the first after that time."""
    _check(requests, rate_rps)
    return np.arange(1, requests + 1) / rate_rps


def mmpp2(rates_rps: tuple[float, float], mean_dwell_s: tuple[float, float], requests: int, seed: int) -> Times:
    """Return a Markov-modulated Poisson process of two phases.

    In a phase, arrivals are Poisson at `rates_rps[phase]`. Each phase lasts an exponential time of mean
    `mean_dwell_s[phase]`. The process begins in the stationary mix of both phases."""
    _check(requests, *rates_rps)
    if not all(np.isfinite(dwell) and dwell > 0 for dwell in mean_dwell_s):
        raise UsageError(f"the phases last {mean_dwell_s} s on average; give two times above 0")
    rng = np.random.default_rng(seed)
    phase = int(rng.random() >= mean_dwell_s[0] / sum(mean_dwell_s))
    begin = 0.0
    chunks: list[Times] = []
    count = 0
    while count < requests:
        end = begin + rng.exponential(mean_dwell_s[phase])
        # Given how many arrivals a Poisson process has in an interval, they lie uniformly in it.
        chunk = np.sort(rng.uniform(begin, end, rng.poisson(rates_rps[phase] * (end - begin))))
        chunks.append(chunk)
        count += len(chunk)
        begin, phase = end, 1 - phase
    return np.concatenate(chunks)[:requests]


def burst_rates(rate_rps: float) -> tuple[float, float]:
    """Return the rates of a burst and of a lull, for `mmpp2`. If both last equally long on average, their mean is
    `rate_rps`."""
    return 1.8 * rate_rps, 0.2 * rate_rps


def generate_blocks(
    arrival: Iterable[Times],
    lengths: Mapping[str, Lengths],
    slo_s: float,
    seed: int,
    shares: Sequence[float] | None = None,
) -> Iterator[Arrivals]:
    """Yield `generate` for each block, each from a seed of its own. Models and lengths differ from those of all blocks
    together."""
    return (generate(times, lengths, slo_s, seed, number, shares) for number, times in enumerate(arrival))


def generate(
    arrival: Times,
    lengths: Mapping[str, Lengths],
    slo_s: float,
    seed: int,
    block: int | None = None,
    shares: Sequence[float] | None = None,
) -> Arrivals:
    """Return requests at given times, each for one of the models in `lengths`.

    Models, lengths and arrivals are drawn independently.

    Args:
        arrival: Times of arrival (s), rising, shape (requests,).
        lengths: The distribution of lengths by model.
        slo_s: The target latency (s), which may be inf. A request's deadline is its arrival plus this.
        seed: Everything drawn is a function of it.
        block: The number of the block, from which the draws also follow; None for all requests together.
        shares: The probability of each model, in the order of `lengths`, with a sum of 1; None for equal ones.

    Raises:
        UsageError: The target is not above 0, or the times do not rise.
    """
    check_slo(slo_s)
    if not (np.isfinite(arrival).all() and (np.diff(arrival, prepend=0.0) >= 0).all()):
        raise UsageError("the times of arrival must be 0 or more and in rising order")
    models = list(lengths)
    more = () if block is None else (block,)
    rng = np.random.default_rng((seed, 1, *more))
    if shares is None:
        chosen = rng.integers(0, len(models), len(arrival))
    else:
        chosen = rng.choice(len(models), len(arrival), p=shares)
    inputs = np.ones(len(arrival))
    outputs = np.ones(len(arrival), np.int64)
    for number, model in enumerate(models):
        mine = chosen == number
        inputs[mine], outputs[mine] = lengths[model].sample(
            int(mine.sum()), np.random.default_rng((seed, 2, number, *more))
        )
    return Arrivals(
        [models[number] for number in chosen.tolist()],
        arrival.tolist(),
        (arrival + slo_s).tolist(),
        inputs.tolist(),
        outputs.tolist(),
    )


def check_slo(slo_s: float) -> None:
    if not slo_s > 0:  # also refuses NaN
        raise UsageError(f"the target latency is {slo_s} s; give a time above 0")


def _check(requests: int, *rates_rps: float) -> None:
    for rate_rps in rates_rps:
        if not (np.isfinite(rate_rps) and rate_rps > 0):
            raise UsageError(f"the arrival rate is {rate_rps} requests/s; give a rate above 0")
    if requests < 1:
        raise UsageError(f"{requests} requests asked for; give at least 1")
