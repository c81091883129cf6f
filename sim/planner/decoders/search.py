"""Find the cheapest servers of a model that decodes for two targets: time to first token, and time per output token.

The search is pure: it says what is to be simulated, and its caller runs that (`DecodingRun`).

The space. Hardware is a number of equal replicas of the model, on nodes with a front end: the cores of one or two CPUs,
or a DPU with as many compute units as the card has room for. A node of several replicas may have two DPUs. Policies are
POLICIES. A model of text alone has no front end.

The search. For each front end and policy, the number of replicas is doubled until the targets hold, and then the gap is
halved. This takes for granted that more replicas never do worse. A run holds the targets if the share of requests that
miss one is at most what the target allows. The cheapest candidate is simulated again with fresh seeds, and the upper
end of the interval of its share of late requests must hold. If it does not, it gets a further replica. At last the
search finds the fewest cores or compute units with which a front end still holds, and the greatest rate of the plan.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.batching.errors import HeadraceError, UsageError
from headrace.sim.planner.decoders import server
from headrace.sim.planner.decoders.server import (
    IDEAL,
    DecodingCandidate,
    DecodingMeasured,
    DecodingRun,
    DecodingTrial,
    FrontEndChoice,
    at_quantile,
)
from headrace.sim.planner.decoders.target import DecodingTarget
from headrace.sim.planner.space import CUS, SOCKETS
from headrace.sim.planner.trials import BINDS, FRESH, Interval, first_confirmed, interval, max_held
from headrace.sim.system.system import CORES

POLICIES: Final = ("continuous", "token-deadline")  # of equal ones, the first is taken
CARDS: Final = (1, 2)  # DPUs of a node
BEYOND: Final = 1.05  # the rate at which a plan misses its targets, as a multiple of the greatest that it holds
ALONE_RPS: Final = 1e-3  # a rate at which requests do not meet


@dataclass(frozen=True, slots=True)
class DecodingPlan:
    """Replicas that hold the targets.

    Attributes:
        candidate: The replicas, and all cores or compute units of a node.
        measured: The run with the seed of the search.
        fewest: The fewest cores, or compute units of a card, with which a node still holds; 0 without a front end.
        front_end_usd: Dollars of preprocessing in all nodes: of the fewest cores as parts of CPUs, or of the cards.
    """

    candidate: DecodingCandidate
    measured: DecodingMeasured
    fewest: int
    front_end_usd: float


@dataclass(frozen=True, slots=True)
class DecodingAnswer:
    """The answer to a target.

    Attributes:
        target: The target.
        best: The cheapest plan.
        others: The cheapest plan with the other kind of front end, if it holds.
        late: The share of late requests of `best` with fresh seeds, with the ends of its 95 % interval.
        max_rps: The greatest rate, about, that `best` holds in all.
        binds: What ends it there: gpu, cores, cus or pcie if a part works nearly all the time, else ttft or tpot.
        simulated: The number of runs.
    """

    target: DecodingTarget
    best: DecodingPlan
    others: tuple[DecodingPlan, ...]
    late: Interval
    max_rps: float
    binds: str
    simulated: int


def plan_decoder(target: DecodingTarget, run: DecodingRun) -> DecodingAnswer:
    """Return the cheapest servers that meet the targets.

    Raises UsageError for targets that no server meets, even if a request is alone, and HeadraceError if more GPUs or
    dollars are needed than are allowed."""
    return _Search(target, run).answer()


class _Search:
    def __init__(self, target: DecodingTarget, run: DecodingRun) -> None:
        self.target = target
        self._run = run
        self._known: dict[DecodingTrial, DecodingMeasured] = {}
        self._max_replicas = target.gpus // target.tp

    def answer(self) -> DecodingAnswer:
        front_ends = self._front_ends()
        self._check_alone(front_ends)
        cheapest: list[DecodingCandidate] = []
        for front_end in front_ends:
            if (found := self._fewest_replicas(front_end)) is not None:
                cheapest.append(found)
        cheapest.sort(key=self._usd)
        if not cheapest:
            raise self._missed(front_ends)
        confirmed = first_confirmed(
            self._by_cost(cheapest), self._fresh, lambda each, late: self._within(late[2]) and self._affords(each)
        )
        if confirmed is None:
            raise self._missed(front_ends)
        best, late = confirmed
        max_rps = self._max_rps(best)
        others = {each.front_end.device: each for each in reversed(cheapest)}  # the cheapest of each device
        others.pop(best.front_end.device, None)
        return DecodingAnswer(
            self.target,
            self._plan(best),
            tuple(self._plan(each) for each in sorted(others.values(), key=self._usd)),
            late,
            max_rps,
            self._binding(best, max_rps),
            len(self._known),
        )

    def _front_ends(self) -> list[FrontEndChoice]:
        """Return the front ends to try. Cores fill the CPUs, and compute units the card."""
        target = self.target
        server.replica(target)  # so that an error of the model comes first
        if target.multimodal is None:
            return [FrontEndChoice(IDEAL)]
        library = server.library_of(target)
        kept = target.node_replicas * target.tp
        cores = [FrontEndChoice("cpu", CORES * sockets - kept, library) for sockets in SOCKETS]
        for count in sorted(CUS, reverse=True):
            card = FrontEndChoice("dpu", count)
            try:
                server.device(target, card)
            except UsageError:
                continue  # the card has no room for so many, or the units do not take these inputs
            return [
                *cores,
                *(replace(card, cards=cards) for cards in (CARDS if target.node_replicas > 1 else CARDS[:1])),
            ]
        return cores

    def _measure(self, text: str, trials: Sequence[DecodingTrial]) -> list[DecodingMeasured]:
        new = [trial for trial in dict.fromkeys(trials) if trial not in self._known]
        if new:
            self._known.update(zip(new, self._run(text, new), strict=True))
        return [self._known[trial] for trial in trials]

    def _one(self, candidate: DecodingCandidate, rate_rps: float | None = None) -> DecodingMeasured:
        rate = self.target.rate_rps if rate_rps is None else rate_rps
        text = f"{candidate.replicas} x {self.target.gpu}, {candidate.front_end.text}, {rate:.4g}/s"
        return self._measure(text, [DecodingTrial(self.target, candidate, rate)])[0]

    def _holds(self, candidate: DecodingCandidate, rate_rps: float | None = None) -> bool:
        return self._within(self._one(candidate, rate_rps).late)

    def _within(self, late: float) -> bool:
        return late <= self.target.late + 1e-12

    def _usd(self, candidate: DecodingCandidate) -> float:
        return server.idle_usd(self.target, candidate)

    def _allowed(self, front_end: FrontEndChoice) -> int:
        """Return the largest number of replicas within the limits of GPUs and of dollars."""
        budget = self.target.budget_usd
        if budget is None:
            return self._max_replicas

        def costs_more(replicas: int) -> bool:
            return self._usd(DecodingCandidate(replicas, front_end, POLICIES[0])) > budget

        found = fewest(costs_more, self._max_replicas)
        return self._max_replicas if found is None else found - 1

    def _check_alone(self, front_ends: Sequence[FrontEndChoice]) -> None:
        """Raise UsageError if a request misses a target even where it meets no other one."""
        target = replace(self.target, trial_requests=100)
        alone = [DecodingCandidate(1, each, POLICIES[0]) for each in front_ends]
        done = self._measure("a request alone", [DecodingTrial(target, each, ALONE_RPS) for each in alone])
        for option, asked, times in (
            ("--slo-ttft-ms", target.slo_ttft_ms, [each.ttft_ms for each in done]),
            ("--slo-tpot-ms", target.slo_tpot_ms, [each.tpot_ms for each in done]),
        ):
            if target.output_tokens == 1 and option == "--slo-tpot-ms":
                continue
            least, front_end = min(
                (at_quantile(each, target.quantile), of.text) for each, of in zip(times, front_ends, strict=True)
            )
            if least > asked:
                raise UsageError(
                    f"{option} {asked:g} is below {least:.4g} ms, which a request takes alone on {target.gpu} with "
                    f"{front_end}; allow more, or give smaller inputs, a faster --gpu, or a larger --tp"
                )

    def _fewest_replicas(self, front_end: FrontEndChoice) -> DecodingCandidate | None:
        """Return the candidate with the fewest replicas that holds; None if there is none."""
        found: DecodingCandidate | None = None
        allowed = self._allowed(front_end)
        for policy in POLICIES:
            limit = allowed if found is None else found.replicas - 1

            def holds(replicas: int, policy: str = policy) -> bool:
                return self._holds(DecodingCandidate(replicas, front_end, policy))

            replicas = fewest(holds, limit) if found is None else fewest_below(holds, limit)
            if replicas is not None:
                found = DecodingCandidate(replicas, front_end, policy)
        return found

    def _by_cost(self, cheapest: list[DecodingCandidate]) -> Iterator[DecodingCandidate]:
        """Yield candidates, the cheapest first. One that is refused comes again with a further replica."""
        while cheapest:
            best = cheapest.pop(0)
            yield best
            if best.replicas < self._max_replicas:
                cheapest.append(replace(best, replicas=best.replicas + 1))
                cheapest.sort(key=self._usd)

    def _fresh(self, candidate: DecodingCandidate) -> Interval:
        """Return the share of late requests with fresh seeds."""
        trials = [DecodingTrial(self.target, candidate, self.target.rate_rps, seed) for seed in range(1, FRESH + 1)]
        return interval([each.late for each in self._measure("fresh seeds", trials)])

    def _affords(self, candidate: DecodingCandidate) -> bool:
        budget = self.target.budget_usd
        return budget is None or self._one(candidate).cost_usd <= budget

    def _missed(self, front_ends: Sequence[FrontEndChoice]) -> HeadraceError:
        target = self.target
        replicas = max(1, self._allowed(front_ends[0]))
        nearest = DecodingCandidate(replicas, front_ends[0], POLICIES[0])
        done = self._one(nearest)
        budget = "" if target.budget_usd is None else f" and --budget-usd {target.budget_usd:,.0f}"
        return HeadraceError(
            f"no plan within --gpus {target.gpus}{budget} serves --rate-rps {target.rate_rps:g}: {replicas} x "
            f"{target.tp} {target.gpu} with {front_ends[0].text} let {100 * done.late:.3g} % of the requests miss a "
            f"target, and {100 * target.late:.3g} % are allowed; its GPUs work {100 * done.used['gpu']:.0f} % of the "
            "time. Allow more --gpus, dollars or time, or a lower rate"
        )

    def _plan(self, candidate: DecodingCandidate) -> DecodingPlan:
        """Return the plan of a candidate, with the fewest cores or compute units that do."""
        front_end = candidate.front_end
        if front_end.device == IDEAL:
            return DecodingPlan(candidate, self._one(candidate), 0, 0.0)

        def holds(count: int) -> bool:
            return self._holds(replace(candidate, front_end=replace(front_end, count=count)))

        found = fewest(holds, front_end.count) or front_end.count
        spent = server.front_end_usd(self.target, candidate, found)
        return DecodingPlan(candidate, self._one(candidate), found, spent)

    def _max_rps(self, best: DecodingCandidate) -> float:
        low, high = self.target.rate_rps, 2 * self.target.rate_rps
        while self._holds(best, high):
            low, high = high, 2 * high
        return max_held([low], [high], lambda rates: [self._holds(best, rate) for rate in rates])[0]

    def _binding(self, best: DecodingCandidate, max_rps: float) -> str:
        target, beyond = self.target, self._one(best, BEYOND * max_rps)
        part = max(beyond.used, key=lambda each: beyond.used[each])
        if beyond.used[part] >= BINDS:
            return part
        ttft = at_quantile(beyond.ttft_ms, target.quantile) / target.slo_ttft_ms
        tpot = 0.0 if target.output_tokens == 1 else at_quantile(beyond.tpot_ms, target.quantile) / target.slo_tpot_ms
        return "ttft" if ttft >= tpot else "tpot"


def fewest(holds: Callable[[int], bool], limit: int) -> int | None:
    """Return the least count of 1 to `limit` that holds, if all above it do too; None if there is none."""
    low, high = 0, 1
    while high < limit and not holds(high):
        low, high = high, 2 * high
    if high >= limit:
        high = limit
        if high <= low or not holds(high):
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def fewest_below(holds: Callable[[int], bool], limit: int) -> int | None:
    """Return the same where few counts hold: the greatest is asked first."""
    return fewest(holds, limit) if limit >= 1 and holds(limit) else None
