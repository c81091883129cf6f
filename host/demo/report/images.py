"""Report the image demo as sentences, JSON, tables and files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.batching import preba_limits
from headrace.bitstreams.build import CLOCK_MHZ
from headrace.host.demo.inputs.prepared_images import Clocks, Equality
from headrace.host.demo.options import BEFOREHAND
from headrace.host.demo.report.live import (
    CLOCKED_NOTE,
    EMULATION_NOTE,
    comparisons,
    each_mean,
    live_json,
    print_line,
    print_runs,
    run_json,
    write_files,
)
from headrace.host.demo.report.simulated import print_simulated, simulated_json
from headrace.host.demo.runs.images import ImageReport
from headrace.host.demo.runs.labels import RANDOM_NOTE

NPU_NOTE = "The NPUs are simulated: the network takes the time that the model says and computes nothing."


def as_json(report: ImageReport) -> dict[str, Any]:
    """Return everything that was measured."""
    note = CLOCKED_NOTE if report.clocks else EMULATION_NOTE
    return {
        "models": {name: _model_json(report, name) for name in report.networks},
        "photos": len(report.distinct[0].files),
        "skipped": {name: reason for part in report.distinct for name, reason in part.skipped.items()},
        "workers_simulated": bool(report.options.npus),
        "image_cus": report.cus,
        **live_json(report, shows(report), f"{note} {NPU_NOTE}" if report.options.npus else note),
        "equality": _equality_json(report.equality),
        "dpu_clocks": _clocks_json(report.clocks),
        "runs": [run_json(run, report.rates_rps[run.preprocessor]) for run in report.runs],
        "simulated": simulated_json(report.simulated),
    }


def _model_json(report: ImageReport, name: str) -> dict[str, Any]:
    network, prepared, profile = report.networks[name], report.prepared[name], report.profiles[name]
    limits = preba_limits(profile, report.workers)
    labels = report.labels[name]
    return {
        "input_shape": list(network.description.inputs[0].shape),
        "resize_short": network.spec.resize_short,
        "knee": {"batch": profile.knee().batch, "throughput_rps": profile.knee().throughput_rps},
        "preba": {"batch_max": limits.max_batch, "time_queue_ms": limits.window_s * 1e3},
        "preprocess_images_per_s": prepared.files_per_s,
        "equality": _equality_json(prepared.equality),
        "labels": {image: {"label": label.label, "probability": label.probability} for image, label in labels.items()},
        "labels_note": RANDOM_NOTE if labels and network.is_random else None,
    }


def _equality_json(equality: Equality) -> dict[str, Any]:
    return {
        "photos": equality.images,
        "on_dpu": equality.on_dpu,
        "equal": equality.equal,
        "max_difference": equality.max_difference,
        "unsupported": equality.unsupported,
    }


def _clocks_json(clocks: Clocks | None) -> dict[str, Any] | None:
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


def shows(report: ImageReport) -> list[str]:
    """Return sentences that say what the runs show, for each load, from the measurements."""
    rate = report.rates_rps.get(BEFOREHAND)
    sentences = []
    if rate is not None:
        alone, batched = report.one_by_one_rps, report.in_batches_rps
        runs = [run for run in report.runs if run.preprocessor == BEFOREHAND]
        sentences.append(
            f"At {rate:.0f} requests/s, {rate / alone:.2f} times what the workers sustain one by one ({alone:.0f}/s) "
            f"and {rate / batched:.2f} times what they sustain in batches of the knee ({batched:.0f}/s), a request "
            f"took on average {each_mean(runs, [run.policy for run in runs])}."
        )
        sentences += comparisons(runs)
        if batched < 1.1 * alone:
            sentences.append("Batches bring hardly any throughput here, so batching cannot pay.")
        elif rate < alone:
            sentences.append("The workers sustain that one by one, so batching has nothing to gain.")
    policy = report.options.policies[0]
    runs = [run for run in report.runs if run.preprocessor != BEFOREHAND and run.policy == policy]
    if len(runs) > 1:
        names = {"cpu": "OpenCV on the CPU", "dpu": "the emulated DPU"}
        sentences.append(
            f"From JPEG to output, at {report.rates_rps[runs[0].preprocessor]:.0f} requests/s, a request took under "
            f"{policy} on average {each_mean(runs, [names[run.preprocessor] for run in runs])}."
        )
    return sentences


def print_report(report: ImageReport, console: Console) -> None:
    """Print the report as lines and tables."""
    data = as_json(report)
    equality = report.equality
    print_line(
        console,
        f"{' and '.join(report.networks)} on {report.hardware}, "
        f"{report.cus} emulated image CUs, Poisson requests over {data['photos']} photos; "
        f"{report.machine['cpu']}, {report.machine['cores']} cores.",
    )
    print_line(
        console,
        f"DPU against OpenCV: {equality.equal} of {equality.on_dpu} tensors equal bit for bit, "
        f"max difference {equality.max_difference:g}."
        + (f" Not taken by the DPU: {equality.unsupported}." if equality.unsupported else ""),
    )
    if (clocks := data["dpu_clocks"]) is not None:
        print_line(
            console,
            f"Image CU: {clocks['cycles_mean']:,.0f} cycles a photo, {clocks['cycles_per_pixel']:.3f} a pixel; "
            f"{clocks['images_per_s_per_cu']:,.0f} such photos/s from each CU at {clocks['clock_mhz']} MHz.",
        )
    for name, reason in data["skipped"].items():
        print_line(console, f"Skipped {name}: {reason}")
    for name, model in data["models"].items():
        _print_model(console, name, model, report.profiles[name].knee().latency_s * 1e3)
    print_runs(data["runs"], console)
    for sentence in (*data["shows"], data["note"]):
        print_line(console, sentence)
    print_simulated(report.simulated, console)


def _print_model(console: Console, name: str, model: Mapping[str, Any], knee_ms: float) -> None:
    print_line(
        console,
        f"{name}, input {'x'.join(map(str, model['input_shape']))}: knee of the profile at batch "
        f"{model['knee']['batch']}, {knee_ms:.1f} ms, {model['knee']['throughput_rps']:.0f} requests/s; "
        f"preba: Batch_max {model['preba']['batch_max']}, Time_queue {model['preba']['time_queue_ms']:.1f} ms.",
    )
    for image, label in model["labels"].items():
        print_line(console, f"  {image}: {label['label']}, {label['probability']:.1%}")
    if model["labels_note"]:
        print_line(console, f"  ({model['labels_note']})")


def write_report(report: ImageReport, folder: Path) -> list[Path]:
    """Write report.json, demo.png, trace.pftrace and a profile for each network into `folder`."""
    profile_name = "profile.json" if len(report.profiles) == 1 else "profile.{}.json"
    return write_files(report, as_json(report), folder, profile_name)
