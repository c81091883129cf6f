"""`headrace simulate` and `headrace reproduce`: the simulator's commands."""

import dataclasses
import importlib
import json
import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from headrace.batching import POLICIES
from headrace.host.cli.console import Json, Stages, err, make_folder, out, progress, warn


class Paper(StrEnum):
    """Each has a module of its name in sim/experiments."""

    LAZYBATCHING = "lazybatching"
    SMDP = "smdp"
    BATCHMAKER = "batchmaker"


def simulate(
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings named as these options.")] = None,
    model: Annotated[str | None, typer.Option(help="One or more, by comma, that share the workers [resnet50].")] = None,
    accelerator: Annotated[str | None, typer.Option(help="npu, v100 (cells), or profile with --profile [npu].")] = None,
    npus: Annotated[int | None, typer.Option(help="Number of workers [1].")] = None,
    policy: Annotated[str | None, typer.Option(help=f"{', '.join(POLICIES)} [lazy].")] = None,
    traffic: Annotated[str | None, typer.Option(help="poisson, deterministic, mmpp [poisson].")] = None,
    rate_rps: Annotated[float | None, typer.Option(help="Mean arrival rate [1000].")] = None,
    burst_s: Annotated[float | None, typer.Option(help="Mean length of a phase of mmpp [1].")] = None,
    requests: Annotated[int | None, typer.Option(help="How many [20000].")] = None,
    replay: Annotated[str | None, typer.Option(help="CSV of arrival_s,model,input_len,output_len to replay.")] = None,
    corpus: Annotated[str | None, typer.Option(help="Sentence pairs, by tab, for the lengths of translations.")] = None,
    profile: Annotated[str | None, typer.Option(help="From `headrace profile`.")] = None,
    sla_ms: Annotated[float | None, typer.Option(help="Target latency [100].")] = None,
    window_ms: Annotated[float | None, typer.Option(help="Window of graph [5].")] = None,
    max_batch: Annotated[int | None, typer.Option(help="Batch limit of the policy; the batch of static [64].")] = None,
    coverage: Annotated[float | None, typer.Option(help="Share of outputs that dec_timesteps covers [0.9].")] = None,
    dec_timesteps: Annotated[int | None, typer.Option(help="Decoder steps that lazy assumes.")] = None,
    defer_late: Annotated[bool | None, typer.Option(help="lazy: requests past saving stand back.")] = None,
    drop_late: Annotated[bool | None, typer.Option(help="Drop what has not begun by its deadline.")] = None,
    busy_w: Annotated[float | None, typer.Option(help="W that a busy worker draws; gives energy_j.")] = None,
    w2: Annotated[float | None, typer.Option(help="smdp: ms of mean latency that a W of power is worth [0].")] = None,
    by_phase: Annotated[bool | None, typer.Option(help="smdp: a table for each phase of mmpp.")] = None,
    bucket_width: Annotated[int | None, typer.Option(help="Steps, of the buckets of bucketed-graph [10].")] = None,
    merge_us: Annotated[float | None, typer.Option(help="dynamic-graph: time to merge a cell [10].")] = None,
    trees: Annotated[str | None, typer.Option(help="treelstm: a file of bracketed parse trees.")] = None,
    seed: Annotated[int | None, typer.Option(help="The run is a function of it [0].")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a Perfetto trace of every task here.")] = None,
    as_json: Json = False,
) -> None:
    """Simulate one run: arrivals, a policy, and the NPU model or a measured profile."""
    from headrace.sim.scenario import Scenario, check_given, read_settings, run_scenario
    from headrace.sim.trace import of_simulation, write

    options = dict(locals())
    given: dict[str, Any] = read_settings(config) if config else {}
    names = [field.name for field in dataclasses.fields(Scenario)]
    given |= {name: options[name] for name in names if options[name] is not None}
    scenario = Scenario(**given)
    notes = check_given(scenario, set(given))
    with err.status(f"simulating {scenario.policy} on {scenario.model}"):
        done, found = run_scenario(scenario, record=trace is not None)
    if trace is not None:
        make_folder(trace.parent)
        write(trace, of_simulation(done.outcome))
        err.print(f"wrote {trace}")
    for note in (*notes, *found):
        warn(note)
    if as_json:
        print(
            json.dumps(
                {**done.result, "settings": dataclasses.asdict(scenario), "warnings": [*notes, *found]}, indent=2
            )
        )
        return
    table = Table(
        title=f"{scenario.policy}, {scenario.model}, seed {scenario.seed}", title_justify="left", show_header=False
    )
    table.add_column()
    table.add_column(justify="right")
    for key, value in done.result.items():
        entries = value.items() if isinstance(value, dict) else [("", value)]
        for name, number in entries:
            shown = f"{number:.4g}" if isinstance(number, float) else "-" if number is None else str(number)
            table.add_row(f"{key} {name}".strip(), shown)
    out.print(table)


def reproduce(
    paper: Annotated[Paper, typer.Argument(help="Whose evaluation.")],
    figure: Annotated[str, typer.Option(help="Figures by comma, or all.")] = "all",
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds: fewer runs.")] = False,
    out_folder: Annotated[Path | None, typer.Option("--out", help="Folder for plots, CSV files and the table.")] = None,
    as_json: Json = False,
) -> None:
    """Run a paper's evaluation again; ends with a table of its numbers beside what came out."""
    # A shell's background job ignores interrupts, and what it starts inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Only the one that is asked for: each loads much.
    experiments = importlib.import_module(f"headrace.sim.experiments.{paper.value}.runs")
    figures = experiments.FIGURES if figure == "all" else tuple(name.strip() for name in figure.split(","))
    folder = out_folder or Path("out/reproduce") / paper.value
    make_folder(folder)
    scale = experiments.QUICK if quick else experiments.FULL
    with progress() as shown:
        claims = experiments.reproduce(figures, folder, scale, Stages(shown))
    if as_json:
        print((folder / "table.json").read_text(), end="")
    else:
        table = Table(title=f"{paper.value}{' (quick)' if quick else ''}", title_justify="left")
        for heading in ("figure", "what", "paper", "measured", "ratio", "note"):
            table.add_column(heading, justify="right" if heading in ("paper", "measured", "ratio") else "left")
        for claim in claims:
            ratio = "-" if claim.ratio is None else f"{claim.ratio:.2f}"
            table.add_row(
                claim.figure, claim.claim, f"{claim.paper:g} {claim.unit}", claim.shown, ratio, escape(claim.note)
            )
        out.print(table)
    err.print(f"wrote {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}", soft_wrap=True)
