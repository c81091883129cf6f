"""The evaluation of SMDP batching (Xu, Sun, Zhou, Niu, ICC 2023): GoogLeNet on a Tesla P4.

Times are in ms and energies in mJ, so powers are in W. With w1 = 1 the average cost g is in ms and w2 in ms/W.
Efficiency is requests by energy, in requests/J.

The paper's text was not at hand, only a description of its figures and the numbers of Table I and the abstract. So the
loads, the weights w2 and the range of s_max of Figs. 4 to 8 are our choice. Where a condition matters to a number, it
stands in the claim's note. Only Table I and the abstract give numbers to compare.

Nothing here is simulated: every policy's long-run cost is exact (`headrace.batching.smdp`), so there are no seeds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from headrace.batching.smdp import (
    BatchService,
    Smdp,
    Solution,
    Weights,
    build,
    evaluate,
    least_power_mixture,
    policy_iteration,
    relative_value_iteration,
    solve,
    static,
    work_conserving,
)
from headrace.batching.smdp.model import Indices
from headrace.batching.smdp.slo import Target, least_power
from headrace.batching.smdp.solution import RARE
from headrace.sim.experiments.experiment import Experiment, Report
from headrace.sim.experiments.report import Claim, Kind
from headrace.sim.experiments.smdp import plots
from headrace.sim.experiments.smdp.rows import Bounded, Cost, Point, Truncation

MAX_BATCH = 32
SERVICE = BatchService.linear((0.3051, 1.052), (19.90, 19.60), max_batch=MAX_BATCH)
PANELS = (0.1, 0.3, 0.5, 0.7, 0.9)  # the loads that are drawn
STATICS = (8, 16, 32)  # the static policies of Fig. 5
OVERFLOW_COSTS = (10000.0, 1000.0, 100.0, 10.0, 0.0)
TOLERANCE = 1e-3  # the limit of delta in Table I
EPSILON, MAX_ITERATIONS = 0.01, 10_000
LARGEST_S_MAX = 224  # the largest s_max of Fig. 8
CONTROL_LIMIT = "control-limit"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run: loads of Figs. 4 and 5, values of w2, the step of s_max in Fig. 8, and that in the search of
    Table I."""

    loads: tuple[float, ...]
    weights: int
    step: int
    stride: int


@dataclass(frozen=True, slots=True)
class LoadJob:
    """The optimal policy at one load for each w2, and all policies that it is compared with."""

    rho: float
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TruncationJob:
    """One truncation by both solvers, at rho = 0.9 and w1 = w2 = 1."""

    overflow_cost: float
    s_max: int


@dataclass(frozen=True, slots=True)
class SearchJob:
    """The least s_max whose delta is below TOLERANCE, by both solvers, at rho = 0.9 and w1 = w2 = 1."""

    overflow_cost: float
    stride: int


@dataclass(frozen=True, slots=True)
class BoundJob:
    """The least power within bounds on the mean latency, which are `factors` of the least latency at a load."""

    rho: float
    factors: tuple[float, ...]


Job = LoadJob | TruncationJob | SearchJob | BoundJob
Row = Point | Truncation | Bounded


def run_job(job: Job) -> list[Row]:
    match job:
        case LoadJob():
            return list(points(job))
        case TruncationJob(overflow_cost, s_max):
            return [truncation(solve_truncated(method, overflow_cost, s_max)) for method in ("rvi", "pi")]
        case BoundJob():
            return list(bounded(job))
        case SearchJob(overflow_cost, stride):
            return [least_s_max("rvi", overflow_cost, stride), least_s_max("pi", overflow_cost, 1)]


def model_at(rho: float, w2: float = 1.0) -> Smdp:
    return build(SERVICE, SERVICE.arrival_rate(rho), Weights(latency=1.0, power=w2))


def limit_policy(limit: int) -> Callable[[Indices], Indices]:
    return lambda states: np.where(states >= limit, np.minimum(states, MAX_BATCH), 0)


