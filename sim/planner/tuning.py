"""The parameters of policies on a given machine: of those that hold a target, the ones with the least latency at its
quantile.

The space (`choices`). Largest batches are powers of two, up to the size at which they bring no more throughput or take
longer than the SLO. Windows are shares of the SLO. Buckets, growth at the knee, assumed steps of a decoder, tasks ahead
and the worth of power are short lists around the defaults, which are always among them.

The search. Bounds strike out batches too small for the rate. The others race in rounds that grow by FACTOR, with the
same arrivals for all (common random numbers). A run knows its latency at the quantile within an interval, by batch
means (trials.py). Of each policy, settings are dropped whose interval begins after that of the best one has ended. So
the last round has a few settings. Its best is that of an exhaustive search, unless a short run was surely wrong about a
setting. The best of all policies is simulated again with fresh seeds. Where its interval goes beyond the SLO, the next
policy's best is tried.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from headrace.batching.errors import HeadraceError, UsageError
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.profile import KNEE_GROWTH
from headrace.batching.registry import policy_names
from headrace.batching.settings import settings_of
from headrace.sim.hardware.settings import accelerator_name
from headrace.sim.machine import machine_of, max_batch_of, rate_shares
from headrace.sim.planner.bounds import LARGEST, SLACK, fits
from headrace.sim.planner.target import FACTOR, QUANTILES, ROUNDS, least_requests
from headrace.sim.planner.trials import FRESH, Measured, Run, Trial, interval, max_held
from headrace.sim.scenario import Scenario

Parameters = tuple[tuple[str, float | bool | str], ...]  # the parameters of a policy, by their names in `Scenario`

WINDOWS: Final = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # the windows of `graph`, as shares of the SLO
KNEE_GROWTHS: Final = (KNEE_GROWTH, 1.1, 1.2, 1.4)
BUCKETS_S: Final = (1.25, 2.5, 5.0, 10.0)  # the buckets of audio
BUCKET_WIDTHS: Final = (5, 10, 20, 40)
COVERAGES: Final = (0.5, 0.8, 0.9, 0.99)
CELL_BATCHES: Final = (16, 32, 64, 128, 256, 512)
MAX_TASKS: Final = (1, 2, 3, 5, 8)
# the worth of power: shares of a busy worker's power, in the time that a request takes alone
WORTHS: Final = (0.0, 0.1, 0.3, 1.0)
GROWS: Final = 1.01  # the least growth of throughput from one power of two to the next
ALIKE: Final = 1.01  # latencies within this factor count as equal
ALONE: Final = 500  # the requests from which the latency of one alone is estimated
SLOWEST: Final = 1 / 64  # the least share of the rate at which the search looks for settings that hold


@dataclass(frozen=True, slots=True)
class Setting:
    """A policy with its parameters, and the scenario with them."""

    policy: str
    parameters: Parameters
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Tried:
    """A `setting` as `measured` in the last round that it came to; `left` rounds were still to come."""

    setting: Setting
    measured: Measured
    left: int


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best setting of a policy and its defaults, each with the rate up to which it holds the target.

    The rate is below the requested one where the setting does not hold that, and 0 if it is less than SLOWEST of it. It
    is None where the load has no rate."""

    best: Tried
    usual: Tried
    max_rps: float | None
    usual_rps: float | None

    @property
    def policy(self) -> str:
        return self.best.setting.policy


@dataclass(frozen=True, slots=True)
class Tuning:
    """The answer: `policies`, the best first.

    `quantile_ms` is the best policy's latency with fresh seeds, with the ends of its 95 % interval. `tried` are all
    settings. `struck` counts those that bounds excluded, `simulated` runs."""

    scenario: Scenario
    quantile: float
    policies: tuple[Tuned, ...]
    quantile_ms: tuple[float, float, float]
    tried: tuple[Tried, ...]
    struck: int
    simulated: int


