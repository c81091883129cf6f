"""Simulations from Python: one run, or many over lists of settings, with results that can be plotted.

result = simulate("gnmt", on=Npu(2), workload=Poisson(rate_rps=500), policy="lazy", coverage=0.95)
result.latency_ms["p99"]
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.batching.errors import LONGEST_NAME, OutOfMemory, Unstable, UsageError
from headrace.batching.registry import PolicySettings, entry_of
from headrace.batching.settings import settings_of
from headrace.sim.fleet.settings import FleetSettings
from headrace.sim.hardware.settings import Hardware, accelerator_name
from headrace.sim.run import run_scenario
from headrace.sim.scenario import ACCELERATOR, POLICY, TRAFFIC, Scenario, scenario_of
from headrace.sim.sweeps.sweep import sweep as run_jobs
from headrace.sim.system.settings import Preprocess
from headrace.sim.workload.settings import Replay, Traffic, Workload, traffic_name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FEW_RUNS = 4  # so few runs are not worth the start of processes
LATENCIES = ("mean", "p50", "p90", "p95", "p99", "max")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a simulated run.

    Times are in milliseconds. `latency_ms` and `preprocess_ms` have the keys mean, p50, p90, p95, p99 and max, and are
    None-valued where nothing was measured. `settings` are all settings of the run by their flat names; `warnings` say
    what can be simulated but was hardly meant; `more` has what only some hardware reports."""

    requests: int
    finished: int
    failed: int
    shed: int
    dropped: int
    cancelled: int
    throughput_rps: float | None
    latency_ms: Mapping[str, float | None]
    queue_ms: float | None
    sla_violation_rate: float | None
    batch_size_mean: float | None
    utilization: float | None
    energy_j: float | None
    wall_s: float
    seed: int | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, as `headrace simulate --json` prints it."""
        known = {name: value for name, value in asdict(self).items() if name not in ("more", "settings", "warnings")}
        return {**known, **self.more, "settings": dict(self.settings), "warnings": list(self.warnings)}

    def metric(self, name: str) -> float | None:
        """Return one number: "p99_ms" and the like for latencies, or a key of the result. Raises UsageError."""
        if name.endswith("_ms") and name.removesuffix("_ms") in LATENCIES:
            return self.latency_ms[name.removesuffix("_ms")]
        value = self.to_dict().get(name)
        if (
            name in ("settings", "warnings", "latency_ms")
            or isinstance(value, Mapping | list)
            or (value is None and name not in self.to_dict())
        ):
            names = [
                *(f"{each}_ms" for each in LATENCIES),
                *(key for key, each in self.to_dict().items() if isinstance(each, int | float)),
            ]
            raise UsageError(f"there is no metric {name!r}; choose from {', '.join(names)}")
        return None if value is None else float(value)


def simulate(
    model: str | None = None,
    *,
    on: Hardware | None = None,
    workload: Workload | Traffic | None = None,
    policy: str | PolicySettings | None = None,
    preprocess: Preprocess | str | None = None,
    fleet: FleetSettings | None = None,
    **settings: Any,
) -> Result:
    """Simulate one run.

    Args:
        model: One model of the zoo, or several by comma.
        on: The hardware, an NPU if not given.
        workload: The requests, or only when they come; 20,000 by a Poisson process if not given.
        policy: A policy by name (see `headrace policies`), as module:Class, or its settings.
        preprocess: What makes tensors of images and audio, in front of a GPU in slices.
        fleet: Many such servers behind a router.
        settings: Any other setting by its name, as on the command line: rate_rps, requests, slo_ms, seed, coverage ...

    Returns the result, which is a function of the settings, seed included. Raises UsageError."""
    scenario, notes = _scenario(model, on, workload, policy, preprocess, fleet, settings)
    done, found = run_scenario(scenario)
    return _result(scenario, done.result, [*notes, *found])


def _result(scenario: Scenario, result: Mapping[str, Any], warnings: Sequence[str]) -> Result:
    fixed = [name for name in Result.__dataclass_fields__ if name not in ("settings", "warnings", "more")]
    more = {name: value for name, value in result.items() if name not in fixed}
    return Result(
        **{name: result[name] for name in fixed}, settings=scenario.flat(), warnings=tuple(warnings), more=more
    )


def _scenario(
    model: str | None,
    on: Hardware | None,
    workload: Workload | Traffic | None,
    policy: str | PolicySettings | None,
    preprocess: Preprocess | str | None,
    fleet: FleetSettings | None,
    settings: Mapping[str, Any],
) -> tuple[Scenario, list[str]]:
    _check_kinds(on, workload, policy, preprocess, fleet)
    given: dict[str, Any] = {}
    if workload is not None:
        if isinstance(workload, Workload):
            given |= _flat(workload)
        traffic = workload.traffic if isinstance(workload, Workload) else workload
        given |= _flat(traffic)
        if not isinstance(traffic, Replay):
            given[TRAFFIC] = traffic_name(traffic)
    if on is not None:
        given |= {**_flat(on), ACCELERATOR: accelerator_name(on)}
        given.pop("gpu", None)
    if isinstance(preprocess, str):
        given["preprocess"] = preprocess
    elif preprocess is not None:
        given |= _flat(preprocess)
    if fleet is not None:
        given |= {**_flat(fleet), "servers": fleet.servers}
    if model is not None:
        if given.get("model", model) != model:
            raise UsageError(f"model {model!r}: the workload has model {given['model']!r}; give it once")
        given["model"] = model
    if policy is not None:
        given[POLICY] = policy
    given |= settings
    return scenario_of(given, str)


def _check_kinds(on: object, workload: object, policy: object, preprocess: object, fleet: object) -> None:
    """Raise UsageError for an argument of `simulate` that is no object of settings, or of the wrong ones."""
    wanted: list[tuple[str, object, bool, str]] = [
        ("on", on, isinstance(on, Hardware), "Npu, MigGpu, MeasuredGpu, Measured or V100"),
        (
            "workload",
            workload,
            isinstance(workload, Workload | Replay) or hasattr(workload, "times"),
            "Workload, Poisson, Bursty or Replay",
        ),
        ("preprocess", preprocess, isinstance(preprocess, Preprocess | str), "Preprocess, or a text such as dpu:4"),
        ("fleet", fleet, isinstance(fleet, FleetSettings), "Fleet"),
        (
            "policy",
            policy,
            isinstance(policy, str) or (isinstance(policy, PolicySettings) and is_dataclass(policy)),
            "a name, or settings of a policy such as policies.Lazy()",
        ),
    ]
    for name, value, fits, what in wanted:
        if value is not None and (not fits or isinstance(value, type)):
            raise UsageError(f"{name} is {str(value)[:LONGEST_NAME]}, of type {type(value).__name__}; give {what}")


def _flat(made: Any) -> dict[str, Any]:
    """Return the settings of an object that are not what they are by default."""
    found = {each.name: (getattr(made, each.name), each.default) for each in settings_of(type(made))}
    return {name: value for name, (value, default) in found.items() if value != default}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a sweep: the values of the `varied` settings, and the result, or why there is none."""

    varied: Mapping[str, Any]
    result: Result | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Sweep(Sequence[Run]):
    """The runs of a sweep, in the order of their settings; the last one varies fastest."""

    runs: tuple[Run, ...]

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, place: Any) -> Any:
        return self.runs[place]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    @property
    def varied(self) -> list[str]:
        """Return the names of the settings that vary."""
        return list(self.runs[0].varied) if self.runs else []

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a flat row for each run: what varied, then its numbers (p99_ms, throughput_rps ...)."""
        rows = []
        for run in self.runs:
            row: dict[str, Any] = {name: _label(value) for name, value in run.varied.items()}
            if run.result is not None:
                row |= {f"{name}_ms": value for name, value in run.result.latency_ms.items()}
                row |= {
                    name: value
                    for name, value in run.result.to_dict().items()
                    if value is None or isinstance(value, int | float)
                }
            rows.append({**row, "error": run.error})
        return rows

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a table of pandas, which must be installed."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise UsageError("a DataFrame needs pandas: pip install pandas; to_dicts() needs nothing") from error
        return pd.DataFrame(self.to_dicts())

    def plot(self, metric: str = "p99_ms", *, x: str | None = None, path: str | None = None) -> "Figure":
        """Draw a number of the results over a setting, one line for each combination of the other settings.

        Args:
            metric: A number of `Result.metric`.
            x: The setting along the horizontal axis; without it, the first one whose values are numbers.
            path: A file to write the picture to, a PNG or SVG.

        Returns the figure, which Jupyter shows. Raises UsageError."""
        try:
            from headrace.sim.plot_style import save
            from headrace.sim.sweeps.picture import draw_lines
        except ModuleNotFoundError as error:
            raise UsageError('a plot needs Matplotlib: pip install "headrace[sweeps]"') from error
        names = self.varied
        if x is None:
            x = next((name for name in names if all(_is_number(run.varied[name]) for run in self.runs)), None)
        if x is None or x not in names:
            raise UsageError(f"plot: x is {x!r}; choose from the settings that vary: {', '.join(names) or 'none'}")
        lines: dict[tuple[Any, ...], list[tuple[Any, float]]] = {}
        for run in self.runs:
            value = None if run.result is None else run.result.metric(metric)
            others = tuple(_label(run.varied[name]) for name in names if name != x)
            lines.setdefault(others, []).append((_label(run.varied[x]), math.nan if value is None else value))
        figure = draw_lines(lines, x, metric, [name for name in names if name != x])
        if path is not None:
            save(figure, Path(path))
        return figure


def sweep(
    model: str | Sequence[str] | None = None,
    *,
    on: Hardware | Sequence[Hardware] | None = None,
    workload: Any = None,
    policy: Any = None,
    preprocess: Any = None,
    fleet: Any = None,
    ray: str | None = None,
    **settings: Any,
) -> Sweep:
    """Simulate every combination of settings. The arguments are those of `simulate`, each one value or several.

    Several values are a list, a tuple, a range or an array. Runs use all cores of this machine, or those of a Ray
    cluster (`ray`: local, auto, or HOST:PORT). A run whose load is unstable, or that has no memory, is kept with the
    reason in `error`. Runs are made in this process if their policy is a class of a script or a notebook itself,
    because no other process can import it. Put the class in a module to use all cores.

    Raises UsageError for settings that cannot be simulated, before any run."""
    asked = {"model": model, "on": on, "workload": workload, POLICY: policy, "preprocess": preprocess, "fleet": fleet}
    values = {name: value for name, value in {**asked, **settings}.items() if value is not None}
    lists = {name: _list_of(value) if _is_many(value) else [value] for name, value in values.items()}
    if empty := [name for name, each in lists.items() if not each]:
        raise UsageError(f"{empty[0]} is an empty list; give a value or several")
    varied = [name for name, value in values.items() if _is_many(value)]
    combinations = [dict(zip(lists, each, strict=True)) for each in product(*lists.values())]
    jobs = []
    for each in combinations:
        parts: dict[str, Any] = {name: each.get(name) for name in asked}
        more = {name: value for name, value in each.items() if name not in asked}
        jobs.append(_scenario(**parts, settings=more))
    here = [part for scenario, _ in jobs for part in scenario.parts() if not _importable(type(part))]
    if here and ray is not None:
        name = type(here[0]).__name__
        raise UsageError(f"ray: no node can import {name} from a script or notebook; put {name} in a module")
    if here or (len(jobs) <= FEW_RUNS and ray is None):
        found = [_run(job) for job in jobs]
    else:
        found = run_jobs(_run, jobs, lambda: None, ray)
    return Sweep(
        tuple(
            Run({name: each[name] for name in varied}, result, error)
            for each, (result, error) in zip(combinations, found, strict=True)
        )
    )


def _run(job: tuple[Scenario, list[str]]) -> tuple[Result | None, str | None]:
    scenario, notes = job
    try:
        done, found = run_scenario(scenario)
    except (OutOfMemory, Unstable) as error:
        return None, str(error)
    return _result(scenario, done.result, [*notes, *found]), None


def _importable(cls: type) -> bool:
    """Tell whether another process can import a class."""
    return cls.__module__ != "__main__" and "<locals>" not in cls.__qualname__


def _is_many(value: Any) -> bool:
    return isinstance(value, list | tuple | range) or (hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1)


def _list_of(values: Any) -> list[Any]:
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _label(value: Any) -> Any:
    """Return a value as a row shows it: itself, or the name of an object and its settings, those by default left out.

    `Graph(window_ms=20)` becomes "graph(window_ms=20)"."""
    if isinstance(value, str | int | float) or value is None:
        return value
    name = entry_of(value).name if hasattr(value, "build") else type(value).__name__
    given = [f"{key}={each}" for key, each in _flat(value).items()]
    if isinstance(value, Workload):
        given.append(_label(value.traffic))
    return f"{name}({', '.join(given)})" if given else name
