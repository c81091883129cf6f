"""The parts that the reports of all demos share: JSON and tables of live runs, comparisons in words, and the files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.batching import Profile
from headrace.batching.settings import settings_of
from headrace.host.demo.options import DemoOptions
from headrace.host.demo.report.picture import PART_NAMES, draw
from headrace.host.demo.report.trace import write_trace
from headrace.host.demo.runs.live import LiveReport
from headrace.host.demo.runs.serving import Run
from headrace.host.dpu.preprocessor import CuRun

EMULATION_NOTE = (
    "The DPU is emulated: its C++ runs on this machine's cores, which it shares with the network. "
    "Its wall time does not show how fast a card is."
)
CLOCKED_NOTE = (
    "The DPU is emulated clock by clock: its RTL runs, Verilated, on this machine's cores, which it shares with the "
    "network. Its cycles show how fast a card is; its wall time does not."
)


def live_json(report: LiveReport, sentences: Sequence[str], note: str) -> dict[str, Any]:
    """Return the keys that all reports have. `sentences` say what the runs show."""
    return {
        "machine": dict(report.machine),
        "workers": report.workers,
        "rates_rps": dict(report.rates_rps),
        "one_by_one_rps": report.one_by_one_rps,
        "in_batches_rps": report.in_batches_rps,
        "sla_ms": report.options.slo_s * 1e3,
        "max_batch": report.options.max_batch,
        "settings": {name: _policy_json(report.options, name) for name in report.options.policies},
        "shows": list(sentences),
        "note": note,
    }


def _policy_json(options: DemoOptions, name: str) -> dict[str, Any]:
    """Return the settings of a policy, by name."""
    policy = options.policy(name)
    values = {each.name: getattr(policy, each.name) for each in settings_of(type(policy))}
    return {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}


def run_json(run: Run, rate_rps: float) -> dict[str, Any]:
    """Return one live run, with the result keys of every Headrace run."""
    records = run.records
    return {
        "name": run.name,
        "preprocessor": run.preprocessor,
        "policy": run.policy,
        "rate_rps": rate_rps,
        **run.result,
        "breakdown_ms": run.breakdown_ms(),
        "preprocessed_on_cpu": sum(r.preprocessed is not None and r.preprocessed.unit == "cpu" for r in records),
        "tensors_compared": sum(r.equal is not None for r in records),
        "tensors_equal": sum(r.equal is True for r in records),
        "max_difference": max((r.max_difference or 0.0 for r in records), default=0.0),
        "errors": sorted({r.error for r in records if r.error}),
    }


def comparisons(runs: Sequence[Run]) -> list[str]:
    """Return a sentence for each run after the first, which compares its policy with the first run's."""
    sentences = []
    for run in runs[1:]:
        parts = []
        for what, key in (("mean latency", "mean"), ("95th percentile", "p95")):
            first, this = runs[0].result["latency_ms"][key], run.result["latency_ms"][key]
            if first and this:
                parts.append(f"{this / first:.2f} times its {what}")
        late = [one.result["sla_violation_rate"] for one in (run, runs[0])]
        if None not in late:
            parts.append(f"{late[0]:.1%} late requests instead of {late[1]:.1%}")
        if parts:
            sentences.append(f"Compared with {runs[0].policy}, {run.policy} had {', '.join(parts)}.")
    return sentences


def each_mean(runs: Sequence[Run], names: Sequence[str]) -> str:
    """Return the mean latency of each run, in words: "12 ms with serial, 10 ms with preba"."""
    parts = []
    for run, name in zip(runs, names, strict=True):
        mean = run.result["latency_ms"]["mean"]
        parts.append(f"{'-' if mean is None else f'{mean:.0f} ms'} with {name}")
    return ", ".join(parts)


def number(value: object, digits: int = 1) -> str:
    """Return a value for a cell of a table; None becomes "-"."""
    return f"{value:.{digits}f}" if isinstance(value, float) else "-" if value is None else str(value)


def print_line(console: Console, text: str) -> None:
    """Print text as it is, without markup."""
    console.print(text, highlight=False, markup=False)


def print_runs(runs: Sequence[dict[str, Any]], console: Console) -> None:
    """Print the runs that `run_json` returned as tables, then their lost workers and errors."""
    console.print(_results(runs))
    console.print(_breakdown(runs))
    for run in runs:
        if run["workers_lost"]:
            console.print(f"{run['name']}: {run['workers_lost']} worker(s) lost and started again.", markup=False)
        for error in run["errors"]:
            console.print(f"{run['name']}: {error}", markup=False)


def _results(runs: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Live: throughput and latency", title_justify="left")
    headings = ("run", "asked/s", "done", "failed", "done/s", "mean ms", "p50", "p95", "p99", "batch", "late", "DPU ok")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "run" else "right", no_wrap=True)
    for run in runs:
        late = run["sla_violation_rate"]
        table.add_row(
            run["name"],
            number(run["rate_rps"]),
            str(run["finished"]),
            str(run["requests"] - run["finished"]),
            number(run["throughput_rps"]),
            *(number(run["latency_ms"][key]) for key in ("mean", "p50", "p95", "p99")),
            number(run["batch_size_mean"], 2),
            "-" if late is None else f"{late:.1%}",
            f"{run['tensors_equal']}/{run['tensors_compared']}" if run["tensors_compared"] else "-",
        )
    return table


def _breakdown(runs: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Live: mean time of a request, ms, and why tasks left", title_justify="left")
    table.add_column("run", no_wrap=True)
    for heading in PART_NAMES.values():
        table.add_column(heading, justify="right")
    table.add_column("tasks")
    for run in runs:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(run["reasons"].items()))
        table.add_row(run["name"], *(number(run["breakdown_ms"][part]) for part in PART_NAMES), reasons)
    return table


def write_files(
    report: LiveReport,
    body: Mapping[str, Any],
    folder: Path,
    profile_name: str,
    cu_runs: Mapping[str, Iterable[tuple[str, Sequence[CuRun]]]] | None = None,
) -> list[Path]:
    """Write report.json, demo.png, trace.pftrace and the profiles into `folder`, and return the paths.

    `body` is the report as JSON. `{}` in `profile_name` stands for a profile's network. `cu_runs` are CU runs before
    the live runs, as in `write_trace`."""
    folder.mkdir(parents=True, exist_ok=True)
    profiles: dict[str, Profile] = {
        profile_name.format(name.replace(":", ".")): profile for name, profile in report.profiles.items()
    }
    paths = [folder / name for name in ("report.json", "demo.png", "trace.pftrace", *profiles)]
    paths[0].write_text(json.dumps(body, indent=2) + "\n")
    draw(report, body["shows"], paths[1])
    write_trace(paths[2], report.runs, cu_runs)
    for path, profile in zip(paths[3:], profiles.values(), strict=True):
        path.write_text(profile.to_json())
    return paths
