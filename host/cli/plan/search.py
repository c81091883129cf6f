"""The output of `headrace plan` for one group of requests: a table, JSON, and a plot of cost by rate."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from headrace.host.cli.console import out, show
from headrace.host.cli.plan.answer import give
from headrace.sim.planner import search
from headrace.sim.planner.planning import answer_body, commands_of, settings
from headrace.sim.planner.search import Answer
from headrace.sim.planner.target import Candidate, Target
from headrace.sim.planner.trials import FRESH, Run
from headrace.sim.system.cost import YEARS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_TICKS = 10  # rates that the picture's axis names

RATES = 7  # rates of the plot, each the root of two times the one before; the target's rate is in the middle


def planned(target: Target, run: Run, out_folder: Path | None, as_json: bool) -> None:
    """Search for the plan and print it, and write plan.json and plan.png to `out_folder`.

    Raises UsageError and HeadraceError."""
    answer = search.plan(target, run)
    body = answer_body(answer)
    curve: list[tuple[float, Candidate, float, float]] = []
    if out_folder is not None:
        others = [target.rate_rps * 2 ** (step / 2) for step in range(-(RATES // 2), RATES // 2 + 1) if step != 0]
        best = answer.best.candidate, answer.best.measured.cost_usd, answer.best.measured.power_w
        points = [*search.by_rate(target, run, others), (target.rate_rps, *best)]
        curve = sorted(points, key=lambda point: point[0])
        body["by_rate"] = [
            {"rate_rps": rate, "gpus": best.hardware.servers, **settings(best), "cost_usd": usd, "power_w": watts}
            for rate, best, usd, watts in curve
        ]
    give(body, lambda: _print(answer), lambda path: draw(path, target, curve), out_folder, as_json)


def described(candidate: Candidate) -> str:
    """Return a candidate's policy and its settings, in words."""
    words = ", ".join(f"{name} {value:g}" for name, value in candidate.parameters)
    return f"{candidate.policy}{f' ({words})' if words else ''}"


def goal(target: Target) -> str:
    """Return the target latency and its share of requests, in words."""
    return f"{100 * target.quantile:g} % within {target.slo_ms:g} ms"


def _print(answer: Answer) -> None:
    target, best = answer.target, answer.best
    title = f"{target.model} at {target.rate_rps:g}/s on {target.gpu}, {goal(target)}"
    table = Table(title=title, title_justify="left")
    for heading in ("", "GPUs", "partition", "preprocess", "policy", "ms", "$", "W", "up to /s", "binds"):
        table.add_column(heading, justify="right" if heading in ("GPUs", "ms", "$", "W", "up to /s") else "left")
    for number, plan in enumerate((best, *answer.runners_up)):
        hardware, measured = plan.candidate.hardware, plan.measured
        table.add_row(
            "best" if number == 0 else str(number + 1),
            str(hardware.servers),
            hardware.partition,
            hardware.preprocess,
            described(plan.candidate),
            f"{measured.quantile_ms:.3g}",
            f"{measured.cost_usd:,.0f}",
            f"{measured.power_w:.0f}",
            f"{plan.max_rps:.0f}",
            plan.binds,
        )
    out.print(table)
    value, low, high = answer.quantile_ms
    if target.replay is not None:
        show(
            f"Over the whole trace, the {target.quantile:g} quantile of each server is {value:.4g} ms on average "
            f"({low:.4g} to {high:.4g}), a margin of {target.slo_ms - high:.3g} ms."
        )
    else:
        show(
            f"With {FRESH} fresh seeds the {target.quantile:g} quantile is {value:.4g} ms (95 % interval "
            f"{low:.4g} to {high:.4g}), a margin of {target.slo_ms - high:.3g} ms."
        )
    show(f"Use of each part: {', '.join(f'{part} {100 * share:.0f} %' for part, share in best.used.items())}.")
    more = f"{search.NEXT * target.rate_rps:g}/s"
    if answer.next_plan is None or answer.next_usd is None:
        show(f"{more}, a tenth more: no plan within --gpus {target.gpus} serves that.")
    elif answer.next_plan == best.candidate:
        show(f"{more}, a tenth more, costs {answer.next_usd:,.0f} $ more, for energy, with the same plan.")
    else:
        hardware = answer.next_plan.hardware
        show(
            f"{more}, a tenth more, costs {answer.next_usd:,.0f} $ more: {hardware.servers} x {hardware.partition}, "
            f"{hardware.preprocess}, {described(answer.next_plan)}."
        )
    if answer.runners_up:
        dearer = answer.runners_up[0].measured.cost_usd - best.measured.cost_usd
        share = dearer / best.measured.cost_usd
        show(f"The second plan costs {dearer:,.0f} $ more ({100 * share:.2g} %), simulated with one seed.")
    if best.candidate.hardware.servers > 1:
        show(
            f"Each of {best.candidate.hardware.servers} equal servers has its share of the arrivals. The commands for "
            "one of them:"
        )
    told = commands_of(target, best)
    for name in ("simulate", "mig", "serve"):
        show(told[name] or f"there is no command that serves it: {told['serve_note']}")
    if told["serve"] and told["serve_note"]:
        show(f"To serve there: {told['serve_note']}.")


def draw(path: Path, target: Target, curve: Sequence[tuple[float, Candidate, float, float]]) -> None:
    """Draw cost by rate, with the regions in which each configuration is the best."""
    from headrace.sim.plot_style import picture

    picture(_drawn)(path, target, curve)


def _drawn(target: Target, curve: Sequence[tuple[float, Candidate, float, float]]) -> "Figure":
    from headrace.sim.plot_style import legend, others, panels, theme

    title = f"{target.model} on {target.gpu}, {goal(target)}: least {target.least}"
    drawn, (axes,) = panels([title], height_in=4.6)
    rates = [rate for rate, *_ in curve]
    names = [
        f"{best.hardware.servers} x {best.hardware.partition}, {best.hardware.preprocess}, {best.policy}"
        for _, best, _, _ in curve
    ]
    distinct = list(dict.fromkeys(names))
    fills = dict(zip(distinct, others(len(distinct)), strict=True))
    ends = [0.0, *((low * high) ** 0.5 for low, high in pairwise(rates)), 0.0]
    ends[0], ends[-1] = rates[0] / 2**0.25, rates[-1] * 2**0.25
    for number, name in enumerate(names):
        label = name if name not in names[:number] else "_"
        axes.axvspan(ends[number], ends[number + 1], color=fills[name], alpha=0.35, lw=0, label=label)
    dollars = [usd for _, _, usd, _ in curve]
    axes.stairs(dollars, ends, color=theme().text, baseline=None, lw=1.8)
    axes.plot(rates, dollars, "o", color=theme().text, label="_")
    axes.axvline(target.rate_rps, color=theme().text, ls=":")
    axes.set(
        xscale="log",
        xlim=(ends[0], ends[-1]),
        ylim=(0, 1.1 * max(dollars)),
        xlabel="requests/s",
        ylabel=f"$ in {YEARS:g} years",
    )
    shown = [rate for number, rate in enumerate(rates) if number % (1 + len(rates) // MAX_TICKS) == 0]
    axes.set_xticks(shown, [f"{rate:.0f}" for rate in shown])
    axes.minorticks_off()
    legend(drawn, axes, columns=2)
    return drawn
