"""The output of `headrace plan` for a model that decodes: a table of front ends, and JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from headrace.batching.errors import UsageError
from headrace.batching.settings import option, read_settings
from headrace.host.cli.console import Stages, out, progress, show
from headrace.host.cli.plan.answer import give
from headrace.sim.planner.decoders.planning import answer_body, trial_runner
from headrace.sim.planner.decoders.search import DecodingAnswer, DecodingPlan, plan_decoder
from headrace.sim.planner.decoders.server import nodes_of
from headrace.sim.planner.decoders.target import DecodingTarget
from headrace.sim.planner.trials import FRESH

# Settings of a target for which `headrace plan` has an option of its own, or one of its other plans.
SHARED = ("model", "gpu", "rate_rps", "quantile", "gpus", "budget_usd", "prices", "images")
NAMES = {"gpu": "GPU busy", "cores": "cores busy", "cus": "CUs busy", "pcie": "PCIe busy"}


def check_options(given: Mapping[str, Any], others: Mapping[str, Any]) -> None:
    """Raise UsageError for an option that is for other plans.

    Args:
        given: The settings that the command line has.
        others: Further options and their values, which are None or False if they are not given."""
    own = {*SHARED, *DecodingTarget.__dataclass_fields__}
    extra = [option(name) for name in given if name not in own]
    extra += [name for name, value in others.items() if value]
    if extra:
        raise UsageError(
            f"{extra[0]} is for networks that do not decode: leave it out; a model that decodes has --slo-ttft-ms, "
            "--slo-tpot-ms, --images, --audio-s and others that --help-all shows"
        )


def planned_decoder(given: Mapping[str, Any], ray: str | None, out_folder: Path | None, as_json: bool) -> None:
    """Search for the plan and print it, and write plan.json to `out_folder`. Raises UsageError and HeadraceError."""
    for name in ("gpu", "rate_rps"):
        if name not in given:
            raise UsageError(f"{option(name)} is missing: {given['model']} decodes, and its plan needs it")
    target = read_settings(DecodingTarget, given, what="plan of a model that decodes")
    with progress() as shown:
        stages = Stages(shown)
        with trial_runner(stages.stage, stages.step, ray) as run:
            answer = plan_decoder(target, run)
    give(answer_body(answer), lambda: _print(answer), None, out_folder, as_json)


def _print(answer: DecodingAnswer) -> None:
    target = answer.target
    inputs = "" if target.images is None else f", images {target.images}"
    inputs += "" if target.audio_s is None else f", {target.audio_s:g} s of audio"
    title = (
        f"{target.model} at {target.rate_rps:g}/s on {target.gpu}{inputs}, {100 * target.quantile:g} % within "
        f"{target.slo_ttft_ms:g} ms and {target.slo_tpot_ms:g} ms a token"
    )
    table = Table(title=title, title_justify="left")
    right = ("GPUs", "nodes", "needs", "TTFT p99", "TPOT p99", "$", "W")
    for heading in ("", "GPUs", "nodes", "preprocess", "needs", "policy", "TTFT p99", "TPOT p99", "$", "W"):
        table.add_column(heading, justify="right" if heading in right else "left")
    for number, plan in enumerate((answer.best, *answer.others)):
        measured = plan.measured
        table.add_row(
            "best" if number == 0 else str(number + 1),
            str(plan.candidate.replicas * target.tp),
            _nodes(target, plan),
            plan.candidate.front_end.text,
            _needs(plan),
            plan.candidate.policy,
            _ms(measured.ttft_ms["p99"]),
            _ms(measured.tpot_ms["p99"]),
            f"{measured.cost_usd:,.0f}",
            f"{measured.power_w:.0f}",
        )
    out.print(table)
    best, (mean, low, high) = answer.best, answer.late
    show(
        f"With {FRESH} fresh seeds {100 * mean:.2g} % of the requests miss a target (95 % interval "
        f"{100 * max(0.0, low):.2g} to {100 * high:.2g}), and {100 * target.late:.2g} % may."
    )
    show(f"Up to about {answer.max_rps:.4g}/s, where {_bound(answer.binds)} binds.")
    show(f"In each node: {', '.join(f'{NAMES[part]} {100 * of:.0f} %' for part, of in best.measured.used.items())}.")
    if best.measured.preprocess_ms is not None and best.measured.preprocess_wait_ms is not None:
        share = 100 * best.front_end_usd / best.measured.cost_usd
        show(
            f"Preprocessing takes {best.measured.preprocess_ms['mean']:.4g} ms on average, of which an input waits "
            f"{best.measured.preprocess_wait_ms:.3g} ms. What it needs is {share:.2g} % of the cost "
            f"({best.front_end_usd:,.0f} $)."
        )
    for plan in answer.others:
        more = plan.measured.cost_usd - best.measured.cost_usd
        show(f"With {plan.candidate.front_end.text} it costs {more:,.0f} $ more.")


def _nodes(target: DecodingTarget, plan: DecodingPlan) -> str:
    """Return the number of nodes and their GPUs, such as "2 of 8", or "2 of 4-5" if one has more."""
    nodes = nodes_of(target, plan.candidate.replicas)
    return f"{sum(nodes.values())} of {'-'.join(str(replicas * target.tp) for replicas in sorted(nodes))}"


def _needs(plan: DecodingPlan) -> str:
    unit = {"cpu": "core", "dpu": "CU"}.get(plan.candidate.front_end.device)
    if unit is None:
        return "-"
    where = "a node" if plan.candidate.front_end.cards == 1 else "a card"
    return f"{plan.fewest} {unit}{'' if plan.fewest == 1 else 's'} {where}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _bound(part: str) -> str:
    words = {"ttft": "the target for the first token", "tpot": "the target for each token", "gpu": "the GPUs' time"}
    return words.get(part, {"cores": "the cores", "cus": "the compute units", "pcie": "PCIe"}.get(part, part))
