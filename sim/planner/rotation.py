"""A day of several models, each on slices of its own: which servers are used when, and what each change costs.

The rate of a slice is known (`Option`). The mixed-integer program of allocate.py finds servers for the rates of each
interval, and for the highest of each model together. Each result is a plan for all intervals whose rates it holds, with
the slices of a model equally busy. The schedule is found, and counted, as in schedule.py. Servers change one after
another. A slice stays if the same profile is in the same place for the same option. If the remaining slices cannot hold
a model, its requests are late until their queues have gone, or until the server that changes then is back. The requests
of all other models are in time. The target's allowance counts the requests of all models together.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Final

import numpy as np

from headrace.sim.hardware.gpu import power
from headrace.sim.hardware.gpu.mig import gpu_named, placed
from headrace.sim.planner.allocate import CARD_CUS, Option, ServerPlan, allocate
from headrace.sim.planner.schedule import (
    REPARTITION_S,
    Change,
    DayAnswer,
    Place,
    Schedule,
    Stage,
    cheapest_and_static,
    day_schedule,
)
from headrace.sim.planner.target import Candidate, Hardware, Target
from headrace.sim.planner.trials import Measured, Run, Trial
from headrace.sim.system import cost
from headrace.sim.system.system import CORES
from headrace.sim.workload.day import Interval

FRESH: Final = 1  # the seed of confirming runs
Servers = tuple[ServerPlan, ...]  # in order, without rates


@dataclass(frozen=True, slots=True)
class Piece:
    """The slices of a server for one option, and the simulation of them alone."""

    option: Option
    target: Target
    candidate: Candidate


def rotate(
    targets: Mapping[str, Target],
    options: Sequence[Option],
    day: Sequence[Interval],
    run: Run,
    repartition_s: float = REPARTITION_S,
) -> DayAnswer[Servers]:
    """Return the best schedule of a day. `targets`, by model, have the same GPU and `gpus`.

    Raises UsageError for rates that these GPUs do not hold."""
    return _Rotation(targets, options, day, run, repartition_s).answer()


class _Rotation:
    def __init__(
        self,
        targets: Mapping[str, Target],
        options: Sequence[Option],
        day: Sequence[Interval],
        run: Run,
        repartition_s: float,
    ) -> None:
        self.targets, self.options, self.day, self._run = targets, options, day, run
        self.repartition_s = repartition_s
        self.target = next(iter(targets.values()))
        self.simulated = 0
        self.plans = self._plans()
        self.capacities = [capacity(plan) for plan in self.plans]
        shape = len(day), len(self.plans)
        self.usd, self.watts, self.late = np.full(shape, math.inf), np.zeros(shape), np.zeros(shape)
        for interval, plan in np.ndindex(shape):
            if holds(self.plans[plan], day[interval].rates_rps):
                usd, watts = self._bill(self.plans[plan], day[interval].rates_rps)
                self.usd[interval, plan], self.watts[interval, plan] = usd, watts
        # the latency at the quantile of the model nearest to its SLO, by interval and plan
        self.nearest: dict[tuple[int, int], float] = {}

    def _plans(self) -> list[Servers]:
        max_rates = {model: max(each.rates_rps[model] for each in self.day) for model in self.targets}
        rates = [max_rates, *(dict(interval.rates_rps) for interval in self.day)]
        different = list({tuple(sorted(each.items())): each for each in rates}.values())
        prices = cost.given_prices(None)
        allocations = [
            allocate(self.target.gpu, self.options, each, gpus=self.target.gpus, least="cost", prices=prices)
            for each in different
        ]
        return list(dict.fromkeys(in_order(each.servers) for each in allocations))

    def _bill(self, plan: Servers, rates: Mapping[str, float]) -> tuple[float, float]:
        """Return dollars an hour, and watts."""
        able, total, capex = capacity(plan), 0.0, 0.0
        for server in plan:
            machine = power.server(self.target.gpu, fpga=server.card, cpus=server.cpus)
            total += sum(machine.power_w({}).values())
            total += sum(rates[each.model] / able[each.model] * each.watts for _, each in server.slices if each)
            parts = ["node", *["cpu"] * (server.cpus - 1), self.target.gpu, *(["fpga"] if server.card else [])]
            capex += sum(cost.PRICES_USD[part] for part in parts)
        return capex / (cost.YEARS * cost.HOURS_A_YEAR) + total / 1e3 * cost.USD_A_KWH, total

    def answer(self) -> DayAnswer[Servers]:
        changes = {
            (interval, before, after): self._change(interval, before, after)
            for interval in range(len(self.day))
            for before, after in permutations(range(len(self.plans)), 2)
            if math.isfinite(self.usd[interval - 1, before] + self.usd[interval, after])
        }
        hours = np.array([[interval.hours] for interval in self.day])
        requests = np.array([[interval.requests] for interval in self.day])
        while True:
            best, static = cheapest_and_static(self.target, self.day, self.usd * hours, self.late * requests, changes)
            if not self._confirm({*enumerate(best), *enumerate(static)}):
                return DayAnswer(
                    self.target,
                    self._schedule(best, changes),
                    self._schedule(static, changes),
                    self.repartition_s,
                    self.simulated,
                )

    def _schedule(self, numbers: Sequence[int], changes: Mapping[Place, Change[Servers]]) -> Schedule[Servers]:
        stages, made = [], []
        for interval, number in enumerate(numbers):
            pair = interval, number
            stages.append(
                Stage(
                    self.day[interval],
                    self.plans[number],
                    float(self.usd[pair]),
                    float(self.watts[pair]),
                    float(self.late[pair]),
                    self.nearest[pair],
                )
            )
            if numbers[interval - 1] != number:
                made.append(changes[interval, numbers[interval - 1], number])
        return day_schedule(stages, made)

    def _confirm(self, pairs: Iterable[tuple[int, int]]) -> bool:
        """Simulate the pieces that were not simulated yet with a fresh seed. A plan that does not hold is no plan there
        any more.

        Returns False if there was nothing to do."""
        new = [pair for pair in sorted(pairs) if pair not in self.nearest]
        of_each = {pair: pieces(self.targets, self.plans[pair[1]], self.day[pair[0]].rates_rps) for pair in new}
        different = list(dict.fromkeys(piece for of in of_each.values() for piece in of))
        trials = [
            Trial(piece.candidate.scenario(piece.target, piece.target.requests(1), FRESH), piece.target.quantile, 1)
            for piece in different
        ]
        self.simulated += len(trials)
        measured: dict[Piece, Measured] = dict(
            zip(different, self._run("the schedule with a fresh seed", trials), strict=True)
        )
        for pair, of in of_each.items():
            late = sum(measured[piece].late * piece.target.rate_rps for piece in of)
            self.late[pair] = late / self.day[pair[0]].rate_rps
            worst = max(of, key=lambda piece: measured[piece].quantile_ms / piece.target.slo_ms)
            self.nearest[pair] = measured[worst].quantile_ms
            if self.nearest[pair] > worst.target.slo_ms:
                self.usd[pair] = math.inf
        return bool(new)

    def _change(self, interval: int, before: int, after: int) -> Change[Servers]:
        first, last = self.plans[before], self.plans[after]
        pairs = matched(self.target.gpu, first, last)
        changing = [
            pair
            for pair in pairs
            if first[pair[0]].slices != last[pair[1]].slices or not same_parts(first[pair[0]], last[pair[1]])
        ]
        spare = bool(changing) and max(len(first), len(last)) < self.target.gpus
        more = abs(len(first) - len(last)) + spare
        seconds = self.repartition_s * (len(changing) + (more > 0))
        usd = max(self.usd[interval - 1, before] / len(first), self.usd[interval, after] / len(last))
        sides = [
            (0.0 if spare else self._late(side, first, last, pairs, changing), side.rate_rps)
            for side in (self.day[interval - 1], self.day[interval])
        ]
        return Change(
            self.day[interval].start,
            sides[0] <= sides[1],
            first,
            last,
            len(changing),
            seconds,
            min(sides)[0],
            float(more * seconds / 3600 * usd),
        )

    def _late(
        self,
        interval: Interval,
        first: Servers,
        last: Servers,
        pairs: Sequence[tuple[int, int]],
        changing: Sequence[tuple[int, int]],
    ) -> float:
        """Return the late requests as in schedule.py, of each model. Servers that come are there, and those that go
        have not gone."""
        gone, there = ({pair[side] for pair in pairs} for side in (0, 1))
        other = capacity(
            [
                *(server for number, server in enumerate(first) if number not in gone),
                *(server for number, server in enumerate(last) if number not in there),
            ]
        )
        total = 0.0
        for model, rate in interval.rates_rps.items():
            now = {pair: capacity([first[pair[0]]])[model] for pair in pairs}
            queue = late_s = 0.0
            for pair in changing:
                before, after = first[pair[0]], last[pair[1]]
                now[pair] = capacity_left(self.target.gpu, before, after)[model]
                able = other[model] + sum(now.values())
                if queue or able < rate:
                    queue = max(0.0, queue + (rate - able) * self.repartition_s)
                    late_s += self.repartition_s
                now[pair] = capacity([after])[model]
            able = capacity(last)[model]
            if queue:
                late_s += queue / (able - rate) if able > rate else math.inf
            if late_s > 3600 * interval.hours:
                return math.inf
            total += rate * late_s
        return total


def in_order(servers: Iterable[ServerPlan]) -> Servers:
    """Return the servers in order and without rates, so that equal plans are equal."""
    return tuple(sorted((replace(server, rates_rps=()) for server in servers), key=repr))


def capacity(servers: Iterable[ServerPlan]) -> defaultdict[str, float]:
    """Return the rate that slices hold, by model (1/s)."""
    rates: defaultdict[str, float] = defaultdict(float)
    for server in servers:
        for _, option in server.slices:
            if option is not None:
                rates[option.model] += option.capacity_rps
    return rates


def holds(servers: Servers, rates: Mapping[str, float]) -> bool:
    """Return whether the servers hold the rates, with all slices of a model equally busy."""
    able = capacity(servers)
    if any(rate > able[model] * (1 + 1e-9) for model, rate in rates.items()):
        return False
    for server in servers:
        busy = [(option, rates[option.model] / able[option.model]) for _, option in server.slices if option is not None]
        cores = sum(share * option.cores for option, share in busy) + len(busy)
        cus = sum(share * option.cus for option, share in busy)
        if cores > CORES * server.cpus * (1 + 1e-9) or cus > CARD_CUS * server.card * (1 + 1e-9):
            return False
    return True


def pieces(targets: Mapping[str, Target], servers: Servers, rates: Mapping[str, float]) -> list[Piece]:
    """Return the pieces with the cores and CUs that they need at these rates, and one more."""
    able, parts = capacity(servers), []
    for server in servers:
        for option, count in Counter(option for _, option in server.slices if option is not None).items():
            share = rates[option.model] / able[option.model]
            cores, cus = (math.ceil(count * share * each - 1e-9) for each in (option.cores, option.cus))
            way = {"cpu": f"cpu:{count + cores + 1}", "dpu": f"dpu:{min(cus + 1, CARD_CUS)}"}.get(
                option.way, option.way
            )
            rate = float(f"{count * share * option.capacity_rps:.6g}")
            hardware = Hardware(1, f"{option.profile}:{count}", way)
            target = replace(targets[option.model], rate_rps=rate)
            parts.append(Piece(option, target, Candidate(hardware, option.policy, option.parameters)))
    return parts


def same_parts(one: ServerPlan, other: ServerPlan) -> bool:
    return (one.cpus, one.card) == (other.cpus, other.card)


def capacity_left(gpu: str, before: ServerPlan, after: ServerPlan) -> defaultdict[str, float]:
    """Return the rate of the slices that stay as a server changes from one plan to the other."""
    if not same_parts(before, after):
        return capacity([])
    instances = []
    for server in (before, after):
        profiles = [gpu_named(gpu).profiles[name] for name, _ in server.slices]
        places = placed(gpu_named(gpu), profiles)
        instances.append({(each, place.place) for each, place in zip(server.slices, places, strict=True)})
    return capacity([replace(before, slices=tuple(each for each, _ in instances[0] & instances[1]))])


def matched(gpu: str, first: Servers, last: Servers) -> list[tuple[int, int]]:
    """Return which server becomes which, so that the most slices stay."""
    # it takes a fifth of a second to load, and only a day's schedule needs it
    from scipy.optimize import linear_sum_assignment

    kept = np.zeros((len(first), len(last)))
    for i, before in enumerate(first):
        for j, after in enumerate(last):
            kept[i, j] = sum(capacity_left(gpu, before, after).values()) + (before == after)
    rows, columns = linear_sum_assignment(kept, maximize=True)
    return [(int(i), int(j)) for i, j in zip(rows, columns, strict=True)]
