"""Which GPUs in which partition, and which slice for which model: a mixed-integer linear program without simulation.

An `Option` has all that is known of a slice: a profile for a model, and the rate that it holds within the model's SLO.
It also has the part of the server's CPU or DPU card that its requests take at that rate. At lower rates they take
proportionally less. Servers have one GPU each, one or two CPUs, and a card or none. Every slice that serves keeps a
core for its server process.

The program is first solved for all servers as one pool, whose cores and CUs any slice may use. This is a bound, and
small however many GPUs there are. Then the slices are given to servers, in the partitions that the bound chose. If that
costs more than the bound, or is not possible, the program is solved with separate variables for each server.
"""

import ctypes
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import HeadraceError, UsageError
from headrace.sim.hardware.gpu import power
from headrace.sim.hardware.gpu.mig import gpu_named, partitions
from headrace.sim.planner.space import CUS
from headrace.sim.planner.target import LEAST, MAX_GPUS
from headrace.sim.system import cost
from headrace.sim.system.system import CORES

if TYPE_CHECKING:  # the functions that use scipy load it, so that the help of a command needs no scipy
    from scipy.optimize import LinearConstraint

CARD_CUS: Final = max(CUS)
LIMIT_S: Final = 10.0  # the time limit of one program
CLOSED: Final = 1e-6  # a gap below this counts as none
EVEN: Final = 1e-3  # the share of the objective that equally busy slices of a model may cost
SEPARATE: Final = 6  # with more servers, programs of each server's own do not close in time, and the pool's bound stays


@dataclass(frozen=True, slots=True)
class Option:
    """A slice of `profile` for `model`, which holds `capacity_rps` with inputs prepared in this `way`.

    Attributes:
        way: "cpu", "dpu", "nvjpg" or "ideal".
        cores: The cores that prepare inputs at that rate, without the one of the slice's server process.
        cus: The CUs of a card at that rate.
        watts: The power above idle at that rate, with that of the CPU and the card.
        batch: The largest batch.
        policy: The policy.
        parameters: Its parameters, by their names in `Scenario`.

    Raises:
        UsageError: A number is out of range.
    """

    model: str
    profile: str
    way: str
    capacity_rps: float
    cores: float = 0.0
    cus: float = 0.0
    watts: float = 0.0
    batch: int = 1
    policy: str = "preba"
    parameters: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        taken = (self.cores, self.cus, self.watts)
        if not 0 < self.capacity_rps < math.inf or not all(0 <= each < math.inf for each in taken):
            raise UsageError(f"{self}: give a capacity above 0, and cores, cus and watts of 0 or more")


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """A server: the `slices` of its GPU, each with its option (None: idle), and the `rates_rps` of each.

    It has this number of `cpus`, and a `card` or none."""

    partition: tuple[str, ...]
    slices: tuple[tuple[str, Option | None], ...]
    rates_rps: tuple[float, ...]
    cpus: int
    card: bool


@dataclass(frozen=True, slots=True)
class Allocation:
    """Servers for all rates.

    `usd` is over the servers' time with energy, `watts` is the average. The objective is at most the share `gap` of
    itself above the optimum."""

    servers: tuple[ServerPlan, ...]
    usd: float
    watts: float
    gap: float


@dataclass(frozen=True, slots=True)
class Headroom:
    """All rates may grow by `factor` on the same slices; then `binds` is exhausted.

    It is "slices" of the model `of`, or "cpu" or "cus" of the server number `of`."""

    factor: float
    binds: str
    of: str | int


