"""The report of a run: a result with the keys that all runs of Headrace have, a table, and a plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from headrace.batching import percentiles_ms
from headrace.host.bench.client import Statistics, Status
from headrace.host.bench.run import Answers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A client measures its own delay when it sends later than both limits: this share of the median latency, and LATE_MS.
LATE_SHARE = 0.1
LATE_MS = 1.0
PERCENTILES = ("p50", "p95", "p99")


def result(
    answers: Answers,
    *,
    rate_rps: float | None,
    timeout_s: float | None,
    before: Statistics | None,
    after: Statistics | None,
    seed: int,
) -> dict[str, Any]:
    """Return the result of a run as a dictionary with the fixed result keys.

    - `latency_ms` covers the requests that ended OK, from their planned times. `service_ms` counts from their send
        times, and `lateness_ms` is the difference of the two.
    - `throughput_rps` counts requests that ended OK, from the first planned time to the last end.
    - `sla_violation_rate` is the share of requests that did not end OK within `timeout_s`.
    - `batch_size_mean` and `queue_ms` come from the server's counters, where it has them. They include every request
        that the server served during the run.
    - `client_cpu_us` is the CPU time of the load generator per request."""
    ok = answers.of(Status.OK)
    latency_s = (answers.ended - answers.planned)[ok]
    counts = {status.name.lower(): int(answers.of(status).sum()) for status in Status}
    requests = len(answers.planned)
    span_s = float(answers.ended[ok].max() - answers.planned[0]) if ok.any() else 0.0
    every_end = np.append(answers.ended[~np.isnan(answers.ended)], 0.0)
    figures = {
        "rate_rps": rate_rps,
        "requests": requests,
        "finished": counts["ok"],
        "failed": counts["unavailable"] + counts["error"] + counts["unanswered"],
        "shed": counts["shed"],
        "dropped": counts["late"],
        "statuses": counts,
        "throughput_rps": counts["ok"] / span_s if span_s > 0 else None,
        "latency_ms": percentiles_ms(latency_s),
        "service_ms": percentiles_ms((answers.ended - answers.sent)[ok]),
        "lateness_ms": percentiles_ms((answers.sent - answers.planned)[~np.isnan(answers.sent)]),
        "queue_ms": None,
        "sla_violation_rate": 1 - int((latency_s <= timeout_s).sum()) / requests if timeout_s and requests else None,
        "batch_size_mean": None,
        "wall_s": float(every_end.max()),
        "client_cpu_us": answers.cpu_s / requests * 1e6 if requests else None,
        "seed": seed,
    }
    if before is not None and after is not None and after.executions > before.executions:
        inferences = after.inferences - before.inferences
        figures["batch_size_mean"] = inferences / (after.executions - before.executions)
        if inferences > 0:
            figures["queue_ms"] = (after.queue_ns - before.queue_ns) / inferences / 1e6
    return figures


def notes(run: Mapping[str, Any], answers: Answers) -> list[str]:
    """Return warnings about a run: the error texts, and whether the client was the bottleneck."""
    warnings = [
        f"{status.name.lower()}: {text}"
        for status, texts in sorted(answers.error_texts.items())
        for text in texts
        if text
    ]
    late, latency = run["lateness_ms"]["p99"], run["latency_ms"]["p50"]
    if late is not None and latency is not None and late > max(LATE_MS, LATE_SHARE * latency):
        warnings.append(
            f"1 % of the requests were sent {late:.1f} ms late or more: this machine, --processes or --connections are "
            "at their limit, and the latencies include that delay"
        )
    return warnings


def table(title: str, runs: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with one row per run. It has a column for each way of ending that occurred."""
    rows = Table(title=title, title_justify="left")
    ends = [name for name in runs[0]["statuses"] if name != "ok" and any(run["statuses"][name] for run in runs)]
    for heading in ("rate/s", "sent", "ok", *ends, "ok/s", "mean ms", "p50", "p95", "p99", "max", "sent late p99"):
        rows.add_column(heading, justify="right")
    for run in runs:
        latency = run["latency_ms"]
        numbers = [run["rate_rps"], run["requests"], *(run["statuses"][name] for name in ("ok", *ends))]
        numbers += [run["throughput_rps"], *(latency[name] for name in ("mean", *PERCENTILES, "max"))]
        rows.add_row(*(_shown(number) for number in (*numbers, run["lateness_ms"]["p99"])))
    return rows


def _shown(number: float | None) -> str:
    if number is None or isinstance(number, int):
        return "-" if number is None else str(number)
    return f"{number:.0f}" if number >= 1000 else f"{number:.3g}"


def draw(path: Path, title: str, runs: Sequence[Mapping[str, Any]], answers: Sequence[Answers]) -> None:
    """Write a plot to `path`: latency by load, how requests ended, and the share of requests that took longer than a
    time."""
    from headrace.sim.plot_style import picture

    picture(_drawn)(path, title, runs, answers)


def _drawn(title: str, runs: Sequence[Mapping[str, Any]], answers: Sequence[Answers]) -> "Figure":
    from headrace.sim.plot_style import figure, headed, label_ends, others, plain_numbers, shades

    drawn, grid = figure(3, 1, 2.6)
    by_load, ends, tails = grid[:, 0]
    headed(drawn, title)
    rates = [run["rate_rps"] or run["throughput_rps"] or 0.0 for run in runs]
    for percentile, shade in zip(PERCENTILES, shades(len(PERCENTILES)), strict=True):
        values = [run["latency_ms"][percentile] or np.nan for run in runs]
        by_load.plot(rates, values, "o-", color=shade, label=percentile)
    by_load.set(xlabel="planned requests/s", ylabel="ms from the planned send", yscale="log", title="latency")
    plain_numbers(by_load.yaxis)
    sums = np.zeros(len(runs))
    places = np.arange(len(runs))
    for status, fill in zip(Status, others(len(Status)), strict=True):
        shares = np.array([run["statuses"][status.name.lower()] / max(run["requests"], 1) for run in runs])
        if shares.any():
            ends.bar(places, shares, bottom=sums, label=status.name.lower(), color=fill)
            sums += shares
    ends.set(xticks=places, xticklabels=[f"{rate:.0f}" for rate in rates], ylim=(0, 1))
    ends.set(xlabel="planned requests/s", ylabel="share", title="how requests ended")
    ends.grid(visible=False, axis="x")
    ends.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    for rate, one, shade in zip(rates, answers, shades(len(rates)), strict=True):
        ok = one.of(Status.OK)
        latency_ms = np.sort((one.ended - one.planned)[ok]) * 1e3
        longer = 1 - np.arange(len(latency_ms)) / max(len(latency_ms), 1)
        tails.step(latency_ms, longer, color=shade, label=f"{rate:.0f}/s")
    tails.set(xlabel="latency, ms", ylabel="share of requests", xscale="log", yscale="log", title="took longer")
    plain_numbers(tails.xaxis)
    label_ends(by_load, tails)
    return drawn
