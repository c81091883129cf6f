"""Errors and clocks of the audio CUs' RTL, Verilated, over sounds: the time of a request, and the gain of two CUs.

    .venv/bin/python -m benchmarks.audio_cu [--audio FOLDER] [--latency 120] [--json [FILE]]
    .venv/bin/python -m benchmarks.audio_cu --plans [--plan-seconds 30]

Without `--audio`, sounds of 0.5 to 15 s are made, voiced and unvoiced parts at every rate of the DPU. With it, WAV
files of 16-bit PCM are taken from the folder, and other files there are left out. Each goes through audio_mel_cu and
audio_norm_cu to float32. Clocks are those of the CUs' own counters, from start to done; memory answers after
`--latency` clocks, then moves a word of 128 bits a clock on each port, and never stalls.

Errors are those against float64: numpy with librosa's filters. "mel" takes the samples that the DPU resampled, so that
it has no part of that error. "resample" compares with the sum over the same taps in float64. "normalised" is the RMS
error of the tensor against float64 of the DPU's own log-mels. "to CPU" is the log-mel against the whole CPU path, and
"to soxr" the same with soxr as its resampler, which differs in the transition band. Only points that lie 3 or more
above the floor count.

Throughput is computed from clocks: for one merged CU, which does A and then B for each request, and for two that
overlap, one request in each, in the order of the files (PREBA, Figure 12).

With --plans, one sound goes through the plan of each feature extractor that the units have. "model" is the deviation of
the cycle model, for CU A and CU B. The errors are the largest difference from the CPU path, which computes in float64,
and the one that 99.9 % of the values keep. LUTs and DSPs are those of each CU by Yosys.
"""

import argparse
import io
import tempfile
import wave
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its parts are large, and load when they are used
from numpy.typing import NDArray

from benchmarks.harness import Report, arguments, main, progress, table
from headrace.batching import BadInput, UnsupportedInput, UsageError
from headrace.bitstreams.build import build_hw_emu
from headrace.host.dpu.audio_work import mel_cu_clocks, norm_cu_clocks
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.hugging_face.names import audio_names, audio_processor
from headrace.host.dpu.reference import audio, audio_file, resampling
from headrace.host.dpu.specs import RATES, AudioSpec, AudioStage
from headrace.host.dpu.units.audio_cu import check
from headrace.host.xrt import emulation
from headrace.host.xrt.hw_emu import CLOCK_MHZ, MemoryModel
from headrace.sim.system.card import CUS, estimated_mhz

CLOCKS_MHZ = (CLOCK_MHZ, estimated_mhz("mel cu", "norm cu"))  # assumed, and what the estimate of the delays supports
ABOVE_FLOOR = 3.0  # in natural-log units
ERRORS = ("resample_error", "mel_error_999", "mel_error_all", "normalised_rms", "to_cpu_999", "to_soxr_999")


@dataclass(frozen=True)
class AudioClip:
    name: str
    data: bytes
    seconds: float
    rate: int


def made() -> list[AudioClip]:
    """Return glides of a voice's harmonics between noise, seconds by rate; the same at every call."""
    random = np.random.default_rng(1)
    lengths = [*((1.0, rate) for rate in RATES), *((s, 16000) for s in (0.5, 2.5, 5.0, 15.0))]
    return [made_clip(seconds, rate, random) for seconds, rate in lengths]


def made_clip(seconds: float, rate: int, random: np.random.Generator) -> AudioClip:
    time = np.arange(round(seconds * rate)) / rate
    pitch = 2 * np.pi * np.cumsum(120 + 30 * np.sin(4 * np.pi * time)) / rate
    voiced = sum(np.sin(k * pitch + random.uniform(0, 6)) / k for k in range(1, int(0.4 * rate / 150)))
    envelope = np.clip(np.sin(3.4 * np.pi * time), 0, 1)
    samples = 0.25 * envelope * voiced + 0.02 * (1 - envelope) * random.standard_normal(len(time))
    data = wav(np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2"), rate)
    return AudioClip(f"made, {seconds:g} s, {rate} Hz", data, seconds, rate)


def wav(samples: NDArray[Any], rate: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, rate, 0, "NONE", ""))
        out.writeframes(samples.tobytes())
    return file.getvalue()


def read(folder: Path, spec: AudioSpec) -> list[AudioClip]:
    clips = []
    for file in sorted(folder.rglob("*")):
        if not file.is_file():
            continue
        data = file.read_bytes()
        try:
            header = audio_file.pcm(data, spec.rates, spec.longest_s)
        except (UnsupportedInput, BadInput) as error:
            progress(f"{file.name} is left out: {error}")
            continue
        clips.append(AudioClip(file.name, data, header.frames / header.rate, header.rate))
    if not clips:
        raise UsageError(f"--audio {folder}: no WAV file of 16-bit PCM in there")
    return clips