@cache
def _different(gpu: str, profiles: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    """Return full partitions, without those that another one dominates.

    One dominates another if it has as many slices of each of `profiles`, and more of one."""
    by_count: dict[tuple[tuple[str, int], ...], tuple[str, ...]] = {}
    for parts in partitions(gpu_named(gpu), full=True):
        names = tuple(each.name for each in parts)
        by_count.setdefault(tuple(sorted(Counter(name for name in names if name in profiles).items())), names)
    counts = {key: Counter(dict(key)) for key in by_count}
    return tuple(
        names
        for key, names in by_count.items()
        if not any(other != key and counts[key] <= counts[other] for other in by_count)
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep HiGHS 1.12 from writing to stdout: at times it writes a line for debugging despite its options (its issue
    2783)."""
    flush = ctypes.CDLL(None).fflush
    flush(None)
    kept = os.dup(1)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)
    try:
        yield
    finally:
        flush(None)
        os.dup2(kept, 1)
        os.close(kept)


@dataclass(frozen=True, slots=True)
class _Prices:
    """The prices of one server's parts, and of a watt over its time: the weights of the objective, "usd" or "watts"."""

    server: tuple[float, float]
    cpu: tuple[float, float]
    card: tuple[float, float]
    watt: tuple[float, float]

    @classmethod
    def of(cls, gpu: str, prices: Mapping[str, float]) -> "_Prices":
        a_watt = cost.YEARS * cost.HOURS_A_YEAR / 1e3 * prices[cost.KWH]
        idle = {part.name: part.idle_w for part in power.server(gpu, fpga=True).parts}
        basic = idle["node"] + idle["cpu"] + idle["gpu"]

        def both(usd: float, watts: float) -> tuple[float, float]:
            return usd + watts * a_watt, watts

        return cls(
            both(prices["node"] + prices[gpu], basic),
            both(prices["cpu"], idle["cpu"]),
            both(prices["fpga"], idle["fpga"]),
            both(0.0, 1.0),
        )


@dataclass(slots=True)
class _Solved:
    """A solution: arrays by group, and in it by partition or option."""

    objective: float
    bound: float
    scale: float
    partitions: NDArray[np.float64]
    cpus: NDArray[np.float64]
    cards: NDArray[np.float64]
    slices: NDArray[np.float64]
    rates: NDArray[np.float64]


@dataclass(slots=True)
class _Rows:
    """The rows of a constraint matrix: low <= row x <= high."""

    entries: list[tuple[int, int, float]] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, row: Mapping[int, float], low: float = -math.inf, high: float = math.inf) -> None:
        self.entries += [(len(self.low), column, value) for column, value in row.items()]
        self.low.append(low)
        self.high.append(high)

    def constraint(self, columns: int) -> "LinearConstraint":
        from scipy.optimize import LinearConstraint
        from scipy.sparse import coo_array

        rows, places, values = zip(*self.entries, strict=True)
        return LinearConstraint(
            coo_array((values, (rows, places)), (len(self.low), columns)).tocsr(),
            np.array(self.low),
            np.array(self.high),
        )


class _Program:
    """The rates on groups of servers; each group has the cores and CUs of all of its servers together.

    Columns are the scale of the rates and a utilization for each model. For each group follow the servers in each
    partition, the second CPUs, the cards, and for each option its slices and their rate."""

    def __init__(self, gpu: str, options: Sequence[Option], rates: Mapping[str, float], prices: _Prices) -> None:
        self.options, self.rates, self.prices = options, rates, prices
        self.partitions = _different(gpu, frozenset(each.profile for each in options))

    def solve(
        self,
        groups: Sequence[int],  # the greatest number of servers in each group
        objective: str,  # "usd", "watts", "gpus", "scale" (of the rates, the largest), "even"
        *,
        exactly: int | None = None,  # servers in all
        chosen: Sequence[int] | None = None,  # for groups of one server, the partition of each
        slices: NDArray[np.float64] | None = None,
        within: tuple[str, float] | None = None,  # another objective, and its greatest value
        parts: bool = True,  # cores and CUs are limited
    ) -> _Solved | None:
        """Return the optimum, or None if there is no solution.

        Raises HeadraceError if this is not known within LIMIT_S."""
        from scipy.optimize import Bounds, milp

        models, width = list(self.rates), len(self.partitions) + 2 + 2 * len(self.options)
        first = 1 + len(models)
        columns = first + width * len(groups)
        y, second = 0, len(self.partitions)
        card, x = second + 1, second + 2
        r = x + len(self.options)
        weights = {name: np.zeros(columns) for name in ("usd", "watts", "gpus", "scale", "even")}
        weights["scale"][0] = -1.0
        weights["even"][1:first] = 1.0
        low, high = np.zeros(columns), np.full(columns, np.inf)
        whole = np.zeros(columns)
        low[0], high[0] = (0.0, np.inf) if objective == "scale" else (1.0, 1.0)
        high[1:first] = 1.0
        rows = _Rows()
        for number, size in enumerate(groups):
            at = first + number * width
            whole[at : at + r] = 1
            high[at : at + x] = size
            for place, name in enumerate(("usd", "watts")):
                weights[name][at : at + second] = self.prices.server[place]
                weights[name][at + second] = self.prices.cpu[place]
                weights[name][at + card] = self.prices.card[place]
                for i, option in enumerate(self.options):
                    weights[name][at + r + i] = self.prices.watt[place] * option.watts / option.capacity_rps
            weights["gpus"][at : at + second] = 1.0
            servers = {at + y + p: 1.0 for p in range(len(self.partitions))}
            rows.add(servers, high=size)
            for extra in (second, card):
                rows.add({at + extra: 1.0, **{column: -1.0 for column in servers}}, high=0.0)
            if chosen is not None:
                low[at + chosen[number]] = 1.0
            elif objective != "even" and number and size == groups[number - 1] == 1:
                # Equal servers come in one order only.
                order = {at + y + p: p + 1.0 for p in range(len(self.partitions))}
                rows.add({**order, **{column - width: -value for column, value in order.items()}}, high=0.0)
            for profile in dict.fromkeys(option.profile for option in self.options):
                of = [i for i, option in enumerate(self.options) if option.profile == profile]
                rows.add(
                    {
                        **{at + x + i: 1.0 for i in of},
                        **{at + y + p: -float(names.count(profile)) for p, names in enumerate(self.partitions)},
                    },
                    high=0.0,
                )
            for i, option in enumerate(self.options):
                rows.add({at + r + i: 1.0, at + x + i: -option.capacity_rps}, high=0.0)
                if slices is not None:
                    low[at + x + i] = high[at + x + i] = slices[number, i]
                    rows.add(
                        {at + r + i: 1.0, 1 + models.index(option.model): -option.capacity_rps * slices[number, i]},
                        high=0.0,
                    )
            if parts:
                each = {
                    i: (option.cores / option.capacity_rps, option.cus / option.capacity_rps)
                    for i, option in enumerate(self.options)
                }
                sockets = {**{column: -float(CORES) for column in servers}, at + second: -float(CORES)}
                rows.add(
                    {
                        **{at + x + i: 1.0 for i in each},
                        **{at + r + i: cores for i, (cores, _) in each.items()},
                        **sockets,
                    },
                    high=0.0,
                )
                rows.add({**{at + r + i: cus for i, (_, cus) in each.items()}, at + card: -float(CARD_CUS)}, high=0.0)
        for model, rate in self.rates.items():
            of = [i for i, option in enumerate(self.options) if option.model == model]
            rows.add({0: -rate, **{first + g * width + r + i: 1.0 for g in range(len(groups)) for i in of}}, low=0.0)
        if exactly is not None:
            rows.add(dict(enumerate(weights["gpus"])), low=exactly, high=exactly)
        if within is not None:
            rows.add(dict(enumerate(weights[within[0]])), high=within[1])
        c = weights[objective]
        largest = float(np.abs(c).max())
        with _quiet():
            done = milp(
                c / largest,
                integrality=whole,
                bounds=Bounds(low, high),
                constraints=rows.constraint(columns),
                options={"time_limit": LIMIT_S, "mip_rel_gap": CLOSED / 10},
            )
        if done.x is None:
            if done.status == 1:
                raise HeadraceError(
                    f"no allocation of {len(self.options)} options to {sum(groups)} GPUs was found in {LIMIT_S:g} s: "
                    "allow fewer --gpus or plan fewer models at a time"
                )
            return None
        shaped = done.x[first:].reshape(len(groups), width)
        whole_numbers = np.round(shaped[:, :r])
        bound = done.mip_dual_bound
        return _Solved(
            float(done.fun) * largest,
            float(done.fun if bound is None else bound) * largest,
            float(done.x[0]),
            whole_numbers[:, :second],
            whole_numbers[:, second],
            whole_numbers[:, card],
            whole_numbers[:, x:r],
            np.maximum(0.0, shaped[:, r:]),
        )

    def on_servers(self, count: int, objective: str, exactly: int | None) -> tuple[_Solved, float] | None:
        """Return the best solution with up to `count` servers, or with `exactly` this number, each with separate parts;
        and its gap."""
        pooled = self.solve([count], objective, exactly=exactly)
        if pooled is None:
            return None
        bound = pooled.bound
        chosen = [p for p, number in enumerate(pooled.partitions[0]) for _ in range(int(number))]
        solved = self.solve([1] * len(chosen), objective, chosen=chosen)
        if solved is None or (solved.objective > bound * (1 + CLOSED) and count <= SEPARATE):
            separate = None
            try:
                separate = self.solve([1] * count, objective, exactly=exactly)
            except HeadraceError:
                if solved is None:
                    raise
            if separate is not None:
                bound = max(bound, separate.bound)
                if solved is None or separate.objective < solved.objective:
                    solved = separate
        if solved is None:
            return None
        return solved, max(0.0, 1 - bound / solved.objective)


def allocate(
    gpu: str,
    options: Sequence[Option],
    rates: Mapping[str, float],
    *,
    gpus: int | None,
    least: str,
    prices: Mapping[str, float],
) -> Allocation:
    """Return servers that hold `rates`.

    Args:
        gpu: The name of the GPU.
        options: What slices can do.
        rates: The rates (1/s) by model.
        gpus: The greatest number of GPUs; None for as many as it takes, up to MAX_GPUS.
        least: What is minimized, one of LEAST.
        prices: The prices of parts, as `cost.given_prices` returns them.

    Raises:
        UsageError: The rates cannot be held. The text says what binds, and by how much.
        HeadraceError: The solution takes too long.
    """
    _check(gpu, options, rates, gpus, least)
    max_gpus = MAX_GPUS if gpus is None else gpus
    program = _Program(gpu, options, rates, _Prices.of(gpu, prices))
    fewest = program.solve([max_gpus], "gpus")
    if fewest is None:
        raise _too_much(program, gpu, max_gpus)
    objective = "watts" if least == "power" else "usd"
    solved = None
    if least == "gpus":
        for count in range(round(fewest.objective), max_gpus + 1):
            solved = program.on_servers(count, objective, count)
            if solved is not None:
                break
    else:
        # A bound comes first. More servers matter only while these alone cost less than the best solution so far.
        count = round(fewest.objective)
        while count <= max_gpus:
            another = program.on_servers(count, objective, None)
            if another is not None and (solved is None or another[0].objective < solved[0].objective):
                solved = another
            basic = program.prices.server[0 if objective == "usd" else 1]
            count += 1
            if solved is not None and count * basic >= solved[0].objective:
                break
    if solved is None:
        raise _too_much(program, gpu, max_gpus)
    return _allocation(program, *solved, objective)


def _check(gpu: str, options: Sequence[Option], rates: Mapping[str, float], gpus: int | None, least: str) -> None:
    profiles = gpu_named(gpu).profiles
    if least not in LEAST:
        raise UsageError(f"--least {least!r}: choose from {', '.join(LEAST)}")
    if gpus is not None and not 1 <= gpus <= MAX_GPUS:
        raise UsageError(f"--gpus {gpus}: give 1 to {MAX_GPUS}")
    if not rates:
        raise UsageError("there is nothing to place: give a model and its rate")
    for model, rate in rates.items():
        if not 0 < rate < math.inf:
            raise UsageError(f"rate {rate:g}/s of {model}: give a number above 0")
        if not any(option.model == model for option in options):
            raise UsageError(f"no slice of {gpu} is known to serve {model} within its SLO: allow more --slo-ms")
    for option in options:
        if option.profile not in profiles:
            raise UsageError(f"{gpu} has no profile {option.profile!r}; choose from {', '.join(profiles)}")
        if option.model not in rates:
            raise UsageError(f"an option is for {option.model}, which has no rate: leave it out, or give its rate")


def _too_much(program: _Program, gpu: str, max_gpus: int) -> UsageError:
    """Return the error that says why `max_gpus` GPUs are too few."""
    held = program.solve([max_gpus], "scale")
    slices = program.solve([max_gpus], "scale", parts=False)
    assert held is not None and slices is not None  # a scale of 0 is always a solution
    ways = {option.way for option in program.options}
    cpu_binds = slices.scale > held.scale * (1 + CLOSED)
    part = f"the {' and '.join(name for way, name in (('cpu', 'CPU cores'), ('dpu', 'CUs')) if way in ways)}"
    binds = f"{part} bind (the slices could do {100 * slices.scale:.3g} %)" if cpu_binds else "the slices bind"
    alone = {model: _gpus_alone(program, model) for model in program.rates}
    model = max(alone, key=lambda name: alone[name])
    more = program.solve([MAX_GPUS], "gpus")
    takes = f"--gpus {round(more.objective)} or more" if more is not None else f"more than {MAX_GPUS} GPUs"
    if held.scale >= 1:  # the pool can do it, but no assignment to servers can
        takes, binds = f"--gpus {max_gpus + 1}", f"{part} bind: together they are enough, but not in each server"
    return UsageError(
        f"--gpus {max_gpus}: {max_gpus} x {gpu} hold {100 * min(1.0, held.scale):.3g} % of these rates at most; "
        f"{binds}; the largest part is {model} at {program.rates[model]:g}/s, which alone takes {alone[model]:.3g} "
        f"GPUs. Give {takes}, or lower rates"
    )


def _gpus_alone(program: _Program, model: str) -> float:
    """Return how many GPUs the slices for the model take, in the best partition, without regard to cores and CUs."""
    of = [option for option in program.options if option.model == model]
    best = max(
        sum(max((option.capacity_rps for option in of if option.profile == name), default=0.0) for name in names)
        for names in program.partitions
    )
    return program.rates[model] / best


def _allocation(program: _Program, solved: _Solved, gap: float, objective: str) -> Allocation:
    used = [number for number, row in enumerate(solved.partitions) if row.any()]
    chosen = [int(np.argmax(solved.partitions[number])) for number in used]
    even = program.solve(
        [1] * len(used),
        "even",
        chosen=chosen,
        slices=solved.slices[used],
        within=(objective, solved.objective * (1 + EVEN)),
    )
    assert even is not None  # the solution itself fulfils these constraints
    servers = []
    usd = watts = 0.0
    for number, choice in enumerate(chosen):
        left = {i: int(count) for i, count in enumerate(even.slices[number]) if count}
        slices: list[tuple[str, Option | None]] = []
        rates = []
        for name in program.partitions[choice]:
            i = next((i for i, count in left.items() if count and program.options[i].profile == name), None)
            if i is None:
                slices.append((name, None))
                rates.append(0.0)
                continue
            left[i] -= 1
            slices.append((name, program.options[i]))
            rates.append(float(even.rates[number, i] / even.slices[number, i]))
        cpus, card = 1 + int(even.cpus[number]), bool(even.cards[number])
        busy = sum(
            rate * option.watts / option.capacity_rps
            for (_, option), rate in zip(slices, rates, strict=True)
            if option is not None
        )
        prices = program.prices
        usd, watts = (
            total
            + prices.server[place]
            + (cpus - 1) * prices.cpu[place]
            + card * prices.card[place]
            + busy * prices.watt[place]
            for place, total in ((0, usd), (1, watts))
        )
        servers.append(ServerPlan(program.partitions[choice], tuple(slices), tuple(rates), cpus, card))
    return Allocation(tuple(servers), usd, watts, gap)


def headroom(servers: Sequence[ServerPlan], rates: Mapping[str, float]) -> Headroom:
    """Return how far all rates can grow, by a linear program in which the slices of a model may share its rate in
    another way.

    Its dual tells how much each limit bears on the factor. The limit with the greatest share is named."""
    from scipy.optimize import linprog

    places = [(number, option) for number, server in enumerate(servers) for _, option in server.slices if option]
    # The columns are the factor, and the rate of each slice.
    parts: dict[tuple[str, int], tuple[list[float], float]] = {}
    for number, server in enumerate(servers):
        here = [option if at == number else None for at, option in places]
        cores = [option.cores / option.capacity_rps if option else 0.0 for option in here]
        cus = [option.cus / option.capacity_rps if option else 0.0 for option in here]
        parts["cpu", number] = [0.0, *cores], CORES * server.cpus - sum(option is not None for option in here)
        parts["cus", number] = [0.0, *cus], CARD_CUS * server.card
    served = [[rate, *(-float(option.model == model) for _, option in places)] for model, rate in rates.items()]
    capacities = [option.capacity_rps for _, option in places]
    done = linprog(
        [-1.0, *[0.0] * len(places)],
        A_ub=[*(row for row, _ in parts.values()), *served],
        b_ub=[*(there for _, there in parts.values()), *[0.0] * len(served)],
        bounds=[(0, None), *((0, each) for each in capacities)],
    )
    weights: dict[tuple[str, str | int], float] = {}
    for (part, number), price, (_, there) in zip(parts, done.ineqlin.marginals, parts.values(), strict=False):
        weights[part, number] = -price * there
    for (_, option), price, each in zip(places, done.upper.marginals[1:], capacities, strict=True):
        weights["slices", option.model] = weights.get(("slices", option.model), 0.0) - price * each
    binds, of = max(weights, key=lambda limit: weights[limit])
    return Headroom(float(done.x[0]), binds, of)
