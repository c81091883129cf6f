"""The command `headrace plan`, which finds the cheapest server that meets a target latency, by simulation."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.batching.errors import UsageError
from headrace.batching.settings import option
from headrace.host.cli.console import Stages, progress, tell, warn
from headrace.host.cli.options import HelpAll, Json, Ray, check_readable, command, make_folder, readable
from headrace.host.cli.plan.decoding import check_options, planned_decoder
from headrace.host.cli.plan.placement import placed_models
from headrace.host.cli.plan.schedule import check_day, scheduled
from headrace.host.cli.plan.search import planned
from headrace.host.cli.plan.tuning import tuned
from headrace.host.cli.setting_options import Choice, add_settings, group_options
from headrace.host.cli.setting_options import given as given_options
from headrace.host.cli.simulate.command import ACCELERATOR_CHOICE, FILES, readable_scenario
from headrace.sim.hardware.gpu.mig import GPUS
from headrace.sim.hardware.settings import ACCELERATORS
from headrace.sim.planner import tuning
from headrace.sim.planner.decoders.target import PLANNED_MODELS, DecodingTarget, decodes
from headrace.sim.planner.schedule import REPARTITION_S
from headrace.sim.planner.target import MAX_GPUS, TRAFFICS, Target
from headrace.sim.planner.trials import Measured, Run, Trial, measure
from headrace.sim.scenario import ACCELERATOR, TRAFFIC, RunSettings, every_setting, renamed
from headrace.sim.sweeps.journal import Journal
from headrace.sim.sweeps.sweep import WorkerPool, worker_pool
from headrace.sim.system.cost import YEARS
from headrace.sim.system.settings import Preprocess
from headrace.sim.workload.day import read_day
from headrace.sim.workload.settings import Bursty, Workload

MACHINE = (
    ACCELERATOR,
    "profile",
    "npus",
    "partition",
    "active_slices",
    "preprocess",
    "precision",
    "busy_w",
    "corpus",
    "trees",
)  # settings of the machine that --tune finds parameters for
REQUESTS = (
    TRAFFIC,
    "burst_s",
    "lengths",
    "cpu_costs",
    "processor",
    "image_sizes",
    "image_pixels",
    "images",
    "overhead_ms",
    "prices",
)
DECODING = (
    "slo_ttft_ms",
    "slo_tpot_ms",
    "audio_s",
    "prompt_tokens",
    "system_tokens",
    "prefix_caching",
    "output_tokens",
    "kernels",
    "tp",
    "weight_precision",
    "kv_precision",
    "library",
    "node_gpus",
    "trial_requests",
)  # settings of models that decode


class Least(StrEnum):
    """The goals of a plan: what it minimises."""

    COST = "cost"
    POWER = "power"
    GPUS = "gpus"


@command
def plan(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Option(
            help="Network, as `headrace simulate --accelerator a100-40gb` takes it. Give several by comma. Or a model "
            "that decodes: qwen2-vl-7b, qwen2-audio-7b, llama-3.1-8b and others, or the config.json of a decoder.",
            metavar="NAME[,...]",
        ),
    ],
    slo_ms: Annotated[
        str | None,
        typer.Option(
            help="Target latency (ms) from arrival to end, for all models, or for each by comma.", metavar="FLOAT[,...]"
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help=f"Kind of GPU to plan with: {', '.join(GPUS)}.", autocompletion=lambda: list(GPUS)),
    ] = None,
    rate_rps: Annotated[
        str | None,
        typer.Option(
            help="Arrival rate (requests/s): one for all models, which share it equally, or one for each by comma.",
            metavar="FLOAT[,...]",
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            help="CSV file of arrivals, in place of --rate-rps, with the header arrival_s,model,input_len,output_len. "
            "Servers take requests in turn.",
            callback=readable,
        ),
    ] = None,
    day: Annotated[
        Path | None,
        typer.Option(
            help="CSV file of a day's rates, in place of --rate-rps, with the header hour,MODEL[,MODEL...]. A row "
            "holds until the next row's hour. The plan is then a schedule of re-partitioning.",
            callback=readable,
        ),
    ] = None,
    repartition_s: Annotated[
        float | None, typer.Option(help=f"Time (s) for which slices that change do not serve [{REPARTITION_S:g}].")
    ] = None,
    slo_quantile: Annotated[
        float, typer.Option(help="Share of requests that must meet --slo-ms, from 0.5 to 0.999.")
    ] = 0.99,
    gpus: Annotated[
        int | None,
        typer.Option(
            help="Largest number of GPUs. Each one, or each --tp of them, is in its own server [1; "
            f"{MAX_GPUS} for a model that decodes]."
        ),
    ] = None,
    least: Annotated[
        Least, typer.Option(help="What to minimise: cost (dollars), power (W), or gpus (then dollars).")
    ] = Least.COST,
    budget_usd: Annotated[
        float | None, typer.Option(help=f"Largest cost (dollars) of servers and their energy in {YEARS:g} years.")
    ] = None,
    out_folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for plan.json, a plot, and trials.parquet with all simulations. A second start continues "
            "from these.",
        ),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(
            help="Tune the settings of these policies, by comma, or of all, in place of --gpu. Policies may be "
            "module:Class. The machine is given as for `headrace simulate`.",
            metavar="POLICY[,...]",
        ),
    ] = None,
    ray: Ray = None,
    as_json: Json = False,
    help_all: HelpAll = False,
) -> None:
    """Find the partition, preprocessing and policy that meet a target latency at the least cost, power or number of
    GPUs.

    With --day, the plan also says when to change them. With --tune, the command finds the settings of policies with
    the least latency on a given machine.

    Bounds leave out what cannot meet the target, and simulation decides among the rest. The best plan is simulated
    again with fresh seeds.

    A model that decodes has two targets, --slo-ttft-ms and --slo-tpot-ms. The plan then says how many GPUs, and how
    many cores or compute units prepare images or audio."""
    if decodes(model):
        others = {
            "--slo-ms": slo_ms,
            "--replay": replay,
            "--day": day,
            "--repartition-s": repartition_s,
            "--tune": tune,
        }
        others["--least"] = least is not Least.COST
        given = given_options(ctx)
        check_options(given, others)
        own = {"model": model, "gpu": gpu, "rate_rps": rate_rps, "quantile": slo_quantile, "gpus": gpus}
        own["budget_usd"] = budget_usd
        given |= {name: value for name, value in own.items() if value is not None}
        if out_folder is not None:
            make_folder("--out", out_folder)
        planned_decoder(given, ray, out_folder, as_json)
        return
    if unfit := next((name for name in given_options(ctx) if name in DECODING), None):
        raise UsageError(
            f"{option(unfit)} is for models that decode, and --model {model[:60]} is none of them; choose from "
            f"{', '.join(PLANNED_MODELS)}, or give the config.json of a decoder"
        )
    if slo_ms is None:
        raise UsageError("--slo-ms is missing: give the target latency (ms) from arrival to end")
    gpus = 1 if gpus is None else gpus
    chosen = _chosen(ctx)
    given = {name: value for name, value in chosen.items() if name in MACHINE}
    requests = {name: value for name, value in chosen.items() if name not in MACHINE}
    if tune is not None:
        for name, value in (("--gpu", gpu), ("--budget-usd", budget_usd), ("--day", day)):
            if value is not None:
                raise UsageError(f"{name} is for planning a server: leave it out, or leave out --tune")
    elif given:
        raise UsageError(f"{option(next(iter(given)))} is for --tune: leave it out, or give --tune POLICY")
    elif gpu is None:
        raise UsageError(
            "--gpu is missing: give it to plan a server, or give --tune POLICY for a machine that you have"
        )
    loads = [
        name for name, value in (("--rate-rps", rate_rps), ("--day", day), ("--replay", replay)) if value is not None
    ]
    if len(loads) != 1:
        raise UsageError(f"give one of --rate-rps, --day and --replay{', not ' if loads else ''}{' and '.join(loads)}")
    if "burst_s" in requests and requests.get("traffic") != "mmpp":
        raise UsageError("--burst-s is for --traffic mmpp: give that too, or leave out --burst-s")
    if replay is not None:
        for name in ("traffic", "lengths"):
            if name in requests:
                raise UsageError(f"--replay brings its own arrivals and lengths; leave out {option(name)}")
    for name in FILES:
        if name in chosen:
            check_readable(option(name), Path(chosen[name]))
    models = Workload(model).models()
    slos = _numbers("--slo-ms", slo_ms, models)
    least_ms = min(slos)
    rates = [] if rate_rps is None else _numbers("--rate-rps", rate_rps, models)
    shares = None if len(rates) < 2 else rate_rps
    if day is None and repartition_s is not None:
        raise UsageError("--repartition-s is for --day: leave it out, or give a day's rates")

    work: Callable[[Run], None]
    if tune is not None:
        more = {"shares": shares, "rate_rps": sum(rates) or None, "replay": replay}
        given |= {"model": model, "slo_ms": least_ms, **requests}
        given |= {name: value for name, value in more.items() if value is not None}
        scenario, notes = readable_scenario(given)
        for note in notes:
            warn(note)
        policies = tuning.policies_for(scenario, tune)
        work = partial(tuned, scenario, policies, slo_quantile, out_folder=out_folder, as_json=as_json)
    else:
        intervals = () if day is None else read_day(day, model.split(","))
        assert gpu is not None
        asked: dict[str, Any] = {
            **requests,
            "quantile": slo_quantile,
            "gpus": gpus,
            "least": least.value,
            "budget_usd": budget_usd,
            "shares": shares,
        }
        asked = {name: value for name, value in asked.items() if value is not None}
        if replay is not None:
            target = Target.of_trace(model, least_ms, gpu, str(replay), **asked)
        else:
            highest = max((interval.rate_rps for interval in intervals), default=sum(rates))
            target = Target(model, highest, least_ms, gpu, **asked)
        work = partial(planned, target, out_folder=out_folder, as_json=as_json)
        if intervals:
            away_s = REPARTITION_S if repartition_s is None else repartition_s
            check_day(target, away_s)
            work = partial(scheduled, target, intervals, away_s, out_folder=out_folder, as_json=as_json)
        elif len(models) > 1 and replay is None:
            each = rates if len(rates) > 1 else [rates[0] / len(models)] * len(models)
            targets = [
                replace(target, model=name, rate_rps=rate, slo_ms=slo, shares=None)
                for name, rate, slo in zip(models, each, slos if len(slos) > 1 else slos * len(models), strict=True)
            ]
            work = partial(placed_models, targets, out_folder=out_folder, as_json=as_json)
    if out_folder is not None:
        make_folder("--out", out_folder)
    journal = _journal(out_folder)
    # The journal is closed first: a cluster takes longer to end than a command may take after Ctrl-C.
    with worker_pool(ray=ray) as workers, nullcontext() if journal is None else journal, progress() as shown:
        work(_run(workers, Stages(shown), journal))


def _chosen(ctx: typer.Context) -> dict[str, Any]:
    """Return the settings of the command line by name, in their types. Raises UsageError."""
    return {
        name: value if name in (ACCELERATOR, TRAFFIC) else every_setting()[name].read(value, option(name))
        for name, value in renamed(given_options(ctx)).items()
    }


def _numbers(option: str, text: str, models: Sequence[str]) -> list[float]:
    """Return the numbers of an option: one, or one for each model. Raises UsageError."""
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = []
    if len(found) not in (1, len(models)) or not all(0 < number < math.inf for number in found):
        each = f", or one for each of --model {','.join(models)}" if len(models) > 1 else ""
        if not each and "," in text:
            each = "; there is one model, so one number"
        raise UsageError(f"{option} {text}: give a number above 0{each}")
    return found


def _journal(folder: Path | None) -> Journal[Measured] | None:
    """Return the journal of simulations in a folder, or None without one."""
    if folder is None:
        return None
    import matplotlib  # noqa: F401  an extra: if it is missing, the error comes now and not with the plot at the end

    journal = Journal(folder / "trials.parquet", Measured)
    if journal:
        tell(f"{len(journal)} simulations are in {journal.path} and need not be run again")
    return journal


def _run(workers: WorkerPool, stages: Stages, journal: Journal[Measured] | None) -> Run:
    """Return a function that runs trials with progress. Trials in the journal are not simulated again."""

    def run(text: str, trials: Sequence[Trial]) -> list[Measured]:
        stages.stage(text, len(trials))
        return workers.sweep(measure, trials, stages.step, journal, stages.skip)

    return run


add_settings(
    plan,
    {
        "Requests": [
            Choice(TRAFFIC, f"Arrival process: {', '.join(TRAFFICS)} [poisson].", tuple(TRAFFICS)),
            Bursty,
            Workload,
            RunSettings,
            Preprocess,
        ],
        "Machine, for --tune": [ACCELERATOR_CHOICE, *ACCELERATORS.values()],
        "Models that decode": [DecodingTarget],
    },
    only={*REQUESTS, *MACHINE, *DECODING},
)
group_options(
    plan,
    {
        "Target": ["model", "slo_ms", "slo_quantile", "rate_rps", "replay", "day"],
        "Server to plan": ["gpu", "gpus", "least", "budget_usd", "repartition_s"],
        "Policies to tune": ["tune"],
        "Models that decode": DECODING,
    },
    first=(
        "model",
        "slo_ms",
        "slo_quantile",
        "rate_rps",
        "replay",
        "day",
        "gpu",
        "gpus",
        "least",
        "budget_usd",
        "tune",
        "slo_ttft_ms",
        "slo_tpot_ms",
        "images",
        "traffic",
        "lengths",
        "accelerator",
        "npus",
        "profile",
        "partition",
        "preprocess",
        "out_folder",
        "as_json",
        "help_all",
        "help",
    ),
)
