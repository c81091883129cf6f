"""Report the audio demo as sentences, JSON, tables and files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.bitstreams.build import CLOCK_MHZ
from headrace.host.demo.inputs.prepared_audio import MAX_RMS
from headrace.host.demo.report.live import (
    CLOCKED_NOTE,
    EMULATION_NOTE,
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
from headrace.host.demo.report.simulated import (
    SIMULATED_NOTE,
    left_out,
    print_simulated,
    server_lines,
    server_strip,
    simulated_json,
    simulated_lines,
    simulated_table,
)
from headrace.host.demo.runs.audio import WEIGHTS_NOTE, AudioReport, cu_runs, overlap
from headrace.host.demo.runs.simulated import Simulated

TOGETHER = "all sounds at once"  # the title of these CU runs in the trace


def shows(report: AudioReport) -> list[str]:
    """Return sentences that say what the runs show, from the measurements."""
    sentences = [*batching(report, "sounds"), *comparisons(report.compared)]
    for part in report.distinct:
        if (spans := overlap(each for _, runs in part.together for each in runs)) is not None:
            sentences.append(
                f"The emulated CUs took {part.dpu_s:.2f} s for {len(part.together)} sounds one after another, and "
                f"{part.together_s:.2f} s when CU A took the next sound while CU B had the one before. CU B was busy "
                f"for {spans['norm_s']:.2f} s, and CU A was busy at the same time for "
                f"{spans['both_s'] / spans['norm_s']:.0%} of that."
            )
    if isinstance(report.simulated, Simulated):
        sentences += server_lines(report.simulated)
    return sentences


def as_json(report: AudioReport) -> dict[str, Any]:
    """Return everything that was measured."""
    clocked = any(part.cycles for part in report.prepared.values())
    emulated = [CLOCKED_NOTE if clocked else EMULATION_NOTE] if report.cus else []
    return {
        "models": {name: _model_json(report, name) for name in report.prepared},
        "sounds": len(report.distinct[0].files),
        "skipped": {name: reason for part in report.distinct for name, reason in part.skipped.items()},
        "audio_cus": list(report.cus),
        **live_json(report, shows(report), " ".join([*emulated, WEIGHTS_NOTE])),
        "runs": [
            run_json(run, report.rates_rps[run.preprocessor]) | {"overlap": overlap(cu_runs(run))}
            for run in report.runs
        ],
        "simulated": simulated_json(report.simulated),
    }


def _model_json(report: AudioReport, name: str) -> dict[str, Any]:
    part, profile = report.prepared[name], report.profiles[name]
    step_s = profile.step_s or report.step_s
    knees = {f"{length * step_s:.1f}": profile.knee(length) for length in profile.lengths}  # by seconds of audio
    return {
        "seconds": {"total": sum(part.frames) * report.step_s, "longest": max(part.frames) * report.step_s},
        "knees": {
            length: {"batch": knee.batch, "latency_ms": knee.latency_s * 1e3, "throughput_rps": knee.throughput_rps}
            for length, knee in knees.items()
        },
        "preprocess_sounds_per_s": part.files_per_s,
        "accuracy": {
            "sounds": part.accuracy.clips,
            "on_dpu": part.accuracy.on_dpu,
            "good": part.accuracy.good,
            "largest_rms": part.accuracy.largest_rms,
            "max_difference": part.accuracy.max_difference,
            "faint_rms": part.accuracy.faint_rms,
            "unsupported": part.unsupported,
        },
        "all_at_once": {
            "alone_s": part.dpu_s,
            "together_s": part.together_s,
            "overlap": overlap(each for _, runs in part.together for each in runs),
        },
        "dpu_clocks": {
            "cycles": part.cycles,
            "cycles_per_sample": part.cycles / part.samples,
            "clock_mhz": CLOCK_MHZ,
        }
        if part.cycles
        else None,
    }


def _subtitle(report: AudioReport, data: Mapping[str, Any]) -> str:
    cus = f", {len(report.cus)} emulated audio CUs" if report.cus else ""
    return (
        f"{' and '.join(report.prepared)} on {report.hardware}{cus}, Poisson requests over {data['sounds']} sounds; "
        f"{report.machine['cpu']}, {report.machine['cores']} cores"
    )


def print_report(report: AudioReport, console: Console) -> None:
    """Print the report as lines and tables."""
    data = as_json(report)
    print_line(console, f"{_subtitle(report, data)}.")
    for name, reason in data["skipped"].items():
        print_line(console, f"Skipped {name}: {reason}")
    for name, model in data["models"].items():
        accuracy, seconds = model["accuracy"], model["seconds"]["total"]
        if report.cus:
            print_line(
                console,
                f"DPU against floating point, {accuracy['on_dpu']} sounds: {accuracy['good']} within an RMS error of "
                f"{MAX_RMS:g}. The largest RMS error is {accuracy['largest_rms']:.1e}, the largest error of one value "
                f"{accuracy['max_difference']:.1e}. In bands with almost no signal the RMS error is up to "
                f"{accuracy['faint_rms']:.1e}."
                + (f" Not taken by the DPU: {accuracy['unsupported']}." if accuracy["unsupported"] else ""),
            )
        if (clocks := model["dpu_clocks"]) is not None:
            print_line(
                console,
                f"Audio CUs: {clocks['cycles']:,} cycles for {seconds:.0f} s of sound, "
                f"{clocks['cycles_per_sample']:.3f} a sample at 16 kHz.",
            )
        knees = ", ".join(f"{knee['batch']} at {length} s" for length, knee in model["knees"].items())
        print_line(console, f"{name}: {seconds:.0f} s of sound; knee of the profile at batch {knees}.")
    print_runs(data["runs"], console)
    for sentence in (*data["shows"], data["note"]):
        print_line(console, sentence)
    print_simulated(report.simulated, console)


def write_report(report: AudioReport, folder: Path) -> list[Path]:
    """Write report.html, report.json, the pictures, trace.pftrace and a profile for each network into `folder`."""
    together = {TOGETHER: [each for part in report.distinct for each in part.together]}
    body, strips = as_json(report), [live_strip(report, "sounds")]
    tables, notes = live_tables(body["runs"]), [body["note"]]
    if isinstance(report.simulated, Simulated):
        strips.append(server_strip(report.simulated))
        tables.append(simulated_table(report.simulated))
        notes += [SIMULATED_NOTE, *simulated_lines(report.simulated)]
    else:
        notes.append(left_out(report.simulated))
    page = Page(_subtitle(report, body), shows(report), [], "", tables, READING, notes)
    return write_files(report, body, page, strips, folder, "profile.{}.json", together)
