"""Report the image demo as sentences, JSON, tables, a page and files."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rich.console import Console

from headrace.batching import preba_limits
from headrace.bitstreams.build import CLOCK_MHZ
from headrace.host.demo.inputs.prepared_images import Clocks, Equality
from headrace.host.demo.report.live import (
    CLOCKED_NOTE,
    EMULATION_NOTE,
    READING,
    batching,
    comparisons,
    late_line,
    live_json,
    live_strip,
    live_tables,
    print_line,
    print_runs,
    run_json,
    write_files,
)
from headrace.host.demo.report.page import NamedImage, Page
from headrace.host.demo.report.simulated import (
    SIMULATED_NOTE,
    left_out,
    print_simulated,
    server_lines,
    server_strip,
    simulated_json,
    simulated_lines,
    simulated_table,
    speech_json,
    speech_line,
    speech_strip,
    speech_table,
)
from headrace.host.demo.runs.images import ImageReport
from headrace.host.demo.runs.labels import RANDOM_NOTE, Label, surest
from headrace.host.demo.runs.processor import ProcessorCheck
from headrace.host.demo.runs.simulated import Simulated

THUMBNAIL = 320  # pixels of the longer side
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
        "processor": asdict(report.processor),
        "dpu_clocks": _clocks_json(report.clocks),
        "runs": [run_json(run, report.rates_rps[run.preprocessor]) for run in report.runs],
        "simulated": simulated_json(report.simulated),
        "speech": None if report.speech is None else speech_json(report.speech),
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
        "labels_note": RANDOM_NOTE if network.is_random else None,
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


def look(report: ImageReport) -> list[str]:
    """Return what to look at, in short sentences, from the measurements."""
    equality = report.equality
    lines = [
        late_line(report, "photos"),
        f"Preprocessing: of {equality.on_dpu} tensors that the DPU made, {equality.equal} equal those of OpenCV and "
        "numpy bit for bit.",
        *processor_line(report.processor),
    ]
    if named := _labels(report):
        labels = ", ".join(f"{label.label} in {_pictures(report)[name]}" for name, label in named.items())
        lines.append(f"Photos: the network sees {labels}.")
    if report.speech is not None:
        lines.append(speech_line(report.speech))
    if isinstance(report.simulated, Simulated):
        lines += server_lines(report.simulated)
    return lines


def processor_line(check: ProcessorCheck) -> list[str]:
    """Return a sentence about the image processor, or none if the DPU took no photo for it."""
    if not check.on_dpu:
        return []
    shapes = " and ".join("x".join(map(str, shape)) for shape in dict.fromkeys(check.shapes))
    return [
        f"Image processor of {check.model}: the DPU made patches of {check.on_dpu} photos ({shapes}), and "
        f"{check.equal} of these tensors equal those of the CPU path bit for bit."
    ]


def shows(report: ImageReport) -> list[str]:
    """Return sentences that say what the runs show, from the measurements."""
    return [*batching(report, "photos"), *comparisons(report.compared)]


def _pictures(report: ImageReport) -> dict[str, str | None]:
    """Return what the photos show, by their names."""
    return {image.name: image.picture for image in report.options.images}


def _labels(report: ImageReport) -> dict[str, Label]:
    """Return the surest labels of the network that names photos, by the photo's name. There may be none."""
    return next((surest(labels, _pictures(report)) for labels in report.labels.values() if labels), {})


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
    for line in processor_line(report.processor):
        print_line(console, line)
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
    if report.speech is not None:
        speech_table(report.speech).print(console)
    for line in look(report):
        print_line(console, f"- {line}")


def _print_model(console: Console, name: str, model: Mapping[str, Any], knee_ms: float) -> None:
    print_line(
        console,
        f"{name}, input {'x'.join(map(str, model['input_shape']))}: knee of the profile at batch "
        f"{model['knee']['batch']}, {knee_ms:.1f} ms, {model['knee']['throughput_rps']:.0f} requests/s; "
        f"preba: Batch_max {model['preba']['batch_max']}, Time_queue {model['preba']['time_queue_ms']:.1f} ms.",
    )


def write_report(report: ImageReport, folder: Path) -> list[Path]:
    """Write report.html, report.json, the pictures, trace.pftrace and a profile for each network into `folder`."""
    profile_name = "profile.json" if len(report.profiles) == 1 else "profile.{}.json"
    body, strips = as_json(report), [live_strip(report, "photos")]
    strips += [] if report.speech is None else [speech_strip(report.speech)]
    strips += [server_strip(report.simulated)] if isinstance(report.simulated, Simulated) else []
    return write_files(report, body, _page(report, body), strips, folder, profile_name)


def _page(report: ImageReport, body: Mapping[str, Any]) -> Page:
    jpegs = {image.name: image.jpeg for image in report.options.images}
    labels = _labels(report)
    tables = live_tables(body["runs"])
    notes = [body["note"]]
    if isinstance(report.simulated, Simulated):
        tables.append(simulated_table(report.simulated))
        notes += [SIMULATED_NOTE, *simulated_lines(report.simulated)]
    else:
        notes.append(left_out(report.simulated))
    if report.speech is not None:
        tables.append(speech_table(report.speech))
    return Page(
        f"{' and '.join(report.networks)} on {report.hardware}; {report.cus} emulated image CUs; {body['photos']} "
        f"photos; {report.machine['cpu']}, {report.machine['cores']} cores",
        look(report),
        [
            NamedImage(name, thumbnail(jpegs[name]), f"{label.label}, {label.probability:.0%}")
            for name, label in labels.items()
        ],
        next((name for name, known in report.labels.items() if known), ""),
        tables,
        READING,
        notes,
    )


def thumbnail(jpeg: bytes) -> bytes:
    """Return a photo with its longer side THUMBNAIL pixels long, if it is longer."""
    pixels = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    scale = min(1.0, THUMBNAIL / max(pixels.shape[:2]))
    smaller = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    encoded: bytes = cv2.imencode(".jpg", smaller, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()
    return encoded
