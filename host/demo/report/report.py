"""The demo's report: a table for people, JSON for machines, a picture and a trace."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.batching import preba_limits
from headrace.bitstreams.build import CLOCK_MHZ
from headrace.host.demo.equality import Clocks, Equality
from headrace.host.demo.labels import RANDOM_NOTE
from headrace.host.demo.load import in_batches_rps, one_by_one_rps
from headrace.host.demo.options import BEFOREHAND
from headrace.host.demo.report.picture import PART_NAMES, draw
from headrace.host.demo.report.trace import write_trace
from headrace.host.demo.serving import Run
from headrace.host.demo.simulated import LOADED, Load, Server, Simulated
from headrace.host.demo.stages import DemoReport
from headrace.sim.system.dpu_server import CLOCK_HZ

EMULATION_NOTE = (
    "The DPU is emulated: its C++ runs on this machine's cores, which it shares with the network. "
    "Its wall time says nothing of a card's."
)
CLOCKED_NOTE = (
    "The DPU is emulated clock by clock: its RTL runs, Verilated, on this machine's cores, which it shares with the "
    "network. Its wall time says nothing of a card's; its cycles do."
)
SIMULATED_NOTE = (
    "Simulated: nothing of this was run. It stands beside the live runs with the same inputs, arrivals and policy, and "
    "its times are not to be compared with theirs."
)
SIMULATION_NOTE = "The NPUs are simulated: the network takes the time that the model says and computes nothing."


def as_json(report: DemoReport) -> dict[str, Any]:
    """Everything measured, with the result keys of every Headrace run."""
    options = report.options
    note = CLOCKED_NOTE if report.clocks else EMULATION_NOTE
    profiles = list(report.profiles.values())
    return {
        "models": {name: _model(report, name) for name in report.networks},
        "photos": len(report.distinct[0].photos),
        "skipped": {name: reason for part in report.distinct for name, reason in part.skipped.items()},
        "machine": report.machine,
        "workers": report.workers,
        "workers_simulated": bool(options.npus),
        "image_cus": report.cus,
        "rates_rps": dict(report.rates_rps),
        "one_by_one_rps": one_by_one_rps(profiles),
        "in_batches_rps": in_batches_rps(profiles),
        "sla_ms": options.sla_s * 1e3,
        "window_ms": options.window_s * 1e3,
        "max_batch": options.max_batch,
        "shows": shows(report),
        "note": f"{note} {SIMULATION_NOTE}" if options.npus else note,
        "equality": _equality(report.equality),
        "dpu_clocks": _clocks(report.clocks),
        "runs": [run_json(run, report.rates_rps[run.preprocessor]) for run in report.runs],
        "simulated": simulated_json(report.simulated),
    }


def _model(report: DemoReport, name: str) -> dict[str, Any]:
    network, prepared, profile = report.networks[name], report.prepared[name], report.profiles[name]
    limits = preba_limits(profile, report.workers)
    return {
        "input_shape": list(network.description.inputs[0].shape),
        "resize_short": network.spec.resize_short,
        "knee": {"batch": profile.knee().batch, "throughput_rps": profile.knee().throughput_rps},
        "preba": {"batch_max": limits.max_batch, "time_queue_ms": limits.window_s * 1e3},
        "preprocess_images_per_s": prepared.images_per_s,
        "equality": _equality(prepared.equality),
        "labels": {
            photo: {"label": found.label, "probability": found.probability}
            for photo, found in report.labels[name].items()
        },
        "labels_note": RANDOM_NOTE if report.labels[name] and network.is_random else None,
    }


def _equality(equality: Equality) -> dict[str, Any]:
    return {
        "photos": equality.photos,
        "on_dpu": equality.on_dpu,
        "equal": equality.equal,
        "max_difference": equality.max_difference,
        "unsupported": equality.unsupported,
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


def run_json(run: Run, rate_rps: float) -> dict[str, Any]:
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


def simulated_json(simulated: Simulated | str) -> dict[str, Any]:
    if isinstance(simulated, str):
        return {"left_out": simulated}
    return {
        "note": SIMULATED_NOTE,
        "server": simulated.server,
        "models": list(simulated.models),
        "policy": simulated.policy,
        "dpu": {
            "cus": simulated.cus,
            "clock_mhz": CLOCK_HZ / 1e6,
            "clocks_from": dict(simulated.clocks_from),
            "for_cpu": simulated.for_cpu,
        },
        "core_ms_measured": simulated.core_ms,
        "slices_rps": simulated.capacity_rps,
        "shows": simulated_shows(simulated),
        "loads": [
            {
                "rate_rps": load.rate_rps,
                "times_as_fast": load.faster,
                "runs": [
                    {
                        "name": each.name,
                        "preprocess": each.preprocess,
                        "busy_cores": each.busy_cores,
                        "limited_by": each.limited_by,
                        **each.result,
                    }
                    for each in load.servers
                ],
            }
            for load in simulated.loads
        ],
    }


def simulated_shows(simulated: Simulated) -> list[str]:
    """A sentence for each load."""
    live, loaded = simulated.loads
    medians = ", ".join(f"{each.result['latency_ms']['p50']:.1f} ms with {each.name}" for each in live.servers)
    return [
        f"Simulated, at the {live.rate_rps:.{_digits(live.rate_rps)}f} {simulated.what}/s of the live run, half of "
        f"them take no more than {medians}.",
        f"Simulated, {loaded.faster:,.{_digits(loaded.faster)}f} times as fast, at {loaded.rate_rps:,.0f}/s or "
        f"{LOADED:.0%} of what the slices do: {'; '.join(_served(each) for each in loaded.servers)}.",
    ]


def _served(server: Server) -> str:
    rate, p99 = server.result["throughput_rps"], server.result["latency_ms"]["p99"]
    many = f"{server.busy_cores:.0f} cores busy"
    if server.limited_by is None:
        return f"{server.name} {rate:,.0f}/s, 99 % within {p99:.1f} ms, {many}"
    return f"{server.name} no more than {rate:,.0f}/s, for {server.limited_by!r} is full, {many}"


def _digits(rate: float) -> int:
    return 0 if rate >= 10 else 1


def print_simulated(simulated: Simulated | str, console: Console) -> None:
    def line(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    if isinstance(simulated, str):
        line(f"The simulated part is left out: {simulated}.")
        return
    what = simulated.what
    console.print(_simulated_results(simulated))
    line(
        f"{' and '.join(simulated.models)} on {simulated.server}; DPU of {simulated.cus} at {CLOCK_HZ / 1e6:.0f} MHz; "
        f"on a core {simulated.core_ms:.2f} ms for each of the {what}, as measured here."
    )
    if simulated.clocks_from:
        sources = ", ".join(f"{count} by {source}" for source, count in simulated.clocks_from.items())
        line(f"Clocks of the {what}: {sources}.")
    if simulated.for_cpu:
        line(f"Of the {what}, {simulated.for_cpu} are not for the DPU and go to the CPU from there.")
    for sentence in (*simulated_shows(simulated), SIMULATED_NOTE):
        line(sentence)


def _simulated_results(simulated: Simulated) -> Table:
    table = Table(title=f"Simulated, not run: {simulated.server}", title_justify="left")
    headings = ("preprocessing", "asked/s", "done/s", "p50 ms", "p99", "busy cores", "J each", "limited by")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in (headings[0], headings[-1]) else "right", no_wrap=True)
    for load in simulated.loads:
        for each in load.servers:
            table.add_row(*_simulated_row(load, each))
        table.add_section()
    return table


def _simulated_row(load: Load, server: Server) -> list[str]:
    """Where a queue grows, latencies tell how long the run was, and nothing else."""
    latencies = [_number(server.result["latency_ms"][key]) for key in ("p50", "p99")]
    return [
        server.name,
        f"{load.rate_rps:,.1f}",
        f"{server.result['throughput_rps']:,.1f}",
        *(latencies if server.limited_by is None else ["grows", "grows"]),
        _number(server.busy_cores),
        _number(server.result["energy_per_request_j"], 4),
        server.limited_by or "",
    ]


def shows(report: DemoReport) -> list[str]:
    """What the runs show, a sentence for each load, from what was measured."""
    rate = report.rates_rps.get(BEFOREHAND)
    sentences = []
    if rate is not None:
        profiles = list(report.profiles.values())
        alone, batched = one_by_one_rps(profiles), in_batches_rps(profiles)
        runs = [run for run in report.runs if run.preprocessor == BEFOREHAND]
        sentences.append(
            f"At {rate:.0f} requests/s, {rate / alone:.2f} times what the workers sustain one by one ({alone:.0f}/s) "
            f"and {rate / batched:.2f} times what they sustain in batches of the knee ({batched:.0f}/s), a request "
            f"took on average {each_mean(runs, [run.policy for run in runs])}."
        )
        sentences += gains(runs)
        if batched < 1.1 * alone:
            sentences.append("Batches bring hardly any throughput here, so batching cannot pay.")
        elif rate < alone:
            sentences.append("The workers sustain that one by one, so batching has nothing to gain.")
    policy = report.options.policies[0]
    runs = [run for run in report.runs if run.preprocessor != BEFOREHAND and run.policy == policy]
    if len(runs) > 1:
        names = {"cpu": "OpenCV on the CPU", "dpu": "the emulated DPU"}
        sentences.append(
            f"From JPEG to output, at {report.rates_rps[runs[0].preprocessor]:.0f} requests/s, it took under {policy} "
            f"{each_mean(runs, [names[run.preprocessor] for run in runs])}."
        )
    return sentences


def gains(runs: Sequence[Run]) -> list[str]:
    """Of every policy, beside the first."""
    sentences = []
    for run in runs[1:]:
        parts = []
        for what, key in (("mean latency", "mean"), ("95th percentile", "p95")):
            before, after = runs[0].result["latency_ms"][key], run.result["latency_ms"][key]
            if before and after:
                parts.append(f"{after / before:.2f} times its {what}")
        late = [one.result["sla_violation_rate"] for one in (run, runs[0])]
        if None not in late:
            parts.append(f"{late[0]:.1%} late requests instead of {late[1]:.1%}")
        if parts:
            sentences.append(f"Beside {runs[0].policy}, {run.policy} had {', '.join(parts)}.")
    return sentences


def each_mean(runs: Sequence[Run], names: Sequence[str]) -> str:
    parts = []
    for run, name in zip(runs, names, strict=True):
        mean = run.result["latency_ms"]["mean"]
        parts.append(f"{'-' if mean is None else f'{mean:.0f} ms'} with {name}")
    return ", ".join(parts)


def _number(value: object, digits: int = 1) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float) else "-" if value is None else str(value)


def print_report(report: DemoReport, console: Console) -> None:
    def line(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    data = as_json(report)
    equality = report.equality
    line(
        f"{' and '.join(report.networks)} on {report.hardware}, "
        f"{report.cus} emulated image CUs, Poisson requests over {data['photos']} photos; "
        f"{report.machine['cpu']}, {report.machine['cores']} cores."
    )
    line(
        f"DPU against OpenCV: {equality.equal} of {equality.on_dpu} tensors equal bit for bit, "
        f"max difference {equality.max_difference:g}."
        + (f" Not taken by the DPU: {equality.unsupported}." if equality.unsupported else "")
    )
    if (clocks := data["dpu_clocks"]) is not None:
        line(
            f"Image CU: {clocks['cycles_mean']:,.0f} cycles a photo, {clocks['cycles_per_pixel']:.3f} a pixel; "
            f"{clocks['images_per_s_per_cu']:,.0f} such photos/s from each CU at {clocks['clock_mhz']} MHz."
        )
    for name, reason in data["skipped"].items():
        line(f"Skipped {name}: {reason}")
    for name, model in data["models"].items():
        _print_model(line, name, model, report.profiles[name].knee().latency_s * 1e3)
    print_runs(data["runs"], console)
    for sentence in data["shows"]:
        line(sentence)
    line(data["note"])
    print_simulated(report.simulated, console)


def print_runs(runs: Sequence[dict[str, Any]], console: Console) -> None:
    """As tables, from what `run_json` made, with what went wrong."""
    console.print(_results(runs))
    console.print(_breakdown(runs))
    for run in runs:
        if run["workers_lost"]:
            console.print(f"{run['name']}: {run['workers_lost']} worker(s) lost and started again.", markup=False)
        for error in run["errors"]:
            console.print(f"{run['name']}: {error}", markup=False)


def _print_model(line: Any, name: str, model: dict[str, Any], knee_ms: float) -> None:
    line(
        f"{name}, input {'x'.join(map(str, model['input_shape']))}: knee of the profile at batch "
        f"{model['knee']['batch']}, {knee_ms:.1f} ms, {model['knee']['throughput_rps']:.0f} requests/s; "
        f"preba: Batch_max {model['preba']['batch_max']}, Time_queue {model['preba']['time_queue_ms']:.1f} ms."
    )
    for photo, found in model["labels"].items():
        line(f"  {photo}: {found['label']}, {found['probability']:.1%}")
    if model["labels_note"]:
        line(f"  ({model['labels_note']})")


def _results(runs: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Live: throughput and latency", title_justify="left")
    headings = ("run", "asked/s", "done", "failed", "done/s", "mean ms", "p50", "p95", "p99", "batch", "late", "DPU ok")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "run" else "right", no_wrap=True)
    for run in runs:
        late = run["sla_violation_rate"]
        table.add_row(
            run["name"],
            _number(run["rate_rps"]),
            str(run["finished"]),
            str(run["requests"] - run["finished"]),
            _number(run["throughput_rps"]),
            *(_number(run["latency_ms"][key]) for key in ("mean", "p50", "p95", "p99")),
            _number(run["batch_size_mean"], 2),
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
        table.add_row(run["name"], *(_number(run["breakdown_ms"][part]) for part in PART_NAMES), reasons)
    return table


def write_report(report: DemoReport, folder: Path) -> list[Path]:
    """Writes report.json, demo.png, trace.pftrace and a profile for each network into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    profiles = {
        "profile.json" if len(report.profiles) == 1 else f"profile.{name.replace(':', '.')}.json": profile
        for name, profile in report.profiles.items()
    }
    paths = [folder / name for name in ("report.json", "demo.png", "trace.pftrace", *profiles)]
    paths[0].write_text(json.dumps(as_json(report), indent=2) + "\n")
    draw(report, shows(report), paths[1], report.simulated)
    write_trace(paths[2], report.runs)
    for path, profile in zip(paths[3:], profiles.values(), strict=True):
        path.write_text(profile.to_json())
    return paths