def policies_for(scenario: Scenario, text: str) -> list[str]:
    """Return the policies named in `text`, by comma.

    "all" stands for those that can serve the machine, without `oracle`, which knows more than any server. Raises
    UsageError."""
    if text.strip() == "all":
        return [name for name in policy_names() if name != "oracle" and _serves(scenario.having(policy=name))]
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in policy_names() and ":" not in name:
            raise UsageError(f"--tune {text!r}: choose from {', '.join(policy_names())}, or all, or give module:Class")
        machine_of(scenario.having(policy=name))
    return names


def _serves(scenario: Scenario) -> bool:
    try:
        machine_of(scenario)
    except UsageError:
        return False
    return True


class _Known:
    """The bounds of a machine under one policy."""

    def __init__(self, scenario: Scenario) -> None:
        self.machine = machine_of(scenario)
        self.typical = self.machine.typical
        self.shares = rate_shares(scenario)
        self.of_cells = scenario.entry.tasks == "cells"
        self.slo_s = scenario.workload.slo_ms / 1e3
        self.overhead_ms = scenario.overhead_ms
        alone = scenario.entry.name == "serial"
        self.batches = CELL_BATCHES if self.of_cells else (1,) if alone else tuple(self._batches())

    def _batches(self) -> Iterator[int]:
        """Yield the largest batches to try. The first is 1, at any latency."""
        max_batch = min((profile.points[-1].batch for profile in self.machine.profiles.values()), default=LARGEST)
        system, before, batch = self.machine.system, 0.0, 1
        longest = {
            model: float(known.sample(ALONE, np.random.default_rng(0))[0].max())
            for model, known in self.machine.lengths.items()
        }
        while batch <= max_batch and (batch == 1 or system is None or fits(system, batch, longest)):
            rate = batch / self.batch_s(self.machine.times, batch)
            slow = self.batch_s(self.machine.times, batch) > self.slo_s
            if batch > 1 and (slow or rate < GROWS * before):
                return
            yield batch
            before, batch = rate, 2 * batch

    def batch_s(self, times: Mapping[str, NodeTimes], batch: int) -> float:
        """Return the mean seconds of a batch for one model, over the models, at mean lengths."""
        return sum(self.shares[model] * times[model].whole(batch, *length) for model, length in self.typical.items())

    def able_rps(self, batch: int | None = None) -> float:
        """Return a rate that no policy exceeds in batches of up to `batch`, of any size if None."""
        if self.of_cells:
            return math.inf  # the number of a request's cells has no bound
        machine, rate_rps = self.machine, 0.0
        of_each = [machine.times] * machine.workers if machine.system is None else machine.system.times()
        powers = [each for each in self.batches if batch is None or each <= batch]
        for times in of_each:
            rate_rps += max(power / self.batch_s(times, power) for power in powers)
        if machine.system is not None:
            parts = machine.system.capacity_rps(self.typical, self.shares)
            rate_rps = min(rate_rps, *list(parts.values())[:-1], math.inf)  # the last entry is that of the slices
        return SLACK * rate_rps

    def alone_ms(self, quantile: float) -> float:
        """Return the latency at the quantile if every request were alone."""
        if self.of_cells:
            return 0.0
        seconds: list[float] = []
        for model, known in self.machine.lengths.items():
            inputs, outputs = known.sample(ALONE, np.random.default_rng(0))
            each = [times[model] for times in self._kinds()]
            seconds += [
                min(times.whole(1, length, steps) for times in each)
                for length, steps in zip(inputs.tolist(), outputs.tolist(), strict=True)
            ]
        return float(np.quantile(seconds, quantile)) * 1e3 + self.overhead_ms

    def _kinds(self) -> Sequence[Mapping[str, NodeTimes]]:
        """Return the node times of each kind of worker."""
        system = self.machine.system
        return [self.machine.times] if system is None else list({id(t): t for t in system.times()}.values())


