"""The command `headrace simulate`, which simulates one run or a grid of runs."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.batching.errors import UsageError
from headrace.batching.registry import find_policy, policy_names, step_policy_entry
from headrace.batching.settings import option, settings_of
from headrace.batching.steps.registry import step_policy_names
from headrace.bitstreams.whole_file import replacing
from headrace.host.cli.console import numbers_of, out, show, show_json, tell, warn, working
from headrace.host.cli.options import HelpAll, Json, Ray, check_finite, check_readable, command, creatable, readable
from headrace.host.cli.setting_options import (
    Assignments,
    Choice,
    add_policy_settings,
    add_settings,
    check_assignments,
    mark_advanced,
    with_assignments,
)
from headrace.host.cli.setting_options import given as given_options
from headrace.sim.decoding.scenario import DECODING, GPU, DecodingScenario, decodes, decoding_scenario_of, files_of
from headrace.sim.fleet.settings import FleetSettings
from headrace.sim.hardware.gpu.tables import DECODER_FOLDERS
from headrace.sim.hardware.settings import ACCELERATORS
from headrace.sim.scenario import POLICY, RunSettings, Scenario, every_setting, renamed, scenario_of
from headrace.sim.scenario_files import read_settings
from headrace.sim.system.settings import Preprocess
from headrace.sim.workload.settings import TRAFFICS, Poisson, Replay, Workload

if TYPE_CHECKING:
    from headrace.host.cli.simulate.grid import AnyScenario
    from headrace.sim.sweeps.grid import Grid
    from headrace.sim.trace import Slice

OUTPUT = "Run and output"
FILES = ("replay", "corpus", "profile", "trees", "cpu_costs", "images")  # settings that name a file to read
POLICY_CHOICE = Choice(
    "policy",
    f"Batching policy: {', '.join(policy_names())}, or module:Class [lazy]. For models that decode: "
    f"{', '.join(step_policy_names())}, or module:Class [continuous].",
    tuple(dict.fromkeys([*policy_names(), *step_policy_names()])),
)
ACCELERATOR_CHOICE = Choice(
    "accelerator", f"Hardware: {', '.join(ACCELERATORS)}. profile needs --profile [npu].", tuple(ACCELERATORS)
)
ANY_ACCELERATOR_CHOICE = Choice(
    "accelerator",
    f"{ACCELERATOR_CHOICE.help} For models that decode: {', '.join(DECODER_FOLDERS)} [{GPU}].",
    tuple(dict.fromkeys([*ACCELERATORS, *DECODER_FOLDERS])),
)
TRAFFIC_CHOICE = Choice(
    "traffic", f"Arrival process: {', '.join(TRAFFICS)}, or module:Class [poisson].", tuple(TRAFFICS)
)
HARDWARE_PANEL = "Models and hardware"
SHARED = {each.name for cls in (Poisson, Replay, Workload) for each in settings_of(cls)}  # by networks and decoders


@command
def simulate(
    ctx: typer.Context,
    assignments: Assignments = None,
    config: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=OUTPUT,
            help="A TOML file with settings. Its keys are named as the options.",
            callback=readable,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=OUTPUT, help="Write a Perfetto trace of all tasks to this file.", callback=creatable
        ),
    ] = None,
    grid: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=OUTPUT,
            help="A TOML file as for --config, in which a setting may be a list. Every combination runs, with `seeds` "
            "seeds each.",
            callback=readable,
        ),
    ] = None,
    out_folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            rich_help_panel=OUTPUT,
            help="With --grid, a folder for runs.parquet. A second start continues from it.",
        ),
    ] = None,
    ray: Ray = None,
    as_json: Json = False,
    help_all: HelpAll = False,
) -> None:
    """Simulate a run of arrivals and a policy on a model of the hardware, or many runs with --grid.

    The hardware is one of NPUs, a GPU in slices with preprocessing, whole GPUs with measured kernels, the cells of a
    V100, or a measured profile. A model that decodes, such as llama-3.1-8b, runs on one replica of whole GPUs, or with
    your own step times (--step-model). --help-all shows the options of such models."""
    given: dict[str, Any] = read_settings(config) if config else {}
    given |= with_assignments(renamed(given_options(ctx)), assignments)
    runs = None if grid is None else _read_grid(grid)
    first = given if runs is None else {**given, **next(runs.combinations())}
    find, usual = (step_policy_entry, "continuous") if decodes(first) else (find_policy, "lazy")
    policies = [given.get(POLICY, usual)]
    check_assignments(assignments, policies if runs is None else runs.values.get(POLICY, policies), find)
    if runs is not None:
        if trace is not None:
            raise UsageError("--trace is for one run: leave it out, or leave out --grid")
        _simulate_grid(runs, given, out_folder, ray, as_json)
        return
    for name, value in (("--out", out_folder), ("--ray", ray)):
        if value is not None:
            raise UsageError(f"{name} is for --grid: leave it out, or give a grid of runs")
    scenario, notes = _any_scenario(given)
    if isinstance(scenario, DecodingScenario):
        from headrace.sim.decoding.run import run_decoding, slices_of

        with working(f"simulating {scenario.title}"):
            decoded = run_decoding(scenario, record=trace is not None)
        if trace is not None:
            _write_trace(trace, slices_of(decoded.records))
        _report(
            scenario, f"{scenario.title}, seed {scenario.seed}", decoded.as_dict(), [*notes, *decoded.warnings], as_json
        )
        return
    from headrace.sim.run import run_scenario
    from headrace.sim.trace import of_simulation

    with working(f"simulating {scenario.entry.name} on {scenario.workload.model}"):
        done, found = run_scenario(scenario, record=trace is not None)
    if trace is not None:
        _write_trace(trace, of_simulation(done.arrivals, done.outcome))
    title = f"{scenario.entry.name}, {scenario.workload.model}, seed {scenario.seed}"
    _report(scenario, title, done.result, [*notes, *found], as_json)


def _write_trace(path: Path, slices: Iterable["Slice"]) -> None:
    from headrace.sim.trace import write

    with replacing(path) as partial:
        write(partial, slices)
    tell(f"wrote {path}")


def _report(
    scenario: "AnyScenario", title: str, result: Mapping[str, Any], warnings: Sequence[str], as_json: bool
) -> None:
    """Print the result of a run, and warn."""
    for note in warnings:
        warn(note)
    if as_json:
        show_json({**result, "settings": scenario.flat(), "warnings": list(warnings)})
        return
    # Not as the title of the table, which breaks at the table's width: that varies with the duration of the run.
    show(title)
    from rich.table import Table

    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, number in numbers_of(result):
        shown = f"{number:.4g}" if isinstance(number, float) else "-" if number is None else str(number)
        table.add_row(name, shown)
    out.print(table)


def _read_grid(path: Path) -> "Grid":
    from headrace.sim.sweeps.grid import read_grid

    return read_grid(path)


def _simulate_grid(grid: "Grid", given: Mapping[str, Any], folder: Path | None, ray: str | None, as_json: bool) -> None:
    """Simulate every combination of a grid. The settings in `given` hold for all. Raises UsageError."""
    from headrace.host.cli.simulate.grid import run_grid, show_grid

    if both := set(grid.values) & set(given):
        raise UsageError(f"--grid has {', '.join(sorted(both))} as well: give it once")
    scenarios: list[AnyScenario] = []
    notes = dict[str, None]()
    for combination in grid.combinations():
        scenario, found = _any_scenario({**given, **combination})
        scenarios.append(scenario)
        notes |= dict.fromkeys(found)
    runs = run_grid(scenarios, folder, ray)
    for note in (*notes, *dict.fromkeys(note for each in runs for note in each.warnings)):
        warn(note)
    if as_json:
        show_json(
            [
                {**dataclasses.asdict(each), "settings": scenario.flat()}
                for scenario, each in zip(scenarios, runs, strict=True)
            ]
        )
    else:
        show_grid(grid.varied(), scenarios, runs)


def readable_scenario(given: Mapping[str, Any]) -> tuple[Scenario, list[str]]:
    """Return a scenario from settings by their flat names, and warnings about those that have no effect.

    Raises UsageError, also where a file that a setting names cannot be read."""
    scenario, notes = scenario_of(given)
    check_finite("--slo-ms", scenario.workload.slo_ms)
    _check_files(FILES, given)
    return scenario, notes


def _any_scenario(given: Mapping[str, Any]) -> "tuple[AnyScenario, list[str]]":
    """Return a scenario of networks or of a model that decodes, as `readable_scenario` does."""
    if not decodes(given):
        return readable_scenario(given)
    found = decoding_scenario_of(given, every_setting())
    _check_files((*FILES, *files_of(given)), given)
    return found


def _check_files(names: Iterable[str], given: Mapping[str, Any]) -> None:
    for name in names:
        if given.get(name) is not None:
            check_readable(option(name), Path(given[name]))


add_settings(
    simulate,
    {
        "Traffic": [TRAFFIC_CHOICE, *TRAFFICS.values(), Replay, Workload],
        HARDWARE_PANEL: [ANY_ACCELERATOR_CHOICE, *ACCELERATORS.values(), Preprocess],
        "Models that decode": DECODING,
        "Policy": [POLICY_CHOICE],
        "Fleet": [FleetSettings],
        OUTPUT: [RunSettings],
    },
    without=["gpu"],
)
add_policy_settings(simulate, steps=True)
mark_advanced(simulate, "ray", *(each.name for cls in DECODING for each in settings_of(cls) if each.name not in SHARED))
