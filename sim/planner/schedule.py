"""A day of several rates: which plan is used when, what each change costs, and the best plan that never changes.

Dollars of a day count the price by the hour of every server in use, over the time of cost.py, and its energy. A server
that is not in use is free for others. A day is like the next: from its last plan it returns to its first.

Plans. At some of the day's rates, the highest first, the search finds the best hardware and a policy for it. Each of
those, with any number of servers up to --gpus, is a plan for all rates that simulation shows it to hold. The schedule
is a shortest path around the day. Late requests are those that a plan has late anyway, and those that come while slices
are away. Together they are at most what the target allows of the day's requests.

Changes from one plan to another. Instances of MIG are made and removed while others of the same GPU serve (NVIDIA's
maintainers in k8s-device-plugin, issue 992). So an instance stays if the same profile is in the same place. A DPU with
another number of units has another bitstream, and everything that it feeds is away. A server of other parts is another
server. Servers change one after another, on that side of the hour where fewer requests are late. Added servers come
first, and a spare GPU within --gpus takes the place of the one that changes. If the remaining slices cannot hold the
target, every request is late until slices are back and have worked off the queue (a fluid bound: none is dropped).
Another policy, or another way of preprocessing by the same parts, takes no time.
"""

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import HeadraceError, UsageError
from headrace.sim.hardware.gpu.mig import gpu_named, partition
from headrace.sim.planner import search
from headrace.sim.planner.bounds import bounds_of
from headrace.sim.planner.target import FACTOR, Candidate, Target
from headrace.sim.planner.trials import FRESH, HALVINGS, Measured, Run, Trial
from headrace.sim.planner.trials import interval as ends_of
from headrace.sim.system.cost import HOURS_A_YEAR, YEARS
from headrace.sim.workload.day import Interval

# The seconds for which a slice is away: its process stops, its instance goes, another comes, and a process has a model
# in it. This is the average of MISO (Li et al., SoCC 2022), which moves training jobs on A100s from one partition to
# another. It is the default of --overhead in its artifact, github.com/boringlee24/socc22-miso, run.py. MIG itself takes
# little of it: 0.16 to 0.24 s to make an instance and 0.20 to 0.22 s to remove one, one after another (for GPUs of
# seven slices in github.com/artecs-group/RL_MIG_scheduler, RL_agent_versions/direct_reconfig/utils.py).
REPARTITION_S: Final = 30.0
LEVELS: Final = 6  # the number of the day's rates at which the search runs, the highest among them
OF_EACH: Final = 2  # the pieces of hardware taken from each search
SATURATED: Final = 1.5  # a load, as a share of a server's bound, at which its queue never ends

Array = NDArray[np.float64]
Plan = TypeVar("Plan")  # servers in use
Place = tuple[int, int, int]  # interval, plan in the interval before, plan in it


@dataclass(frozen=True, slots=True)
class Change(Generic[Plan]):
    """A change from one plan to another at `hour`, just before it if `early`.

    `servers` of them change one after another, for `seconds` in all. `late` further requests are late meanwhile. `usd`
    is for servers beyond those of the plans."""

    hour: float
    early: bool
    before: Plan
    after: Plan
    servers: int
    seconds: float
    late: float
    usd: float


@dataclass(frozen=True, slots=True)
class Stage(Generic[Plan]):
    """A plan for an interval.

    `late` is the share of its requests, without those of changes. `quantile_ms` is the latency at the target's
    quantile. All figures are means of runs with fresh seeds."""

    interval: Interval
    plan: Plan
    usd_per_hour: float
    power_w: float
    late: float
    quantile_ms: float


@dataclass(frozen=True, slots=True)
class Schedule(Generic[Plan]):
    """The stages of a day and the changes between them. `late` is the share of the day's requests."""

    stages: tuple[Stage[Plan], ...]
    changes: tuple[Change[Plan], ...]
    usd_per_day: float
    late: float


