"""The cheapest server that meets a target: a GPU's partition, the preprocessing of its inputs, and the policy.

The search is pure: it says what is to be simulated, and its caller runs that, on one core or on all (`Run`).

The space. Hardware is a number of equal servers. Each has one GPU in a full partition (to which no instance could be
added) and one way of preprocessing. Each takes an equal share of the arrivals: a share of a Poisson process, or of
bursts, is again one, and a trace is dealt out in turns. Settings are a policy with its parameters. Windows are shares
of the SLO, and largest batches are multiples of the knee of the smallest slice. Networks for texts have nothing to
preprocess; all others never use "ideal".

The search. The price comes first: hardware that costs the same is a level, and the cheapest level comes first. A
level's floor is its cost when idle. Once enough plans are cheaper than the floors that are left, the search ends. In a
level, bounds strike out hardware whose parts cannot do the rate, or where a request takes too long even alone. The
others race by successive halving (Jamieson, Talwalkar, AISTATS 2016) with common random numbers: every round is longer
and has the same arrivals for all. A candidate that surely misses the target is dropped. Of the others, a candidate is
dropped if enough surely cheaper ones surely hold the target.

Certainty comes from batch means (Law, Simulation Modeling and Analysis, 9.5.3). Requests of a queue are not
independent, so the share of late ones is estimated from consecutive parts of the run. A run stops once more requests
are late than the last round allows in all. If a candidate that was sure misses the target in a longer round after all,
the candidates that it displaced come back. The winner is simulated again with fresh seeds, and must hold the target
with the upper end of its interval. If it does not, the next one is tried.

The search uses no library. Levels and bounds leave some hundred candidates, each of which takes milliseconds to
simulate. Nothing in a list of partitions and policies is smooth, so a library's model of the objective would not help.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from headrace.batching.errors import HeadraceError, UsageError
from headrace.sim.machine import server_of
from headrace.sim.planner.bounds import Bounds, bounds_of, idle
from headrace.sim.planner.space import hardware_of, settings_of
from headrace.sim.planner.target import Candidate, Hardware, Target
from headrace.sim.planner.trials import (
    BINDS,
    FRESH,
    SURE_SPANS,
    Interval,
    Measured,
    Run,
    Trial,
    first_confirmed,
    interval,
    max_held,
    max_late,
)
from headrace.sim.system import cost
from headrace.sim.workload.lengths import Fixed

# settings on the same hardware that continue if both surely hold: one, and one in case it fails with fresh seeds
SETTINGS: Final = 2
# The power of two plans of a level may differ by this share, over the root of the requests, until it is sure which is
# less. This is a guess with room to spare. In the few cases that were studied (the small spaces of the tests, and four
# models on 20 pieces of hardware) none needed more than six tenths of it. It is no bound: another model or load may
# need more. The best then draws a little more than another plan of the same price.
NEAR: Final = 0.2
RUNNERS_UP: Final = 3
NEXT: Final = 1.1


@dataclass(frozen=True, slots=True)
class Plan:
    """A `candidate` as `measured` in the last round.

    It holds up to about `max_rps` in all, where `binds` ends it: "cpu", "cus", "nvjpg", "pcie", "slices", "launch"
    (slices, which mostly wait for launches) or "slo". `used` is the share of each part's capacity at the target's rate
    (in full batches), and of the SLO."""

    candidate: Candidate
    measured: Measured
    used: Mapping[str, float]
    max_rps: float
    binds: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a target.

    `quantile_ms` is the best plan's latency with fresh seeds, with the ends of its 95 % interval. `next_usd` is the
    extra cost of NEXT times the rate, and `next_plan` the plan for it; None if there is none. `simulated` counts runs,
    `struck` hardware that bounds excluded."""

    target: Target
    best: Plan
    runners_up: tuple[Plan, ...]
    quantile_ms: tuple[float, float, float]
    next_usd: float | None
    next_plan: Candidate | None
    simulated: int
    struck: int


