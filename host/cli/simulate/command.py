"""`headrace simulate`: one simulated run, or a grid of them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace.batching import POLICIES
from headrace.batching.errors import UsageError
from headrace.batching.policies.lazy import SLACK_SCOPES
from headrace.bitstreams.whole_file import replacing
from headrace.host.cli.console import out, show_json, tell, warn, working
from headrace.host.cli.options import Json, Ray, check_finite, check_readable, command, creatable, readable
from headrace.host.cli.simulate.grid import run_grid, show_grid
from headrace.sim.fleet.routers import ROUTERS
from headrace.sim.fleet.settings import LOST
from headrace.sim.hardware.gpu.mig import GPUS
from headrace.sim.hardware.gpu.slice import PRECISIONS
from headrace.sim.scenario import ACCELERATORS, TRAFFICS, Scenario, check_given, read_settings, run_scenario
from headrace.sim.sweeps.grid import Grid, read_grid
from headrace.sim.system.cost import PRICES_USD
from headrace.sim.system.preprocessors import FORMS
from headrace.sim.trace import of_simulation, write
from headrace.sim.workload.lengths import LENGTHS

TRAFFIC, HARDWARE, POLICY, OUTPUT = "Traffic", "Models and hardware", "Policy", "Run and output"
FLEET = "Fleet"
FILES = ("replay", "corpus", "profile", "trees", "cpu_costs", "photos")  # settings that name a file to read


def _option(panel: str, text: str, known: tuple[str, ...] = (), **more: Any) -> Any:
    completion = {"autocompletion": lambda: list(known)} if known else {}
    return typer.Option(rich_help_panel=panel, help=text, **completion, **more)


# Of what is simulated on: `simulate`, and `plan --tune`.
CorpusFile = Annotated[Path | None, _option(TRAFFIC, "Sentence pairs, by tab, for the lengths of translations.")]
TreesFile = Annotated[Path | None, _option(TRAFFIC, "treelstm: a file of bracketed parse trees.")]
Accelerator = Annotated[
    str | None,
    _option(HARDWARE, f"npu, v100 (cells), profile with --profile, or {', '.join(GPUS)} [npu].", ACCELERATORS),
]
ProfileFile = Annotated[Path | None, _option(HARDWARE, "From `headrace profile`.")]
Partition = Annotated[
    str | None, _option(HARDWARE, "MIG slices of a GPU: 1g.5gb:7, 1g.5gb:3,4g.20gb, ... [as many as fit].")
]
ActiveSlices = Annotated[int | None, _option(HARDWARE, "How many of them serve [all].")]
Preprocess = Annotated[str | None, _option(HARDWARE, f"In front of a GPU: {FORMS} [ideal].")]
Precision = Annotated[
    str | None, _option(HARDWARE, f"Of a GPU's matrix products: {', '.join(PRECISIONS)} [tf32].", tuple(PRECISIONS))
]
Npus = Annotated[int | None, _option(HARDWARE, "Number of workers [1].")]
BusyW = Annotated[float | None, _option(HARDWARE, "W that a busy worker draws; gives energy_j.")]


BurstS = Annotated[float | None, _option(TRAFFIC, "Mean length of a phase of mmpp [1].")]
PhotoPixels = Annotated[int | None, _option(HARDWARE, "Of every photo [187500].")]
PhotosFile = Annotated[
    Path | None, _option(HARDWARE, "CSV of width,height to draw photos from, in place of --photo-pixels.")
]
OverheadMs = Annotated[
    float | None, _option(HARDWARE, "Of a request beside preprocessing, queue and batch: network, protocol [0].")
]
Prices = Annotated[
    str | None, _option(HARDWARE, f"$ of {', '.join(PRICES_USD)} and kwh: node=6000,kwh=0.2 [see README].")
]


@command
def simulate(
    traffic: Annotated[str | None, _option(TRAFFIC, f"{', '.join(TRAFFICS)} [poisson].", TRAFFICS)] = None,
    rate_rps: Annotated[float | None, _option(TRAFFIC, "Mean arrival rate [1000].")] = None,
    burst_s: BurstS = None,
    requests: Annotated[int | None, _option(TRAFFIC, "How many [20000].")] = None,
    stream: Annotated[bool | None, _option(TRAFFIC, "Keep no request: memory does not grow with them.")] = None,
    replay: Annotated[
        Path | None,
        _option(TRAFFIC, "CSV of arrival_s,model,input_len,output_len to replay; or arrival_ms, _us or _ns."),
    ] = None,
    replay_every: Annotated[int | None, _option(TRAFFIC, "Only each n-th of it, from number seed % n on [1].")] = None,
    replay_speed: Annotated[float | None, _option(TRAFFIC, "How many times as fast as it was [1].")] = None,
    shares: Annotated[str | None, _option(TRAFFIC, "Of the models, relative: 3,1 [equal].")] = None,
    lengths: Annotated[
        str | None,
        _option(
            TRAFFIC, f"{', '.join(LENGTHS)}, a number, or a folder of WAV and FLAC files [the model's].", tuple(LENGTHS)
        ),
    ] = None,
    corpus: CorpusFile = None,
    trees: TreesFile = None,
    sla_ms: Annotated[float | None, _option(TRAFFIC, "Target latency [100].")] = None,
    model: Annotated[str | None, _option(HARDWARE, "One or more, by comma, that share the workers [resnet50].")] = None,
    accelerator: Accelerator = None,
    profile: ProfileFile = None,
    partition: Partition = None,
    active_slices: ActiveSlices = None,
    preprocess: Preprocess = None,
    cpu_costs: Annotated[
        Path | None, _option(HARDWARE, "From `headrace profile --cpu-preprocessing`, for --preprocess cpu.")
    ] = None,
    photo_pixels: PhotoPixels = None,
    photos: PhotosFile = None,
    precision: Precision = None,
    overhead_ms: OverheadMs = None,
    npus: Npus = None,
    busy_w: BusyW = None,
    prices: Prices = None,
    policy: Annotated[str | None, _option(POLICY, f"{', '.join(POLICIES)} [lazy].", POLICIES)] = None,
    max_batch: Annotated[int | None, _option(POLICY, "Batch limit of the policy; the batch of static [64].")] = None,
    window_ms: Annotated[float | None, _option(POLICY, "Window of graph [5].")] = None,
    coverage: Annotated[float | None, _option(POLICY, "Share of outputs that dec_timesteps covers [0.9].")] = None,
    dec_timesteps: Annotated[int | None, _option(POLICY, "Decoder steps that lazy assumes.")] = None,
    defer_late: Annotated[bool | None, _option(POLICY, "lazy: requests past saving stand back.")] = None,
    slack_scope: Annotated[
        str | None, _option(POLICY, "lazy: who keeps slack, all in the table or the active batch.", SLACK_SCOPES)
    ] = None,
    equal_timesteps: Annotated[bool | None, _option(POLICY, "lazy: merge only in the same step.")] = None,
    drop_late: Annotated[bool | None, _option(POLICY, "Drop what has not begun in time for its deadline.")] = None,
    w2: Annotated[float | None, _option(POLICY, "smdp: ms of mean latency that a W of power is worth [0].")] = None,
    by_phase: Annotated[bool | None, _option(POLICY, "smdp: a table for each phase of mmpp.")] = None,
    bucket_width: Annotated[
        int | None, _option(POLICY, "Steps, of the buckets of bucketed-graph, and of preba's for texts [10].")
    ] = None,
    bucket_s: Annotated[float | None, _option(POLICY, "Seconds, of preba's buckets for sounds [2.5].")] = None,
    merge_buckets: Annotated[
        bool | None, _option(POLICY, "preba: a bucket that is due takes along what waits beside it [yes].")
    ] = None,
    knee_growth: Annotated[
        float | None,
        _option(POLICY, "preba: the knee is where throughput grows by less than this [1.05]."),
    ] = None,
    merge_us: Annotated[float | None, _option(POLICY, "dynamic-graph: time to merge a cell [10].")] = None,
    max_tasks: Annotated[int | None, _option(POLICY, "cellular: most tasks ahead, on a worker [5].")] = None,
    servers: Annotated[int | None, _option(FLEET, "So many of this machine, each with its policy.")] = None,
    router: Annotated[str | None, _option(FLEET, f"{', '.join(ROUTERS)} [least-outstanding].", ROUTERS)] = None,
    network_delay: Annotated[
        str | None, _option(FLEET, "Between router and server, each way: ms, or lognormal:MEDIAN_MS:SIGMA [0].")
    ] = None,
    failure: Annotated[
        str | None, _option(FLEET, "SERVER@AT_S:FOR_S, several by comma: it dies then, and is back so long after.")
    ] = None,
    mtbf_s: Annotated[float | None, _option(FLEET, "Mean time from a server's start to its death.")] = None,
    mttr_s: Annotated[float | None, _option(FLEET, "Mean time until it is back.")] = None,
    lost: Annotated[str | None, _option(FLEET, "What a dying server has: reroute or fail [reroute].", LOST)] = None,
    autoscale: Annotated[
        str | None, _option(FLEET, "LEAST:TARGET:START_S:COOLDOWN_S, TARGET requests under way to a server.")
    ] = None,
    config: Annotated[
        Path | None, _option(OUTPUT, "A TOML file with settings named as these options.", callback=readable)
    ] = None,
    seed: Annotated[int | None, _option(OUTPUT, "The run is a function of it [0].")] = None,
    trace: Annotated[
        Path | None, _option(OUTPUT, "Write a Perfetto trace of every task here.", callback=creatable)
    ] = None,
    grid: Annotated[
        Path | None,
        _option(
            OUTPUT,
            "A TOML file as for --config, in which each setting may be a list, and `seeds` how many: runs every "
            "combination.",
            callback=readable,
        ),
    ] = None,
    out_folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            rich_help_panel=OUTPUT,
            help="With --grid: folder for runs.parquet, from which a second start goes on.",
        ),
    ] = None,
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Simulate one run: arrivals, a policy, and an NPU, a GPU in slices with preprocessing, or a measured profile; with
    --grid, many."""
    options = locals().copy()
    given: dict[str, Any] = read_settings(config) if config else {}
    names = [field.name for field in dataclasses.fields(Scenario)]
    given |= {name: options[name] for name in names if options[name] is not None}
    if grid is not None:
        if trace is not None:
            raise UsageError("--trace is of one run: leave it out, or --grid")
        _simulate_grid(read_grid(grid), given, out_folder, ray, as_json)
        return
    for option, value in (("--out", out_folder), ("--ray", ray)):
        if value is not None:
            raise UsageError(f"{option} is for --grid: leave it out, or give a grid of runs")
    scenario, notes = scenario_of(given)
    with working(f"simulating {scenario.policy} on {scenario.model}"):
        done, found = run_scenario(scenario, record=trace is not None)
    if trace is not None:
        with replacing(trace) as partial:
            write(partial, of_simulation(done.arrivals, done.outcome))
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


