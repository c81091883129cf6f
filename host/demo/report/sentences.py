"""Report the sentence demo as sentences, JSON, tables and files."""

from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.host.demo.options import BEFOREHAND
from headrace.host.demo.report.live import (
    READING,
    batching,
    comparisons,
    live_json,
    live_strip,
    live_tables,
    print_line,
    print_runs,
    run_json,
    write_files,
)
from headrace.host.demo.report.page import Page
from headrace.host.demo.runs.sentences import NOTE, SentenceReport


def shows(report: SentenceReport) -> list[str]:
    """Return sentences that say what the runs show, from the measurements."""
    return [*batching(report, "sentences"), *comparisons(report.runs)]


def as_json(report: SentenceReport) -> dict[str, Any]:
    """Return everything that was measured."""
    return {
        "models": list(report.profiles),
        **live_json(report, shows(report), NOTE),
        "runs": [run_json(run, report.rates_rps[BEFOREHAND]) | {"name": run.policy} for run in report.runs],
    }


def _subtitle(report: SentenceReport) -> str:
    return (
        f"{' and '.join(report.profiles)} on {report.hardware}, Poisson sentences; {report.machine['cpu']}, "
        f"{report.machine['cores']} cores"
    )


def print_report(report: SentenceReport, console: Console) -> None:
    """Print the report as lines and tables."""
    data = as_json(report)
    print_line(console, f"{_subtitle(report)}.")
    print_runs(data["runs"], console)
    for sentence in (*data["shows"], data["note"]):
        print_line(console, sentence)


def write_report(report: SentenceReport, folder: Path) -> list[Path]:
    """Write report.html, report.json, the pictures, trace.pftrace and profile.json into `folder`."""
    body = as_json(report)
    page = Page(_subtitle(report), shows(report), [], "", live_tables(body["runs"]), READING, [NOTE])
    return write_files(report, body, page, [live_strip(report, "sentences")], folder, "profile.json")
