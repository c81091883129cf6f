"""The demo's report: a table for people, JSON for machines, a picture and a trace."""

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

from headrace.bitstreams.build import CLOCK_MHZ
from headrace.host.demo.run import Run
from headrace.host.demo.stages import Clocks, DemoReport
from headrace.host.demo.trace import write_trace

PARTS = {
    "cu_wait": "wait for a unit",
    "preprocess": "preprocess",
    "queue": "queue",
    "batch": "batch",
    "execute": "execute",
}
EMULATION_NOTE = (
    "The DPU is emulated: its C++ runs on this machine's cores, which it shares with the network. "
    "Its wall time says nothing of a card's."
)
CLOCKED_NOTE = (
    "The DPU is emulated clock by clock: its RTL runs, Verilated, on this machine's cores, which it shares with the "
    "network. Its wall time says nothing of a card's; its cycles do."
)

SIMULATION_NOTE = "The NPUs are simulated: the network takes the time that the model says and computes nothing."


def workers_kind(report: DemoReport) -> str:
    return "simulated NPUs" if report.simulated else "workers"


def as_json(report: DemoReport) -> dict[str, Any]:
    """Everything measured, with the result keys of every Headrace run."""
    options = report.options
    knee = report.profile.knee()
    note = CLOCKED_NOTE if report.clocks else EMULATION_NOTE
    limits = {"batch_max": knee.batch, "time_queue_ms": knee.latency_s / report.workers * 1e3}
    return {
        "model": options.model,
        "photos": report.equality.photos,
        "skipped": report.skipped,
        "machine": report.machine,
        "workers": report.workers,
        "workers_simulated": report.simulated,
        "image_cus": report.cus,
        "rate_rps": report.rate_rps,
        "sla_ms": options.sla_s * 1e3,
        "window_ms": options.window_s * 1e3,
        "max_batch": options.max_batch,
        "preba": limits,
        "preprocess_images_per_s": report.preprocess_rps,
        "dpu_clocks": _clocks(report.clocks),
        "note": f"{note} {SIMULATION_NOTE}" if report.simulated else note,
        "equality": {
            "photos": report.equality.photos,
            "on_dpu": report.equality.on_dpu,
            "equal": report.equality.equal,
            "max_difference": report.equality.max_difference,
            "unsupported": report.equality.unsupported,
        },
        "runs": [
            {
                "name": run.name,
                **run.result,
                "breakdown_ms": run.breakdown_ms(),
                "preprocessed_on_cpu": _on_cpu(run),
                "tensors_compared": _compared(run),
                "tensors_equal": sum(record.equal is True for record in run.records),
                "max_difference": max((r.max_difference or 0.0 for r in run.records), default=0.0),
                "workers_lost": run.workers_lost,
                "errors": sorted({record.error for record in run.records if record.error}),
            }
            for run in report.runs
        ],
    }


def _clocks(clocks: Clocks | None) -> dict[str, Any] | None:
    if clocks is None:
        return None
    return {
        "images": clocks.images,
        "cycles_mean": clocks.cycles / clocks.images,
        "cycles_per_pixel": clocks.cycles_per_pixel,
        "images_per_s_per_cu": clocks.images_per_s,
        "clock_mhz": CLOCK_MHZ,
        "counters": clocks.counters,
    }


def _on_cpu(run: Run) -> int:
    return sum(record.preprocessed is not None and record.preprocessed.unit == "cpu" for record in run.records)


def _compared(run: Run) -> int:
    return sum(record.equal is not None for record in run.records)


def _number(value: object, digits: int = 1) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float) else "-" if value is None else str(value)


