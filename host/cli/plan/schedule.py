"""The output of `headrace plan --day`: a plan for each period, the costs of changes, and the best constant plan."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from headrace.batching.errors import UsageError
from headrace.host.cli.console import out, show
from headrace.host.cli.plan.answer import give
from headrace.host.cli.plan.search import described, goal
from headrace.sim.planner import commands
from headrace.sim.planner.allocate import ServerPlan
from headrace.sim.planner.capacity import options_of
from headrace.sim.planner.planning import settings
from headrace.sim.planner.rotation import Servers, pieces, rotate
from headrace.sim.planner.schedule import Change, DayAnswer, Schedule, Stage, at, plan_day
from headrace.sim.planner.target import Candidate, Target
from headrace.sim.planner.trials import Run
from headrace.sim.workload.day import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_REPARTITION_S = 3600.0
LINES = ("-", "--", ":", "-.")  # of the models in the picture, in turn
LONG = 50  # characters of a name; longer ones get a legend of one column

Plan = Candidate | Servers


def check_day(target: Target, repartition_s: float) -> None:
    """Raise UsageError for options that --day does not take."""
    if target.least != "cost" or target.budget_usd is not None:
        option = "--budget-usd" if target.budget_usd is not None else "--least"
        raise UsageError(f"{option}: a day is planned for the fewest dollars; leave it out, or leave out --day")
    if not 0 <= repartition_s <= MAX_REPARTITION_S:
        raise UsageError(f"--repartition-s {repartition_s:g}: give 0 to {MAX_REPARTITION_S:g}")


def scheduled(
    target: Target, day: Sequence[Interval], repartition_s: float, run: Run, out_folder: Path | None, as_json: bool
) -> None:
    """Search for the schedule and print it, and write plan.json and plan.png to `out_folder`.

    If there are several models, each has its own slices. Raises UsageError and HeadraceError."""
    models = list(day[0].rates_rps)
    answer: DayAnswer[Any]
    if len(models) == 1:
        answer = plan_day(target, day, run, repartition_s)
    else:
        targets = {model: replace(target, model=model) for model in models}
        answer = rotate(targets, options_of(list(targets.values()), run), day, run, repartition_s)
    give(_body(answer), lambda: _print(answer), lambda path: draw(path, answer), out_folder, as_json)


def _gpus(plan: Plan) -> int:
    return plan.hardware.servers if isinstance(plan, Candidate) else len(plan)


def _slices(server: ServerPlan) -> str:
    counts = Counter((name, option.model if option else "idle") for name, option in server.slices)
    return ", ".join(f"{count} x {name} {model}" for (name, model), count in counts.items())


def _words(plan: Plan) -> str:
    if isinstance(plan, Candidate):
        return f"{plan.hardware.servers} x {plan.hardware.partition}, {plan.hardware.preprocess}"
    return " | ".join(_slices(server) for server in plan)


def _columns(plan: Plan) -> tuple[str, str, str]:
    """Return the partition, the preprocessing and the policy of a plan, in words."""
    if isinstance(plan, Candidate):
        return plan.hardware.partition, plan.hardware.preprocess, described(plan)
    options = [option for server in plan for _, option in server.slices if option is not None]
    ways, policies = ({getattr(option, name) for option in options} for name in ("way", "policy"))
    return "\n".join(_slices(server) for server in plan), ", ".join(sorted(ways)), ", ".join(sorted(policies))


def _body_of_plan(plan: Plan) -> dict[str, Any]:
    if isinstance(plan, Candidate):
        return {"gpus": plan.hardware.servers, **settings(plan)}
    return {
        "gpus": len(plan),
        "partition": [",".join(server.partition) for server in plan],
        "slices": [
            [{"profile": name, "model": option and option.model} for name, option in server.slices] for server in plan
        ],
    }


def _body_of_stage(answer: DayAnswer[Any], stage: Stage[Any]) -> dict[str, Any]:
    if isinstance(stage.plan, Candidate):
        target = at(answer.target, stage.interval)
        return {**_body_of_plan(stage.plan), "simulate": _command(target, stage.plan)}
    models: dict[str, list[dict[str, Any]]] = {}
    rates = stage.interval.rates_rps
    for piece in pieces({model: replace(answer.target, model=model) for model in rates}, stage.plan, rates):
        models.setdefault(piece.option.model, []).append(
            {
                **settings(piece.candidate),
                "rate_rps": piece.target.rate_rps,
                "simulate": _command(piece.target, piece.candidate),
            }
        )
    return {**_body_of_plan(stage.plan), "models": models}


def _command(target: Target, candidate: Candidate) -> str:
    return commands.command(candidate.scenario(target, target.requests(candidate.hardware.servers)))


def _body(answer: DayAnswer[Any]) -> dict[str, Any]:
    best, static = answer.best, answer.static
    return {
        "schedule": [
            {
                "from": stage.interval.start,
                "to": stage.interval.end,
                "rates_rps": dict(stage.interval.rates_rps),
                **_body_of_stage(answer, stage),
                "usd_per_hour": stage.usd_per_hour,
                "power_w": stage.power_w,
                "quantile_ms": stage.quantile_ms,
                "late": stage.late,
            }
            for stage in best.stages
        ],
        "repartitions": [
            {
                "hour": change.hour,
                "early": change.early,
                "before": _body_of_plan(change.before),
                "after": _body_of_plan(change.after),
                "servers": change.servers,
                "seconds": change.seconds,
                "late_requests": change.late,
                "usd": change.usd,
            }
            for change in best.changes
        ],
        "usd_per_day": best.usd_per_day,
        "late": best.late,
        "static": {**_body_of_plan(static.stages[0].plan), "usd_per_day": static.usd_per_day, "late": static.late},
        "saving_usd_per_day": static.usd_per_day - best.usd_per_day,
        "repartition_s": answer.repartition_s,
        "simulated": answer.simulated,
    }


def _periods(schedule: Schedule[Any]) -> list[list[Stage[Any]]]:
    """Return the periods of a schedule: runs of stages that have the same plan."""
    return [list(stages) for _, stages in groupby(schedule.stages, key=lambda stage: stage.plan)]


def _clock(hour: float) -> str:
    minutes = round(60 * hour)
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _print(answer: DayAnswer[Any]) -> None:
    target, best, static = answer.target, answer.best, answer.static
    right = ("requests/s", "GPUs", "ms", "W", "$/h")
    names = ", ".join(best.stages[0].interval.rates_rps)
    table = Table(title=f"{names} on {target.gpu} over a day, {goal(target)}", title_justify="left")
    for heading in ("from", "to", "requests/s", "GPUs", "partition", "preprocess", "policy", "ms", "W", "$/h"):
        table.add_column(heading, justify="right" if heading in right else "left")
    for stages in _periods(best):
        hours = sum(stage.interval.hours for stage in stages)
        watts, usd = (
            sum(getattr(stage, name) * stage.interval.hours for stage in stages) / hours
            for name in ("power_w", "usd_per_hour")
        )
        plan = stages[0].plan
        table.add_row(
            _clock(stages[0].interval.start),
            _clock(stages[-1].interval.end),
            _rates(stages),
            str(_gpus(plan)),
            *_columns(plan),
            f"{max(stage.quantile_ms for stage in stages):.3g}",
            f"{watts:.0f}",
            f"{usd:.3f}",
        )
    out.print(table)
    for change in best.changes:
        show(_change(change, sum(stage.interval.requests for stage in best.stages)))
    never = static.stages[0].plan
    text = f"{_words(never)}, {_columns(never)[2]}, all day: {static.usd_per_day:.2f} $ a day"
    if not best.changes:
        show(f"No re-partitioning pays off. {text}, {100 * static.late:.2g} % of the requests late.")
        return
    saving = static.usd_per_day - best.usd_per_day
    show(
        f"{best.usd_per_day:.2f} $ a day, {100 * best.late:.2g} % of the requests late. The best constant plan is "
        f"{text}, {100 * static.late:.2g} % late. The schedule saves {saving:.2f} $ a day, "
        f"{100 * saving / static.usd_per_day:.2g} %."
    )
    if not any(change.servers for change in best.changes):
        show("No GPU is re-partitioned: only the number of servers changes.")


def _rates(stages: Sequence[Stage[Any]]) -> str:
    """Return the lowest and highest rate of each model, one line each."""
    lines = []
    for model in stages[0].interval.rates_rps:
        rates = [stage.interval.rates_rps[model] for stage in stages]
        lines.append(f"{min(rates):g}" if min(rates) == max(rates) else f"{min(rates):g} to {max(rates):g}")
    return "\n".join(lines)


def _change(change: Change[Any], requests: float) -> str:
    when = f"{_clock(change.hour)}, {'before' if change.early else 'after'} the hour"
    what = f"{_words(change.before)} to {_words(change.after)}"
    if not change.servers:
        return f"{when}: {what}. All slices keep serving."
    late = f"{change.late:.0f} requests late ({100 * change.late / requests:.2g} % of the day's)"
    return f"{when}: {what}; {change.servers} re-partitioned one after another in {change.seconds:g} s, {late}."


def draw(path: Path, answer: DayAnswer[Any]) -> None:
    """Draw the day's rates with the plan of each period, and the GPUs in use."""
    from headrace.sim.plot_style import picture

    picture(_drawn)(path, answer)


