"""The parts that the reports of all demos share: JSON and tables of live runs, comparisons in words, and the files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from headrace.batching import Profile
from headrace.batching.settings import settings_of
from headrace.host.demo.options import BEFOREHAND, DemoOptions
from headrace.host.demo.report.page import Page
from headrace.host.demo.report.picture import Bars, Strip, draw
from headrace.host.demo.report.tables import Table, number
from headrace.host.demo.report.trace import write_trace
from headrace.host.demo.runs.live import LiveReport
from headrace.host.demo.runs.serving import Run
from headrace.host.dpu.preprocessor import CuRun
from headrace.sim.plot_style import DARK, themed_path

PART_NAMES = {
    "sent_late": "sent late",
    "cu_wait": "wait for a unit",
    "preprocess": "preprocess",
    "queue": "queue",
    "batch": "batch",
    "execute": "execute",
}
READING = (
    (
        "serial, graph, preba",
        "Policies. serial runs one request at a time. graph makes a batch when it is full or its window is over. preba "
        "takes both limits from the profile of the network: the knee, beyond which batches only take longer.",
    ),
    (
        "asked/s, done/s",
        "The arrival rate, and the rate of the answers. All policies at one rate get the same Poisson arrivals.",
    ),
    ("mean, p50, p95, p99", "Latency in ms from the planned arrival of a request to its answer."),
    ("late", "The share of requests above the target latency, which is four times the latency of a batch of the knee."),
    ("batch", "The mean number of requests in a batch."),
    (
        "DPU ok",
        "Tensors that were preprocessed in this run: those that agree with the CPU's reference, of all.",
    ),
    (
        "sent late ... execute",
        "The parts of a request's time: until it is sent, until a unit or core takes it, preprocessing, the queue of "
        "the policy, the batch around the network, and the network itself.",
    ),
    (
        "grows, full",
        "A part that is full. Its queue grows for as long as the run lasts, so there is no latency to report.",
    ),
)
NO_GAIN = 1.1  # batches must bring this many times the rate for batching to pay

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
        "one_by_one_rps": report.capacity.one_by_one_rps,
        "in_batches_rps": report.capacity.in_batches_rps,
        "sla_ms": report.slo_s * 1e3,
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


def print_line(console: Console, text: str) -> None:
    """Print text as it is, without markup."""
    console.print(text, highlight=False, markup=False)


def live_tables(runs: Sequence[dict[str, Any]]) -> list[Table]:
    """Return tables of the runs that `run_json` returned."""
    return [_results(runs), _breakdown(runs)]


def print_runs(runs: Sequence[dict[str, Any]], console: Console) -> None:
    """Print the runs that `run_json` returned as tables, then their lost workers and errors."""
    for table in live_tables(runs):
        table.print(console)
    for run in runs:
        if run["workers_lost"]:
            console.print(f"{run['name']}: {run['workers_lost']} worker(s) lost and started again.", markup=False)
        for error in run["errors"]:
            console.print(f"{run['name']}: {error}", markup=False)


def _results(runs: Sequence[dict[str, Any]]) -> Table:
    headings = ("run", "asked/s", "done", "failed", "done/s", "mean ms", "p50", "p95", "p99", "batch", "late", "DPU ok")
    rows = [
        (
            run["name"],
            number(run["rate_rps"]),
            str(run["finished"]),
            str(run["requests"] - run["finished"]),
            number(run["throughput_rps"]),
            *(number(run["latency_ms"][key]) for key in ("mean", "p50", "p95", "p99")),
            number(run["batch_size_mean"], 2),
            percent(run["sla_violation_rate"]),
            f"{run['tensors_equal']}/{run['tensors_compared']}" if run["tensors_compared"] else "-",
        )
        for run in runs
    ]
    return Table("Live: throughput and latency", headings, [rows])


def _breakdown(runs: Sequence[dict[str, Any]]) -> Table:
    rows = []
    for run in runs:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(run["reasons"].items()))
        rows.append((run["name"], *(number(run["breakdown_ms"][part]) for part in PART_NAMES), reasons))
    headings = ("run", *PART_NAMES.values(), "tasks")
    return Table("Live: mean time of a request, ms, and why tasks left", headings, [rows], (0, len(headings) - 1))


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def batching(report: LiveReport, what: str) -> list[str]:
    """Return sentences that say what batching brought in the runs that compare the policies. `what` names requests."""
    runs, capacity = report.compared, report.capacity
    rate, alone, batched = report.rates_rps[runs[0].preprocessor], capacity.one_by_one_rps, capacity.in_batches_rps
    digits = 0 if rate >= 10 else 1
    late = ", ".join(f"{percent(run.result['sla_violation_rate'])} with {run.policy}" for run in runs)
    sentences = [
        f"At {rate:.{digits}f} {what}/s, {rate / alone:.2f} times what the workers sustain one by one "
        f"({alone:.{digits}f}/s) and {rate / batched:.2f} times what they sustain in batches of the knee "
        f"({batched:.{digits}f}/s), a request took on average {each_mean(runs, [run.policy for run in runs])}. "
        f"Late, above {report.slo_s * 1e3:.0f} ms, were {late}."
    ]
    if batched < NO_GAIN * alone:
        sentences.append("Batches bring hardly any throughput here, so batching cannot pay.")
    elif rate < alone:
        sentences.append("The workers sustain that one by one, so batching has nothing to gain.")
    return sentences


def late_line(report: LiveReport, what: str) -> str:
    """Return a line that compares the late requests of the policies."""
    rate = report.rates_rps[report.compared[0].preprocessor]
    late = late_shares({run.policy: run.result["sla_violation_rate"] for run in report.compared}, report.slo_s)
    return f"Batching: at {rate:.{0 if rate >= 10 else 1}f} {what}/s, {late}."


def late_shares(late: Mapping[str, float | None], slo_s: float) -> str:
    """Return the shares of late requests in words: "9% of the requests take over 5 ms with a and 1% with b"."""
    (first, share), *others = ((name, "none" if each is None else f"{each:.0%}") for name, each in late.items())
    more = [f"{each} with {name}" for name, each in others]
    parts = [f"{share} of the requests take over {slo_s * 1e3:.0f} ms with {first}", *more]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if more else parts)


def live_strip(report: LiveReport, what: str) -> Strip:
    """Return the part of the picture that compares the policies, from the runs on this machine.

    Where they preprocess, the latencies count from the tensor on: the time of the emulated DPU is not a card's."""
    runs = report.compared
    made = runs[0].preprocessor == BEFOREHAND
    latencies = {run.policy: run.latencies_s(from_tensor=not made) for run in runs}
    rate = report.rates_rps[runs[0].preprocessor]
    return policies_strip(
        f"This machine: {' and '.join(runs[0].result['models'])}, {rate:.{0 if rate >= 10 else 1}f} {what}/s"
        + ("" if made else ", from the tensor on"),
        {name: 1e3 * float(np.mean(each)) if len(each) else None for name, each in latencies.items()},
        {name: 1e3 * float(np.quantile(each, 0.99)) if len(each) else None for name, each in latencies.items()},
        {run.policy: 1 - float(np.sum(latencies[run.policy] <= report.slo_s)) / run.result["requests"] for run in runs},
        report.slo_s,
        simulated=False,
    )