def objective(target: Target, servers: int, usd: float, watts: float) -> tuple[float, ...]:
    """Return the sort key of a plan. It is rounded, so that sums of the same numbers in another order are equal."""
    usd, watts = round(usd, 6), round(watts, 6)
    match target.least:
        case "power":
            return watts, usd
        case "gpus":
            return servers, usd
        case _:
            return usd, watts


@dataclass(frozen=True, slots=True)
class _Entry:
    """A candidate in the race."""

    candidate: Candidate
    measured: Measured
    objective: tuple[float, ...]
    surely: bool  # whether it surely holds the target
    never: bool


class _Search:
    """The search for `target`. `room` is how many different pieces of hardware that hold it are wanted."""

    def __init__(self, target: Target, run: Run, room: int) -> None:
        self.target, self._run, self.room = target, run, room
        self.simulated = self.struck = 0
        # the entry nearest to the target, of those that came as far, with the rounds that were left
        self.nearest: tuple[int, _Entry] | None = None
        hardware, refused = hardware_of(target)
        if not hardware:
            # the reason for the largest slice
            raise UsageError(f"--model {target.model} on {target.gpu}: {refused[-1]}")
        self._check_latency(hardware)
        # Otherwise a longer round does not begin with the requests of a shorter one, because lengths are drawn all at
        # once.
        _, lengths = server_of(target.on(hardware[0]))
        self._lengths_alike = all(isinstance(each, Fixed) for each in lengths.values())
        within = [each for each in hardware if self._within(each)]
        self.struck = len(hardware) - len(within)
        if not within:
            self._refuse(hardware)
        levels: dict[tuple[float, ...], list[Hardware]] = {}
        for each in within:
            usd, watts = idle(target, each)
            levels.setdefault(objective(target, each.servers, usd, watts), []).append(each)
        self._levels = sorted(levels.items())

    def _within(self, hardware: Hardware) -> bool:
        known = bounds_of(self.target, hardware)
        usd, _ = idle(self.target, hardware)
        budget = self.target.budget_usd
        return (
            self.target.rate_rps <= hardware.servers * known.able_rps
            and known.alone_ms <= self.target.slo_ms
            and (budget is None or usd <= budget)
        )

    def _check_latency(self, hardware: Sequence[Hardware]) -> None:
        fastest = min(hardware, key=lambda each: bounds_of(self.target, each).alone_ms)
        least_ms = bounds_of(self.target, fastest).alone_ms
        if least_ms > self.target.slo_ms:
            raise UsageError(
                f"--slo-ms {self.target.slo_ms:g} is below {least_ms:.3g} ms, which the "
                f"{self.target.quantile:g} quantile of {self.target.model} takes alone on the fastest "
                f"that there is, {fastest.partition} of "
                f"{self.target.gpu} with "
                f"{fastest.preprocess}: the SLO binds, "
                f"by {least_ms / self.target.slo_ms:.2f} times"
            )

    def _refuse(self, hardware: Sequence[Hardware]) -> None:
        target = self.target
        able = [each for each in hardware if bounds_of(target, each).alone_ms <= target.slo_ms]
        best = max(able, key=lambda each: each.servers * bounds_of(target, each).able_rps)
        one = bounds_of(target, best)
        max_rps = best.servers * one.able_rps
        if max_rps < target.rate_rps:
            raise UsageError(
                f"{target.asked} is more than {target.gpus} x {target.gpu} can serve: "
                f"{one.binds} binds at about {max_rps:.4g}/s with {best.partition} and "
                f"{best.preprocess}, "
                f"{target.rate_rps / max_rps:.2f} times too little; "
                f"give --gpus {math.ceil(target.rate_rps / one.able_rps)} or a lower rate"
            )
        enough = [each for each in able if each.servers * bounds_of(target, each).able_rps >= target.rate_rps]
        least = min(idle(target, each)[0] for each in enough)
        raise UsageError(
            f"--budget-usd {target.budget_usd:g}: a server that could do {target.asked} costs at least "
            f"{least:,.0f} $ in {cost.YEARS:g} years, and the energy of its work; the budget binds"
        )

    def missed(self) -> HeadraceError:
        target, nearest = self.target, self.nearest
        assert nearest is not None  # bounds left some hardware, and that was simulated
        candidate = nearest[1].candidate
        hardware = candidate.hardware
        # this run goes to its end
        (measured,) = self.run("the nearest", [(candidate, 1.0, target.requests(hardware.servers), 0)])
        server = f"{target.gpu}, {hardware.partition}, {hardware.preprocess}, {candidate.policy}"
        known = bounds_of(target, hardware)
        used = target.rate_rps / (hardware.servers * known.capacity_rps[known.binds])
        return HeadraceError(
            f"no plan found for {target.rate_rps:g}/s within {target.slo_ms:g} ms: of {self.simulated} runs the "
            f"nearest, {hardware.servers} x {server}, "
            f"has {measured.quantile_ms:.4g} ms at quantile {target.quantile:g} for "
            f"{measured.cost_usd:,.0f} $, with {100 * used:.0f} % of its {known.binds} in use; allow more "
            "--slo-ms, --gpus or --budget-usd, or a lower --rate-rps"
        )

    def run(
        self, text: str, trials: Sequence[tuple[Candidate, float, int, int]], beyond: int | None = None
    ) -> list[Measured]:
        """Run candidates, each with a factor on the target's rate, a number of requests and a seed.

        A run stops once it is certain that a run of `beyond` requests, which begins with its own, misses the target."""
        self.simulated += len(trials)
        jobs = []
        for candidate, faster, requests, seed in trials:
            target = self.target.at(faster * self.target.rate_rps)
            scenario = candidate.scenario(target, requests, seed)
            late = None if beyond is None else max_late(beyond, target.quantile)
            jobs.append(Trial(scenario, target.quantile, candidate.hardware.servers, late))
        return self._run(text, jobs)

    def held(self) -> Iterator[list[_Entry]]:
        """Yield the candidates that hold the target in the last round, the best first, from as many levels as may
        matter to `room`.

        Each further list leaves out the first candidate of the one before, until none is left."""
        holding: list[_Entry] = []
        while True:
            while self._levels and self._levels[0][0] < self._threshold(holding):
                _, hardware = self._levels.pop(0)
                holding = sorted([*holding, *self._race(hardware)], key=lambda entry: entry.objective)
            if not holding:
                return
            yield holding
            holding = holding[1:]

    def _threshold(self, holding: Sequence[_Entry]) -> tuple[float, ...]:
        """Return the objective above which a level does not matter any more."""
        best = first_of_each(holding)
        return best[self.room - 1].objective if len(best) >= self.room else (math.inf,)

    def _race(self, hardware: Sequence[Hardware]) -> list[_Entry]:
        """Return the candidates of a level that hold the target in the last round.

        A candidate that seemed sure and was not has wrongly displaced others. The race then runs again without trust in
        it, and simulates only what was not simulated before."""
        target = self.target
        racing = [candidate for each in hardware for candidate in settings_of(target, each) if self._able(candidate)]
        servers = hardware[0].servers  # all hardware of a level has as many
        ways = ", ".join(dict.fromkeys(each.preprocess for each in hardware))
        text = f"{servers} x {target.gpu}, {ways}, {target.rate_rps:g}/s"
        known: dict[tuple[Candidate, int], Measured] = {}
        failed: set[Candidate] = set()
        while True:
            alive, trusted, out = racing, set[Candidate](), set[Candidate]()
            held: list[_Entry] = []
            rounds = target.rounds(servers)
            for left, requests in zip(reversed(range(len(rounds))), rounds, strict=True):
                new = [each for each in alive if (each, requests) not in known]
                if new:
                    jobs = [(each, 1.0, requests, 0) for each in new]
                    last = rounds[-1] if left == 0 or self._lengths_alike else None
                    measured = self.run(f"{text}: {requests} requests", jobs, last)
                    known.update({(each, requests): of for each, of in zip(new, measured, strict=True)})
                entries = [self._entry(each, known[each, requests]) for each in alive]
                before = [self.nearest] if self.nearest else []
                self.nearest = min([*before, *((left, entry) for entry in entries)], key=_miss, default=None)
                out.update(entry.candidate for entry in entries if entry.never)
                entries = [
                    replace(entry, surely=entry.surely and entry.candidate not in failed)
                    for entry in entries
                    if not entry.never
                ]
                if left == 0:
                    held = [entry for entry in entries if self._holds(entry.measured)]
                    out.update({entry.candidate for entry in entries} - {entry.candidate for entry in held})
                trusted.update(entry.candidate for entry in entries if entry.surely)
                near = NEAR / math.sqrt(requests)
                alive = [entry.candidate for entry in still_racing(entries, self.room << left, SETTINGS, near)]
            if not trusted & out:
                return held
            failed |= trusted & out

    def _able(self, candidate: Candidate) -> bool:
        """Return whether bounds allow the rate with the candidate's largest batch."""
        return self.target.rate_rps <= self._max_rps(candidate)

    def _max_rps(self, candidate: Candidate) -> float:
        batch = dict(candidate.parameters).get("max_batch")
        max_rps = bounds_of(self.target, candidate.hardware).max_rps(None if batch is None else int(batch))
        return candidate.hardware.servers * max_rps

    def _entry(self, candidate: Candidate, measured: Measured) -> _Entry:
        target, budget = self.target, self.target.budget_usd
        usd, watts = measured.cost_usd, measured.power_w
        long = measured.span_s >= SURE_SPANS * target.slo_ms / 1e3
        return _Entry(
            candidate,
            measured,
            objective(target, candidate.hardware.servers, usd, watts),
            surely=long and measured.late + measured.doubt <= target.late,
            never=measured.stopped
            or (long and measured.late - measured.doubt > target.late)
            or (budget is not None and usd > 1.01 * budget),
        )

    def _holds(self, measured: Measured) -> bool:
        budget = self.target.budget_usd
        return measured.quantile_ms <= self.target.slo_ms and (budget is None or measured.cost_usd <= budget)

    def confirmed(self, candidate: Candidate) -> Interval:
        """Return the latency at the quantile with FRESH seeds (ms), and the ends of its 95 % confidence interval.

        For a trace, return the mean of all servers, the minimum and the maximum."""
        servers, whole = candidate.hardware.servers, self.target.replay is not None
        seeds = range(servers) if whole else range(1, FRESH + 1)
        runs = [(candidate, 1.0, self.target.requests(servers), seed) for seed in seeds]
        text = "the whole trace" if whole else "the winner with fresh seeds"
        values = [measured.quantile_ms for measured in self.run(text, runs)]
        return (float(np.mean(values)), min(values), max(values)) if whole else interval(values)

    def following(self, held: Sequence[_Entry]) -> _Entry | None:
        """Return the best candidate for NEXT times the rate; None if none holds it.

        Candidates that are cheaper by a level and do not hold the rate do not hold a greater one."""
        trials = [(entry.candidate, NEXT, entry.measured.requests, 0) for entry in held]
        measured = self.run("a tenth more", trials)
        entries = [self._entry(each.candidate, values) for each, values in zip(held, measured, strict=True)]
        able = [entry for entry in entries if entry.measured.quantile_ms <= self.target.slo_ms]
        return min(able, key=lambda entry: entry.objective, default=None)

    def plans(self, entries: Sequence[_Entry]) -> list[Plan]:
        """Return how far each candidate could go, and what then binds."""
        rate = self.target.rate_rps
        able = [self._max_rps(entry.candidate) for entry in entries]

        def hold(times: Sequence[float]) -> list[bool]:
            trials = [
                (entry.candidate, faster, self.target.rounds(entry.candidate.hardware.servers)[-2:][0], 0)
                for entry, faster in zip(entries, times, strict=True)
            ]
            measured = self.run("up to which rate plans hold", trials)
            return [each.quantile_ms <= self.target.slo_ms for each in measured]

        factors = max_held([1.0] * len(entries), [ends / rate for ends in able], hold)
        return [self._plan(entry, rate * faster) for entry, faster in zip(entries, factors, strict=True)]

    def _plan(self, entry: _Entry, max_rps: float) -> Plan:
        known, servers = bounds_of(self.target, entry.candidate.hardware), entry.candidate.hardware.servers
        used = {part: self.target.rate_rps / (servers * can) for part, can in known.capacity_rps.items()}
        binds = what_binds(known, max_rps / servers, entry.measured.batch_size_mean)
        used["slo"] = entry.measured.quantile_ms / self.target.slo_ms
        return Plan(entry.candidate, entry.measured, used, max_rps, binds)


