#!/usr/bin/env python3
"""Errors and clocks of the audio CUs' RTL, Verilated, over sounds: what a request takes, and what two CUs are worth.

    .venv/bin/python scripts/bench_audio_cu.py [--audio FOLDER] [--latency 120] [--json FILE]

Without --audio, sounds of 0.5 to 15 s are made, voiced and unvoiced parts at every rate of the DPU; with it, WAV files
of 16-bit PCM are taken from the folder, and what else lies there is left out. Each goes through audio_mel_cu and
audio_norm_cu to float32. Clocks are those of the CUs' own counters, from start to done; memory answers after
`--latency` clocks, then moves a word of 128 bits a clock on each port, and never stalls.

Errors are those against float64: numpy with librosa's filters. "mel" takes the samples that the DPU resampled, so that
it has no part of that; "resample" compares with the sum over the same taps in float64; "normalised" is the RMS error of
the tensor against float64 of the DPU's own log-mels. "to CPU" is the log-mel against the whole CPU path, and "to soxr"
the same with soxr as its resampler, which differs in the transition band. Points count that lie 3 or more above the
floor.

Throughput is from clocks: of one merged CU, which does A and then B for each request, and of two that overlap, one
request in each, in the order of the files (PREBA, Figure 12).
"""

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.signal
from numpy.typing import NDArray

from headrace.batching import BadInput, UnsupportedInput
from headrace.bitstreams.build import build_hw_emu
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.reference import audio, audio_file, resampling
from headrace.host.dpu.specs import RATES, AudioSpec, AudioStage
from headrace.host.xrt import emulation
from headrace.host.xrt.hw_emu import CLOCK_MHZ, MemoryModel
from headrace.sim.system.card import estimated_mhz

CLOCKS_MHZ = (CLOCK_MHZ, estimated_mhz("mel cu", "norm cu"))  # assumed, and what the estimate of the delays supports
ABOVE_FLOOR = 3.0  # in natural-log units


@dataclass(frozen=True)
class AudioClip:
    name: str
    data: bytes
    seconds: float
    rate: int


def made() -> list[AudioClip]:
    """Glides of a voice's harmonics between noise, seconds by rate; the same at every call."""
    random = np.random.default_rng(1)
    sounds = []
    for seconds, rate in [*((1.0, rate) for rate in RATES), *((s, 16000) for s in (0.5, 2.5, 5.0, 15.0))]:
        time = np.arange(round(seconds * rate)) / rate
        pitch = 2 * np.pi * np.cumsum(120 + 30 * np.sin(4 * np.pi * time)) / rate
        voiced = sum(np.sin(k * pitch + random.uniform(0, 6)) / k for k in range(1, int(0.4 * rate / 150)))
        envelope = np.clip(np.sin(3.4 * np.pi * time), 0, 1)
        samples = 0.25 * envelope * voiced + 0.02 * (1 - envelope) * random.standard_normal(len(time))
        data = wav(np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2"), rate)
        sounds.append(AudioClip(f"made, {seconds:g} s, {rate} Hz", data, seconds, rate))
    return sounds


def wav(samples: NDArray[Any], rate: int) -> bytes:
    import io
    import wave

    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, rate, 0, "NONE", ""))
        out.writeframes(samples.tobytes())
    return file.getvalue()


def read(folder: Path, spec: AudioSpec) -> list[AudioClip]:
    sounds = []
    for file in sorted(folder.rglob("*")):
        if not file.is_file():
            continue
        data = file.read_bytes()
        try:
            header = audio_file.pcm(data, spec.rates, spec.longest_s)
        except (UnsupportedInput, BadInput) as error:
            print(f"{file.name} is left out: {error}", file=sys.stderr)
            continue
        sounds.append(AudioClip(file.name, data, header.frames / header.rate, header.rate))
    return sounds