def print_report(report: DemoReport, console: Console) -> None:
    data = as_json(report)
    equality = report.equality
    console.print(
        f"{data['model']} on {report.workers} {workers_kind(report)}, {report.cus} emulated image CUs, "
        f"{report.options.requests} Poisson requests at {report.rate_rps:.1f} requests/s over {data['photos']} photos; "
        f"{report.machine['cpu']}, {report.machine['cores']} cores."
    )
    console.print(
        f"DPU against OpenCV: {equality.equal} of {equality.on_dpu} tensors equal bit for bit, "
        f"max difference {equality.max_difference:g}."
        + (f" Not taken by the DPU: {equality.unsupported}." if equality.unsupported else "")
    )
    if (clocks := data["dpu_clocks"]) is not None:
        console.print(
            f"Image CU: {clocks['cycles_mean']:,.0f} cycles a photo, {clocks['cycles_per_pixel']:.3f} a pixel; "
            f"{clocks['images_per_s_per_cu']:,.0f} such photos/s from each CU at {clocks['clock_mhz']} MHz."
        )
    for name, reason in report.skipped.items():
        console.print(f"Skipped {name}: {reason}", highlight=False, markup=False)
    knee = report.profile.knee()
    console.print(
        f"Knee of the profile: batch {knee.batch}, {knee.latency_s * 1e3:.1f} ms, "
        f"{knee.throughput_rps:.0f} requests/s; preba: Batch_max {data['preba']['batch_max']}, "
        f"Time_queue {data['preba']['time_queue_ms']:.1f} ms."
    )
    results = Table(title="Throughput and latency", title_justify="left")
    breakdown = Table(title="Mean time of a request, ms", title_justify="left")
    for heading in ("run", "done", "failed", "req/s", "mean ms", "p50", "p95", "p99", "batch", "late", "DPU=CV"):
        results.add_column(heading, justify="left" if heading == "run" else "right")
    breakdown.add_column("run")
    for heading in PARTS.values():
        breakdown.add_column(heading, justify="right")
    for run in data["runs"]:
        latency = run["latency_ms"]
        late = run["sla_violation_rate"]
        results.add_row(
            run["name"],
            str(run["finished"]),
            str(run["failed"] + run["shed"]),
            _number(run["throughput_rps"]),
            *(_number(latency[key]) for key in ("mean", "p50", "p95", "p99")),
            _number(run["batch_size_mean"], 2),
            "-" if late is None else f"{late:.1%}",
            f"{run['tensors_equal']}/{run['tensors_compared']}",
        )
        breakdown.add_row(run["name"], *(_number(run["breakdown_ms"][part]) for part in PARTS))
    console.print(results)
    console.print(breakdown)
    for run in data["runs"]:
        if run["workers_lost"]:
            console.print(f"{run['name']}: {run['workers_lost']} worker(s) lost and started again.")
        for error in run["errors"]:
            console.print(f"{run['name']}: {error}")
    console.print(data["note"])


def write_report(report: DemoReport, folder: Path) -> list[Path]:
    """Writes report.json, profile.json, demo.png and trace.pftrace into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("report.json", "profile.json", "demo.png", "trace.pftrace")]
    paths[0].write_text(json.dumps(as_json(report), indent=2) + "\n")
    paths[1].write_text(report.profile.to_json())
    _plot(report, paths[2])
    write_trace(paths[3], report.runs)
    return paths


def _plot(report: DemoReport, path: Path) -> None:
    figure, (cdf, bars, curve) = plt.subplots(1, 3, figsize=(17, 5), width_ratios=(1.1, 1.2, 1))
    for number, run in enumerate(report.runs):
        latencies = sorted(
            (r.inference.served.finished - r.inference.served.arrival) * 1e3 for r in run.records if r.inference
        )
        shares = np.arange(1, len(latencies) + 1) / max(1, len(latencies))
        cdf.step(latencies, shares, where="post", label=run.name, color=f"C{number}")
    cdf.set(xlabel="latency, ms", ylabel="share of requests", ylim=(0, 1), title="Latency, arrival to output")
    cdf.set_xscale("log")
    cdf.grid(alpha=0.3, which="both")
    cdf.legend(loc="lower right", fontsize=8)

    names = [run.name for run in report.runs]
    left = np.zeros(len(names))
    for part, label in PARTS.items():
        width = np.array([run.breakdown_ms()[part] or 0.0 for run in report.runs])
        bars.barh(names, width, left=left, label=label)
        left += width
    bars.invert_yaxis()
    bars.set(xlabel="mean ms of a request", title="Where the time went")
    bars.legend(fontsize=8)

    knee = report.profile.knee()
    curve.plot(
        [p.throughput_rps for p in report.profile.points], [p.latency_s * 1e3 for p in report.profile.points], "o-"
    )
    for point in report.profile.points:
        curve.annotate(
            f"batch {point.batch}", (point.throughput_rps, point.latency_s * 1e3),
            textcoords="offset points", xytext=(-8, 6), fontsize=8, ha="right",
        )  # fmt: skip
    curve.plot(knee.throughput_rps, knee.latency_s * 1e3, "o", ms=13, mfc="none", mec="C3", label="knee")
    curve.set(
        xlabel="requests/s, all workers", ylabel="latency of a batch, ms", title=f"Profile of {report.profile.model}"
    )
    curve.margins(0.18)  # room for the labels
    curve.grid(alpha=0.3)
    curve.legend()
    figure.suptitle(
        f"{report.options.model}, {report.workers} {workers_kind(report)}, {report.cus} emulated CUs, "
        f"{report.rate_rps:.0f} requests/s ({report.machine['cpu']}, {report.machine['cores']} cores; "
        "the emulated DPU's time is not a card's)",
        fontsize=10,
    )
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)
