"""The rate that one slice holds within an SLO, by simulation: the options of `allocate`.

The search goes over every profile that differs and every way of preparing inputs. For each it finds the greatest rate
at which a slice alone, with a short list of policies, has the target's share of requests in time. It bisects with
common random numbers: first all policies with inputs that cost nothing, then the best ones in each way, then the best
one in long runs. A slice gets as many cores and CUs as are busy for LOAD of the time at that rate, or in bursts of it.
Several slices that share a queue hold at least as much each.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.batching.errors import UsageError
from headrace.sim.hardware.gpu import power
from headrace.sim.hardware.gpu.mig import InstanceProfile, gpu_named
from headrace.sim.planner.allocate import CARD_CUS, Option
from headrace.sim.planner.bounds import bounds_of
from headrace.sim.planner.space import SOCKETS, preprocessings, settings_of
from headrace.sim.planner.target import Candidate, Hardware, Target
from headrace.sim.planner.trials import Measured, Run, Trial
from headrace.sim.system.system import CORES
from headrace.sim.workload.traffic import burst_rates

LOAD: Final = 0.8  # the share of the time that cores and CUs are busy; with more, requests wait for them
POLICIES: Final = ("preba", "graph")
KEPT: Final = 2  # the settings that are tried in each way
LEAST: Final = 0.02  # the share of the bound below which a slice is of no use
HALVINGS: Final = (6, 5, 4)  # the halvings of the three bisections: to 6 %, to 12 %, and to 2 %
AROUND: Final = (0.8, 1.15)  # the third bisection looks around the result of the second


@dataclass(frozen=True, slots=True)
class _Slice:
    """A slice with a way of preprocessing, and a candidate's settings for it."""

    target: Target
    profile: str
    way: str
    settings: Candidate

    def candidate(self, rate_rps: float) -> Candidate:
        """Return the settings with the cores or CUs that the rate needs, and one more.

        Next to others, the slice has the spare ones of its server."""
        return replace(self.settings, hardware=Hardware(1, self.profile, self.preprocess(rate_rps)))

    def preprocess(self, rate_rps: float) -> str:
        needed = math.ceil(self.needed(rate_rps))
        match self.way:
            case "cpu":
                return f"cpu:{min(needed + 2, CORES * max(SOCKETS))}"
            case "dpu":
                return f"dpu:{min(needed + 1, CARD_CUS)}"
            case _:
                return self.way

    def needed(self, rate_rps: float) -> float:
        """Return the cores or CUs that the rate needs."""
        if self.way not in ("cpu", "dpu"):
            return 0.0
        # The slice's server process keeps one core.
        name, least = ("cpu", "cpu:2") if self.way == "cpu" else ("cus", "dpu:1")
        one = bounds_of(self.target, Hardware(1, self.profile, least)).capacity_rps[name]
        return self.peak * rate_rps / one / LOAD

    @property
    def peak(self) -> float:
        """Return the rate in a burst, as a factor of the mean."""
        return max(burst_rates(1.0)) if self.target.traffic == "mmpp" else 1.0

    def max_rps(self) -> float:
        """Return the bound on the rate with all cores or CUs that a server can have. Raises UsageError for hardware
        that cannot be."""
        widest = {"cpu": f"cpu:{CORES * max(SOCKETS)}", "dpu": f"dpu:{CARD_CUS}"}.get(self.way, self.way)
        known = bounds_of(self.target, Hardware(1, self.profile, widest))
        able = known.able_rps if known.alone_ms <= self.target.slo_ms else 0.0
        limits = [known.capacity_rps[part] for part in ("cpu", "cus") if part in known.capacity_rps]
        return min([able, *(LOAD / self.peak * limit for limit in limits)])

    def trial(self, rate_rps: float, short: bool) -> Trial:
        target = self.target.at(rate_rps)
        requests = target.rounds(1)[-2:][0] if short else target.requests(1)
        return Trial(self.candidate(rate_rps).scenario(target, requests), target.quantile, 1)