def exact_resample(audio_clip: AudioClip, spec: AudioSpec) -> NDArray[np.float64]:
    """Return the sum over the definition's taps in float64."""
    samples, rate = audio_file.decode(audio_clip.data, spec.rates, spec.longest_s)
    up, down = spec.rate // np.gcd(spec.rate, rate), rate // np.gcd(spec.rate, rate)
    taps = resampling.taps(rate, spec.rate)
    skip = -(len(taps) // 2) % down
    exact = scipy.signal.upfirdn(np.pad(taps, (skip, 0)), samples.astype(np.float64), up, down)
    return exact[(skip + len(taps) // 2) // down :][: spec.resampled(len(samples), rate)]


def exact_mel(samples: NDArray[np.float64], spec: AudioSpec) -> NDArray[np.float64]:
    """Return the log-mels, of shape (n_mels, T), of samples at `spec.rate`, in float64."""
    emphasised = samples.copy()
    emphasised[1:] -= spec.preemphasis * samples[:-1]
    padded = np.pad(emphasised, spec.n_fft // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, spec.n_fft)[:: spec.hop][: spec.frames(len(samples))]
    window = np.pad(spec.hann(), (spec.n_fft - spec.window) // 2)
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    return np.log(audio.filterbank(spec).astype(np.float64) @ power.T + spec.log_floor)


def errors(found: NDArray[Any], exact: NDArray[Any], floor: float) -> tuple[float, float]:
    """Return the error that 99.9 % of the points that count do not exceed, and the largest; 0 if there are none."""
    counts = exact >= floor + ABOVE_FLOOR
    error = np.abs(found - exact)[counts]
    return (float(np.quantile(error, 0.999)), float(error.max())) if error.size else (0.0, 0.0)


async def measure(dpu: Dpu[AudioSpec], audio_clip: AudioClip) -> dict[str, Any]:
    """Return one row of the table. The taps are loaded before, as for a request after one of the same rate."""
    spec, floor = dpu.spec, float(np.log(dpu.spec.log_floor))
    resampled = (await dpu.process(audio_clip.data, AudioStage.RESAMPLE)).tensor.astype(np.float64)
    mel = (await dpu.process(audio_clip.data, AudioStage.MEL)).tensor.astype(np.float64)
    done = await dpu.process(audio_clip.data)
    assert done.counters is not None, "only hw_emu counts clocks"
    counted = mel[:, : spec.counted(mel.shape[1])]
    spread = counted.std(1, ddof=1, keepdims=True) + spec.std_floor if counted.shape[1] > 1 else np.ones((len(mel), 1))
    normalised = (counted - counted.mean(1, keepdims=True)) / spread
    normalised = np.pad(normalised, ((0, 0), (0, mel.shape[1] - counted.shape[1])))
    by_mel, largest = errors(mel, exact_mel(resampled, spec), floor)
    to_cpu, to_soxr = (
        errors(mel, audio.preprocess(audio_clip.data, other, AudioStage.MEL).astype(np.float64), floor)[0]
        for other in (spec, replace(spec, resampler="soxr"))
    )
    a, b = done.counters["mel_cycles"], done.counters["norm_cycles"]
    return {
        "sound": audio_clip.name,
        "seconds": audio_clip.seconds,
        "resample_error": float(np.abs(resampled - exact_resample(audio_clip, spec)).max(initial=0.0)),
        "mel_error_999": by_mel,
        "mel_error_all": largest,
        "normalised_rms": float(np.sqrt(np.mean((done.tensor - normalised) ** 2))),
        "to_cpu_999": to_cpu,
        "to_soxr_999": to_soxr,
        "mel_cycles": a,
        "norm_cycles": b,
        "cycles_per_sample": a / max(1, audio_clip.seconds * audio_clip.rate),
        "norm_cycles_per_value": b / mel.size,
        "seconds_per_s": {mhz: audio_clip.seconds * mhz * 1e6 / max(a, b) for mhz in CLOCKS_MHZ},
    }


def overlapped(rows: list[dict[str, Any]]) -> int:
    """Return the clocks of all requests, with A on one while B is on the one before; each has one request at a time."""
    a = b = 0
    for row in rows:
        a += row["mel_cycles"]
        b = max(a, b) + row["norm_cycles"]
    return b


def plans() -> dict[str, AudioSpec]:
    """Return the known feature extractors that the units have, one for each plan."""
    found: dict[str, AudioSpec] = {}
    for name in audio_names():
        spec = audio_processor(name)
        try:
            check(spec)
        except UsageError:
            continue
        if not any(replace(each, tensors=None) == replace(spec, tensors=None) for each in found.values()):
            found[name] = spec
    return found


async def measure_plan(xclbin: Path, name: str, spec: AudioSpec, clip: AudioClip, latency: int) -> dict[str, Any]:
    """Return one row of the table of plans."""
    async with Dpu(xclbin, spec) as dpu:
        emulation.set_memory_model(emulation.device(0), MemoryModel(latency=latency))
        done = await dpu.process(clip.data)
    assert done.counters is not None, "only hw_emu counts clocks"
    error = np.abs(done.tensor - audio.process(clip.data, spec)[0])
    samples, a, b = round(clip.seconds * clip.rate), done.counters["mel_cycles"], done.counters["norm_cycles"]
    return {
        "plan": name,
        "seconds": clip.seconds,
        "mel_cycles": a,
        "mel_model": mel_cu_clocks(spec, samples) / a - 1,
        "norm_cycles": b,
        "norm_model": norm_cu_clocks(spec, samples) / b - 1,
        "samples_a_clock": samples / a,
        "error_all": float(error.max()),
        "error_999": float(np.quantile(error, 0.999)),
        "cells": {cu: {kind: CUS[cu][kind] for kind in ("lut", "dsp")} for cu in ("mel cu", "norm cu")},
        "seconds_per_s": {mhz: clip.seconds * mhz * 1e6 / max(a, b) for mhz in CLOCKS_MHZ},
    }


async def run_plans(options: argparse.Namespace) -> Report:
    clip = made_clip(options.plan_seconds, 16000, np.random.default_rng(1))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        xclbin = Path(folder) / "audio.xclbin"
        build_hw_emu(xclbin, image_cus=0, mel_cus=1, norm_cus=1)
        for name, spec in plans().items():
            progress(name)
            rows.append(await measure_plan(xclbin, name, spec, clip, options.latency))
    head = "plan | A clocks | model | samples a clock | A LUTs | A DSPs | B clocks | model | B LUTs | B DSPs"
    text = table(
        " | ".join([head, "largest error", "99.9 %", *(f"s/s at {mhz} MHz" for mhz in CLOCKS_MHZ)]),
        (
            f"{row['plan']} | {row['mel_cycles']:,} | {100 * row['mel_model']:+.2f} % | {row['samples_a_clock']:.3f}"
            f" | {_cells(row, 'mel cu')} | {row['norm_cycles']:,} | {100 * row['norm_model']:+.2f} %"
            f" | {_cells(row, 'norm cu')} | {row['error_all']:.1e} | {row['error_999']:.1e}"
            f" | {' | '.join(f'{rate:,.0f}' for rate in row['seconds_per_s'].values())}"
            for row in rows
        ),
    )
    return Report({"latency": options.latency, "plans": rows}, text)


def _cells(row: dict[str, Any], cu: str) -> str:
    return f"{row['cells'][cu]['lut']:,.0f} | {row['cells'][cu]['dsp']:.0f}"


async def run(options: argparse.Namespace) -> Report:
    if options.plans:
        return await run_plans(options)
    clips = made() if options.audio is None else read(options.audio, AudioSpec())
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        xclbin = Path(folder) / "audio.xclbin"
        build_hw_emu(xclbin, image_cus=0, mel_cus=1, norm_cus=1)
        async with Dpu(xclbin, AudioSpec()) as dpu:
            emulation.set_memory_model(emulation.device(0), MemoryModel(latency=options.latency))
            for number, audio_clip in enumerate(clips, 1):
                progress(f"{number} of {len(clips)}: {audio_clip.name}")
                rows.append(await measure(dpu, audio_clip))
    head = "sound | resample | mel 99.9 % | mel all | norm. RMS | to CPU | to soxr | A clocks | / sample"
    text = table(
        " | ".join([head, "B clocks | / value", *(f"s/s at {mhz} MHz" for mhz in CLOCKS_MHZ)]),
        (
            f"{row['sound']} | {' | '.join(f'{row[name]:.1e}' for name in ERRORS)}"
            f" | {row['mel_cycles']:,} | {row['cycles_per_sample']:.3f}"
            f" | {row['norm_cycles']:,} | {row['norm_cycles_per_value']:.3f}"
            f" | {' | '.join(f'{rate:,.0f}' for rate in row['seconds_per_s'].values())}"
            for row in rows
        ),
    )
    seconds = sum(row["seconds"] for row in rows)
    merged, two = sum(row["mel_cycles"] + row["norm_cycles"] for row in rows), overlapped(rows)
    for mhz in CLOCKS_MHZ:
        text += (
            f"\n\n{seconds:.1f} s of audio in {len(rows)} requests at {mhz} MHz: one merged CU"
            f" {seconds * mhz * 1e6 / merged:,.0f} s/s, CU A and CU B overlapped {seconds * mhz * 1e6 / two:,.0f} s/s"
            f" ({merged / two:.2f} times)"
        )
    figures = {"latency": options.latency, "merged_cycles": merged, "overlapped_cycles": two, "rows": rows}
    return Report(figures, text)


if __name__ == "__main__":
    parser = arguments(__doc__, latency=120)
    parser.add_argument("--audio", type=Path, help="a folder of WAV files; default: made sounds")
    parser.add_argument("--plans", action="store_true", help="one sound by the plan of each feature extractor")
    parser.add_argument("--plan-seconds", type=float, default=30.0, help="length of that sound")
    main(parser, run)