def points(job: LoadJob) -> list[Point]:
    rows = []
    for w2 in job.weights:
        best = solve(model_at(job.rho, w2))
        actions, probability = best.policy[:-1, 0], best.probability[:-1, 0]
        states = np.arange(len(actions))
        departs = min(
            float(probability[limit_policy(limit)(states) != actions].sum()) for limit in range(1, MAX_BATCH + 1)
        )
        rows.append(
            _point(
                job.rho,
                "optimal",
                None,
                w2,
                best,
                best.control_limit,
                departs,
                int(np.flatnonzero(probability >= RARE)[-1]) + 1,
                tuple(int(action) for action in actions[: 2 * MAX_BATCH + 1]),
            )
        )
    model = model_at(job.rho)
    rows.append(_point(job.rho, "work-conserving", None, None, evaluate(model, work_conserving(MAX_BATCH))))
    for size in range(1, MAX_BATCH + 1):
        if model.rate < SERVICE.rates[size - 1]:  # otherwise the policy is unstable
            rows.append(_point(job.rho, "static", size, None, evaluate(model, static(size))))
        rows.append(_point(job.rho, CONTROL_LIMIT, size, None, evaluate(model, limit_policy(size))))
    return rows


def bounded(job: BoundJob) -> list[Bounded]:
    rate = SERVICE.arrival_rate(job.rho)
    fastest = solve(model_at(job.rho, 0.0))
    rows = []
    for factor in job.factors:
        bound = factor * fastest.latency
        single = least_power(SERVICE, rate, Target(bound))
        mixture = least_power_mixture(SERVICE, rate, bound)
        rows.append(
            Bounded(
                job.rho,
                bound,
                single.latency,
                single.power,
                mixture.latency,
                mixture.power,
                mixture.share,
                mixture.state,
                mixture.chance,
            )
        )
    return rows


def _point(
    rho: float,
    policy: str,
    size: int | None,
    w2: float | None,
    cost: Solution,
    control_limit: int | None = None,
    departs: float = 0.0,
    visited: int = 0,
    actions: tuple[int, ...] = (),
) -> Point:
    efficiency = 1e3 * cost.model.rate / cost.power
    return Point(rho, policy, size, w2, cost.latency, cost.power, efficiency, control_limit, departs, visited, actions)


def solve_truncated(method: str, overflow_cost: float, s_max: int) -> Solution:
    model = model_at(0.9)
    if method == "pi":
        return policy_iteration(model, s_max, overflow_cost)
    return relative_value_iteration(model, s_max, overflow_cost, EPSILON, MAX_ITERATIONS)


def truncation(solution: Solution) -> Truncation:
    times = solution.probability * solution.model.sojourn[solution.policy[:, 0]]
    return Truncation(
        solution.overflow_cost,
        solution.s_max,
        solution.method,
        solution.iterations,
        solution.g,
        solution.delta,
        solution.control_limit,
        float(times[-1, 0] / times.sum()),
        solution.waits_for_ever,
    )