@dataclass(frozen=True, slots=True)
class DayAnswer(Generic[Plan]):
    """The answer for a day. `static` is the best plan that never changes; `best` is the same if no changing schedule
    costs less."""

    target: Target
    best: Schedule[Plan]
    static: Schedule[Plan]
    repartition_s: float
    simulated: int


@dataclass(frozen=True, slots=True)
class _Ability:
    """The abilities of a server: the rate up to which it holds the target, and its rate if more than enough requests
    wait."""

    holds_rps: float
    max_rps: float


NOTHING: Final = _Ability(0.0, 0.0)


def plan_day(
    target: Target, day: Sequence[Interval], run: Run, repartition_s: float = REPARTITION_S
) -> DayAnswer[Candidate]:
    """Return the best schedule of a day. Each interval takes the place of `target`'s rate.

    Raises UsageError for what bounds rule out at the highest rate, and HeadraceError if nothing that was simulated
    holds the target all day."""
    return _Day(target, day, run, repartition_s).answer()


class _Day:
    def __init__(self, target: Target, day: Sequence[Interval], run: Run, repartition_s: float) -> None:
        self.day, self._run, self.repartition_s = day, run, repartition_s
        self.simulated = 0
        self.targets = [at(target, interval) for interval in day]
        self.target = max(self.targets, key=lambda each: each.rate_rps)
        self.plans = self._plans()
        self.measured = self._measured()
        self.confirmed: set[tuple[int, int]] = set()
        ones = list(dict.fromkeys(one_of(plan) for plan in self.plans))
        left = [left_of(self.target, *pair) for pair in permutations(ones, 2)] if target.gpus == 1 else []
        self.abilities = self._abilities({*ones, *(each for each in left if each is not None)})

    def run(self, text: str, trials: Sequence[Trial]) -> list[Measured]:
        self.simulated += len(trials)
        return self._run(text, trials)

    def _plans(self) -> list[Candidate]:
        """Return all plans that may be in use at some time."""
        different = sorted(dict.fromkeys(self.targets), key=lambda each: each.rate_rps)
        places = np.linspace(len(different) - 1, 0, min(LEVELS, len(different))).round().astype(int)
        plans: dict[tuple[str, str], Candidate] = {}
        for place in places.tolist():
            for plan in search.leading(different[place], self.run, OF_EACH):
                plans.setdefault((plan.hardware.partition, plan.hardware.preprocess), one_of(plan))
        return [with_servers(one, servers) for one in plans.values() for servers in range(1, self.target.gpus + 1)]

    def _trial(self, interval: int, plan: Candidate, seed: int) -> Trial:
        target, servers = self.targets[interval], plan.hardware.servers
        return Trial(plan.scenario(target, target.requests(servers), seed), target.quantile, servers)

    def _measured(self) -> dict[tuple[int, int], Measured]:
        """Return the measurements by interval and plan, of those that hold the target."""
        pairs = [
            (interval, number)
            for interval, target in enumerate(self.targets)
            for number, plan in enumerate(self.plans)
            if target.rate_rps <= plan.hardware.servers * bounds_of(target, plan.hardware).able_rps
        ]
        trials = [self._trial(interval, self.plans[number], 0) for interval, number in pairs]
        measured = zip(pairs, self.run("plans at all rates of the day", trials), strict=True)
        return {pair: each for pair, each in measured if each.quantile_ms <= self.target.slo_ms}

    def _abilities(self, servers: Collection[Candidate]) -> dict[Candidate, _Ability]:
        """Return the abilities of each single server."""
        target = self.target  # only the target's mix of models matters here
        able = {each: bounds_of(target, each.hardware).able_rps for each in servers}
        low, high = dict.fromkeys(able, 0.0), dict(able)
        requests = math.ceil(target.requests(1) / FACTOR)

        def trials(rates: Iterable[tuple[Candidate, float]]) -> list[Trial]:
            scenarios = [each.scenario(target.at(rate), requests) for each, rate in rates]
            return [Trial(scenario, target.quantile, 1) for scenario in scenarios]

        for _ in range(HALVINGS):
            middle = {each: (low[each] + high[each]) / 2 for each in able}
            held = self.run("up to which rate servers hold", trials(middle.items()))
            for each, measured in zip(able, held, strict=True):
                (low if measured.quantile_ms <= target.slo_ms else high)[each] = middle[each]
        flooded = [(each, SATURATED * rate) for each, rate in able.items()]
        saturated = self.run("what servers do at most", trials(flooded))
        return {
            each: _Ability(low[each], max(low[each], measured.requests / measured.span_s))
            for each, measured in zip(able, saturated, strict=True)
        }

    def answer(self) -> DayAnswer[Candidate]:
        changes = self._changes()
        while True:
            best, static = self._schedules(changes)
            if not self._confirm({*enumerate(best), *enumerate(static)}):
                return DayAnswer(
                    self.target,
                    self._schedule(best, changes),
                    self._schedule(static, changes),
                    self.repartition_s,
                    self.simulated,
                )

    def _schedules(self, changes: Mapping[Place, Change[Candidate]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the cheapest schedule, and the cheapest that never changes, by what is known of plans now."""
        shape = len(self.day), len(self.plans)
        usd, late = np.full(shape, math.inf), np.zeros(shape)
        for (interval, plan), measured in self.measured.items():
            usd[interval, plan] = usd_per_hour(measured) * self.day[interval].hours
            late[interval, plan] = measured.late * self.day[interval].requests
        return cheapest_and_static(self.target, self.day, usd, late, changes)

    def _changes(self) -> dict[Place, Change[Candidate]]:
        """Return the changes by interval, plan in the interval before, and plan in it."""
        count = len(self.plans)
        return {
            (interval, before, after): self._change(interval, before, after)
            for interval in range(len(self.day))
            for before, after in permutations(range(count), 2)
            if ((interval - 1) % len(self.day), before) in self.measured and (interval, after) in self.measured
        }

    def _change(self, interval: int, before: int, after: int) -> Change[Candidate]:
        first, last = self.plans[before], self.plans[after]
        servers = 0 if stays(self.target, first, last) else min(first.hardware.servers, last.hardware.servers)
        max_servers = max(first.hardware.servers, last.hardware.servers)
        spare = servers > 0 and max_servers < self.target.gpus
        more = abs(first.hardware.servers - last.hardware.servers) + spare
        seconds = self.repartition_s * (servers + (more > 0))
        usd = max(
            usd_per_hour(self.measured[place]) / self.plans[place[1]].hardware.servers
            for place in (((interval - 1) % len(self.day), before), (interval, after))
        )
        sides = [
            (self._late(side, first, last, servers, max_servers - (not spare)), side.rate_rps)
            for side in (self.day[interval - 1], self.day[interval])
        ]
        return Change(
            self.day[interval].start,
            sides[0] <= sides[1],
            first,
            last,
            servers,
            seconds,
            min(sides)[0],
            more * seconds / 3600 * usd,
        )

    def _late(self, interval: Interval, first: Candidate, last: Candidate, servers: int, others: int) -> float:
        """Return the requests of the interval that are late as `servers` change one after another while `others` serve.

        It is infinite if the queue then lasts longer than the interval."""
        rate, away_s = interval.rate_rps, servers * self.repartition_s
        one, other = self.abilities[one_of(first)], self.abilities[one_of(last)]
        left = _Ability(others * min(one.holds_rps, other.holds_rps), others * min(one.max_rps, other.max_rps))
        if not others:
            staying = left_of(self.target, one_of(first), one_of(last))
            left = NOTHING if staying is None else self.abilities[staying]
        if not servers or rate <= left.holds_rps:
            return 0.0
        max_rps = last.hardware.servers * other.max_rps
        queue = max(0.0, rate - left.max_rps) * away_s
        late_s = away_s + (queue / (max_rps - rate) if max_rps > rate else math.inf)
        return rate * late_s if late_s <= 3600 * interval.hours else math.inf

    def _confirm(self, pairs: Iterable[tuple[int, int]]) -> bool:
        """Run the pairs of interval and plan with fresh seeds that were not run yet, and forget those that do not hold.

        Returns False if there was nothing to do."""
        new = [pair for pair in sorted(pairs) if pair not in self.confirmed]
        seeds = range(1, FRESH + 1)
        trials = [self._trial(interval, self.plans[plan], seed) for interval, plan in new for seed in seeds]
        measured = self.run("the schedule with fresh seeds", trials)
        for number, pair in enumerate(new):
            runs = measured[number * FRESH : (number + 1) * FRESH]
            values = [each.quantile_ms for each in runs]
            mean, _, high = ends_of(values)
            if high <= self.target.slo_ms:
                self.measured[pair] = replace(
                    self.measured[pair],
                    quantile_ms=mean,
                    late=float(np.mean([each.late for each in runs])),
                    power_w=float(np.mean([each.power_w for each in runs])),
                    cost_usd=float(np.mean([each.cost_usd for each in runs])),
                )
            else:
                del self.measured[pair]
            self.confirmed.add(pair)
        return bool(new)

    def _schedule(self, numbers: Sequence[int], changes: Mapping[Place, Change[Candidate]]) -> Schedule[Candidate]:
        stages, made = [], []
        for interval, number in enumerate(numbers):
            measured = self.measured[interval, number]
            stages.append(
                Stage(
                    self.day[interval],
                    self.plans[number],
                    usd_per_hour(measured),
                    measured.power_w,
                    measured.late,
                    measured.quantile_ms,
                )
            )
            if numbers[interval - 1] != number:
                made.append(changes[interval, numbers[interval - 1], number])
        return day_schedule(stages, made)


def cheapest_and_static(
    target: Target, day: Sequence[Interval], usd: Array, late: Array, changes: Mapping[Place, Change[Plan]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the plan in each interval of the cheapest schedule, and of the cheapest that never changes.

    `usd` and `late` (requests) are by interval and plan. A plan that does not hold costs infinite dollars. Raises
    HeadraceError if no schedule holds."""
    shape = *usd.shape, usd.shape[1]
    change_usd, change_late = np.zeros(shape), np.zeros(shape)
    for place, change in changes.items():
        change_usd[place], change_late[place] = change.usd, change.late
    allowance = target.late * sum(interval.requests for interval in day)
    never = np.full(shape, math.inf)
    never[:, range(shape[2]), range(shape[2])] = 0.0
    static = cheapest_cycle(usd, late, never, change_late, allowance)
    best = cheapest_cycle(usd, late, change_usd, change_late, allowance)
    if static is None or best is None:
        raise HeadraceError(
            "no plan found that holds the target all day with fresh seeds; allow more --slo-ms or --gpus"
        )
    return best, static


def day_schedule(stages: Sequence[Stage[Plan]], changes: Sequence[Change[Plan]]) -> Schedule[Plan]:
    late = [stage.late * stage.interval.requests for stage in stages] + [change.late for change in changes]
    usd = [stage.usd_per_hour * stage.interval.hours for stage in stages] + [change.usd for change in changes]
    requests = sum(stage.interval.requests for stage in stages)
    return Schedule(tuple(stages), tuple(changes), sum(usd), sum(late) / requests)


def at(target: Target, interval: Interval) -> Target:
    """Return the target at an interval's rates."""
    shares = ",".join(map(str, interval.rates_rps.values())) if len(interval.rates_rps) > 1 else None
    return replace(target.at(interval.rate_rps), shares=shares)


def usd_per_hour(measured: Measured) -> float:
    return measured.cost_usd / (YEARS * HOURS_A_YEAR)


def with_servers(plan: Candidate, servers: int) -> Candidate:
    return replace(plan, hardware=replace(plan.hardware, servers=servers))


def one_of(plan: Candidate) -> Candidate:
    """Return the candidate with one server."""
    return with_servers(plan, 1)


def stays(target: Target, before: Candidate, after: Candidate) -> bool:
    """Return whether a server changes from one candidate to the other without losing a slice."""
    return before.hardware.partition == after.hardware.partition and same_machine(target, before, after)


def same_machine(target: Target, before: Candidate, after: Candidate) -> bool:
    """Return whether both candidates have the same parts and the same bitstream."""
    first, last = before.hardware, after.hardware
    dpus = {each.preprocess for each in (first, last) if each.preprocess.startswith("dpu")}
    parts = [sorted(bounds_of(target, each).system.parts()) for each in (first, last)]
    return parts[0] == parts[1] and len(dpus) < 2


def left_of(target: Target, before: Candidate, after: Candidate) -> Candidate | None:
    """Return the part of a server that goes on serving while other instances are made; None if nothing does."""
    if not same_machine(target, before, after):
        return None
    gpu = gpu_named(target.gpu)
    places = [
        {(each.profile.name, each.place) for each in partition(gpu, plan.hardware.partition)}
        for plan in (before, after)
    ]
    names = Counter(name for name, _ in sorted(places[0] & places[1]))
    if not names:
        return None
    text = ",".join(f"{name}:{count}" for name, count in names.items())
    left = replace(before, hardware=replace(before.hardware, partition=text))
    try:
        bounds_of(target, left.hardware)
    except UsageError:  # without a JPEG engine there is no nvjpg
        return None
    return left


def cheapest_cycle(
    usd: Array, late: Array, change_usd: Array, change_late: Array, allowance: float
) -> tuple[int, ...] | None:
    """Return a state for each interval of least total cost, with at most `allowance` late; None if there is none.

    The first interval follows the last. `usd` and `late` are by interval and state, with infinite cost for a state that
    cannot be. The costs of changes are by interval, state before it and state in it.

    The search is best first: it takes partial cycles in the order of their cost and of what they must still cost at
    least. That is exact for everything but the allowance. Among partial cycles with the same first state, in the same
    state now, a later one costs more. It goes on only if it has fewer late."""
    intervals, states = usd.shape
    cost_to_go, late_to_go = _to_go(usd, change_usd), _to_go(late, change_late)
    allowance *= 1 + 1e-9  # the tolerance is for rounding
    least_late: dict[tuple[int, int, int], float] = {}
    waiting: list[tuple[float, float, float, tuple[int, ...]]] = [
        (float(usd[0, state] + cost_to_go[state, 0, state]), float(late[0, state]), float(usd[0, state]), (state,))
        for state in range(states)
    ]
    heapq.heapify(waiting)
    while waiting:
        bound, so_far, cost, path = heapq.heappop(waiting)
        if bound == math.inf:
            return None
        first, interval, state = path[0], len(path) - 1, path[-1]
        node = first, interval, state
        if so_far + late_to_go[node] > allowance or so_far >= least_late.get(node, math.inf):
            continue
        if interval == intervals - 1:
            return path
        least_late[node] = so_far
        for following in range(states):
            more = cost + change_usd[interval + 1, state, following] + usd[interval + 1, following]
            then = so_far + change_late[interval + 1, state, following] + late[interval + 1, following]
            least = float(more + cost_to_go[first, interval + 1, following])
            heapq.heappush(waiting, (least, float(then), float(more), (*path, following)))
    return None


def _to_go(of: Array, change: Array) -> Array:
    """Return the least cost from the end of an interval to the end of the day and on to its first state.

    The array is by first state, interval and state."""
    intervals, states = of.shape
    least = np.empty((states, intervals, states))
    least[:, -1] = change[0].T
    for interval in range(intervals - 2, -1, -1):
        then = least[:, interval + 1] + of[interval + 1]  # by first state, and state of the next interval
        least[:, interval] = (change[interval + 1][None] + then[:, None]).min(axis=2)
    return least