@dataclass(frozen=True, slots=True)
class _Held:
    rate_rps: float
    measured: Measured


def ways_of(target: Target) -> list[str]:
    return list(dict.fromkeys(way.partition(":")[0] for way in preprocessings(target)))


def options_of(targets: Sequence[Target], run: Run) -> list[Option]:
    """Return the options of slices of every profile for the model of each target, at any rate.

    Raises UsageError for a model that no slice serves within its SLO."""
    settings = _settings(targets)
    for target in targets:
        if not any(each.target == target for each, _ in settings):
            raise _unserved(target)
    held_rates = _bisected("policies", settings, run, (LEAST, 1.0), HALVINGS[0], short=True)
    ranked: dict[tuple[str, str], list[tuple[float, _Slice]]] = {}
    for each, held in held_rates:
        ranked.setdefault((each.target.model, each.profile), []).append((held.rate_rps, each))
    ways = []
    for of in ranked.values():
        for rate, each in sorted(of, key=lambda pair: -pair[0])[:KEPT]:
            ways += [
                (replace(each, way=way, profile=profile), rate)
                for way in ways_of(each.target)
                for profile in _alike(each, way)
            ]
    able = [(each, min(1.05 * rate, limit_rps)) for each, rate in ways if (limit_rps := _able(each))]
    held_rates = _bisected("preprocessing", able, run, (2 * LEAST, 1.0), HALVINGS[1], short=True)
    best: dict[tuple[str, str, str], tuple[float, _Slice]] = {}
    for each, held in held_rates:
        key = each.target.model, each.profile, each.way
        best[key] = max(best.get(key, (0.0, each)), (held.rate_rps, each), key=lambda pair: pair[0])
    low, high = AROUND
    last = [(each, min(high * rate, _able(each))) for rate, each in best.values()]
    held_rates = _bisected("capacity", last, run, (low / high, 1.0), HALVINGS[2], short=False)
    options = [option for each, held in held_rates for option in _options(each, held)]
    for target in targets:
        if not any(option.model == target.model for option in options):
            raise _unserved(target)
    return options


def _settings(targets: Sequence[Target]) -> list[tuple[_Slice, float]]:
    """Return every setting on every kind of slice with inputs that cost nothing, and the rate that bounds allow it."""
    settings = []
    for target in targets:
        shapes = set()
        for profile in gpu_named(target.gpu).profiles.values():
            if _shape(profile, "ideal") in shapes:
                continue
            shapes.add(_shape(profile, "ideal"))
            hardware = Hardware(1, profile.name, "ideal")
            try:
                candidates = settings_of(target, hardware)
            except UsageError:  # the model does not fit the slice
                continue
            known = bounds_of(target, hardware)
            for candidate in candidates:
                batch = dict(candidate.parameters).get("max_batch")
                limit_rps = known.max_rps(None if batch is None else int(batch))
                if candidate.policy in POLICIES and known.alone_ms <= target.slo_ms:
                    settings.append((_Slice(target, profile.name, "ideal", candidate), limit_rps))
    return settings


def _shape(profile: InstanceProfile, way: str) -> tuple[int, int, int]:
    return profile.sms, profile.memory_slices, profile.jpeg_engines * (way == "nvjpg")


def _alike(each: _Slice, way: str) -> list[str]:
    """Return the profiles that differ only in what matters to `way`."""
    profiles = gpu_named(each.target.gpu).profiles
    alike = [name for name, of in profiles.items() if _shape(of, "ideal") == _shape(profiles[each.profile], "ideal")]
    return list({_shape(profiles[name], way): name for name in reversed(alike)}.values())


def _able(each: _Slice) -> float:
    try:
        return each.max_rps()
    except UsageError:  # the slice has no JPEG engines
        return 0.0


