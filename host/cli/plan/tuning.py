"""The output of `headrace plan --tune`: a table of tuned policies, JSON, and a plot of latency by settings."""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from headrace.batching.settings import option
from headrace.host.cli.console import out, show
from headrace.host.cli.plan.answer import give
from headrace.sim.hardware.settings import Measured, accelerator_name
from headrace.sim.planner import commands
from headrace.sim.planner.trials import Run
from headrace.sim.planner.tuning import Setting, Tried, Tuned, Tuning, described, tune
from headrace.sim.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def tuned(
    scenario: Scenario, policies: Sequence[str], quantile: float, run: Run, out_folder: Path | None, as_json: bool
) -> None:
    """Tune the policies and print the result, and write plan.json and plan.png to `out_folder`.

    Raises UsageError and HeadraceError."""
    answer = tune(scenario, policies, quantile, run)
    give(_body(answer), lambda: _print(answer), lambda path: draw(path, answer), out_folder, as_json)


def serve_command(setting: Setting) -> tuple[str | None, str | None]:
    """Return the command that serves with these settings on this machine, or None and the reason why there is none."""
    scenario = setting.scenario
    hardware = scenario.hardware
    if not isinstance(hardware, Measured):
        return None, "give --accelerator profile, with a profile from `headrace profile` on the machine that serves"
    words = ["headrace", "serve", "--model", scenario.workload.model, "--profile", str(hardware.profile)]
    words += ["--workers", str(hardware.npus), "--policy", setting.policy]
    words += ["--slo-ms", f"{scenario.workload.slo_ms:g}"]
    for name, value in setting.parameters:
        text = str(value).lower() if isinstance(value, bool) else f"{value:g}"
        words += [option(name), text] if name == "max_batch" else ["--set", f"{name}={text}"]
    return shlex.join(words), None


def _of(tried: Tried, max_rps: float | None) -> dict[str, Any]:
    """Return one policy with its settings and results, as JSON."""
    setting, measured = tried.setting, tried.measured
    serve, note = serve_command(setting)
    return {
        "policy": setting.policy,
        **dict(setting.parameters),
        "latency_ms": measured.latency_ms,
        "quantile_ms": measured.quantile_ms,
        "most_rps": max_rps,
        "simulate": commands.command(_measured(tried)),
        "serve": serve,
        "serve_note": note,
    }


def _measured(tried: Tried) -> Scenario:
    """Return the scenario as it was measured. The length of a trace is not changed."""
    scenario = tried.setting.scenario
    return scenario if scenario.workload.trace is not None else scenario.having(requests=tried.measured.requests)


def _with_defaults(tuned: Tuned) -> dict[str, Any]:
    """Return a tuned policy and the same policy with its default settings, as JSON."""
    return {**_of(tuned.best, tuned.max_rps), "defaults": _of(tuned.usual, tuned.usual_rps)}


def _body(answer: Tuning) -> dict[str, Any]:
    value, low, high = answer.quantile_ms
    best, *others = answer.policies
    return {
        "best": {
            **_with_defaults(best),
            "confirmed_ms": {"quantile": answer.quantile, "mean": value, "low": low, "high": high},
        },
        "runners_up": [_with_defaults(each) for each in others],
        "tried": [
            {
                "policy": each.setting.policy,
                **dict(each.setting.parameters),
                "requests": each.measured.requests,
                "quantile_ms": each.measured.quantile_ms,
            }
            for each in answer.tried
        ],
        "simulated": answer.simulated,
        "struck_out": answer.struck,
    }


def _what(scenario: Scenario) -> str:
    """Return the model, the load and the machine, in words."""
    trace = scenario.workload.trace
    load = f"{scenario.workload.drawn.rate_rps:g}/s" if trace is None else trace.replay
    return f"{scenario.workload.model} at {load} on {accelerator_name(scenario.hardware)}"


def _target(answer: Tuning) -> str:
    scenario = answer.scenario
    return f"{100 * answer.quantile:g} % within {scenario.workload.slo_ms:g} ms"


