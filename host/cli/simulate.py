"""`headrace simulate`: one simulated run."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace.batching import POLICIES
from headrace.host.cli.console import out, show_json, tell, warn, working
from headrace.host.cli.options import Json, check_finite, check_readable, command, creatable, readable
from headrace.sim.scenario import ACCELERATORS, TRAFFICS, Scenario, check_given, read_settings, run_scenario
from headrace.sim.trace import of_simulation, write

TRAFFIC, HARDWARE, POLICY, OUTPUT = "Traffic", "Models and hardware", "Policy", "Run and output"
FILES = ("replay", "corpus", "profile", "trees")  # settings that name a file to read


def _option(panel: str, text: str, known: tuple[str, ...] = (), **more: Any) -> Any:
    completion = {"autocompletion": lambda: list(known)} if known else {}
    return typer.Option(rich_help_panel=panel, help=text, **completion, **more)


@command
def simulate(
    traffic: Annotated[str | None, _option(TRAFFIC, f"{', '.join(TRAFFICS)} [poisson].", TRAFFICS)] = None,
    rate_rps: Annotated[float | None, _option(TRAFFIC, "Mean arrival rate [1000].")] = None,
    burst_s: Annotated[float | None, _option(TRAFFIC, "Mean length of a phase of mmpp [1].")] = None,
    requests: Annotated[int | None, _option(TRAFFIC, "How many [20000].")] = None,
    replay: Annotated[Path | None, _option(TRAFFIC, "CSV of arrival_s,model,input_len,output_len to replay.")] = None,
    corpus: Annotated[Path | None, _option(TRAFFIC, "Sentence pairs, by tab, for the lengths of translations.")] = None,
    trees: Annotated[Path | None, _option(TRAFFIC, "treelstm: a file of bracketed parse trees.")] = None,
    sla_ms: Annotated[float | None, _option(TRAFFIC, "Target latency [100].")] = None,
    model: Annotated[str | None, _option(HARDWARE, "One or more, by comma, that share the workers [resnet50].")] = None,
    accelerator: Annotated[
        str | None, _option(HARDWARE, "npu, v100 (cells), or profile with --profile [npu].", ACCELERATORS)
    ] = None,
    profile: Annotated[Path | None, _option(HARDWARE, "From `headrace profile`.")] = None,
    npus: Annotated[int | None, _option(HARDWARE, "Number of workers [1].")] = None,
    busy_w: Annotated[float | None, _option(HARDWARE, "W that a busy worker draws; gives energy_j.")] = None,
    policy: Annotated[str | None, _option(POLICY, f"{', '.join(POLICIES)} [lazy].", POLICIES)] = None,
    max_batch: Annotated[int | None, _option(POLICY, "Batch limit of the policy; the batch of static [64].")] = None,
    window_ms: Annotated[float | None, _option(POLICY, "Window of graph [5].")] = None,
    coverage: Annotated[float | None, _option(POLICY, "Share of outputs that dec_timesteps covers [0.9].")] = None,
    dec_timesteps: Annotated[int | None, _option(POLICY, "Decoder steps that lazy assumes.")] = None,
    defer_late: Annotated[bool | None, _option(POLICY, "lazy: requests past saving stand back.")] = None,
    drop_late: Annotated[bool | None, _option(POLICY, "Drop what has not begun by its deadline.")] = None,
    w2: Annotated[float | None, _option(POLICY, "smdp: ms of mean latency that a W of power is worth [0].")] = None,
    by_phase: Annotated[bool | None, _option(POLICY, "smdp: a table for each phase of mmpp.")] = None,
    bucket_width: Annotated[int | None, _option(POLICY, "Steps, of the buckets of bucketed-graph [10].")] = None,
    merge_us: Annotated[float | None, _option(POLICY, "dynamic-graph: time to merge a cell [10].")] = None,
    config: Annotated[
        Path | None, _option(OUTPUT, "A TOML file with settings named as these options.", callback=readable)
    ] = None,
    seed: Annotated[int | None, _option(OUTPUT, "The run is a function of it [0].")] = None,
    trace: Annotated[
        Path | None, _option(OUTPUT, "Write a Perfetto trace of every task here.", callback=creatable)
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate one run: arrivals, a policy, and the NPU model or a measured profile."""
    options = {name: str(value) if isinstance(value, Path) else value for name, value in locals().items()}
    given: dict[str, Any] = read_settings(config) if config else {}
    names = [field.name for field in dataclasses.fields(Scenario)]
    given |= {name: options[name] for name in names if options[name] is not None}
    scenario = Scenario(**given)
    notes = check_given(scenario, set(given))
    for name, value in given.items():
        check_finite(f"--{name.replace('_', '-')}", value)
        if name in FILES:
            check_readable(f"--{name}", Path(value))
    with working(f"simulating {scenario.policy} on {scenario.model}"):
        done, found = run_scenario(scenario, record=trace is not None)
    if trace is not None:
        write(trace, of_simulation(done.outcome))
        tell(f"wrote {trace}")
    for note in (*notes, *found):
        warn(note)
    if as_json:
        show_json({**done.result, "settings": dataclasses.asdict(scenario), "warnings": [*notes, *found]})
        return
    title = f"{scenario.policy}, {scenario.model}, seed {scenario.seed}"
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for key, value in done.result.items():
        entries = value.items() if isinstance(value, dict) else [("", value)]
        for name, number in entries:
            shown = f"{number:.4g}" if isinstance(number, float) else "-" if number is None else str(number)
            table.add_row(f"{key} {name}".strip(), shown)
    out.print(table)