def _bisected(
    text: str,
    slices: Sequence[tuple[_Slice, float]],
    run: Run,
    between: tuple[float, float],
    halvings: int,
    *,
    short: bool,
) -> list[tuple[_Slice, _Held]]:
    """Return the greatest rate that each slice holds, between two shares of the given one. Slices that hold none are
    left out."""
    low = [between[0] * limit_rps for _, limit_rps in slices]
    high = [between[1] * limit_rps for _, limit_rps in slices]
    held: dict[int, _Held] = {}

    def try_at(rates: Mapping[int, float], stage: str) -> None:
        trials = [slices[number][0].trial(rate, short) for number, rate in rates.items()]
        for (number, rate), measured in zip(rates.items(), run(stage, trials), strict=True):
            if measured.quantile_ms <= slices[number][0].target.slo_ms:
                held[number] = _Held(rate, measured)
                low[number] = rate
            else:
                high[number] = rate

    alive = range(len(slices))
    models = ", ".join(dict.fromkeys(each.target.model for each, _ in slices))
    try_at({number: low[number] for number in alive}, f"{text} of a slice for {models}: any rate")
    alive_ones = list(held)
    for step in range(halvings):
        rates = {number: math.sqrt(low[number] * high[number]) for number in alive_ones}
        try_at(rates, f"{text} of a slice for {models}: halving {step + 1} of {halvings}")
    return [(slices[number][0], held[number]) for number in alive_ones]


def _options(each: _Slice, held: _Held) -> list[Option]:
    """Return the options of all profiles that are alike."""
    profiles = gpu_named(each.target.gpu).profiles
    needed = each.needed(held.rate_rps)
    settings = each.candidate(held.rate_rps)
    watts = watts_of(each.target.gpu, settings.hardware.preprocess, held.measured.part_utilization)
    batch = dict(settings.parameters).get("max_batch", held.measured.batch_size_mean)
    return [
        Option(
            each.target.model,
            name,
            each.way,
            held.rate_rps,
            cores=needed if each.way == "cpu" else 0.0,
            cus=needed if each.way == "dpu" else 0.0,
            watts=watts,
            batch=round(batch),
            policy=settings.policy,
            parameters=settings.parameters,
        )
        for name, profile in profiles.items()
        if _shape(profile, each.way) == _shape(profiles[each.profile], each.way)
    ]


def busy_parts(preprocess: str, used: Mapping[str, float]) -> dict[str, float]:
    """Return the cores that are busy, the share of the GPU, and that of a card of CARD_CUS, from a simulation's
    `part_utilization`."""
    way, _, count = preprocess.partition(":")
    cores = int(count) if way == "cpu" else CORES
    busy = {"cpu": used["cpu"] * cores, "gpu": used["gpu"]}
    if way == "dpu":
        busy["fpga"] = used["fpga"] * int(count) / CARD_CUS
    return busy


def watts_of(gpu: str, preprocess: str, used: Mapping[str, float]) -> float:
    """Return the watts above idle."""
    busy = busy_parts(preprocess, used)
    parts = {part.name: part.busy_w - part.idle_w for part in power.server(gpu, fpga=True).parts}
    return parts["cpu"] * busy["cpu"] / CORES + parts["gpu"] * busy["gpu"] + parts["fpga"] * busy.get("fpga", 0.0)


def _unserved(target: Target) -> UsageError:
    fastest: tuple[float, str] | None = None
    refused = ""
    for profile in gpu_named(target.gpu).profiles:
        for way in preprocessings(target):
            try:
                alone = bounds_of(target, Hardware(1, profile, way)).alone_ms
            except UsageError as error:
                refused = str(error)
                continue
            fastest = min(fastest or (math.inf, ""), (alone, f"{profile} with {way}"))
    if fastest is None:
        return UsageError(f"--model {target.model} on {target.gpu}: {refused}")
    return UsageError(
        f"--slo-ms {target.slo_ms:g} of {target.model}: no slice of {target.gpu} holds a rate within it; a request "
        f"alone takes {fastest[0]:.3g} ms at the {target.quantile:g} quantile on the fastest, {fastest[1]}: the SLO "
        f"binds; allow more"
    )