def _print(answer: Tuning) -> None:
    scenario = answer.scenario
    best = answer.policies[0]
    title = f"{_what(scenario)}, {_target(answer)}"
    table = Table(title=title, title_justify="left")
    for heading in ("", "policy", "ms", "up to /s", "defaults: ms", "up to /s"):
        table.add_column(heading, justify="left" if heading in ("", "policy") else "right")
    for number, each in enumerate(answer.policies):
        table.add_row(
            "best" if number == 0 else str(number + 1),
            described(each.best.setting),
            f"{each.best.measured.quantile_ms:.4g}",
            _rate(each.max_rps),
            f"{each.usual.measured.quantile_ms:.4g}",
            _rate(each.usual_rps),
        )
    out.print(table)
    value, low, high = answer.quantile_ms
    show(
        f"With fresh seeds, the {answer.quantile:g} quantile of the best is {value:.4g} ms (95 % interval {low:.4g} to "
        f"{high:.4g}), a margin of {scenario.workload.slo_ms - high:.3g} ms."
    )
    show(commands.command(_measured(best.best)))
    serve, note = serve_command(best.best.setting)
    show(serve if serve is not None else f"To serve it: {note}.")


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.4g}"


def draw(path: Path, answer: Tuning) -> None:
    """Draw the latency at the quantile, in one panel for each policy.

    The axes are the two settings with the largest number of values tried. A cell shows the lowest latency over all
    values of the other settings."""
    from headrace.sim.plot_style import picture

    picture(_drawn)(path, answer)


def _drawn(answer: Tuning) -> "Figure":
    from matplotlib.colors import LogNorm

    from headrace.sim.plot_style import SHADES, SMALL_PT, headed, panels

    scenario = answer.scenario
    policies = [each.policy for each in answer.policies]
    drawn, grid = panels(policies, columns=2, height_in=3.0)
    values = [each.measured.quantile_ms for each in answer.tried]
    scale = LogNorm(min(values), max(min(values) * 1.01, min(max(values), 4 * scenario.workload.slo_ms)))
    for axis, of in zip(grid, answer.policies, strict=True):
        tried = [each for each in answer.tried if each.setting.policy == of.policy]
        different: dict[str, list[Any]] = {}
        for each in tried:
            for name, value in each.setting.parameters:
                if value not in different.setdefault(name, []):
                    different[name].append(value)
        names = sorted(different, key=lambda name: -len(different[name]))[:2]
        across, down = [(name, sorted(different[name])) for name in names] + [("", [None])] * (2 - len(names))
        cells = [[math.nan] * len(across[1]) for _ in down[1]]
        for each in tried:
            own: dict[str, Any] = {"": None, **dict(each.setting.parameters)}
            row, column = down[1].index(own[down[0]]), across[1].index(own[across[0]])
            least = cells[row][column]
            cells[row][column] = min(each.measured.quantile_ms, math.inf if math.isnan(least) else least)
        axis.imshow(cells, norm=scale, cmap=f"{SHADES}_r", aspect="auto", origin="lower")
        best: dict[str, Any] = {"": None, **dict(of.best.setting.parameters)}
        for row, line in enumerate(cells):
            for column, value in enumerate(line):
                if math.isnan(value):
                    continue
                won = down[1][row] == best[down[0]] and across[1][column] == best[across[0]]
                late = value > scenario.workload.slo_ms
                axis.text(
                    column,
                    row,
                    f"{value:.3g}",
                    ha="center",
                    va="center",
                    fontsize=SMALL_PT,
                    color="white" if scale(value) > 0.5 else "black",
                    weight="bold" if won else "normal",
                    style="italic" if late else "normal",
                    bbox={"boxstyle": "round", "fill": False, "edgecolor": "red"} if won else None,
                )
        axis.set(xlabel=across[0], ylabel=down[0])
        axis.set_xticks(range(len(across[1])), [_tick(value) for value in across[1]])
        axis.set_yticks(range(len(down[1])), [_tick(value) for value in down[1]])
        axis.grid(visible=False)
    meaning = f"boxed: the best; italic: above {scenario.workload.slo_ms:g} ms; dropped settings had shorter runs"
    headed(drawn, f"{_what(scenario)}: ms at quantile {answer.quantile:g}\n({meaning})")
    return drawn


def _tick(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, bool | str) else f"{value:g}"