def choices(scenario: Scenario) -> list[Parameters]:
    """Return the parameters that are tried for `scenario.policy`. Raises UsageError for a scenario that cannot be
    simulated."""
    known = _Known(scenario)
    machine, policy = known.machine, scenario.entry.name
    decodes = any(len(times.sections.decoder) > 0 for times in machine.times.values())
    profiles = machine.profiles.values()
    varies = len(
        {length for of in machine.lengths.values() for length in of.sample(ALONE, np.random.default_rng(0))[0]}
    )
    takes_audio = any(profile.step_s is not None for profile in profiles) or (
        machine.system is not None and any(network.step_s is not None for network in machine.system.networks)
    )
    batches: dict[str, Sequence[Any]] = {"max_batch": known.batches}
    coverage = {"coverage": COVERAGES} if decodes else {}
    buckets: dict[str, Sequence[Any]] = {}
    if varies > 1:
        buckets = {"bucket_s": BUCKETS_S} if takes_audio else {"bucket_width": BUCKET_WIDTHS}
    knees = {**buckets, **({"merge_buckets": (True, False)} if buckets else {}), "knee_growth": KNEE_GROWTHS}
    space: dict[str, Sequence[Any]]
    match policy:
        case "serial":
            space = {}
        case "graph":
            space = {"window_ms": [_rounded(share * scenario.workload.slo_ms) for share in WINDOWS], **batches}
        case "bucketed-graph":
            space = {**({"bucket_width": BUCKET_WIDTHS} if varies > 1 else {}), **batches}
        case "cellular":
            space = {**batches, "max_tasks": MAX_TASKS}
        case "lazy" | "oracle":
            space = {**batches, **coverage, "defer_late": (False, True)}
        case "preba":
            space = knees
        case "preba-lazy":
            space = {**knees, **coverage}
        case "smdp":
            worth = known.batch_s(machine.times, 1) * 1e3 / (scenario.hardware.busy_w or 1.0)
            weights = {"w2": [_rounded(share * worth) for share in WORTHS]} if scenario.hardware.busy_w else {}
            space = {**batches, **weights}
        case "deferred" | "earliest-deadline":
            space = {**batches, **coverage}
        case _:  # the limit on the batch is the only setting whose values are known to make sense for every policy
            space = batches if any(each.name == "max_batch" for each in scenario.entry.settings) else {}
    return [tuple(zip(space, values, strict=True)) for values in product(*space.values())]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def usual(scenario: Scenario) -> Setting:
    """Return the policy with the default parameters of `headrace simulate`."""
    names = {name for parameters in choices(scenario) for name, _ in parameters}
    default: dict[str, Any] = {each.name: each.default for each in settings_of(type(scenario.policy))}
    own = tuple((name, default[name]) for name in sorted(names))
    return Setting(scenario.entry.name, own, scenario.having(**dict(own)))


def _settings(scenario: Scenario) -> tuple[list[Setting], int]:
    """Return the settings that bounds leave, and how many they struck out."""
    known, rate = _Known(scenario), _rate(scenario)
    settings = []
    every = choices(scenario)
    for parameters in every:
        values: dict[str, Any] = dict(parameters)
        if rate is None or rate <= known.able_rps(values.get("max_batch")):
            settings.append(Setting(scenario.entry.name, parameters, scenario.having(**values)))
    return settings, len(every) - len(settings)


def _rate(scenario: Scenario) -> float | None:
    return None if scenario.workload.trace is not None else scenario.workload.drawn.rate_rps