def policies_strip(
    heading: str,
    mean_ms: Mapping[str, float | None],
    p99_ms: Mapping[str, float | None],
    late: Mapping[str, float],
    slo_s: float,
    *,
    simulated: bool,
) -> Strip:
    """Return a part of the picture with mean, 99th percentile and late share by policy."""
    return Strip(
        heading,
        (
            Bars("mean latency, ms", mean_ms, {name: shown(value) for name, value in mean_ms.items()}),
            Bars("99th percentile, ms", p99_ms, {name: shown(value) for name, value in p99_ms.items()}),
            Bars(f"late, over {slo_s * 1e3:.0f} ms", late, {name: f"{value:.0%}" for name, value in late.items()}),
        ),
        simulated,
    )


def shown(value: float | None) -> str:
    """Return a number as a bar shows it."""
    if value is None:
        return "none served"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def write_files(
    report: LiveReport,
    body: Mapping[str, Any],
    page: Page,
    strips: Sequence[Strip],
    folder: Path,
    profile_name: str,
    cu_runs: Mapping[str, Iterable[tuple[str, Sequence[CuRun]]]] | None = None,
) -> list[Path]:
    """Write report.html, report.json, both pictures, trace.pftrace and the profiles into `folder`. Return the paths.

    `body` is the report as JSON, and `strips` are the parts of the picture. `{}` in `profile_name` stands for a
    profile's network. `cu_runs` are CU runs before the live runs, as in `write_trace`."""
    folder.mkdir(parents=True, exist_ok=True)
    profiles: dict[str, Profile] = {
        profile_name.format(name.replace(":", ".")): profile for name, profile in report.profiles.items()
    }
    html, pictures = folder / "report.html", folder / "demo.png"
    paths = [folder / name for name in ("report.json", "trace.pftrace", *profiles)]
    paths[0].write_text(json.dumps(body, indent=2) + "\n")
    write_trace(paths[1], report.runs, cu_runs)
    for path, profile in zip(paths[2:], profiles.values(), strict=True):
        path.write_text(profile.to_json())
    draw(pictures, strips)
    html.write_text(page.html(pictures, [path.name for path in paths]))
    return [*paths, pictures, themed_path(pictures, DARK), html]
