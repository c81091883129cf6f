"""The cheapest server that meets a target: a GPU's partition, what prepares its inputs, and the policy.

Pure search: it says what is to be simulated, and whoever calls it has that run, on one core or on all (`Run`).

The space. Hardware is a number of equal servers, each with one GPU in a full partition (to which no instance could be
added) and one way of preprocessing; each takes an equal share of the arrivals, of which a Poisson process's are again
one, as are those of bursts; a trace is dealt out in turns. Settings are a policy with its parameters: windows are
shares of the SLO, largest batches multiples of the knee of the smallest slice. Networks for texts have nothing to be
preprocessed, all others never "ideal".

The search. What is bought comes first: levels of hardware that costs the same, the cheapest first; a level's floor is
what it costs idle, and once enough plans are cheaper than the floors that are left, the search ends. In a level,
bounds strike out hardware whose parts cannot do the rate, or where a request takes too long even alone. What is left
races by successive halving (Jamieson, Talwalkar, AISTATS 2016) with common random numbers: every round is longer and
has the same arrivals for all. What surely misses the target is dropped; of the others those that have enough surely
cheaper ones before them that surely hold it. Surely is by batch means (Law, Simulation Modeling and Analysis, 9.5.3):
requests of a queue are not independent, so the share of late ones is told from that of consecutive parts of the run. A
run stops where more requests are late than the last round allows in all: what it would go on to be cannot hold. If
what was sure misses the target in a longer round after all, what it had displaced comes back. The winner is simulated
again with fresh seeds, and must hold the target with the upper end of its interval; if it does not, the next one is
tried.

No search library: levels and bounds leave some hundred candidates, a simulation of which takes milliseconds, and
nothing in a list of partitions and policies is smooth, which a library's model of the objective could use.
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
from headrace.sim.planner.trials import Measured, Run, Trial, interval, most_late, most_of
from headrace.sim.system import cost
from headrace.sim.workload.lengths import Fixed

SURE_SPANS: Final = 20  # that a run lasts before it can be sure: a queue that grows by a twentieth shows by then
SETTINGS: Final = 2  # on the same hardware that go on if both surely hold: one, and one should it fail with fresh seeds
# Draws of two plans of a level differ by so much, over the root of the requests, until it is sure which is less. A
# guess with room to spare: in the few cases that were looked at (the small spaces of the tests, and four models on 20
# pieces of hardware) none needed more than six tenths of it. That is no bound: another model or load may need more, and
# the best then draws a little more than another plan of the same price.
NEAR: Final = 0.2
RUNNERS_UP: Final = 3
FRESH: Final = 5  # seeds, 1 and up; 0 is that of the search
BINDS: Final = 0.9  # a part that is used so far at that rate is what binds
NEXT: Final = 1.1


@dataclass(frozen=True, slots=True)
class Plan:
    """`candidate` as `measured` in the last round; it holds up to about `most_rps` in all, where `binds` ends
    it: "cpu", "cus", "nvjpg", "pcie", "slices", "launch" (slices, which mostly wait for launches) or "slo". `used` is
    the share of what each part can do at the target's rate (in full batches), and of the SLO."""

    candidate: Candidate
    measured: Measured
    used: Mapping[str, float]
    max_rps: float
    binds: str


@dataclass(frozen=True, slots=True)
class Answer:
    """`quantile_ms` is the best's with fresh seeds, with the ends of its 95 % interval. `next_usd` is what
    NEXT times the rate would cost more, and `next_plan` what would do it; None if nothing does. `simulated` counts
    runs, `struck` hardware that bounds excluded."""

    target: Target
    best: Plan
    runners_up: tuple[Plan, ...]
    quantile_ms: tuple[float, float, float]
    next_usd: float | None
    next_plan: Candidate | None
    simulated: int
    struck: int


def objective(target: Target, servers: int, usd: float, watts: float) -> tuple[float, ...]:
    """Rounded, that sums of the same in another order are equal."""
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
    surely: bool  # it holds the target
    never: bool