def least_s_max(method: str, overflow_cost: float, stride: int) -> Truncation:
    """Return the truncation with the least s_max from MAX_BATCH on whose delta is below TOLERANCE.

    The search goes up by `stride` to the first such s_max, then bisects between it and the last one that failed. With a
    stride of 1 every smaller s_max has failed, so it is the least for any shape of delta. With a greater stride, delta
    is taken to be above TOLERANCE between two tries that failed. The s_max just below has always been tried."""
    failed, s_max = MAX_BATCH - 1, MAX_BATCH
    while (least := truncation(solve_truncated(method, overflow_cost, s_max))).delta >= TOLERANCE:
        failed, s_max = s_max, s_max + stride
    while least.s_max - failed > 1:
        tried = truncation(solve_truncated(method, overflow_cost, (failed + least.s_max) // 2))
        if tried.delta < TOLERANCE:
            least = tried
        else:
            failed = tried.s_max
    return least


def log_weights(scale: Scale) -> tuple[float, ...]:
    return (0.0, *(float(f"{w2:.4g}") for w2 in np.logspace(-2, 2, scale.weights)))


def jobs_for(figure: str, scale: Scale) -> list[Job]:
    match figure:
        case "4":
            return [LoadJob(rho, log_weights(scale)) for rho in scale.loads]
        case "5":
            return [LoadJob(rho, tuple(np.linspace(0, 10, scale.weights).tolist())) for rho in scale.loads]
        case "6" | "7":
            return [LoadJob(rho, log_weights(scale)) for rho in PANELS]
        case "8":
            sizes = range(MAX_BATCH, LARGEST_S_MAX + 1, scale.step)
            return [TruncationJob(cost, s_max) for cost in OVERFLOW_COSTS for s_max in sizes]
        case "bound":
            factors = tuple(1 + 0.05 * number for number in range(1, 21, max(1, 20 // scale.weights)))
            return [BoundJob(rho, factors) for rho in PANELS]
        case _:
            return [SearchJob(cost, scale.stride) for cost in OVERFLOW_COSTS]


def _longest_first(job: Job) -> tuple[bool, float]:
    """Return the key that starts searches first, those with a small overflow cost before others.

    So no core is left with a long job at the end."""
    return (not isinstance(job, SearchJob), job.overflow_cost if isinstance(job, SearchJob) else 0.0)


def by_load(points: Iterable[Point]) -> dict[float, list[Point]]:
    return {rho: list(group) for rho, group in groupby(sorted(points, key=lambda p: p.rho), key=lambda p: p.rho)}


def select(points: Iterable[Point], policy: str) -> list[Point]:
    return [point for point in points if point.policy == policy]


@dataclass(frozen=True, slots=True)
class Structure:
    """A policy of Fig. 4.

    `best_limit` is the Q of the best control-limit policy, and `excess_percent` its cost above the optimum. `actions`
    are by queue length from 0."""

    rho: float
    w2: float
    g: float
    control_limit: int | None
    departs: float
    best_limit: int
    excess_percent: float
    visited: int
    actions: str


def figure_4(points: Sequence[Point], folder: Path) -> Report:
    rows = []
    for group in by_load(points).values():
        for point in select(group, "optimal"):
            assert point.w2 is not None
            w2 = point.w2
            best = min(select(group, CONTROL_LIMIT), key=lambda other: other.cost(w2))
            assert best.size is not None
            excess = 100 * (best.cost(w2) / point.cost(w2) - 1)
            rows.append(
                Structure(
                    point.rho,
                    w2,
                    point.cost(w2),
                    point.control_limit,
                    point.departs,
                    best.size,
                    excess,
                    point.visited,
                    " ".join(map(str, point.actions)),
                )
            )
    plots.figure_4(folder / "figure4.png", select(points, "optimal"), PANELS)
    others = [row for row in rows if row.control_limit is None]
    notes = [
        f"Fig. 4: {len(rows) - len(others)} of {len(rows)} policies ({len({row.rho for row in rows})} loads, "
        f"{len({row.w2 for row in rows})} values of w2) have a control-limit structure in all states that they visit "
        f"(probability {RARE:g} or more)."
    ]
    if others:
        worst = max(others, key=lambda row: row.departs)
        dearest = max(rows, key=lambda row: row.excess_percent)
        notes.append(
            f"Fig. 4: The other {len(others)} serve less than they could in some states, but are seldom there. At most "
            f"{100 * worst.departs:.2g} % of their decisions differ from a control limit's (rho {worst.rho:g}, "
            f"w2 {worst.w2:g}). The best control-limit policy costs at most {dearest.excess_percent:.2g} % more than "
            f"the optimum (rho {dearest.rho:g}, w2 {dearest.w2:g})."
        )
    return Report({"figure4": rows}, notes=notes)


def costs(points: Sequence[Point]) -> list[Cost]:
    rows = []
    for rho, group in by_load(points).items():
        (greedy,) = select(group, "work-conserving")
        statics = {point.size: point for point in select(group, "static")}
        for point in select(group, "optimal"):
            assert point.w2 is not None
            best, greed = point.cost(point.w2), greedy.cost(point.w2)
            stable = {size: one.cost(point.w2) for size, one in statics.items()}
            static_8, static_16, static_32 = (stable.get(size) for size in STATICS)
            drawn = [cost for cost in (static_8, static_16, static_32) if cost is not None]
            saving = 100 * (1 - best / min(greed, *drawn))
            over_all = 100 * (1 - best / min(greed, *stable.values()))
            rows.append(Cost(rho, point.w2, best, greed, static_8, static_16, static_32, saving, over_all))
    return rows


def figure_5(points: Sequence[Point], folder: Path) -> Report:
    rows = costs(points)
    plots.figure_5(folder / "figure5.png", rows, PANELS)
    notes = []
    for name, against in (
        ("saving_percent", "work-conserving and static 8, 16 and 32"),
        ("saving_over_all_percent", "work-conserving and static 1 to 32"),
    ):
        savings = [getattr(row, name) for row in rows]
        best = rows[int(np.argmax(savings))]
        notes.append(
            f"Fig. 5: The optimal policy costs {np.mean(savings):.2g} % less than the best of {against}. That is the "
            f"mean over {len(rows)} points (w2 from 0 to 10). The most is {max(savings):.3g} % (rho {best.rho:g}, "
            f"w2 {best.w2:g}), and the least {min(savings):.1g} %."
        )
    return Report({"figure5": rows}, notes=notes)


def trade_off(figure: str, points: Sequence[Point], folder: Path) -> Report:
    """Draw Fig. 6 or 7: the same points, against power or against efficiency."""
    shown = [point for point in points if point.policy != CONTROL_LIMIT]
    axis = ("power_w", "mean power, W") if figure == "6" else ("requests_per_j", "energy efficiency, requests/J")
    plots.trade_off(folder / f"figure{figure}.png", shown, PANELS, *axis)
    gains = []
    for rho, group in by_load(shown).items():
        (greedy,) = select(group, "work-conserving")
        near = [point for point in select(group, "optimal") if point.latency_ms <= 1.1 * greedy.latency_ms]
        best = min(near, key=lambda point: point.power_w)
        less_power = 1 - best.power_w / greedy.power_w
        more_requests = best.requests_per_j / greedy.requests_per_j - 1
        gains.append(f"{max(0.0, less_power if figure == '6' else more_requests):.1%} at rho {rho:g}")
    what = "less power" if figure == "6" else "more requests/J"
    note = (
        f"Fig. {figure}: The best policy drawn may have 10 % more latency than work-conserving. Then it has {what}: "
        f"{', '.join(gains)}."
    )
    return Report({f"figure{figure}": shown}, notes=[note])


def figure_8(rows: Sequence[Truncation], folder: Path) -> Report:
    exact = solve(model_at(0.9)).g
    plots.figure_8(folder / "figure8.png", rows, OVERFLOW_COSTS, exact, TOLERANCE)
    notes = [f"Fig. 8: Without truncation, g is {exact:.4f} ms. Policy iteration finds it if s_max is large enough."]
    for cost in OVERFLOW_COSTS:
        lost = [row for row in rows if row.overflow_cost == cost and row.lost]
        waiting = [row.s_max for row in lost if row.method == "rvi"]
        lingering = [row.s_max for row in lost if row.method == "pi"]
        early = [row.s_max for row in lost if row.method == "rvi" and row.waits and row.g > exact]
        notes += [
            f"Fig. 8: With an overflow cost of {cost:g}, {name} spends most of its time in S_o, for s_max up to "
            f"{max(sizes)} (of those drawn)."
            for name, sizes in (("RVI's policy", waiting), ("the policy of policy iteration", lingering))
            if sizes
        ]
        if early:
            notes.append(
                f"Fig. 8: With an overflow cost of {cost:g} and s_max from {min(early)} to {max(early)} (of those "
                f"drawn), RVI waits in S_o although that costs more than to serve. Its {MAX_ITERATIONS} iterations are "
                f"too few."
            )
    return Report({"figure8": rows}, notes=notes)


def figure_bound(rows: Sequence[Bounded], folder: Path) -> Report:
    """Compare the best single policy with the mixture of two, under bounds on the mean latency."""
    plots.figure_bound(folder / "figurebound.png", rows)
    notes = []
    for rho in PANELS:
        mine = [row for row in rows if row.rho == rho]
        worst = max(mine, key=lambda row: row.excess_percent)
        mean = float(np.mean([row.excess_percent for row in mine]))
        notes.append(
            f"Fig. bound: At rho {rho:g}, the best single policy needs {mean:.2g} % more power than the mixture of two "
            f"policies, as a mean over {len(mine)} bounds. The most is {worst.excess_percent:.3g} %, with a bound of "
            f"{worst.bound_ms:.3g} ms: {worst.single_w:.4g} W at {worst.single_ms:.3g} ms, against "
            f"{worst.mixture_w:.4g} W at {worst.mixture_ms:.3g} ms."
        )
    return Report({"figurebound": rows}, notes=notes)


# Table I by overflow cost: s_max, iterations, delta.
PAPER = {
    10000.0: (89, 1847, 9.36e-4),
    1000.0: (78, 1635, 9.78e-4),
    100.0: (70, 1483, 8.36e-4),
    10.0: (161, 10000, 6e-12),
    0.0: (192, 10000, 0.0),
}


def table_1(rows: Sequence[Truncation]) -> Report:
    by_cost = {row.overflow_cost: row for row in rows if row.method == "rvi"}
    exact = {row.overflow_cost: row for row in rows if row.method == "pi"}
    claims = []
    for cost, row in by_cost.items():
        s_max, iterations, delta = PAPER[cost]
        what = f"overflow cost {cost:g}: "
        below = exact[cost].s_max
        note = f"delta < 1e-3 by RVI; policy iteration has it from {below}" if below != row.s_max else "delta < 1e-3"
        claims.append(Claim("Table I", f"{what}least s_max", s_max, row.s_max, "", note))
        ended, kind = "", Kind.INDEPENDENT
        if row.iterations == MAX_ITERATIONS:
            ended, kind = "did not end; the limit is the paper's", Kind.BY_CONSTRUCTION
        claims.append(Claim("Table I", f"{what}iterations of RVI", iterations, row.iterations, "", ended, kind=kind))
        given = "the paper's is about 0" if delta == 0 else "the paper's is about that" if delta < 1e-9 else ""
        rounded = "" if delta else "the paper prints a rounded 0; the run of Table I has the rounding error of its sums"
        claims.append(Claim("Table I", f"{what}delta", delta, row.delta, "ms", given, cause=rounded))
    costs_found = [row.g for row in by_cost.values()]
    note = "exact for the policy found; RVI's own estimate is within epsilon"
    claims.append(Claim("Table I", "g, least of the five", 66.13, min(costs_found), "ms", note))
    claims.append(Claim("Table I", "g, greatest of the five", 66.14, max(costs_found), "ms", note))
    best, plain = by_cost[100.0], by_cost[0.0]
    space = 100 * (1 - best.s_max / plain.s_max)
    time = 100 * (1 - best.iterations * best.s_max**2 / (plain.iterations * plain.s_max**2))
    note = f"s_max {best.s_max} with overflow cost 100 against {plain.s_max} with 0"
    claims.append(Claim("abstract", "space complexity saved", 63.5, space, "%", note))
    note = f"iterations by s_max squared; {note}, where RVI is cut off at {MAX_ITERATIONS} iterations"
    claims.append(Claim("abstract", "time complexity saved", 98, time, "%", note))
    return Report({"table1": rows}, claims)


def report(figure: str, rows: Sequence[Row], folder: Path) -> Report:
    found = [row for row in rows if isinstance(row, Point)]
    truncations = [row for row in rows if isinstance(row, Truncation)]
    match figure:
        case "4":
            return figure_4(found, folder)
        case "5":
            return figure_5(found, folder)
        case "6" | "7":
            return trade_off(figure, found, folder)
        case "8":
            return figure_8(truncations, folder)
        case "bound":
            return figure_bound([row for row in rows if isinstance(row, Bounded)], folder)
        case _:
            return table_1(truncations)


EXPERIMENT = Experiment(
    name="smdp",
    source="Xu, Sun, Zhou, Niu, SMDP batching, ICC 2023",
    figures=("4", "5", "6", "7", "8", "bound", "table1"),
    full=Scale(tuple(round(0.05 * number, 2) for number in range(1, 20)), 41, 4, 1),
    quick=Scale(PANELS, 9, 64, 16),
    jobs=jobs_for,
    run=run_job,
    row_types=(Point, Truncation, Bounded),
    report=report,
    describe=lambda jobs: f"{len(jobs)} loads, truncations and searches",
    order=_longest_first,
)