class _Tuner:
    def __init__(self, quantile: float, run: Run) -> None:
        self.quantile, self._run, self.simulated = quantile, run, 0

    def run(self, text: str, scenarios: Sequence[Scenario]) -> list[Measured]:
        self.simulated += len(scenarios)
        return self._run(text, [Trial(scenario, self.quantile, 1) for scenario in scenarios])

    def race(self, settings: Sequence[Setting], requests: int) -> list[Tried]:
        """Return all settings, each as measured in the last round that it came to."""
        alive, done = list(settings), []
        # A trace has a fixed length, so there is one round.
        for left in reversed(range(1 if settings and _rate(settings[0].scenario) is None else ROUNDS)):
            count = math.ceil(requests / FACTOR**left)
            text = f"{len(alive)} settings: {count} requests"
            scenarios = [each.scenario.having(requests=count) for each in alive]
            measured = self.run(text, scenarios)
            tried = [Tried(*pair, left) for pair in zip(alive, measured, strict=True)]
            kept = list(still_racing(tried)) if left else []
            alive = [each.setting for each in kept]
            done += [each for each in tried if each not in kept]
        return done

    def max_rps(self, tried: Sequence[Tried], requests: int) -> list[float]:
        """Return the rates up to which the settings hold the target. See `Tuned`."""
        settings = [each.setting for each in tried]
        low, high = [], []
        for each in tried:
            scenario = each.setting.scenario
            rate, holds = scenario.workload.drawn.rate_rps, each.measured.quantile_ms <= scenario.workload.slo_ms
            able = min(_Known(scenario).able_rps(), rate / SLOWEST)
            low.append(rate if holds else SLOWEST * rate)
            high.append(able if holds else rate)

        def hold(rates: Sequence[float]) -> list[bool]:
            scenarios = [
                each.scenario.having(rate_rps=rate, requests=math.ceil(requests / FACTOR))
                for each, rate in zip(settings, rates, strict=True)
            ]
            measured = self.run("up to which rate they hold", scenarios)
            return [
                of.quantile_ms <= each.scenario.workload.slo_ms for of, each in zip(measured, settings, strict=True)
            ]

        highest = max_held(low, high, hold)
        held = [each.measured.quantile_ms <= each.setting.scenario.workload.slo_ms for each in tried]
        return [
            max_rps if holds or max_rps > least else 0.0
            for max_rps, least, holds in zip(highest, low, held, strict=True)
        ]

    def confirmed(self, setting: Setting, requests: int) -> tuple[float, float, float]:
        scenarios = [setting.scenario.having(requests=requests, seed=seed) for seed in range(1, FRESH + 1)]
        return interval([each.quantile_ms for each in self.run("the winner with fresh seeds", scenarios)])


def still_racing(tried: Sequence[Tried]) -> Iterator[Tried]:
    """Yield the settings that may be the best of their policy: their interval begins before the best one's ends."""
    ends: dict[str, float] = {}
    for each in tried:
        policy = each.setting.policy
        ends[policy] = min(each.measured.high_ms, ends.get(policy, math.inf))
    for each in tried:
        if each.measured.low_ms <= ends[each.setting.policy]:
            yield each


def _beats(usual: Tried, tried: Sequence[Tried]) -> bool:
    others = [each.measured.quantile_ms for each in tried if each.setting.policy == usual.setting.policy]
    return ALIKE * usual.measured.quantile_ms < min(others, default=math.inf)


def best_of_each(tried: Sequence[Tried]) -> list[Tried]:
    """Return the best setting of each policy, of those in the last round.

    Latencies within ALIKE of the least count as equal. Among these the setting with the largest batch is the best,
    because it can take the most requests when more come."""
    by_policy: dict[str, list[Tried]] = {}
    for each in tried:
        if each.left == 0:
            by_policy.setdefault(each.setting.policy, []).append(each)
    best = []
    for of_one in by_policy.values():
        least_ms = min(each.measured.quantile_ms for each in of_one)
        alike = [each for each in of_one if each.measured.quantile_ms <= ALIKE * least_ms]
        best.append(max(alike, key=lambda each: max_batch_of(each.setting.scenario)))
    return best


