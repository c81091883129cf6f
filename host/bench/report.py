"""What came of a run: the result with the keys that all of Headrace's runs have, a table, a plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from headrace.batching import percentiles_ms
from headrace.host.bench.client import Statistics, Status
from headrace.host.bench.run import Answers

LATE_SHARE = 0.1  # of the median latency: a client that is later than this measures itself
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
    """Latencies are of requests that were answered OK, from when they were planned; `service_ms` is the same from when
    they left, and `lateness_ms` is between the two. Throughput counts OKs from the first planned to the last end. With
    `timeout_s`, what was not OK within it is a violation. Mean batch and wait in the queue are from the server's own
    counters, where it has them, and of all that it did meanwhile; `client_cpu_us` is this side's work by request."""
    ok = answers.of(Status.OK)
    latency_s = (answers.ended - answers.planned)[ok]
    counts = {status.name.lower(): int(answers.of(status).sum()) for status in Status}
    requests = len(answers.planned)
    span_s = float(answers.ended[ok].max() - answers.planned[0]) if ok.any() else 0.0
    every_end = np.append(answers.ended[~np.isnan(answers.ended)], 0.0)
    found = {
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
        found["batch_size_mean"] = inferences / (after.executions - before.executions)
        if inferences > 0:
            found["queue_ms"] = (after.queue_ns - before.queue_ns) / inferences / 1e6
    return found


def notes(run: Mapping[str, Any], answers: Answers) -> list[str]:
    """What a reader of the figures must know: what went wrong, and whether the client was the bottleneck."""
    found = [
        f"{status.name.lower()}: {text}" for status, texts in sorted(answers.said.items()) for text in texts if text
    ]
    late, latency = run["lateness_ms"]["p99"], run["latency_ms"]["p50"]
    if late is not None and latency is not None and late > max(LATE_MS, LATE_SHARE * latency):
        found.append(
            f"1 % of the requests left {late:.1f} ms late or more: this machine, --processes or --connections are at "
            "their limit, and latencies count that"
        )
    return found


def table(title: str, runs: Sequence[Mapping[str, Any]]) -> Table:
    """A row a run; of the ways in which requests end, those that there were."""
    made = Table(title=title, title_justify="left")
    ends = [name for name in runs[0]["statuses"] if name != "ok" and any(run["statuses"][name] for run in runs)]
    for heading in ("rate/s", "sent", "ok", *ends, "ok/s", "mean ms", "p50", "p95", "p99", "max", "sent late p99"):
        made.add_column(heading, justify="right")
    for run in runs:
        latency = run["latency_ms"]
        numbers = [run["rate_rps"], run["requests"], *(run["statuses"][name] for name in ("ok", *ends))]
        numbers += [run["throughput_rps"], *(latency[name] for name in ("mean", *PERCENTILES, "max"))]
        made.add_row(*(_shown(number) for number in (*numbers, run["lateness_ms"]["p99"])))
    return made


def _shown(number: float | None) -> str:
    if number is None or isinstance(number, int):
        return "-" if number is None else str(number)
    return f"{number:.0f}" if number >= 1000 else f"{number:.3g}"


def draw(path: Path, title: str, runs: Sequence[Mapping[str, Any]], answers: Sequence[Answers]) -> None:
    """Latency by load, what became of the requests, and the share of requests that took longer than a time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (by_load, ends, tails) = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    figure.suptitle(title)
    rates = [run["rate_rps"] or run["throughput_rps"] or 0.0 for run in runs]
    for percentile in PERCENTILES:
        by_load.plot(rates, [run["latency_ms"][percentile] or np.nan for run in runs], "o-", label=percentile)
    by_load.set(xlabel="requests/s asked", ylabel="latency from the planned send, ms", yscale="log", title="by load")
    by_load.legend()
    sums = np.zeros(len(runs))
    places = np.arange(len(runs))
    for status in Status:
        shares = np.array([run["statuses"][status.name.lower()] / max(run["requests"], 1) for run in runs])
        if shares.any():
            ends.bar(places, shares, bottom=sums, label=status.name.lower(), color=f"C{int(status)}")
            sums += shares
    ends.set(xticks=places, xticklabels=[f"{rate:.0f}" for rate in rates], ylim=(0, 1))
    ends.set(xlabel="requests/s asked", ylabel="share of requests", title="how requests ended")
    ends.legend(loc="lower left")
    for rate, one in zip(rates, answers, strict=True):
        ok = one.of(Status.OK)
        latency_ms = np.sort((one.ended - one.planned)[ok]) * 1e3
        tails.step(latency_ms, 1 - np.arange(len(latency_ms)) / max(len(latency_ms), 1), label=f"{rate:.0f}/s")
    tails.set(xlabel="latency, ms", ylabel="share that took longer", xscale="log", yscale="log", title="tails")
    tails.legend()
    for axes in (by_load, tails):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
