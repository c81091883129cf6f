"""Several models, each on slices of its own, on one GPU or on several: the cheapest servers, found by simulation.

capacity.py simulates the rate that a slice holds for each model, and a mixed-integer linear program finds the servers
(allocate.py). Equal slices of a server, for the same model in the same way, are a piece: they share a queue. A piece
has cores or CUs of its server to itself, so that it is simulated alone. This is exact except for PCIe, whose load is
reported. All cores and CUs of a server are given to its pieces, by their needs, because they are paid for.

Every piece is simulated with fresh seeds, and must hold its target with the upper end of its interval. Where one does
not, its slices are taken to hold less, and the program is solved again.

Models may share all slices instead. That is `search.plan` of equal servers. Both are searched, and the better one wins.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.batching.errors import HeadraceError, UsageError
from headrace.sim.hardware.gpu import power
from headrace.sim.planner import search
from headrace.sim.planner.allocate import CARD_CUS, Allocation, Headroom, Option, ServerPlan, allocate, headroom
from headrace.sim.planner.bounds import bounds_of
from headrace.sim.planner.capacity import busy_parts, options_of, ways_of
from headrace.sim.planner.search import NEXT, Answer, objective, what_binds
from headrace.sim.planner.target import Candidate, Hardware, Target
from headrace.sim.planner.trials import FRESH, Measured, Run, Trial, interval
from headrace.sim.system import cost
from headrace.sim.system.system import CORES

LOWER: Final = 0.95  # a slice is taken to hold this share of the rate that it did not hold
TRIES: Final = 12


@dataclass(frozen=True, slots=True)
class Piece:
    """`slices` of a server for `target`, which has their rate.

    They are `measured` with one seed. `quantile_ms` is the latency with fresh ones, with the ends of its 95 % interval.
    They hold up to about `max_rps`, where `binds` ends it (see search.Plan). `used` is the share of the capacity of
    each part that the piece has, and of the SLO."""

    target: Target
    candidate: Candidate
    slices: int
    measured: Measured
    quantile_ms: tuple[float, float, float]
    used: Mapping[str, float]
    max_rps: float
    binds: str


@dataclass(frozen=True, slots=True)
class PlacedServer:
    """A server with its pieces. `used` is the share that all pieces use of the server's "cpu", "gpu", "fpga" and
    "pcie"."""

    plan: ServerPlan
    pieces: tuple[Piece, ...]
    used: Mapping[str, float]
    cost_usd: float
    power_w: float


@dataclass(frozen=True, slots=True)
class Placement:
    """Servers for all models.

    `gap` is as in Allocation. `used` has "slices" for the model whose slices are the fullest, and "cpu", "cus" and
    "pcie" for the server where these are. `headroom` says what is exhausted first as all rates grow, which may also be
    the "pcie" of a server."""

    servers: tuple[PlacedServer, ...]
    cost_usd: float
    power_w: float
    gap: float
    used: Mapping[str, float]
    headroom: Headroom

    @property
    def binds(self) -> str:
        """Return what binds, as in Plan. For slices it is what ends the rate of most slices of the model."""
        if self.headroom.binds != "slices":
            return self.headroom.binds
        ends: Counter[str] = Counter()
        for server in self.servers:
            for piece in server.pieces:
                if piece.target.model == self.headroom.of:
                    ends[piece.binds] += piece.slices
        return ends.most_common(1)[0][0]


@dataclass(frozen=True, slots=True)
class Placed:
    """The answer for `targets`, one for each model.

    `own` has slices of their own, or the reason why there are none, and `shared` likewise. `runners_up` prepare inputs
    in other ways than `own`. `next_usd` is the extra cost of NEXT times all rates by the program alone, with slices of
    their own on `next_servers`; None if that is not possible."""

    targets: tuple[Target, ...]
    own: Placement | str
    shared: Answer | str
    runners_up: tuple[Placement, ...]
    next_usd: float | None
    next_servers: tuple[ServerPlan, ...]
    simulated: int

    @property
    def shared_wins(self) -> bool:
        if isinstance(self.own, str) or isinstance(self.shared, str):
            return isinstance(self.own, str)
        best, target = self.shared.best, self.targets[0]
        servers, measured = best.candidate.hardware.servers, best.measured
        return objective(target, servers, measured.cost_usd, measured.power_w) < _value(target, self.own)


def _value(target: Target, placement: Placement) -> tuple[float, ...]:
    return objective(target, len(placement.servers), placement.cost_usd, placement.power_w)


def place(targets: Sequence[Target], run: Run) -> Placed:
    """Return the best servers for several models.

    All targets have the same GPU, `gpus`, `least` and budget. Raises UsageError for what cannot be, and HeadraceError
    if nothing that was simulated holds the targets. Both say what binds, and by how much."""
    count = 0

    def counted(text: str, trials: Sequence[Trial]) -> list[Measured]:
        nonlocal count
        count += len(trials)
        return run(text, trials)

    own: Placement | str
    error: HeadraceError | None = None
    runners_up: tuple[Placement, ...] = ()
    following: Allocation | None = None
    try:
        placing = _Placing(targets, counted)
        own, *others = placing.placements()
        runners_up, following = tuple(others), placing.following()
        more_usd = None if following is None else following.usd - placing.allocation.usd
    except HeadraceError as refused:
        own, error, more_usd = str(refused), refused, None
    shared = _shared(targets, counted)
    if error is not None and isinstance(shared, str):
        raise error
    return Placed(tuple(targets), own, shared, runners_up, more_usd, following.servers if following else (), count)


def _shared(targets: Sequence[Target], run: Run) -> Answer | str:
    """Return the best plan with all models on all slices, or the reason why there is none."""
    one = targets[0]
    if len({tuple(ways_of(target)) for target in targets}) > 1:
        return "images, audio and texts do not share slices: their inputs are prepared in different ways"
    target = replace(
        one,
        model=",".join(target.model for target in targets),
        rate_rps=sum(target.rate_rps for target in targets),
        slo_ms=min(target.slo_ms for target in targets),
        shares=",".join(f"{target.rate_rps:g}" for target in targets),
    )
    try:
        return search.plan(target, run)
    except HeadraceError as error:
        return str(error)


class _Placing:
    """The search for slices of their own. Raises UsageError."""

    def __init__(self, targets: Sequence[Target], run: Run) -> None:
        self._targets = {target.model: target for target in targets}
        self._one = targets[0]
        self._run = run
        self._rates = {target.model: target.rate_rps for target in targets}
        self._prices = cost.given_prices(targets[0].prices)
        self._options = options_of(targets, run)
        self._ways = [way for way in dict.fromkeys(option.way for option in self._options) if way != "ideal"]
        self._tried: dict[tuple[Target, Candidate], list[Measured]] = {}
        self.allocation: Allocation

    def _allocate(self, options: Sequence[Option], faster: float = 1.0) -> Allocation:
        rates = {model: faster * rate for model, rate in self._rates.items()}
        return allocate(self._one.gpu, options, rates, gpus=self._one.gpus, least=self._one.least, prices=self._prices)

    def placements(self) -> list[Placement]:
        """Return placements, the best first: with any ways of preparing inputs, and with each way alone where that
        differs.

        The program takes energy to be in proportion to rates. Simulation tells which placement draws least."""
        self.allocation, best = self._confirmed_with(self._ways)
        placements = [best]
        for way in self._ways if len(self._ways) > 1 else ():
            with contextlib.suppress(HeadraceError):
                allocation, placement = self._confirmed_with((way,))
                if allocation.servers != self.allocation.servers:
                    placements.append(placement)
        return sorted(placements, key=lambda each: _value(self._one, each))

    def _confirmed_with(self, ways: Collection[str]) -> tuple[Allocation, Placement]:
        """Return the best allocation that uses these ways, confirmed with fresh seeds."""
        for attempt in range(TRIES):
            allocation = self._allocate([option for option in self._options if option.way in (*ways, "ideal")])
            budget = self._one.budget_usd
            if budget is not None and allocation.usd > budget:
                raise UsageError(
                    f"--budget-usd {budget:g}: models on slices of their own cost {allocation.usd:,.0f} $ in "
                    f"{cost.YEARS:g} years; the budget binds"
                )
            self._simulate(allocation, f"servers with {', '.join(ways)}, with fresh seeds, {attempt + 1}")
            missed = [
                (option, rate)
                for server in allocation.servers
                for option, rate, target, candidate in self._pieces(server)
                if self._confirmed(target, candidate)[2] > target.slo_ms
            ]
            if not missed:
                return allocation, self._placement(allocation)
            for option, rate in missed:
                self._options = [_lowered(each, rate) if each == option else each for each in self._options]
        option, rate = missed[0]
        target = self._targets[option.model]
        raise HeadraceError(
            f"no placement was confirmed in {TRIES} tries: {option.profile} for {option.model} with {option.way}, the "
            f"last that failed, does not hold {rate:.4g}/s within {target.slo_ms:g} ms with fresh seeds; allow more "
            "--slo-ms or --gpus"
        )

    def following(self) -> Allocation | None:
        """Return the program's allocation for NEXT times the rates; None if there is none."""
        try:
            return self._allocate(self._options, NEXT)
        except HeadraceError:
            return None

    def _pieces(self, server: ServerPlan) -> list[tuple[Option, float, Target, Candidate]]:
        """Return the pieces of a server: option, rate of one of its slices, target, and the candidate to simulate."""
        rates: dict[Option, list[float]] = {}
        for (_, option), rate in zip(server.slices, server.rates_rps, strict=True):
            if option is not None:
                rates.setdefault(option, []).append(rate)
        serving = sum(len(of) for of in rates.values())
        needed = {option: sum(of) / option.capacity_rps * (option.cores + option.cus) for option, of in rates.items()}
        given: dict[Option, int] = {}
        for way, all_there in (("cpu", CORES * server.cpus - serving), ("dpu", CARD_CUS)):
            given |= shared_out(all_there, {option: need for option, need in needed.items() if option.way == way})
        pieces = []
        for option, of in rates.items():
            count = len(of)
            prepared = {"cpu": f"cpu:{given.get(option, 0) + count}", "dpu": f"dpu:{given.get(option, 0)}"}
            hardware = Hardware(1, f"{option.profile}:{count}", prepared.get(option.way, option.way))
            # The rate is rounded, so that pieces which differ only in the solver's last digits are simulated once.
            target = self._targets[option.model].at(float(f"{sum(of):.6g}"))
            pieces.append((option, sum(of) / count, target, Candidate(hardware, option.policy, option.parameters)))
        return pieces

    def _simulate(self, allocation: Allocation, text: str) -> None:
        seeds = range(FRESH + 1)
        pieces = {
            (target, candidate): None
            for server in allocation.servers
            for _, _, target, candidate in self._pieces(server)
            if (target, candidate) not in self._tried
        }
        trials = [
            Trial(candidate.scenario(target, target.requests(1), seed), target.quantile, 1)
            for target, candidate in pieces
            for seed in seeds
        ]
        measured = iter(self._run(text, trials))
        for piece in pieces:
            self._tried[piece] = [next(measured) for _ in seeds]

    def _confirmed(self, target: Target, candidate: Candidate) -> tuple[float, float, float]:
        return interval([measured.quantile_ms for measured in self._tried[target, candidate][1:]])

    def _placement(self, allocation: Allocation) -> Placement:
        servers = tuple(self._server(server) for server in allocation.servers)
        held = dict.fromkeys(self._rates, 0.0)
        for server in servers:
            for piece in server.pieces:
                held[piece.target.model] += piece.max_rps
        used = {"slices": max(rate / held[model] for model, rate in self._rates.items())}
        for part in ("cpu", "cus", "pcie"):
            shares = [server.used[part] for server in servers if part in server.used]
            if shares:
                used[part] = max(shares)
        room = headroom(allocation.servers, self._rates)
        pcie = max(range(len(servers)), key=lambda number: servers[number].used["pcie"])
        if room.factor * servers[pcie].used["pcie"] > 1:
            room = Headroom(1 / servers[pcie].used["pcie"], "pcie", pcie)
        return Placement(
            servers,
            sum(server.cost_usd for server in servers),
            sum(server.power_w for server in servers),
            allocation.gap,
            used,
            room,
        )

    def _server(self, plan: ServerPlan) -> PlacedServer:
        pieces, busy = [], {"cpu": 0.0, "gpu": 0.0}
        used = {"pcie": 0.0}
        for option, _, target, candidate in self._pieces(plan):
            measured = self._tried[target, candidate][0]
            for part, share in busy_parts(candidate.hardware.preprocess, measured.part_utilization).items():
                busy[part] = busy.get(part, 0.0) + share
            piece = self._piece(option, target, candidate)
            pieces.append(piece)
            used["pcie"] += piece.used.get("pcie", 0.0)
            if "cus" in piece.used:
                used["cus"] = max(used.get("cus", 0.0), piece.used["cus"])
        cores = busy.pop("cpu")
        shares = {"cpu": min(1.0, cores / (CORES * plan.cpus)), **{part: min(1.0, each) for part, each in busy.items()}}
        machine = power.server(self._one.gpu, fpga=plan.card, cpus=plan.cpus)
        watts = sum(machine.power_w(shares).values())
        parts = ["node", *["cpu"] * (plan.cpus - 1), self._one.gpu, *(["fpga"] if plan.card else [])]
        prices = {name: price for name, price in self._prices.items() if name != cost.KWH}
        bought = cost.cost(0.0, watts, parts, prices_usd=prices, usd_a_kwh=self._prices[cost.KWH])
        return PlacedServer(plan, tuple(pieces), {**shares, **used}, bought.capex_usd + bought.opex_usd, watts)

    def _piece(self, option: Option, target: Target, candidate: Candidate) -> Piece:
        known, measured = bounds_of(target, candidate.hardware), self._tried[target, candidate][0]
        slices = sum(int(part.partition(":")[2]) for part in candidate.hardware.partition.split(","))
        used = {part: target.rate_rps / can for part, can in known.capacity_rps.items()}
        used["slo"] = measured.quantile_ms / target.slo_ms
        max_rps = option.capacity_rps * slices
        binds = what_binds(known, max_rps, measured.batch_size_mean)
        return Piece(target, candidate, slices, measured, self._confirmed(target, candidate), used, max_rps, binds)


def _lowered(option: Option, missed_rps: float) -> Option:
    """Return the option at a lower rate, with what it takes there, because it does not hold this one."""
    share = LOWER * min(1.0, missed_rps / option.capacity_rps)
    return replace(
        option,
        capacity_rps=share * option.capacity_rps,
        cores=share * option.cores,
        cus=share * option.cus,
        watts=share * option.watts,
    )


def shared_out(number: int, needed: Mapping[Option, float]) -> dict[Option, int]:
    """Return how many of `number` equal things each option gets, at least 1, by its need.

    Each one goes to the option that has the least share of its need."""
    given = dict.fromkeys(needed, 1)
    for _ in range(number - len(needed) if needed else 0):
        given[min(needed, key=lambda option: given[option] / max(needed[option], 1e-9))] += 1
    return given
