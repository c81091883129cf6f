"""Bounds before any simulation: the greatest rate of a server, and the least time of a request."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.batching.graphs.execution import NodeTimes
from headrace.sim.engine import Arrivals
from headrace.sim.hardware.gpu.slice import PRECISIONS, check_fits, slice_of
from headrace.sim.machine import SAMPLES, mean_lengths, rate_shares, server_of
from headrace.sim.planner.target import Hardware, Target
from headrace.sim.scenario import Scenario
from headrace.sim.system import cost
from headrace.sim.system.system import System

BATCHES: Final = (1, 2, 4)  # the largest batches, in Batch_knee of the smallest slice
LARGEST: Final = 256
# A batch between two powers of two, or varying lengths, may have this much more throughput than the best power of two.
SLACK: Final = 1.05


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a server.

    Attributes:
        capacity_rps: The greatest rate of each part; of slices, at the knee.
        slices_rps: The greatest rate of the slices in batches of up to 1, 2, 4 ... requests.
        batches: The largest batches for policies that take one, if they fit the slices' memory.
        alone_ms: The latency at the target's quantile if every request were alone.
        typical: The mean lengths of input and output by model.
        shares: The share of all requests by model.
        system: The server.
    """

    capacity_rps: Mapping[str, float]
    slices_rps: tuple[float, ...]
    batches: tuple[int, ...]
    alone_ms: float
    typical: Mapping[str, tuple[float, int]]
    shares: Mapping[str, float]
    system: System

    def max_rps(self, batch: int | None) -> float:
        """Return a rate that no policy exceeds in batches of up to `batch`; None is for the knee, as for `preba`."""
        slices = self.capacity_rps["slices"] if batch is None else self.slices_rps[batch.bit_length() - 1]
        return min([SLACK * slices, *[rate for part, rate in self.capacity_rps.items() if part != "slices"]])

    @property
    def able_rps(self) -> float:
        """Return a rate that no policy exceeds with any of the parameters that are tried."""
        return max(self.max_rps(batch) for batch in (None, *self.batches))

    @property
    def binds(self) -> str:
        return min(self.capacity_rps, key=lambda part: self.capacity_rps[part])


_PART = {"cpu": "cpu", "nvjpg": "nvjpg", "resize": "slices", "image cu": "cus", "mel cu": "cus", "norm cu": "cus"}


@cache
def bounds(scenario: Scenario, quantile: float) -> Bounds:
    """Return the bounds of a scenario's server for its requests, at any rate.

    Raises UsageError for hardware that cannot be, or that the model does not fit."""
    system, known = server_of(scenario)
    shares = rate_shares(scenario)
    typical = {name: mean_lengths(of) for name, of in known.items()}
    capacity: dict[str, float] = {}
    named = {f"{step.name!r} of {system.preprocessor.name}": step.name for step in system.preprocessor.steps}
    for part, rate in system.capacity_rps(typical, shares).items():
        name = _PART.get(named[part], "pcie") if part in named else "slices"
        capacity[name] = min(rate, capacity.get(name, math.inf))
    drawn = {
        name: np.asarray(of.sample(SAMPLES, np.random.default_rng(0))[0], np.float64) for name, of in known.items()
    }
    alone = [_alone_s(system, name, inputs, typical[name][1]) for name, inputs in drawn.items()]
    weights = np.repeat([shares[name] for name in drawn], SAMPLES)
    longest = {name: float(inputs.max()) for name, inputs in drawn.items()}
    _check_fits(system, 1, longest)
    slices_rps = _slices_rps(system, typical, shares)
    alone_s = float(np.quantile(np.concatenate(alone), quantile, weights=weights, method="inverted_cdf"))
    batches = _batches(system, typical, longest)
    return Bounds(capacity, slices_rps, batches, alone_s * 1e3 + scenario.overhead_ms, typical, shares, system)


def _batches(system: System, typical: Mapping[str, tuple[float, int]], longest: Mapping[str, float]) -> tuple[int, ...]:
    profiles = system.profiles()
    each = [profiles] if isinstance(profiles, dict) else profiles
    knees = [of[name].knee(length).batch for of in each for name, (length, _) in typical.items()]
    batches = sorted({min(knees) * factor for factor in BATCHES} | {max(knees)})
    return tuple(batch for batch in batches if batch <= LARGEST and fits(system, batch, longest))


def _check_fits(system: System, batch: int, longest: Mapping[str, float]) -> None:
    kinds = {each.profile.name: each.profile for each in system.slices}.values()
    for network, profile in product(system.networks, kinds):
        check_fits(network, batch, longest[network.name], slice_of(system.gpu, profile), PRECISIONS[system.precision])


def fits(system: System, batch: int, longest: Mapping[str, float]) -> bool:
    """Return whether all slices hold a batch of the `longest` inputs by model."""
    try:
        _check_fits(system, batch, longest)
    except UsageError:
        return False
    return True


def _slices_rps(
    system: System, typical: Mapping[str, tuple[float, int]], shares: Mapping[str, float]
) -> tuple[float, ...]:
    """Return the rate of the slices in batches of up to 1, 2, 4 ... LARGEST requests for one model, as far as a slice
    has memory."""
    total = [0.0] * LARGEST.bit_length()
    for times in system.times():
        best = 0.0
        for power in range(len(total)):
            with contextlib.suppress(UsageError):
                seconds = sum(
                    shares[name] * _batch_s(times[name], 2**power, *lengths) for name, lengths in typical.items()
                )
                best = max(best, 2**power / seconds)
            total[power] += best
    return tuple(total)


@cache
def _batch_s(times: NodeTimes, batch: int, length: float, outputs: int) -> float:
    return times.whole(batch, length, outputs)


def _alone_s(system: System, model: str, inputs: NDArray[np.float64], outputs: int) -> NDArray[np.float64]:
    count, nothing = len(inputs), [0.0] * len(inputs)
    sizes = system.sizes(0)(Arrivals([model] * count, nothing, nothing, inputs.tolist(), [1] * count))
    total = np.zeros(count)
    for step in system.preprocessor.steps:
        total += step.service_s(sizes)
    kinds = {each.profile.name: times[model] for each, times in zip(system.slices, system.times(), strict=True)}
    different, places = np.unique(inputs, return_inverse=True)
    fastest = [min(times.whole(1, length, outputs) for times in kinds.values()) for length in different.tolist()]
    seconds: NDArray[np.float64] = total + np.array(fastest)[places]
    return seconds


def bounds_of(target: Target, hardware: Hardware) -> Bounds:
    return bounds(target.on(hardware), target.quantile)


def idle(target: Target, hardware: Hardware) -> tuple[float, float]:
    """Return dollars and watts of all servers when they do nothing."""
    system = bounds_of(target, hardware).system
    watts = sum(system.machine().power_w({}).values())
    prices = system.prices_usd
    bought = cost.cost(0.0, watts, system.parts(), prices_usd=prices, usd_a_kwh=prices[cost.KWH])
    return hardware.servers * (bought.capex_usd + bought.opex_usd), hardware.servers * watts