def what_binds(known: Bounds, max_rps: float, batch_size_mean: float) -> str:
    """Return what ends the rate of a server at `max_rps`."""
    if max_rps / known.capacity_rps[known.binds] < BINDS:
        return "slo"
    if known.binds == "slices" and known.system.launch_share(round(batch_size_mean), known.typical, known.shares) > 0.5:
        return "launch"
    return known.binds


def _miss(near: tuple[int, _Entry]) -> tuple[int, float, float]:
    left, entry = near
    return left, entry.measured.late, entry.measured.quantile_ms


def first_of_each(entries: Iterable[_Entry]) -> list[_Entry]:
    """Return the first entry of each hardware."""
    first: dict[Hardware, _Entry] = {}
    for entry in entries:
        first.setdefault(entry.candidate.hardware, entry)
    return list(first.values())


def still_racing(entries: Iterable[_Entry], hardware: int, settings: int, near: float) -> list[_Entry]:
    """Return the entries that go to the next round.

    An entry drops out if enough others surely hold the target and draw less power by more than the share `near`; the
    price within a level is the same. Enough are `settings` entries on the same hardware, or entries on `hardware` other
    pieces."""
    ordered = sorted(entries, key=lambda entry: entry.measured.power_w)
    kept: list[_Entry] = []
    holding: Counter[Hardware] = Counter()
    counted = 0
    for entry in ordered:
        while (before := ordered[counted]).measured.power_w * (1 + near) < entry.measured.power_w:
            holding[before.candidate.hardware] += before.surely
            counted += 1
        of = entry.candidate.hardware
        if holding[of] < settings and (of in +holding or len(+holding) < hardware):
            kept.append(entry)
    return sorted(kept, key=lambda entry: entry.objective)


