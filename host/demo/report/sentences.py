"""Report the sentence demo as sentences, JSON, tables and files."""

from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.host.demo.options import BEFOREHAND
from headrace.host.demo.report.live import (
    comparisons,
    each_mean,
    live_json,
    print_line,
    print_runs,
    run_json,
    write_files,
)
from headrace.host.demo.runs.sentences import NOTE, SentenceReport


def shows(report: SentenceReport) -> list[str]:
    """Return sentences that say what the runs show, from the measurements."""
    rate, alone, batched = report.rates_rps[BEFOREHAND], report.one_by_one_rps, report.in_batches_rps
    means = each_mean(report.runs, [run.policy for run in report.runs])
    return [
        f"At {rate:.0f} sentences/s, {rate / alone:.2f} times what the workers sustain one by one ({alone:.0f}/s) and "
        f"{rate / batched:.2f} times what they sustain in batches without padding ({batched:.0f}/s), a sentence took "
        f"on average {means}.",
        *comparisons(report.runs),
    ]


def as_json(report: SentenceReport) -> dict[str, Any]:
    """Return everything that was measured."""
    return {
        "models": list(report.profiles),
        **live_json(report, shows(report), NOTE),
        "runs": [run_json(run, report.rates_rps[BEFOREHAND]) | {"name": run.policy} for run in report.runs],
    }


def print_report(report: SentenceReport, console: Console) -> None:
    """Print the report as lines and tables."""
    data = as_json(report)
    print_line(
        console,
        f"{' and '.join(report.profiles)} on {report.hardware}, Poisson sentences; {report.machine['cpu']}, "
        f"{report.machine['cores']} cores.",
    )
    print_runs(data["runs"], console)
    for sentence in (*data["shows"], data["note"]):
        print_line(console, sentence)


def write_report(report: SentenceReport, folder: Path) -> list[Path]:
    """Write report.json, demo.png, trace.pftrace and profile.json into `folder`."""
    return write_files(report, as_json(report), folder, "profile.json")