class _Search:
    """For `target`; `room` is how many different pieces of hardware are wanted of those that hold it."""

    def __init__(self, target: Target, run: Run, room: int) -> None:
        self.target, self._run, self.room = target, run, room
        self.simulated = self.struck = 0
        self.nearest: tuple[int, _Entry] | None = None  # to the target, of those that came as far: rounds left, entry
        hardware, refused = hardware_of(target)
        if not hardware:
            raise UsageError(f"--model {target.model} on {target.gpu}: {refused[-1]}")  # on the largest slice
        self._check_latency(hardware)
        # Else a longer round does not begin with the requests of a shorter one: lengths are drawn all at once.
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
        most = best.servers * one.able_rps
        if most < target.rate_rps:
            raise UsageError(
                f"{target.asked} is more than {target.gpus} x {target.gpu} can serve: "
                f"{one.binds} binds at about {most:.4g}/s with {best.partition} and "
                f"{best.preprocess}, "
                f"{target.rate_rps / most:.2f} times too little; "
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
        assert nearest is not None  # bounds left something, and that was simulated
        candidate = nearest[1].candidate
        hardware = candidate.hardware
        (measured,) = self.run("the nearest", [(candidate, 1.0, target.requests(hardware.servers), 0)])  # to its end
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
        """Of candidates at so many times the target's rate: numbers of requests, seeds. A run stops once it is
        certain that the target is missed by a run of `beyond` requests, of which its own are the first."""
        self.simulated += len(trials)
        jobs = []
        for candidate, faster, requests, seed in trials:
            target = self.target.at(faster * self.target.rate_rps)
            scenario = candidate.scenario(target, requests, seed)
            late = None if beyond is None else most_late(beyond, target.quantile)
            jobs.append(Trial(scenario, target.quantile, candidate.hardware.servers, late))
        return self._run(text, jobs)

    def held(self) -> Iterator[list[_Entry]]:
        """Those that hold the target in the last round, the best first, from as many levels as may matter to `room`.
        Again and again, each time without the first, until there are none."""
        found: list[_Entry] = []
        while True:
            while self._levels and self._levels[0][0] < self._threshold(found):
                _, hardware = self._levels.pop(0)
                found = sorted([*found, *self._race(hardware)], key=lambda entry: entry.objective)
            if not found:
                return
            yield found
            found = found[1:]

    def _threshold(self, found: Sequence[_Entry]) -> tuple[float, ...]:
        """What is dearer does not matter any more."""
        best = first_of_each(found)
        return best[self.room - 1].objective if len(best) >= self.room else (math.inf,)

    def _race(self, hardware: Sequence[Hardware]) -> list[_Entry]:
        """Those of a level that hold the target in the last round. What seemed sure and was not has wrongly displaced
        others: the race is then run again without trust in it, and simulates what was not simulated before."""
        target = self.target
        racing = [candidate for each in hardware for candidate in settings_of(target, each) if self._able(candidate)]
        servers = hardware[0].servers  # of all of a level
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
        """By its largest batch."""
        return self.target.rate_rps <= self._max_rps(candidate)

    def _max_rps(self, candidate: Candidate) -> float:
        batch = dict(candidate.parameters).get("max_batch")
        most = bounds_of(self.target, candidate.hardware).max_rps(None if batch is None else int(batch))
        return candidate.hardware.servers * most

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

    def confirmed(self, candidate: Candidate) -> tuple[float, float, float]:
        """The latency at the quantile with FRESH seeds (ms), and the ends of its 95 % confidence interval. Of a trace
        the mean of all servers, the least and the most."""
        servers, whole = candidate.hardware.servers, self.target.replay is not None
        seeds = range(servers) if whole else range(1, FRESH + 1)
        runs = [(candidate, 1.0, self.target.requests(servers), seed) for seed in seeds]
        text = "the whole trace" if whole else "the winner with fresh seeds"
        values = [measured.quantile_ms for measured in self.run(text, runs)]
        return (float(np.mean(values)), min(values), max(values)) if whole else interval(values)

    def following(self, held: Sequence[_Entry]) -> _Entry | None:
        """The best of them for NEXT times the rate; None if none holds it. What was cheaper by a level, and did not
        hold the rate, does not hold more."""
        trials = [(entry.candidate, NEXT, entry.measured.requests, 0) for entry in held]
        measured = self.run("a tenth more", trials)
        found = [self._entry(each.candidate, values) for each, values in zip(held, measured, strict=True)]
        able = [entry for entry in found if entry.measured.quantile_ms <= self.target.slo_ms]
        return min(able, key=lambda entry: entry.objective, default=None)

    def plans(self, entries: Sequence[_Entry]) -> list[Plan]:
        """How far each could go, and what then binds."""
        rate = self.target.rate_rps
        able = [self._max_rps(entry.candidate) for entry in entries]

        def hold(times: Sequence[float]) -> list[bool]:
            trials = [
                (entry.candidate, faster, self.target.rounds(entry.candidate.hardware.servers)[-2:][0], 0)
                for entry, faster in zip(entries, times, strict=True)
            ]
            measured = self.run("up to which rate plans hold", trials)
            return [each.quantile_ms <= self.target.slo_ms for each in measured]

        most = most_of([1.0] * len(entries), [ends / rate for ends in able], hold)
        return [self._plan(entry, rate * faster) for entry, faster in zip(entries, most, strict=True)]

    def _plan(self, entry: _Entry, max_rps: float) -> Plan:
        known, servers = bounds_of(self.target, entry.candidate.hardware), entry.candidate.hardware.servers
        used = {part: self.target.rate_rps / (servers * can) for part, can in known.capacity_rps.items()}
        binds = what_binds(known, max_rps / servers, entry.measured.batch_size_mean)
        used["slo"] = entry.measured.quantile_ms / self.target.slo_ms
        return Plan(entry.candidate, entry.measured, used, max_rps, binds)


def what_binds(known: Bounds, max_rps: float, batch_size_mean: float) -> str:
    """What ends the rate of a server at `most_rps`."""
    if max_rps / known.capacity_rps[known.binds] < BINDS:
        return "slo"
    if known.binds == "slices" and known.system.launch_share(round(batch_size_mean), known.typical, known.shares) > 0.5:
        return "launch"
    return known.binds


def _miss(near: tuple[int, _Entry]) -> tuple[int, float, float]:
    left, entry = near
    return left, entry.measured.late, entry.measured.quantile_ms


def first_of_each(entries: Iterable[_Entry]) -> list[_Entry]:
    """Of each hardware the first."""
    found: dict[Hardware, _Entry] = {}
    for entry in entries:
        found.setdefault(entry.candidate.hardware, entry)
    return list(found.values())


def still_racing(entries: Iterable[_Entry], hardware: int, settings: int, near: float) -> list[_Entry]:
    """Those that go to the next round: that do not have enough before them that surely hold and draw less by more than
    the share `near` (what is bought is of one price): `settings` on the same hardware, or some on `hardware` others."""
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
    """Raises UsageError for what bounds rule out, and HeadraceError if nothing that was simulated holds the target;
    both say what binds, and by how much."""
    search = _Search(target, run, 1 + RUNNERS_UP)
    for held in search.held():
        fresh = search.confirmed(held[0].candidate)
        if fresh[2] <= target.slo_ms:
            break
    else:
        raise search.missed()
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
    """The best `room` pieces of hardware by the search alone, each with its best setting. Raises as `plan`."""
    search = _Search(target, run, room)
    for held in search.held():
        return [entry.candidate for entry in first_of_each(held)[:room]]
    raise search.missed()


def cheapest(target: Target, run: Run) -> _Entry | None:
    """What is best by the search alone, without fresh seeds and runners-up; None if nothing is."""
    try:
        return next(_Search(target, run, 1).held(), [None])[0]
    except UsageError:
        return None


def by_rate(target: Target, run: Run, rates: Sequence[float]) -> list[tuple[float, Candidate, float, float]]:
    """Rate, the best by the search alone, its dollars and watts; without those that nothing serves. Budgets are put
    aside."""
    found = []
    for rate in rates:
        entry = cheapest(replace(target.at(rate), budget_usd=None), run)
        if entry is not None:
            found.append((rate, entry.candidate, entry.measured.cost_usd, entry.measured.power_w))
    return found