def tune(scenario: Scenario, policies: Iterable[str], quantile: float, run: Run) -> Tuning:
    """Return the best parameters of each of the `policies` for a scenario.

    Args:
        scenario: The machine and its load. Its `sla_ms` is the target latency.
        policies: The names of the policies.
        quantile: The share of requests that must end within the target.
        run: Runs simulations.

    Raises:
        UsageError: Bounds rule out the target. The text says what binds, and by how much.
        HeadraceError: Nothing that was simulated holds the target. The text says the same.
    """
    low, high = QUANTILES
    if not low <= quantile <= high:
        raise UsageError(f"--slo-quantile {quantile:g}: give {low:g} to {high:g}")
    of_each = [scenario.having(policy=policy) for policy in policies]
    rate = _rate(scenario)
    requests = least_requests(scenario.workload.slo_ms, rate or 0.0, 1 - quantile)
    settings: list[Setting] = []
    struck = 0
    for each in of_each:
        left, out = _settings(each)
        settings += left
        struck += out
    known = [_Known(each) for each in of_each]
    _check(scenario, quantile, known)
    tuner = _Tuner(quantile, run)
    usuals = [usual(each) for each in of_each]
    tried = tuner.race(settings, requests)
    at_rate = tuner.run("defaults", [each.scenario.having(requests=requests) for each in usuals])
    usual_of = {each.policy: Tried(each, of, 0) for each, of in zip(usuals, at_rate, strict=True)}
    tried += [of for of in usual_of.values() if _beats(of, tried)]
    best = sorted(best_of_each(tried), key=lambda each: each.measured.quantile_ms)
    holding = [each for each in best if each.measured.quantile_ms <= scenario.workload.slo_ms]
    while holding:
        fresh = tuner.confirmed(holding[0].setting, requests)
        if fresh[2] <= scenario.workload.slo_ms:
            break
        holding = holding[1:]
    else:
        raise _missed(scenario, quantile, best[0], known)
    order = [holding[0], *(each for each in best if each is not holding[0])]
    max_rates: list[float | None] = [None] * (2 * len(order))
    if rate is not None:
        both = order + [usual_of[each.setting.policy] for each in order]
        max_rates = list(tuner.max_rps(both, requests))
    tuned = tuple(
        Tuned(each, usual_of[each.setting.policy], max_rates[number], max_rates[len(order) + number])
        for number, each in enumerate(order)
    )
    return Tuning(scenario, quantile, tuned, fresh, tuple(tried), struck, tuner.simulated)


def _check(scenario: Scenario, quantile: float, known: Sequence[_Known]) -> None:
    slo_ms = scenario.workload.slo_ms
    alone_ms = min(each.alone_ms(quantile) for each in known)
    what = f"{scenario.workload.model} on {accelerator_name(scenario.hardware)}"
    if alone_ms > slo_ms:
        raise UsageError(
            f"--slo-ms {slo_ms:g} is below {alone_ms:.3g} ms, which the {quantile:g} quantile of {what} takes "
            f"alone: the SLO binds, by {alone_ms / slo_ms:.2f} times"
        )
    rate = _rate(scenario)
    able = max(each.able_rps() for each in known)
    if rate is not None and rate > able:
        raise UsageError(
            f"--rate-rps {rate:g} is more than {what} can serve in batches that end within --slo-ms "
            f"{slo_ms:g}: the machine binds, at about {able / SLACK:.4g}/s, {rate / able * SLACK:.2f} times "
            "too little"
        )


def _missed(scenario: Scenario, quantile: float, nearest: Tried, known: Sequence[_Known]) -> HeadraceError:
    able, rate = max(each.able_rps() for each in known) / SLACK, _rate(scenario)
    used = f", with {100 * rate / able:.0f} % of what the machine can do" if rate and able < math.inf else ""
    words = described(nearest.setting)
    binds = "the machine" if rate and rate / able >= 0.9 else "the SLO"
    return HeadraceError(
        f"no parameters found that hold {scenario.workload.slo_ms:g} ms at quantile {quantile:g}: "
        f"the nearest, {words}, have "
        f"{nearest.measured.quantile_ms:.4g} ms{used}; {binds} binds; allow more --slo-ms, or a lower --rate-rps"
    )


def described(setting: Setting) -> str:
    words = ", ".join(f"{name} {_word(value)}" for name, value in setting.parameters)
    return f"{setting.policy}{f' ({words})' if words else ''}"


def _word(value: float | bool | str) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else f"{value:g}"