def _drawn(answer: DayAnswer[Any]) -> "Figure":
    from headrace.sim.plot_style import figure, legend, others, theme

    best, static = answer.best, answer.static
    edges = [*(stage.interval.start for stage in best.stages), 24.0]
    drawn, grid = figure(2, 1, 2.9, sharex=True, height_ratios=(2, 1))
    top, bottom = grid[:, 0]
    periods = {}
    for stages in _periods(best):
        plan = stages[0].plan
        name = f"{_words(plan)}, {plan.policy}" if isinstance(plan, Candidate) else _words(plan)
        periods.setdefault(name, []).append(stages)
    for (name, every), fill in zip(periods.items(), others(len(periods)), strict=True):
        for number, stages in enumerate(every):
            ends = stages[0].interval.start, stages[-1].interval.end
            for axes in (top, bottom):
                label = name if axes is top and number == 0 else "_"
                axes.axvspan(*ends, color=fill, alpha=0.35, lw=0, label=label)
    models = list(best.stages[0].interval.rates_rps)
    for model, style in zip(models, LINES * len(models), strict=False):
        rates = [stage.interval.rates_rps[model] for stage in best.stages]
        top.stairs(rates, edges, baseline=None, label=f"requests/s of {model}", lw=2, ls=style, color=theme().text)
    top.set(ylim=(0, None), ylabel="requests/s")
    title = (
        f"{', '.join(models)} on {answer.target.gpu} over a day, {goal(answer.target)}:\n"
        f"{best.usd_per_day:.2f} $, the best constant plan {static.usd_per_day:.2f} $"
    )
    top.set_title(title, parse_math=False)
    for schedule, style, name in ((static, ":", "GPUs of the best constant plan"), (best, "-", "GPUs in use")):
        gpus = [_gpus(stage.plan) for stage in schedule.stages]
        bottom.stairs(gpus, edges, baseline=None, ls=style, color=theme().text, lw=2, label=name)
    max_gpus = max(_gpus(stage.plan) for stage in (*static.stages, *best.stages))
    bottom.set(xlim=(0, 24), ylim=(0, 1.35 * max_gpus), xlabel="hour", ylabel="GPUs")
    bottom.yaxis.get_major_locator().set_params(integer=True)
    bottom.set_xticks(range(0, 25, 3))
    bottom.legend(loc="upper left", ncols=2)
    legend(drawn, top, columns=1 if max(map(len, periods)) > LONG else 2)
    return drawn