def plan(target: Target, run: Run) -> Answer:
    """Return the cheapest plan for a target.

    Raises UsageError for a target that bounds rule out, and HeadraceError if nothing that was simulated holds it. Both
    say what binds, and by how much."""
    search = _Search(target, run, 1 + RUNNERS_UP)
    confirmed = first_confirmed(
        search.held(),
        lambda held: search.confirmed(held[0].candidate),
        lambda _, fresh: fresh[2] <= target.slo_ms,
    )
    if confirmed is None:
        raise search.missed()
    held, fresh = confirmed
    best, *runners_up = search.plans(first_of_each(held)[: 1 + RUNNERS_UP])
    following = search.following(held) or cheapest(replace(target.at(NEXT * target.rate_rps), budget_usd=None), run)
    return Answer(
        target,
        best,
        tuple(runners_up),
        fresh,
        None if following is None else following.measured.cost_usd - best.measured.cost_usd,
        None if following is None else following.candidate,
        search.simulated,
        search.struck,
    )


def leading(target: Target, run: Run, room: int) -> list[Candidate]:
    """Return the best `room` pieces of hardware by the search alone, each with its best setting. Raises as `plan`."""
    search = _Search(target, run, room)
    for held in search.held():
        return [entry.candidate for entry in first_of_each(held)[:room]]
    raise search.missed()


def cheapest(target: Target, run: Run) -> _Entry | None:
    """Return the best entry of the search alone, without fresh seeds and runners-up; None if nothing holds."""
    try:
        return next(_Search(target, run, 1).held(), [None])[0]
    except UsageError:
        return None


def by_rate(target: Target, run: Run, rates: Sequence[float]) -> list[tuple[float, Candidate, float, float]]:
    """Return rate, candidate, dollars and watts of the best by the search alone, for each rate that something serves.

    Budgets are ignored."""
    best = []
    for rate in rates:
        entry = cheapest(replace(target.at(rate), budget_usd=None), run)
        if entry is not None:
            best.append((rate, entry.candidate, entry.measured.cost_usd, entry.measured.power_w))
    return best