def exact_resample(sound: AudioClip, spec: AudioSpec) -> NDArray[np.float64]:
    """The sum over the definition's taps in float64."""
    samples, rate = audio_file.decode(sound.data, spec.rates, spec.longest_s)
    up, down = spec.rate // np.gcd(spec.rate, rate), rate // np.gcd(spec.rate, rate)
    taps = resampling.taps(rate, spec.rate)
    skip = -(len(taps) // 2) % down
    exact = scipy.signal.upfirdn(np.pad(taps, (skip, 0)), samples.astype(np.float64), up, down)
    return exact[(skip + len(taps) // 2) // down :][: spec.resampled(len(samples), rate)]


def exact_mel(samples: NDArray[np.float64], spec: AudioSpec) -> NDArray[np.float64]:
    """(n_mels, T) of samples at `spec.rate`, in float64."""
    emphasised = samples.copy()
    emphasised[1:] -= spec.preemphasis * samples[:-1]
    padded = np.pad(emphasised, spec.n_fft // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, spec.n_fft)[:: spec.hop][: spec.frames(len(samples))]
    window = np.pad(spec.hann(), (spec.n_fft - spec.window) // 2)
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    return np.log(audio.filterbank(spec).astype(np.float64) @ power.T + spec.log_floor)


def errors(found: NDArray[Any], exact: NDArray[Any], floor: float) -> tuple[float, float]:
    """At 99.9 % and at all of the points that count; 0 if there are none."""
    counts = exact >= floor + ABOVE_FLOOR
    error = np.abs(found - exact)[counts]
    return (float(np.quantile(error, 0.999)), float(error.max())) if error.size else (0.0, 0.0)


async def measure(dpu: Dpu[AudioSpec], sound: AudioClip) -> dict[str, Any]:
    """One row of the table. Taps are loaded before, as for a request after one of the same rate."""
    spec, floor = dpu.spec, float(np.log(dpu.spec.log_floor))
    resampled = (await dpu.process(sound.data, AudioStage.RESAMPLE)).tensor.astype(np.float64)
    mel = (await dpu.process(sound.data, AudioStage.MEL)).tensor.astype(np.float64)
    done = await dpu.process(sound.data)
    assert done.counters is not None, "only hw_emu counts clocks"
    counted = mel[:, : spec.counted(mel.shape[1])]
    spread = counted.std(1, ddof=1, keepdims=True) + spec.std_floor if counted.shape[1] > 1 else np.ones((len(mel), 1))
    normalised = (counted - counted.mean(1, keepdims=True)) / spread
    normalised = np.pad(normalised, ((0, 0), (0, mel.shape[1] - counted.shape[1])))
    by_mel, largest = errors(mel, exact_mel(resampled, spec), floor)
    to_cpu, to_soxr = (
        errors(mel, audio.preprocess(sound.data, other, AudioStage.MEL).astype(np.float64), floor)[0]
        for other in (spec, replace(spec, resampler="soxr"))
    )
    a, b = done.counters["mel_cycles"], done.counters["norm_cycles"]
    return {
        "sound": sound.name,
        "seconds": sound.seconds,
        "resample_error": float(np.abs(resampled - exact_resample(sound, spec)).max(initial=0.0)),
        "mel_error_999": by_mel,
        "mel_error_all": largest,
        "normalised_rms": float(np.sqrt(np.mean((done.tensor - normalised) ** 2))),
        "to_cpu_999": to_cpu,
        "to_soxr_999": to_soxr,
        "mel_cycles": a,
        "norm_cycles": b,
        "cycles_per_sample": a / max(1, sound.seconds * sound.rate),
        "norm_cycles_per_value": b / mel.size,
        "seconds_per_s": {mhz: sound.seconds * mhz * 1e6 / max(a, b) for mhz in CLOCKS_MHZ},
    }


def overlapped(rows: list[dict[str, Any]]) -> int:
    """Clocks of all requests, A on one while B is on the one before; each with one request at a time."""
    a = b = 0
    for row in rows:
        a += row["mel_cycles"]
        b = max(a, b) + row["norm_cycles"]
    return b


async def run(xclbin: Path, sounds: list[AudioClip], latency: int) -> list[dict[str, Any]]:
    async with Dpu(xclbin, AudioSpec()) as dpu:
        emulation.set_memory_model(emulation.device(0), MemoryModel(latency=latency))
        rows = []
        for number, sound in enumerate(sounds):
            print(f"{number + 1}/{len(sounds)} {sound.name}", file=sys.stderr)
            rows.append(await measure(dpu, sound))
        return rows


def main() -> None:
    import asyncio
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audio", type=Path)
    parser.add_argument("--latency", type=int, default=120)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sounds = made() if options.audio is None else read(options.audio, AudioSpec())
    if not sounds:
        parser.error(f"--audio {options.audio}: no WAV file of 16-bit PCM in there")
    with tempfile.TemporaryDirectory() as folder:
        xclbin = Path(folder) / "audio.xclbin"
        build_hw_emu(xclbin, image_cus=0, mel_cus=1, norm_cus=1)
        rows = asyncio.run(run(xclbin, sounds, options.latency))
    heads = (
        "resample",
        "mel 99.9 %",
        "mel all",
        "norm. RMS",
        "to CPU",
        "to soxr",
        "A clocks",
        "/ sample",
        "B clocks",
        "/ value",
        *(f"s/s at {mhz} MHz" for mhz in CLOCKS_MHZ),
    )
    print("| sound | " + " | ".join(heads) + " |\n| --- |" + " ---: |" * len(heads))
    for row in rows:
        print(
            f"| {row['sound']} | {row['resample_error']:.1e} | {row['mel_error_999']:.1e} | {row['mel_error_all']:.1e}"
            f" | {row['normalised_rms']:.1e} | {row['to_cpu_999']:.1e} | {row['to_soxr_999']:.1e}"
            f" | {row['mel_cycles']:,} | {row['cycles_per_sample']:.3f}"
            f" | {row['norm_cycles']:,} | {row['norm_cycles_per_value']:.3f}"
            f" | {' | '.join(f'{rate:,.0f}' for rate in row['seconds_per_s'].values())} |"
        )
    seconds = sum(row["seconds"] for row in rows)
    merged = sum(row["mel_cycles"] + row["norm_cycles"] for row in rows)
    two = overlapped(rows)
    for mhz in CLOCKS_MHZ:
        print(
            f"\n{seconds:.1f} s of audio in {len(rows)} requests at {mhz} MHz: one merged CU"
            f" {seconds * mhz * 1e6 / merged:,.0f} s/s, CU A and CU B overlapped {seconds * mhz * 1e6 / two:,.0f} s/s"
            f" ({merged / two:.2f} times)"
        )
    if options.json:
        summary = {"latency": options.latency, "merged_cycles": merged, "overlapped_cycles": two, "rows": rows}
        options.json.write_text(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()
