"""The runs of `headrace simulate --grid`, with progress, and the table of their results."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.table import Table

from headrace.host.cli.console import Stages, out, progress, tell
from headrace.host.cli.options import make_folder
from headrace.sim.decoding.scenario import DecodingScenario
from headrace.sim.scenario import Scenario
from headrace.sim.sweeps.grid import Found, run
from headrace.sim.sweeps.journal import Journal
from headrace.sim.sweeps.sweep import worker_pool

AnyScenario = Scenario | DecodingScenario

SHOWN: Final = (  # headings of the table, and the keys of their numbers in a result
    ("requests/s", ("throughput_rps",)),
    ("mean ms", ("latency_ms", "mean")),
    ("p99 ms", ("latency_ms", "p99")),
    ("late", ("sla_violation_rate",)),
    ("batch", ("batch_size_mean",)),
    ("utilization", ("utilization",)),
)
DECODING_SHOWN: Final = (  # the same for models that decode
    ("requests/s", ("throughput_rps",)),
    ("goodput/s", ("goodput_rps",)),
    ("first token ms", ("ttft_ms", "p50")),
    ("its p99", ("ttft_ms", "p99")),
    ("ms per token", ("tpot_ms", "p50")),
    ("its p99", ("tpot_ms", "p99")),
    ("late", ("sla_violation_rate",)),
    ("utilization", ("utilization",)),
)


def run_grid(scenarios: Sequence[AnyScenario], folder: Path | None, ray: str | None) -> list[Found]:
    """Return the result of each scenario, in their order. Results in `folder` are not simulated again."""
    if folder is not None:
        make_folder("--out", folder)
    journal = None if folder is None else Journal(folder / "runs.parquet", Found)
    if journal:
        tell(f"{len(journal)} runs are in {journal.path} and need not be run again")
    # The journal is closed first: a cluster takes longer to end than a command may take after Ctrl-C.
    with (
        worker_pool(len(scenarios), ray) as workers,
        nullcontext() if journal is None else journal,
        progress() as shown,
    ):
        stages = Stages(shown)
        stages.stage(f"{len(scenarios)} simulated runs", len(scenarios))
        return workers.sweep(run, scenarios, stages.step, journal, stages.skip)


def show_grid(varied: Sequence[str], scenarios: Sequence[AnyScenario], runs: Sequence[Found]) -> None:
    """Print a row for each combination of the `varied` settings, with means over its seeds."""
    shown = DECODING_SHOWN if all(isinstance(each, DecodingScenario) for each in scenarios) else SHOWN
    by_setting: dict[AnyScenario, list[Found]] = {}
    for scenario, each in zip(scenarios, runs, strict=True):
        by_setting.setdefault(replace(scenario, seed=0), []).append(each)
    table = Table(title=f"{len(runs)} runs; means over the seeds of each setting", title_justify="left")
    for heading in (*varied, "runs", *(heading for heading, _ in shown)):
        table.add_column(heading, justify="right")
    for setting, found in by_setting.items():
        good = [each.result for each in found if each.failed is None]
        numbers = [_mean(good, path) for _, path in shown]
        table.add_row(*(str(setting.flat().get(name)) for name in varied), str(len(good)), *numbers)
    out.print(table)
    for reason in dict.fromkeys(each.failed for each in runs if each.failed is not None):
        tell(f"some runs failed: {reason}")


def _mean(results: Sequence[Mapping[str, Any]], path: Sequence[str]) -> str:
    """Return the mean of a number of the results, in words. `path` has its keys."""
    numbers = []
    for result in results:
        value: Any = result
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int | float):
            numbers.append(value)
    return f"{fmean(numbers):.4g}" if numbers else "-"