def _simulate_grid(grid: Grid, given: Mapping[str, Any], folder: Path | None, ray: str | None, as_json: bool) -> None:
    """Every combination, with what is `given` for all."""
    if both := set(grid.values) & set(given):
        raise UsageError(f"--grid has {', '.join(sorted(both))} as well: give it once")
    scenarios, notes = [], dict[str, None]()
    for combination in grid.combinations():
        scenario, found = scenario_of({**given, **combination})
        scenarios.append(scenario)
        notes |= dict.fromkeys(found)
    runs = run_grid(scenarios, folder, ray)
    for note in (*notes, *dict.fromkeys(note for each in runs for note in each.warnings)):
        warn(note)
    if as_json:
        show_json(
            [
                {**dataclasses.asdict(each), "settings": dataclasses.asdict(scenario)}
                for scenario, each in zip(scenarios, runs, strict=True)
            ]
        )
    else:
        show_grid(grid.varied(), scenarios, runs)


def scenario_of(given: Mapping[str, Any]) -> tuple[Scenario, list[str]]:
    """From settings by their names in `Scenario`, and warnings about those that have no effect. Raises UsageError."""
    values = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    scenario = Scenario(**values)
    notes = check_given(scenario, set(values))
    for name, value in values.items():
        check_finite(f"--{name.replace('_', '-')}", value)
        if name in FILES:
            check_readable(f"--{name.replace('_', '-')}", Path(value))
    return scenario, notes
